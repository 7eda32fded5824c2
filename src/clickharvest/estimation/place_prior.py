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

from clickharvest.estimation.linear_shares import LinearShares
from clickharvest.places import Places

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
        shares: whose parameters these are.

    Attributes:
        names: what each τ is of.
        of_positions: which of them are of b, not of W.
        learned: which of them are to be learned.
        weak: weight of the weak prior of each.
    """

    def __init__(self, places: Places, positions: tuple[int, ...], anchor: int, shares: LinearShares) -> None:
        self.others, self.width, self.size = len(positions) - 1, shares.width, shares.size
        slopes, groups = parents(places, positions, anchor)
        own = _apart(np.eye(len(positions)), positions, anchor)
        free = len(slopes.T)
        named = [(f"by {column}", rows) for column, rows in groups.items()]
        named += [("place", own)] if self.others > free else []
        by_context = [("steepness", slopes)] if free else []
        by_context += [(f"context by {column}", rows) for column, rows in groups.items()] + [("context", own)]
        self.fixed = WIDE * slopes
        self.groups = named + (by_context if self.width > 1 else [])
        self.names = tuple(name for name, _ in self.groups)
        self.of_positions = np.arange(len(self.groups)) < len(named)
        self.learned = np.ones(len(self.groups), dtype=bool)
        self.weak = np.ones(len(self.groups))

    def _precisions(self, spread: Array) -> list[Array]:
        """Return the inverse of C of b and, where there are features, of every feature's W: [K − 1, K − 1] each."""
        found = []
        for kind, fixed in ((True, self.fixed), (False, None))[: 1 + (self.width > 1)]:
            covariance = np.zeros((self.others, self.others)) if fixed is None else fixed @ fixed.T
            for (_, rows), tau, of_position in zip(self.groups, spread, self.of_positions, strict=True):
                if of_position == kind:
                    covariance += tau**2 * (rows @ rows.T)
            found.append(np.linalg.inv(covariance + FREE * np.eye(self.others)))
        return found

    def matrix(self, spread: Array) -> Array:
        """Return Λ, [size, size]."""
        whole = np.diag(np.full(self.size, SHARED))
        own = np.arange(self.others) * self.width
        precisions = self._precisions(spread)
        for i in range(self.width):
            whole[np.ix_(own + i, own + i)] = precisions[min(i, 1)]
        return whole

    def evidence(self, log_spread: Array, information: Array, linear: Array) -> tuple[float, Array]:
        """Return the log evidence of log τ up to a constant, and its gradient, as `pooling.Precision` does.

        With R = Λ θ θᵀ Λ + Λ (H + Λ)⁻¹ Λ − Λ, of b and summed over the features of W, the gradient of log τ_j is
        τ_j² tr(A_jᵀ R A_j).
        """
        spread = np.exp(log_spread)
        precisions = self._precisions(spread)
        factor = cho_factor(information + self.matrix(spread), lower=True, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(linear)), check_finite=False)
        theta = inverse @ linear
        value = linear @ theta / 2 - np.log(np.diag(factor[0])).sum()
        own = np.arange(self.others) * self.width
        rest = [np.zeros((self.others, self.others)) for _ in precisions]
        for i in range(self.width):
            precision = precisions[min(i, 1)]
            value += np.linalg.slogdet(precision)[1] / 2
            moved = precision @ theta[own + i]
            inside = precision @ inverse[np.ix_(own + i, own + i)] @ precision
            rest[min(i, 1)] += np.outer(moved, moved) + inside - precision
        slope = np.array(
            [
                tau**2 * np.vdot(rows, rest[0 if of_position else 1] @ rows)
                for (_, rows), tau, of_position in zip(self.groups, spread, self.of_positions, strict=True)
            ]
        )
        return float(value + self.weak @ (log_spread - spread)), slope + self.weak * (1 - spread)


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
        values = [places.values(i)[k - 1] for k in positions]
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
