"""Linear rankers by offset likelihoods: features of like size, and a penalty that held-out clicks choose."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from clickharvest.rank.comparison import split_lists, take_lists
from clickharvest.rank.data import RankingData
from clickharvest.rank.features import Array, Features
from clickharvest.rank.offsets import OffsetObjective, fit_offset, log_offset

PENALTIES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Penalties of a linear ranker that held-out clicks choose from."""
HELD_OUT = 1 / 3
"""Share of the queries that choose."""
ROUNDING = 1e-7
"""A column that varies by less than this share of its mean is constant: that is rounding."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear function of features as they came.

    Attributes:
        weights: one for each feature, [F].
        constant: what is added.
        penalty: λ, for features of standard deviation 1.
    """

    weights: Array
    constant: float
    penalty: float

    def scores(self, features: Features) -> Array:
        """Return w x + c, [n_docs]."""
        return features.times(self.weights) + self.constant


def fit_linear(data: RankingData, objective: OffsetObjective, *, seed: int = 0) -> LinearFit:
    """Fit a linear function with the penalty that explains the clicks of held-out queries best.

    Args:
        data: lists and clicks, with exposures.
        objective: the softmax or Poisson objective.
        seed: seed of the queries held out.
    """
    features, scale = scaled(data.features)
    whole = replace(data, features=features)
    held = split_lists(whole, HELD_OUT, seed=seed)
    train, test = take_lists(whole, ~held), take_lists(whole, held)
    offset = log_offset(test)

    def held_out(penalty: float) -> float:
        weights, constant = fit_offset(train, objective, penalty=penalty)
        return objective.loss(test.features.times(weights) + constant + offset, test.clicks_by_document, test.starts)

    penalty = min(PENALTIES, key=held_out)
    weights, constant = fit_offset(whole, objective, penalty=penalty)
    return LinearFit(weights / scale, constant, penalty)


def scaled(features: Features) -> tuple[Features, Array]:
    """Return dense features divided by their standard deviations, and these; sparse ones stay as they are."""
    features.require_complete()
    n_docs, n_features = features.shape
    if issparse(features.base):
        return features, np.ones(n_features)
    total, squares = np.zeros(n_features), np.zeros(n_features)
    for panel in features.panels():
        total += panel.sum(axis=0, dtype=np.float64)
    for panel in features.panels():
        squares += np.square(panel - total / n_docs).sum(axis=0, dtype=np.float64)
    spread = np.sqrt(squares / n_docs)
    scale = np.where(spread > ROUNDING * np.abs(total / n_docs), spread, 1.0)
    return replace(features, scale=scale), scale
