"""The displays at the positions of a fitted curve, with all that several checks need, computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.conditional_logit import Estimate, fit_strata
from clickharvest.checks.log_rows import Displays, follows
from clickharvest.errors import InputError
from clickharvest.harvesting.numbering import distinct, run_starts
from clickharvest.positions.places import name_places

if TYPE_CHECKING:
    from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_KINDS = 12
"""Most contexts that are checked one by one; with more of them, each has fewer clicks."""
MOST_RANKERS = 8
"""Most rankers with a level of their own; the others share one."""
ENOUGH = 5_000
"""Clicks from which on a context is checked by itself; with fewer, errors are larger."""
FEW_QUERIES = 20
"""Effective queries below which errors are clustered by unit: so few tell little of how queries differ."""


class Evidence:
    """Displays at the positions of a model.

    Args:
        displays: displays of a log that has the context columns of the model.
        model: the fitted model.
        folds: positions at which the page changes, as the user says.
        seed: seed of the split into halves.

    Raises:
        InputError: the log lacks a context column of the model, or has no click at its positions.

    Attributes:
        displays: those at positions that the model has an estimate for.
        model: the fitted model.
        positions: its K positions.
        prediction: the curve in every context.
        x: every context, encoded, [contexts, d].
        table: log p̂ of every context, [contexts, K].
        log_p: log p̂ of each row, relative to the anchor, [n].
        place: index of the position, [n].
        context: number of the context of each row, [n].
    """

    def __init__(self, displays: Displays, model: Propensities, *, folds: Sequence[int] = (), seed: int = 0) -> None:
        self.model, self.folds, self.seed = model, tuple(folds), seed
        if missing := [name for name in model.context if name not in displays.contexts]:
            raise InputError(f"the model has the context {', '.join(missing)}, the log has not: name the same columns")
        self.positions = np.array(model.curve.positions)
        self.displays = displays.take(np.isin(displays.position, self.positions))
        if not self.displays.clicks.any():
            where = name_places(self.positions.tolist(), model.places)
            raise InputError(f"the log has no click at {where} of the model: check it with the log it was fitted on")
        self.place = np.searchsorted(self.positions, self.displays.position)
        columns = {name: self.displays.contexts[name] for name in model.context}
        if columns:
            first, self.context = distinct(*(self.displays.codes[name] for name in columns))
            table: Any = {name: column[first] for name, column in columns.items()}
        else:
            self.context, table = np.zeros(len(self.displays), dtype=np.int64), None
        self.prediction = model.predict(table)
        self.x = np.zeros((1, 0)) if model.encoder is None else model.encoder.encode(table)[0]
        estimated = np.isin(self.prediction.positions, self.positions)
        self.table = np.log(np.nan_to_num(self.prediction.propensity[:, estimated], nan=1.0))
        self.log_p = self.table[self.context, self.place]

    def random(self, check: str) -> np.random.Generator:
        """Return a random generator of a check's own, independent of a log that was simulated with the same seed."""
        return np.random.default_rng([self.seed, *check.encode()])

    @cached_property
    def distance(self) -> Array:
        """L of every position: log(k / anchor); of places |log p̂|, [K]."""
        if self.model.places is not None:
            return np.asarray(np.abs(self.table[np.bincount(self.context).argmax()]))
        return np.log(self.positions / self.model.curve.anchor)

    @cached_property
    def anchor(self) -> int:
        """Index of the anchor among the positions."""
        return int(np.flatnonzero(self.positions == self.model.curve.anchor)[0])

    @cached_property
    def basis(self) -> Array:
        """The directions that curves are bent along, L and L² over its largest value, [K, 2]."""
        largest = max(float(np.abs(self.distance).max()), 1e-9)
        return np.stack([self.distance, self.distance**2 / largest], axis=1)

    @cached_property
    def kind(self) -> Integers:
        """Number of the kind of context, 0 for all where contexts are many, [n]."""
        return self.context if len(self.table) <= MOST_KINDS else np.zeros_like(self.context)

    @cached_property
    def moved(self) -> Integers:
        """Rows of units with a click that stand at several positions."""
        unit, n_units = self.displays.unit, int(self.displays.unit.max(initial=-1)) + 1
        last = np.zeros(n_units, dtype=np.int64)
        last[unit] = self.place
        several = np.bincount(unit, self.place != last[unit], n_units) > 0
        return np.flatnonzero((several & (np.bincount(unit, self.displays.clicks, n_units) > 0))[unit])

    @cached_property
    def ranker_number(self) -> Integers:
        """Number of the ranker; beyond the `MOST_RANKERS` with most displays, all others are one, [n]."""
        ranker = self.displays.ranker
        assert ranker is not None
        return rank_by_size(ranker, self.displays.shown, MOST_RANKERS)

    @cached_property
    def ranker_levels(self) -> Array:
        """A column of each ranker but the first, 1 in its rows, [n, rankers − 1]."""
        number = self.ranker_number
        return np.asarray(number[:, None] == np.arange(1, int(number.max(initial=0)) + 1), dtype=np.float64)

    @cached_property
    def moved_by_kind(self) -> list[Integers]:
        """The moved rows of every kind of context; those of all where one has too few clicks."""
        kind = self.kind[self.moved]
        clicks = np.bincount(kind, self.displays.clicks[self.moved], int(self.kind.max(initial=0)) + 1)
        return [self.moved[kind == number] if n >= ENOUGH else self.moved for number, n in enumerate(clicks)]

    def by_kind(self, effect: Callable[[Integers], tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return the effect, and its standard error, of every kind of context, [kinds, K], from its moved rows."""
        known: dict[int, tuple[Array, Array]] = {}
        for rows in self.moved_by_kind:
            if id(rows) not in known:  # kinds with too few clicks share all rows
                known[id(rows)] = effect(rows)
        effects, errors = zip(*(known[id(rows)] for rows in self.moved_by_kind), strict=True)
        return np.stack(effects), np.stack(errors)

    @cached_property
    def contexts_vary(self) -> bool:
        """Whether rows of one unit differ in their context."""
        return not follows(self.context, self.displays.unit)

    @cached_property
    def same_place(self) -> Integers:
        """Number of the unit and position, [n]."""
        return self.displays.unit * len(self.positions) + self.place

    @cached_property
    def down_the_pages(self) -> tuple[Integers, Integers]:
        """Rows page by page, from the top down, and where the page of each begins in that order, [n] each."""
        page = self.displays.page
        assert page is not None
        order = np.lexsort((self.displays.position, page))
        starts = run_starts([page[order]], len(order))
        return order, np.flatnonzero(starts)[np.cumsum(starts) - 1]

    @cached_property
    def query(self) -> Integers:
        """What errors are clustered by: the query, or the unit where queries are few, [n]."""
        return self.displays.query if self.many_queries else self.displays.unit

    @cached_property
    def many_queries(self) -> bool:
        """Whether there are `FEW_QUERIES` effective queries or more."""
        clicks = np.bincount(self.displays.query, self.displays.clicks)
        return bool(clicks.sum() ** 2 >= FEW_QUERIES * (clicks @ clicks))

    def fit(
        self,
        rows: Integers | slice,
        stratum: Integers,
        cell: Integers,
        x: Array,
        *,
        beside_model: bool = True,
        by_viewer: bool = True,
        ridge: float = 0.0,
    ) -> Estimate:
        """Return the estimate from some rows, [rows] and [rows, size], with log p̂ as offset or without."""
        d = self.displays
        if self.contexts_vary:
            cell = distinct(cell, self.context[rows])[1]
        return fit_strata(
            stratum,
            cell,
            d.shown[rows],
            self.log_p[rows] if beside_model else np.zeros(len(stratum)),
            d.clicks[rows],
            x,
            self.query[rows],
            d.viewer[rows] if by_viewer and d.user is not None and d.viewer is not None else None,
            ridge=ridge,
        )

    def moves(
        self,
        *groups: Integers,
        rows: Integers | None = None,
        unit: Integers | None = None,
        place: Integers | None = None,
        more: Array | None = None,
        beside_model: bool = True,
        by_viewer: bool = True,
    ) -> Estimate:
        """Return how far the curve bends along the basis, from clicks within units, or within units and groups.

        Args:
            groups: what strata are divided by, beside units, [n] each.
            rows: the rows to use; by default those of units that moved.
            unit: other units than those of the log, [n].
            place: other places than those of the log, [n]; then log p̂ is no offset.
            more: further columns by position, [K, columns].
            beside_model: whether log p̂ is the offset.
            by_viewer: whether errors are clustered by viewer, too.
        """
        if unit is None:
            unit, rows = self.displays.unit, self.moved if rows is None else rows
        rows = np.arange(len(unit)) if rows is None else rows
        stratum = distinct(unit[rows], *(group[rows] for group in groups))[1]
        beside_model = beside_model and place is None
        place = self.place[rows] if place is None else place[rows]
        basis = self.basis if more is None else np.concatenate([self.basis, more], axis=1)
        cell = stratum * len(self.positions) + place
        return self.fit(rows, stratum, cell, basis[place], beside_model=beside_model, by_viewer=by_viewer)

    @cached_property
    def pooled(self) -> Estimate:
        """How far the curve bends, from all moves."""
        return self.moves()

    def along(self, theta: Array, covariance: Array) -> tuple[Array, Array]:
        """Return log p by parameters along the basis, [K], and its standard error."""
        variance = np.einsum("ki,ij,kj->k", self.basis, covariance, self.basis)
        return self.basis @ theta, np.sqrt(np.maximum(variance, 0))

    def stays(self, level: Integers, x: Array, rows: Integers | None = None, ridge: float = 0.0) -> Estimate:
        """Return the coefficients of x [n, size] for clicks on a unit at a position, divided by level [n]."""
        some = np.arange(len(self.displays)) if rows is None else rows
        stratum, level = self.same_place[some], level[some]
        cell = stratum * (int(level.max(initial=0)) + 1) + level
        return self.fit(some, stratum, cell, x[some], beside_model=self.contexts_vary, ridge=ridge)


def rank_by_size(number: Integers, size: Array, most: int) -> Integers:
    """Return the rank of each row's number by total size, from 0, all ranks from `most` on being one, [n].

    Example:
        >>> rank_by_size(np.array([-1, 3, 3, 0]), np.ones(4), 1).tolist()
        [1, 0, 0, 1]
    """
    number = number - min(0, int(number.min(initial=0)))  # an empty value is one, too
    order = np.argsort(-np.bincount(number, size), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return np.minimum(rank, most)[number]
