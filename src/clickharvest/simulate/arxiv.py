"""An arXiv-like search log with known truth: an A/B test of three rankers and a swap experiment.

Fang, Agarwal and Joachims (SIGIR 2019) measured on a log of arXiv's full-text search that is not public. This one has
its design: three rankers serve at random; one part of the pages is shown as ranked (A/B), on the others the first
result changes places with the one at a random rank (swap). Queries are complex (with Boolean operators) or simple,
pages hold up to K results, and five groups of features tell of the query. Clicks follow the contextual position-based
model, Pr(C = 1 | x, d, k) = p_k(x) r(x, d).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Scores = NDArray[np.float32]
Part = Literal["ab", "swap"]
Split = Literal["train", "validation", "test"]

PAPER_SIZES: dict[tuple[str, Part], tuple[int, int]] = {
    ("complex", "swap"): (24_460, 32_108),
    ("complex", "ab"): (27_072, 41_638),
    ("simple", "swap"): (36_659, 15_296),
    ("simple", "ab"): (50_443, 22_915),
}
"""Queries and clicks of the paper's log by kind of query and part."""
QUERIES = sum(queries for queries, _ in PAPER_SIZES.values())
"""Queries of the paper's log, which is the default size."""

RANKERS = 3
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
"""The parts of the log, each with queries of its own."""
THRESHOLDS = {
    "query_len": (1, 2, 5, 10, 15, 20, 25, 30, 35, 40),
    "ord_in_session": (1, 2, 5, 10, 15),
    "results": (1, 2, 5, 10, 15, 20, 50, 100, 150, 200),
}
GROUPS = ("category", "query_len", "ord_in_session", "results", "result_dist")
"""The paper's feature groups: 10 + 10 + 5 + 10 binaries and 35 shares."""
TOPICS, CATEGORIES, CANDIDATES = 35, 9, 30
LONGEST_SESSION, MOST_RESULTS = 40, 20_000
CATEGORY_SHARES = np.array([0.22, 0.18, 0.14, 0.12, 0.1, 0.08, 0.07, 0.05, 0.04])
CATEGORY_EFFECTS = np.array([0.0, 0.35, -0.3, 0.15, -0.45, 0.4, -0.1, 0.3, -0.35, 0.2])
TOPIC_EFFECTS = 0.6 * np.cos(2.4 * np.arange(TOPICS))
LEVELS, SPREADS = (-3.5, -2.66), (0.81, 3.57)
"""Intercept and slope of the relevance of simple and of complex queries, set to get the paper's numbers of clicks."""


