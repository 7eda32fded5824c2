"""The queries of the arXiv-like log: sessions, five groups of features, examination and relevance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Scores = NDArray[np.float32]

TOPICS, CATEGORIES, CANDIDATES = 35, 9, 30

LONGEST_SESSION, MOST_RESULTS = 40, 20_000
CATEGORY_SHARES = np.array([0.22, 0.18, 0.14, 0.12, 0.1, 0.08, 0.07, 0.05, 0.04])
CATEGORY_EFFECTS = np.array([0.0, 0.35, -0.3, 0.15, -0.45, 0.4, -0.1, 0.3, -0.35, 0.2])
TOPIC_EFFECTS = 0.6 * np.cos(2.4 * np.arange(TOPICS))
LEVELS, SPREADS = (-3.5, -2.66), (0.81, 3.57)
"""Intercept and slope of the relevance of simple and of complex queries, set to get the paper's numbers of clicks."""


@dataclass(frozen=True, eq=False)
class ArxivQueries:
    """n queries, one page each; see `ArxivSimulation` for the attributes."""

    is_complex: NDArray[np.bool_]
    session: Ints
    ord_in_session: Ints
    query_len: Ints
    results: Ints
    category: Ints
    result_dist: NDArray[np.float32]

    def examination(self, positions: int) -> Array:
        """Return p_k(x) = exp(−η(x) φ_k) with φ_k = log k + .3 σ(k − 10.5), [n, K].

        φ is a power law with a step where the screen ends. Complex queries, long ones and those with many results
        are left sooner, η grows; later queries of a session are read further down; categories and topics differ:
        log η = −.5 + .45 [complex] + .2 log(length / 4) + .15 log(results / 40) − .22 log(order) + effects.
        """
        index = -0.5 + 0.45 * self.is_complex + 0.2 * np.log(self.query_len / 4)
        index += 0.15 * np.log(self.results / 40) - 0.22 * np.log(self.ord_in_session)
        index += CATEGORY_EFFECTS[self.category] + self.result_dist @ TOPIC_EFFECTS
        k = np.arange(1.0, positions + 1)
        shape = np.log(k) + 0.3 * (expit(k - 10.5) - expit(-9.5))
        return np.asarray(np.exp(-np.exp(index)[:, None] * shape))


def draw_queries(is_complex: NDArray[np.bool_], random: np.random.Generator) -> ArxivQueries:
    """Return queries with features, one for each entry of `is_complex` [n].

    Example:
        >>> queries = draw_queries(np.array([True, False]), np.random.default_rng(0))
        >>> queries.examination(3).shape, queries.result_dist.sum(axis=1).round(4).tolist()
        ((2, 3), [1.0, 1.0])
    """
    n = len(is_complex)
    session, order = _sessions(is_complex, random)
    length = np.where(is_complex, random.lognormal(np.log(9.0), 0.6, n), random.lognormal(np.log(2.2), 0.7, n))
    query_len = np.maximum(np.rint(length), np.where(is_complex, 3, 1)).astype(np.int64)
    spread = random.lognormal(0.0, 1.3, n) * np.where(is_complex, 20.0, 45.0) * (query_len / 4.0) ** -0.2
    results = np.clip(np.rint(spread), 1, MOST_RESULTS).astype(np.int64)
    named = random.random(n) < np.where(is_complex, 0.55, 0.25)
    category = np.where(named, 1 + random.choice(CATEGORIES, n, p=CATEGORY_SHARES), 0)
    return ArxivQueries(
        is_complex=is_complex,
        session=session,
        ord_in_session=order,
        query_len=query_len,
        results=results,
        category=category,
        result_dist=_topics(category, results, random),
    )


def _sessions(is_complex: NDArray[np.bool_], random: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the session and the order in it of each query; a session holds one kind, its lengths are heavy-tailed."""
    session, order = np.zeros(len(is_complex), np.int64), np.zeros(len(is_complex), np.int64)
    begin = 0
    for kind, tail in ((True, 2.2), (False, 2.5)):
        own = np.flatnonzero(is_complex == kind)
        lengths = np.minimum(random.zipf(tail, len(own)), LONGEST_SESSION)
        number = np.repeat(np.arange(len(own)), lengths)[: len(own)]
        starts = np.cumsum(lengths) - lengths
        session[own], order[own] = begin + number, np.arange(len(own)) - starts[number] + 1
        begin += len(own)
    return np.unique(session, return_inverse=True)[1].astype(np.int64), order


def _topics(category: Ints, results: Ints, random: np.random.Generator) -> NDArray[np.float32]:
    """Return the shares of topics among up to 200 results: a main topic, and those of the category named."""
    n = len(category)
    popularity = 1 / np.arange(1.0, TOPICS + 1) ** 0.5
    weight = np.tile(1.2 * popularity / popularity.sum(), (n, 1))
    main = random.choice(TOPICS, n, p=popularity / popularity.sum())
    named = np.flatnonzero(category)
    main[named] = (main[named] // CATEGORIES * CATEGORIES + category[named] - 1) % TOPICS
    weight[np.arange(n), main] += np.where(category > 0, 4.0, 1.5)
    mix = random.standard_gamma(weight) + 1e-9
    counted = np.minimum(results, 200)
    counts = random.multinomial(counted, mix / mix.sum(axis=1, keepdims=True))
    return np.asarray(counts / counted[:, None], np.float32)


def draw_candidates(queries: ArxivQueries, rankers: int, random: np.random.Generator) -> tuple[Array, Scores]:
    """Return the relevance of the candidates, [n, C], and each ranker's scores of them, [rankers, n, C].

    A query has as many candidates as results, at most C; the scores of others are −∞. Relevance is
    r = σ(a + b z + c q) with z ~ N(0, 1) of the document and q ~ N(0, 1) of the query; rankers see z with noise, part
    of it common to all and part of it their own, on some queries much and on others hardly any.
    """
    n = len(queries.results)
    level, spread = (np.array(values)[queries.is_complex.astype(int)][:, None] for values in (LEVELS, SPREADS))
    z = random.normal(size=(n, CANDIDATES)).astype(np.float32)
    quality = random.normal(size=(n, 1)).astype(np.float32)
    relevance = expit(level + spread * z + 0.8 * quality)
    common = z + 0.8 * random.normal(size=z.shape).astype(np.float32)
    disagreement = random.lognormal(np.log(0.5), 0.8, (n, 1)).astype(np.float32)
    missing = np.arange(CANDIDATES) >= queries.results[:, None]
    scores = np.stack([common + disagreement * random.normal(size=z.shape).astype(np.float32) for _ in range(rankers)])
    scores[:, missing] = -np.inf
    return np.asarray(relevance, np.float64), scores
