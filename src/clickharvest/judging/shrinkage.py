"""Shrinkage: relevance of many documents from few clicks each, by an empirical-Bayes gamma-Poisson model.

Document d of query q got C clicks, and E = Σ p_k(x) over its impressions: as many impressions at the anchor would have
been examined as often. With r its relevance, the rate of clicks on it at the anchor,

    C ~ Poisson(E r),   r ~ Gamma(a', a' / (m_q μ)),   log μ = β·z,   log a' = log a + γ·z,   m_q ~ Gamma(b, b / m):

documents vary around the mean m_q of their query, queries around the mean m of all. a, b, m, β and γ maximise the
marginal likelihood (m_q by Laplace's method, with a gamma for its posterior); a query, or a document, that has few
clicks is drawn towards what others tell. z is what was known before the clicks: how high and how often rankers showed
the document. Rankers know something: without z, documents that stood low, of which little is known, would be drawn up
to the mean, and their intervals would miss. How much rankers know (β), and by how much less good documents differ (γ),
the clicks of all documents tell.

A click rate is known less, or better, than Poisson clicks would make it:

- a display has one click at most, so that C has the variance E r (1 − r E₂ / E), E₂ = Σ p²;
- E itself is uncertain, by a factor whose logarithm has the variance v: propensities are estimates, and users of single
  queries read otherwise than the curve says. That adds v (E r)².

Both make the variance D times that of a Poisson count, D = 1 − r E₂ / E + v E r, and C and E are divided by D: the
quasi-likelihood has the variance it should. D is of the relevance that a first round, with D = 1, has found.

The posterior of r given m_q and a' is Gamma(a' + C, a' / (m_q μ) + E): over the posterior of m_q, and that of log a
where few documents tell it, it is a mixture of gamma distributions (Gauss-Hermite), of which mean and quantiles are
told. What was never clicked has an interval from 0 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammainc, gammaincc, gammaincinv, gammaln, ndtr

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

LEARNED_FROM = 20_000
"""Most documents that the prior is learned from, of whole queries drawn at random: more would not change it."""
BOUNDS = (np.log(1e-2), np.log(1e3))
"""Of log a and log b: relevance that varies tenfold, or by three hundredths."""
WEAK = 2.0
"""Standard deviation of log a and log b around 0, so that a single query or document does not settle them."""
LEAST_DISPERSION = 0.1
"""Clicks at nearly every display are not known ten times better than Poisson clicks would be, but no more."""
NEWTON = 50
"""Most steps to the mode of log m_q."""
SURE, MOST_UNSURE = 0.1, 1.0
"""Standard deviation of log a below which it counts as known, and the most it is taken to be."""
STEEPEST, FARTHEST, FLAT = 3.0, 5.0, 1e-9
"""Largest β and γ, largest logarithm of μ, and the standard deviation below which a column of z does not vary."""
CAUTION = 0.5
"""What a is multiplied by for intervals: relevance varies in other ways than gamma distributions do. Chosen by the
coverage in simulated logs, of other seeds than those of the table in benchmarks/README.md."""
FEW = 200
"""Documents below which one z is all that can be learned from them, and γ nothing."""
STEP, BESIDE = 1e-4, 0.1
"""Steps of log a, b and m for gradients, and for the curvature."""
LEAST_MEAN = 1e-12
"""Share of its mode that m_q has at least."""
STEPS, TINY = 30, 1e-300
"""Most steps to a quantile, and what stands for 0 where logarithms are taken."""


@dataclass(frozen=True)
class Prior:
    """How relevance varies before any click.

    Attributes:
        mean: m, mean relevance of a document of any query.
        within: a: within a query, relevance of a typical document has the coefficient of variation 1/√a.
        between: b: the mean of a query has the coefficient of variation 1/√b.
        unsure: standard deviation of log a, as far as the documents tell it.
        slopes: β, what a standard deviation of each z adds to the logarithm of relevance.
        narrowing: γ, what a standard deviation of each z adds to log a.
    """

    mean: float
    within: float
    between: float
    unsure: float = 0.0
    slopes: tuple[float, ...] = ()
    narrowing: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Relevance of every document.

    Attributes:
        relevance: posterior means, [n].
        lower: lower ends of the intervals, [n].
        upper: upper ends of the intervals, [n].
        prior: what they were shrunk towards.
    """

    relevance: Array
    lower: Array
    upper: Array
    prior: Prior


