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
signs themselves: the share of `FLIPS` draws of signs with a T as large, exact where scores are symmetric. Beside T,
Q = Uᵀ I⁻¹ U with the information I instead of V says how large scores are for independent clicks. Only the null model
is fitted, so nothing runs off to infinity. Needs NumPy and SciPy, not JAX.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class ScoreTest:
    """T, Q and the law of T; for each tested column alone the one-step estimate U / I and z = U / √V; the null fit."""

    statistic: float
    heterogeneity: float
    freedom: int
    p_value: float
    shift: Array
    z: Array
    null: SharesFit


def score_test(
    cells: ShareCells, null: Columns, extra: Columns, *, shrink: bool = False, flip: bool = False
) -> ScoreTest | None:
    """Test the columns `extra` beside `null`; None if queries are too few.

    With `shrink`, the half of the columns with less information is left out until queries are enough. (Random signs
    of the s_q change neither information nor h_q, so the choice does not bias the test.) With `flip`, signs are drawn
    where queries are enough in number, but effectively too few.
    """
    fit = fit_shares(cells, null)
    columns, size = beside(null, extra), null.shape[1]
    information = cells.information(columns, fit.shares)
    taken = information[size:, :size] @ np.linalg.pinv(information[:size, :size], rcond=1e-10, hermitian=True)
    left = information[size:, size:] - taken @ information[:size, size:]
    scores = _summed(_scaled(columns, cells.residual(fit.shares)), cells.cluster)
    own: Array = scores @ np.vstack([-taken.T, np.eye(len(left))])
    kept = np.argsort(-np.diag(left), kind="stable")
    kept = kept[np.diag(left)[kept] > 1e-9 * np.diag(information)[size:][kept]]
    while len(kept):
        some = own[:, kept] @ _directions(left[np.ix_(kept, kept)])
        some = some @ _directions(some.T @ some)
        freedom, whole = some.shape[1], some.sum(axis=0)
        inverse = np.linalg.inv(some.T @ some)
        leverage = np.einsum("qi,ij,qj->q", some, inverse, some, optimize=True)
        queries = freedom * (freedom + 2) / max(float(leverage @ leverage), 1e-300) - 2
        enough = bool(freedom) and queries >= ENOUGH * (freedom + 1)
        if enough or (freedom and flip and np.count_nonzero(leverage) >= ENOUGH * (freedom + 1)):
            statistic = float(whole @ inverse @ whole)
            if enough:
                p_value = max(_tail(statistic, freedom, count) for count in (queries, scores.shape[0]))
            else:
                p_value = _flipped(statistic, some @ np.linalg.cholesky(inverse), leverage)
            total = own[:, kept].sum(axis=0)
            model = np.linalg.pinv(left[np.ix_(kept, kept)], rcond=1e-10, hermitian=True)
            shift, z = np.zeros((2, len(left)))
            shift[kept] = own[:, kept].sum(axis=0) / np.diag(left)[kept]
            z[kept] = own[:, kept].sum(axis=0) / np.maximum(np.linalg.norm(own[:, kept], axis=0), 1e-300)
            return ScoreTest(statistic, float(total @ model @ total), freedom, p_value, shift, z, fit)
        kept = kept[: len(kept) // 2] if shrink else kept[:0]
    return None


def _tail(statistic: float, freedom: int, queries: float) -> float:
    """Return Pr(Q · Beta(r/2, (Q − r)/2) > T), through F."""
    odds = statistic / max(queries - statistic, 1e-12)
    return float(fdtrc(freedom, queries - freedom, odds * (queries - freedom) / freedom))


def _flipped(statistic: float, scores: Array, leverage: Array) -> float:
    """Return the share of random signs of the scores V⁻½ s_q under which T is as large; the observed ones count."""
    random = np.random.default_rng(0)
    order = np.argsort(-leverage, kind="stable")
    first, rest = scores[order[:FLIPPED]], scores[order[FLIPPED:]]
    sums = random.choice([-1.0, 1.0], (FLIPS, len(first))) @ first
    if len(rest):
        sums += random.multivariate_normal(np.zeros(rest.shape[1]), rest.T @ rest, FLIPS, method="cholesky")
    larger = np.count_nonzero(np.sum(sums**2, axis=1) >= statistic * (1 - 1e-9))
    return float((1 + larger) / (1 + FLIPS))


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
