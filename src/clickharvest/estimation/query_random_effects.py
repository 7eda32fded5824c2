"""Query random effects: how far a fit would move with other queries of the same kind, and its covariance from that.

Users of one query read alike, so its clicks depend on each other. Let every query deviate from the curve at every
position by an effect of variance σ², and in steepness, all positions together by −s log k, s of variance ς²; and let
clicks be overdispersed by a factor φ ≥ 1. Then the score of the clicks has the variance

    M = φ H + σ² Σ_{g,k} Y_{gk} Y_{gk}ᵀ / (1 − h_{gk}) + ς² Σ_g Y_g Y_gᵀ / (1 − h_g),
    Y_{gk} = Σ_{u of g} N_u π_{u,k} (z_{u,k} − z̄_u),   Y_g = Σ_k log k Y_{gk},

Y_{gk} being what a deviation of query g at position k adds to the score. With J = H + Λ, Λ the precision of the prior,

    V = J⁻¹ (M + Λ) J⁻¹.

V is never less than J⁻¹, the model's own: φ is at least 1, σ² and ς² at least 0, and none is read off a residual that
the fit has made small. The usual sum over the queries' scores is: with one query at a position it is 0. Λ adds what
shrinkage leaves unknown. The leverage h_{gk} = Y_{gk}ᵀ J⁻¹ Y_{gk} / q_{gk} is the share of what the fit knows at (g, k)
that comes from the query itself, h_g likewise; dividing by 1 − h makes a query that dominates count for more.

All three come from residuals r = C − N π, whose variance is v = N π (1 − π) where nothing is overdispersed.

- φ: a query's effect is common to its units, so that how they differ at one position is free of it. With ρ_{gk} = Σ r
  over the n cells of query g at position k, Σ r²/v − ρ²/Σv has the expectation φ (n − 1).
- σ² and ς²: with Q_g = Σ_{u of g} N_u (diag π_u − π_u π_uᵀ) and any contrast a, aᵀρ_g has, about, the variance
  (1 − h) (φ q + (1 − h) (σ² |Q_g a|² + ς² (aᵀ Q_g l)²)), q = aᵀ Q_g a and l = log k. Taken for a single position each
  (a the unit vector, q_{gk}) and for steepness (a = l, q_g): weighted least squares, weights and variances in turns.
  Below 0 there is no variance, so that chance alone makes ς² positive half of the time. It counts for t² / (1 + t²) of
  itself, t its size in standard errors, and what that leaves counts as σ²; without that, 8 queries cover 98.4 instead
  of 97.5 % (seen by simulation).

Users, pages and sessions share units with others: there φ is 1, since how a unit's cells differ tells of users and not
of clicks. All is summed query by query, so that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls
from scipy.sparse import csr_array, diags_array

from clickharvest.estimation.cells import Cells, Shares
from clickharvest.estimation.local_linear_fit import LinearisedCells, LocalLinearFit
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.pooling import Pooled

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_LEVERAGE = 0.9
"""No query counts for more than ten times itself."""
LEAST = 1e-8
"""Cells, and queries at a position, that are less informative than this tell nothing."""
FEWEST = 10
"""Degrees of freedom below which nothing tells overdispersion."""
STEPS, WHOLE_STEPS, SETTLED = 60, 10, 1e-4
"""Steps of weighted least squares at most, how many of them are taken whole, and what they end at."""
ALIKE = 1e-9
"""Share of the largest eigenvalue below which what both variances explain differs by rounding alone."""


@dataclass(frozen=True, eq=False)
class Clustered:
    """The covariance of a fit, and what it rests on.

    Attributes:
        covariance: V, [size, size].
        overdispersion: φ.
        variance: σ², of the effects of single queries at single positions.
        steepness: ς², of the steepness of queries.
        apart: what they add to M, [size, size].
        effective_queries: of every position (Σ_g q_{gk})² / Σ_g q_{gk}²: how many queries of equal weight would tell as
            much, [K].
        design_effect: how many times the variance of independent clicks a typical entry of the score has.
    """

    covariance: Array
    overdispersion: float
    variance: float
    steepness: float
    apart: Array
    effective_queries: Array
    design_effect: float

    @property
    def about(self) -> dict[str, Any]:
        """What a model file tells of it."""
        return {
            "overdispersion": self.overdispersion,
            "query_variance": self.variance,
            "query_steepness": self.steepness,
            "effective_queries": self.effective_queries.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Contrasts aᵀρ of queries, all [rows]: ρ's, q = aᵀQa, |Qa|², aᵀQl, 1 − h, and of single positions which."""

    residual: Array
    own: Array
    squares: Array
    along: Array
    kept: Array
    position: Integers | None = None


