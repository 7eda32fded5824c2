"""The prior of log examination: a sum of normal effects, each group of them with a variance of its own.

The parameters b_k and W_k of `MultinomialLogit` are sums of effects that are normal around 0, so that they have the
covariance C = B diag(τ²) Bᵀ, B being what parameters read of each effect. A prior is one such matrix: positions of a
list (`power_law_prior`), browsing states (`click_models.browsing`), and places:

    f_k(x) = −Σ_c (a_c + u_c·x) log(1 + v_ck) + Σ_c (r_c[v_ck] + s_c[v_ck]·x) + δ_k + ω_k·x,   log p_k = f_k − f_anchor

with v_ck the value of column c at place k, counted from its least one: numbers have a steepness a_c, and every column a
deviation r_c of each of its values (a row, a page, a slot's side), shared by the places that have it; δ_k is a place's
own. The steepness a_c is free; the other groups have a variance each, r_c ~ N(0, τ_c²), δ ~ N(0, τ_δ²), u_ci ~ N(0,
τ_u²), s_ci ~ N(0, σ_c²), ω_ki ~ N(0, τ_ω²). A row of B is what the place reads less what the anchor reads, so that it
does not matter which place is the anchor. A column with one value, or with another value at every place, has no group:
δ says the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

from clickharvest.positions.places import Places

Array = NDArray[np.float64]

WIDE = 10.0
"""Standard deviation of a steepness that is free."""
FREE = 1e-8
"""Precision of what has none of its own, so that matrices can be factored."""
SHARED = 1e-2
"""Precision of how much a context clicks in general: next to none."""


class NormalPrior:
    """The precision Λ = C(τ)⁻¹ of the blocks of `MultinomialLogit`, and the evidence of its variances.

    Args:
        groups: what the parameters b read of the effects of each group, [K − 1, effects].
        contexts: what one feature of W reads of the effects of further groups, [K − 1, effects].
        fixed: what b reads of effects whose standard deviation is 1, [K − 1, effects].
        width: parameters of a block.
        size: parameters of all blocks.
        unlearned: groups that nothing can be learned of.

    Attributes:
        names: what each τ is of.
        of_positions: which of them are of b, not of W.
        learned: which of them there is anything to learn from.
        weak: weight of the weak prior of each.
    """

    def __init__(
        self, groups: Mapping[str, Array], contexts: Mapping[str, Array], fixed: Array, width: int, size: int,
        unlearned: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.fixed, self.width, self.size, self.others = fixed, width, size, len(fixed)
        self.groups = [*groups.values(), *contexts.values()]
        self.names = (*groups, *contexts)
        self.of_positions = np.arange(len(self.names)) < len(groups)
        self.learned = np.array([name not in unlearned for name in self.names])
        self.weak = self.learned * 1.0
        self._effects, self._group, self._scale = self._lay_out()
        self._seen: tuple[Array, Array, Array, Array] | None = None

    def _lay_out(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Return B, [size, effects], the group of each effect, −1 without, and its scale beside τ, all 1 in a group."""
        parts = [(self.fixed, 0, -1)]
        for number, rows in enumerate(self.groups):
            features = [0] if self.of_positions[number] else range(1, self.width)
            parts += [(rows, feature, number) for feature in features]
        columns, group = [], []
        for rows, feature, number in parts:
            columns.append(np.zeros((self.size, rows.shape[1])))
            columns[-1][self._rows_of(feature)] = rows
            group += [number] * rows.shape[1]
        shared = self.size - self.others * self.width
        columns.append(np.eye(self.size)[:, self.size - shared :])
        scales = np.append(np.ones(len(group)), np.full(shared, SHARED**-0.5))
        return np.concatenate(columns, axis=1), np.array(group + [-1] * shared, dtype=np.int64), scales

    def _rows_of(self, feature: int) -> NDArray[np.int64]:
        """Return which parameters are those of b, feature 0, or of a feature, counted from 1, [K − 1]."""
        return np.arange(self.others) * self.width + feature

    def _deviations(self, spread: Array) -> Array:
        """Return the standard deviation of every effect, [effects]."""
        return np.where(self._group < 0, 1.0, spread[self._group]) * self._scale

    def matrix(self, spread: Array) -> Array:
        """Return Λ, [size, size].

        With B diag(τ) = R'Q by rows, R' lower triangular, C = R' R'ᵀ: its condition is the root of that of C, so that
        the inverse is exact enough for the smallest τ.
        """
        whole, scaled = np.diag(np.full(self.size, SHARED)), self._effects * self._deviations(spread)
        for feature in range(self.width):
            rows = self._rows_of(feature)
            effects = scaled[rows]
            triangle = np.linalg.qr(effects[:, effects.any(axis=0)].T, mode="r")
            half = solve_triangular(triangle, np.eye(len(rows)), check_finite=False)
            whole[np.ix_(rows, rows)] = half @ half.T
        return whole

    def evidence(self, log_spread: Array, information: Array, linear: Array) -> tuple[float, Array]:
        """Return the log evidence of log τ up to a constant, and its gradient.

        In the effects themselves, each over its standard deviation, the prior is 1 and parameters are θ = B S v: with
        M = 1 + S Bᵀ H B S and v = M⁻¹ S Bᵀ y the evidence is ½ yᵀ B S v − ½ log|M|, and its slope along the log of a
        standard deviation is v² − 1 + (M⁻¹)_ii, summed over the effects that have it.

        Args:
            log_spread: log τ, [groups].
            information: H, [size, size].
            linear: y = H θ̂ + score(θ̂), [size].
        """
        if self._seen is None or self._seen[0] is not information or self._seen[1] is not linear:
            gram = self._effects.T @ information @ self._effects
            self._seen = information, linear, gram, self._effects.T @ linear
        gram, seen = self._seen[2:]
        spread = np.exp(log_spread)
        scale = self._deviations(spread)
        factor = cholesky(np.eye(len(scale)) + scale[:, None] * gram * scale, lower=True, check_finite=False)
        half, _ = dtrtri(factor, lower=1)
        effect = half.T @ (half @ (scale * seen))
        value = (scale * seen) @ effect / 2 - np.log(np.diag(factor)).sum()
        slope = np.bincount(self._group + 1, effect**2 - 1 + np.einsum("ij,ij->j", half, half), len(spread) + 1)[1:]
        return float(value + self.weak @ (log_spread - spread)), slope + self.weak * (1 - spread)

    def loosened(self, spread: Array, information: Array, linear: Array) -> NormalPrior:
        """Return the prior whose tails fit the data; those of normal effects stay as they are."""
        return self

    def off_curve(self) -> dict[int, list[int]]:
        """Return positions, by index, that the others do not predict: of all contexts (0) and by feature, from 1."""
        return {}


