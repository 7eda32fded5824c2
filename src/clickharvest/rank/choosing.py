"""Choosing a ranker by clicks: a blend of learners, compared with each of them and with the rankings that were shown.

Candidates are cross-fitted: each query is scored by models trained on other folds of the queries, and `off_policy`
estimates every candidate's metric from all clicks. Grades are not used.

The best of several noisy estimates is biased upwards. The choice therefore starts from a *blend*, the mean of the
scores of all candidates, each divided by its standard deviation within lists. A candidate replaces the blend only if it
leads by more than the standard error of the lead. The choice is trained again on all queries, trees with the mean
number of rounds at which they stopped. It is also trained on clicks at face value, to measure what propensities are
worth.

Corrected clicks of an affine model may be below 0, which likelihoods of counts refuse: these have other candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.rank.comparison import best_shown, compare_rankers, take_lists
from clickharvest.rank.data import RankingData, at_face_value
from clickharvest.rank.estimates import Estimate, ShownRanking, off_policy
from clickharvest.rank.features import Array
from clickharvest.rank.learners import train_ranker
from clickharvest.rank.rankers import Part, TrainedRanker
from clickharvest.rank.training import BoostSettings

FOLDS = 4
BLEND = "blend"
CANDIDATES = (("linear", "softmax"), ("svm", "hinge"), ("lightgbm", "softmax"), ("xgboost", "softmax"))
"""Learners with the losses that few clicks do not lead far astray."""
CORRECTED = (("svm", "hinge"), ("lightgbm", "pairwise"), ("xgboost", "pairwise"))
"""Those that learn from corrected clicks."""
SMALL = BoostSettings(rounds=200, leaves=7, rate=0.1, patience=15)
"""How trees are grown by default."""
LEADS = 1.0
"""Standard errors by which a candidate must lead the blend."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen ranker, and the estimates of all candidates.

    Attributes:
        ranker: the chosen ranker, trained on all queries.
        scores: cross-fitted scores of every candidate, [n_docs] each.
        naive: cross-fitted scores of the chosen candidate, trained on clicks at face value, [n_docs].
        estimates: the metric of every candidate and of every ranking as it was shown, by name.
        best: the name of the chosen candidate: `blend`, or `learner loss`.
        shown: the best of the rankings that were shown; None if there is none.
        gain: the metric of the choice minus that of the best shown ranking; None if there is none.
    """

    ranker: TrainedRanker
    scores: dict[str, Array]
    naive: Array
    estimates: dict[str, Estimate]
    best: str
    shown: str | None
    gain: Estimate | None

    @property
    def keep_shown(self) -> bool:
        """Whether to keep the best ranking that was shown, which the choice does not beat."""
        return self.gain is not None and self.gain.value <= 0


def installed_learners(*, complete: bool = True) -> list[str]:
    """Return the learners to choose from: trees of one library, and linear ones if no feature is missing.

    Example:
        >>> installed_learners()[0]
        'linear'
    """
    linear = ["linear"] if complete else []
    trees = [name for name in ("lightgbm", "xgboost") if find_spec(name)]
    svm = ["svm"] if complete else []
    if learners := [*linear, *svm, *trees[:1]]:
        return learners
    raise InputError("features hold missing values, which only trees take: pip install 'clickharvest[boost]'")


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
    """Train the candidates of some learners, and choose by off-policy estimates on queries not trained on.

    Args:
        data: lists and clicks, as `read_clicks` makes them.
        learners: names of learners; those whose library is missing must be left out.
        shown: rankings as they were shown, to be beaten.
        metric: a metric of `off_policy` of which higher is better.
        names: names of the features.
        settings: how trees are grown; `SMALL` by default.
        level: level of the intervals.
        seed: seed of the folds and of the learners.
        progress: shows what is being done.

    Raises:
        InputError: there are too few queries to choose by.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(200, 2))
        >>> clicks = random.poisson(np.exp(x[:, 0]))
        >>> data = ranking_data(x, np.arange(0, 201, 5), np.flatnonzero(clicks), clicks=clicks[clicks > 0],
        ...                     impressions=np.ones(40), exposure=np.ones(200))
        >>> choice = choose_ranker(data, ["linear"])
        >>> choice.best, list(choice.scores)
        ('linear softmax', ['linear softmax'])
    """
    grow = replace(settings or SMALL, seed=seed)
    known = CANDIDATES if data.shift is None else CORRECTED
    tried = [f"{learner} {loss}" for learner, loss in known if learner in learners]
    if not tried:
        raise InputError(
            f"{', '.join(learners)}: no loss of it takes corrected clicks; add svm, or trees (clickharvest[boost])"
        )
    folds, plain, rounds = _Folds(_folds(data, seed), grow, names, seed), at_face_value(data), {}
    final: dict[str, TrainedRanker] = {}
    fixed: dict[str, dict[str, float]] = {name: {} for name in tried}
    scores: dict[str, Array] = {}
    with progress("Trying learners") as update:
        for done, name in enumerate(tried):
            if name.startswith("svm"):
                # C and clip are chosen once: choosing them in every fold takes ten times as long.
                final[name] = folds.train(name, data)
                fixed[name] = {setting: final[name].settings[setting] for setting in ("C", "clip")}
            scores[name], rounds[name] = folds.cross_fit(name, data, fixed[name])
            update((done + 1) / (2 * len(tried)), name)
        if len(tried) > 1:
            scores = {BLEND: _mean(scores, data), **scores}
        arms = dict(shown or {})
        every: dict[str, Array | ShownRanking] = {**scores, **arms}
        estimates = {name: off_policy(data, ranking, metric, level=level, seed=seed) for name, ranking in every.items()}
        best = _best(data, scores, estimates, metric, seed)
        chosen = tried if best == BLEND else [best]
        naive = {}
        for done, name in enumerate(chosen):
            naive[name] = folds.cross_fit(name, plain, fixed[name])[0]
            if name not in final:
                final[name] = replace(folds, grow=replace(grow, rounds=rounds[name], held_out=0.0)).train(name, data)
            update(0.5 + (done + 1) / (2 * len(chosen)), f"{name}, at face value and on all queries")
    rival, gain = None, None
    if arms:
        (row,) = compare_rankers(data, {best: scores[best], **arms}, metrics=(metric,), level=level, seed=seed)
        rival = best_shown(row, arms)
        gain = row.differences[rival]
    ranker = blend([final[name] for name in chosen], data) if best == BLEND else final[best]
    return Choice(ranker, scores, _mean(naive, data), estimates, best, rival, gain)


@dataclass(frozen=True)
class _Folds:
    """Training of candidates, such as `linear softmax`, on folds of the queries.

    Attributes:
        fold: the fold of every list, [n_lists].
        grow: how trees are grown.
        names: names of the features.
        seed: seed of the learners.
    """

    fold: Array
    grow: BoostSettings
    names: Sequence[str] | None
    seed: int

    def train(self, name: str, data: RankingData, **fixed: Any) -> TrainedRanker:
        learner, loss = name.split()
        return train_ranker(data, learner, loss=loss, names=self.names, settings=self.grow, seed=self.seed, **fixed)

    def cross_fit(self, name: str, data: RankingData, fixed: Mapping[str, float]) -> tuple[Array, int]:
        """Return scores by models that have not seen the query, [n_docs], and the mean number of rounds of trees."""
        scores, rounds = np.empty(data.features.shape[0]), []
        for k in range(FOLDS):
            held_out = np.repeat(self.fold == k, np.diff(data.starts))
            part = self.train(name, take_lists(data, self.fold != k), **fixed)
            scores[held_out] = part.predict(data.features.take(np.flatnonzero(held_out)))
            rounds.append(part.settings.get("rounds", 0))
        return scores, max(1, round(float(np.mean(rounds))))


def _mean(scores: Mapping[str, Array], data: RankingData) -> Array:
    """Return the mean of scores, each divided by its standard deviation within lists, [n_docs]."""
    return np.asarray(sum(values / spread(values, data) for values in scores.values()), np.float64)


def blend(rankers: Sequence[TrainedRanker], data: RankingData) -> TrainedRanker:
    """Return the mean of rankers, each divided by the standard deviation of its scores within the lists of the data."""
    shares = [1 / (len(rankers) * spread(one.predict(data.features), data)) for one in rankers]
    parts = tuple(Part(share, one) for share, one in zip(shares, rankers, strict=True))
    settings = {"loss": ", ".join(f"{one.learner} {one.settings['loss']}" for one in rankers)}
    return TrainedRanker(BLEND, rankers[0].features, settings, parts)


def spread(scores: Array, data: RankingData) -> float:
    """Return the standard deviation of scores within lists; 1 where all are equal.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> spread(np.array([1.0, 3.0, 7.0, 7.0]), ranking_data([[0.0]] * 4, [0, 2, 4], [0]))
        0.7071067811865476
    """
    sizes = np.diff(data.starts)
    of_list = np.repeat(np.arange(len(sizes)), sizes)
    means = np.bincount(of_list, scores, len(sizes)) / np.maximum(sizes, 1)
    return float(np.sqrt(((scores - means[of_list]) ** 2).mean())) or 1.0


def _folds(data: RankingData, seed: int) -> Array:
    """Return the fold of every list: queries with a click are divided evenly, as estimates rest on them."""
    queries = int(data.query.max()) + 1
    clicked = np.zeros(queries, np.bool_)
    clicked[data.query[data.clicked_list[data.clicks > 0]]] = True
    if clicked.sum() < 4 * FOLDS:
        raise InputError(f"{clicked.sum()} queries with a click are too few to choose a ranker by: name a learner")
    fold = np.empty(queries)
    random = np.random.default_rng(seed)
    for some in (clicked, ~clicked):
        fold[some] = random.permutation(np.arange(some.sum()) % FOLDS)
    return fold[data.query]


def _best(
    data: RankingData, scores: Mapping[str, Array], estimates: Mapping[str, Estimate], metric: str, seed: int
) -> str:
    """Return the blend, unless the best of the others leads it by more than the standard error of the lead."""
    best = max((name for name in scores if name != BLEND), key=lambda name: estimates[name].value)
    if BLEND not in scores:
        return best
    lead = off_policy(data, scores[best], metric, baseline=scores[BLEND], seed=seed)
    return best if lead.value > LEADS * lead.std_error else BLEND
