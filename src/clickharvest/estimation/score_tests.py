"""Score tests on click shares, valid however clicks of one query depend on each other.

A test of columns A added to the logits of click shares (METHOD §5),

    π_{u,k} ∝ e_{u,k} exp(B_{u,k}·β + A_{u,k}·α),   α = 0 under the null, B the columns of the null model.

With residuals C_{u,k} − N_u π_{u,k} of the null fit, query q has the scores S_q = Σ residual · (B, A). Those of A, less
what the fit of β takes from them, are s_q = S_q^A − I_AB I_BB⁻¹ S_q^B (I the information matrix). Then

    T = Uᵀ V⁻¹ U,   U = Σ_q s_q,   V = Σ_q s_q s_qᵀ,   T / Q ~ Beta(r/2, (Q − r)/2),   r = rank V.

For Q equal queries with normal scores this is Hotelling's test. Queries are unequal, so Q is their effective number
r (r + 2) / Σ_q h_q² − 2 with h_q = s_qᵀ V⁻¹ s_q: the law then has the mean and variance of T under random signs of the
s_q. Far out, where two moments say little, the plain number of queries gives the heavier tail: the larger p-value of
the two counts. Where few queries have most of the scores, as under a strong effect, that law is left for the random
signs themselves: the share of `FLIPS` draws of signs with a T as large, exact where scores are symmetric.

The null fit follows a query that has much of the clicks, so that its own score looks smaller than it is. At the fit
without query q its null part is (1 − H)⁻¹ S_q^B to first order, H = I_q,BB I_BB⁻¹ being the query's leverage, and that
exaggerates. In V, in h_q and under random signs it counts for (1 − H)^−½ S_q^B, which is right on average where clicks
are independent (a regression's HC2 errors; the others are HC0 and HC3), and the scores of A change with it, by
I_q,AB I_BB⁻¹ ((1 − H)^−½ − 1) H⁻¹ S_q^B. U does not change: it sums the scores at one fit.

Beside T, Q = Uᵀ I⁻¹ U with the information I instead of V says how large scores are for independent clicks. Only the
null model is fitted, so nothing runs off to infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from scipy.special import fdtrc, xlogy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Columns = csr_array[np.float64, tuple[int, int]]

ENOUGH = 4
"""Effective queries needed per tested direction, and for one more; with fewer, fewer directions are tested."""

FLIPS = 9_999
"""Draws of random signs."""

FLIPPED = 1_000
"""Queries, those with the largest scores, whose signs are drawn; the sum of all others is taken as normal."""

LEFT_OUT = 200
"""Queries, those with most clicks, whose leverage on the null fit counts; others move it too little."""

AT_ONCE = 20_000_000
"""Numbers of their columns that are held at once; where they would be more, fewer queries count."""

MOST_LEVERAGE = 0.9
"""No query counts for more than ten times itself."""

MOST_SHARE = 0.05
"""Share of the clicks that one query may have in `evened`; where queries are few, twice the average."""

RIDGE = 1e-3
"""Penalty on the null model's parameters, weak enough to matter only where a ratio would be infinite."""


@dataclass(frozen=True)
class ShareCells:
    """Cells of units with clicks: rows of the sample, units ascending from 0, queries, log exposures, clicks."""

    rows: Integers
    unit: Integers
    cluster: Integers
    log_exposure: Array
    clicks: Array

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """First cell of each unit."""
        return np.flatnonzero(np.diff(self.unit, prepend=-1))

    @cached_property
    def totals(self) -> Array:
        """Clicks N of each unit."""
        return np.add.reduceat(self.clicks, self.first)

    def shares(self, logits: Array) -> Array:
        """Return π of each cell."""
        weight = np.exp(logits - np.maximum.reduceat(logits, self.first)[self.unit])
        return weight / np.add.reduceat(weight, self.first)[self.unit]

    def residual(self, shares: Array) -> Array:
        """Return C − N π of each cell: the score of its logit."""
        return self.clicks - self.totals[self.unit] * shares

    def spread(self, column: Array, shares: Array) -> Array:
        """Return N Var_π(column) of each unit: its information on the column's coefficient."""
        mean, square = (np.add.reduceat(shares * power, self.first) for power in (column, column**2))
        information: Array = self.totals * np.maximum(square - mean**2, 0.0)
        return information

    def information(self, columns: Columns, shares: Array) -> Array:
        """Return Σ_u N_u Cov_π(columns): minus the second derivative of the log likelihood."""
        mean = _summed(_scaled(columns, shares), self.unit)
        whole = columns.T @ _scaled(columns, shares * self.totals[self.unit])
        return np.asarray((whole - mean.T @ _scaled(mean, self.totals)).toarray())


