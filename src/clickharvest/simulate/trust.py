"""An A/B test among users who trust what stands high, with known truth: clicks are affine in relevance, not
proportional to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

RELEVANT = 0.98
"""Probability of a click on a relevant result that is examined at the top; .01 less a position below."""


@dataclass(frozen=True)
class AffineTruth:
    """What affine clicks are made of: E[C | u, k] = a_k c_u + b_k with the click rate c_u at position 1.

    Attributes:
        slope: a_k, [K].
        offset: b_k, [K].
        floor: click rate of an irrelevant result at position 1.
    """

    slope: NDArray[np.float64]
    offset: NDArray[np.float64]
    floor: float


def simulate_trust_log(
    *,
    pages: int = 50_000,
    queries: int = 300,
    docs: int = 12,
    positions: int = 6,
    rankers: int = 3,
    trust: float = 0.65,
    seed: int = 0,
) -> tuple[pa.Table, AffineTruth]:
    """Simulate an A/B test of several rankers whose users trust the position.

    Position k is examined with probability θ_k = k^−.7. Of what is examined, relevant results are clicked with
    probability ε⁺_k = .98 − (k − 1) / 100, others with ε⁻_k = trust / k. Every query has its own documents with
    relevances r ~ Beta(1, 2); each ranker orders them by r plus its own noise; queries are equally frequent.
    Click ~ Bernoulli(θ_k (ε⁺_k r + ε⁻_k (1 − r))).

    Args:
        pages: number of result pages.
        queries: number of distinct queries.
        docs: candidate documents per query.
        positions: documents shown on a page.
        rankers: number of rankers in the test.
        trust: ε⁻ at the top.
        seed: seed of all randomness.

    Returns:
        The log, an Arrow table with columns `query, doc, position, clicks, impressions`, and the truth.

    Example:
        >>> log, truth = simulate_trust_log(pages=1_000)
        >>> log.column_names, truth.slope.round(2).tolist()
        (['query', 'doc', 'position', 'clicks', 'impressions'], [1.0, 1.2, 1.04, 0.9, 0.8, 0.71])
    """
    import pyarrow as pa

    if positions > docs:
        raise InputError(f"{positions} positions cannot be filled with {docs} documents: lower positions")
    if not 0 <= trust <= RELEVANT:
        raise InputError(f"trust is {trust}: expected a probability from 0 to {RELEVANT}")
    random = np.random.default_rng(seed)
    k = np.arange(1, positions + 1)
    relevant, irrelevant = RELEVANT - (k - 1) / 100, trust / k
    alpha, beta = k**-0.7 * (relevant - irrelevant), k**-0.7 * irrelevant
    relevance = random.beta(1, 2, (queries, docs))
    noise = random.normal(0, 0.25, (rankers, queries, docs))
    order = np.argsort(-(relevance + noise), axis=2)[:, :, :positions]
    served = random.multinomial(pages, np.full(queries * rankers, 1 / (queries * rankers))).reshape(rankers, queries)
    shown = np.zeros((queries, docs, positions), np.int64)
    np.add.at(shown, (np.arange(queries)[:, None], order, np.arange(positions)), served[:, :, None])
    clicks = random.binomial(shown, alpha * relevance[:, :, None] + beta)
    query, doc, place = np.nonzero(shown)
    log = pa.table(
        {
            "query": np.char.add("query ", query.astype(str)),
            "doc": np.char.add("doc ", (query * docs + doc).astype(str)),
            "position": place + 1,
            "clicks": clicks[query, doc, place],
            "impressions": shown[query, doc, place],
        }
    )
    slope = alpha / alpha[0]
    return log, AffineTruth(slope, beta - beta[0] * slope, float(beta[0]))
