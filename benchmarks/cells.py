"""Simulated logs in which clicks of a query depend on each other, for `gate` and `coverage`, in NumPy alone.

Every log has 4 documents per query, each shown at 2 to 4 positions. Queries differ in relevance, in the number of
displays and in how their users read: every query and position has a factor between 0 and 2 on examination, of mean 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DOCS, COLUMNS = 4, 4
"""Documents of a query, and columns of a grid."""
EFFECT, LEVEL_EFFECT = 0.15, 0.35
"""Standard deviations of what a number, or a level, adds to the steepness."""


@dataclass(frozen=True)
class Cell:
    """A kind of log.

    Attributes:
        queries: number of queries.
        positions: number K of positions.
        grid: whether they are the places of a grid of four columns: p = row^−1 column^−½ where a list has 1 / k.
        displays: displays of a document at a position, in a typical query.
        share: share of the displays that the first query has; None for one like the others.
        links: number of queries that show the last position; None for all.
        fold: drop of log examination from the middle of the page on.
        levels: levels of a categorical context.
        numbers: numeric contexts.
        bumps: standard deviation of what single levels and positions deviate by.
        truth: how examination depends on the contexts: their effects add up on the steepness ("law"), the sign of the
            first number chooses one of two laws ("threshold"), or not at all ("none").
        unseen: whether coverage is measured in a level that the log does not have.
        curve: the curve that is fitted.
        objective: the objective; AllPairs has bootstrap intervals.
    """

    queries: int
    positions: int = 6
    grid: bool = False
    displays: float = 15.0
    share: float | None = None
    links: int | None = None
    fold: float = 0.0
    levels: int = 0
    numbers: int = 0
    bumps: float = 0.0
    truth: Literal["law", "threshold", "none"] = "law"
    unseen: bool = False
    curve: str = "linear"
    objective: Literal["clickshare", "allpairs"] = "clickshare"


@dataclass(frozen=True, eq=False)
class World:
    """A log, contexts to predict for, and log p_k(x) / p_1(x) there [n, K]."""

    interventions: Any
    truth: Array
    contexts: dict[str, Any]


def simulate(cell: Cell, random: np.random.Generator) -> World:
    """Return a log of a cell and its truth."""
    from clickharvest.harvesting import Interventions

    queries, k = cell.queries, cell.positions
    x, columns = contexts_of(cell, random)
    log_p = examination(cell, x, random)
    unseen = x[:, -1] > 0 if cell.unseen else np.zeros(len(x), bool)
    reads = random.uniform(0, 2, (queries, k))
    displays = cell.displays * random.lognormal(0, 0.6, queries)
    if cell.share is not None:
        displays[0] = displays[1:].sum() * cell.share / (1 - cell.share)
    query = np.arange(DOCS * queries) // DOCS
    taste = random.normal(-1.2, 0.7, queries)
    relevance = 1 / (1 + np.exp(-taste[query] - random.normal(0, 1, len(query))))
    unit, position = np.nonzero(positions_shown(cell, random))
    kept = ~unseen[query[unit]]
    unit, position = unit[kept], position[kept]
    of = query[unit]
    impressions = 1 + random.poisson(displays[of])
    rate = np.minimum(1.0, 0.3 * np.exp(log_p[of, position]) * reads[of, position] * relevance[unit])
    asked = asked_contexts(cell, x, unseen)
    return World(
        Interventions(
            unit=unit, query=of, position=position + 1, clicks=random.binomial(impressions, rate),
            impressions=impressions, exposure=impressions.astype(np.float64),
            contexts={name: values[of] for name, values in columns.items()}, places=places_of(cell),
        ),
        (log_p - log_p[:, :1])[asked],
        {name: values[asked] for name, values in columns.items()},
    )  # fmt: skip


def places_of(cell: Cell) -> Any:
    """Return the table of the grid's places; None for a list."""
    from clickharvest.positions.places import Places

    labels = [(1 + i // COLUMNS, 1 + i % COLUMNS) for i in range(cell.positions)]
    return Places.of(("row", "column"), labels) if cell.grid else None


def contexts_of(cell: Cell, random: np.random.Generator) -> tuple[Array, dict[str, Any]]:
    """Return the contexts of the queries as numbers, one row per query, and as columns of a log."""
    if cell.levels:
        level = random.integers(cell.levels, size=cell.queries)
        return np.eye(cell.levels)[level], {"level": np.array([f"level {i:02}" for i in level])}
    x = random.normal(size=(cell.queries, cell.numbers))
    return x, {f"x{i}": column for i, column in enumerate(x.T)}


def examination(cell: Cell, x: Array, random: np.random.Generator) -> Array:
    """Return log p_k(x), [contexts, K]."""
    k = cell.positions
    row, column = np.divmod(np.arange(k), COLUMNS)
    steepness = np.log(1 + row) + np.log(1 + column) / 2 if cell.grid else np.log(np.arange(1, k + 1))
    if cell.truth == "threshold":
        return -np.outer(1 + LEVEL_EFFECT * np.sign(x[:, 0]), steepness)
    base = -steepness - cell.fold * (np.arange(k) >= k // 2)
    if not x.shape[1] or cell.truth == "none":
        return np.tile(base + cell.bumps * random.normal(size=k) * (np.arange(k) > 0), (len(x), 1))
    effect = -np.outer(random.normal(0, LEVEL_EFFECT if cell.levels else EFFECT, x.shape[1]), steepness)
    effect += cell.bumps * random.normal(size=effect.shape) * (np.arange(k) > 0)
    return base + x @ effect


def positions_shown(cell: Cell, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return at which positions each document is shown, [documents, K]: at 2, 3 or 4 of them."""
    units, k = DOCS * cell.queries, cell.positions
    order = random.permuted(np.tile(np.arange(k), (units, 1)), axis=1)
    shown = np.zeros((units, k), dtype=bool)
    np.put_along_axis(shown, order, np.arange(k) < (2 + np.arange(units) % 3)[:, None], axis=1)
    if cell.links is not None:
        shown[np.arange(units) // DOCS >= cell.links, k - 1] = False
    return shown


def asked_contexts(cell: Cell, x: Array, unseen: NDArray[np.bool_]) -> Any:
    """Return rows of x to predict for: a query of the unseen level, up to a hundred queries, or each level once."""
    if cell.unseen:
        return np.flatnonzero(unseen)[:1]
    if cell.numbers:
        return np.arange(min(len(x), 100))
    return np.unique(x @ np.arange(x.shape[1]), return_index=True)[1]