def evened(cells: ShareCells) -> ShareCells:
    """Return the cells with the clicks of very large queries counting for less, w_q C with w_q ≤ 1.

    A query with most of the clicks leaves a test next to nothing to compare it with: the null fit follows it, and its
    own score makes nearly all of U and V. As the clicks of a query depend on each other, its millionth click tells
    less than another query's first. So no query counts for more than `MOST_SHARE` of all. Scores remain independent
    and of mean 0 under the null, whatever the weights, as long as these do not depend on where clicks fell.

    Example:
        Forty queries, one with half of the clicks.

        >>> cells = ShareCells(*np.tile(np.arange(40), (3, 1)), np.zeros(40), np.array([40.0, *np.ones(38), 2.0]))
        >>> evened(cells).clicks[[0, 1, -1]].round(3).tolist()
        [2.105, 1.0, 2.0]
    """
    _, query = np.unique(cells.cluster, return_inverse=True)
    clicks = np.bincount(query, weights=cells.clicks)
    most = max(MOST_SHARE, 2 / len(clicks)) if len(clicks) else 1.0
    ordered = np.sort(clicks)[::-1]
    # With the m largest at the limit c, c is `most` of m c and what the others have.
    larger = np.arange(min(len(ordered), int(np.ceil(1 / most))))
    limit = most * (ordered.sum() - np.cumsum(ordered) + ordered)[larger] / (1 - most * larger)
    fits = np.flatnonzero(ordered[larger] <= limit)
    if not fits[:1].any():  # the largest is within the limit, or nothing is there
        return cells
    weight = np.minimum(1.0, limit[fits[0]] / np.maximum(clicks, 1e-300))
    return replace(cells, clicks=cells.clicks * weight[query])


@dataclass(frozen=True)
class SharesFit:
    """A fit of click shares: parameters, π of each cell, log likelihood."""

    theta: Array
    shares: Array
    value: float


def fit_shares(cells: ShareCells, columns: Columns) -> SharesFit:
    """Maximise Σ C log π − RIDGE |θ|² / 2, concave, by Newton's method with step halving."""

    def at(theta: Array) -> SharesFit:
        shares = cells.shares(cells.log_exposure + columns @ theta)
        return SharesFit(theta, shares, float(xlogy(cells.clicks, shares).sum()))

    def objective(fit: SharesFit) -> float:
        return fit.value - RIDGE * float(fit.theta @ fit.theta) / 2

    now = at(np.zeros(columns.shape[1]))
    for _ in range(50):
        gradient = columns.T @ cells.residual(now.shares) - RIDGE * now.theta
        hessian = cells.information(columns, now.shares) + RIDGE * np.eye(len(gradient))
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < 1e-8:
            break
        while objective(ahead := at(now.theta + step)) < objective(now):
            step = step / 2
        now = ahead
    return now