@dataclass(frozen=True, eq=False)
class ArxivQueries:
    """Queries and their features, one page each, n in all.

    Attributes:
        is_complex: whether the query is complex, [n].
        session: number of the session, [n].
        ord_in_session: how many queries the session had, this one included, [n].
        query_len: words of the query, [n].
        results: how many documents match, [n].
        category: category the query names, 1 to 9, or 0 for none, [n].
        result_dist: shares of 35 topics among the results, [n, 35].
    """

    is_complex: NDArray[np.bool_]
    session: Ints
    ord_in_session: Ints
    query_len: Ints
    results: Ints
    category: Ints
    result_dist: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ArxivSimulation(ArxivQueries):
    """A simulated log and the truth behind it, for n pages of at most K results out of C candidates.

    Every page is the only one of its query, so that only designs, not repetition, tell where else a document could
    have stood. A page shows as many results as its query has, at most K.

    Attributes:
        is_swap: whether the page belongs to the swap experiment, [n].
        split: 0, 1 or 2 for the training, validation and test part, [n].
        examination: the truth p_k(x), 1 at position 1, [n, K].
        rank: position that each ranker gives each candidate, 0 where it does not show it, [3, n, C].
        ranker: the ranker that served, [n].
        swap_rank: the rank that changed places with the first; 1 where nothing changed, [n].
        clicks: clicks by candidate, [n, C].
    """

    is_swap: NDArray[np.bool_]
    split: NDArray[np.int8]
    examination: Array
    rank: NDArray[np.int8]
    ranker: NDArray[np.int8]
    swap_rank: NDArray[np.int8]
    clicks: NDArray[np.bool_]

    @property
    def positions(self) -> int:
        """K, the most results a page shows."""
        return int(self.examination.shape[1])

    @cached_property
    def shown(self) -> NDArray[np.int64]:
        """How many results each page shows, [n]."""
        return np.minimum(self.results, self.positions)

    @cached_property
    def original(self) -> NDArray[np.int8]:
        """Position of each candidate before the swap, 0 where it is not shown, [n, C]."""
        return np.asarray(self.rank[self.ranker, np.arange(len(self.ranker))])

    @cached_property
    def position(self) -> NDArray[np.int8]:
        """Position at which each candidate was shown, 0 where it was not, [n, C]."""
        return _exchange(self.original, self.swap_rank[:, None])

    def curve(self, *, is_complex: bool) -> Array:
        """Return the true curve of the complex or the simple queries, [K]: the mean of p_k(x) over pages that reach k.

        Examination also differs between the queries of one kind; this is what a PBM of them should find.
        """
        own = self.is_complex == is_complex
        reached = self.shown[own, None] >= np.arange(1, self.positions + 1)
        return np.asarray((self.examination[own] * reached).sum(axis=0) / reached.sum(axis=0))

    def pages(self, part: Part | None = None, split: Split | None = None) -> NDArray[np.bool_]:
        """Return which pages belong to a part of the experiment and a part of the split, [n]."""
        if part not in (None, "ab", "swap") or split not in (None, *SPLITS):
            raise InputError(f"no part {part!r} or split {split!r}: expected ab or swap, {', '.join(SPLITS)}")
        chosen = np.ones(len(self.ranker), np.bool_)
        if part is not None:
            chosen &= self.is_swap == (part == "swap")
        return chosen if split is None else chosen & (self.split == SPLITS.index(split))

    def features(self, *groups: str) -> dict[str, NDArray[np.int8] | NDArray[np.float32]]:
        """Return the feature columns of some groups, each [n].

        `complex` is one binary, `category` whether one is named and which, `query_len`, `ord_in_session` and `results`
        whether the number is greater than each of their `THRESHOLDS`, `result_dist` the shares.

        Example:
            >>> list(simulate_arxiv(queries=100).features("complex", "ord_in_session"))[:3]
            ['complex', 'ord_in_session>1', 'ord_in_session>2']
        """
        columns: dict[str, NDArray[np.int8] | NDArray[np.float32]] = {}
        for group in groups:
            if group in THRESHOLDS:
                values: NDArray[np.int64] = getattr(self, group)
                columns |= {f"{group}>{t}": (values > t).astype(np.int8) for t in THRESHOLDS[group]}
            elif group == "complex":
                columns["complex"] = self.is_complex.astype(np.int8)
            elif group == "category":
                columns["category>0"] = (self.category > 0).astype(np.int8)
                columns |= {f"category={c}": (self.category == c).astype(np.int8) for c in range(1, CATEGORIES + 1)}
            elif group == "result_dist":
                columns |= {f"result_dist={t}": self.result_dist[:, t - 1] for t in range(1, TOPICS + 1)}
            else:
                raise InputError(f"no feature group {group!r}: expected complex, {', '.join(GROUPS)}")
        return columns

    @cached_property
    def log(self) -> pa.Table:
        """The log, one row per shown result.

        Columns `page, session, query, ranker, swap, original, doc, position, click, split`, and of the query
        `complex, category, query_len, ord_in_session, results`; `original` is the position before the swap.
        """
        return self.log_with()

    def log_with(self, *groups: str) -> pa.Table:
        """Return the log with the feature columns of some groups added to its own."""
        import pyarrow as pa

        page, candidate = np.nonzero(self.position)
        order = np.lexsort((self.position[page, candidate], page))
        page, candidate = page[order], candidate[order]
        own = {"category": self.category, "query_len": self.query_len, "ord_in_session": self.ord_in_session}
        columns = {
            "page": page,
            "session": self.session[page],
            "query": page,
            "ranker": pa.DictionaryArray.from_arrays(self.ranker[page], ["f1", "f2", "f3"]).cast(pa.string()),
            "swap": self.is_swap[page],
            "original": self.original[page, candidate].astype(np.int64),
            "doc": page * CANDIDATES + candidate,
            "position": self.position[page, candidate].astype(np.int64),
            "click": self.clicks[page, candidate].astype(np.int8),
            "split": pa.DictionaryArray.from_arrays(self.split[page], list(SPLITS)).cast(pa.string()),
            "complex": self.is_complex[page],
            **{name: values[page] for name, values in (own | {"results": self.results}).items()},
        }
        return pa.table(columns | {name: values[page] for name, values in self.features(*groups).items()})

    @cached_property
    def rankings(self) -> pa.Table:
        """Where every ranker puts documents before any swap, columns `query, ranker, doc, position`."""
        import pyarrow as pa

        ranker, page, candidate = np.nonzero(self.rank)
        return pa.table(
            {
                "query": page,
                "ranker": pa.DictionaryArray.from_arrays(ranker, ["f1", "f2", "f3"]).cast(pa.string()),
                "doc": page * CANDIDATES + candidate,
                "position": self.rank[ranker, page, candidate].astype(np.int64),
            }
        )

    def interventions(
        self, *, part: Part = "ab", features: Sequence[str] = (), split: Split | None = None
    ) -> Interventions:
        """Return the interventions of one part, straight from the arrays and without an engine.

        - **ab**: each ranker serves a third of the pages, e_{u,k} = Σ_i 1[rank(d | f_i) = k] / 3;
        - **swap**: given the ranking, the first of m results stands at k ≤ m with probability 1/K (and stays with the
          rest, as a rank beyond the page changes nothing); the one from rank j stands at 1 with 1/K, else at j.

        Args:
            part: `"ab"` or `"swap"`.
            features: groups of `features` to attach as context columns.
            split: `"train"`, `"validation"` or `"test"`; None takes all pages.

        Example:
            >>> print(simulate_arxiv(queries=1000).interventions(features=["complex"]))
            Interventions: 8,760 units, 22,269 rows, 341 clicks, positions 1-21, design exposures, context complex
        """
        own = np.flatnonzero(self.pages(part, split))
        rows = self._ab_cells(own) if part == "ab" else self._swap_cells(own)
        key = rows[0] * CANDIDATES + rows[1]
        order = np.argsort(key * (self.positions + 1) + rows[2])
        key = key[order]
        same = key[1:] == key[:-1]
        several = np.r_[False, same] | np.r_[same, False]
        if not several.any():
            raise NotIdentifiedError("no document could stand at two positions: simulate more queries")
        page, candidate, position, exposure = (column[order[several]] for column in rows)
        here = self.position[page, candidate] == position
        return Interventions(
            unit=np.cumsum(np.diff(key[several], prepend=key[several][0]) > 0),
            query=page,
            position=position,
            exposure=exposure,
            clicks=(here & self.clicks[page, candidate]).astype(np.int64),
            impressions=here.astype(np.int64),
            contexts={name: values[page] for name, values in self.features(*features).items()},
            exposure_kind="design",
        )

    def _ab_cells(self, own: Ints) -> tuple[Ints, Ints, Ints, Array]:
        """Return page, candidate, position and exposure where some ranker puts a candidate."""
        rank = np.sort(self.rank[:, own], axis=0)
        first = rank > 0
        first[1:] &= rank[1:] != rank[:-1]
        cell, page, candidate = np.nonzero(first)
        position = rank[cell, page, candidate]
        agreeing = (rank[:, page, candidate] == position).sum(axis=0)
        return own[page], candidate, position.astype(np.int64), agreeing / RANKERS

    def _swap_cells(self, own: Ints) -> tuple[Ints, Ints, Ints, Array]:
        """Return page, candidate, position and exposure where a swap could put a candidate."""
        share = 1 / self.positions
        shown = self.shown[own]
        page, candidate = np.nonzero(self.original[own] > 1)
        at = self.original[own[page], candidate].astype(np.int64)
        top = np.repeat(np.arange(len(own)), shown)
        to = np.arange(len(top)) - np.repeat(np.cumsum(shown) - shown, shown) + 1
        stays = share * (1 + self.positions - shown[top])
        return (
            own[np.concatenate([page, page, top])],
            np.concatenate([candidate, candidate, np.argmax(self.original[own] == 1, axis=1)[top]]),
            np.concatenate([np.ones_like(at), at, to]),
            np.concatenate([np.full(len(at), share), np.full(len(at), 1 - share), np.where(to == 1, stays, share)]),
        )


