"""Linear scores that minimise a pairwise hinge loss, to a certified duality gap.

    F(w) = ½|w|² + L(Xw),   L the hinge loss of `Contests`, exact and not differentiable.

Newton steps minimise F_δ, where L is smoothed over a width δ; then δ shrinks. At any w, the slopes α of the smoothed
loss are feasible in the dual of F, and the duality gap they leave is

    F(w) − D(α) = ½|∇F_δ(w)|² + excess,   excess = Σ c (max(0, u) − α u) over the pairs with u in (0, δ),

so the minimum of F lies between F(w) − gap and F(w). One says when to step, the other when to shrink δ. Only pairs with
u in (0, δ) bend the loss, so a Newton step reads few documents; many lists are solved on an eighth of them first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from clickharvest.rank.features import Array, Features
from clickharvest.rank.hinge import Contests, Slopes

WIDTH = 4.0
"""The smoothing δ to start with."""
THINNING, FEW = 8, 2_000
"""The share of the contests that is solved first, and how many contests are too few for that."""
LEAST = 2
"""Contests for every feature that must be left then: with fewer, the share is harder to solve than the whole."""
CG_STEPS = 250
SEARCH_STEPS = 20


@dataclass(frozen=True)
class HingeSolution:
    """Where a solver ended.

    Attributes:
        w: the weights, [F].
        objective: F(w).
        gap: a certified bound on F(w) minus the minimum of F.
        width: the last smoothing δ.
        steps: Newton steps on all contests.
        converged: whether the gap is within the tolerance.
    """

    w: Array
    objective: float
    gap: float
    width: float
    steps: int
    converged: bool


@dataclass
class _Point:
    """F and F_δ at one w."""

    w: Array
    scores: Array
    exact: float
    smooth: float
    slopes: Slopes
    gradient: Array | None = None


def minimise_hinge(
    features: Features,
    contests: Contests,
    *,
    tol: float = 1e-4,
    max_steps: int = 1_000,
    start: HingeSolution | None = None,
) -> HingeSolution:
    """Minimise F until the duality gap is at most tol · F(w).

    Args:
        features: X.
        contests: L.
        tol: the relative duality gap to reach.
        max_steps: Newton steps and changes of δ on all contests, at most.
        start: the solution of a similar problem.

    Example:
        >>> x = Features.of([[1.0], [0.0]])  # F(w) = w²/2 + .3 max(0, 1 − w), least at w = .3
        >>> one = np.array([0, 1])
        >>> pairs = Contests(2, np.array([0]), np.array([0.3]), one, np.array([1]), one, winners_in_pool=False)
        >>> minimise_hinge(x, pairs, tol=1e-9).w.round(4).tolist()
        [0.3]
    """
    # Products with a vector wait for memory: more threads for them gain nothing, and lose much on a busy machine.
    with threadpool_limits(1, "blas"):
        return _minimise(features, contests, tol, max_steps, start)


def _minimise(
    features: Features, contests: Contests, tol: float, max_steps: int, start: HingeSolution | None
) -> HingeSolution:
    if start is None and len(contests) > max(FEW, THINNING * LEAST * features.shape[1]):
        some, rows = contests.thin(THINNING)
        start = _minimise(features.take(rows), some, max(tol, 1e-3), max_steps, None)
    w = np.zeros(features.shape[1]) if start is None else start.w
    width = WIDTH if start is None else start.width
    problem = _Smoothed(features, contests)
    point = problem.at(w, width)
    bound = -np.inf
    for steps in range(max_steps + 1):
        gradient = problem.gradient(point)
        slope = 0.5 * float(gradient @ gradient)
        bound = max(bound, point.exact - slope - point.slopes.excess)
        gap = max(point.exact - bound, 0.0)
        if gap <= tol * point.exact or steps == max_steps:
            break
        if slope < 0.3 * point.slopes.excess:
            width *= float(np.clip(np.sqrt(0.3 * tol * point.exact / point.slopes.excess), 0.25, 0.5))
            point = problem.at(point.w, width)
        else:
            point = problem.step(point, gradient, width)
    return HingeSolution(point.w, point.exact, gap, width, steps, gap <= tol * point.exact)


@dataclass(frozen=True)
class _Smoothed:
    features: Features
    contests: Contests

    def at(self, w: Array, width: float) -> _Point:
        return self.scored(w, self.features.times(w), width)

    def scored(self, w: Array, scores: Array, width: float) -> _Point:
        slopes = self.contests.slopes(scores, width)
        half = 0.5 * float(w @ w)
        return _Point(w, scores, half + slopes.exact, half + slopes.smooth, slopes)

    def gradient(self, point: _Point) -> Array:
        if point.gradient is None:
            point.gradient = point.w + self.features.sums(point.slopes.gradient)
        return point.gradient

    def step(self, point: _Point, gradient: Array, width: float) -> _Point:
        """Take a Newton step, and look along it for a point where F_δ is much less steep."""
        curvature = self.contests.curvature(point.slopes)
        bent = self.features.take(curvature.rows)
        norm = float(np.linalg.norm(gradient))
        accuracy = min(0.1, np.sqrt(norm / max(float(np.linalg.norm(point.w)), 1e-12)))
        direction = conjugate_gradients(lambda v: v + bent.sums(curvature @ bent.times(v)), -gradient, accuracy)
        along = self.features.times(direction)
        steep = float(gradient @ direction)

        def trial(t: float) -> tuple[_Point, float]:
            there = self.scored(point.w + t * direction, point.scores + t * along, width)
            return there, float(there.w @ direction + there.slopes.gradient @ along)

        return search(trial, point.smooth, steep)


def search(trial: Callable[[float], tuple[_Point, float]], value: float, steep: float) -> _Point:
    """Return a point along a line where a convex function is lower and at most a third as steep as at its beginning.

    Doubles the step while the function still falls, then goes to where a line through the two slopes meets zero.
    """
    low, low_slope, high, high_slope, t = 0.0, steep, np.inf, np.inf, 1.0
    for _ in range(SEARCH_STEPS):
        there, slope = trial(t)
        if abs(slope) <= abs(steep) / 3 and there.smooth <= value:
            break
        if slope < 0:
            low, low_slope = t, slope
        else:
            high, high_slope = t, slope
        if np.isinf(high):
            t *= 2
        else:
            share = low_slope / (low_slope - high_slope)
            t = low + (high - low) * float(np.clip(share, 0.1, 0.9))
    return there


def conjugate_gradients(product: Callable[[Array], Array], right: Array, accuracy: float) -> Array:
    """Solve A d = b for a symmetric A ≥ I given by its products, until |b − A d| ≤ accuracy · |b|.

    Example:
        >>> conjugate_gradients(lambda v: np.array([2.0, 4.0]) * v, np.array([2.0, 2.0]), 1e-9).round(6).tolist()
        [1.0, 0.5]
    """
    d, residual = np.zeros_like(right), right.copy()
    search_direction, size = residual.copy(), float(residual @ residual)
    goal = accuracy**2 * size
    for _ in range(CG_STEPS):
        if size <= goal:
            break
        image = product(search_direction)
        length = size / float(search_direction @ image)
        d += length * search_direction
        residual -= length * image
        before, size = size, float(residual @ residual)
        search_direction = residual + size / before * search_direction
    return d