def steadied(cells: ShareCells, columns: Columns, size: Array) -> ShareCells:
    """Return the cells with queries counting for what they tell of a common curve, w_q C with w_q = 1 / (1 + φ λ_q).

    Where queries have curves of their own, a large one tells little more than a small one. With λ_q its share of all
    displays, the scores of the null fit, whitened by its information, vary as

        E |S_q|² = r (λ_q (1 − λ_q) + φ λ_q² (1 − 2 λ_q + Σ_j λ_j²)),   r columns,

    φ = 0 where queries read alike; what is subtracted is that the fit follows each query. The sum over all gives φ.

    Args:
        cells: the cells, `evened`.
        columns: the columns of the null model.
        size: displays, or what else does not depend on where clicks fell, of each cell.

    Example:
        Of queries that read alike all clicks count; a taste for one position leaves the larger one less.

        >>> shown = ShareCells(np.arange(8), np.arange(8) // 2, np.arange(8) // 2, np.zeros(8), np.full(8, 3.0))
        >>> second, size = csr_array(np.tile([[0.0], [1.0]], (4, 1))), np.repeat([6.0, 1.0, 1.0, 1.0], 2)
        >>> steadied(shown, second, size).clicks[[0, -1]].tolist()
        [3.0, 3.0]
        >>> unlike = replace(shown, clicks=np.array([30.0, 2.0, 2.0, 30.0, 30.0, 2.0, 2.0, 30.0]))
        >>> steadied(unlike, second, size).clicks[[0, -1]].round(2).tolist()
        [0.21, 1.22]
    """
    fit = fit_shares(cells, columns)
    information = cells.information(columns, fit.shares) + RIDGE * np.eye(columns.shape[1])
    scores = _summed(_scaled(columns, cells.residual(fit.shares)), cells.cluster).toarray()
    found = float(np.sum(scores * np.linalg.solve(information, scores.T).T)) / columns.shape[1]
    _, query = np.unique(cells.cluster, return_inverse=True)
    share = np.bincount(query, weights=size)
    share = share / share.sum()
    beyond = np.sum(share**2 * (1 - 2 * share + share @ share))  # 0 of a single query
    spread = max(0.0, (found - np.sum(share * (1 - share))) / max(beyond, 1e-300))
    return replace(cells, clicks=cells.clicks / (1 + spread * share)[query]) if beyond > 0 else cells


@dataclass(frozen=True)
class Scores:
    """The scores of tested columns by query, less what the null fit takes from them.

    Attributes:
        whole: U, their sum, [columns].
        apart: the scores of single queries, each at a null fit that follows it less, [queries, columns].
        information: the information on the columns that the null fit leaves, [columns, columns].
        own: the columns' information by themselves, [columns].
        null: the null fit.
    """

    whole: Array
    apart: Array
    information: Array
    own: Array
    null: SharesFit


@dataclass(frozen=True)
class ScoreTest:
    """T, Q and the law of T; for each tested column alone the one-step estimate U / I and z = U / √V; the null fit.

    `directions` is what makes the scores of the columns those that were tested, [columns, freedom].
    """

    statistic: float
    heterogeneity: float
    freedom: int
    p_value: float
    shift: Array
    z: Array
    null: SharesFit
    directions: Array


def score_columns(cells: ShareCells, null: Columns, extra: Columns) -> Scores:
    """Return the scores of the columns `extra` beside `null`."""
    fit = fit_shares(cells, null)
    columns, size = beside(null, extra), null.shape[1]
    information = cells.information(columns, fit.shares)
    taken = information[size:, :size] @ np.linalg.pinv(information[:size, :size], rcond=1e-10, hermitian=True)
    left = information[size:, size:] - taken @ information[:size, size:]
    effective = np.vstack([-taken.T, np.eye(len(left))])
    scores = _summed(_scaled(columns, cells.residual(fit.shares)), cells.cluster)
    own: Array = scores @ effective
    whole = own.sum(axis=0)
    largest, more = _less_followed(cells, columns, size, fit.shares, information[:size, :size], scores)
    own[largest] += more @ effective
    return Scores(whole, own, left, np.diag(information)[size:], fit)


def scores_by_query(cells: ShareCells, columns: Columns, shares: Array) -> Array:
    """Return the scores of columns beside shares that nothing was fitted for, [queries, columns]."""
    return np.asarray(_summed(_scaled(columns, cells.residual(shares)), cells.cluster).toarray())


