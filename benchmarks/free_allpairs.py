"""How biased is free relevance of `AllPairs` where queries are shown little? By displays per query and pair, a table.

    PYTHONPATH=src python benchmarks/free_allpairs.py            # prints the table, under two minutes

A value of relevance for every query and pair is learned from that query's displays alone, and it is as uncertain as
they are few: however many queries there are, the estimate of examination does not settle on the truth (the incidental
parameters of Neyman and Scott). Each of many queries has one document, shown equally often at two of four positions;
p_k = 1/k, clicks are Bernoulli(p_k r).

An error is p̂_k / p_k − 1, averaged over positions 2 to 4. ClickShare has no such value to learn and no such bias, so
that the mean difference of the two errors on the same logs is the bias of free relevance with little noise; ± is its
standard error over logs. Fits start from a flat curve: a start at the truth might flatter.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from clickharvest.estimation import AllPairs, ClickShare, Fit, Sample
from clickharvest.model import Constant

POSITIONS = (1, 2, 3, 4)
TRUTH = 1 / np.arange(1, 5)
DISPLAYS = (2, 4, 10, 20, 50, 100, 200)
RELEVANCE = {"r ~ Beta(1, 2)": (1, 2), "r ~ Beta(1, 9)": (1, 9)}


def simulate(queries: int, shown: int, beta: tuple[int, int], seed: int) -> Sample:
    """Return queries with one document each, shown `shown` times at either of two positions."""
    random = np.random.default_rng(seed)
    pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
    position = pairs[random.integers(len(pairs), size=queries)].ravel()
    unit = np.repeat(np.arange(queries), 2)
    clicks = random.binomial(shown, TRUTH[position] * random.beta(*beta, size=queries)[unit])
    impressions = np.full(2 * queries, shown)
    context = np.zeros_like(unit)
    x = np.zeros((1, 0))
    return Sample(POSITIONS, x, unit, context, position, impressions * 1.0, clicks, impressions, unit, queries)


def relative_error(objective: Any, sample: Sample) -> float:
    """Return the mean of p̂_k / p_k − 1 over the positions below the first."""
    fit = Fit(Constant(POSITIONS, 1, 0), objective, sample)
    ones, free = np.ones((1, sample.n_clusters)), np.zeros(1)
    flat = fit.solve(0 * fit.starts(1, 0), ones, free, tolerance=1e-7).params[0]
    return float(np.mean(np.exp(fit.params(flat)["curve"]["b"]) / TRUTH[1:] - 1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=6, help="simulated logs of each cell")
    parser.add_argument("--displays", type=int, default=100_000, help="displays of a log, of 2,000 queries or more")
    options = parser.parse_args()
    print("| displays per query and pair | " + " | ".join(RELEVANCE) + " | ClickShare |")
    print("|--:|" + "--:|" * (len(RELEVANCE) + 1))
    for displays in DISPLAYS:
        cells, controls = [], []
        for beta in RELEVANCE.values():
            queries = max(2_000, options.displays // displays)
            samples = [simulate(queries, displays // 2, beta, seed) for seed in range(options.logs)]
            free, control = (
                np.array([relative_error(objective(sample, **named), sample) for sample in samples])
                for objective, named in ((AllPairs, {"relevance": "free"}), (ClickShare, {}))
            )
            cells.append(spell(free - control))
            controls.append(control)
        print(f"| {displays:,} | " + " | ".join([*cells, spell(np.concatenate(controls))]) + " |", flush=True)


def spell(errors: Any) -> str:
    """Return the mean over logs with its standard error."""
    return f"{np.mean(errors):+.1%} ± {np.std(errors, ddof=1) / np.sqrt(len(errors)):.1%}"


if __name__ == "__main__":
    main()
