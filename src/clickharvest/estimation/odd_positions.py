"""Odd positions: most follow a power law, more or less, and a single one may not at all.

An advertisement on top, or a box in the middle of a page, is passed over by everybody, or by all who have a phone.
Normal deviations δ_k would take it back to the law, and if it is the anchor, take all others with it. So deviations, of
positions and of what a feature does there, have Cauchy's heavy tails: δ_k is normal with variance τ² / w_k,
w_k ~ Gamma(½, ½). Of every position the expected w_k is taken, given its own clicks and all other positions, and 1 at
most: no position is held more tightly than a normal one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LOG_W = np.linspace(-14.0, 4.0, 145)
"""Logarithms of the weights that are looked at."""
ODD, ODD_IN = 0.2, 0.05
"""Weights of a position that is odd, and of one that is so with a feature, of which there are many more: deviations of
3 τ and 6 τ that are known have them."""
TURNS, SETTLED = 100, 2e-3
"""Most turns in which weights follow from each other, and the change below which there are no more."""


def off_law(log_k: Array, weights: Array, hold: Array | float = 0.0) -> Array:
    """Return τ² times the precision of log examination around a power law, [..., K, K].

    Deviations have the precision W / τ², W = diag(w), the law's level is free, and its steepness is so, too, or has the
    variance τ² / h. What is left is W − WXGXᵀW with X = (1, log k) and G = (XᵀWX + diag(0, h))⁻¹.

    Args:
        log_k: log(k / anchor), [K].
        weights: w, [..., K].
        hold: h, [...].

    Example:
        It does not matter which of the positions is the anchor.

        >>> log_p, log_k = np.log([1.0, 0.3, 0.25, 0.1]), np.log([1, 2, 3, 4])
        >>> def surprise(anchor):
        ...     own = log_p - log_p[anchor]
        ...     return round(float(own @ off_law(log_k - log_k[anchor], np.array([1.0, 0.2, 1.0, 1.0])) @ own), 6)
        >>> surprise(0), surprise(3)
        (0.121362, 0.121362)
    """
    x = _law(log_k)
    weighted = weights[..., None] * x
    return np.asarray(weights[..., None] * np.eye(len(x)) - weighted @ _steepness(x, weights, hold) @ weighted.mT)


def weigh_positions(
    log_k: Array, weights: Array, variance: Array, hold: Array, information: Array, linear: Array
) -> Array:
    """Return the weights of all positions, [curves, K], the anchor's last.

    With f = (b, 0), what the clicks say of b has the log likelihood yᵀb − ½ bᵀHb. Given f, the law's level is free:
    deviations have the mean (I − X G XᵀW) f and the variance τ² X G Xᵀ, see `off_law`.

    Args:
        log_k: log(k / anchor), the anchor's last, [K].
        weights: weights to start from, [curves, K].
        variance: τ², [curves].
        hold: τ² over the variance of the steepness, [curves].
        information: H of every curve, [curves, K − 1, K − 1].
        linear: y, [curves, K − 1].
    """
    x, tau2 = _law(log_k), variance[:, None]
    for _ in range(TURNS):
        off = off_law(log_k, weights, hold)
        covariance = np.zeros_like(off)
        covariance[:, :-1, :-1] = np.linalg.inv(information + off[:, :-1, :-1] / tau2[..., None])
        apart = off / weights[..., None]
        mean = np.squeeze(apart @ (covariance[..., :-1] @ linear[..., None]), -1)
        around = ((apart @ covariance) * apart).sum(axis=-1)
        free = ((x @ _steepness(x, weights, hold)) * x).sum(axis=-1)
        before, weights = weights, expected_weights(mean, around + tau2 * free, weights, tau2)
        if np.abs(weights - before).max() < SETTLED:
            break
    return weights


def expected_weights(mean: Array, around: Array, weights: Array, variance: Array) -> Array:
    """Return E[w] of every position, 1 at most, [..., K].

    Its own clicks and all other positions say of a deviation what is left of its mean and variance once its own prior,
    N(0, τ² / w), is divided out.

    Args:
        mean: means of the deviations under that prior, [..., K].
        around: their variances, [..., K].
        weights: w of that prior, [..., K].
        variance: τ², [..., K or 1].

    Example:
        One position is six standard deviations off its law, known to 1, another is on it: one is let go, but normal
        deviations have taken it back by three.

        >>> expected_weights(np.array([3.0, 0.0]), np.full(2, 0.5), np.ones(2), np.ones(1)).round(2).tolist()
        [0.07, 1.0]
    """
    precision = np.maximum(1 / around - weights / variance, 1e-9)[..., None]
    centre = (mean / around)[..., None] / precision
    apart = 1 / precision + variance[..., None] / np.exp(LOG_W)
    log_p = (LOG_W - np.exp(LOG_W) - np.log(apart) - centre**2 / apart) / 2
    p = np.exp(log_p - log_p.max(axis=-1, keepdims=True))
    expected: Array = np.minimum(1.0, p @ np.exp(LOG_W) / p.sum(axis=-1))
    return expected


def _law(log_k: Array) -> Array:
    """Return X, [K, 2]."""
    return np.stack([np.ones_like(log_k), log_k], axis=1)


def _steepness(x: Array, weights: Array, hold: Array | float) -> Array:
    """Return G of `off_law`, [..., 2, 2]."""
    held = np.multiply.outer(hold, np.diag([0.0, 1.0]))
    return np.asarray(np.linalg.inv(x.T @ (weights[..., None] * x) + held), dtype=np.float64)
