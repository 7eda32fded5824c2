"""Do intervals of places cover the truth? Many small simulated logs of grids, shelves, slots, pages, and hostile ones.

    .venv/bin/python benchmarks/places.py --jobs 4                # all cells; writes the table
    .venv/bin/python benchmarks/places.py --worlds grid --logs 5  # one of them; prints its table

A cell is a way to simulate interventions with known examination. Of every log the table has the share of places whose
95 % intervals cover the truth, the root mean square error of log examination, that of the same fit without a prior
(`free`), and the number of places that are not supported. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import many_logs
import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.pooling import with_penalty
from clickharvest.estimation.sample import make_sample
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.curves import Constant
from clickharvest.positions.places import Places
from clickharvest.simulate.layouts import LAYOUTS

LOGS, BAR = 60, (0.93, 0.97)
"""Logs of a cell, and what intervals should cover."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A way to simulate interventions of places.

    Attributes:
        told: what is so, in words.
        places: the table of places.
        log_p: their log examination, [K].
        queries: queries of a log.
        shown: mean impressions of a document at a place.
        spread: how far queries read otherwise at single places, a standard deviation on the log scale.
        share: share of its places that a document stands at.
        lonely: a place where documents of one query alone stand.
        never: a place where documents stand that stand nowhere else.
    """

    told: str
    places: Places
    log_p: Array
    queries: int = 150
    shown: float = 20.0
    spread: float = 0.0
    share: float = 0.5
    lonely: int | None = None
    never: int | None = None


def of_layout(name: str, told: str, **more: Any) -> Cell:
    """Return a cell of a simulated layout."""
    layout = LAYOUTS[name]
    places = Places.of(layout.columns, layout.labels)
    return Cell(told, places, np.array([layout.log_examination(*label) for label in places.labels]), **more)


def of_numbers(told: str, rows: int, columns: int, deviation: float = 0.0, **more: Any) -> Cell:
    """Return a cell of a grid, p = row^−.6 column^−.3 with deviations of single places that every log has."""
    places = Places.of(("row", "column"), [(i, j) for i in range(1, rows + 1) for j in range(1, columns + 1)])
    own = np.random.default_rng(7).normal(0, deviation, len(places)) if deviation else 0.0
    log_p = np.array([-0.6 * np.log(i) - 0.3 * np.log(j) for i, j in places.labels]) + own  # type: ignore[arg-type]
    return Cell(told, places, log_p, **more)


CELLS: dict[str, Cell] = {
    "grid": of_layout("grid", "3 × 4 grid"),
    "carousel": of_layout("carousel", "3 shelves of 5 cells"),
    "ads": of_layout("ads", "7 slots without order"),
    "pages": of_layout("pages", "3 pages of 5 positions"),
    "reading": of_layout("grid", "the grid, queries read otherwise (sd .3 a place)", spread=0.3),
    "sparse": of_layout("grid", "the grid with a tenth of the clicks", shown=2.0),
    "rough": of_numbers("3 × 5 grid whose places deviate from rows and columns (sd .5)", 3, 5, deviation=0.5),
    "row": of_numbers("a grid of one row", 1, 8),
    "lonely": of_layout("grid", "hostile: one query alone links a place", lonely=12),
    "never": of_layout("grid", "hostile: a place that nothing links", never=12),
    "many": of_numbers("hostile: 10 × 20 places", 10, 20, queries=600, shown=10.0, share=0.05),
}


def simulate(cell: Cell, seed: int) -> Interventions:
    """Return interventions of two documents a query, shown at some of the places, with binomial clicks."""
    random = np.random.default_rng(seed)
    k = len(cell.places)
    rows = []
    for query in range(cell.queries):
        own = random.normal(0, cell.spread, k)
        traffic = random.gamma(1.0)
        for doc in range(2):
            relevance = random.uniform(0.1, 0.6)
            stands = random.random(k) < cell.share
            stands[random.choice(k, 2, replace=False)] = True
            if cell.lonely is not None and query:
                stands[cell.lonely - 1] = False
            if cell.never is not None:
                stands[cell.never - 1] = False
            for place in np.flatnonzero(stands):
                impressions = 1 + random.poisson(cell.shown * traffic)
                p = min(1.0, relevance * np.exp(cell.log_p[place] + own[place]))
                clicks = random.binomial(impressions, p)
                rows.append((2 * query + doc, query, place + 1, impressions, clicks))
    if cell.never is not None:
        rows += [(2 * cell.queries, 0, cell.never, 50, 5)]
    unit, query, position, impressions, clicks = np.array(rows).T
    return Interventions(
        unit=unit, query=query, position=position, exposure=impressions * 1.0, clicks=clicks, impressions=impressions,
        places=cell.places,
    )  # fmt: skip


def measure(name: str, seed: int) -> dict[str, float]:
    """Return what one log tells."""
    from clickharvest.estimation.estimators import PBM

    cell = CELLS[name]
    interventions = simulate(cell, seed)
    model = PBM().fit(interventions).propensities_
    predicted = model.predict()
    truth = (cell.log_p - cell.log_p[model.curve.anchor - 1])[np.array(predicted.positions) - 1]
    others = predicted.supported[0] & (np.array(predicted.positions) != model.curve.anchor)
    error = np.log(predicted.propensity[0][others]) - truth[others]
    reach = np.log(predicted.upper[0][others] / predicted.propensity[0][others])
    sample = make_sample(interventions, model.curve.positions)
    curve = Constant(model.curve.positions, model.curve.anchor, 0)
    free = with_penalty(curve, sample, 0.0).theta
    known = np.isin(model.curve.positions, np.array(predicted.positions)[others])
    apart = free[np.delete(known, curve.anchor_index)] - truth[others]
    return {
        "covered": float(np.mean(np.abs(error) <= reach)),
        "places": int(others.sum()),
        "rms": float(np.sqrt(np.mean(error**2))),
        "free": float(np.sqrt(np.mean(apart**2))),
        "unsupported": len(predicted.positions) - 1 - int(others.sum()),
    }


def table(kept: dict[str, list[dict[str, float]]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar."""
    lines = ["| cell | logs | covered | error | without parents | unsupported places |", "|---|---|---|---|---|---|"]
    bars = []
    for name, logs in kept.items():
        weight = np.array([log["places"] for log in logs])
        covered = np.array([log["covered"] for log in logs])
        mean = float(weight @ covered / weight.sum())
        se = float(covered.std(ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
        rms, free = (float(np.sqrt(np.mean([log[key] ** 2 for log in logs]))) for key in ("rms", "free"))
        lacking = float(np.mean([log["unsupported"] for log in logs]))
        told = f"{100 * mean:.1f} ± {100 * se:.1f} %"
        lines.append(f"| {CELLS[name].told} | {len(logs)} | {told} | {rms:.3f} | {free:.3f} | {lacking:.1f} |")
        verdict = "PASS" if BAR[0] <= mean <= BAR[1] else "FAIL"
        bars.append(f"{verdict}: {CELLS[name].told}: {told} are covered (93 to 97 %)")
    return lines, bars


if __name__ == "__main__":
    many_logs.main("places", __doc__, dict.fromkeys(CELLS, LOGS), measure, table)
