"""XGBoost's trees, grown for our objectives."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickharvest.extras import require
from clickharvest.rank.data import RankingData
from clickharvest.rank.learners import Learner, ranker_learner
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.training import TREE_LOSSES, Task, TreeTarget


@ranker_learner("xgboost")
class XGBoostLearner(Learner):
    """Trees of XGBoost."""

    losses = TREE_LOSSES
    library = "xgboost"

    def train(self, data: RankingData, task: Task) -> TrainedRanker:
        """Return trees, grown until held-out clicks no longer gain."""
        xgboost = require("xgboost", "boost", "the learner xgboost")
        target, settings = TreeTarget.of(data, task), task.settings
        parameters = {
            "max_leaves": settings.leaves,
            "max_depth": 0,
            "grow_policy": "lossguide",
            "tree_method": "hist",
            "learning_rate": settings.rate,
            "seed": settings.seed,
            "base_score": 0.0,
            "disable_default_eval_metric": True,
        }
        sets: list[Any] = []
        for part, labels, offset in target.sides(data, settings):
            # Of a plain DMatrix, XGBoost keeps eight bytes a feature; of a quantised one, a byte or two.
            lists = {"group": np.diff(part.starts), "base_margin": offset, "ref": sets[0] if sets else None}
            names = list(task.features)
            sets.append(xgboost.QuantileDMatrix(part.features.matrix, labels, feature_names=names, **lists))
        with task.progress("Growing trees") as update:
            booster = xgboost.train(
                parameters,
                sets[0],
                num_boost_round=settings.rounds,
                obj=target.objective,
                evals=[(part, "held_out") for part in sets[1:]],
                custom_metric=target.metric(settings.rounds, update),
                early_stopping_rounds=settings.patience if sets[1:] else None,
                verbose_eval=False,
            )
        if sets[1:]:
            booster = booster[: booster.best_iteration + 1]
        return task.ranker(booster, **target.chosen, rounds=booster.num_boosted_rounds())
