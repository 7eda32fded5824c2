"""The kinds of logs of `coverage`: what is hostile about each, and how one is simulated, in NumPy alone.

Every log has 4 documents a query, each shown at 2 to 4 positions. Relevance and displays differ between queries, and so
does how their users read: a factor from 0 to 2 for every query and position, unless a cell says otherwise. So clicks of
a query depend on each other, and examination given the context is what the truth says on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DOCS, EFFECT, COLUMNS = 4, 0.35, 4
"""Documents of a query, the standard deviation of what contexts add to the steepness, and columns of a grid."""
MOODS = np.array([0.1, 1.9])
"""What users of one page multiply all their clicks by, where clicks of a page depend on each other."""


@dataclass(frozen=True)
class Cell:
    """A kind of log.

    Attributes:
        queries: number of queries.
        positions: number K of positions.
        grid: whether they are the places of a grid of four columns: p = row^−1 column^−½ where a list has 1 / k.
        displays: displays of a document at a position, in a typical query.
        share: share of the displays that one query has.
        apart: whether queries differ in how their users read.
        steep: standard deviation of the steepness of queries, where it is this that they differ in.
        links: how many queries show the last position at all; None for all.
        step: drop of log examination from `step_at` on.
        step_at: first position after the drop; None for the middle of the page.
        odd: how far one position stands out of its law, in log examination; of levels, in the first of them alone.
        odd_at: that position.
        levels: levels of a categorical context.
        rare: share of the queries that the last level has; None where all levels have as many.
        numbers: numeric contexts.
        effect: standard deviation of what contexts add to the steepness, where the truth depends on w·x or on a level.
        bumps: standard deviation of what single levels and positions deviate by.
        truth: examination: a power law with steps and bumps ("law"), one of `clickharvest.simulate`, a product of two
            contexts ("interaction"), a wave over the 24 hours of a day, which are the context ("hours"), one of two
            laws, by the first context's sign ("jump") or by that of w·x ("index jump"), or nothing that depends on the
            contexts ("none").
        moods: whether users of one page click much or little.
        inside: whether contexts vary inside units, `unit="query"`.
        design: whether exposures are what the design lets expect, and not how often documents were shown.
        anchor: the position that examination is relative to.
        asked: contexts whose coverage is told: those of the log, a level that is not in it, or a level that was not
            shown below position 4, there.
        curve: the curve that is fitted.
        bar: what is asked for: 93 to 98 % pointwise and together ("calibrated"), 90 % pointwise ("honest"), or nothing,
            as the model is wrong on purpose or nothing can be known ("shown").
    """

    queries: int
    positions: int = 6
    grid: bool = False
    displays: float = 15.0
    share: float | None = None
    apart: bool = True
    steep: float = 0.0
    links: int | None = None
    step: float = 0.0
    step_at: int | None = None
    odd: float = 0.0
    odd_at: int = 1
    levels: int = 0
    rare: float | None = None
    numbers: int = 0
    effect: float = EFFECT
    bumps: float = 0.0
    truth: Literal["law", "power", "fold", "bump", "interaction", "hours", "jump", "index jump", "none"] = "law"
    moods: bool = False
    inside: bool = False
    design: bool = False
    anchor: int = 1
    asked: Literal["seen", "unseen level", "level without overlap"] = "seen"
    curve: str = "linear"
    bar: Literal["calibrated", "honest", "shown"] = "calibrated"


CATEGORIES = Cell(300, positions=8, displays=6.0)
NUMBERS = Cell(300, positions=8, numbers=3, truth="power")
CHOSEN = replace(NUMBERS, curve="auto")
MANY = replace(CHOSEN, queries=2_000)
GRID = Cell(300, positions=12, grid=True, curve="auto")
CELLS = {
    "8 queries": Cell(8),
    "20 queries": Cell(20),
    "50 queries": Cell(50),
    "300 queries": Cell(300),
    "2 positions": Cell(300, positions=2),
    "2 positions, 8 queries": Cell(8, positions=2),
    "3 positions, 20 queries": Cell(20, positions=3),
    "the last position as the anchor": Cell(300, anchor=6),
    "the last of ten as the anchor, 50 queries": Cell(50, positions=10, anchor=10),
    "exposures by design": Cell(300, design=True),
    "exposures by design, few displays": Cell(100, displays=2.0, design=True),
    "8 queries that read alike": Cell(8, apart=False),
    "300 queries that read alike": Cell(300, apart=False),
    "queries differ in steepness": Cell(100, apart=False, steep=0.3),
    "300 queries differ in steepness": Cell(300, positions=10, apart=False, steep=0.3),
    "a query with 20 % of the displays": Cell(100, share=0.2),
    "a query with 50 % of the displays": Cell(100, share=0.5),
    **{f"last position linked by {n}": Cell(100, links=n) for n in (1, 2, 3, 5)},
    "clicks of a page depend": Cell(100, moods=True),
    "a step in the page": Cell(300, positions=10, step=1.0),
    "a step, 20 queries": Cell(20, positions=10, step=1.0),
    "a top that few look at": Cell(100, positions=10, odd=-2.0),
    "a top that few look at, 50 positions": Cell(300, positions=50, odd=-2.0),
    "a top that all look at": Cell(100, positions=10, odd=1.0),
    "a top that all look at, 50 positions": Cell(300, positions=50, odd=1.0),
    "an advertisement at 5": Cell(100, positions=10, odd=-2.0, odd_at=5),
    "an advertisement at 5, 50 positions": Cell(300, positions=50, odd=-2.0, odd_at=5),
    "50 positions": Cell(300, positions=50),
    "50 positions with bumps": Cell(300, positions=50, bumps=0.2),
    "50 positions, 100 queries": Cell(100, positions=50),
    "50 positions, 3,000 queries": Cell(3_000, positions=50),
    "50 positions with bumps, 3,000 queries": Cell(3_000, positions=50, bumps=0.2),
    "100 positions": Cell(300, positions=100),
    "100 positions with bumps": Cell(300, positions=100, bumps=0.2),
    "10 levels": replace(CATEGORIES, levels=10),
    "20 levels": replace(CATEGORIES, levels=20),
    "20 levels, few displays": replace(CATEGORIES, levels=20, displays=2.0),
    "10 levels with bumps": replace(CATEGORIES, levels=10, bumps=0.2),
    "20 levels with bumps": replace(CATEGORIES, levels=20, bumps=0.2),
    "10 levels, anchor 4": replace(CATEGORIES, levels=10, anchor=4),
    "10 levels, exposures by design": replace(CATEGORIES, levels=10, design=True),
    "10 levels, 50 queries": replace(CATEGORIES, queries=50, levels=10),
    "10 levels, one with an advertisement at 3": replace(CATEGORIES, levels=10, odd=-2.0, odd_at=3),
    "2 levels, one with an advertisement at 3": replace(CATEGORIES, displays=15.0, levels=2, odd=-2.0, odd_at=3),
    "10 levels, one with a top that few look at": replace(CATEGORIES, levels=10, odd=-2.0),
    "2 levels, one with a top that few look at": replace(CATEGORIES, displays=15.0, levels=2, odd=-2.0),
    "2 levels, one of them rare": replace(CATEGORIES, displays=15.0, levels=2, rare=0.05),
    "2 levels, 2 positions": replace(CATEGORIES, positions=2, displays=15.0, levels=2),
    "2 levels with bumps, 100 queries": replace(CATEGORIES, queries=100, levels=2, bumps=0.2),
    "1 numeric context, 50 queries": replace(CATEGORIES, queries=50, numbers=1),
    "1 numeric context with bumps, 100 queries": replace(CATEGORIES, queries=100, numbers=1, bumps=0.2),
    "6 numeric contexts": replace(CATEGORIES, numbers=6, bumps=0.1),
    "contexts vary inside units": replace(CATEGORIES, levels=3, inside=True),
    "an unseen level": replace(CATEGORIES, levels=10, asked="unseen level"),
    "a level without overlap below 4": replace(CATEGORIES, levels=10, asked="level without overlap"),
    "power": replace(NUMBERS, curve="power"),
    "power, 50 positions, few displays": replace(NUMBERS, curve="power", positions=50, displays=4.0),
    "low rank": replace(NUMBERS, curve="lowrank"),
    "index": replace(NUMBERS, curve="index", bar="honest"),
    "network": replace(NUMBERS, curve="mlp", bar="honest"),
    "auto: power": CHOSEN,
    "auto: power, 50 positions, few displays": replace(CHOSEN, positions=50, displays=4.0),
    "auto: power, anchor 4": replace(CHOSEN, anchor=4),
    "auto: power, exposures by design": replace(CHOSEN, design=True),
    "auto: power, 2 positions": replace(CHOSEN, positions=2),
    "auto: 1 numeric context, 2 positions": replace(CHOSEN, positions=2, numbers=1),
    "auto: 3 numbers, 2 positions, hardly seen": replace(CHOSEN, positions=2, effect=0.15),
    "auto: 3 numbers without effect, 2 positions": replace(CHOSEN, positions=2, truth="none"),
    "auto: power, 2,000 queries": MANY,
    "auto: 2 levels": replace(CATEGORIES, displays=15.0, levels=2, curve="auto"),
    "auto: 2 levels, 2 positions": replace(CATEGORIES, positions=2, displays=15.0, levels=2, curve="auto"),
    "auto: 2 levels, one of them rare": replace(CATEGORIES, displays=15.0, levels=2, rare=0.05, curve="auto"),
    "auto: 2 levels with bumps, one of them rare": replace(
        CATEGORIES, displays=15.0, levels=2, rare=0.05, bumps=0.2, curve="auto"
    ),
    "auto: 4 levels without effect": replace(CATEGORIES, levels=4, truth="none", curve="auto"),
    "auto: 10 levels": replace(CATEGORIES, levels=10, curve="auto"),
    "auto: 10 levels with bumps": replace(CATEGORIES, levels=10, bumps=0.2, curve="auto"),
    "auto: 20 levels, few displays": replace(CATEGORIES, levels=20, displays=2.0, curve="auto"),
    "auto: 3 numeric contexts with bumps": replace(CATEGORIES, numbers=3, bumps=0.1, curve="auto"),
    "auto: 6 numeric contexts": replace(CATEGORIES, numbers=6, bumps=0.1, curve="auto"),
    "auto: a step at the end, no effect of context": replace(CHOSEN, truth="none", step=1.0, step_at=7),
    "auto: an effect of context that is hardly seen": replace(CHOSEN, effect=0.1),
    "auto: an effect of context that is seen in some logs": replace(CHOSEN, effect=0.2),
    **{f"auto: {truth}": replace(CHOSEN, truth=truth, bar="honest") for truth in ("fold", "bump", "interaction")},
    "auto: hours of a day": replace(CHOSEN, numbers=1, truth="hours", bar="honest"),
    "auto: a jump": replace(CHOSEN, numbers=1, truth="jump", bar="honest"),
    "auto: a jump along one of 3 numbers": replace(CHOSEN, truth="jump", bar="honest"),
    "auto: a jump along an index of 3 numbers": replace(CHOSEN, truth="index jump", bar="honest"),
    **{
        f"auto: {truth}, 2,000 queries": replace(MANY, truth=truth, bar="honest")
        for truth in ("fold", "bump", "interaction")
    },
    "auto: grid, 2 levels, one of them rare": replace(GRID, levels=2, rare=0.05),
    "auto: grid, 2 levels with bumps, one of them rare": replace(GRID, levels=2, rare=0.05, bumps=0.2),
    "auto: grid, 4 levels without effect": replace(GRID, levels=4, truth="none"),
    "auto: grid, 10 levels": replace(GRID, levels=10),
    "auto: grid, 10 levels with bumps": replace(GRID, levels=10, bumps=0.2),
    "auto: grid, 3 numbers without effect": replace(GRID, numbers=3, truth="none"),
    "auto: grid, 3 numbers": replace(GRID, numbers=3),
    "auto: grid, 3 numbers with bumps": replace(GRID, numbers=3, bumps=0.1),
    "auto: grid, interaction": replace(GRID, numbers=3, truth="interaction", bar="honest"),
    "auto: grid, a jump": replace(GRID, numbers=1, truth="jump", bar="honest"),
    "linear where the truth is a fold": replace(MANY, truth="fold", curve="linear", bar="shown"),
}


@dataclass(frozen=True, eq=False)
class World:
    """A log, contexts to ask for, log p_k(x) / p_anchor(x) there [n, K], and which positions are asked for [K]."""

    interventions: Any
    truth: Array
    contexts: dict[str, Any]
    positions: NDArray[np.bool_]


def simulate(cell: Cell, random: np.random.Generator) -> World:
    """Return a log of a cell and its truth."""
    from clickharvest.harvesting import Interventions

    queries, k = cell.queries, cell.positions
    x, columns = contexts_of(cell, random)
    log_p = examination(cell, x, random)
    unseen, odd = (cell.asked == name for name in ("unseen level", "level without overlap"))
    last = x[:, -1] > 0 if unseen or odd else np.zeros(len(x), bool)
    reads = random.uniform(0, 2, (queries, k)) if cell.apart else np.ones((queries, k))
    if cell.steep:
        # Of mean 1 at every position, like the factors above.
        steeper, distance = random.normal(0, cell.steep, (queries, 1)), np.log(np.arange(1, k + 1))
        reads = np.exp(-steeper * distance - (cell.steep * distance) ** 2 / 2)
    displays = cell.displays * random.lognormal(0, 0.6, queries)
    if cell.share is not None:
        displays[0] = displays[1:].sum() * cell.share / (1 - cell.share)
    unit = np.arange(DOCS * queries)
    query = unit // DOCS
    taste = random.normal(-1.2, 0.7, queries)
    relevance = 1 / (1 + np.exp(-taste[query] - random.normal(0, 1, len(unit))))
    shown = positions_shown(cell, random)
    row, position = np.nonzero(shown)
    context = query[row]
    if cell.inside:
        # Every document is shown to users of all levels, who differ in how much they click.
        row, position = (np.repeat(part, cell.levels) for part in (row, position))
        context = np.tile(np.arange(cell.levels), len(row) // cell.levels)
        relevance = np.clip(relevance[row] * np.linspace(0.6, 1.4, cell.levels)[context], 0, 1)
    else:
        relevance = relevance[row]
    kept = ~(last[context] & (unseen | (position > 3)))
    row, position, context, relevance = row[kept], position[kept], context[kept], relevance[kept]
    expected = displays[query[row]]
    impressions = 1 + random.poisson(expected)
    rate = np.minimum(1.0, 0.3 * np.exp(log_p[context, position]) * reads[query[row], position] * relevance)
    clicks = in_moods(impressions, rate, row, random) if cell.moods else random.binomial(impressions, rate)
    asked = asked_contexts(cell, x, last)
    return World(
        Interventions(
            unit=row, query=query[row], position=position + 1, clicks=clicks, impressions=impressions,
            exposure=1 + expected if cell.design else impressions.astype(np.float64),
            exposure_kind="design" if cell.design else "realised",
            contexts={name: values[context] for name, values in columns.items()},
            unit_kind="query" if cell.inside else "context", places=places_of(cell),
        ),
        (log_p - log_p[:, [cell.anchor - 1]])[asked],
        {name: values[asked] for name, values in columns.items()},
        np.arange(k) > 3 if odd else np.arange(k) != cell.anchor - 1,
    )  # fmt: skip


def places_of(cell: Cell) -> Any:
    """Return the table of the grid's places; None of a list."""
    from clickharvest.positions.places import Places

    labels = [(1 + i // COLUMNS, 1 + i % COLUMNS) for i in range(cell.positions)]
    return Places.of(("row", "column"), labels) if cell.grid else None


def contexts_of(cell: Cell, random: np.random.Generator) -> tuple[Array, dict[str, Any]]:
    """Return the contexts as numbers, one row per query (or per level), and as columns of a log."""
    if cell.levels:
        level = np.arange(cell.levels) if cell.inside else random.integers(cell.levels, size=cell.queries)
        if cell.rare is not None:
            level = np.where(random.random(cell.queries) < cell.rare, cell.levels - 1, level % (cell.levels - 1))
        return np.eye(cell.levels)[level], {"level": np.array([f"level {i:02}" for i in level])}
    if cell.truth == "hours":
        hour = random.integers(24, size=cell.queries).astype(np.float64)
        return hour[:, None], {"hour": hour}
    x = random.normal(size=(cell.queries, cell.numbers))
    return x, {f"x{i}": column for i, column in enumerate(x.T)}


def examination(cell: Cell, x: Array, random: np.random.Generator) -> Array:
    """Return log p_k(x), [contexts, K]."""
    from clickharvest.simulate import examination as known

    k = cell.positions
    row, column = np.divmod(np.arange(k), COLUMNS)
    steepness = np.log(1 + row) + np.log(1 + column) / 2 if cell.grid else np.log(np.arange(1, k + 1))
    if cell.truth in ("law", "none"):
        base = -steepness - cell.step * (np.arange(k) >= (k // 2 if cell.step_at is None else cell.step_at))
        base[cell.odd_at - 1] += 0.0 if cell.levels else cell.odd
        if not x.shape[1] or cell.truth == "none":
            return np.tile(base + cell.bumps * random.normal(size=k) * (np.arange(k) > 0), (len(x), 1))
        effect = -np.outer(random.normal(0, cell.effect if cell.levels else 0.15, x.shape[1]), steepness)
        effect += cell.bumps * random.normal(size=effect.shape) * (np.arange(k) > 0)
        if cell.levels:
            effect[0, cell.odd_at - 1] += cell.odd
        return base + x @ effect
    if cell.truth == "interaction":
        return -np.outer(np.maximum(1 + cell.effect * x[:, 0] * x[:, 1], 0), steepness)
    if cell.truth == "jump":
        return -np.outer(1 + cell.effect * np.sign(x[:, 0]), steepness)
    if cell.truth == "hours":
        return -np.outer(1 + cell.effect * np.sin(2 * np.pi * x[:, 0] / 24), steepness)
    w = random.normal(size=x.shape[1])
    if cell.truth == "index jump":
        return -np.outer(1 + cell.effect * np.sign(x @ w), steepness)
    return np.log(getattr(known, cell.truth)(x @ w * cell.effect / np.linalg.norm(w), k))


def positions_shown(cell: Cell, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return at which positions each document is shown, [documents, K]: at 2, 3 or 4 of them."""
    units, k = DOCS * cell.queries, cell.positions
    order = random.permuted(np.tile(np.arange(k), (units, 1)), axis=1)
    shown = np.zeros((units, k), dtype=bool)
    np.put_along_axis(shown, order, np.arange(k) < (2 + np.arange(units) % 3)[:, None], axis=1)
    if cell.links is not None:
        shown[np.arange(units) // DOCS >= cell.links, k - 1] = False
    return shown


def in_moods(impressions: Any, rate: Array, unit: Any, random: np.random.Generator) -> Any:
    """Return clicks on pages whose users click much or little, on all results of a page.

    Documents of a query share the pages of their first position, those of their second, and so on.
    """
    _, first = np.unique(unit, return_index=True)
    slot = np.arange(len(unit)) - np.repeat(first, np.diff([*first, len(unit)]))
    page_of = (unit // DOCS) * (1 + int(slot.max())) + slot
    clicks = np.zeros_like(impressions)
    for page in range(int(impressions.max())):
        mood = random.choice(MOODS, int(page_of.max()) + 1)[page_of]
        clicks += (page < impressions) & (random.random(len(rate)) < rate * mood)
    return clicks


def asked_contexts(cell: Cell, x: Array, last: NDArray[np.bool_]) -> Any:
    """Return rows of x whose intervals are looked at: each level once, or a hundred contexts."""
    if last.any():
        return np.flatnonzero(last)[:1]
    if cell.numbers:
        return np.arange(min(len(x), 100))
    return np.unique(x @ np.arange(x.shape[1]), return_index=True)[1]
