"""Tasks, losses and labels, which the learners of rankers share.

Pairwise, lambda and hinge weigh clicks by inverse propensities (`boosting`); softmax and Poisson take examination as an
offset (`offsets`) and need the exposure of every document, which `read_clicks` counts.

Corrected clicks of an affine model (`data`) may be negative. Pairwise, lambda and hinge take them, the least of each
list as 0 (`data.grounded`); softmax and Poisson are likelihoods of counts, and refuse them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clickharvest.progress import Progress, Update
from clickharvest.rank.boosting import ClickObjective, LambdaObjective, PairwiseObjective
from clickharvest.rank.comparison import split_lists, take_lists
from clickharvest.rank.data import RankingData, grounded
from clickharvest.rank.features import Array
from clickharvest.rank.offsets import OffsetObjective, PoissonObjective, SoftmaxObjective, log_offset
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.weights.clipping import vanishing_clip

OFFSETS: dict[str, OffsetObjective] = {"softmax": SoftmaxObjective(), "poisson": PoissonObjective()}
WEIGHTED: dict[str, ClickObjective] = {"pairwise": PairwiseObjective(), "lambda": LambdaObjective(at=10)}
TREE_LOSSES = (*WEIGHTED, *OFFSETS)


@dataclass(frozen=True)
class BoostSettings:
    """Settings of trees, the same in both libraries.

    Attributes:
        rounds: number of trees, at most.
        leaves: leaves of a tree, at most.
        rate: learning rate.
        patience: trees without an improvement on held-out clicks before growing stops.
        held_out: share of the queries that are held out for this; with 0, all `rounds` trees are grown on all queries.
        seed: seed of the library, and of which queries are held out.
    """

    rounds: int = 300
    leaves: int = 15
    rate: float = 0.1
    patience: int = 20
    held_out: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class Task:
    """A task of a learner.

    Attributes:
        learner: its name.
        loss: one of its losses.
        features: names of the features, [F].
        C: cost of errors of `svm`; None to choose it.
        clip: least propensity of losses that divide by it; None to choose it.
        settings: how trees are grown.
        seed: seed of folds and of held-out queries.
        progress: shows what is being done.
    """

    learner: str
    loss: str
    features: tuple[str, ...]
    C: float | None
    clip: float | None
    settings: BoostSettings
    seed: int
    progress: Progress

    def ranker(self, model: Any, **chosen: Any) -> TrainedRanker:
        """Return the ranker of a model, with what the learner chose."""
        return TrainedRanker(self.learner, self.features, {"loss": self.loss, **chosen}, model)


@dataclass(frozen=True, eq=False)
class TreeTarget:
    """The objective and labels of trees.

    Attributes:
        objective: what libraries call.
        labels: of every document, [n_docs].
        offset: scores to start from, [n_docs], None for 0.
        chosen: chosen settings, by name.
    """

    objective: ClickObjective | OffsetObjective
    labels: Array
    offset: Array | None
    chosen: dict[str, float]

    @classmethod
    def of(cls, data: RankingData, task: Task) -> TreeTarget:
        """Return the target of a task."""
        if task.loss in OFFSETS:
            return cls(OFFSETS[task.loss], data.clicks_by_document, log_offset(data), {})
        labels, clip = click_labels(data, task.clip)
        return cls(WEIGHTED[task.loss], labels, None, {"clip": clip})

    def sides(self, data: RankingData, settings: BoostSettings) -> list[tuple[RankingData, Array, Array | None]]:
        """Return the lists to learn from, and those held out to stop early if any, with their labels and offsets."""
        if settings.held_out == 0:
            return [(data, self.labels, self.offset)]
        held_out = split_lists(data, settings.held_out, seed=settings.seed)
        documents = np.repeat(held_out, np.diff(data.starts))
        return [
            (take_lists(data, which, copy=False), self.labels[rows], None if self.offset is None else self.offset[rows])
            for which, rows in ((~held_out, ~documents), (held_out, documents))
        ]

    def metric(self, rounds: int, update: Update) -> Callable[..., Any]:
        """Return the metric of the objective, which also shows how many rounds are done: it is called after each."""
        done = 0

        def metric(*arguments: Any) -> Any:
            nonlocal done
            done += 1
            update(done / rounds, f"round {done:,}")
            return self.objective.metric(*arguments)

        return metric


def click_labels(data: RankingData, clip: float | None = None) -> tuple[Array, float]:
    """Return the sum of the weights of every document's clicks, [n_docs], and the clip.

    Weights are divided by their mean, so that libraries' limits on second derivatives mean the same for any propensity.
    Of affine clicks lists are `grounded`.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0]] * 3, [0, 3], clicked=[0, 2, 2], propensity=[1.0, 1.0, 0.25])
        >>> click_labels(data, clip=0.25)[0].tolist()
        [0.5, 0.0, 2.5]
    """
    used = vanishing_clip(float(data.clicks.sum())) if clip is None else clip
    weights, clicks, n_docs = data.weights(used), max(float(data.clicks.sum()), 1.0), data.features.shape[0]
    if data.shift is not None:
        sums = grounded(np.bincount(data.clicked, weights, n_docs).astype(np.float64), data.starts)
        return sums / (sums.sum() / clicks or 1.0), float(used)
    scale = weights.sum() / clicks
    return np.asarray(np.bincount(data.clicked, weights / (scale or 1.0), n_docs), np.float64), float(used)
