"""Choosing a ranker by clicks: which learner, loss and clip, and whether it beats what was shown.

Every candidate is trained on all but one fold of the queries and scores that fold; so each query is ranked by models
that have not seen it, and `off_policy` estimates what each candidate is worth from all clicks. Grades decide nothing.

Such estimates are noisy, and the best of many is better than it is by luck. So the choice starts from a *blend*, the
mean of the scores of the steady candidates (`BLENDED`), each divided by its standard deviation within lists; rankers
err differently, and a mean errs less. Another candidate is taken only where its lead over the blend is larger than the
standard error of that lead. What is chosen is trained again on all queries, trees with the mean number of rounds at
which they stopped. Where it does not beat the best ranking that was shown, the advice is to keep that.

Losses that cannot learn from corrected clicks of an affine model are left out where there are such, and told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

import numpy as np

from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.rank.comparison import NAIVE, take_lists
from clickharvest.rank.data import RankingData, at_face_value
from clickharvest.rank.endings import LOSSES
from clickharvest.rank.estimates import Estimate, off_policy
from clickharvest.rank.features import Array
from clickharvest.rank.learners import NO_COUNTS, WEIGHTED, BoostSettings, refuses_shift, train_ranker
from clickharvest.rank.rankers import Part, TrainedRanker
from clickharvest.rank.shown import ShownRanking

FOLDS = 4
CLIPS = (None, 0.1)
"""Clips of losses that divide by propensities: one that vanishes as clicks grow in number, and a high one."""
BLEND = "blend"
BLENDED = ("linear softmax", "svm hinge", "lightgbm robust", "xgboost robust", "lightgbm softmax", "xgboost softmax")
"""Candidates that are blended: those that few clicks do not lead far astray."""
SLOW = BoostSettings(rounds=400, rate=0.05, patience=30)
"""How trees are grown unless told otherwise."""
LEADS = 1.0
"""Standard errors by which a candidate must lead the blend."""


@dataclass(frozen=True)
class Candidate:
    """What is tried.

    Attributes:
        learner: one of `LEARNERS`.
        loss: one of its `LOSSES`.
        clip: least propensity to divide by; None where there is none, or one that vanishes.
        naive: whether clicks are taken at face value.
    """

    learner: str
    loss: str
    clip: float | None = None
    naive: bool = False

    def __str__(self) -> str:
        clip = "" if self.clip is None else f", clip {self.clip:g}"
        return f"{self.learner} {self.loss}{clip}{f', {NAIVE}' * self.naive}"

    def train(
        self, data: RankingData, settings: BoostSettings, seed: int, names: Sequence[str] | None = None
    ) -> TrainedRanker:
        """Train it."""
        own = at_face_value(data) if self.naive else data
        return train_ranker(
            own, self.learner, loss=self.loss, clip=self.clip, names=names, settings=settings, seed=seed
        )


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, and how the others did.

    Attributes:
        ranker: what was chosen, trained on all queries.
        scores: scores of every candidate by models that had not seen the query, [n_docs] each.
        estimates: what every candidate is worth, by its name; and every ranking as it was shown, by its name.
        best: the name of what was chosen: `blend`, or `learner loss`.
        shown: the best ranking that was shown; None where there is none.
        gain: what was chosen minus the best shown ranking; None likewise.
        left_out: candidates that were not tried, and why, by their names.
    """

    ranker: TrainedRanker
    scores: dict[str, Array]
    estimates: dict[str, Estimate]
    best: str
    shown: str | None
    gain: Estimate | None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def naive(self) -> str:
        """The name of the best candidate that takes clicks at face value."""
        naive = [name for name in self.scores if name.endswith(NAIVE)]
        return max(naive, key=lambda name: self.estimates[name].value)

    @property
    def keep_shown(self) -> bool:
        """Whether to keep the best ranking that was shown: what was chosen does not beat it."""
        return self.gain is not None and self.gain.value <= 0


