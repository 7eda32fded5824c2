"""The prior of positions that are a list: a power law, more or less, and what each feature does to it.

    log p_k(x) = −(a + u·x) log(k / anchor) + δ_k − δ_anchor + (ω_k − ω_anchor)·x,
    δ_k ~ Cauchy(0, τ_δ),  u_i ~ N(0, τ_u²),  ω_ki ~ Cauchy(0, τ_ω):

a steepness a, what each feature adds to it (u), and how single positions deviate from a power law (δ, ω). The anchor
deviates, too: the top of a page is often looked at more than any law says, and that must not move all others. A single
position may not follow the law at all, or not on phones: Cauchy's tails are those of `odd_positions`, normal with
weights w. In the parameters of the curve, b_k = δ_k − δ_anchor − a log(k / anchor) and W_k = ω_k − ω_anchor −
u log(k / anchor), this is a normal prior around 0 with a precision matrix Λ(τ, w); a is free, so that one direction of
b has no precision.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from clickharvest.estimation.normal_prior import FREE, SHARED
from clickharvest.estimation.odd_positions import off_law, weigh_positions

Array = NDArray[np.float64]

WEAK = (1.0, 1 / 3, 1 / 3)
"""Weights g of the weak priors of τ_δ, τ_u and τ_ω."""


class PowerLawPrior:
    """The prior's precision Λ for the blocks of `MultinomialLogit`: `off_law` over τ², of b and of every feature of W.

    Args:
        log_distance: log(k / anchor) of the positions but the anchor, [K − 1].
        width: parameters of a block.
        size: parameters of all blocks.

    Attributes:
        names: what each τ is of: τ_δ, how far single positions deviate from a power law; τ_u, how far a unit of a
            feature changes the steepness; τ_ω, how far it changes single positions beyond that.
        of_positions: which of them are of b, not of W.
        learned: whether there is anything to learn each from.
        weak: weight of the weak prior of each.
        weights: w of b and of every feature at the positions, the anchor's last, [width, K].
        rank: directions that Λ holds.
    """

    names = ("position", "steepness", "context")
    of_positions = np.array([True, False, False])

    def __init__(self, log_distance: Array, width: int, size: int) -> None:
        self.others, self.width, self.size = len(log_distance), width, size
        self.log_k = np.append(log_distance, 0.0)
        self.weights = np.ones((self.width, self.others + 1))
        self.rank = self.others * self.width - 1
        several, varies = self.others > 1, self.width > 1
        self.learned = np.array([several, varies, several and varies])
        self.weak = np.where(self.learned, WEAK, 0.0)

    def loosened(self, spread: Array, information: Array, linear: Array) -> PowerLawPrior:
        """Return the prior with the weights that follow from τ: of each curve, all others integrated out.

        Args:
            spread: τ, [3].
            information: H, [size, size].
            linear: y = H θ̂ + score(θ̂), [size].
        """
        if not self.learned[0]:
            return self
        covariance = np.asarray(np.linalg.inv(information + self.matrix(spread)), dtype=np.float64)
        narrow = np.linalg.inv(self._own(covariance))
        theta = (covariance @ linear)[: self.others * self.width].reshape(self.others, self.width).T
        other = copy(self)
        other.weights = weigh_positions(
            self.log_k,
            self.weights,
            *self._scales(spread),
            narrow - self._held(spread),
            np.einsum("cij,cj->ci", narrow, theta),
        )
        return other

    def matrix(self, spread: Array) -> Array:
        """Return Λ, [size, size]."""
        rest = np.full(self.size, SHARED)
        rest[: self.others * self.width] = FREE
        return self._whole(self._held(spread), rest)

    def _scales(self, spread: Array) -> tuple[Array, Array]:
        """Return τ² and the hold of `off_law` of b and of every feature, [width] each."""
        position, steepness, context = spread**2
        of_feature = np.arange(self.width) > 0
        return np.where(of_feature, context, position), np.where(of_feature, context / steepness, 0.0)

    def _held(self, spread: Array) -> Array:
        """Return Λ of b and of every feature, [width, K − 1, K − 1]."""
        variance, hold = self._scales(spread)
        return off_law(self.log_k, self.weights, hold)[:, :-1, :-1] / variance[:, None, None]

    def _own(self, matrix: Array) -> Array:
        """Return a view on the parts of a matrix [size, size] of b and of every feature, [width, K − 1, K − 1]."""
        n = self.others * self.width
        found: Array = np.einsum("icjc->cij", matrix[:n, :n].reshape(self.others, self.width, self.others, self.width))
        return found

    def _whole(self, own: Array, rest: Array) -> Array:
        """Return the matrix [size, size] of these parts [width, K − 1, K − 1], and a diagonal [size]."""
        whole = np.diag(rest)
        self._own(whole)[:] += own
        return whole

    def evidence(self, log_spread: Array, information: Array, linear: Array) -> tuple[float, Array]:
        """Return the log evidence of log τ up to a constant, and its gradient, [3].

        With S = (H + Λ)⁻¹ + θθᵀ, its slope along log τ_δ, and along log τ_u and log τ_ω together, is tr ΛS less Λ's
        rank, of b and of W; along log τ_u alone it is τ_u² LᵀΛ(S − Λ⁻¹)ΛL, L = log(k / anchor), for every feature.

        Args:
            log_spread: log τ, [3].
            information: H, [size, size].
            linear: y = H θ̂ + score(θ̂), [size].
        """
        spread = np.exp(log_spread)
        held = self._held(spread)
        factor = cho_factor(information + self.matrix(spread), lower=True, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(linear)), check_finite=False)
        theta = inverse @ linear
        log_det = np.linalg.slogdet(held[1:])[1].sum() - 2 * (self.others - 1) * log_spread[0]
        value = linear @ theta / 2 + log_det / 2 - np.log(np.diag(factor[0])).sum()
        around = self._own(inverse + np.outer(theta, theta))
        together = np.einsum("cij,cij->c", held, around) - self.others
        along = held[1:] @ self.log_k[:-1]
        left = np.einsum("ci,cij,cj->", along, around[1:], along) - (along @ self.log_k[:-1]).sum()
        steepness = spread[1] ** 2 * left
        gradient = np.array([together[0] + 1, steepness, together[1:].sum() - steepness])
        weak = self.weak @ (log_spread - spread)
        return float(value + weak), gradient + self.weak * (1 - spread)
