"""Trials: a ranker trained with and without propensities, beside what was shown, on queries that it has not seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.rank.choosing import choose_ranker, installed_learners
from clickharvest.rank.comparison import NAIVE, NEW, split_lists, take_lists
from clickharvest.rank.data import RankingData, at_face_value
from clickharvest.rank.estimates import ranks
from clickharvest.rank.features import Array
from clickharvest.rank.learners import train_ranker
from clickharvest.rank.metrics import ranking_metrics

if TYPE_CHECKING:
    from clickharvest.rank.estimates import ShownRanking
    from clickharvest.rank.rankers import TrainedRanker
    from clickharvest.rank.tables import Clicks

BY_QUERY = ("ndcg@10", "map")


@dataclass(frozen=True, eq=False)
class Trial:
    """A ranker, and the scores that it is judged by.

    Attributes:
        ranker: the trained ranker.
        train: the lists that it was trained on.
        test: the lists that judge.
        held_out: which of all lists these are, [n_lists].
        scores: of the new ranker and of one that takes clicks at face value, by models that had not seen the query.
        arms: the rankings as they were shown.
        tried: where learners were compared, the worth of every candidate.
    """

    ranker: TrainedRanker
    train: RankingData
    test: RankingData
    held_out: NDArray[np.bool_]
    scores: dict[str, Array]
    arms: dict[str, ShownRanking]
    tried: list[dict[str, Any]] | None = None

    def judge(self, grades: Array, *, seed: int = 0) -> dict[str, Any]:
        """Return the metrics of every ranker on the test queries with a relevant document that all arms served.

        `relevant_rank` is what the clicks estimate under this name, the mean rank of a relevant document; the others
        are means over queries.

        Args:
            grades: of the documents of the test lists, [n].
            seed: decides between documents of equal scores.

        Raises:
            InputError: no test query has a relevant document.
        """
        starts = self.test.starts
        served = np.all([shown.served for shown in self.arms.values()], axis=0)
        relevant = grades >= 1
        judged = served & (np.add.reduceat(relevant, starts[:-1]) > 0)
        if not judged.any():
            raise InputError("no held-out query has a judged document of grade 1 or more: judge more queries")
        counted = relevant & np.repeat(judged, np.diff(starts))
        shown = {name: np.nan_to_num(arm.gains(np.reciprocal, starts)) for name, arm in self.arms.items()}
        rankers = {}
        for name, scores in {**self.scores, **shown}.items():
            by_query = ranking_metrics(scores, grades, starts, BY_QUERY, seed=seed)
            means = {metric: float(values[judged].mean()) for metric, values in by_query.items()}
            rankers[name] = {"relevant_rank": float(ranks(scores, starts, seed=seed)[counted].mean()), **means}
        return {"queries": int(judged.sum()), "rankers": rankers}


def hold_out(
    clicks: Clicks,
    learner: str,
    *,
    share: float = 0.2,
    loss: str | None = None,
    C: float | None = None,
    clip: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Trial:
    """Train a learner, with and without propensities, on all but a share of the queries, which judge.

    Args:
        clicks: clicks and documents of a log.
        learner: its name; `loss`, `C`, `clip` and `seed` are those of `train_ranker`.
        share: the share of queries that judge.
        progress: what shows progress.
    """
    held_out = split_lists(clicks.data, share, seed=seed)
    train, test = (take_lists(clicks.data, side, copy=False) for side in (~held_out, held_out))
    rankers = {}
    options: dict[str, Any] = {"loss": loss, "names": clicks.features, "C": C, "clip": clip, "seed": seed}
    for name, part in ((NEW, train), (NAIVE, at_face_value(train))):
        with progress(f"Training, {name}"):
            rankers[name] = train_ranker(part, learner, progress=progress, **options)
    scores = {name: ranker.predict(test.features) for name, ranker in rankers.items()}
    arms = {f"{name}, as shown": shown.take(held_out, clicks.data.starts) for name, shown in clicks.arms.items()}
    return Trial(rankers[NEW], train, test, held_out, scores, arms)


def try_learners(
    clicks: Clicks, *, metric: str = "dcg@10", level: float = 0.95, seed: int = 0, progress: Progress = silent
) -> Trial:
    """Try every learner that is installed on folds of the queries, and train the best on all of them."""
    data = clicks.data
    arms = {f"{name}, as shown": shown for name, shown in clicks.arms.items()}
    learners = installed_learners(complete=data.features.complete)
    choice = choose_ranker(
        data, learners, shown=arms, metric=metric, names=clicks.features, level=level, seed=seed, progress=progress
    )
    best_first = sorted(choice.estimates.items(), key=lambda pair: -pair[1].value)
    tried = [{"candidate": name, "chosen": name == choice.best, **asdict(one)} for name, one in best_first]
    scores = {NEW: choice.scores[choice.best], NAIVE: choice.naive}
    return Trial(choice.ranker, data, data, np.ones(len(data), np.bool_), scores, arms, tried)
