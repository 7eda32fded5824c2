"""Score tests within units at positions: what changes how their clicks fall to rankers, or to users?

A unit at a position is the same result at the same place. Whatever it is, and wherever that is, its clicks fall to
rankers by their displays, but for what all pages of a ranker have in common. Users may stand for rankers everywhere
here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clickharvest.diagnosis.arm_displays import MOST_ROWS, TASK, ArmDisplays, count_rows
from clickharvest.diagnosis.findings import spell_p
from clickharvest.diagnosis.laws import FEWEST, clustered_tail
from clickharvest.diagnosis.users import with_user
from clickharvest.harvesting.numbering import as_array, distinct
from clickharvest.logs.click_log import same
from clickharvest.logs.hashing import is_drawn

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.logs.click_log import ClickLog

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

EXACT = 1e-9
"""Information below which there is but rounding."""
LEFT = 0.05
"""Least share of the displays that other users have."""
ROUGH = 0.5
"""Standard error of a power from which on no number is told of it: a factor of eight and more at position 8."""
ROUNDS, CLOSE = 200, 1e-6
"""Rounds of the null fit and of the projection at most, and the change that ends them."""


class Score(NamedTuple):
    """The outcome of a score test.

    Attributes:
        estimate: the one-step estimate of γ.
        error: its standard error.
        p_value: how likely at least such an estimate is where γ = 0.
    """

    estimate: float
    error: float
    p_value: float


def spell_power(of: str, score: Score, p_value: float) -> str:
    """Return the estimate of a power and its p-value as people write them; no number where little is known of it.

    Example:
        >>> spell_power("the position", Score(0.71, 0.1, 1e-9), 1e-9)
        'power of the position +0.71, p < 0.001'
        >>> spell_power("the position", Score(3.0, 2.0, 0.13), 0.13)
        'p = 0.130; how large it might be is not known'
    """
    if score.error > ROUGH:
        return f"{spell_p(p_value)}; how large it might be is not known"
    return f"power of {of} {score.estimate:+.2f}, {spell_p(p_value)}"


@dataclass(frozen=True)
class ArmScores:
    """Units at positions that several rankers show, clicked and not, in numbers.

    Attributes:
        names: the rankers; nothing of users.
        arm: ranker of a cell, [cells]; a cell is a unit at a position with a ranker.
        log_k: logarithm of its position, [cells].
        at: which unit at which position it is, [cells].
        usual: mean logarithm of the positions at which its ranker shows its unit, [cells].
        shown: its displays, [cells].
        clicks: its clicks, [cells].
        cell: cell of a row, [rows]; a row is a cell, or what a user saw of it where users are known.
        row_shown: displays of a row, [rows].
        row_clicks: clicks of a row, [rows].
        group: query of a row, or its unit where queries are few, [rows].
        few: whether queries are so few that they tell nothing of how queries differ.
        user: user of a row, [rows]; None where users are not known.
    """

    names: list[str | None]
    arm: Integers
    log_k: Array
    at: Integers
    usual: Array
    shown: Array
    clicks: Array
    cell: Integers
    row_shown: Array
    row_clicks: Array
    group: Integers
    few: bool
    user: Integers | None

    def of(self, name: str | None) -> Array:
        """Return 1 where a cell is of the ranker of this name, and 0 elsewhere, [cells]."""
        return np.array([own == name for own in self.names], dtype=np.float64)[self.arm]

    def tests(self, columns: Iterable[Array], common: Integers) -> Iterator[Score | None]:
        """Yield the test of each column; None where nothing is compared.

        With x the column, n displays and θ_g a factor of each group g of cells, clicks of a unit at a position fall to
        rankers as n θ_g e^{γ x}. The score of γ is U = Σ s (C − μ), μ the clicks expected with γ = 0 and s what is
        left of x once units at positions, and θ, are taken out; the estimate is U / Σ μ s². Its law is that of
        queries, and of users where they are known, that differ (`clustered_tail`); where queries are few, of users, or
        else of units.

        Args:
            columns: x, [cells] each.
            common: g, [cells].
        """
        clicks, shown = np.bincount(self.at, self.clicks), np.bincount(self.at, self.shown)
        share = self._null_shares(common)
        mu: Array = clicks[self.at] * share
        beyond = self.row_clicks - (mu / self.shown)[self.cell] * self.row_shown
        chance = mu * ((shown - clicks) / np.maximum(shown - 1, 1))[self.at] / self.shown
        for column in columns:
            s = self._left_of(column, share, mu, common)
            information = float(mu @ s**2)
            if information > EXACT:
                yield self._judge(s[self.cell] * beyond, (s**2 * chance)[self.cell] * self.row_shown, information)
            else:
                yield None

    def _judge(self, score: Array, variance: Array, information: float) -> Score:
        """Return the test of scores of rows that depend within groups, and within users where they are known.

        What depends in two ways has the squares of both, less those that both have in common. What a user adds to the
        clicks of a unit at a position is fitted with them, which takes its share h of the displays from the score: it
        counts 1 / (1 − h) times, as if the others were fitted alone. Where users differ, those with much variance V_g
        have more than that: V_g + τ V_g², τ by moments, tells how many of them there are in effect.
        """
        whole, total = float(score.sum()), float(variance.sum())
        sums, freedom = _sums(score, variance, self.group), math.inf
        if self.user is not None:
            at = self.at[self.cell]
            seen = distinct(at, self.user)[1]
            share = np.bincount(seen, self.row_shown)[seen] / np.bincount(at, self.row_shown)[at]
            scaled = score / np.maximum(1 - share, LEFT)
            users = _sums(scaled, variance, self.user)
            both = distinct(self.group, self.user)[1]
            sums = users if self.few else sums + users - _sums(scaled, variance, both)
            own, size = np.bincount(self.user, scaled), np.bincount(self.user, variance)
            own = own - whole / total * size
            spread = size + max(0.0, float(own @ own) - total) / float(size @ size) * size**2
            freedom = float(spread.sum() ** 2 / (spread @ spread)) - 1
        squares, products, sizes = map(float, sums)
        p_value = clustered_tail(whole, total, squares, products, sizes, max(freedom, 1.0))
        return Score(whole / information, math.sqrt(max(total, squares)) / information, p_value)

    def _null_shares(self, common: Integers) -> Array:
        """Return how the clicks of a unit at a position fall to rankers if γ = 0, by iterative scaling."""
        clicks, seen = np.bincount(self.at, self.clicks)[self.at], np.bincount(common, self.clicks)
        weighed = self.shown
        for _ in range(ROUNDS):
            share: Array = weighed / np.bincount(self.at, weighed)[self.at]
            expected = np.bincount(common, clicks * share)
            if np.abs(seen - expected).max(initial=0.0) <= CLOSE * self.clicks.sum():
                break
            weighed = weighed * (np.maximum(seen, EXACT) / np.maximum(expected, EXACT))[common]
        return share

    def _left_of(self, column: Array, share: Array, mu: Array, common: Integers) -> Array:
        """Return what units at positions, and groups, leave of a column: least squares weighted by μ."""
        weight = np.maximum(np.bincount(common, mu), EXACT)
        s: Array = column - np.bincount(self.at, share * column)[self.at]
        for _ in range(ROUNDS):
            mean = np.bincount(common, mu * s) / weight
            s = s - mean[common]
            s = s - np.bincount(self.at, share * s)[self.at]
            if np.abs(mean).max(initial=0.0) <= CLOSE:
                break
        return s


def arm_scores(log: ClickLog, displays: ArmDisplays) -> ArmScores | None:
    """Return what is compared of a log; None where no unit was shown at one position by several rankers."""
    rows = log.engine.fetch(_compared(log, displays), task=TASK)
    if not rows.num_rows:
        return None
    codes = {name: _numbered(rows[name])[1] for name in (*displays.unit, "position")}
    values, arm = _numbered(rows["arm"])
    first, cell = distinct(*codes.values(), arm)
    shown, clicks, usual, k = (
        as_array(rows[name]).astype(np.float64) for name in ("shown", "clicks", "usual", "position")
    )
    user = _numbered(rows["_user"])[1] if "_user" in rows.column_names else arm if displays.by == "user" else None
    of_query = np.bincount(codes["query"], clicks)
    few = bool(of_query.sum() ** 2 < FEWEST * (of_query @ of_query))
    return ArmScores(
        names=values.to_pylist() if displays.by == "ranker" else [],
        arm=arm[first],
        log_k=np.log(k[first]),
        at=distinct(*(code[first] for code in codes.values()))[1],
        usual=usual[first],
        shown=np.bincount(cell, shown).astype(np.float64),
        clicks=np.bincount(cell, clicks).astype(np.float64),
        cell=cell,
        row_shown=shown,
        row_clicks=clicks,
        group=distinct(*(codes[name] for name in displays.unit))[1] if few else codes["query"],
        few=few,
        user=user,
    )


def _compared(log: ClickLog, displays: ArmDisplays) -> ir.Table:
    """Return the cells of units at positions that several rankers show, clicked and not; by user, if users are known.

    Where rows are too many, all of some users.
    """
    unit, keys = displays.unit, [*displays.unit, "position", "arm"]
    cells = displays.cells.filter(displays.cells.shown > 0)
    height = cells.shown * cells.position.cast("float64").ln()
    arms = cells.group_by(*unit, "arm").agg(usual=height.sum() / cells.shown.sum())
    places = cells.group_by(*unit, "position").agg(arms=cells.count(), n=cells.shown.sum(), c=cells.clicks.sum())
    places = places.filter((places.arms > 1) & (places.c > 0) & (places.c < places.n))
    cells = cells.semi_join(places, same(cells, places, [*unit, "position"]))
    cells = cells.join(arms, same(cells, arms, [*unit, "arm"]), rname="arms_{name}")
    cells = cells.select(*keys, "usual", "shown", "clicks")
    if displays.by == "user" or not log.has("user"):
        return cells
    cells = log.engine.materialise(cells, task=TASK)
    many = log.engine.fetch(cells.agg(shown=cells.shown.sum()), task=TASK).to_pylist()[0]["shown"] or 0.0
    rows = with_user(log, displays.rows)
    if many > MOST_ROWS:
        rows = rows.filter(is_drawn(rows._user, MOST_ROWS / many))
    rows = count_rows(rows, [*keys, "_user"])
    return rows.join(cells, same(rows, cells, keys), rname="all_{name}").select(
        *keys, "usual", "shown", "clicks", "_user"
    )


def _numbered(column: pa.ChunkedArray) -> tuple[pa.Array, Integers]:
    """Return the values of a column, and numbers for them; what is empty is a value, too."""
    encoded = column.combine_chunks().dictionary_encode("encode")
    return encoded.dictionary, np.from_dlpack(encoded.indices).astype(np.intp)


def _sums(score: Array, variance: Array, group: Integers) -> Array:
    """Return Σ U_g², Σ U_g V_g and Σ V_g², which `clustered_tail` takes, [3]."""
    own, size = np.bincount(group, score), np.bincount(group, variance)
    return np.array([own @ own, own @ size, size @ size])
