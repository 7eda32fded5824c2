"""Pooling of places towards their parents: a normal prior of log examination where positions are no list.

    f_k(x) = −Σ_c (a_c + u_c·x) log(1 + v_ck) + Σ_c (r_c[v_ck] + s_c[v_ck]·x) + δ_k + ω_k·x,   log p_k = f_k − f_anchor

with v_ck the value of column c at place k, counted from its least one: numbers have a steepness a_c, and every column a
deviation r_c of each of its values (a row, a page, a slot's side), shared by the places that have it; δ_k is a place's
own. All but the steepness a_c, which is free, are normal around 0, each group with a variance of its own:

    r_c ~ N(0, τ_c²),   δ ~ N(0, τ_δ²),   u_ci ~ N(0, τ_u²),   s_ci ~ N(0, σ_c²),   ω_ki ~ N(0, τ_ω²).

In the curve's parameters b_k and W_k, those of log p_k, that is a normal prior around 0 with covariance
C = Σ_j τ_j² A_j A_jᵀ, A_j having a row for every place but the anchor: what the place reads of group j less what the
anchor reads. So it does not matter which place is the anchor. A column with one value, or with a value of its own at
every place, says nothing that δ does not say, and has no group.

`NormalPrior` is that of any such sum of effects: browsing states have other groups (`click_models.browsing`).
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
    """The prior's precision Λ = C(τ)⁻¹ of the blocks of `MultinomialLogit`, and the evidence of its variances.

    Effects of each group are normal around 0 with a standard deviation τ of their own. Parameters b are sums of
    effects, and so are those of each feature in W, so that C = B diag(τ²) Bᵀ, B what parameters read of all effects.

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
        self.fixed, self.groups, self.width, self.size = fixed, [*groups.values(), *contexts.values()], width, size
        self.names = (*groups, *contexts)
        self.of_positions = np.arange(len(self.names)) < len(groups)
        self.learned = np.array([name not in unlearned for name in self.names])
        self.weak = self.learned * 1.0
        self._rows, self._group, self._fixed = self._effects()
        self._seen: tuple[Array, Array, Array, Array] | None = None

    def _effects(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Return what parameters read of all effects, [size, effects], their groups, −1 without, and fixed scales."""
        at = np.arange(len(self.fixed)) * self.width
        parts = [(self.fixed, 0, -1)]
        for number, rows in enumerate(self.groups):
            features = [0] if self.of_positions[number] else range(1, self.width)
            parts += [(rows, feature, number) for feature in features]
        columns, group = [], []
        for rows, feature, number in parts:
            columns.append(np.zeros((self.size, rows.shape[1])))
            columns[-1][at + feature] = rows
            group += [number] * rows.shape[1]
        shared = self.size - len(self.fixed) * self.width
        columns.append(np.eye(self.size)[:, self.size - shared :])
        scales = np.append(np.ones(len(group)), np.full(shared, SHARED**-0.5))
        return np.concatenate(columns, axis=1), np.array(group + [-1] * shared, dtype=np.int64), scales

    def matrix(self, spread: Array) -> Array:
        """Return Λ, [size, size].

        With B diag(τ) = R'Q by rows, R' lower triangular, C = R' R'ᵀ: its condition is the root of that of C, so that
        the inverse is exact enough for the smallest τ.
        """
        whole, at = np.diag(np.full(self.size, SHARED)), np.arange(len(self.fixed)) * self.width
        for features, of_positions in ((range(1), True), (range(1, self.width), False)):
            own = np.flatnonzero(self.of_positions == of_positions)
            parts = [spread[j] * self.groups[j] for j in own] + [self.fixed] * of_positions
            if features:
                triangle = np.linalg.qr(np.concatenate(parts, axis=1).T, mode="r")
                half = solve_triangular(triangle, np.eye(len(at)), check_finite=False)
                precision = half @ half.T
                for i in features:
                    whole[np.ix_(at + i, at + i)] = precision
        return whole

    def evidence(self, log_spread: Array, information: Array, linear: Array) -> tuple[float, Array]:
        """Return the log evidence of log τ up to a constant, and its gradient, as `power_law_prior` does.

        In the effects themselves, each over its standard deviation, the prior is 1 and parameters are θ = B S v: with
        M = 1 + S Bᵀ H B S and v = M⁻¹ S Bᵀ y the evidence is ½ yᵀ B S v − ½ log|M|, and its slope along the log of a
        standard deviation is v² − 1 + (M⁻¹)_ii, summed over the effects that have it.
        """
        gram, seen = self._inside(information, linear)
        spread = np.exp(log_spread)
        scale = np.where(self._group < 0, self._fixed, spread[self._group])
        inside = np.eye(len(scale)) + scale[:, None] * gram * scale
        factor = cholesky(inside, lower=True, check_finite=False)
        half, _ = dtrtri(factor, lower=1)
        effect = half.T @ (half @ (scale * seen))
        value = (scale * seen) @ effect / 2 - np.log(np.diag(factor)).sum()
        slope = np.bincount(self._group + 1, effect**2 - 1 + np.einsum("ij,ij->j", half, half), len(spread) + 1)[1:]
        return float(value + self.weak @ (log_spread - spread)), slope + self.weak * (1 - spread)

    def _inside(self, information: Array, linear: Array) -> tuple[Array, Array]:
        """Return Bᵀ H B and Bᵀ y, which a search for τ asks for again and again."""
        if self._seen is None or self._seen[0] is not information or self._seen[1] is not linear:
            gram: Array = self._rows.T @ information @ self._rows
            self._seen = information, linear, gram, self._rows.T @ linear
        return self._seen[2:]


def place_prior(places: Places, positions: tuple[int, ...], anchor: int, width: int, size: int) -> NormalPrior:
    """Return the prior of places.

    Args:
        places: the table of places.
        positions: numbers of the places that the parameters are of, ascending.
        anchor: the place that others are relative to.
        width: parameters of a block.
        size: parameters of all blocks.
    """
    slopes, by_column = parents(places, positions, anchor)
    own, free = _apart(np.eye(len(positions)), positions, anchor), slopes.shape[1]
    groups = {f"by {column}": rows for column, rows in by_column.items()} | {"place": own}
    contexts = {"steepness": slopes} if free else {}
    contexts |= {f"context by {column}": rows for column, rows in by_column.items()} | {"context": own}
    unlearned = () if len(own) > free else ("place",)
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
    slopes, groups = [], {}
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
            groups[column] = _apart(np.array([[value == level for level in levels] for value in values], dtype=float),
                                    positions, anchor)  # fmt: skip
    whole = np.array(slopes).T.reshape(len(positions), len(slopes))
    return _independent(_apart(whole, positions, anchor)), groups


def _apart(rows: Array, positions: tuple[int, ...], anchor: int) -> Array:
    """Return the rows of all positions but the anchor, less the anchor's."""
    i = positions.index(anchor)
    found: Array = np.delete(rows - rows[i], i, axis=0)
    return found


def _independent(slopes: Array) -> Array:
    """Return the columns that are no combination of those before: one row of a grid leaves one number."""
    kept: list[int] = []
    for i in range(slopes.shape[1]):
        if np.linalg.matrix_rank(slopes[:, [*kept, i]]) > len(kept):
            kept.append(i)
    return slopes[:, kept]
