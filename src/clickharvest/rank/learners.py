"""Rankers by name, trained from the same clicks; `rankers` has what they become.

| learner | what it is | losses |
|---|---|---|
| `linear` | weights by our own solver | softmax, poisson |
| `svm` | `PropensitySVMRank`, C and clip by cross-validation | hinge |
| `lightgbm` | LightGBM's trees | pairwise, lambda, softmax, poisson |
| `xgboost` | XGBoost's trees | pairwise, lambda, softmax, poisson |

Pairwise, lambda and hinge weigh clicks by inverse propensities (`boosting`); softmax and Poisson know examination as an
offset (`offsets`) and need the exposure of every document, which `read_clicks` finds.

Corrected clicks of an affine model (`data`) may be negative. Pairwise, lambda and hinge take them, the least of each
list as 0 (`data.grounded`); softmax and Poisson are likelihoods of counts, and refuse them (`refuses_shift`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.progress import Progress, Update, silent
from clickharvest.rank.boosting import ClickObjective, LambdaObjective, PairwiseObjective
from clickharvest.rank.comparison import split_lists, take_lists
from clickharvest.rank.data import RankingData, grounded, shown_documents
from clickharvest.rank.endings import LEARNERS, LOSSES
from clickharvest.rank.features import Array
from clickharvest.rank.linear import fit_linear, scaled
from clickharvest.rank.offsets import OffsetObjective, PoissonObjective, SoftmaxObjective, log_offset
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.svm import CLIPS, PropensitySVMRankCV
from clickharvest.weights.clipping import vanishing_clip

OFFSETS: dict[str, OffsetObjective] = {"softmax": SoftmaxObjective(), "poisson": PoissonObjective()}
WEIGHTED: dict[str, ClickObjective] = {"pairwise": PairwiseObjective(), "lambda": LambdaObjective(at=10)}
COSTS = (0.1, 1.0, 10.0, 100.0)
FOLDS = 3


NO_COUNTS = "a likelihood of counts, which corrected clicks of an affine model, some below 0, are not"


def refuses_shift(loss: str) -> bool:
    """Return whether a loss cannot learn from the corrected clicks of an affine model.

    Example:
        >>> refuses_shift("softmax"), refuses_shift("lambda")
        (True, False)
    """
    return loss in OFFSETS


@dataclass(frozen=True)
class BoostSettings:
    """How trees are grown, the same in both libraries.

    Attributes:
        rounds: number of trees, at most.
        leaves: leaves of a tree, at most.
        rate: learning rate.
        patience: trees without an improvement on held-out clicks after which growing stops.
        held_out: share of the queries that are held out for this; with 0, all `rounds` trees are grown on all queries.
        seed: seed of the library, and of which queries are held out.
    """

    rounds: int = 300
    leaves: int = 15
    rate: float = 0.1
    patience: int = 20
    held_out: float = 0.2
    seed: int = 0


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
        learner: one of `LEARNERS`. `svm` scales dense features by their standard deviation first; its weights are those
            of the features as they came; so does `linear`.
        loss: one of `LOSSES` of the learner; its first by default.
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
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[1.0, 0.0], [0.0, 1.0]], [0, 2], clicked=[0, 0, 1], propensity=[0.5, 1.0, 1.0])
        >>> ranker = train_ranker(data, names=["price", "stars"], C=0.3, clip=0.1)
        >>> ranker.predict([[1.0, 0.0], [0.0, 1.0]]).round(3).tolist(), ranker.settings
        ([0.5, -0.5], {'loss': 'hinge', 'C': 0.3, 'clip': 0.1})
    """
    if learner not in LEARNERS:
        raise InputError(f"no learner {learner!r}: expected one of {', '.join(LEARNERS)}")
    loss = LOSSES[learner][0] if loss is None else loss
    if loss not in LOSSES[learner]:
        raise InputError(f"no loss {loss!r} of {learner}: expected one of {', '.join(LOSSES[learner])}")
    if C is not None and learner != "svm":
        raise InputError(f"C={C:g} goes with the learner svm: leave it out for {learner}")
    data = shown_documents(data)
    columns = tuple(names) if names is not None else tuple(f"f{j}" for j in range(1, data.features.shape[1] + 1))
    told: dict[str, Any] = {"loss": loss}
    if clip is not None and loss not in (*WEIGHTED, "hinge"):
        raise InputError(f"clip={clip:g} goes with losses that divide by propensities; {loss} does not")
    if data.shift is not None and refuses_shift(loss):
        raise InputError(f"the loss {loss} is {NO_COUNTS}: use --learner svm, or trees with --loss pairwise or lambda")
    if learner == "linear":
        fitted = fit_linear(data, OFFSETS[loss], seed=seed)
        return TrainedRanker(learner, columns, told | {"penalty": fitted.penalty}, fitted.weights)
    if learner == "svm":
        features, scale = scaled(data.features)
        costs, clips = COSTS if C is None else (C,), CLIPS if clip is None else (clip,)
        search = PropensitySVMRankCV(costs=costs, clips=clips, folds=FOLDS, seed=seed, progress=progress)
        search.fit(replace(data, features=features))
        return TrainedRanker(learner, columns, told | {"C": search.C_, "clip": search.clip_}, search.coef_ / scale)
    grow = settings or BoostSettings(seed=seed)
    target = _Target.of(data, loss, clip)
    train = _grow_lightgbm if learner == "lightgbm" else _grow_xgboost
    model, rounds = train(data, target, columns, grow, progress)
    return TrainedRanker(learner, columns, told | target.told | {"rounds": rounds}, model)


