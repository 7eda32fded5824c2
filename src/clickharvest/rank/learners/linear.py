"""Linear rankers by offset likelihoods: features of like size, and a penalty that held-out clicks choose."""

from __future__ import annotations

from dataclasses import replace

from clickharvest.rank.comparison import split_lists, take_lists
from clickharvest.rank.data import RankingData
from clickharvest.rank.learners import Learner, ranker_learner
from clickharvest.rank.offsets import fit_offset, log_offset
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.training import OFFSETS, Task

PENALTIES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Penalties that held-out clicks choose from."""
HELD_OUT = 1 / 3
"""Share of the queries that choose."""


@ranker_learner("linear")
class LinearLearner(Learner):
    """Weights by L-BFGS, with the penalty that explains the clicks of held-out queries best."""

    losses = ("softmax", "poisson")

    def train(self, data: RankingData, task: Task) -> TrainedRanker:
        """Return a linear ranker; its weights are those of the features as they came."""
        objective = OFFSETS[task.loss]
        features, scale = data.features.scaled()
        whole = replace(data, features=features)
        held_out = split_lists(whole, HELD_OUT, seed=task.seed)
        train, test = take_lists(whole, ~held_out), take_lists(whole, held_out)
        offset = log_offset(test)

        def held_out_loss(penalty: float) -> float:
            weights, constant = fit_offset(train, objective, penalty=penalty)
            scores = test.features.times(weights) + constant + offset
            return objective.loss(scores, test.clicks_by_document, test.starts)

        penalty = min(PENALTIES, key=held_out_loss)
        weights, _ = fit_offset(whole, objective, penalty=penalty)
        return task.ranker(weights / scale, penalty=penalty)
