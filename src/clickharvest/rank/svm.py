"""Propensity SVM-Rank: a linear ranker learned from clicks, each weighted by the inverse of its propensity.

Joachims, Swaminathan and Schnabel (2017). With n clicks, the i-th on a document with features f_i and propensity p_i,
and f_j the other documents of its list,

    F(w) = ½|w|² + C/n · Σ_i 1/max(p_i, clip) · Σ_{j ≠ i} max(0, 1 − w·(f_i − f_j)).

The inner sum bounds the rank of the clicked document (less 1) from above, so F bounds the IPS estimate of
`relevant_rank`. The sum is over all other documents of the list, clicked or not. Plain SVM-Rank, `SVMRank`, learns from
grades instead.

The hinge is exact: `gap_` bounds how far `objective_` is from its minimum, relative to it (see `hinge`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import ConvergenceWarning, InputError, NotIdentifiedError
from clickharvest.parameters import Parameterised
from clickharvest.progress import Progress, Update, silent
from clickharvest.rank.data import RankingData, grounded
from clickharvest.rank.estimates import off_policy
from clickharvest.rank.features import Array, Features, Index
from clickharvest.rank.hinge import HingeSolution, PairwiseHinge, minimise_hinge

COSTS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
CLIPS = (0.01, 0.03, 0.1, 0.3)
SEARCH_TOL = 1e-3
"""Relative duality gap of the fits that only compare candidates."""


class LinearRanker(Parameterised):
    """Base of the linear rankers: parameters as in scikit-learn, and scores w·f.

    Attributes:
        coef_: the weights w, [F].
        objective_: F(w).
        gap_: bound on F(w) / min F − 1, by duality.
        n_iter_: steps of L-BFGS.
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
        max_iter: steps of L-BFGS, at most.

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
        hinge = click_hinge(data, self.C, self.clip)
        require_pairs(hinge, "no clicked document shares its list with another")
        self._keep(minimise_hinge(data.features, hinge, tol=self.tol, max_steps=self.max_iter))
        return self