def clustered_covariance(fit: Pooled | LocalLinearFit) -> Clustered:
    """Return the covariance of the parameters of a fit at its maximum, by query."""
    shares = fit.shares
    bread = cho_factor(fit.information + fit.precision, check_finite=False)
    inverse = cho_solve(bread, np.eye(shares.size), check_finite=False)
    effects, contrasts = effects_of_queries(fit, inverse)
    overdispersion = 1.0 if shares.shared else _overdispersion(shares, fit.at)
    variance, steepness = _variances(contrasts, overdispersion)
    independent = overdispersion * fit.information
    apart = variance * effects[0] + steepness * effects[1]
    score = independent + apart
    informed = np.diag(fit.information) > LEAST
    ratios = np.diag(score)[informed] / np.diag(fit.information)[informed]
    single = [part for part in contrasts if part.position is not None]
    own, position = (np.concatenate([getattr(part, name) for part in single]) for name in ("own", "position"))
    first, second = (np.bincount(position, own**power, shares.n_positions) for power in (1, 2))
    return Clustered(
        covariance=inverse @ (score + fit.left) @ inverse,
        overdispersion=overdispersion,
        variance=variance,
        steepness=steepness,
        apart=apart,
        effective_queries=np.divide(first**2, second, out=np.zeros_like(first), where=second > 0),
        design_effect=float(np.median(ratios)) if informed.any() else 1.0,
    )


def effects_of_queries(fit: Pooled | LocalLinearFit, inverse: Array) -> tuple[Array, list[Contrasts]]:
    """Return what effects of variance 1 add to the score's variance, [2, size, size], and the contrasts they rest on.

    Args:
        fit: the fit.
        inverse: J⁻¹, [size, size].
    """
    shares, effects, contrasts = fit.shares, np.zeros((2, fit.shares.size, fit.shares.size)), []
    for cells in shares.some_queries(shares.size):
        for kind, (y, part) in enumerate(contrasts_of_queries(shares, fit.at, cells)):
            leverage = np.einsum("ri,ri->r", y @ inverse, y) / np.maximum(part.own, LEAST)
            leverage = np.clip(leverage, 0.0, MOST_LEVERAGE)
            y /= np.sqrt(1 - leverage)[:, None]
            effects[kind] += y.T @ y
            contrasts.append(replace(part, kept=1 - leverage))
    return effects, contrasts


