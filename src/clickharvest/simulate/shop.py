"""A shop's search with known truth: a log of three rankers in an A/B test, and results that a ranker can learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.simulate.ab_test import draw_queries

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]

QUERIES, HELD_OUT, CANDIDATES, FEATURES, POSITIONS, RANKERS = 500, 1_000, 20, 10, 10, 3
DEVICES, STEEPNESS = ("desktop", "phone"), (0.7, 1.2)
PAGES_PER_USER = 4
SLOPE, OFFSET, UNSEEN = 1.5, -1.5, 0.5
"""Length of the weights of relevance, its intercept, and the standard deviation of what no feature tells."""


@dataclass(frozen=True, eq=False)
class Shop:
    """A simulated log, and the truth behind it.

    Attributes:
        log: columns `query, doc, position, click, device, ranker, user, page, time`, one row per result and page.
        documents: columns `query, doc, f1 … f10`: the candidates of the queries of the log.
        devices: the devices.
        examination: p_k by device, [devices, K], 1 at position 1.
        features: features of the candidates of held-out queries, [queries, candidates, F].
        relevance: their probability of a click once examined, [queries, candidates].
        best: the weights of relevance, [F].
        shown: the weights of the rankers that made the log, [rankers, F].
    """

    log: pa.Table
    documents: pa.Table
    devices: tuple[str, ...]
    examination: Array
    features: Array
    relevance: Array
    best: Array
    shown: Array

    def first_relevance(self, weights: Array) -> float:
        """Return the mean relevance of the first result of held-out queries, when candidates are ranked by x · weights.

        Example:
            >>> shop = simulate_shop(pages=100)
            >>> shop.first_relevance(shop.best) > max(shop.first_relevance(weights) for weights in shop.shown)
            True
        """
        first = (self.features @ weights).argmax(axis=1)
        return float(self.relevance[np.arange(len(first)), first].mean())

    def truth(self) -> pa.Table:
        """Return the true examination, columns `device, position, examination`."""
        import pyarrow as pa

        positions = self.examination.shape[1]
        return pa.table(
            {
                "device": np.repeat(self.devices, positions),
                "position": np.tile(np.arange(1, positions + 1), len(self.devices)),
                "examination": self.examination.ravel(),
            }
        )


def simulate_shop(*, pages: int, seed: int = 0) -> Shop:
    """Simulate a shop's search.

    A result with features x ~ N(0, 1) is relevant with probability r = σ(w·x − 1.5 + ε), where w is a random direction
    of length 1.5 and ε ~ N(0, .5²). Three rankers rank by (w + c + e)·x: an error c that they share, and one of their
    own, e, both random directions of length 1.5 / √2, so that errors are as large as w. Queries arrive with Zipf
    frequencies; the ranker of a page is drawn at random; users come back, each on one device. Examination is k^−.7 on
    desktops and k^−1.2 on phones. Click ~ Bernoulli(p_k · r).

    Args:
        pages: result pages of the log.
        seed: seed of all randomness.

    Example:
        >>> shop = simulate_shop(pages=100)
        >>> shop.log.num_rows, shop.documents.num_rows, shop.examination.shape
        (1000, 10000, (2, 10))
    """
    import pyarrow as pa

    random = np.random.default_rng(seed)
    features = random.normal(size=(QUERIES + HELD_OUT, CANDIDATES, FEATURES))
    best = SLOPE * _direction(random)
    unseen = random.normal(0, UNSEEN, features.shape[:2])
    relevance = 1 / (1 + np.exp(-(features @ best + OFFSET + unseen)))
    error = SLOPE / np.sqrt(2)
    common = error * _direction(random)
    rankers = np.stack([best + common + error * _direction(random) for _ in range(RANKERS)])
    order = np.argsort(-np.einsum("rf,qdf->rqd", rankers, features[:QUERIES]), axis=2)[:, :, :POSITIONS]

    query = draw_queries(QUERIES, pages, random)
    users = max(1, pages // PAGES_PER_USER)
    user = random.integers(users, size=pages)
    device = random.integers(len(DEVICES), size=users)[user]
    ranker = random.integers(RANKERS, size=pages)
    place = np.arange(1, POSITIONS + 1)
    examination = place ** -np.array(STEEPNESS)[:, None]
    doc = order[ranker, query]
    clicks = random.random(doc.shape) < examination[device] * relevance[query[:, None], doc]

    def by_row(column: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(column, POSITIONS)

    def named(column: NDArray[Any], names: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(by_row(column), pa.array(names)).cast(pa.string())

    log = pa.table(
        {
            "query": by_row(query),
            "doc": (query[:, None] * CANDIDATES + doc).ravel(),
            "position": np.tile(place, pages),
            "click": clicks.ravel().astype(np.int8),
            "device": named(device, DEVICES),
            "ranker": named(ranker, tuple("ABC")),
            "user": by_row(user),
            "page": by_row(np.arange(pages)),
            "time": by_row(np.arange(pages)),
        }
    )
    known = features[:QUERIES].reshape(-1, FEATURES)
    keys = {"query": np.repeat(np.arange(QUERIES), CANDIDATES), "doc": np.arange(len(known))}
    documents = pa.table(keys | {f"f{j}": column for j, column in enumerate(known.T, 1)})
    return Shop(
        log=log,
        documents=documents,
        devices=DEVICES,
        examination=examination,
        features=features[QUERIES:],
        relevance=relevance[QUERIES:],
        best=best,
        shown=rankers,
    )


def _direction(random: np.random.Generator) -> Array:
    """Return a random vector of length 1, [F]."""
    vector = random.normal(size=FEATURES)
    return np.asarray(vector / np.linalg.norm(vector))