class SVMRank(LinearRanker):
    """A linear ranker from grades.

    Minimises ½|w|² + C/n · Σ_i Σ_j max(0, 1 − w·(f_i − f_j)) over the pairs of documents of one list where i has the
    higher grade; n is the number of documents i that are better than some other.

    Args:
        C: cost of errors against |w|²; larger fits closer.
        tol: relative duality gap at which the fit is done.
        max_iter: steps of L-BFGS, at most.

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
        hinge = grade_hinge(grades, np.asarray(starts, np.int64), x.shape[0], self.C)
        require_pairs(hinge, "no list has documents of two grades")
        self._keep(minimise_hinge(x, hinge, tol=self.tol, max_steps=self.max_iter))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.input_tags.two_d_array = tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True)
class RankCandidate:
    """One C and clip, and how it did in cross-validation.

    Attributes:
        C: cost of errors.
        clip: least propensity of the fit.
        rank: SNIPS-estimated rank of held-out relevant documents; lower is better.
        std_error: its standard error, clustered by query.
        chosen: whether it was the best.
    """

    C: float
    clip: float
    rank: float
    std_error: float
    chosen: bool = False


class PropensitySVMRankCV(LinearRanker):
    """Propensity SVM-Rank with C and clip by cross-validation, from clicks alone.

    Folds are split by query. Every candidate is fitted to all folds but one and ranks the lists of that one; its score
    is the SNIPS estimate of the rank of clicked documents, over the clicks of all folds (see `off_policy`).

    Args:
        costs: the C to try.
        clips: the clips to try.
        evaluation_clip: least propensity of held-out clicks, the same for all candidates; the smallest of `clips` by
            default.
        folds: number of folds, split by query.
        tol: relative duality gap of the final fit.
        max_iter: steps of L-BFGS of a fit, at most.
        seed: seed of the folds, and of the order of documents with equal scores.
        progress: shows the cross-validation, see `clickharvest.progress`; nothing by default.

    Attributes:
        C_: the chosen C.
        clip_: the chosen clip.
        candidates_: all candidates and how they did.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(200, 20))
        >>> noisy = (x[:, 0] + random.normal(size=200)).reshape(50, 4)
        >>> data = ranking_data(x, np.arange(51) * 4, clicked=noisy.argmax(axis=1) + np.arange(50) * 4)
        >>> ranker = PropensitySVMRankCV(costs=[0.01, 10.0], clips=[0.1], folds=2).fit(data)
        >>> ranker.C_, [one.chosen for one in ranker.candidates_]
        (10.0, [False, True])
    """

    def __init__(
        self,
        *,
        costs: Sequence[float] = COSTS,
        clips: Sequence[float] = CLIPS,
        evaluation_clip: float | None = None,
        folds: int = 5,
        tol: float = 1e-4,
        max_iter: int = 1_000,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.costs, self.clips, self.evaluation_clip, self.folds = costs, clips, evaluation_clip, folds
        self.tol, self.max_iter, self.seed, self.progress = tol, max_iter, seed, progress

    C_: float
    clip_: float
    candidates_: list[RankCandidate]

    def fit(self, data: RankingData, y: None = None) -> Self:
        """Choose C and clip, and fit with them to all clicks.

        Raises:
            InputError: the candidates make no sense, or there are fewer queries than folds.
            NotIdentifiedError: a fold leaves no clicked document that has a rival.
        """
        if not len(self.costs) or not len(self.clips):
            raise InputError("no C or clip to choose from: give one or more of each")
        for C in self.costs:
            check_costs(C, min(self.clips))
        candidates = []
        if len(self.costs) * len(self.clips) > 1:
            with self.progress("Cross-validation") as update:
                candidates = self._evaluate(data, update)
        best = min(candidates, key=lambda one: one.rank, default=RankCandidate(self.costs[0], self.clips[0], 0.0, 0.0))
        final = PropensitySVMRank(C=best.C, clip=best.clip, tol=self.tol, max_iter=self.max_iter).fit(data)
        self.candidates_ = [replace(one, chosen=one is best) for one in candidates]
        self.C_, self.clip_ = best.C, best.clip
        self.coef_, self.objective_, self.gap_ = final.coef_, final.objective_, final.gap_
        self.n_iter_, self.n_features_in_ = final.n_iter_, final.n_features_in_
        return self

    def _evaluate(self, data: RankingData, update: Update) -> list[RankCandidate]:
        clicked = np.unique(data.query[data.clicked_list])
        if not 2 <= self.folds <= len(clicked):
            raise InputError(f"{self.folds} folds of {len(clicked):,} queries with a click: expected 2 folds or more")
        fold_of = np.zeros(int(data.query.max()) + 1, np.int64)
        fold_of[clicked] = np.random.default_rng(self.seed).permutation(np.arange(len(clicked)) % self.folds)
        fold = fold_of[data.query]
        costs = sorted(self.costs)
        scores = {(clip, C): np.zeros(data.features.shape[0]) for clip in self.clips for C in costs}
        held_out = [np.repeat(fold == k, np.diff(data.starts)) for k in range(self.folds)]
        done = 0
        for clip, k in product(self.clips, range(self.folds)):
            start: HingeSolution | None = None
            for C in costs:
                hinge = click_hinge(data, C, clip, fold != k)
                require_pairs(hinge, f"without fold {k + 1} no clicked document shares its list with another")
                start = minimise_hinge(data.features, hinge, tol=SEARCH_TOL, max_steps=self.max_iter, start=start)
                scores[clip, C][held_out[k]] = data.features.times(start.w)[held_out[k]]
                done += 1
                update(done / (len(scores) * self.folds))
        evaluation_clip = min(self.clips) if self.evaluation_clip is None else self.evaluation_clip
        candidates = []
        for (clip, C), held_out_scores in scores.items():
            estimate = off_policy(data, held_out_scores, "relevant_rank", clip=evaluation_clip, seed=self.seed)
            candidates.append(RankCandidate(C, clip, estimate.value, estimate.std_error))
        return candidates


def click_hinge(data: RankingData, C: float, clip: float, lists: NDArray[np.bool_] | None = None) -> PairwiseHinge:
    """Return the pairs of Propensity SVM-Rank: each clicked document with all others of its list.

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
    weights = np.bincount(data.clicked[used], data.weights(clip)[used], data.features.shape[0]).astype(np.float64)
    if data.shift is not None:
        weights = grounded(weights, data.starts)
    return PairwiseHinge(weights * (C / n_clicks), data.starts)


def grade_hinge(grades: ArrayLike, starts: Index, n_docs: int, C: float) -> PairwiseHinge:
    """Return the pairs of SVM-Rank: each document with those of its list that have a lower grade."""
    values = np.asarray(grades, np.float64)
    if values.shape != (n_docs,) or len(starts) < 2 or starts[0] != 0 or starts[-1] != n_docs:
        raise InputError(
            f"{n_docs:,} documents, grades of shape {values.shape}, starts {starts[:1]} to {starts[-1:]}: expected a "
            "grade for each document, and starts from 0 to their number"
        )
    better = grounded(values, starts) > 0
    return PairwiseHinge(np.where(better, C / max(better.sum(), 1), 0.0), starts, values)


def check_costs(C: float, clip: float) -> None:
    """Refuse a C or clip that makes no sense."""
    if not (np.isfinite(C) and C > 0):
        raise InputError(f"C={C}: expected a number above 0")
    if not 0 <= clip < np.inf:
        raise InputError(f"clip={clip}: expected a propensity, 0 or more")


def require_pairs(hinge: PairwiseHinge, why: str) -> None:
    """Refuse a loss without any pair."""
    if not hinge.blocks:
        raise NotIdentifiedError(f"{why}, so there is nothing to learn an order from: add clicks or documents")