def shrink(
    query: Integers,
    clicks: Array,
    exposure: Array,
    *,
    squares: Array | None = None,
    variance: Array | None = None,
    known: Array | None = None,
    level: float = 0.95,
) -> Shrunk:
    """Return the relevance of documents, drawn towards the means of their queries and of all.

    Args:
        query: number of each document's query, from 0, [n].
        clicks: clicks C, [n].
        exposure: E = Σ p, positive, [n].
        squares: E₂ = Σ p², [n]; by default clicks are Poisson, as if displays could be clicked more than once.
        variance: v, of log E, [n]; 0 by default.
        known: z, what was known of documents before any click, [n, f]; standardised here.
        level: how often an interval covers the truth.

    Example:
        A document with many clicks keeps its click rate; one that was hardly seen gets that of its query.

        >>> found = shrink(np.array([0, 0, 0]), np.array([300.0, 100, 0]), np.array([1000.0, 1000, 1]))
        >>> found.relevance.round(2).tolist()
        [0.3, 0.1, 0.17]
    """
    z = np.zeros((len(query), 0)) if known is None else standardised(known)
    plain = _Counts(query, clicks, exposure, z)
    prior = _learn(plain)
    if squares is None and variance is None:
        return _shrunk(plain, prior, level)
    relevance, mean_of_query = _mixture(plain, prior).mean, _means(plain, prior)

    def dispersed(rate: Array) -> _Counts:
        own = 0.0 if squares is None else rate * squares / exposure
        unsure = 0.0 if variance is None else variance * exposure * rate
        dispersion = np.maximum(1 - own, LEAST_DISPERSION) + unsure
        return _Counts(query, clicks / dispersion, exposure / dispersion, z)

    # The prior is learned with dispersions that do not know the document's own clicks: where these are few, they would
    # make chance look like a difference between documents.
    return _shrunk(dispersed(relevance), _learn(dispersed(mean_of_query)), level)


def standardised(known: Array) -> Array:
    """Return columns of mean 0 and standard deviation 1 that vary, of few documents the first one alone."""
    kept = known[:, known.std(axis=0) > FLAT][:, : 1 if len(known) < FEW else None]
    scaled: Array = (kept - kept.mean(axis=0)) / kept.std(axis=0)
    return scaled


class _Counts:
    """Clicks and exposures by document, what is known of it, and sums over the documents of queries."""

    def __init__(self, query: Integers, clicks: Array, exposure: Array, known: Array) -> None:
        self.query, self.clicks, self.exposure = query, clicks.astype(np.float64), exposure.astype(np.float64)
        self.known, self.n_queries = known, int(query.max(initial=-1)) + 1

    def sums(self, values: Array) -> Array:
        return np.bincount(self.query, values, self.n_queries).astype(np.float64)

    def factor(self, slopes: Sequence[float]) -> Array:
        """Return μ, [n]."""
        log_factor: Array = self.known @ np.array(slopes) if slopes else np.zeros(len(self.query))
        return np.exp(np.clip(log_factor, -FARTHEST, FARTHEST))

    def shape(self, prior: Prior) -> Array:
        """Return a', [n]."""
        narrowing: Array = self.known @ np.array(prior.narrowing) if prior.narrowing else np.zeros(len(self.query))
        shape: Array = np.exp(np.clip(np.log(prior.within) + narrowing, *BOUNDS))
        return shape

    def relative(self, factor: Array) -> _Counts:
        """Return the counts of r / μ: the exposure is E μ."""
        return _Counts(self.query, self.clicks, self.exposure * factor, self.known)

    def some(self) -> _Counts:
        """Return whole queries, drawn at random, of about as many documents as the prior is learned from."""
        if len(self.query) <= LEARNED_FROM:
            return self
        order = np.random.default_rng(0).permutation(self.n_queries)
        size = np.bincount(self.query, minlength=self.n_queries)[order]
        kept = np.zeros(self.n_queries, dtype=bool)
        kept[order[: max(1, int(np.searchsorted(np.cumsum(size), LEARNED_FROM)))]] = True
        rows = kept[self.query]
        _, query = np.unique(self.query[rows], return_inverse=True)
        return _Counts(query, self.clicks[rows], self.exposure[rows], self.known[rows])


