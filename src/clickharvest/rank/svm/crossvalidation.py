"""Propensity SVM-Rank with C and clip chosen by cross-validation, from clicks alone.

Folds are split by query. Every candidate is fitted to all folds but one and ranks the lists of that one; the SNIPS
estimate of the rank of clicked documents, over the clicks of all folds, is its score (see `off_policy`). Nothing is
chosen by looking at relevance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np

from clickharvest.errors import InputError
from clickharvest.progress import Progress, Update, silent
from clickharvest.rank.data import RankingData
from clickharvest.rank.estimates import off_policy
from clickharvest.rank.svm.newton import HingeSolution, minimise_hinge
from clickharvest.rank.svm.svm_rank import LinearRanker, PropensitySVMRank, check_costs, click_contests, refuse_none

COSTS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
CLIPS = (0.01, 0.03, 0.1, 0.3)
SEARCH_TOL = 1e-3
"""Relative duality gap of the fits that only judge candidates."""


@dataclass(frozen=True)
class RankCandidate:
    """One C and clip, as cross-validation judged them.

    Attributes:
        C: cost of errors.
        clip: least propensity of the fit.
        rank: SNIPS-estimated rank of held-out relevant documents; lower is better.
        std_error: its standard error, clustered by query.
        chosen: whether it was taken.
    """

    C: float
    clip: float
    rank: float
    std_error: float
    chosen: bool = False


class PropensitySVMRankCV(LinearRanker):
    """Propensity SVM-Rank with C and clip by cross-validation.

    Args:
        costs: the C to try.
        clips: the clips to try.
        evaluation_clip: least propensity of held-out clicks, the same for all candidates; the smallest of `clips` by
            default.
        folds: number of folds, split by query.
        tol: relative duality gap of the final fit.
        max_iter: Newton steps of a fit, at most.
        seed: seed of the folds, and of the order of documents with equal scores.
        progress: shows the cross-validation, see `clickharvest.progress`; nothing by default.

    Attributes:
        C_: the C chosen.
        clip_: the clip chosen.
        candidates_: all candidates as they were judged.

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
        judged = []
        if len(self.costs) * len(self.clips) > 1:
            with self.progress("Cross-validation") as update:
                judged = self._judge(data, update)
        best = min(judged, key=lambda one: one.rank, default=RankCandidate(self.costs[0], self.clips[0], 0.0, 0.0))
        final = PropensitySVMRank(C=best.C, clip=best.clip, tol=self.tol, max_iter=self.max_iter).fit(data)
        self.candidates_ = [replace(one, chosen=one is best) for one in judged]
        self.C_, self.clip_ = best.C, best.clip
        self.coef_, self.objective_, self.gap_ = final.coef_, final.objective_, final.gap_
        self.n_iter_, self.n_features_in_ = final.n_iter_, final.n_features_in_
        return self

    def _judge(self, data: RankingData, update: Update) -> list[RankCandidate]:
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
                contests = click_contests(data, C, clip, fold != k)
                refuse_none(contests, f"without fold {k + 1} no clicked document shares its list with another")
                start = minimise_hinge(data.features, contests, tol=SEARCH_TOL, max_steps=self.max_iter, start=start)
                scores[clip, C][held_out[k]] = data.features.times(start.w)[held_out[k]]
                done += 1
                update(done / (len(scores) * self.folds))
        judge_clip = min(self.clips) if self.evaluation_clip is None else self.evaluation_clip
        judged = []
        for (clip, C), found in scores.items():
            estimate = off_policy(data, found, "relevant_rank", clip=judge_clip, seed=self.seed)
            judged.append(RankCandidate(C, clip, estimate.value, estimate.std_error))
        return judged