def simulate_arxiv(*, queries: int = QUERIES, positions: int = 21, seed: int = 0) -> ArxivSimulation:
    """Simulate the arXiv-like log.

    The numbers of complex and simple queries and of A/B and swap pages are those of `PAPER_SIZES`, with fewer queries
    in proportion; clicks come within a few per cent of the paper's. Our choices, not the paper's, are how far down
    queries are read (`true_examination`), how much the feature groups matter, and how much the rankers disagree, which
    was doubled once after the gain of the feature groups had come out near zero.

    Args:
        queries: number of queries n, one page each.
        positions: K, the most results a page shows, from 2 to 30.
        seed: seed of all randomness.

    Raises:
        InputError: there are too few queries for four parts, or too many positions.

    Example:
        >>> simulation = simulate_arxiv(queries=1000)
        >>> int(simulation.is_complex.sum()), int(simulation.pages("swap").sum()), simulation.examination.shape
        (372, 440, (1000, 21))
    """
    if queries < 100 or not 2 <= positions <= CANDIDATES:
        raise InputError(
            f"queries={queries}, positions={positions}: expected 100 queries or more, 2 to {CANDIDATES} positions"
        )
    random = np.random.default_rng([seed, 21])
    is_complex, is_swap = _kinds(queries, random)
    drawn = draw_queries(is_complex, random)
    relevance, scores = draw_candidates(drawn, RANKERS, random)
    shown = np.minimum(drawn.results, positions)
    order = np.argsort(-scores, axis=2)[:, :, :positions]
    rank = np.zeros(scores.shape, np.int8)
    place = np.arange(1, positions + 1)
    np.put_along_axis(rank, order, np.where(place <= shown[:, None], place, 0)[None].astype(np.int8), axis=2)
    ranker = random.integers(RANKERS, size=queries, dtype=np.int8)
    drawn_rank = random.integers(1, positions + 1, size=queries)
    swap_rank = np.where(is_swap & (drawn_rank <= shown), drawn_rank, 1).astype(np.int8)
    examination = true_examination(drawn, positions)
    position = _exchange(rank[ranker, np.arange(queries)], swap_rank[:, None])
    examined = np.take_along_axis(examination, np.maximum(position, 1).astype(np.int64) - 1, axis=1)
    clicks = (position > 0) & (random.random(position.shape) < examined * relevance)
    split = np.zeros(queries, np.int8)
    split[random.permutation(queries)[: queries // 5]] = 1 + np.arange(queries // 5) % 2
    return ArxivSimulation(
        **vars(drawn),
        is_swap=is_swap,
        split=split,
        examination=examination,
        rank=rank,
        ranker=ranker,
        swap_rank=swap_rank,
        clicks=clicks,
    )


def _kinds(queries: int, random: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which queries are complex and which pages are swapped, in the paper's proportions and in random order."""
    sizes = np.array([size for size, _ in PAPER_SIZES.values()])
    ends = np.rint(np.cumsum(sizes) * queries / sizes.sum()).astype(np.int64)
    kind = random.permutation(np.repeat(np.arange(len(sizes)), np.diff(ends, prepend=0)))
    is_complex, is_swap = (np.array([word in name for name in PAPER_SIZES]) for word in ("complex", "swap"))
    return is_complex[kind], is_swap[kind]


def _exchange(rank: NDArray[np.int8], with_first: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return ranks after the first has changed places with another, broadcast; 0 stays 0."""
    return np.where(rank == 1, with_first, np.where(rank == with_first, np.int8(1), rank))


def true_examination(queries: ArxivQueries, positions: int) -> Array:
    """Return p_k(x) = exp(−η(x) φ_k) with φ_k = log k + .3 σ(k − 10.5), [n, K].

    φ is a power law with a step where the screen ends. Complex queries, long ones and those with many results
    are left sooner, η grows; later queries of a session are read further down; categories and topics differ:
    log η = −.5 + .45 [complex] + .2 log(length / 4) + .15 log(results / 40) − .22 log(order) + effects.
    """
    index = -0.5 + 0.45 * queries.is_complex + 0.2 * np.log(queries.query_len / 4)
    index += 0.15 * np.log(queries.results / 40) - 0.22 * np.log(queries.ord_in_session)
    index += CATEGORY_EFFECTS[queries.category] + queries.result_dist @ TOPIC_EFFECTS
    k = np.arange(1.0, positions + 1)
    shape = np.log(k) + 0.3 * (expit(k - 10.5) - expit(-9.5))
    return np.asarray(np.exp(-np.exp(index)[:, None] * shape))


def draw_queries(is_complex: NDArray[np.bool_], random: np.random.Generator) -> ArxivQueries:
    """Return queries with features, one for each entry of `is_complex` [n].

    Example:
        >>> queries = draw_queries(np.array([True, False]), np.random.default_rng(0))
        >>> true_examination(queries, 3).shape, queries.result_dist.sum(axis=1).round(4).tolist()
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