def _learn(counts: _Counts) -> Prior:
    """Return the prior of the largest marginal likelihood."""
    some = counts.some()
    mean = np.log((some.clicks.sum() + 0.5) / some.exposure.sum())
    start = {"t": np.full(some.n_queries, mean)}

    columns = some.known.shape[1]
    slopes = columns if len(some.query) < FEW else 2 * columns

    def prior_at(point: Array) -> Prior:
        level, within, between = np.exp(point[:3]).tolist()
        slopes = point[3:].tolist()
        return Prior(level, within, between, 0.0, tuple(slopes[:columns]), tuple(slopes[columns:]))

    def loss(point: Array) -> float:
        prior = prior_at(point)
        factor = some.factor(prior.slopes)
        a = some.shape(prior)
        value, start["t"], _ = _by_query(some.relative(factor), prior, a, start["t"])
        documents = gammaln(a + some.clicks) - gammaln(a) + a * np.log(a) + some.clicks * np.log(factor)
        return float((point[1:] ** 2).sum() / (2 * WEAK**2) - value.sum() - documents.sum())

    bounds = [(mean - 5, mean + 5), BOUNDS, BOUNDS, *[(-STEEPEST, STEEPEST)] * slopes]
    begin = np.array([mean, *[0.0] * (2 + slopes)])
    found = minimize(loss, begin, method="L-BFGS-B", bounds=bounds, options={"eps": STEP, "maxiter": 60}).x
    aside = np.zeros_like(found)
    aside[1] = BESIDE
    curvature = (loss(found + aside) + loss(found - aside) - 2 * loss(found)) / BESIDE**2
    unsure = float(1 / np.sqrt(max(curvature, 1 / MOST_UNSURE**2)))
    return replace(prior_at(found), unsure=unsure if unsure > SURE else 0.0)


def _by_query(counts: _Counts, prior: Prior, a: Array, start: Array | None = None) -> tuple[Array, Array, Array]:
    """Return, by query, the log marginal likelihood, the mode of log m_q and the curvature κ there.

    The log likelihood of t = log m_q, concave, is Σ_d −a' t − (a' + C) log(a' e^{−t} + E) + b (t − log m) − b e^t / m,
    up to terms that do not depend on t: of these, those of single documents are left to the caller. The posterior of
    m_q is taken as Gamma(κ, κ / mode), which has that mode and curvature on the scale of log m_q.
    """
    b, m = prior.between, prior.mean
    shapes, total = counts.sums(a), a + counts.clicks
    t = np.full(counts.n_queries, np.log(m)) if start is None else start
    for _ in range(NEWTON):
        share = a / (a + counts.exposure * np.exp(t)[counts.query])
        slope = counts.sums(total * share) - shapes + b * (1 - np.exp(t) / m)
        curvature = counts.sums(total * share * (1 - share)) + b * np.exp(t) / m
        step = np.clip(slope / curvature, -2.0, 2.0)
        t = t + step
        if np.abs(step).max(initial=0.0) < 1e-8:
            break
    spread = counts.sums(total * np.log(a * np.exp(-t)[counts.query] + counts.exposure))
    value = -shapes * t - spread + b * (t - np.log(m)) - b * np.exp(t) / m
    value += b * np.log(b) - gammaln(b) + gammaln(curvature) + curvature * (1 - np.log(curvature))
    return value, t, curvature