def installed_learners(*, complete: bool = True) -> list[str]:
    """Return the learners to choose from: trees of one library are enough; linear ones need features that are complete.

    Example:
        >>> installed_learners()[0]
        'linear'
    """
    linear = ["linear"] if complete else []
    trees = [name for name in ("lightgbm", "xgboost") if find_spec(name)]
    svm = ["svm"] if complete else []
    if found := [*linear, *svm, *trees[:1]]:
        return found
    raise InputError("features hold missing values, which only trees take: pip install 'clickharvest[boost]'")


def candidates_of(learners: Sequence[str]) -> list[Candidate]:
    """Return what is tried of some learners: every loss, with clips where it divides by propensities.

    Example:
        >>> [str(one) for one in candidates_of(["linear", "svm"])]
        ['linear softmax', 'linear poisson', 'svm hinge', 'svm hinge, naive clicks']
    """
    found = [
        Candidate(learner, loss, clip)
        for learner in learners
        for loss in LOSSES[learner]
        for clip in (CLIPS if loss in WEIGHTED else (None,))
    ]
    weighing = [one for one in found if one.clip is None and one.loss in ("pairwise", "hinge")]
    return [*found, *(replace(one, naive=True) for one in weighing or found[:1])]


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
        settings: how trees are grown; `SLOW` by default.
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
        ('linear poisson', ['linear softmax', 'linear poisson', 'linear softmax, naive clicks'])
    """
    grow = replace(settings or SLOW, seed=seed)
    every_one = candidates_of(learners)
    left_out = [one for one in every_one if data.shift is not None and not one.naive and refuses_shift(one.loss)]
    tried = {str(one): one for one in every_one if one not in left_out}
    if all(one.naive for one in tried.values()):
        raise InputError(f"{', '.join(learners)}: every loss is {NO_COUNTS}; add svm, or trees (clickharvest[boost])")
    fold = _folds(data, seed)
    scores = {name: np.empty(data.features.shape[0]) for name in tried}
    rounds: dict[str, list[int]] = {name: [] for name in tried}
    with progress("Trying learners") as update:
        for done, (name, candidate) in enumerate(tried.items()):
            for k in range(FOLDS):
                held = fold == k
                part = candidate.train(take_lists(data, ~held), grow, seed)
                rows = np.repeat(held, np.diff(data.starts))
                scores[name][rows] = part.predict(data.features.take(np.flatnonzero(rows)))
                rounds[name].append(part.settings.get("rounds", 0))
                update((done + (k + 1) / FOLDS) / len(tried), name)
    blended = [name for name in tried if name in BLENDED]
    if len(blended) > 1:
        scores = {BLEND: np.asarray(sum(scores[name] / spread(scores[name], data) for name in blended)), **scores}
    arms = dict(shown or {})
    every: dict[str, Array | ShownRanking] = {**scores, **arms}
    estimates = {name: off_policy(data, own, metric, level=level, seed=seed) for name, own in every.items()}
    best = _best(data, scores, estimates, metric, seed)
    rival = max(arms, key=lambda name: estimates[name].value) if arms else None
    gain = None
    if rival is not None:
        gain = off_policy(data, scores[best], metric, baseline=arms[rival], level=level, seed=seed)
    with progress("Training on all queries") as update:
        trained = []
        for name in blended if best == BLEND else [best]:
            mean = max(1, round(float(np.mean(rounds[name]))))
            trained.append(tried[name].train(data, replace(grow, rounds=mean, held_out=0.0), seed, names))
            update(len(trained) / max(1, len(blended)), name)
    ranker = trained[0] if best != BLEND else blend(trained, data)
    return Choice(ranker, scores, estimates, best, rival, gain, {str(one): NO_COUNTS for one in left_out})


def blend(rankers: Sequence[TrainedRanker], data: RankingData) -> TrainedRanker:
    """Return the mean of rankers, each divided by the standard deviation of its scores within the lists of the data."""
    shares = [1 / (len(rankers) * spread(one.predict(data.features), data)) for one in rankers]
    parts = tuple(Part(share, one) for share, one in zip(shares, rankers, strict=True))
    told = {"loss": ", ".join(f"{one.learner} {one.settings['loss']}" for one in rankers)}
    return TrainedRanker(BLEND, rankers[0].features, told, parts)


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
