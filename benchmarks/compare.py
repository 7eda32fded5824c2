"""Does `compare` say more than it knows? Intervals of held-out gains, and models of two logs that are alike.

    .venv/bin/python benchmarks/compare.py --jobs 2                                    # all; writes the table
    .venv/bin/python benchmarks/compare.py --worlds "8 queries" "300 users" --logs 20  # some; prints their table

Three given curves (k^−.8, k^−1.2, and k^−1 with a position that is a third off) are scored on logs of `cells` and
`shared_cells`, whose truth is 1 / k, more or less. What the gain of one over another is on average is the mean over all
logs, by clicks; a 95 % interval should hold it in 93 to 98 % of the logs, and lie beyond 0 from it in 5 % at most.
Then each log is fitted, and another one of the same kind: that they differ should be said of 7 % of them at most.

Needs NumPy, SciPy and lazy_loader, no engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import many_logs
import numpy as np
from cells import Cell
from coverage import simulated
from shared_cells import HOME, USERS, ZIPF, SharedCell

from clickharvest.errors import NotIdentifiedError
from clickharvest.estimation import PBM, compare_models
from clickharvest.model import Propensities, find_differences
from clickharvest.model.curves import make_curve

CELLS: dict[str, Cell | SharedCell] = {
    "8 queries": Cell(8),
    "50 queries": Cell(50),
    "300 queries": Cell(300),
    "a query with 50 % of the displays": Cell(100, share=0.5),
    "last position linked by 2": Cell(100, links=2),
    "a step in the page": Cell(300, positions=10, fold=1.0),
    "50 positions": Cell(300, positions=50),
    "300 users": USERS,
    "users of Zipf's sizes": ZIPF,
    "a user with half of the pages": replace(USERS, users=100, half=True),
    "a home page, by page": HOME,
}
LOGS, BAR, WRONG, ALARMS = 300, (0.93, 0.98), 0.05, 0.07
HEAD = ("cell", "logs", "gains covered", "wrong side", "two logs alike: differ")


class Outcome(NamedTuple):
    """The gains of a log by pair, each with its interval and clicks, and whether its fit differs from another log's."""

    gains: list[tuple[float, float, float, int]]
    differs: bool | None


def table(kept: dict[str, list[Outcome]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar; the worst of the three pairs counts."""
    lines, bars = [f"| {' | '.join(HEAD)} |", "|---|--:|--:|--:|--:|"], []
    for name, own in kept.items():
        found = [Outcome(*one) for one in own]
        covered, wrong = zip(*(judge(gains) for gains in pairs_of(found)), strict=True)
        differs = float(np.mean([one.differs for one in found if one.differs is not None]))
        worst = min(covered, key=lambda share: min(share - BAR[0], BAR[1] - share))
        lines.append(f"| {name} | {len(found)} | {worst:.1%} | {max(wrong):.1%} | {differs:.1%} |")
        missed = [
            *(["gains too narrow"] if min(covered) < BAR[0] else []),
            *(["gains too wide"] if max(covered) > BAR[1] else []),
            *(["wrong side"] if max(wrong) > WRONG else []),
            *(["alarms"] if differs > ALARMS else []),
        ]
        bars.append(f"FAIL: {name}: {', '.join(missed)}" if missed else f"PASS: {name}")
    return lines, bars


def pairs_of(found: list[Outcome]) -> Iterator[np.ndarray]:
    """Yield the gains of each pair of curves over all logs that have an interval, [logs, 4]."""
    for pair in range(3):
        own = [one.gains[pair] for one in found if one.gains]
        yield np.array([gain for gain in own if np.isfinite(gain[1])])


def judge(gains: np.ndarray) -> tuple[float, float]:
    """Return how many intervals hold the mean gain, and how many lie on the other side of 0."""
    gain, lower, upper, clicks = gains.T
    mean = float(gain @ clicks / clicks.sum())
    wrong = (upper < 0) if mean > 0 else (lower > 0)
    return float(np.mean((lower <= mean) & (mean <= upper))), float(np.mean(wrong))


def measure(name: str, log: int) -> Outcome:
    """Score the given curves on a log, and compare its fit with that of another."""
    fits = []
    gains: list[tuple[float, float, float, int]] = []
    for other in range(2):
        world = simulated(CELLS[name], name, log, other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fits.append(PBM().fit(world.interventions).propensities_)
                gains = gains or gains_on(world.interventions)
            except NotIdentifiedError:
                return Outcome([], None)
    return Outcome(gains, bool(find_differences(*fits).differs.any()))


def gains_on(interventions: Any) -> list[tuple[float, float, float, int]]:
    """Return the gain of each given curve over the others, its interval (NaN where there is none), and clicks."""
    positions = tuple(range(1, int(interventions.position.max()) + 1))
    below = np.log(positions[1:])
    off = np.where(np.arange(len(below)) == len(below) // 2, 0.3, 0.0)
    curve = make_curve("constant", positions, anchor=1, n_features=0)
    logs = {"flat": -0.8 * below, "steep": -1.2 * below, "off": off - below}
    models = {name: Propensities(curve, {"b": log_p}, None, shown=positions) for name, log_p in logs.items()}
    found = compare_models(models, interventions)
    by_pair = {frozenset((gain.name, gain.over)): gain for gain in found.gains}
    asked = [by_pair[frozenset(pair)] for pair in combinations(logs, 2)]
    nan = float("nan")
    return [
        (one.per_click, nan if one.lower is None else one.lower, nan if one.upper is None else one.upper, found.clicks)
        for one in asked
    ]


if __name__ == "__main__":
    many_logs.main("compare", __doc__, dict.fromkeys(CELLS, LOGS), measure, table)