def _means(counts: _Counts, prior: Prior) -> Array:
    """Return m_q μ, what every document is drawn towards, [n]."""
    factor = counts.factor(prior.slopes)
    _, mode, _ = _by_query(counts.relative(factor), prior, counts.shape(prior))
    return factor * np.exp(mode)[counts.query]


@dataclass(frozen=True, eq=False)
class _Mixture:
    """Gamma distributions of every document's relevance: weights [parts], shapes and rates [parts, n]."""

    weight: Array
    shape: Array
    rate: Array

    @property
    def mean(self) -> Array:
        mean: Array = np.einsum("p,pn->n", self.weight, self.shape / self.rate)
        return mean

    def quantile(self, level: float) -> Array:
        """Return where the distribution function is `level`, [n].

        Newton steps in log x on the logarithm of the nearer tail, which is nearly straight there.
        """
        mean = self.mean
        variance = np.einsum("p,pn->n", self.weight, self.shape * (self.shape + 1) / self.rate**2) - mean**2
        x: Array = np.maximum(gammaincinv(mean**2 / variance, level) * variance / mean, TINY)
        low = level < 0.5
        function, wanted = (gammainc, level) if low else (gammaincc, 1 - level)
        for _ in range(STEPS):
            inside = x * self.rate
            mass = np.einsum("p,pn->n", self.weight, function(self.shape, inside))
            density = np.exp(self.shape * np.log(inside) - inside - gammaln(self.shape))  # times x
            slope = np.einsum("p,pn->n", self.weight, density) / np.maximum(mass, TINY)
            step = (np.log(wanted) - np.log(np.maximum(mass, TINY))) / np.maximum(slope, TINY)
            step = np.clip(step if low else -step, -1.0, 1.0)
            x = np.maximum(x * np.exp(step), TINY)
            if np.abs(step).max(initial=0.0) < 1e-4:
                break
        return x


def _mixture(counts: _Counts, prior: Prior) -> _Mixture:
    """Return the posterior of every document's relevance."""
    factor = counts.factor(prior.slopes)
    counts = counts.relative(factor)
    weights, shapes, rates = [], [], []
    outer = ((0.0, 1.0),) if not prior.unsure else _nodes(3)
    # m is itself the mean of so many queries: a new one's mean is known that much less.
    between = prior.between / (1 + 1 / counts.n_queries)
    for away, own in outer:
        at = replace(prior, within=prior.within * float(np.exp(away * prior.unsure)), between=between)
        a = counts.shape(at)
        _, mode, curvature = _by_query(counts, at, a)
        for node, weight in _nodes(5 if prior.unsure else 7):
            mean = np.exp(mode) * np.maximum(gammaincinv(curvature, ndtr(node)) / curvature, LEAST_MEAN)
            weights.append(own * weight)
            shapes.append(a + counts.clicks)
            rates.append((a / mean[counts.query] + counts.exposure) / factor)
    return _Mixture(np.array(weights), np.array(shapes), np.array(rates))


def _nodes(count: int) -> list[tuple[float, float]]:
    """Return where a standard normal distribution is looked at, and the weights of that."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return list(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))


def _shrunk(counts: _Counts, prior: Prior, level: float) -> Shrunk:
    wide, tail = _mixture(counts, replace(prior, within=CAUTION * prior.within)), (1 - level) / 2
    # What was never clicked may be of no relevance at all: its interval has one end.
    never = counts.clicks == 0
    lower = np.where(never, 0.0, wide.quantile(tail))
    upper = np.where(never, wide.quantile(level), wide.quantile(1 - tail))
    return Shrunk(_mixture(counts, prior).mean, lower, upper, prior)
