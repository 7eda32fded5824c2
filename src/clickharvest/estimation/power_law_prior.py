"""The prior of positions that are a list: a power law, more or less, and what each feature does to it.

    log p_k(x) = −(a + u·x) log(k / anchor) + δ_k − δ_anchor + (ω_k − ω_anchor)·x,
    δ_k ~ Cauchy(0, τ_δ),  u_i ~ N(0, τ_u²),  ω_ki ~ Cauchy(0, τ_ω):

a free steepness a, what each feature adds to it (u), and how single positions deviate from a power law (δ, ω). The
anchor deviates, too: the top of a page is often looked at more than any law says, and that must not move all others.

Most positions follow a power law, more or less, and a single one may not at all: an advertisement on top, or a box in
the middle of a page, is passed over by everybody, or by all who have a phone. Normal deviations would take it back to
the law, and if it is the anchor, take all others with it. Hence Cauchy's heavy tails: δ_k is normal with variance
τ² / w_k, w_k ~ Gamma(½, ½). Of every position the expected w_k is taken, given its own clicks and all other positions,
and 1 at most: no position is held more tightly than a normal one.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.normal_prior import FREE, NormalPrior, less_anchor

Array = NDArray[np.float64]

WEAK = (1.0, 1 / 3, 1 / 3)
"""Weights g of the weak priors of τ_δ, τ_u and τ_ω."""
LOG_W = np.linspace(-14.0, 4.0, 145)
"""Logarithms of the weights that are looked at."""
OFF_CURVE, OFF_CURVE_IN = 0.2, 0.05
"""Weights of a position that is off the curve, of all contexts and with a feature, of which there are many more: known
deviations of 3 τ and 6 τ have them."""
TURNS, SETTLED = 100, 2e-3
"""Most turns in which weights follow from each other, and the change below which there are no more."""


class PowerLawPrior(NormalPrior):
    """The normal prior of a power law and deviations from it, whose variances are divided by weights w.

    τ_δ, `position`, is how far single positions deviate from a power law; τ_u, `steepness`, how far a unit of a feature
    changes the steepness; τ_ω, `context`, how far it changes single positions beyond that.

    Args:
        log_distance: log(k / anchor) of the positions but the anchor, [K − 1].
        anchored: how many of the positions are above the anchor.
        width: parameters of a block.
        size: parameters of all blocks.

    Attributes:
        weights: w of b and of every feature at the positions, [width, K].
        rank: directions that Λ holds.
    """

    def __init__(self, log_distance: Array, anchored: int, width: int, size: int) -> None:
        several, varies = len(log_distance) > 1, width > 1
        law, deviations = log_distance[:, None], less_anchor(np.eye(len(log_distance) + 1), anchored)
        super().__init__(
            {"position": deviations}, {"steepness": law, "context": deviations}, FREE**-0.5 * law, width, size
        )
        self.learned = np.array([several, varies, several and varies])
        self.weak = np.where(self.learned, WEAK, 0.0)
        self.anchored, self.log_k = anchored, np.insert(log_distance, anchored, 0.0)
        self.weights = np.ones((width, len(self.log_k)))
        self.rank = self.others * width - 1

    def loosened(self, spread: Array, information: Array, linear: Array) -> PowerLawPrior:
        """Return the prior with the weights that follow from τ: of each curve, all others integrated out."""
        if not self.learned[0]:
            return self
        precision = self.matrix(spread)
        covariance = np.linalg.inv(information + precision)
        rows = np.stack([self._rows_of(feature) for feature in range(self.width)])
        narrow = np.linalg.inv(covariance[rows[:, :, None], rows[:, None]])
        seen = np.einsum("cij,cj->ci", narrow, (covariance @ linear)[rows])
        variance = np.where(np.arange(self.width) > 0, spread[2] ** 2, spread[0] ** 2)
        hold = np.where(np.arange(self.width) > 0, (spread[2] / spread[1]) ** 2, 0.0)
        known = narrow - precision[rows[:, :, None], rows[:, None]]
        other = copy(self)
        other.weights = weigh_positions(self.log_k, self.anchored, self.weights, variance, hold, known, seen)
        other._scale = self._scale.copy()
        other._scale[self._group == 0] = other.weights[0] ** -0.5
        other._scale[self._group == 2] = other.weights[1:].ravel() ** -0.5
        return other

    def off_curve(self) -> dict[int, list[int]]:
        """Return positions, by index, that the others do not predict: of all contexts (0) and by feature, from 1."""
        off = self.weights <= np.append(OFF_CURVE, np.full(self.width - 1, OFF_CURVE_IN))[:, None]
        return {int(row): np.flatnonzero(off[row]).tolist() for row in np.flatnonzero(off.any(axis=1))}


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
    return np.asarray(weights[..., None] * np.eye(len(x)) - weighted @ _law_covariance(x, weights, hold) @ weighted.mT)


def weigh_positions(
    log_k: Array, anchored: int, weights: Array, variance: Array, hold: Array, information: Array, linear: Array
) -> Array:
    """Return the weights of all positions, [curves, K].

    With f log examination, 0 at the anchor, what the clicks say of it has the log likelihood yᵀb − ½ bᵀHb. Given f, the
    law's level is free: deviations have the mean (I − X G XᵀW) f and the variance τ² X G Xᵀ, see `off_law`.

    Args:
        log_k: log(k / anchor), [K], 0 at the index `anchored`.
        anchored: index of the anchor.
        weights: weights to start from, [curves, K].
        variance: τ², [curves].
        hold: τ² over the variance of the steepness, [curves].
        information: H of every curve, [curves, K − 1, K − 1].
        linear: y, [curves, K − 1].
    """
    x, tau2, others = _law(log_k), variance[:, None], np.delete(np.arange(len(log_k)), anchored)
    among = np.ix_(np.arange(len(weights)), others, others)
    for _ in range(TURNS):
        off = off_law(log_k, weights, hold)
        covariance = np.zeros_like(off)
        covariance[among] = np.linalg.inv(information + off[among] / tau2[..., None])
        apart = off / weights[..., None]
        mean = np.squeeze(apart @ (covariance[..., others] @ linear[..., None]), -1)
        around = ((apart @ covariance) * apart).sum(axis=-1)
        free = ((x @ _law_covariance(x, weights, hold)) * x).sum(axis=-1)
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


def _law_covariance(x: Array, weights: Array, hold: Array | float) -> Array:
    """Return G of `off_law`, [..., 2, 2]."""
    prior = np.multiply.outer(hold, np.diag([0.0, 1.0]))
    return np.asarray(np.linalg.inv(x.T @ (weights[..., None] * x) + prior), dtype=np.float64)
