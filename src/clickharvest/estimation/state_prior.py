"""The prior of browsing states: rare states lean on their rank and on the distance to the last click.

With k the rank, j the last click above (0 for none) and d = k − j, the log examination of a state is

    no click above   −a log k + ρ_k − ρ_anchor
    last click at j  −a log k + ρ_k − ρ_anchor + c − s log k − t log d + β_k + δ_d + ε_{kj}

ρ_k ~ N(0, τ_ρ²) how rank k deviates from a power law; c, s and t how a click above changes looking on, by rank and by
distance, with weak priors; β_k ~ N(0, τ_β²), δ_d ~ N(0, τ_δ²) and ε_{kj} ~ N(0, τ_ε²) how single ranks below a click,
single distances, and single states deviate from that. Users who begin anew below a click look by distance alone,
whatever the rank: β_k then takes back ρ_k. Each feature of the context adds to the same, with effects on a (τ_u), on c
(τ_v) and on single states (τ_ω).
States are parameters themselves, b = all of the above, with the normal prior that follows, of covariance Σ(τ); a
is free. Without a click above this is `law_prior`, and the model the position-based one.

The variances maximise the evidence as in `pooling`, here with Λ = Σ⁻¹; with S = (H + Λ)⁻¹ + θθᵀ and G = ∂Σ/∂τ²,

    ∂ evidence / ∂τ² = ½ tr G (Λ S Λ − Λ).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from clickharvest.estimation.linear_shares import LinearShares
from clickharvest.positions.states import states_of

Array = NDArray[np.float64]

FREE = 100.0
"""Variance of a, and of nothing else: next to no prior."""
LEAST = 1e-6
"""Variance of what a feature adds to a state, at least, so that matrices can be inverted."""
SHARED = 1e-2
"""Precision of how much a context clicks in general: next to none."""
WEAK = 1.0
"""Variance of c, s and t: a click above rarely changes looking by more than a factor of seven, e²."""


class StatePrior:
    """The prior's precision Λ = Σ⁻¹ for the blocks of `LinearShares`, one for every state but the anchor.

    Args:
        numbers: numbers of the states but the anchor, [M].
        anchor: the anchor's rank.
        shares: whose parameters these are.
        told: whether the clicks tell of each state, [M].

    Attributes:
        names: what each τ is of: τ_ρ, τ_β, τ_δ, τ_ε, τ_u, τ_v and τ_ω.
        of_positions: which of them are of b, not of W.
        learned: whether there is anything to learn each from.
        weak: weight of the weak prior of each.
    """

    names = ("rank", "rank_below", "distance", "state", "context_steepness", "context_click", "context_state")
    of_positions = np.array([True, True, True, True, False, False, False])

    def __init__(self, numbers: NDArray[np.int64], anchor: int, shares: LinearShares, told: NDArray[np.bool_]) -> None:
        rank, last = states_of(numbers)
        below = last > 0
        self.width, self.size, self.states = shares.width, shares.size, len(numbers)
        steep = np.log(rank / anchor)
        far = np.where(below, np.log(np.maximum(rank - last, 1)), 0.0)
        laws = np.stack([below * 1.0, below * steep, far])
        same_rank = (rank[:, None] == rank) * 1.0
        there = (rank == anchor) * 1.0
        relative = same_rank - there - there[:, None] + 1  # of ρ_k − ρ_anchor
        same_distance = ((rank - last)[:, None] == rank - last) & below[:, None] & below
        own = np.diag(below * 1.0)
        self.fixed = FREE * np.outer(steep, steep) + WEAK * laws.T @ laws
        self.base = np.stack([relative, same_rank * np.outer(below, below), same_distance * 1.0, own])
        self.context = np.stack([np.outer(steep, steep), np.outer(laws[0], laws[0]), same_rank + own])
        several = len(np.unique(rank[told & ~below])) > 1
        clicked = bool((told & below).any())
        varies = self.width > 1
        below_ranks = len(np.unique(rank[told & below])) > 1
        self.learned = np.array(
            [several, below_ranks, clicked, clicked, varies, varies and clicked, varies and len(numbers) > 1]
        )
        self.weak = np.where(self.learned, 1.0, 0.0)

    def precisions(self, spread: Array) -> list[tuple[Array, float]]:
        """Return Σ⁻¹ of the states and, if there are any, of what one feature adds to them, each with log|Σ|."""
        variance = spread**2
        parts = [self.fixed + np.tensordot(variance[: len(self.base)], self.base, 1)]
        if self.width > 1:
            parts.append(np.tensordot(variance[len(self.base) :], self.context, 1) + LEAST * np.eye(self.states))
        return [_inverse(part) for part in parts]

    def matrix(self, spread: Array) -> Array:
        """Return Λ, [size, size]."""
        return self._whole([precision for precision, _ in self.precisions(spread)])

    def _whole(self, precisions: list[Array]) -> Array:
        whole = np.zeros((self.size // self.width, self.width, self.size // self.width, self.width))
        own = slice(0, self.states)
        for feature in range(self.width):
            whole[own, feature, own, feature] = precisions[min(feature, 1)]
        shared = np.arange(self.states, self.size // self.width)
        for feature in range(self.width):
            whole[shared, feature, shared, feature] = SHARED
        return whole.reshape(self.size, self.size)

    def evidence(self, log_spread: Array, information: Array, linear: Array) -> tuple[float, Array]:
        """Return the log evidence of log τ up to a constant, and its gradient, [7].

        Args:
            log_spread: log τ, [7].
            information: H, [size, size].
            linear: y = H θ̂ + score(θ̂), [size].
        """
        spread = np.exp(log_spread)
        precisions = self.precisions(spread)
        inverse, log_whole = _inverse(information + self._whole([precision for precision, _ in precisions]))
        theta = inverse @ linear
        value = linear @ theta / 2 - log_whole / 2
        square = (inverse + np.outer(theta, theta)).reshape((self.size // self.width, self.width) * 2)
        square = square[: self.states, :, : self.states]
        by_variance = np.zeros(len(spread))
        first = len(self.base)
        parts = (
            (slice(0, first), self.base, range(1)),
            (slice(first, len(spread)), self.context, range(1, self.width)),
        )
        for (precision, log_own), (part, some, features) in zip(precisions, parts, strict=False):
            value -= len(features) * log_own / 2
            own = sum((square[:, feature, :, feature] for feature in features), np.zeros_like(precision))
            by_variance[part] = np.tensordot(some, precision @ own @ precision - len(features) * precision, 2) / 2
        weak = self.weak @ (log_spread - spread)
        return float(value + weak), 2 * spread**2 * by_variance + self.weak * (1 - spread)


def _inverse(matrix: Array) -> tuple[Array, float]:
    """Return the inverse of a positive definite matrix, and the logarithm of its determinant."""
    factor = cho_factor(matrix, lower=True, check_finite=False)
    inverse = cho_solve(factor, np.eye(len(matrix)), check_finite=False)
    return inverse, 2 * float(np.log(np.diag(factor[0])).sum())
