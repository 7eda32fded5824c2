"""A small A/B test with known truth: several rankers, two devices, examination that differs between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Truth:
    """The examination behind a simulated log.

    Attributes:
        contexts: the distinct values of the context column, [m].
        examination: p_k(x) for each of them and each position from 1, [m, K].
    """

    contexts: tuple[str, ...]
    examination: NDArray[np.float64]


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

    if positions > docs:
        raise InputError(f"{positions} positions cannot be filled with {docs} documents: lower positions")
    random = np.random.default_rng(seed)
    relevance = random.beta(1, 2, (queries, docs))
    noise = random.normal(0, 0.25, (rankers, queries, docs))
    shown = np.argsort(-(relevance + noise), axis=2)[:, :, :positions]
    frequency = 1 / np.arange(1, queries + 1)
    query = random.choice(queries, pages, p=frequency / frequency.sum())
    ranker = random.integers(rankers, size=pages)
    device = random.integers(2, size=pages)
    k = np.arange(1, positions + 1)
    examination = k ** -np.array([[0.7], [1.4]])
    doc = shown[ranker, query]
    clicks = random.random((pages, positions)) < examination[device] * relevance[query[:, None], doc]
    log = pa.table(
        {
            "page": np.repeat(np.arange(pages), positions),
            "query": np.char.add("query ", np.repeat(query, positions).astype(str)),
            "ranker": np.array(list("abcdefghijklmnopqrstuvwxyz"))[np.repeat(ranker, positions)],
            "device": np.array(["desktop", "mobile"])[np.repeat(device, positions)],
            "doc": np.char.add("doc ", (query[:, None] * docs + doc).ravel().astype(str)),
            "position": np.tile(k, pages),
            "click": clicks.ravel().astype(np.int8),
        }
    )
    return log, Truth(("desktop", "mobile"), examination)
