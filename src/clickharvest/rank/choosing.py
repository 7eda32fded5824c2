"""Choosing a ranker by clicks: which learner and loss, and whether it beats what was shown.

Every candidate is trained on all but one fold of the queries and scores that fold; so each query is ranked by models
that have not seen it, and `off_policy` estimates what each candidate is worth from all clicks. Grades decide nothing.
The best candidate is trained again on all queries. Where its lead over the best shown ranking is not certain, the
advice is to keep that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.rank.comparison import take_lists
from clickharvest.rank.data import RankingData
from clickharvest.rank.endings import LOSSES
from clickharvest.rank.estimates import Estimate, off_policy
from clickharvest.rank.features import Array
from clickharvest.rank.learners import BoostSettings, train_ranker
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.shown import ShownRanking

FOLDS = 3


@dataclass(frozen=True)
class Choice:
    """What was chosen, and how the others did.

    Attributes:
        ranker: the best candidate, trained on all queries.
        estimates: what every candidate is worth, by `learner loss`; and every ranking as it was shown, by its name.
        best: the best candidate, `learner loss`.
        shown: the best ranking that was shown; None where there is none.
        gain: the best candidate minus the best shown ranking; None likewise.
    """

    ranker: TrainedRanker
    estimates: dict[str, Estimate]
    best: str
    shown: str | None
    gain: Estimate | None

    @property
    def keep_shown(self) -> bool:
        """Whether to keep the best ranking that was shown: the candidate is not certain to be better."""
        return self.gain is not None and self.gain.lower <= 0


def choose_ranker(
    data: RankingData,
    learners: Sequence[str],
    *,
    shown: Mapping[str, ShownRanking] | None = None,
    metric: str = "dcg@10",
    names: Sequence[str] | None = None,
    settings: BoostSettings | None = None,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress = silent,
) -> Choice:
    """Train the learners with each of their losses, and choose by off-policy estimates on queries not trained on.

    Args:
        data: lists and clicks, as `read_clicks` makes them.
        learners: names of learners; those whose library is missing must be left out.
        shown: rankings as they were shown, to be beaten.
        metric: what counts, as in `off_policy`; higher is better.
        names: names of the features.
        settings: how trees are grown.
        level: level of the interval of the gain.
        seed: seed of the folds and of the learners.
        progress: shows what is being done.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(200, 2))
        >>> clicks = random.poisson(np.exp(x[:, 0]))
        >>> data = ranking_data(x, np.arange(0, 201, 5), np.flatnonzero(clicks), clicks=clicks[clicks > 0],
        ...                     impressions=np.ones(40), exposure=np.ones(200))
        >>> choice = choose_ranker(data, ["linear"])
        >>> choice.best, choice.ranker.learner
        ('linear softmax', 'linear')
    """
    queries = np.unique(data.query)
    if len(queries) < 2 * FOLDS:
        raise InputError(f"{len(queries)} queries are too few to choose a ranker by: name a learner")
    fold = np.random.default_rng(seed).permutation(np.arange(len(queries)) % FOLDS)[data.query]
    candidates = [(learner, loss) for learner in learners for loss in LOSSES[learner]]
    scores: dict[str, Array] = {}
    with progress("Trying learners") as update:
        for done, (learner, loss) in enumerate(candidates):
            own = np.empty(data.features.shape[0])
            for k in range(FOLDS):
                held = fold == k
                part = train_ranker(take_lists(data, ~held), learner, loss=loss, settings=settings, seed=seed)
                rows = np.repeat(held, np.diff(data.starts))
                own[rows] = part.predict(data.features.take(np.flatnonzero(rows)))
                update((done + (k + 1) / FOLDS) / len(candidates), f"{learner} {loss}")
            scores[f"{learner} {loss}"] = own
    arms = dict(shown or {})
    every: dict[str, Array | ShownRanking] = {**scores, **arms}
    estimates = {name: off_policy(data, own, metric, level=level, seed=seed) for name, own in every.items()}
    best = max(scores, key=lambda name: estimates[name].value)
    rival = max(arms, key=lambda name: estimates[name].value) if arms else None
    gain = None
    if rival is not None:
        gain = off_policy(data, scores[best], metric, baseline=arms[rival], level=level, seed=seed)
    learner, loss = best.split()
    with progress("Training on all queries"):
        ranker = train_ranker(data, learner, loss=loss, names=names, settings=settings, seed=seed)
    return Choice(ranker, estimates, best, rival, gain)
