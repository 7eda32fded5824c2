"""LightGBM's trees, grown for our objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.rank.data import RankingData
from clickharvest.rank.learners import Learner, ranker_learner
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.training import TREE_LOSSES, Task, TreeTarget


@ranker_learner("lightgbm")
class LightGBMLearner(Learner):
    """Trees of LightGBM."""

    losses = TREE_LOSSES
    library = "lightgbm"

    def train(self, data: RankingData, task: Task) -> TrainedRanker:
        """Return trees, grown until held-out clicks no longer gain."""
        lightgbm = require("lightgbm", "boost", "the learner lightgbm")
        target, settings, names = TreeTarget.of(data, task), task.settings, task.features
        parameters = {
            "metric": "None",
            "num_leaves": settings.leaves,
            "learning_rate": settings.rate,
            "seed": settings.seed,
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }
        sets: list[Any] = []
        for part, labels, offset in target.sides(data, settings):
            lists = {"group": np.diff(part.starts), "init_score": offset, "reference": sets[0] if sets else None}
            made = lightgbm.Dataset(
                part.features.matrix, labels, feature_name=plain_names(names), params=parameters, **lists
            )
            sets.append(made.construct())  # which drops the features before those of the next are copied
        if not any(sets[0].feature_num_bin(i) for i in range(len(names))):
            raise InputError(
                f"no feature divides the {sets[0].num_data():,} documents into groups that are large enough for "
                "LightGBM: give more documents or features, or choose the learner linear"
            )
        with task.progress("Growing trees") as update:
            booster = lightgbm.train(
                parameters | {"objective": target.objective},
                sets[0],
                num_boost_round=settings.rounds,
                valid_sets=sets[1:],
                feval=target.metric(settings.rounds, update),
                callbacks=[lightgbm.early_stopping(settings.patience, verbose=False)] if sets[1:] else [],
            )
        return task.ranker(booster, **target.chosen, rounds=booster.best_iteration if sets[1:] else booster.num_trees())


def plain_names(names: Sequence[str]) -> list[str]:
    """Return names that LightGBM takes: it refuses some characters, and spaces would break its text."""
    plain = ["".join(c if c.isalnum() or c in "_-." else "_" for c in name) for name in names]
    return plain if len(set(plain)) == len(plain) else [f"{name}_{j}" for j, name in enumerate(plain, 1)]
