"""Doubly robust relevance of affine clicks: a regression on the features, corrected by corrected clicks.

What affine clicks leave of a document's clicks, C_d − B_d, has the expectation E_d c_d and may be negative, so that it
is no Poisson count; its variance is that of C_d, about E_d s² with s² = Σ C / Σ E. Relevance c_d is drawn towards a
linear regression m_d on the features by as much as the clicks ask for:

    (C_d − B_d) / E_d ~ N(m_d, τ² + s² / E_d)      r_d = (C_d − B_d + κ m_d) / (E_d + κ),   κ = s² / τ²

This is the posterior mean of c_d ~ N(m_d, τ²); τ² is the most likely one. With many examinations r_d is
(C_d − B_d) / E_d, whatever the regression says. It may be negative: c has no zero that is known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from clickharvest.rank.comparison import split_lists, take_lists
from clickharvest.rank.data import RankingData
from clickharvest.rank.features import Array
from clickharvest.rank.linear import HELD_OUT, PENALTIES, filled, scaled

WORTH = (-4.0, 14.0)
"""Least and largest log κ."""


def corrected_relevance(data: RankingData, *, seed: int = 0) -> tuple[Array, float, Array]:
    """Return m of every document, κ, and r; documents that were never shown have r = m.

    Args:
        data: lists and clicks with a shift, and the exposure of every document.
        seed: seed of the queries that choose the penalty of the regression.

    Example:
        Relevance is x; the last document was hardly seen, and is believed to be what its feature says.

        >>> from clickharvest.rank.data import ranking_data
        >>> x, seen = np.tile([0.1, 0.2, 0.3, 0.4], 50), np.tile([100.0, 100.0, 100.0, 0.1], 50)
        >>> shift = np.full(200, -2.0)
        >>> data = ranking_data(x[:, None], np.arange(0, 201, 4), np.arange(200), seen / 100, clicks=seen * x,
        ...                     impressions=np.full(50, 100), exposure=seen, shift=0.01 * seen)
        >>> corrected_relevance(data)[2][:4].round(2).tolist()
        [0.09, 0.19, 0.29, 0.39]
    """
    features, _ = scaled(filled(data.features))
    whole = replace(data, features=features)
    held = split_lists(whole, HELD_OUT, seed=seed)
    train, test = take_lists(whole, ~held), take_lists(whole, held)
    own, seen = _sums(test)

    def held_out(penalty: float) -> float:
        weights, constant = _regress(train, penalty)
        mean = test.features.times(weights) + constant
        return float((seen * mean**2 / 2 - own * mean).sum())

    weights, constant = _regress(whole, min(PENALTIES, key=held_out))
    mean = whole.features.times(weights) + constant
    own, seen = _sums(data)
    there = seen > 0
    noise = _noise(data)
    gap = (own[there] - seen[there] * mean[there]) ** 2 / seen[there] / noise

    def surprise(log_worth: float) -> float:
        spread = 1 + seen[there] / np.exp(log_worth)
        return float((gap / spread + np.log(spread)).sum())

    worth = float(np.exp(minimize_scalar(surprise, bounds=WORTH, method="bounded").x))
    return mean, worth, (own + worth * mean) / (seen + worth)


def _regress(data: RankingData, penalty: float) -> tuple[Array, float]:
    """Return w [F] and c that minimise Σ (C − B − E (w x + c))² / (2 E s²) + ½ λ |w|²."""
    own, seen = _sums(data)
    noise = _noise(data)
    level = float(own.sum() / seen.sum())

    def value_and_slope(point: Array) -> tuple[float, Array]:
        w, c = point[:-1], point[-1]
        mean = data.features.times(w) + c + level
        slope = (seen * mean - own) / noise
        value = float((seen * mean**2 / 2 - own * mean).sum()) / noise + 0.5 * penalty * float(w @ w)
        return value, np.append(data.features.sums(slope) + penalty * w, slope.sum())

    start = np.zeros(data.features.shape[1] + 1)
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(found.x[:-1], np.float64), float(found.x[-1]) + level


def _sums(data: RankingData) -> tuple[Array, Array]:
    """Return C − B and E of every document, [n_docs] each."""
    assert data.exposure is not None  # whoever asks has refused it
    net = np.bincount(data.clicked, data.net_clicks, data.features.shape[0])
    return np.asarray(net, np.float64), data.exposure


def _noise(data: RankingData) -> float:
    """Return s² = Σ C / Σ E."""
    assert data.exposure is not None
    return max(float(data.clicks.sum()), 1.0) / float(data.exposure.sum())
