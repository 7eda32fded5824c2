"""Pooling of places towards their parents: the prior of log examination where positions are no list.

    f_k(x) = −Σ_c (a_c + u_c·x) log(1 + v_ck) + Σ_c (r_c[v_ck] + s_c[v_ck]·x) + δ_k + ω_k·x,   log p_k = f_k − f_anchor

with v_ck the value of column c at place k, counted from its least one: numbers have a steepness a_c, and every column a
deviation r_c of each of its values (a row, a page, a slot's side), shared by the places that have it; δ_k is a place's
own. All but the steepness a_c, which is free, are normal around 0, each group with a variance of its own:

    r_c ~ N(0, τ_c²),   δ ~ N(0, τ_δ²),   u_ci ~ N(0, τ_u²),   s_ci ~ N(0, σ_c²),   ω_ki ~ N(0, τ_ω²).

In the curve's parameters b_k and W_k, those of log p_k, that is a normal prior around 0 with covariance
C = Σ_j τ_j² A_j A_jᵀ, A_j having a row for every place but the anchor: what the place reads of group j less what the
anchor reads. So it does not matter which place is the anchor. A column with one value, or with a value of its own at
every place, says nothing that δ does not say, and has no group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from clickharvest.positions.places import Places

Array = NDArray[np.float64]

WIDE = 10.0
"""Standard deviation of a steepness that is free."""
FREE = 1e-8
"""Precision of what has none of its own, so that matrices can be factored."""
SHARED = 1e-2
"""Precision of how much a context clicks in general: next to none."""


class PlacePrior:
    """The prior's precision Λ = C(τ)⁻¹ of the blocks of `LinearShares`, and the evidence of its variances.

    Args:
        places: the table of places.
        positions: numbers of the places that the parameters are of, ascending.
        anchor: the place that others are relative to.
        width: parameters of a block.
        size: parameters of all blocks.

    Attributes:
        names: what each τ is of.
        of_positions: which of them are of b, not of W.
        learned: which of them there is anything to learn from.
        weak: weight of the weak prior of each.
    """

    def __init__(self, places: Places, positions: tuple[int, ...], anchor: int, width: int, size: int) -> None:
        self.others, self.width, self.size = len(positions) - 1, width, size
        self.slopes, groups = parents(places, positions, anchor)
        free = self.slopes.shape[1]
        own = _apart(np.eye(len(positions)), positions, anchor)
        base = [(f"by {column}", rows) for column, rows in groups.items()] + [("place", own)]
        more = [("steepness", self.slopes)] if free else []
        more += [(f"context by {column}", rows) for column, rows in groups.items()] + [("context", own)]
        self.groups = base + (more if self.width > 1 else [])
        self.names = tuple(name for name, _ in self.groups)
        self.of_positions = np.arange(len(self.groups)) < len(base)
        self.learned = np.ones(len(self.groups), dtype=bool)
        self.learned[len(base) - 1] = self.others > free
        self.weak = np.where(self.learned, 1.0, 0.0)
        self._rows, self._group, self._fixed = self._effects()
        self._seen: tuple[Array, Array, Array, Array] | None = None

    def _effects(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Return what parameters read of all effects, [size, effects], their groups, −1 without, and fixed scales."""
        columns, group, fixed = [], [], []
        at = np.arange(self.others) * self.width

        def add(rows: Array, feature: int, number: int, scale: float) -> None:
            whole = np.zeros((self.size, rows.shape[1]))
            whole[at + feature] = rows
            columns.append(whole)
            group.extend([number] * rows.shape[1])
            fixed.extend([scale] * rows.shape[1])

        add(self.slopes, 0, -1, WIDE)
        for number, (_, rows) in enumerate(self.groups):
            for feature in [0] if self.of_positions[number] else range(1, self.width):
                add(rows, feature, number, 1.0)
        shared = self.size - self.others * self.width
        columns.append(np.eye(self.size)[:, self.size - shared :])
        group.extend([-1] * shared)
        fixed.extend([SHARED**-0.5] * shared)
        return np.concatenate(columns, axis=1), np.array(group, dtype=np.int64), np.array(fixed)

    def matrix(self, spread: Array) -> Array:
        """Return Λ, [size, size].

        The places' own effects make C = τ² E + U Uᵀ with E = 1 + 𝟏𝟏ᵀ. With P the left singular vectors of E^{−½} U / τ,
        s its values, the inverse is E^{−½} (1 − P s² / (1 + s²) Pᵀ) E^{−½} / τ²: exact however small τ is.
        """
        whole = np.diag(np.full(self.size, SHARED))
        at, n = np.arange(self.others) * self.width, self.others
        root = np.eye(n) - (1 - (n + 1) ** -0.5) / n
        tau = dict(zip(self.names, spread.tolist(), strict=True))
        for i in range(self.width):
            own, first = ("place", WIDE) if i == 0 else ("context", tau.get("steepness", 0.0))
            some = [(name, rows) for j, (name, rows) in enumerate(self.groups) if self.of_positions[j] == (i == 0)]
            parts = [first * self.slopes, *(tau[name] * rows for name, rows in some if name not in (own, "steepness"))]
            left, values, _ = np.linalg.svd(root @ np.concatenate(parts, axis=1) / tau[own], full_matrices=False)
            inner = np.eye(n) - (left * (values**2 / (1 + values**2))) @ left.T
            whole[np.ix_(at + i, at + i)] = root @ inner @ root / tau[own] ** 2
        return whole

    def evidence(self, log_spread: Array, information: Array, linear: Array) -> tuple[float, Array]:
        """Return the log evidence of log τ up to a constant, and its gradient, as `law_prior` does.

        In the effects themselves, each over its standard deviation, the prior is 1 and parameters are θ = B S v: with
        M = 1 + S Bᵀ H B S and v = M⁻¹ S Bᵀ y the evidence is ½ yᵀ B S v − ½ log|M|, and its slope along the log of a
        standard deviation is v² − 1 + (M⁻¹)_ii, summed over the effects that have it.
        """
        gram, seen = self._inside(information, linear)
        spread = np.exp(log_spread)
        scale = np.where(self._group < 0, self._fixed, spread[self._group])
        inside = np.eye(len(scale)) + scale[:, None] * gram * scale
        factor = cho_factor(inside, lower=True, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(scale)), check_finite=False)
        effect = inverse @ (scale * seen)
        value = (scale * seen) @ effect / 2 - np.log(np.diag(factor[0])).sum()
        slope = np.bincount(self._group + 1, effect**2 - 1 + np.diag(inverse), len(spread) + 1)[1:]
        return float(value + self.weak @ (log_spread - spread)), slope + self.weak * (1 - spread)

    def _inside(self, information: Array, linear: Array) -> tuple[Array, Array]:
        """Return Bᵀ H B and Bᵀ y, which a search for τ asks for again and again."""
        if self._seen is None or self._seen[0] is not information or self._seen[1] is not linear:
            gram: Array = self._rows.T @ information @ self._rows
            self._seen = information, linear, gram, self._rows.T @ linear
        return self._seen[2:]


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
