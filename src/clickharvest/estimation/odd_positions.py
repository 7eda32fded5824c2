"""Odd positions: most follow a power law, more or less, and a single one may not at all.

An advertisement on top, or a box in the middle of a page, is passed over by everybody. Normal deviations δ_k would take
it back to the law, and if it is the anchor, take all others with it. So deviations have Cauchy's heavy tails: δ_k is
normal with variance τ² / w_k, w_k ~ Gamma(½, ½). Of every position the expected w_k is taken, given its own clicks and
all other positions, and 1 at most: no position is held more tightly than a normal one.

Where clicks are few nobody knows whether a position is odd. Weights are then between 0 and 1, and the deviation is
shrunk more than it would be with heavy tails. With d_k the difference of these two means, (1 − w_k) d_k² is in doubt,
and added to the variance. (Without the factor, noise of all other positions would widen their intervals, too.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LOG_W = np.linspace(-14.0, 4.0, 145)
"""Logarithms of the weights that are looked at."""
ODD = 0.2
"""Weight of a position that is odd: a deviation of 3 τ that is known has it."""
TURNS, SETTLED = 100, 2e-3
"""Most turns in which weights follow from each other, and the change below which there are no more."""


def off_law(log_k: Array, weights: Array) -> Array:
    """Return τ² times the precision of log examination off a power law, [K, K].

    Deviations have the precision W / τ², W = diag(w), and the law's steepness and level are free. What is left is
    W − WX (XᵀWX)⁻¹ XᵀW with X = (1, log k).

    Args:
        log_k: log(k / anchor), [K].
        weights: w, [K].

    Example:
        It does not matter which of the positions is the anchor.

        >>> log_p, log_k = np.log([1.0, 0.3, 0.25, 0.1]), np.log([1, 2, 3, 4])
        >>> def surprise(anchor):
        ...     own = log_p - log_p[anchor]
        ...     return round(float(own @ off_law(log_k - log_k[anchor], np.array([1.0, 0.2, 1.0, 1.0])) @ own), 6)
        >>> surprise(0), surprise(3)
        (0.121362, 0.121362)
    """
    law = _law(log_k)
    weighted = law * weights[:, None]
    return np.asarray(np.diag(weights) - weighted @ np.linalg.solve(law.T @ weighted, weighted.T))


def weigh_positions(
    log_k: Array, weights: Array, variance: float, information: Array, linear: Array
) -> tuple[Array, Array]:
    """Return the weights of all positions and the variances in doubt, [K] each, the anchor's last.

    With f = (b, 0), what the clicks say of b has the log likelihood yᵀb − ½ bᵀHb. Given f, the law's steepness and
    level are free: deviations have the mean (I − X G XᵀW) f and the variance τ² X G Xᵀ, G = (XᵀWX)⁻¹.

    Args:
        log_k: log(k / anchor), the anchor's last, [K].
        weights: weights to start from, [K].
        variance: τ².
        information: H, [K − 1, K − 1].
        linear: y, [K − 1].
    """
    law = _law(log_k)
    for _ in range(TURNS):
        off = off_law(log_k, weights)
        covariance = np.zeros_like(off)
        covariance[:-1, :-1] = np.linalg.inv(information + off[:-1, :-1] / variance)
        apart = off / weights[:, None]
        mean = apart @ (covariance[:, :-1] @ linear)
        around = np.einsum("ij,jk,ik->i", apart, covariance, apart)
        free = np.einsum("ij,ji->i", law, np.linalg.solve(law.T @ (law * weights[:, None]), law.T))
        before = weights
        weights, heavy = with_heavy_tails(mean, around + variance * free, weights, variance)
        if np.abs(weights - before).max() < SETTLED:
            break
    return weights, (1 - weights) * (heavy - mean) ** 2


def with_heavy_tails(mean: Array, around: Array, weights: Array, variance: float) -> tuple[Array, Array]:
    """Return E[w] of every position, 1 at most, and E[δ] with heavy tails, [K] each.

    Its own clicks and all other positions say of a deviation what is left of its mean and variance once its own prior,
    N(0, τ² / w), is divided out.

    Args:
        mean: means of the deviations under that prior, [K].
        around: their variances, [K].
        weights: w of that prior, [K].
        variance: τ².

    Example:
        One position is six standard deviations off its law, known to .1, another is on it: one is let go.

        >>> around = np.full(2, 1 / (1 / 0.01 + 1))
        >>> weights, heavy = with_heavy_tails(np.array([6.0, 0.0]) * around / 0.01, around, np.ones(2), 1.0)
        >>> weights.round(2).tolist(), heavy.round(2).tolist()
        ([0.05, 1.0], [6.0, 0.0])
    """
    precision = np.maximum(1 / around - weights / variance, 1e-9)[:, None]
    centre = (mean / around)[:, None] / precision
    w = np.exp(LOG_W)
    apart = 1 / precision + variance / w
    log_p = (LOG_W - w - np.log(apart) - centre**2 / apart) / 2
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return np.minimum(1.0, p @ w), (p * centre * variance / w / apart).sum(axis=1)


def _law(log_k: Array) -> Array:
    return np.stack([np.ones_like(log_k), log_k], axis=1)
