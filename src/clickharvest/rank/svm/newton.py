"""Linear scores that minimise a pairwise hinge loss, to a certified duality gap.

    F(w) = ½|w|² + L(Xw),   L the hinge loss of `Contests`, exact and not differentiable.

Newton steps minimise F_δ, where L is smoothed over a width δ; meanwhile δ shrinks. At any w, the slopes α of the
smoothed loss are feasible in the dual of F, and the duality gap they leave is

    F(w) − D(α) = ½|∇F_δ(w)|² + excess,   excess = Σ c (max(0, u) − α u) over the pairs with u in (0, δ),

so the minimum of F lies between F(w) − gap and F(w). Mixtures of such α are feasible too; the best one so far counts.

What takes time is reading X. Only pairs with u in (0, δ) bend the loss, so a Newton step reads few documents, and only
pairs near them change their slopes, so a new gradient reads few as well. Many lists are solved on an eighth first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clickharvest.estimation.threads import on_one_thread
from clickharvest.rank.features import Array, Features
from clickharvest.rank.svm.hinge import Contests, Slopes

WIDTH = 4.0
"""The smoothing δ to start with."""
AHEAD = 2.0
"""A Newton step takes the curvature of a smoothing so much wider than δ, which foretells further."""
THINNING, FEW = 8, 500
"""The share of the contests that is solved first, and how many winners are too few for that."""
LEAST = 2
"""Winners for every feature that must be left then: with fewer, the share is harder to solve than the whole."""
GATHER = 5
"""How much longer it takes to read a document here and there than in a row."""
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


@dataclass(frozen=True)
class _Point:
    """F and F_δ at one w."""

    w: Array
    scores: Array
    exact: float
    smooth: float
    slopes: Slopes


@on_one_thread  # products with a vector wait for memory
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
        max_steps: Newton steps, and changes of δ without one, on all contests, at most.
        start: the solution of a similar problem.

    Example:
        >>> x = Features.of([[1.0], [0.0]])  # F(w) = w²/2 + .3 max(0, 1 − w), least at w = .3
        >>> one = np.array([0, 1])
        >>> pairs = Contests(2, np.array([0]), np.array([0.3]), one, np.array([1]), one, winners_in_pool=False)
        >>> minimise_hinge(x, pairs, tol=1e-9).w.round(4).tolist()
        [0.3]
    """
    return _minimise(features, contests, tol, max_steps, start)


def _minimise(
    features: Features, contests: Contests, tol: float, max_steps: int, start: HingeSolution | None
) -> HingeSolution:
    n_winners, n_features = len(contests.winners), features.shape[1]
    if start is None and n_winners > max(FEW, THINNING * LEAST * n_features):
        some, rows = contests.thin(THINNING)
        # A share tells the minimum of the whole to about features per winner, relatively: closer is wasted.
        enough = min(0.03 * THINNING * n_features / n_winners, 0.1)
        start = _minimise(features.take(rows), some, max(tol, enough), max_steps, None)
    width = WIDTH if start is None else start.width
    problem = _Smoothed(features, contests)
    point = problem.at(np.zeros(n_features) if start is None else start.w, width)
    best = DualPoint(0.0, np.zeros(n_features))
    for steps in range(max_steps + 1):
        gradient = problem.gradient(point)
        slope, excess = 0.5 * float(gradient @ gradient), point.slopes.excess
        best = best.mixed(DualPoint.of(point.exact - slope - excess, point.w - gradient))
        gap = max(point.exact - best.value, 0.0)
        if gap <= tol * point.exact or steps == max_steps:
            break
        shrink = slope < 0.3 * excess
        if not shrink:
            point, at_once = problem.step(point, gradient, width)
            shrink = at_once and point.slopes.excess > 0.5 * tol * point.exact
        if shrink:
            width *= float(np.clip(np.sqrt(0.3 * tol * point.exact / point.slopes.excess), 0.1, 0.5))
            point = problem.scored(point.w, point.scores, width)
    return HingeSolution(point.w, point.exact, gap, width, steps, gap <= tol * point.exact)


@dataclass(frozen=True)
class DualPoint:
    """Feasible α of the dual problem: D(α) = Σ c α − ½|p|², p = Σ c α (f_i − f_j).

    Attributes:
        total: Σ c α over all pairs.
        image: p, [F].

    Example:
        >>> few, many = DualPoint(1.0, np.array([0.0])), DualPoint(3.0, np.array([2.0]))
        >>> few.value, many.value, few.mixed(many).value  # half of each: 2 − ½
        (1.0, 1.0, 1.5)
    """

    total: float
    image: Array

    @classmethod
    def of(cls, value: float, image: Array) -> DualPoint:
        """Return the point with a value D and an image p."""
        return cls(value + 0.5 * float(image @ image), image)

    @property
    def value(self) -> float:
        """D(α)."""
        return self.total - 0.5 * float(self.image @ self.image)

    def mixed(self, other: DualPoint) -> DualPoint:
        """Return the best mixture of this point and another."""
        way, gain = other.image - self.image, other.total - self.total
        length = float(way @ way)
        share = min(max((gain - float(self.image @ way)) / length, 0.0), 1.0) if length > 0 else float(gain > 0)
        return DualPoint(self.total + share * gain, self.image + share * way)


class _Smoothed:
    """F_δ for any δ."""

    def __init__(self, features: Features, contests: Contests) -> None:
        self.features, self.contests = features, contests
        self.slopes, self.sums = np.zeros(features.shape[0]), np.zeros(features.shape[1])

    def at(self, w: Array, width: float) -> _Point:
        return self.scored(w, self.features.times(w), width)

    def scored(self, w: Array, scores: Array, width: float) -> _Point:
        slopes = self.contests.slopes(scores, width)
        half = 0.5 * float(w @ w)
        return _Point(w, scores, half + slopes.exact, half + slopes.smooth, slopes)

    def gradient(self, point: _Point) -> Array:
        """Return w + Xᵀ slopes; where few slopes have changed since the last call, only those are read."""
        change = point.slopes.gradient - self.slopes
        rows = np.flatnonzero(change)
        if GATHER * len(rows) < len(change):
            self.sums = self.sums + self.features.take(rows).sums(change[rows])
        else:
            self.sums = self.features.sums(point.slopes.gradient)
        self.slopes = point.slopes.gradient
        return point.w + self.sums

    def step(self, point: _Point, gradient: Array, width: float) -> tuple[_Point, bool]:
        """Take a Newton step to where F_δ is much less steep along it; say whether its own length was right."""
        curvature = self.contests.curvature(point.scores, AHEAD * width)
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


def search(trial: Callable[[float], tuple[_Point, float]], value: float, steep: float) -> tuple[_Point, bool]:
    """Return a point along a line where a convex function is lower and at most a third as steep as at its beginning.

    Doubles the step while the function still falls, then goes to where a line through the two slopes meets zero. Also
    says whether the first step was such a point.
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
    return there, t == 1.0


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
