"""Uncertainty: how far the parameters would move with other queries.

Clicks of one query are dependent, so queries, not clicks, are resampled or summed over.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from clickharvest.estimation.loss import Fit
from clickharvest.estimation.threads import in_threads
from clickharvest.progress import Update, ignore, part_of

Array = NDArray[np.float64]

AT_ONCE = 32
"""Replicates that are refitted side by side, and by one thread."""
EXACT, SKETCHED = 400, 100
"""Directions of a covariance that points show one by one, and as many more into which the others are mixed, if any."""
ROUGH = 0.01
"""How far from its minimum a replicate may end, in standard errors of independent clicks."""
NOTHING = 1e-12
"""Share of the largest variance below which a direction carries nothing."""


def bootstrap(
    fit: Fit, flat: Array, penalty: float, *, replicates: int = 1_000, seed: int = 0, update: Update = ignore
) -> Array:
    """Refit with Poisson(1) weights on the queries, starting from the fit, and return the parameters [replicates, n].

    The refits run in coordinates in which the full-sample loss is round, θ = θ̂ + L z with L Lᵀ the inverse of the
    expected information, and begin where a step along the queries' scores leads, so that a few steps are enough. They
    end within about a hundredth of a standard error of their minimum. Replicates whose loss is not finite are left out.

    Args:
        fit: the curve and objective.
        flat: the fitted parameters θ̂, [n].
        penalty: the penalty of the fit.
        replicates: number of replicates.
        seed: seed of the weights.
        update: called with the share of replicates done.
    """
    random = np.random.default_rng(seed)
    size, workers = min(replicates, AT_ONCE), fit.workers(sharing=True)
    root = fit.root(flat, penalty, rough=False)
    scores = fit.scores(flat)
    # Of all queries the gradient is 0: what the weights change is known without looking at the clicks again.
    slopes = scores @ root / fit.scale

    def draw() -> Iterator[tuple[float, Array]]:
        for begin in range(0, replicates, size):
            count = min(size, replicates - begin)
            yield begin / replicates, random.poisson(1.0, (count, fit.n_clusters)).astype(np.float64)

    def refit(drawn: tuple[float, Array]) -> Array:
        begin, weights = drawn
        tell = ignore if workers > 1 else part_of(update, begin, begin + len(weights) / replicates)
        return _refit(fit, flat, (weights - 1.0) @ slopes, weights, penalty, root, tell)

    parts = []
    for part in in_threads(refit, draw(), workers):
        parts.append(part)
        update(min(1.0, len(parts) * size / replicates))
    return np.concatenate(parts)


def _refit(fit: Fit, flat: Array, first: Array, weights: Array, penalty: float, root: Array, update: Update) -> Array:
    """Return the minimum of each replicate, [B, n], those that are finite; `first` are their first steps z, [B, n].

    Steps by the curvature of all queries come first, each by a gradient alone. Replicates that do not get nearer by a
    half each time are left to `Fit.solve`.
    """
    start, tolerance = flat + first @ root.T, ROUGH / np.sqrt(fit.scale)
    theta, left, before = start.copy(), np.arange(len(start)), np.abs(first).max(axis=1, initial=0.0)
    done = np.zeros(len(start), dtype=np.bool_)
    while len(left):
        grad = fit.grad(theta[left], weights[left], np.full(len(left), penalty)) @ root
        far = np.abs(grad).max(axis=1, initial=0.0)
        nearer = far < before[left] / 2
        # Steps shrink at a steady rate: one that ends near enough by that need not be looked at again.
        done[left] = (far < tolerance) | (nearer & (far**2 < before[left] * tolerance / 2))
        before[left] = far
        theta[left[nearer]] -= grad[nearer] @ root.T
        left = left[nearer & ~done[left]]
        update(float(done.mean()))
    if (rest := np.flatnonzero(~done)).size:
        strength, tell = np.full(len(rest), penalty), part_of(update, float(done.mean()), 1)
        solved = fit.solve(start[rest], weights[rest], strength, root=root, tolerance=tolerance, update=tell)
        theta[rest] = np.where(np.isfinite(solved.value)[:, None], solved.params, np.nan)
    return theta[np.isfinite(theta).all(axis=1)]


def sandwich(fit: Fit, flat: Array, penalty: float) -> Array:
    """Return the query-clustered covariance of the parameters, H⁻¹ (Σ_q s_q s_qᵀ) H⁻¹, [n, n].

    H is the expected information of the penalised log likelihood at the fit, which has no negative curvature where
    that of a network may have; s_q is the gradient of query q's log likelihood. With Q queries the sum is scaled by
    Q / (Q − 1).
    """
    bread = inverse_root(fit.information(flat) + penalty * np.diag(fit.ridge))
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
    """Return L with L Lᵀ = H⁻¹ on the directions H curves along; flat directions are left at rest."""
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    curved = values > 1e-9 * max(values.max(initial=0.0), 1e-300)
    return np.where(curved, vectors / np.sqrt(np.where(curved, values, 1.0)), 0.0)
