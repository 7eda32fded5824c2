"""Relevance from corrected clicks, drawn towards the means of queries: a normal model, for they may be negative.

Affine clicks (`click_models.affine`) have E[C_d] = E_d c_d + B_d, with E = Σ a_k and B = Σ b_k over a document's
displays and c the rate of clicks at the anchor. So y_d = (C_d − B_d) / E_d has mean c_d, and

    y_d ~ N(c_d, v_d)      c_d ~ N(m_q + β z_d, τ²)      m_q ~ N(m, ω²)

with z what was known of documents before any click. v is the variance of binomial clicks, Σ p (1 − p) / E² with
p = a_k c + b_k at the rate that a first round has found. τ and ω have the largest marginal likelihood, m and β are
those of generalised least squares. Told are posterior means and intervals of c_d. To their variance comes that of
slopes and offsets themselves, in full: their errors move all documents together, means included. A rate of clicks is
not below 0, and neither are they.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from clickharvest.judging.shrinkage import LEARNED_FROM, Prior, Shrunk, standardised

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST, MOST = np.log(1e-8), np.log(10.0)
"""Of log τ² and log ω²."""
LEAST_RATE = 1e-3
"""Of clicks that a display is expected to get, for its variance: no display is certain not to be clicked."""


@dataclass(frozen=True, eq=False)
class Corrected:
    """The sums of n documents.

    Attributes:
        query: number of each document's query, from 0.
        clicks: C.
        impressions: displays n, those that the model supports.
        exposure: E = Σ a, positive.
        shift: B = Σ b.
        squares: Σ a², Σ a b and Σ b², [3, n].
        unsure: standard deviation of y that slopes and offsets bring along.
    """

    query: Integers
    clicks: Array
    impressions: Array
    exposure: Array
    shift: Array
    squares: Array
    unsure: Array

    @property
    def rate(self) -> Array:
        """Return y, [n]."""
        return (self.clicks - self.shift) / self.exposure

    def variance(self, rate: Array) -> Array:
        """Return v where the rates of clicks at the anchor are c, [n]."""
        mean = self.exposure * rate + self.shift
        aa, ab, bb = self.squares
        own = mean - (aa * rate**2 + 2 * ab * rate + bb)
        least = LEAST_RATE * self.impressions
        found: Array = np.maximum(own, least) / self.exposure**2
        return found


def shrink_corrected(counts: Corrected, *, known: Array | None = None, level: float = 0.95) -> Shrunk:
    """Return the relevance of documents, drawn towards the means of their queries and of all.

    Args:
        counts: the sums of documents.
        known: z, [n, f]; standardised here.
        level: how often an interval covers the truth.

    Example:
        Three documents at a position whose slope is ½ and whose offset is −.05; the last was hardly seen.

        >>> shown, clicks = np.array([1000.0, 1000, 1]), np.array([200.0, 50, 0])
        >>> of = Corrected(np.zeros(3, np.int64), clicks, shown, shown / 2, -0.05 * shown,
        ...                shown * np.array([[0.25], [-0.025], [0.0025]]), np.zeros(3))
        >>> shrink_corrected(of).relevance.round(2).tolist()  # (.2 + .05) / .5, (.05 + .05) / .5, between them
        [0.5, 0.2, 0.33]
    """
    z = np.zeros((len(counts.query), 0)) if known is None else standardised(known)
    design = np.column_stack([np.ones(len(z)), z])
    overall = float((counts.clicks - counts.shift).sum() / counts.exposure.sum())
    rows = _some(counts.query)
    rate = np.full(len(z), max(overall, 0.0))
    for _ in range(2):
        v = counts.variance(np.maximum(rate, 0.0))
        fit = _Normal(counts.query[rows], counts.rate[rows], v[rows], design[rows])
        within, between, slopes = fit.learn()
        whole = _Normal(counts.query, counts.rate, v, design)
        rate, variance = whole.posterior(within, between, slopes)
    reach = -NormalDist().inv_cdf((1 - level) / 2) * np.sqrt(variance + counts.unsure**2)
    lower, upper = np.maximum(rate - reach, 0.0), np.maximum(rate + reach, 0.0)
    mean = max(float(np.average(design @ slopes)), LEAST_RATE)
    prior = Prior(mean, mean**2 / within, mean**2 / between, slopes=tuple(float(b) for b in slopes[1:]))
    return Shrunk(np.maximum(rate, 0.0), lower, upper, prior)


class _Normal:
    """The normal model of documents in queries, given their variances."""

    def __init__(self, query: Integers, rate: Array, variance: Array, design: Array) -> None:
        _, self.query = np.unique(query, return_inverse=True)
        self.rate, self.variance, self.design = rate, variance, design
        self.n_queries = int(self.query.max(initial=-1)) + 1

    def sums(self, values: Array) -> Array:
        return np.bincount(self.query, values, self.n_queries).astype(np.float64)

    def slopes(self, within: float, between: float) -> Array:
        """Return m and β by generalised least squares."""
        weight = 1 / (self.variance + within)
        shrunk = between / (1 + between * self.sums(weight))
        parts = np.stack([self.sums(weight * column) for column in self.design.T])
        left = (self.design * weight[:, None]).T @ self.design - (parts * shrunk) @ parts.T
        right = self.design.T @ (weight * self.rate) - parts @ (shrunk * self.sums(weight * self.rate))
        return np.asarray(np.linalg.lstsq(left, right, rcond=None)[0], np.float64)

    def surprise(self, logs: Array) -> float:
        """Return minus twice the log likelihood, m and β being the best."""
        within, between = np.exp(np.clip(logs, LEAST, MOST))
        weight = 1 / (self.variance + within)
        gap = self.rate - self.design @ self.slopes(within, between)
        total = self.sums(weight)
        fit = float((weight * gap**2).sum() - (between * self.sums(weight * gap) ** 2 / (1 + between * total)).sum())
        return fit - float(np.log(weight).sum()) + float(np.log1p(between * total).sum())

    def learn(self) -> tuple[float, float, Array]:
        """Return τ², ω², and m and β."""
        spread = np.log(max(float(np.var(self.rate)), 1e-6) / 2)
        found = minimize(self.surprise, np.clip([spread, spread], LEAST, MOST), method="Nelder-Mead",
                         options={"xatol": 1e-2, "fatol": 1e-2, "maxiter": 200})  # fmt: skip
        within, between = (float(value) for value in np.exp(np.clip(found.x, LEAST, MOST)))
        return within, between, self.slopes(within, between)

    def posterior(self, within: float, between: float, slopes: Array) -> tuple[Array, Array]:
        """Return means and variances of c, [n] each."""
        weight, expected = 1 / (self.variance + within), self.design @ slopes
        total = 1 + between * self.sums(weight)
        effect = between * self.sums(weight * (self.rate - expected)) / total
        centre = expected + effect[self.query]
        kept = within * weight
        variance = kept * self.variance + (1 - kept) ** 2 * (between / total)[self.query]
        return centre + kept * (self.rate - centre), variance


def _some(query: Integers) -> NDArray[np.bool_]:
    """Return which documents τ and ω are learned from: whole queries, drawn at random."""
    if len(query) <= LEARNED_FROM:
        return np.ones(len(query), np.bool_)
    size = np.bincount(query)
    order = np.random.default_rng(0).permutation(len(size))
    kept = np.zeros(len(size), np.bool_)
    kept[order[: max(1, int(np.searchsorted(np.cumsum(size[order]), LEARNED_FROM)))]] = True
    found: NDArray[np.bool_] = kept[query]
    return found
