"""Propensity SVM-Rank: a linear ranker learned from clicks, each weighted by the inverse of its propensity.

Joachims, Swaminathan and Schnabel (2017). With n clicks, the i-th on a document with features f_i and propensity p_i,
and f_j the other documents of its list,

    F(w) = ½|w|² + C/n · Σ_i 1/max(p_i, clip) · Σ_{j ≠ i} max(0, 1 − w·(f_i − f_j)).

The inner sum bounds the rank of the clicked document (less 1) from above, so F bounds the IPS estimate of
`relevant_rank`. The sum is over all other documents of the list, clicked or not. Plain SVM-Rank, `SVMRank`, learns from
grades instead.

The hinge is exact: `gap_` bounds how far `objective_` is from its minimum, relative to it.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import ConvergenceWarning, InputError, NotIdentifiedError
from clickharvest.parameters import Parameterised
from clickharvest.rank.data import RankingData, grounded
from clickharvest.rank.features import Array, Features, Index
from clickharvest.rank.svm.hinge import Contests, spans
from clickharvest.rank.svm.newton import HingeSolution, minimise_hinge


class LinearRanker(Parameterised):
    """What the linear rankers share: scikit-learn manners, and scores w·f.

    Attributes:
        coef_: the weights w, [F].
        objective_: F(w).
        gap_: bound on F(w) / min F − 1, by duality.
        n_iter_: Newton steps.
    """

    tol: float
    max_iter: int
    coef_: Array
    objective_: float
    gap_: float
    n_iter_: int
    n_features_in_: int

    def predict(self, features: Any) -> Array:
        """Return the scores w·f of documents, higher is better, [n].

        Raises:
            NotFittedError: the ranker is not fitted.
            InputError: the features are not those it was fitted to.
        """
        coef = self.coef_
        x = features if isinstance(features, Features) else Features.of(features)
        if x.shape[1] != len(coef):
            raise InputError(f"documents have {x.shape[1]:,} features: the ranker knows {len(coef):,}")
        return x.times(coef)

    def _keep(self, solution: HingeSolution) -> None:
        self.coef_, self.objective_, self.n_iter_ = solution.w, solution.objective, solution.steps
        bound = solution.objective - solution.gap
        self.gap_ = solution.gap / bound if bound > 0 else np.inf
        self.n_features_in_ = len(solution.w)
        if not solution.converged:
            warnings.warn(
                f"{type(self).__name__} ended after {solution.steps:,} steps, {self.gap_:.2g} from the minimum at most "
                f"(tol {self.tol:g}): raise max_iter, lower C, or scale the features alike",
                ConvergenceWarning,
                stacklevel=3,
            )


class PropensitySVMRank(LinearRanker):
    """A linear ranker from clicks with propensities; see the module for what it minimises.

    Args:
        C: cost of errors against |w|²; larger fits closer.
        clip: least propensity, relative to the anchor as propensities are; smaller ones count as this. Larger means
            less variance and more bias.
        tol: relative duality gap at which the fit is done.
        max_iter: Newton steps, at most.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[1.0, 0.0], [0.0, 1.0]], [0, 2], clicked=[0, 0, 1], propensity=[0.5, 1.0, 1.0])
        >>> ranker = PropensitySVMRank(C=0.3).fit(data)
        >>> ranker.coef_.round(3).tolist(), ranker.predict([[1.0, 0.0], [0.0, 1.0]]).round(3).tolist()
        ([0.2, -0.2], [0.2, -0.2])
    """

    def __init__(self, *, C: float = 1.0, clip: float = 0.01, tol: float = 1e-4, max_iter: int = 1_000) -> None:
        self.C, self.clip, self.tol, self.max_iter = C, clip, tol, max_iter

    def fit(self, data: RankingData, y: None = None) -> Self:
        """Fit to clicks.

        Raises:
            InputError: C or clip make no sense.
            NotIdentifiedError: no clicked document has a rival.
        """
        check_costs(self.C, self.clip)
        contests = click_contests(data, self.C, self.clip)
        refuse_none(contests, "no clicked document shares its list with another")
        self._keep(minimise_hinge(data.features, contests, tol=self.tol, max_steps=self.max_iter))
        return self


class SVMRank(LinearRanker):
    """A linear ranker from grades.

    Minimises ½|w|² + C/n · Σ_i Σ_j max(0, 1 − w·(f_i − f_j)) over the pairs of documents of one list where i has the
    higher grade; n is the number of documents i that are better than some other.

    Args:
        C: cost of errors against |w|²; larger fits closer.
        tol: relative duality gap at which the fit is done.
        max_iter: Newton steps, at most.

    Example:
        >>> SVMRank(C=0.3).fit([[1.0], [0.0]], [2, 0], [0, 2]).coef_.round(3).tolist()
        [0.3]
    """

    def __init__(self, *, C: float = 1.0, tol: float = 1e-4, max_iter: int = 1_000) -> None:
        self.C, self.tol, self.max_iter = C, tol, max_iter

    def fit(self, features: Any, grades: ArrayLike, starts: ArrayLike) -> Self:
        """Fit to graded documents.

        Args:
            features: an array or SciPy sparse matrix; documents of one list together, [n_docs, F].
            grades: higher is better, [n_docs].
            starts: where each list starts, and the end of the last, [n_lists + 1].

        Raises:
            InputError: sizes do not fit, or C makes no sense.
            NotIdentifiedError: no list has documents of two grades.
        """
        check_costs(self.C, 0.0)
        x = Features.of(features)
        contests = grade_contests(np.asarray(grades), np.asarray(starts, np.int64), x.shape[0], self.C)
        refuse_none(contests, "no list has documents of two grades")
        self._keep(minimise_hinge(x, contests, tol=self.tol, max_steps=self.max_iter))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.input_tags.two_d_array = tags.input_tags.sparse = True
        return tags


def grade_contests(grades: Any, starts: Index, n_docs: int, C: float) -> Contests:
    """Return a contest for every list and grade: its documents of that grade against those of lower grades."""
    if grades.shape != (n_docs,) or len(starts) < 2 or starts[0] != 0 or starts[-1] != n_docs:
        raise InputError(
            f"{n_docs:,} documents, grades of shape {grades.shape}, starts {starts[:1]} to {starts[-1:]}: expected a "
            "grade for each document, and starts from 0 to their number"
        )
    parts = []
    for grade in np.unique(grades)[1:]:
        winners, pool = np.flatnonzero(grades == grade), np.flatnonzero(grades < grade)
        n_winners, n_pool = (np.diff(np.searchsorted(rows, starts)) for rows in (winners, pool))
        list_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        both = (n_winners > 0) & (n_pool > 0)
        winners, pool = winners[both[list_of[winners]]], pool[both[list_of[pool]]]
        parts.append((winners, n_winners[both], pool, n_pool[both]))
    if not parts:
        parts.append((np.zeros(0, np.int64),) * 4)
    winners, n_winners, pool, n_pool = (np.concatenate(part) for part in zip(*parts, strict=True))
    costs = np.full(len(winners), C / max(len(winners), 1))
    bounds = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (n_winners, n_pool))
    return Contests(n_docs, winners, costs, next(bounds), pool, next(bounds), False)


def check_costs(C: float, clip: float) -> None:
    """Refuse a C or clip that makes no sense."""
    if not (np.isfinite(C) and C > 0):
        raise InputError(f"C={C}: expected a number above 0")
    if not 0 <= clip < np.inf:
        raise InputError(f"clip={clip}: expected a propensity, 0 or more")


def refuse_none(contests: Contests, why: str) -> None:
    """Refuse contests without any pair."""
    if contests.n_pairs == 0:
        raise NotIdentifiedError(f"{why}, so there is nothing to learn an order from: add clicks or documents")


def click_contests(data: RankingData, C: float, clip: float, lists: NDArray[np.bool_] | None = None) -> Contests:
    """Return the contests of Propensity SVM-Rank: each clicked document against all others of its list.

    A clicked document costs C/n times the sum of its weights, with n the number of clicks. Of affine clicks the weights
    of a list are `grounded`.

    Args:
        data: lists and their clicks.
        C: the cost of errors against |w|².
        clip: least propensity; smaller ones count as this.
        lists: which lists to use, [n_lists]; all by default.
    """
    used = np.ones(len(data.clicked), bool) if lists is None else lists[data.clicked_list]
    n_clicks = max(float(data.clicks[used].sum()), 1.0)
    sums = np.bincount(data.clicked[used], data.weights(clip)[used], data.features.shape[0]).astype(np.float64)
    if data.shift is not None:
        sums = grounded(sums, data.starts)
    cost = np.asarray(sums * (C / n_clicks), np.float64)
    winners = np.flatnonzero(cost)
    bounds = np.searchsorted(winners, data.starts)
    kept = np.flatnonzero((np.diff(bounds) > 0) & (np.diff(data.starts) > 1))
    winner, winner_starts = spans(bounds, kept)
    pool, pool_starts = spans(data.starts, kept)
    winners = winners[winner]
    return Contests(data.features.shape[0], winners, cost[winners], winner_starts, pool, pool_starts, True)
