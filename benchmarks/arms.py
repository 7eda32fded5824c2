"""The logs of `rankers`: two rankers share the traffic, users of different kinds look down the page differently.

Queries of a corpus are divided at random: a few train the two linear rankers that are shown, each of which knows half
of the features; the larger part is logged, the others are held out to judge by their grades. A page shows the top 10 of
one ranker. A, the weaker one, is what was always shown; B is new. Queries are of three kinds, of whose users some look
far down the page and some hardly below the top, on two devices:

    Pr(click) = k^{−η(kind, device)} · (ε + (1 − ε) (2^grade − 1) / (2^largest grade − 1)),   ε = .1

NumPy alone: no engine is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.interventions import Interventions
from clickharvest.rank.data import RankingData, ranking_data
from clickharvest.rank.estimates import ShownRanking
from clickharvest.simulate import Corpus
from clickharvest.simulate.corpus import svm_rank, top

Array = NDArray[np.float64]
Index = NDArray[np.int64]

POSITIONS, NOISE = 10, 0.1
STEEPNESS = np.array([0.5, 1.2, 2.0])[:, None] + np.array([-0.2, 0.2])
"""η of every kind of query and device, [3, 2]."""
UNEQUAL, FAIR = (3, 60), (30, 30)
"""Queries that the shown rankers are trained on: A, which has the larger share, is weak, or as good as B."""
MOST_LOGGED, LOGGED = 500, 0.6
"""Logged queries at most, and the share of those that train no shown ranker that are logged."""


@dataclass(frozen=True, eq=False)
class Log:
    """A simulated log and its truth.

    Attributes:
        corpus: the logged queries.
        test: the queries held out.
        weights: the shown rankers, [2, F].
        orders: rows of the documents that they show, −1 where there are no more, [2, n_queries, 10].
        kind: kind of each logged query, [n_queries].
        query: query of each page, [pages].
        arm: ranker of each page, [pages].
        device: device of each page, [pages].
        clicks: clicks by position, [pages, 10].
    """

    corpus: Corpus
    test: Corpus
    weights: Array
    orders: Index
    kind: Index
    query: Index
    arm: Index
    device: Index
    clicks: NDArray[np.bool_]

    @property
    def shown(self) -> Index:
        """Rows of the documents of every page, −1 where there is none, [pages, 10]."""
        return np.asarray(self.orders[self.arm, self.query])

    @cached_property
    def cells(self) -> dict[str, Index]:
        """Impressions `n` and `clicks` of every document, `device`, and `position`; rows of one document together."""
        page, column = np.nonzero(self.shown >= 0)
        code = (self.shown[page, column] * 2 + self.device[page]) * POSITIONS + column
        found, cell = np.unique(code, return_inverse=True)
        clicks = np.bincount(cell, self.clicks[page, column], len(found)).astype(np.int64)
        doc, rest = found // (2 * POSITIONS), found % (2 * POSITIONS)
        own = {"doc": doc, "device": rest // POSITIONS, "position": rest % POSITIONS + 1}
        return own | {"query": self.corpus.query[doc], "n": np.bincount(cell), "clicks": clicks}

    @property
    def truth(self) -> Array:
        """The examination of every kind, device and position, [3, 2, 10]."""
        return np.asarray(np.arange(1.0, POSITIONS + 1) ** -STEEPNESS[:, :, None])

    def interventions(self) -> Interventions:
        """Return what a harvest would: documents that users of a device saw at two positions."""
        c = self.cells
        unit = c["doc"] * 2 + c["device"]
        several = np.bincount(unit)[unit] > 1
        own = {name: values[several] for name, values in c.items()}
        return Interventions(
            unit=unit[several], query=own["query"], position=own["position"], exposure=own["n"].astype(np.float64),
            clicks=own["clicks"], impressions=own["n"],
            contexts={"kind": self.kind[own["query"]].astype(str), "device": own["device"].astype(str)},
        )  # fmt: skip

    def data(self, examination: Array) -> RankingData:
        """Return what rankers learn from if examination is [3, 2, 10]: the documents shown, and the clicks on them."""
        c = self.cells
        rows, own = np.unique(c["doc"], return_inverse=True)
        p = examination[self.kind[c["query"]], c["device"], c["position"] - 1]
        exposure, clicks = np.bincount(own, c["n"] * p), np.bincount(own, c["clicks"])
        query = self.corpus.query[rows]
        pages = np.bincount(self.query, minlength=len(self.corpus)).astype(np.float64)
        clicked = np.flatnonzero(clicks)
        names, starts = np.unique(query, return_index=True)
        return ranking_data(
            self.corpus.features[rows], np.append(starts, len(rows)), clicked,
            exposure[clicked] / pages[query[clicked]], clicks=clicks[clicked], query=names, impressions=pages[names],
            exposure=exposure,
        )  # fmt: skip

    def arms(self) -> dict[str, ShownRanking]:
        """Return both rankings as they were shown, in rows of `data`."""
        rows = np.unique(self.cells["doc"])
        names = np.unique(self.corpus.query[rows])
        found = {}
        for k, name in enumerate("AB"):
            served = np.bincount(self.query[self.arm == k], minlength=len(self.corpus)) > 0
            query, column = np.nonzero((self.orders[k] >= 0) & served[:, None])
            place = np.searchsorted(rows, self.orders[k][query, column])
            found[name] = ShownRanking(place, column + 1.0, np.ones(len(place)), served[names])
        return found

    def sides(self) -> dict[str, Corpus]:
        """Return the logged queries and the new ones."""
        return {"log": self.corpus, "new": self.test}

    def grades(self) -> Array:
        """Return the true grades of the documents of `data`."""
        return self.corpus.grades[np.unique(self.cells["doc"])].astype(np.float64)


def simulate(corpus: Corpus, share: float, clicks: int, seed: int, arm_queries: tuple[int, int] = UNEQUAL) -> Log:
    """Return a log with about so many clicks; A has this share of the traffic.

    Args:
        corpus: queries to divide, those without a relevant document are left out.
        share: share of the traffic of ranker A.
        clicks: expected number of clicks.
        seed: seed of the division, the rankers and the clicks.
        arm_queries: queries that the shown rankers are trained on, A and B.
    """
    random = np.random.default_rng(seed)
    useful = random.permutation(corpus.queries_with_relevant())
    known = random.permutation(corpus.features.shape[1]) % 2
    weights = np.stack(
        [
            np.where(known == k, svm_rank(_only(corpus.take(part), known == k)), 0.0)
            for k, part in enumerate(np.split(useful[: sum(arm_queries)], arm_queries[:1]))
        ]
    )
    rest = useful[sum(arm_queries) :]
    size = min(MOST_LOGGED, round(LOGGED * len(rest)))
    logged, test = corpus.take(rest[:size]), corpus.take(rest[size:])
    orders = np.stack([top(logged, w, POSITIONS) for w in weights])
    kind = random.integers(len(STEEPNESS), size=size)
    largest = float(corpus.grades.max())
    liked = NOISE + (1 - NOISE) * (2.0**logged.grades - 1) / (2.0**largest - 1)
    curve = np.arange(1.0, POSITIONS + 1) ** -STEEPNESS[:, :, None]

    def rates(query: Index, arm: Index, device: Index) -> Array:
        docs = orders[arm, query]
        return np.asarray(np.where(docs >= 0, curve[kind[query], device] * liked[docs], 0.0))

    every = [
        part * rates(np.arange(size), np.full(size, arm), np.full(size, device)).sum(1).mean() / 2
        for arm, part in ((0, share), (1, 1 - share))
        for device in (0, 1)
    ]
    pages = round(clicks / sum(every))
    query, device = random.integers(size, size=pages), random.integers(2, size=pages)
    arm = (random.random(pages) >= share).astype(np.int64)
    drawn = random.random((pages, POSITIONS)) < rates(query, arm, device)
    return Log(logged, test, weights, orders, kind, query, arm, device, drawn)


def _only(corpus: Corpus, features: NDArray[np.bool_]) -> Corpus:
    """Return a corpus whose other features are 0."""
    return Corpus(corpus.features * features.astype(np.float32), corpus.grades, corpus.starts, corpus.threshold)


def ndcg(scores: Any, corpus: Corpus, depth: int = 10) -> float:
    """Return the mean nDCG of queries with a positive grade, gains 2^grade − 1; equal scores in random order."""
    luck = np.random.default_rng(0).random(len(corpus.grades))
    order = np.lexsort((luck, -np.asarray(scores), corpus.query))
    ideal = np.lexsort((-corpus.grades.astype(np.int64), corpus.query))
    rank = np.arange(len(order)) - np.repeat(corpus.starts[:-1], corpus.sizes) + 1
    worth = np.where(rank <= depth, 1 / np.log2(1 + rank), 0.0)
    got, best = (np.bincount(corpus.query, worth * (2.0 ** corpus.grades[o] - 1)) for o in (order, ideal))
    return float((got[best > 0] / best[best > 0]).mean())
