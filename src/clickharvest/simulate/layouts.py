"""Logs of results that stand in no list, with known truth: a grid, shelves of cells, ads beside results, pages.

| layout | places | examination |
|---|---|---|
| `grid` | `row, column`, 3 × 4 | falls with the row, less with the column; the eye comes back to the third column |
| `carousel` | `shelf, cell`, 3 shelves × 5 cells | falls along each shelf, which differ; a corner peeks out at cell 4 |
| `ads` | `slot`, texts: `top`, `side 1`, `side 2`, `result 1` … `result 4` | no order |
| `pages` | `page, position`, 3 pages × 5 positions | falls on every page anew, and from page to page |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.positions.places import Label, Places
from clickharvest.simulate.ab_test import DEVICES, draw_queries, draw_rankings, text_columns

if TYPE_CHECKING:
    import pyarrow as pa

SHELVES = {"for you": 0.0, "new": -0.35, "popular": -0.6}
SLOTS = {
    "top": 0.0, "result 1": -0.15, "result 2": -0.55, "result 3": -0.85, "result 4": -1.1, "side 1": -1.0,
    "side 2": -1.5,
}  # fmt: skip
TURNING = 0.6
"""Share of the views of one page of a list that go on to the next."""


def _grid(row: int, column: int) -> float:
    return float(-0.75 * np.log(row) - 0.3 * np.log(column) + 0.15 * (column == 3) - 0.1 * (row == column == 2))


def _carousel(shelf: str, cell: int) -> float:
    return float(SHELVES[shelf] - 0.5 * np.log(cell) + 0.12 * (cell == 4))


def _pages(page: int, position: int) -> float:
    return float(-0.4 * np.log(page) - 0.7 * np.log(position) - 0.1 * (page == 3))


@dataclass(frozen=True)
class Layout:
    """Where results stand, and how much each place is examined.

    Attributes:
        columns: the columns that make a place.
        labels: the places, in the order in which a ranker fills them.
        log_examination: log p of a label.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[Label, ...], ...]
    log_examination: Callable[..., float]


LAYOUTS = {
    "grid": Layout(("row", "column"), tuple((i, j) for i in (1, 2, 3) for j in (1, 2, 3, 4)), _grid),
    "carousel": Layout(("shelf", "cell"), tuple((shelf, j) for shelf in SHELVES for j in range(1, 6)), _carousel),
    "ads": Layout(("slot",), tuple((slot,) for slot in SLOTS), SLOTS.__getitem__),
    "pages": Layout(("page", "position"), tuple((i, j) for i in (1, 2, 3) for j in range(1, 6)), _pages),
}


@dataclass(frozen=True)
class PlaceTruth:
    """The examination behind a simulated log of places.

    Attributes:
        places: the table of places, as `read_log` numbers them.
        devices: the distinct values of the context column `device`, [m].
        examination: p_k(x) of each device and place, relative to place 1, [m, K].
    """

    places: Places
    devices: tuple[str, ...]
    examination: NDArray[np.float64]


def simulate_places(
    layout: str = "grid",
    *,
    pages: int = 20_000,
    queries: int = 200,
    rankers: int = 3,
    steeper: float = 1.0,
    seed: int = 0,
) -> tuple[pa.Table, PlaceTruth]:
    """Simulate a log of results in a grid, a carousel, slots or pages.

    Every query has documents of its own with relevances r ~ Beta(1, 2), three more than places; queries arrive with
    Zipf frequencies; each ranker orders a query's documents by r plus noise of its own and fills the places with them;
    the ranker and the device of a view are drawn at random. Click ~ Bernoulli(p_k(x) · r). Of `pages`, a view of one
    page goes on to the next with probability 0.6; what is not gone to is not shown.

    Args:
        layout: `"grid"`, `"carousel"`, `"ads"` or `"pages"`, see the module.
        pages: number of views.
        queries: number of distinct queries.
        rankers: number of rankers.
        steeper: how many times log examination on mobile is that on desktop; 1 where they are alike.
        seed: seed of all randomness.

    Returns:
        The log, with the columns `view, query, ranker, device, doc, click` and those of places, and the truth.

    Example:
        >>> log, truth = simulate_places("grid", pages=100)
        >>> log.num_rows, truth.places.name(7), truth.examination.shape
        (1200, 'row 2, column 3', (2, 12))
    """
    import pyarrow as pa

    if layout not in LAYOUTS:
        raise InputError(f"no layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    plan, random = LAYOUTS[layout], np.random.default_rng(seed)
    n_places = len(plan.labels)
    docs = n_places + 3
    log_p = np.array([plan.log_examination(*label) for label in plan.labels])
    relevance, ranked = draw_rankings(rankers, queries, docs, n_places, 0.3, random)
    query = draw_queries(queries, pages, random)
    ranker, device = random.integers(rankers, size=pages), random.integers(2, size=pages)
    doc = ranked[ranker, query]
    examination = np.exp(np.array([[1.0], [steeper]]) * log_p)
    clicks = random.random((pages, n_places)) < examination[device] * relevance[query[:, None], doc]
    shown = np.ones((pages, n_places), dtype=bool)
    if layout == "pages":
        reached = 1 + np.cumprod(random.random((pages, 2)) < TURNING, axis=1).sum(axis=1)
        shown = np.array([label[0] for label in plan.labels]) <= reached[:, None]
    view, place = np.nonzero(shown)
    columns = {name: [label[i] for label in plan.labels] for i, name in enumerate(plan.columns)}
    log = pa.table(
        {
            "view": view,
            **text_columns(query[view], ranker[view], device[view]),
            "doc": np.char.add("doc ", (query[view] * docs + doc[view, place]).astype(str)),
            **{name: np.array(values)[place] for name, values in columns.items()},
            "click": clicks[view, place].astype(np.int8),
        }
    )
    places = Places.of(plan.columns, plan.labels)
    order = [plan.labels.index(label) for label in places.labels]
    relative = examination[:, order] / examination[:, order[:1]]
    return log, PlaceTruth(places, DEVICES, relative)