def contrasts_of_queries(
    shares: MultinomialLogit | LinearisedCells, at: Shares, cells: Integers
) -> tuple[tuple[Array, Contrasts], tuple[Array, Contrasts]]:
    """Return Y of some queries at single positions, [rows, size], and of their steepness, each with its contrasts."""
    code = shares.cluster[cells] * shares.n_positions + shares.position[cells]
    codes, row = np.unique(code, return_inverse=True)
    _, unit = np.unique(shares.unit[cells], return_inverse=True)
    share = at.share[cells]
    expected = shares.clicks_of_unit[cells] * share
    n_rows, n_units, column = len(codes), int(unit.max()) + 1, np.arange(len(cells))
    design = shares.design(cells)
    mean = csr_array((share, (unit, column)), shape=(n_units, len(cells))) @ design
    by_cell = csr_array((expected, (row, column)), shape=(n_rows, len(cells)))
    by_unit = csr_array((expected, (row, unit)), shape=(n_rows, n_units))
    y = by_cell @ design - by_unit @ mean
    y = y if isinstance(y, np.ndarray) else y.toarray()
    shares_of_rows = csr_array((share, (row, unit)), shape=(n_rows, n_units))
    total = np.bincount(row, expected, n_rows)
    curvature = csr_array(diags_array(total) - by_unit @ shares_of_rows.T)
    squares = np.asarray(curvature.power(2).sum(axis=1), dtype=np.float64).ravel()
    residual = np.bincount(row, at.residual[cells], n_rows).astype(np.float64)
    position = codes % shares.n_positions
    distance = shares.log_position[position]
    along = curvature @ distance
    _, query = np.unique(codes // shares.n_positions, return_inverse=True)
    of_query = csr_array((distance, (query, np.arange(n_rows))))
    steep, own = of_query @ y, of_query @ along
    single = Contrasts(residual, curvature.diagonal(), squares, along, np.ones(n_rows), position)
    together = Contrasts(
        of_query @ residual, own, np.bincount(query, along**2).astype(np.float64), own, np.ones_like(own)
    )
    return (y, single), (steep, together)


def _overdispersion(shares: Cells, at: Shares) -> float:
    """Return φ ≥ 1 from how the units of a query differ at one position; cells that expect little count for little."""
    _, row = np.unique(shares.cluster * shares.n_positions + shares.position, return_inverse=True)
    variance = shares.clicks_of_unit * at.share * (1 - at.share)
    use = variance > LEAST
    row, variance, residual = row[use], variance[use], at.residual[use]
    count, total, sums, squares = (np.bincount(row, c) for c in (None, variance, residual, residual**2 / variance))
    count, total, sums, squares = (column[count > 1] for column in (count, total, sums, squares))
    weight = np.minimum(total / count, 1.0)
    freedom = weight @ (count - 1)
    return 1.0 if freedom < FEWEST else max(float(weight @ (squares - sums**2 / total) / freedom), 1.0)


def settle(weigh: Callable[[Array], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the variances that the last step of weighted least squares weighed by, and those that it gave, [2] each.

    Few queries may send whole steps to and fro between two answers: after `WHOLE_STEPS` they are halved.

    Args:
        weigh: rows [n, 2] and what they are to explain [n], weighed by variances.
    """
    variances: Array = np.zeros(2)
    before = variances
    for step in range(STEPS):
        before, variances = variances, nnls(*weigh(variances))[0].astype(np.float64)
        if np.abs(variances - before).max() < SETTLED:
            break
        if step >= WHOLE_STEPS:
            variances = (variances + before) / 2
    return before, variances


def _variances(contrasts: Sequence[Contrasts], overdispersion: float) -> tuple[float, float]:
    """Return σ² and ς², both ≥ 0.

    By weighted least squares of (aᵀρ)² / (q (1 − h)) − φ on (1 − h) (|Qa|², (aᵀQl)²) / q.
    """
    residual, own, squares, along, kept = (
        np.concatenate([getattr(part, field.name) for part in contrasts]) for field in fields(Contrasts)[:5]
    )
    use = own > LEAST
    if not use.any():
        return 0.0, 0.0
    residual, own, squares, along, kept = (part[use] for part in (residual, own, squares, along, kept))
    excess = residual**2 / (own * kept) - overdispersion
    slopes = np.stack([squares, along**2], axis=1) * (kept / own)[:, None]

    def weigh(variances: Array) -> tuple[Array, Array]:
        root = np.sqrt(kept) / (overdispersion + slopes @ variances / kept)
        return slopes * root[:, None], excess * root

    before, variances = settle(weigh)
    weighted, left = weigh(before)
    # Squares of normal residuals have the variance 2 in these units. With two positions both variances do the same.
    noise = 2 * np.linalg.pinv(weighted.T @ weighted, rcond=ALIKE, hermitian=True)[1, 1]
    steepness = variances[1] ** 3 / (variances[1] ** 2 + noise) if variances[1] else 0.0
    left = left - weighted[:, 1] * steepness
    variance = max(float(weighted[:, 0] @ left / (weighted[:, 0] @ weighted[:, 0])), 0.0)
    return variance, float(steepness)
