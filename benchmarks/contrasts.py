"""Are differences between contexts what they are called? Clear ones, and their intervals, against the truth.

    .venv/bin/python benchmarks/contrasts.py --jobs 2                       # all; writes the table
    .venv/bin/python benchmarks/contrasts.py --worlds "10 levels" --logs 20 # some; prints their table

Logs with contexts, some of which have no effect. All levels are compared with each other, of numbers twelve contexts of
the log. The table has the share of logs in which a difference is called clear, and in which the clearest one has the
wrong direction or does not exist; and how many ratios of two propensities would lie in intervals of their own, each
alone and all of a log at once.

Needs NumPy and SciPy, no engine.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import many_logs
import numpy as np
from cells import Cell, simulate
from coverage import CATEGORIES, spell
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
LOGS, WRONG, SOME, LEVEL = 200, 0.05, 12, 0.95
HEAD = ("cell", "logs", "ratios covered", "all at once", "called clear", "wrongly")


class Outcome(NamedTuple):
    """Share of ratios covered, whether all are, both NaN where there are none; whether one is called clear, wrongly."""

    covered: float
    together: float
    clear: bool
    wrong: bool


NOTHING = Outcome(float("nan"), float("nan"), clear=False, wrong=False)
"""What a curve that ignores contexts tells of how they differ."""


def table(kept: dict[str, list[Outcome]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar."""
    lines, bars = [f"| {' | '.join(HEAD)} |", "|---|--:|--:|--:|--:|--:|"], []
    for name, found in kept.items():
        covered, together, clear, wrong = np.array(found, dtype=np.float64).T
        known = [part[np.isfinite(part)] for part in (covered, together)]
        told = [spell(part) if len(part) > 1 else "" for part in known]
        lines.append(f"| {name} | {len(found)} | {' | '.join(told)} | {clear.mean():.1%} | {wrong.mean():.1%} |")
        verdict = "PASS" if wrong.mean() <= WRONG else "FAIL"
        bars.append(f"{verdict}: {name}: called clear wrongly in {wrong.mean():.1%} of the logs (5 %)")
    return lines, bars


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
    many_logs.main("contrasts", __doc__, dict.fromkeys(WORLDS, LOGS), measure, table)
