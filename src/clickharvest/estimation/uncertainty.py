"""Uncertainty: how far the parameters would move with other queries.

Clicks of one query are dependent, so queries, not clicks, are resampled or summed over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from clickharvest.estimation.loss import Fit
from clickharvest.progress import Update, ignore, part_of

Array = NDArray[np.float64]

EXACT, SKETCHED = 400, 100
"""Directions of a covariance that points show one by one, and as many more into which the others are mixed, if any."""
NOTHING = 1e-12
"""Share of the largest variance below which a direction carries nothing."""


def bootstrap(
    fit: Fit, flat: Array, penalty: float, *, replicates: int = 1_000, seed: int = 0, update: Update = ignore
) -> Array:
    """Refit with Poisson(1) weights on the queries, starting from the fit, and return the parameters [replicates, n].

    The refits run as one batch in coordinates in which the full-sample loss is round, θ = θ̂ + L z with L Lᵀ the inverse
    Hessian, so that a handful of steps is enough. Replicates whose loss is not finite are left out.

    Args:
        fit: the curve and objective.
        flat: the fitted parameters θ̂, [n].
        penalty: the penalty of the fit.
        replicates: number of replicates.
        seed: seed of the weights.
        update: called with the share of replicates done.
    """
    random = np.random.default_rng(seed)
    root = inverse_root(fit.hessian(flat, penalty)) * np.sqrt(fit.scale)
    parts = []
    size = max(1, min(replicates, fit.part))
    for begin in range(0, replicates, size):
        count = min(size, replicates - begin)
        weights = random.poisson(1.0, (count, fit.n_clusters)).astype(np.float64)
        part = part_of(update, begin / replicates, (begin + count) / replicates)
        solution = fit.solve(np.tile(flat, (count, 1)), weights, np.full(count, penalty), root=root, update=part)
        parts.append(solution.params[np.isfinite(solution.value)])
    return np.concatenate(parts)


def sandwich(fit: Fit, flat: Array, penalty: float) -> Array:
    """Return the query-clustered covariance of the parameters, H⁻¹ (Σ_q s_q s_qᵀ) H⁻¹, [n, n].

    H is the Hessian of the penalised negative log likelihood at the fit, s_q the gradient of query q's log likelihood.
    With Q queries the sum is scaled by Q / (Q − 1).
    """
    bread = inverse_root(fit.hessian(flat, penalty))
    scores = fit.scores(flat)
    queries = max(len(scores), 2)
    half = bread @ (bread.T @ scores.T)
    return half @ half.T * queries / (queries - 1)


def normal_draws(flat: Array, covariance: Array, *, replicates: int = 1_000, seed: int = 0) -> Array:
    """Return draws of N(flat, covariance), [replicates, n], centred and in antithetic pairs."""
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    noise = random.normal(size=((replicates + 1) // 2, len(flat)))
    draws: Array = (flat + np.concatenate([noise, -noise]) @ root.T)[:replicates]
    return draws


def sigma_points(flat: Array, covariance: Array) -> Array:
    """Return points whose covariance (divisor: points − 1) is the given one, [2 r, n]: flat ± c R_j, V = R Rᵀ.

    R has r columns, one for every direction that carries anything, and c² = (2 r − 1) / 2. For predictions linear in
    the parameters the standard deviation over the points is exact: no draws, no noise of simulation. The columns are
    mixed by an orthogonal matrix, so that all points are of one size and survive rounding. Beyond 500 directions the
    least ones are summed with random signs into 100: their variances are right on average.

    Example:
        >>> points = sigma_points(np.zeros(2), np.array([[4.0, 1.0], [1.0, 1.0]]))
        >>> len(points), np.cov(points.T).round(6).tolist()
        (4, [[4.0, 1.0], [1.0, 1.0]])
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > NOTHING * values.max(initial=0.0)
    root = (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
    if (beyond := root.shape[1] - EXACT) > SKETCHED:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(beyond, SKETCHED))
        root = np.concatenate([root[:, :EXACT], root[:, EXACT:] @ signs / np.sqrt(SKETCHED)], axis=1)
    if not root.shape[1]:
        return np.tile(flat, (2, 1))
    far = np.sqrt(root.shape[1] - 0.5) * dct(root, axis=1, norm="ortho").T
    points: Array = np.concatenate([flat + far, flat - far])
    return points


def inverse_root(hessian: Array) -> Array:
    """Return L with L Lᵀ = H⁻¹ on the directions H curves along; flat directions are left at rest.

    Example:
        >>> inverse_root(np.diag([4.0, 0.0])).round(3).tolist()
        [[0.0, 0.5], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    curved = values > 1e-9 * max(values.max(initial=0.0), 1e-300)
    return np.where(curved, vectors / np.sqrt(np.where(curved, values, 1.0)), 0.0)
