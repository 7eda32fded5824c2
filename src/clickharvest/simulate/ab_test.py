"""Small A/B tests with known truth: users who examine by position, users who trust the position, and purchases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

DEVICES = ("desktop", "mobile")
RELEVANT = 0.98
"""With trust, the probability of a click on a relevant result examined at the top; .01 less at each position below."""


@dataclass(frozen=True)
class Truth:
    """The examination behind a simulated log.

    Attributes:
        contexts: the distinct values of the context column, [m].
        examination: p_k(x) for each of them and each position from 1, [m, K].
    """

    contexts: tuple[str, ...]
    examination: Array


@dataclass(frozen=True)
class AffineTruth:
    """What affine clicks are made of: E[C | u, k] = a_k c_u + b_k with the click rate c_u at position 1.

    Attributes:
        slope: a_k, [K].
        offset: b_k, [K].
        floor: click rate of an irrelevant result at position 1.
    """

    slope: Array
    offset: Array
    floor: float


def simulate_ab_log(
    *,
    pages: int = 20_000,
    queries: int = 200,
    docs: int = 15,
    positions: int = 10,
    rankers: int = 3,
    seed: int = 0,
) -> tuple[pa.Table, Truth]:
    """Simulate an A/B test of several rankers on two devices.

    Examination is p_k(x) = k^{−η(x)} with η = 0.7 on desktop and 1.4 on mobile. Every query has its own documents
    with relevances r ~ Beta(1, 2); queries arrive with Zipf frequencies; each ranker orders a query's documents by
    r plus its own noise; the ranker and the device of a page are drawn at random.
    Click ~ Bernoulli(p_k(x) · r).

    Args:
        pages: number of result pages.
        queries: number of distinct queries.
        docs: candidate documents per query.
        positions: documents shown on a page.
        rankers: number of rankers in the test.
        seed: seed of all randomness.

    Returns:
        The log, an Arrow table with columns `page, query, ranker, device, doc, position, click` and
        pages × positions rows, and the truth.

    Example:
        >>> log, truth = simulate_ab_log(pages=100)
        >>> log.num_rows, truth.examination.shape
        (1000, (2, 10))
    """
    import pyarrow as pa

    random = np.random.default_rng(seed)
    relevance, shown = draw_rankings(rankers, queries, docs, positions, 0.25, random)
    query = draw_queries(queries, pages, random)
    ranker = random.integers(rankers, size=pages)
    device = random.integers(2, size=pages)
    k = np.arange(1, positions + 1)
    examination = k ** -np.array([[0.7], [1.4]])
    doc = shown[ranker, query]
    clicks = random.random((pages, positions)) < examination[device] * relevance[query[:, None], doc]
    columns: dict[str, NDArray[Any]] = {"page": np.repeat(np.arange(pages), positions)}
    columns |= text_columns(*(np.repeat(column, positions) for column in (query, ranker, device)))
    columns |= {
        "doc": np.char.add("doc ", (query[:, None] * docs + doc).ravel().astype(str)),
        "position": np.tile(k, pages),
        "click": clicks.ravel().astype(np.int8),
    }
    return pa.table(columns), Truth(DEVICES, examination)


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
    """Simulate an A/B test of several rankers whose users trust the position: clicks are affine in relevance.

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

    if not 0 <= trust <= RELEVANT:
        raise InputError(f"trust is {trust}: expected a probability from 0 to {RELEVANT}")
    random = np.random.default_rng(seed)
    k = np.arange(1, positions + 1)
    relevant, irrelevant = RELEVANT - (k - 1) / 100, trust / k
    alpha, beta = k**-0.7 * (relevant - irrelevant), k**-0.7 * irrelevant
    relevance, order = draw_rankings(rankers, queries, docs, positions, 0.25, random)
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


def add_purchases(log: pa.Table, *, steepness: float = 0.0, eagerness: float = 1.0, seed: int = 0) -> pa.Table:
    """Add a column `purchase` to a simulated log: 1 or 0 where there is a click, and 0 elsewhere.

    Every query and document has its own rate b ~ Beta(2, 4), and a click at position k leads to a purchase with
    probability s_k b, s_k = k^{−steepness}: the truth that a fit of the log after the click should find.

    Args:
        log: a log with the columns `query, doc, position, click`.
        steepness: 0 where position does not matter once there is a click.
        eagerness: how many times as often half of the pages buy as the others, wherever they click; needs `page`.
        seed: seed of all randomness.

    Example:
        >>> log = add_purchases(simulate_ab_log(pages=100)[0])
        >>> sum(log["click"].to_pylist()), sum(log["purchase"].to_pylist())
        (157, 38)
    """
    import pyarrow as pa

    random = np.random.default_rng([seed, 4])
    _, query = np.unique(log["query"].to_numpy(), return_inverse=True)
    _, doc = np.unique(log["doc"].to_numpy(), return_inverse=True)
    _, unit = np.unique(query * (int(doc.max()) + 1) + doc, return_inverse=True)
    rate = random.beta(2, 4, int(unit.max()) + 1)[unit] * log["position"].to_numpy().astype(float) ** -steepness
    if eagerness != 1:
        _, page = np.unique(log["page"].to_numpy(), return_inverse=True)
        rate = rate * random.choice([2 / (1 + eagerness), 2 * eagerness / (1 + eagerness)], int(page.max()) + 1)[page]
    bought = (random.random(len(unit)) < rate) & (log["click"].to_numpy() == 1)
    return log.append_column("purchase", pa.array(bought.astype(np.int8)))


def draw_rankings(
    rankers: int, queries: int, docs: int, positions: int, noise: float, random: np.random.Generator
) -> tuple[Array, Integers]:
    """Return relevances r ~ Beta(1, 2), [queries, docs], and the documents by position of rankers, [R, queries, K].

    Each ranker orders a query's documents by r plus its own normal noise.
    """
    if positions > docs:
        raise InputError(f"{positions} positions cannot be filled with {docs} documents: lower positions")
    relevance = random.beta(1, 2, (queries, docs))
    score = relevance + random.normal(0, noise, (rankers, queries, docs))
    return relevance, np.argsort(-score, axis=2)[:, :, :positions]


def draw_queries(queries: int, pages: int, random: np.random.Generator) -> Integers:
    """Return the query of each page, drawn with Zipf frequencies, [pages]."""
    frequency = 1 / np.arange(1, queries + 1)
    return random.choice(queries, pages, p=frequency / frequency.sum())


def text_columns(query: Integers, ranker: Integers, device: Integers) -> dict[str, NDArray[np.str_]]:
    """Return the columns `query, ranker, device` of a log, as texts."""
    return {
        "query": np.char.add("query ", query.astype(str)),
        "ranker": np.array(list("abcdefghijklmnopqrstuvwxyz"))[ranker],
        "device": np.array(DEVICES)[device],
    }
