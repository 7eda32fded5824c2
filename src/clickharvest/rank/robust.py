"""Doubly robust relevance: a regression on the features, corrected by the clicks as far as they can be trusted.

With C_d the clicks of a document and E_d the examination it got, C_d / E_d is unbiased for its relevance, and noisy
where E_d is small; a regression m_d on the features is steady, and wrong where features do not tell. The doubly robust
estimate corrects the one by the other. Dividing by E_d would bring all its noise back, so that the correction is shrunk
(Su et al., 2020), by as much as the clicks themselves ask for:

    r_d = m_d + (C_d − E_d m_d) / (E_d + a / m_d) = (C_d + a) / (E_d + a / m_d)

This is the posterior mean of C_d ~ Poisson(E_d r_d), r_d ~ Gamma with mean m_d and shape a. Clicks are then negative
binomial, which is what a is fitted to: large where the regression explains relevance, small where it does not. With
many clicks r_d is C_d / E_d, whatever the regression says; there is no clip to choose. Affine clicks less their shift
are no Poisson counts: `corrected` has what takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from clickharvest.errors import InputError
from clickharvest.rank.corrected import corrected_relevance
from clickharvest.rank.data import RankingData, grounded
from clickharvest.rank.features import Array
from clickharvest.rank.linear import filled, fit_linear
from clickharvest.rank.offsets import PoissonObjective, log_offset

SHAPES = (-4.0, 8.0)
"""Least and largest log a."""
LOG_CLICKS = (-50.0, 50.0)
"""Of the clicks that the regression expects, so that features far out cannot leave the range of numbers."""


@dataclass(frozen=True, eq=False)
class RobustRelevance:
    """Estimates of relevance, in clicks per display at the anchor.

    Attributes:
        regression: m, what a linear Poisson regression on the features says, [n_docs]; of affine clicks a linear one.
        shape: a, how far the regression is trusted; of affine clicks κ, how many examinations it is worth.
        relevance: r, [n_docs].
    """

    regression: Array
    shape: float
    relevance: Array


def robust_relevance(data: RankingData, *, seed: int = 0) -> RobustRelevance:
    """Estimate the relevance of every document from its clicks and its features.

    Args:
        data: lists and clicks, with the exposure of every document.
        seed: seed of the queries that choose the penalty of the regression.

    Example:
        Relevance is e^x; the last document was hardly seen, and is believed to be what its feature says.

        >>> from clickharvest.rank.data import ranking_data
        >>> x = np.tile([0.0, 1.0, 2.0, 3.0], 50)
        >>> seen = np.tile([100.0, 100.0, 100.0, 0.1], 50)
        >>> clicks = np.where(seen > 1, np.round(seen * np.exp(x) / 20), 0)
        >>> data = ranking_data(x[:, None], np.arange(0, 201, 4), np.flatnonzero(clicks), clicks=clicks[clicks > 0],
        ...                     impressions=np.full(50, 100), exposure=seen)
        >>> robust_relevance(data).relevance[:4].round(1).tolist()
        [0.1, 0.1, 0.4, 1.0]
    """
    if data.shift is not None:
        if data.exposure is None:
            raise InputError("corrected clicks need the exposure of every document: make the data with read_clicks")
        return RobustRelevance(*corrected_relevance(data, seed=seed))
    clicks, features = data.clicks_by_document, filled(data.features)
    fitted = fit_linear(replace(data, features=features), PoissonObjective(), seed=seed)
    log_mean = np.clip(fitted.scores(features) + log_offset(data), *LOG_CLICKS)
    mean, seen = np.exp(log_mean), _exposure(data)

    def surprise(log_shape: float) -> float:
        a = np.exp(log_shape)
        likelihood = gammaln(clicks + a) - gammaln(a) + a * np.log(a / (a + mean))
        return -float((likelihood + clicks * (log_mean - np.log(a + mean))).sum())

    shape = float(np.exp(minimize_scalar(surprise, bounds=SHAPES, method="bounded").x))
    regression = mean / seen
    return RobustRelevance(regression, shape, (clicks + shape) / (seen + shape / regression))


def robust_labels(data: RankingData, *, seed: int = 0) -> tuple[Array, float]:
    """Return n r of every document, n being the pages of its query, and the shape a.

    Labels are divided by a number that makes their sum that of the clicks; of affine clicks lists are `grounded` first.
    """
    found = robust_relevance(data, seed=seed)
    shown = np.ones(len(data)) if data.impressions is None else data.impressions
    labels = found.relevance * np.repeat(shown, np.diff(data.starts))
    if data.shift is not None:
        labels = grounded(labels, data.starts)
    return labels * (data.clicks.sum() / labels.sum()), found.shape


def _exposure(data: RankingData) -> Array:
    assert data.exposure is not None  # log_offset has refused it
    return data.exposure
