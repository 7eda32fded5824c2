"""Linear scores that minimise a pairwise hinge loss, to a certified duality gap.

    F(w) = ½|w|² + Σ_i c_i Σ_j max(0, u_ij),   u_ij = 1 − s_i + s_j,   s = Xw,

over pairs of documents of one list. L-BFGS minimises F_δ, in which max(0, u) is u²/2δ for u in (0, δ) and u − δ/2
beyond, for ever smaller δ. The slopes α = min(max(u/δ, 0), 1) are feasible in the dual of F, so that at any w

    F(w) − min F  ≤  ½|∇F_δ(w)|² + Σ c (max(0, u) − α u).

Mixtures of such α are feasible too, and the best one so far gives the gap. Of many lists an eighth is solved first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from clickharvest.estimation.threads import on_one_thread
from clickharvest.rank.features import Array, Features, Index
from clickharvest.rank.pairs import Block, blocks_of_pairs

WIDTH, WIDTHS = 4.0, 60
"""The first smoothing δ, and how often it becomes smaller, at most."""
MEMORY = 40
"""Steps that L-BFGS remembers: fewer steps are needed if it is larger, and more memory where features are many."""
THINNING, FEW, ROUGH = 8, 500, 0.01
"""The share of the lists that is solved first, how many clicked documents are too few for that, and its tolerance."""


@dataclass(frozen=True, eq=False)
class PairwiseHinge:
    """The pairs of a hinge loss.

    Attributes:
        costs: c_i of every document, 0 where it need not be above others, [n_docs].
        starts: where each list starts, and the end of the last, [n_lists + 1].
        grades: a document of positive cost is to be above those of lower grades, [n_docs]; above all others of its list
            if None.

    Example:
        >>> hinge = PairwiseHinge(np.array([2.0, 0.0, 0.0]), np.array([0, 3]))
        >>> hinge.loss(np.array([1.0, 0.5, 0.0]), 1e-9).exact  # 2 · (max(0, 1 − 1 + .5) + max(0, 1 − 1 + 0))
        1.0
    """

    costs: Array
    starts: Index
    grades: Array | None = None

    @cached_property
    def blocks(self) -> list[Block]:
        """The lists that have pairs."""
        return list(blocks_of_pairs(self.costs, self.starts))

    def loss(self, scores: Array, width: float) -> HingeLoss:
        """Return the loss at some scores, exact and smoothed over a width δ."""
        gradient, sums = np.zeros(len(self.costs)), np.zeros(3)
        for block in self.blocks:
            short = np.maximum(1 - block.gaps(scores), 0.0)
            if self.grades is None:
                block.without_self(short)
            else:
                short *= block.gaps(self.grades) > 0
            costs, alpha = self.costs[block.clicked], np.minimum(short / width, 1.0)
            pull = alpha * costs[:, None]
            gradient[block.docs] = block.sum_by_document(pull, -1)
            beyond, pulled = float(costs @ short.sum(axis=1)), float(np.vdot(pull, short))
            sums += beyond, pulled - width / 2 * float(np.vdot(pull, alpha)), beyond - pulled
        exact, smooth, excess = sums.tolist()
        return HingeLoss(exact, smooth, excess, gradient)

    def thin(self) -> tuple[PairwiseHinge, Index]:
        """Return every eighth list at eight times the cost, and the rows of its documents."""
        sizes = np.diff(self.starts)
        rows = np.flatnonzero(np.repeat(np.arange(len(sizes)) % THINNING == 0, sizes))
        starts = np.concatenate([[0], np.cumsum(sizes[::THINNING])])
        grades = None if self.grades is None else self.grades[rows]
        return PairwiseHinge(THINNING * self.costs[rows], starts, grades), rows


@dataclass(frozen=True, eq=False)
class HingeLoss:
    """A hinge loss at some scores.

    Attributes:
        exact: the loss.
        smooth: the smoothed loss, at most the exact one.
        excess: Σ c (max(0, u) − α u), what smoothing adds to the duality gap.
        gradient: derivative of the smoothed loss by every score, [n_docs].
    """

    exact: float
    smooth: float
    excess: float
    gradient: Array


@dataclass(frozen=True)
class HingeSolution:
    """The result of the solver.

    Attributes:
        w: the weights, [F].
        objective: F(w).
        gap: a certified bound on F(w) minus the minimum of F.
        width: the last smoothing δ.
        steps: steps of L-BFGS.
        converged: whether the gap is within the tolerance.
    """

    w: Array
    objective: float
    gap: float
    width: float
    steps: int
    converged: bool


@on_one_thread  # products with a vector wait for memory
def minimise_hinge(
    features: Features,
    hinge: PairwiseHinge,
    *,
    tol: float = 1e-4,
    max_steps: int = 1_000,
    start: HingeSolution | None = None,
) -> HingeSolution:
    """Minimise F until the duality gap is at most tol · F(w).

    Args:
        features: X.
        hinge: the pairs.
        tol: the relative duality gap to reach.
        max_steps: steps of L-BFGS, at most.
        start: the solution of a similar problem.

    Example:
        >>> x = Features.of([[1.0], [0.0]])  # F(w) = w²/2 + .3 max(0, 1 − w), least at w = .3
        >>> hinge = PairwiseHinge(np.array([0.3, 0.0]), np.array([0, 2]))
        >>> minimise_hinge(x, hinge, tol=1e-9).w.round(4).tolist()
        [0.3]
    """
    n_features, n_clicked = features.shape[1], int(np.count_nonzero(hinge.costs))
    if start is None and n_clicked > max(FEW, 2 * THINNING * n_features):
        some, rows = hinge.thin()
        start = minimise_hinge(features.take(rows), some, tol=max(tol, ROUGH), max_steps=max_steps)
    w, width = (np.zeros(n_features), WIDTH) if start is None else (start.w, start.width)
    best, least, slope, excess, steps, dual = w, np.inf, 0.0, 0.0, 0, DualPoint(0.0, np.zeros(n_features))

    def smoothed(w: Array) -> tuple[float, Array]:
        nonlocal best, least, slope, excess, dual
        loss, half = hinge.loss(features.times(w), width), 0.5 * float(w @ w)
        gradient = w + features.sums(loss.gradient)
        slope, excess = 0.5 * float(gradient @ gradient), loss.excess
        if half + loss.exact < least:
            best, least = w.copy(), half + loss.exact
        image = w - gradient
        dual = dual.mixed(DualPoint(half + loss.exact - slope - excess + 0.5 * float(image @ image), image))
        return half + loss.smooth, gradient

    def check(intermediate_result: Any) -> None:
        nonlocal steps
        steps += 1
        if least - dual.value <= tol * least or slope < 0.3 * excess:
            raise StopIteration

    for _ in range(WIDTHS):
        limits: Any = {"maxiter": max_steps - steps, "maxcor": MEMORY, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0}
        w = minimize(smoothed, w, jac=True, method="L-BFGS-B", callback=check, options=limits).x
        if least - dual.value <= tol * least or steps >= max_steps:
            break
        width *= float(np.clip(np.sqrt(0.3 * tol * least / max(excess, 1e-300)), 0.1, 0.5))
    gap = max(least - dual.value, 0.0)
    return HingeSolution(best, least, gap, width, steps, gap <= tol * least)


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Feasible α of the dual of F, of value Σ c α − ½|p|² with p = Σ c α (x_i − x_j).

    Attributes:
        total: Σ c α over all pairs.
        image: p, [F].

    Example:
        >>> one, other = DualPoint(1.0, np.array([0.0])), DualPoint(3.0, np.array([2.0]))
        >>> one.value, other.value, one.mixed(other).value  # half of each: 2 − ½
        (1.0, 1.0, 1.5)
    """

    total: float
    image: Array

    @property
    def value(self) -> float:
        """The value of the dual, at most the minimum of F."""
        return self.total - 0.5 * float(self.image @ self.image)

    def mixed(self, other: DualPoint) -> DualPoint:
        """Return the best mixture of this point and another."""
        way, gain = other.image - self.image, other.total - self.total
        length = float(way @ way)
        share = min(max((gain - float(self.image @ way)) / length, 0.0), 1.0) if length > 0 else float(gain > 0)
        return DualPoint(self.total + share * gain, self.image + share * way)
