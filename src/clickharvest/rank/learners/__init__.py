"""Learners of rankers. This folder is the list of them: one module each, named like the learner.

A module defines one class, marked with `ranker_learner`: its losses, and how it trains a ranker from clicks.

    @ranker_learner("learner")
    class NewLearner(Learner):
        losses = ("softmax",)

        def train(self, data, task): ...

`train_ranker` trains one of them by its name; `rankers` has what they become.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.registry import Registry

if TYPE_CHECKING:
    from clickharvest.rank.data import RankingData
    from clickharvest.rank.rankers import TrainedRanker
    from clickharvest.rank.training import BoostSettings, Task


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


def train_ranker(
    data: RankingData,
    learner: str = "svm",
    *,
    loss: str | None = None,
    names: Sequence[str] | None = None,
    C: float | None = None,
    clip: float | None = None,
    settings: BoostSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedRanker:
    """Train a ranker from clicks with propensities; documents that were never shown teach it nothing.

    Args:
        data: lists and clicks.
        learner: one of `LEARNERS`. `svm` and `linear` scale dense features by their standard deviations first; their
            weights are those of the features as they came.
        loss: one of the learner's `losses`; its first by default.
        names: names of the features; `f1`, `f2` … by default.
        C: cost of errors of `svm`; chosen by cross-validation if None.
        clip: least propensity of losses that divide by it. If None, `svm` chooses it by cross-validation, the others
            take 1 / √clicks, see `vanishing_clip`.
        settings: how trees are grown.
        seed: seed of folds and of libraries.
        progress: shows what is being done, see `clickharvest.progress`; nothing by default.

    Raises:
        InputError: there is no such learner, or its library is not installed.
        NotIdentifiedError: no clicked document has a rival.

    Example:
        >>> from clickharvest.rank import ranking_data
        >>> data = ranking_data([[1.0, 0.0], [0.0, 1.0]], [0, 2], clicked=[0, 0, 1], propensity=[0.5, 1.0, 1.0])
        >>> ranker = train_ranker(data, names=["price", "stars"], C=0.3, clip=0.1)
        >>> ranker.predict([[1.0, 0.0], [0.0, 1.0]]).round(3).tolist(), ranker.settings
        ([0.5, -0.5], {'loss': 'hinge', 'C': 0.3, 'clip': 0.1})
    """
    from clickharvest.rank.data import shown_documents
    from clickharvest.rank.training import OFFSETS, BoostSettings, Task

    kind = LEARNERS.find(learner)
    loss = kind.losses[0] if loss is None else loss
    if loss not in kind.losses:
        raise InputError(f"no loss {loss!r} of {learner}: expected one of {', '.join(kind.losses)}")
    if C is not None and learner != "svm":
        raise InputError(f"C={C:g} goes with the learner svm: leave it out for {learner}")
    if clip is not None and loss in OFFSETS:
        raise InputError(f"clip={clip:g} goes with losses that divide by propensities; {loss} does not")
    if data.shift is not None and loss in OFFSETS:
        raise InputError(
            f"the loss {loss} is a likelihood of counts, and corrected clicks of an affine model may be below 0: use "
            "--learner svm, or trees with --loss pairwise or lambda"
        )
    data = shown_documents(data)
    features = tuple(names) if names is not None else tuple(f"f{j}" for j in range(1, data.features.shape[1] + 1))
    task = Task(learner, loss, features, C, clip, settings or BoostSettings(seed=seed), seed, progress)
    return kind().train(data, task)