@dataclass(frozen=True, eq=False)
class _Target:
    """What trees are grown for.

    Attributes:
        objective: what libraries call.
        labels: of every document, [n_docs].
        offset: scores to start from, [n_docs], None for 0.
        told: what was chosen.
    """

    objective: ClickObjective | OffsetObjective
    labels: Array
    offset: Array | None
    told: dict[str, Any]

    @classmethod
    def of(cls, data: RankingData, loss: str, clip: float | None) -> _Target:
        if loss in OFFSETS:
            return cls(OFFSETS[loss], data.clicks_by_document, log_offset(data), {})
        labels, used = click_labels(data, clip)
        return cls(WEIGHTED[loss], labels, None, {"clip": used})

    def sides(self, data: RankingData, settings: BoostSettings) -> list[tuple[RankingData, Array, Array | None]]:
        """Return the lists to learn from, and those held out to stop early if any, with their labels and offsets."""
        if settings.held_out == 0:
            return [(data, self.labels, self.offset)]
        held = split_lists(data, settings.held_out, seed=settings.seed)
        documents = np.repeat(held, np.diff(data.starts))
        return [
            (take_lists(data, which, copy=False), self.labels[rows], None if self.offset is None else self.offset[rows])
            for which, rows in ((~held, ~documents), (held, documents))
        ]


def _grow_lightgbm(
    data: RankingData, target: _Target, names: Sequence[str], settings: BoostSettings, progress: Progress
) -> tuple[Any, int]:
    lightgbm = require("lightgbm", "boost", "the learner lightgbm")
    parameters = {
        "objective": target.objective,
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
        own = {"group": np.diff(part.starts), "init_score": offset, "reference": sets[0] if sets else None}
        plain = {name: value for name, value in parameters.items() if name != "objective"}
        made = lightgbm.Dataset(part.features.matrix, labels, feature_name=_plain_names(names), params=plain, **own)
        sets.append(made.construct())  # which drops the features before those of the next are copied
    if not any(sets[0].feature_num_bin(i) for i in range(len(names))):
        raise InputError(
            f"no feature divides the {sets[0].num_data():,} documents into groups that are large enough for LightGBM: "
            "give more documents or features, or choose the learner linear"
        )
    with progress("Growing trees") as update:
        booster = lightgbm.train(
            parameters,
            sets[0],
            num_boost_round=settings.rounds,
            valid_sets=sets[1:],
            feval=_counted(target.objective.metric, settings.rounds, update),
            callbacks=[lightgbm.early_stopping(settings.patience, verbose=False)] if sets[1:] else [],
        )
    return booster, booster.best_iteration if sets[1:] else booster.num_trees()


def _grow_xgboost(
    data: RankingData, target: _Target, names: Sequence[str], settings: BoostSettings, progress: Progress
) -> tuple[Any, int]:
    xgboost = require("xgboost", "boost", "the learner xgboost")
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
        own = {"group": np.diff(part.starts), "base_margin": offset, "ref": sets[0] if sets else None}
        sets.append(xgboost.QuantileDMatrix(part.features.matrix, labels, feature_names=list(names), **own))
    with progress("Growing trees") as update:
        booster = xgboost.train(
            parameters,
            sets[0],
            num_boost_round=settings.rounds,
            obj=target.objective,
            evals=[(part, "held_out") for part in sets[1:]],
            custom_metric=_counted(target.objective.metric, settings.rounds, update),
            early_stopping_rounds=settings.patience if sets[1:] else None,
            verbose_eval=False,
        )
    if sets[1:]:
        booster = booster[: booster.best_iteration + 1]
    return booster, booster.num_boosted_rounds()


def _counted(metric: Callable[..., Any], rounds: int, update: Update) -> Callable[..., Any]:
    """Return a metric that also tells how many rounds are done: libraries call it once after each."""
    done = 0

    def counted(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        update(done / rounds, f"round {done:,}")
        return metric(*arguments)

    return counted


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


def _plain_names(names: Sequence[str]) -> list[str]:
    """Return names that LightGBM takes: it refuses some characters, and spaces would break its text."""
    plain = ["".join(c if c.isalnum() or c in "_-." else "_" for c in name) for name in names]
    return plain if len(set(plain)) == len(plain) else [f"{name}_{j}" for j, name in enumerate(plain, 1)]
