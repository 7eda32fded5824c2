"""Rankers by name: trained from the same clicks, asked for scores the same way, written to files.

| learner | what it is | its file |
|---|---|---|
| `svm` | `PropensitySVMRank`, C and clip by cross-validation | JSON: a weight for every feature |
| `lightgbm` | LightGBM with `PairwiseObjective` | LightGBM's own text |
| `xgboost` | XGBoost with `PairwiseObjective` | XGBoost's own JSON |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.files import atomic_path
from clickharvest.progress import Progress, Update, silent
from clickharvest.rank.boosting import PairwiseObjective
from clickharvest.rank.comparison import split_lists, take_lists
from clickharvest.rank.data import RankingData
from clickharvest.rank.endings import LEARNERS
from clickharvest.rank.features import Array, Features
from clickharvest.rank.svm.crossvalidation import CLIPS, PropensitySVMRankCV
from clickharvest.weights import choose_clip

COSTS = (0.1, 1.0, 10.0, 100.0)
FOLDS = 3


@dataclass(frozen=True)
class BoostSettings:
    """How trees are grown, the same in both libraries.

    Attributes:
        rounds: number of trees, at most.
        leaves: leaves of a tree, at most.
        rate: learning rate.
        patience: trees without an improvement on held-out clicks after which growing stops.
        held_out: share of the queries that are held out for this.
        seed: seed of the library, and of which queries are held out.
    """

    rounds: int = 300
    leaves: int = 15
    rate: float = 0.1
    patience: int = 20
    held_out: float = 0.2
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TrainedRanker:
    """A ranker that scores documents and can be written to a file; `train_ranker` makes it.

    Attributes:
        learner: one of `LEARNERS`.
        features: names of the features, in the order of columns.
        settings: what was given or chosen: C, clip.
        model: weights [F] of `svm`, the library's own booster otherwise.
    """

    learner: str
    features: tuple[str, ...]
    settings: dict[str, Any]
    model: Any

    def predict(self, features: Any) -> Array:
        """Return the scores of documents, higher is better: features [n, F] → [n]."""
        x = features if isinstance(features, Features) else Features.of(features)
        if x.shape[1] != len(self.features):
            raise InputError(f"documents have {x.shape[1]:,} features: the ranker knows {len(self.features):,}")
        if self.learner == "svm":
            return x.times(self.model)
        if self.learner == "xgboost":
            xgboost = require("xgboost", "boost", "the learner xgboost")
            return np.asarray(self.model.predict(xgboost.DMatrix(x.matrix, feature_names=list(self.features))), float)
        return np.asarray(self.model.predict(x.matrix), np.float64)

    def save(self, path: Path) -> None:
        """Write the ranker to a file, in the learner's format."""
        with atomic_path(path) as partial:
            if self.learner == "lightgbm":
                self.model.save_model(str(partial))
            elif self.learner == "xgboost":
                partial.write_bytes(self.model.save_raw("json"))
            else:
                weights = dict(zip(self.features, self.model.tolist(), strict=True))
                told = {"what": "ranker", "learner": self.learner, **self.settings, "weights": weights}
                partial.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def train_ranker(
    data: RankingData,
    learner: str = "svm",
    *,
    names: Sequence[str] | None = None,
    C: float | None = None,
    clip: float | None = None,
    settings: BoostSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedRanker:
    """Train a ranker from clicks with propensities.

    Args:
        data: lists and clicks.
        learner: one of `LEARNERS`. `svm` scales dense features by their standard deviation first; its weights are those
            of the features as they came.
        names: names of the features; `f1`, `f2` … by default.
        C: cost of errors of `svm`; chosen by cross-validation if None.
        clip: least propensity. If None, `svm` chooses it by cross-validation, the others take the least that keeps the
            effective sample size at half of the clicks (`choose_clip`).
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
        ([0.5, -0.5], {'C': 0.3, 'clip': 0.1})
    """
    if learner not in LEARNERS:
        raise InputError(f"no learner {learner!r}: expected one of {', '.join(LEARNERS)}")
    columns = tuple(names) if names is not None else tuple(f"f{j}" for j in range(1, data.features.shape[1] + 1))
    if learner == "svm":
        scaled, scale = _scaled(data.features)
        costs, clips = COSTS if C is None else (C,), CLIPS if clip is None else (clip,)
        search = PropensitySVMRankCV(costs=costs, clips=clips, folds=FOLDS, seed=seed, progress=progress)
        search.fit(replace(data, features=scaled))
        return TrainedRanker(learner, columns, {"C": search.C_, "clip": search.clip_}, search.coef_ / scale)
    if C is not None:
        raise InputError(f"C={C:g} goes with the learner svm: leave it out for {learner}")
    grow = settings or BoostSettings(seed=seed)
    train = train_lightgbm if learner == "lightgbm" else train_xgboost
    model, used = train(data, names=columns, clip=clip, settings=grow, progress=progress)
    return TrainedRanker(learner, columns, {"clip": used}, model)


def train_lightgbm(
    data: RankingData,
    *,
    names: Sequence[str] | None = None,
    clip: float | None = None,
    settings: BoostSettings | None = None,
    progress: Progress = silent,
) -> tuple[Any, float]:
    """Grow trees with LightGBM on the counterfactual loss; return its booster and the clip, see `train_ranker`."""
    lightgbm = require("lightgbm", "boost", "the learner lightgbm")
    grow = settings or BoostSettings()
    objective = PairwiseObjective()
    parts, used = _parts(data, clip, grow)
    parameters = {
        "objective": objective,
        "metric": "None",
        "num_leaves": grow.leaves,
        "learning_rate": grow.rate,
        "seed": grow.seed,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    given = "auto" if names is None else _plain_names(names)
    sets: list[Any] = []
    for part, labels in parts:
        sizes = np.diff(part.starts)
        sets.append(
            lightgbm.Dataset(
                part.features.matrix, labels, group=sizes, feature_name=given, reference=sets[0] if sets else None
            )
        )
    with progress("Growing trees") as update:
        booster = lightgbm.train(
            parameters,
            sets[0],
            num_boost_round=grow.rounds,
            valid_sets=sets[1:],
            feval=_counted(objective.metric, grow.rounds, update),
            callbacks=[lightgbm.early_stopping(grow.patience, verbose=False)],
        )
    return booster, used


def train_xgboost(
    data: RankingData,
    *,
    names: Sequence[str] | None = None,
    clip: float | None = None,
    settings: BoostSettings | None = None,
    progress: Progress = silent,
) -> tuple[Any, float]:
    """Grow trees with XGBoost on the counterfactual loss; return its booster and the clip, see `train_ranker`."""
    xgboost = require("xgboost", "boost", "the learner xgboost")
    grow = settings or BoostSettings()
    objective = PairwiseObjective()
    parts, used = _parts(data, clip, grow)
    parameters = {
        "max_leaves": grow.leaves,
        "max_depth": 0,
        "grow_policy": "lossguide",
        "tree_method": "hist",
        "learning_rate": grow.rate,
        "seed": grow.seed,
        "base_score": 0.0,
        "disable_default_eval_metric": True,
    }
    given = None if names is None else list(names)
    sets = [
        xgboost.DMatrix(part.features.matrix, labels, group=np.diff(part.starts), feature_names=given)
        for part, labels in parts
    ]
    with progress("Growing trees") as update:
        booster = xgboost.train(
            parameters,
            sets[0],
            num_boost_round=grow.rounds,
            obj=objective,
            evals=[(sets[1], "held_out")],
            custom_metric=_counted(objective.metric, grow.rounds, update),
            early_stopping_rounds=grow.patience,
            verbose_eval=False,
        )
    return booster[: booster.best_iteration + 1], used


def _counted(metric: Callable[..., Any], rounds: int, update: Update) -> Callable[..., Any]:
    """Return a metric that also tells how many rounds are done: libraries call it once after each."""
    done = 0

    def counted(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        update(done / rounds, f"round {done:,}")
        return metric(*arguments)

    return counted


def _parts(
    data: RankingData, clip: float | None, settings: BoostSettings
) -> tuple[list[tuple[RankingData, Array]], float]:
    """Return the lists to learn from and those held out, each with their labels, and the clip."""
    labels, used = click_labels(data, clip)
    held = split_lists(data, settings.held_out, seed=settings.seed)
    documents = np.repeat(held, np.diff(data.starts))
    return [(take_lists(data, which), labels[rows]) for which, rows in ((~held, ~documents), (held, documents))], used


def click_labels(data: RankingData, clip: float | None = None) -> tuple[Array, float]:
    """Return the sum of the weights of every document's clicks, [n_docs], and the clip.

    Weights are divided by their mean, so that libraries' limits on second derivatives mean the same for any propensity.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0]] * 3, [0, 3], clicked=[0, 2, 2], propensity=[1.0, 1.0, 0.25])
        >>> click_labels(data, clip=0.25)[0].tolist()
        [0.5, 0.0, 2.5]
    """
    used = clip if clip is not None else choose_clip(data.propensity, data.clicks) or 0.0
    weights = data.weights(used)
    scale = weights.sum() / max(float(data.clicks.sum()), 1.0)
    labels = np.bincount(data.clicked, weights / (scale or 1.0), data.features.shape[0])
    return np.asarray(labels, np.float64), float(used)


def _scaled(features: Features) -> tuple[Features, Array]:
    """Return dense features divided by their standard deviations, and these; sparse ones stay as they are."""
    scale = np.ones(features.shape[1])
    if issparse(features.matrix):
        return features, scale
    spread = np.asarray(features.matrix.std(axis=0, dtype=np.float64))
    scale = np.where(spread > 0, spread, 1.0)
    return Features(features.matrix / scale.astype(features.matrix.dtype)), scale


def _plain_names(names: Sequence[str]) -> list[str]:
    """Return names that LightGBM takes: it refuses some characters, and spaces would break its text."""
    plain = ["".join(c if c.isalnum() or c in "_-." else "_" for c in name) for name in names]
    return plain if len(set(plain)) == len(plain) else [f"{name}_{j}" for j, name in enumerate(plain, 1)]