def place_prior(places: Places, positions: tuple[int, ...], anchor: int, width: int, size: int) -> NormalPrior:
    """Return the prior of places at some positions, ascending, for blocks of some width and parameters of some size."""
    slopes, by_column = parents(places, positions, anchor)
    deviations, free = less_anchor(np.eye(len(positions)), positions.index(anchor)), slopes.shape[1]
    groups = {f"by {column}": rows for column, rows in by_column.items()} | {"place": deviations}
    contexts = {"steepness": slopes} if free else {}
    contexts |= {f"context by {column}": rows for column, rows in by_column.items()} | {"context": deviations}
    unlearned = () if len(deviations) > free else ("place",)
    return NormalPrior(groups, contexts if width > 1 else {}, WIDE * slopes, width, size, unlearned)


def parents(places: Places, positions: tuple[int, ...], anchor: int) -> tuple[Array, dict[str, Array]]:
    """Return what places read of steepness, [K − 1, numbers], and of the values of each column, [K − 1, values].

    Example:
        A grid of two rows and three columns: two steepnesses, and three columns beyond theirs; the difference of two
        rows is a steepness already.

        >>> grid = Places.of(("row", "column"), [(i, j) for i in (1, 2) for j in (1, 2, 3)])
        >>> slopes, groups = parents(grid, (1, 2, 3, 4, 5, 6), 1)
        >>> slopes.shape, {column: rows.shape for column, rows in groups.items()}
        ((5, 2), {'column': (5, 3)})
    """
    slopes, groups, anchored = [], {}, positions.index(anchor)
    for i, column in enumerate(places.columns):
        column_values = places.values(i)
        values = [column_values[k - 1] for k in positions]
        levels = sorted(set(values), key=values.index)
        if len(levels) < 2:
            continue
        numeric = places.is_numeric(i)
        if numeric:
            numbers = np.array(values, dtype=np.float64)
            slopes.append(-np.log1p(numbers - numbers.min()))
        if numeric + 1 < len(levels) < len(positions):
            dummies = np.array([[value == level for level in levels] for value in values], dtype=float)
            groups[column] = less_anchor(dummies, anchored)
    whole = less_anchor(np.array(slopes).T.reshape(len(positions), len(slopes)), anchored)
    # A column that is a combination of those before says nothing more: one row of a grid leaves one number.
    kept: list[int] = []
    for i in range(whole.shape[1]):
        if np.linalg.matrix_rank(whole[:, [*kept, i]]) > len(kept):
            kept.append(i)
    return whole[:, kept], groups


def less_anchor(rows: Array, anchored: int) -> Array:
    """Return the rows of all positions but the anchor, less the anchor's."""
    return np.asarray(np.delete(rows - rows[anchored], anchored, axis=0))