def _less_followed(
    cells: ShareCells, columns: Columns, size: int, shares: Array, information: Array, scores: Columns
) -> tuple[Integers, Array]:
    """Return the m queries with most clicks, and what their scores gain where the fit follows them less, [m, columns].

    Args:
        cells: the cells.
        columns: the null's columns and, behind them, those tested.
        size: how many are the null's.
        shares: π of each cell.
        information: the null's information, [size, size].
        scores: the scores of all queries, [queries, columns].
    """
    _, query = np.unique(cells.cluster, return_inverse=True)
    largest = np.argsort(-np.bincount(query, weights=cells.clicks), kind="stable")[:LEFT_OUT]
    held = np.cumsum(np.bincount(query)[largest]) * columns.shape[1]
    largest = np.sort(largest[held <= AT_ONCE])
    if not len(largest):
        return largest, np.zeros((0, columns.shape[1]))
    # The rows of these queries, query by query and in each unit by unit.
    rows = np.flatnonzero(np.isin(query, largest))
    rows = rows[np.lexsort((cells.unit[rows], query[rows]))]
    own, unit, share = columns[rows].toarray(), cells.unit[rows], shares[rows]
    first = np.flatnonzero(np.diff(unit, prepend=-1))
    mean, total = np.add.reduceat(own * share[:, None], first), cells.totals[unit[first]]
    parts = np.empty((len(largest), columns.shape[1], size))
    by_row, by_unit = (np.searchsorted(query[which], largest) for which in (rows, rows[first]))
    for k in range(size):
        weight = share * cells.totals[unit] * own[:, k]
        parts[:, :, k] = np.add.reduceat(own * weight[:, None], by_row)
        parts[:, :, k] -= np.add.reduceat(mean * (total * mean[:, k])[:, None], by_unit)
    root = np.linalg.inv(np.linalg.cholesky(information + RIDGE * np.eye(size)))
    leverage, vectors = np.linalg.eigh(root @ parts[:, :size] @ root.T)
    leverage = np.clip(leverage, 1e-9, MOST_LEVERAGE)
    grown = (1 / np.sqrt(1 - leverage) - 1) / leverage
    along = np.einsum("qji,qj->qi", vectors, scores[largest, :size].toarray() @ root.T)
    moved = np.einsum("qij,qj->qi", vectors, grown * along) @ root
    return largest, np.einsum("qij,qj->qi", parts, moved)


def score_test(
    cells: ShareCells, null: Columns, extra: Columns, *, shrink: bool = False, flip: bool = False
) -> ScoreTest | None:
    """Test the columns `extra` beside `null`; None if queries are too few.

    With `shrink`, the half of the columns with less information is left out until queries are enough. (Random signs
    of the s_q change neither information nor h_q, so the choice does not bias the test.) With `flip`, signs are drawn
    where queries are enough in number, but effectively too few.
    """
    return known_scores_test(score_columns(cells, null, extra), shrink=shrink, flip=flip)


