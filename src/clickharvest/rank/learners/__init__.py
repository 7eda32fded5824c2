"""Learners of rankers. This folder is the list of them: one module each, named like the learner.

A module defines one class, marked with `ranker_learner`: its losses, and how it trains a ranker from clicks.

    @ranker_learner("learner")
    class NewLearner(Learner):
        losses = ("softmax",)

        def train(self, data, task): ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from clickharvest.registry import Registry

if TYPE_CHECKING:
    from clickharvest.rank.data import RankingData
    from clickharvest.rank.rankers import TrainedRanker
    from clickharvest.rank.training import Task


class Learner(ABC):
    """A learner of rankers.

    Attributes:
        losses: what it can minimise, its default first.
        library: the optional package it needs, if any.
    """

    losses: ClassVar[tuple[str, ...]]
    library: ClassVar[str | None] = None

    @abstractmethod
    def train(self, data: RankingData, task: Task) -> TrainedRanker:
        """Train a ranker from clicks on documents that were shown."""


LearnerClass = TypeVar("LearnerClass", bound=type[Learner])

LEARNERS: Registry[type[Learner]] = Registry("learner", __name__)
"""The learners by name; a module is imported when its learner is looked up."""


def ranker_learner(name: str) -> Callable[[LearnerClass], LearnerClass]:
    """Mark a learner, and add it to `LEARNERS`."""

    def mark(learner: LearnerClass) -> LearnerClass:
        LEARNERS.add(name, learner)
        return learner

    return mark
