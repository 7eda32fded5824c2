"""Propensity SVM-Rank, with C and clip by cross-validation where they are not given."""

from __future__ import annotations

from dataclasses import replace

from clickharvest.rank.data import RankingData
from clickharvest.rank.learners import Learner, ranker_learner
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.svm import CLIPS, PropensitySVMRankCV
from clickharvest.rank.training import Task

COSTS = (0.1, 1.0, 10.0, 100.0)
FOLDS = 3


@ranker_learner("svm")
class SVMLearner(Learner):
    """`PropensitySVMRank` on dense features divided by their standard deviations."""

    losses = ("hinge",)

    def train(self, data: RankingData, task: Task) -> TrainedRanker:
        """Return a linear ranker; its weights are those of the features as they came."""
        features, scale = data.features.scaled()
        costs, clips = COSTS if task.C is None else (task.C,), CLIPS if task.clip is None else (task.clip,)
        search = PropensitySVMRankCV(costs=costs, clips=clips, folds=FOLDS, seed=task.seed, progress=task.progress)
        search.fit(replace(data, features=features))
        return task.ranker(search.coef_ / scale, C=search.C_, clip=search.clip_)
