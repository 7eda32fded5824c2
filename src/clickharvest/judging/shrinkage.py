"""Empirical-Bayes shrinkage: the relevance of documents from few clicks each.

Document d of query q got C clicks, and E = Σ p_k(x) over its impressions. With r its relevance, the rate of clicks on
it at the anchor,

    C ~ Poisson(E r),   r ~ Exponential of mean m_q,   m_q = (1 + Σ C) / (1 / m + Σ E),   m = Σ C / Σ E,

where m_q sums over the documents of the query and m over all. The prior weighs as much as one click, and its density is
largest at 0. The posterior is Gamma(1 + C, 1 / m_q + E); relevance is its mode, C / (E + 1 / m_q), which is 0 without a
click. Modes and intervals are at most 1.

E is an estimate, so that clicks are overdispersed. Where the variance of C is D times that of a Poisson count, C and E
are divided by D, evaluated at the relevance of a first round with D = 1. Displays have at most one click, which is not
used: intervals of documents that are nearly always clicked are too wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Posterior of the relevance of n documents.

    Attributes:
        clicks: C / D, [n].
        exposure: E / D, [n].
        mean: m_q, mean relevance of the document's query, [n].
        overall: m, mean relevance.
        most: the largest relevance there can be.

    Example:
        >>> posterior = shrink(np.array([0, 0, 0]), np.array([300.0, 100, 0]), np.array([1000.0, 1000, 1]))
        >>> posterior.relevance.round(2).tolist()
        [0.3, 0.1, 0.0]
        >>> lower, upper = posterior.interval(0.95)
        >>> lower.round(2).tolist(), upper.round(2).tolist()
        ([0.27, 0.08, 0.0], [0.33, 0.12, 0.61])
    """

    clicks: Array
    exposure: Array
    mean: Array
    overall: float
    most: float = 1.0

    @property
    def relevance(self) -> Array:
        """The mode, [n]."""
        mode: Array = np.minimum(self.clicks / (self.exposure + 1 / self.mean), self.most)
        return mode

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the credible interval of this level, [n] each; it starts at 0 without a click."""
        lower, upper = (self._quantile(tail) for tail in ((1 - level) / 2, (1 + level) / 2))
        return np.where(self.clicks == 0, 0.0, np.minimum(lower, self.relevance)), upper

    def _quantile(self, level: float) -> Array:
        quantile: Array = gammaincinv(1 + self.clicks, level) / (1 / self.mean + self.exposure)
        return np.minimum(quantile, self.most)


def shrink(
    query: Integers,
    clicks: Array,
    exposure: Array,
    *,
    dispersion: Callable[[Array], Array] | None = None,
    most: float = 1.0,
) -> Shrunk:
    """Return the relevance of documents.

    Args:
        query: number of each document's query, from 0, [n].
        clicks: clicks C, [n].
        exposure: E = Σ p, positive, [n].
        dispersion: D at a relevance of documents, [n] → [n]; 1 by default, that of Poisson clicks.
        most: the largest relevance there can be.
    """
    overall = min(float((clicks.sum() + 0.5) / exposure.sum()), most)
    means = (1 + np.bincount(query, clicks)) / (1 / overall + np.bincount(query, exposure))
    mean = np.minimum(means, most)[query]
    first = Shrunk(clicks, exposure, mean, overall, most)
    if dispersion is None:
        return first
    d = dispersion(np.minimum((1 + clicks) / (exposure + 1 / mean), most))
    return Shrunk(clicks / d, exposure / d, mean, overall, most)
