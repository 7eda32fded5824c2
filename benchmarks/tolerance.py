"""How far off may a curve be that a ranker is trained with? The power of k is wrong by some amount; what does it cost?

    .venv/bin/python benchmarks/tolerance.py            # writes the table; a few minutes

A production ranker, trained on few queries, shows ten results of every query, in an order with some noise; users look
at position k with probability 1 / k and click what is relevant, and 5 % of the rest. A linear ranker is trained on
these clicks with inverse propensity weights (softmax over the documents of a query), its curve being k^−(1 + δ). The
table has what that costs in nDCG@10 on other queries, beside the ranker of the right curve.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from accuracy import machine, say
from numpy.typing import NDArray
from scipy.optimize import minimize
from tables import write_table

from clickharvest.checks import TOLERANCE
from clickharvest.simulate import Corpus, read_letor, synthetic_corpus
from clickharvest.simulate.corpus import svm_rank, top

Array = NDArray[np.float64]
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
OFF = (-0.3, -0.2, -0.1, 0.1, 0.2, 0.3)
CLICKS, K, NOISE, BY_CHANCE = (10_000, 100_000), 10, 0.1, 0.05
PENALTY = 1e-4


def corpora() -> dict[str, Corpus]:
    """Return the corpora: a made-up one, and those of LETOR 4.0 that are on this machine."""
    found = {"synthetic": synthetic_corpus(1_200, features=64, seed=1)}
    for name in ("mq2007_part.txt.gz", "mq2008.txt.gz"):
        if (DATA / name).exists():
            found[name.partition("_")[0].partition(".")[0]] = read_letor(DATA / name)
    return {name: corpus.with_relevant() for name, corpus in found.items()}


def costs(corpus: Corpus, clicks: int, seed: int) -> list[float]:
    """Return what each error of `OFF` costs, in points of nDCG@10."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(corpus))
    few, test = len(order) // 20, len(order) // 2
    shown, held = corpus.take(order[: len(order) - test]), corpus.take(order[len(order) - test :])
    production = svm_rank(corpus.take(order[:few]))
    weights = np.zeros((len(shown.grades), K))  # clicks of every document at every position
    chance = np.where(shown.relevant, 1.0, BY_CHANCE)
    spread = float(np.std(shown.features @ production))
    while weights.sum() < clicks:
        page = top(noisy(shown, production, NOISE * spread, random), np.ones(1), K)
        there = page >= 0
        clicked = there & (random.random(page.shape) < chance[page] / np.arange(1, K + 1))
        np.add.at(weights, (page[clicked], np.nonzero(clicked)[1]), 1)
    right, *wrong = (ndcg(held, train(shown, weights @ np.arange(1, K + 1) ** (1 + off))) for off in (0.0, *OFF))
    return [100 * (right - own) for own in wrong]


def noisy(corpus: Corpus, weights: Array, noise: float, random: np.random.Generator) -> Corpus:
    """Return a corpus of one feature, a ranker's score with noise."""
    score = corpus.features @ weights + random.normal(0, noise, len(corpus.grades))
    return Corpus(score[:, None].astype(np.float32), corpus.grades, corpus.starts, corpus.threshold)


def train(corpus: Corpus, weight: Array) -> Array:
    """Return the linear ranker that maximises Σ w log softmax(f·θ), by query."""
    features, query = corpus.features.astype(np.float64), corpus.query
    total, whole = np.bincount(query, weight, len(corpus)), weight.sum()

    def loss(theta: Array) -> tuple[float, Array]:
        score = features @ theta
        score -= np.maximum.reduceat(score, corpus.starts[:-1])[query]
        share = np.exp(score)
        normaliser = np.bincount(query, share, len(corpus))
        share /= normaliser[query]
        value = float(total @ np.log(normaliser) - weight @ score) / whole + PENALTY * float(theta @ theta)
        return value, features.T @ (total[query] * share - weight) / whole + 2 * PENALTY * theta

    found = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x)


def ndcg(corpus: Corpus, theta: Array) -> float:
    """Return the mean nDCG@10 of a linear ranker."""
    page = top(corpus, theta, K)
    gain = np.where(page >= 0, 2.0 ** corpus.grades[page] - 1, 0) / np.log2(np.arange(2, K + 2))
    best = top(Corpus(corpus.grades[:, None].astype(np.float32), corpus.grades, corpus.starts), np.ones(1), K)
    ideal = np.where(best >= 0, 2.0 ** corpus.grades[best] - 1, 0) / np.log2(np.arange(2, K + 2))
    return float(np.mean(gain.sum(axis=1) / ideal.sum(axis=1)))


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="logs of each corpus and size")
    seeds = parser.parse_args().seeds
    lines = [f"| corpus | clicks | {' | '.join(f'{off:+g}' for off in OFF)} |", f"|---|--:|{'--:|' * len(OFF)}"]
    off_by = " | ".join(f"{K ** abs(off) - 1:.0%}" for off in OFF)
    lines.append(f"| *off at rank {K} by* | | {off_by} |")
    for name, corpus in corpora().items():
        for clicks in CLICKS:
            found = np.array([costs(corpus, clicks, seed) for seed in range(seeds)])
            error = found.std(axis=0, ddof=1) / np.sqrt(seeds)
            cells = " | ".join(f"{mean:+.2f} ± {its:.2f}" for mean, its in zip(found.mean(axis=0), error, strict=True))
            lines.append(f"| {name} | {clicks:,} | {cells} |")
            say(lines[-1])
    lines += ["", f"{seeds} logs each; the default tolerance is {TOLERANCE:.0%}; {machine()}."]
    print("\n".join(lines))
    write_table("tolerance", "\n".join(lines))


if __name__ == "__main__":
    main()
