"""Evidence: the displays that a fitted curve speaks of, with all that several checks need, made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.displays import Displays
from clickharvest.checks.strata import Estimate, fit_strata
from clickharvest.errors import InputError
from clickharvest.harvesting.numbering import distinct
from clickharvest.positions.places import name_places

if TYPE_CHECKING:
    from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_KINDS = 12
"""Contexts of which each is looked at for itself."""
MOST_RANKERS = 8
"""Rankers of which each has a level of its own."""
ENOUGH = 5_000
"""Clicks of a kind of context from which on it is looked at for itself."""
FEW_QUERIES = 20
"""Queries below which units stand for them: so few tell little of how queries differ."""


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
        """Return the source of chance of a check: like no other's, even where a log was simulated with this seed."""
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
        unit, count = self.displays.unit, int(self.displays.unit.max(initial=-1)) + 1
        first = np.zeros(count, dtype=np.int64)
        first[unit] = self.place
        several = np.bincount(unit, self.place != first[unit], count) > 0
        return np.flatnonzero((several & (np.bincount(unit, self.displays.clicks, count) > 0))[unit])

    @cached_property
    def ranker_number(self) -> Integers:
        """Number of the ranker; beyond the `MOST_RANKERS` with most displays, all others are one, [n]."""
        ranker = self.displays.ranker
        assert ranker is not None
        ranker = ranker - min(0, int(ranker.min(initial=0)))  # an empty ranker is one, too
        many = np.bincount(ranker, self.displays.shown)
        order = np.empty(len(many), dtype=np.int64)
        order[np.argsort(-many, kind="stable")] = np.arange(len(many))
        return np.minimum(order, MOST_RANKERS)[ranker]

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
        return [self.moved[kind == one] if many >= ENOUGH else self.moved for one, many in enumerate(clicks)]

    @cached_property
    def contexts_vary(self) -> bool:
        """Whether rows of one unit differ in their context."""
        first = np.zeros(int(self.displays.unit.max(initial=-1)) + 1, dtype=np.int64)
        first[self.displays.unit] = self.context
        return bool((first[self.displays.unit] != self.context).any())

    @cached_property
    def same_place(self) -> Integers:
        """Number of the unit and position, [n]."""
        return self.displays.unit * len(self.positions) + self.place

    @cached_property
    def query(self) -> Integers:
        """What clicks depend on each other within: the query, or the unit where queries are few, [n]."""
        clicks = np.bincount(self.displays.query, self.displays.clicks)
        few = clicks.sum() ** 2 < FEW_QUERIES * (clicks @ clicks)
        return self.displays.unit if few else self.displays.query

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
        """Return the estimate from some rows, [rows] and [rows, size]; beside log p̂, or from scratch."""
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
        """Return how far curves are bent along the basis within units, or within units and groups [n].

        Args:
            groups: what clicks are compared within, beside units.
            rows: rows that are looked at; those of units that moved without.
            unit: other units than those of the log, [n].
            place: other places than those of the log, [n]; these are not fitted beside log p̂.
            more: further columns by position, [K, columns].
            beside_model: whether log p̂ is where bending starts.
            by_viewer: whether clicks of one viewer depend on each other, too.
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
        """How far the curve is bent within units, from all moves."""
        return self.moves()

    def along(self, theta: Array, covariance: Array) -> tuple[Array, Array]:
        """Return what parameters along the basis say of log p, [K], and its standard error."""
        variance = np.einsum("ki,ij,kj->k", self.basis, covariance, self.basis)
        return self.basis @ theta, np.sqrt(np.maximum(variance, 0))

    def stays(self, level: Integers, x: Array, rows: Integers | None = None, ridge: float = 0.0) -> Estimate:
        """Return how clicks of a unit at a position fall to levels [n], which differ in x, [n, size]."""
        some = np.arange(len(self.displays)) if rows is None else rows
        stratum, level = self.same_place[some], level[some]
        cell = stratum * (int(level.max(initial=0)) + 1) + level
        return self.fit(some, stratum, cell, x[some], beside_model=self.contexts_vary, ridge=ridge)