def known_scores_test(scores: Scores, *, shrink: bool, flip: bool) -> ScoreTest | None:
    """Test columns whose scores are known, see `score_test`."""
    left, own = scores.information, scores.apart
    kept = np.argsort(-np.diag(left), kind="stable")
    kept = kept[np.diag(left)[kept] > 1e-9 * scores.own[kept]]
    while len(kept):
        directions = np.zeros((len(left), len(kept)))
        directions[kept] = np.eye(len(kept))
        directions = directions @ _directions(left[np.ix_(kept, kept)])
        some = own @ directions
        directions = directions @ _directions(some.T @ some)
        some = own @ directions
        freedom, whole = some.shape[1], scores.whole @ directions
        inverse = np.linalg.inv(some.T @ some)
        leverage = np.einsum("qi,ij,qj->q", some, inverse, some, optimize=True)
        queries = freedom * (freedom + 2) / max(float(leverage @ leverage), 1e-300) - 2
        enough = bool(freedom) and queries >= ENOUGH * (freedom + 1)
        if enough or (freedom and flip and np.count_nonzero(leverage) >= ENOUGH * (freedom + 1)):
            statistic = float(whole @ inverse @ whole)
            if enough:
                p_value = max(_tail(statistic, freedom, count) for count in (queries, len(own)))
            else:
                root = np.linalg.cholesky(inverse)
                p_value = _share_above(np.sum(flipped(some @ root) ** 2, axis=1), statistic)
            total = scores.whole[kept]
            model = np.linalg.pinv(left[np.ix_(kept, kept)], rcond=1e-10, hermitian=True)
            shift, z = np.zeros((2, len(left)))
            shift[kept] = total / np.diag(left)[kept]
            z[kept] = total / np.maximum(np.linalg.norm(own[:, kept], axis=0), 1e-300)
            heterogeneity = float(total @ model @ total)
            return ScoreTest(statistic, heterogeneity, freedom, p_value, shift, z, scores.null, directions)
        kept = kept[: len(kept) // 2] if shrink else kept[:0]
    return None


def smallest_p(whole: Array, apart: Array, forms: Sequence[Array]) -> tuple[float, Array]:
    """Test several quadratic forms of the same scores at once: Uᵀ A U for every A.

    Under random signs of the queries' scores the smallest p-value of the forms has a law of its own. It is drawn, so
    that asking several questions costs no more than they differ.

    Args:
        whole: U, [columns].
        apart: scores of the queries, [queries, columns].
        forms: the matrices A, [columns, columns] each.

    Returns:
        The p-value of all, and those of each, [forms].
    """
    drawn = np.concatenate([whole[None], flipped(apart)])
    values = np.stack([np.einsum("fi,ij,fj->f", drawn, form, drawn, optimize=True) for form in forms])
    # The observed scores are one draw among the others, the first.
    rank = np.stack([_ranks(-own * (1 + 1e-9 * (np.arange(len(own)) == 0))) for own in values]) / values.shape[1]
    least = rank.min(axis=0)
    return float(np.mean(least <= least[0])), rank[:, 0]


def _ranks(values: Array) -> Array:
    """Return how many values are at most as large as each."""
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, side="right").astype(np.float64)


def _tail(statistic: float, freedom: int, queries: float) -> float:
    """Return Pr(Q · Beta(r/2, (Q − r)/2) > T), through F."""
    odds = statistic / max(queries - statistic, 1e-12)
    return float(fdtrc(freedom, queries - freedom, odds * (queries - freedom) / freedom))


def flipped(scores: Array) -> Array:
    """Return sums of the queries' scores with random signs, [FLIPS, columns]."""
    random = np.random.default_rng(0)
    size = np.sum(scores**2 / np.maximum(np.sum(scores**2, axis=0), 1e-300), axis=1)
    order = np.argsort(-size, kind="stable")
    first, rest = scores[order[:FLIPPED]], scores[order[FLIPPED:]]
    sums: Array = random.choice([-1.0, 1.0], (FLIPS, len(first))) @ first
    if len(rest):
        values, vectors = np.linalg.eigh(rest.T @ rest)
        sums += random.normal(size=(FLIPS, len(values))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return sums


def _share_above(drawn: Array, statistic: float) -> float:
    """Return the share of draws that are as large; the observed one counts as a draw."""
    return float((1 + np.count_nonzero(drawn >= statistic * (1 - 1e-9))) / (1 + len(drawn)))


def _directions(matrix: Array) -> Array:
    """Return a basis, [n, rank], of the directions a positive matrix is not flat in, its diagonal made 1 first."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    values, vectors = np.linalg.eigh(matrix * scale * scale[:, None])
    basis: Array = (scale[:, None] * vectors)[:, values > 1e-8]
    return basis


def _scaled(matrix: Columns, weight: Array) -> Columns:
    """Return diag(weight) · matrix."""
    data = matrix.data * np.repeat(weight, np.diff(matrix.indptr))
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _summed(matrix: Columns, group: Integers) -> Columns:
    """Return the sums of the rows of each group."""
    _, code = np.unique(group, return_inverse=True)
    return csr_array(csr_array((np.ones(len(code)), (code, np.arange(len(code))))) @ matrix)


def beside(left: Columns, right: Columns) -> Columns:
    """Return the columns of both, side by side."""
    return csr_array(hstack([left, right], format="csr"))
