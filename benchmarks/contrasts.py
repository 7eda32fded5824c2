"""Are differences between contexts what they are called? Clear ones, and their intervals, against the truth.

    PYTHONPATH=src python3 benchmarks/contrasts.py --logs 200 --jobs 16     # writes its table into benchmarks/README.md
    .venv/bin/python benchmarks/contrasts.py --logs 20 --cells "10 levels"  # some; prints their table

Logs with contexts, some of which have no effect. All levels are compared with each other, of numbers twelve contexts of
the log. The table has the share of logs in which a difference is called clear, and in which the clearest one has the
wrong direction or does not exist; and how many ratios of two propensities would lie in intervals of their own, each
alone and all of a log at once.

Needs NumPy, SciPy, JAX and optax, no engine.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from accuracy import write_between_markers
from cells import Cell, simulate
from coverage import CATEGORIES, README, spell
from shared_cells import USERS, ZIPF, SharedCell, simulate_shared

from clickharvest.errors import NotIdentifiedError
from clickharvest.estimation import CPBM
from clickharvest.model import find_contrasts

WORLDS: dict[str, Cell | SharedCell] = {
    "4 levels without effect": replace(CATEGORIES, levels=4, truth="none"),
    "10 levels without effect": replace(CATEGORIES, levels=10, truth="none"),
    "3 numbers without effect": replace(CATEGORIES, numbers=3, truth="none"),
    "auto: 3 numbers without effect": replace(CATEGORIES, numbers=3, truth="none", curve="auto"),
    "auto: 4 levels without effect": replace(CATEGORIES, levels=4, truth="none", curve="auto"),
    "10 levels": replace(CATEGORIES, levels=10),
    "10 levels with bumps": replace(CATEGORIES, levels=10, bumps=0.2),
    "6 numeric contexts": replace(CATEGORIES, numbers=6, bumps=0.1),
    "auto: 2 levels": replace(CATEGORIES, displays=15.0, levels=2, curve="auto"),
    "auto: 10 levels": replace(CATEGORIES, levels=10, curve="auto"),
    "auto: 10 levels with bumps": replace(CATEGORIES, levels=10, bumps=0.2, curve="auto"),
    "auto: 6 numeric contexts": replace(CATEGORIES, numbers=6, bumps=0.1, curve="auto"),
    "2 levels, 300 users": replace(USERS, levels=2, pages=80.0),
    "auto: 2 levels, users of Zipf's sizes": replace(ZIPF, levels=2, pages=80.0, curve="auto"),
}
FULL, WRONG, SOME, LEVEL = 200, 0.05, 12, 0.95
HEAD = ("cell", "logs", "ratios covered", "all at once", "called clear", "wrongly", "bar: 5 % wrongly")


class Outcome(NamedTuple):
    """Share of ratios covered, whether all are, both NaN where there are none; whether one is called clear, wrongly."""

    covered: float
    together: float
    clear: bool
    wrong: bool


NOTHING = Outcome(float("nan"), float("nan"), clear=False, wrong=False)
"""What a curve that ignores contexts tells of how they differ."""


def main() -> None:
    """Print the table, and write it where it is whole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=FULL, help="simulated logs of each cell")
    parser.add_argument("--cells", default="", help="some of the kinds of logs, divided by ;")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    names = [name for name in options.cells.split(";") if name] or list(WORLDS)
    lines = [f"| {' | '.join(HEAD)} |", "|---|--:|--:|--:|--:|--:|---|"]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        found = {name: pool.map(measure, [name] * options.logs, range(options.logs), chunksize=5) for name in names}
        for name, own in found.items():
            lines.append(row(name, list(own)))
            print(lines[-1], flush=True)
    if names == list(WORLDS) and options.logs >= FULL:
        write_between_markers(README, "contrasts", "\n".join(lines))
    sys.exit(any("misses" in line for line in lines))


def row(name: str, found: list[Outcome]) -> str:
    """Return the row of a cell."""
    covered, together, clear, wrong = np.array(found, dtype=np.float64).T
    covered, together = (part[np.isfinite(part)] for part in (covered, together))
    bar = "misses" if wrong.mean() > WRONG else "holds"
    told = [spell(part) if len(part) > 1 else "" for part in (covered, together)]
    return f"| {name} | {len(found)} | {' | '.join(told)} | {clear.mean():.1%} | {wrong.mean():.1%} | {bar} |"


def measure(name: str, log: int) -> Outcome:
    """Fit a log and compare its contexts."""
    cell, random = WORLDS[name], np.random.default_rng([log, *name.encode()])
    world = simulate_shared(cell, random) if isinstance(cell, SharedCell) else simulate(cell, random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = CPBM(curve=cell.curve, seed=log).fit(world.interventions).propensities_
        except NotIdentifiedError:
            return NOTHING
    values = next(iter(world.contexts.values()))
    rows = np.unique(values, return_index=True)[1] if cell.levels else random.permutation(len(values))[:SOME]
    assert model.encoder is not None
    found = find_contrasts(model, model.encoder.transform({k: v[rows] for k, v in world.contexts.items()}), level=LEVEL)
    if found is None or (clearest := found.clearest()) is None:
        return NOTHING
    at = np.array(found.positions) - 1
    first, second = (world.truth[rows][found.pairs[:, i]][:, at] for i in range(2))
    truth, known = first - second, np.isfinite(found.sd)
    far = np.abs(found.log_ratio - truth)[known] / found.sd[known]
    high, low = (world.truth[rows][which, clearest.position - 1] for which in (clearest.high, clearest.low))
    alone = NormalDist().inv_cdf((1 + LEVEL) / 2)
    return Outcome(
        float((far <= alone).mean()),
        float((far <= found.z).all()),
        clearest.clear,
        bool(clearest.clear and high <= low),
    )


if __name__ == "__main__":
    main()
