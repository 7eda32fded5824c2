"""The semi-synthetic protocol of Fang, Agarwal and Joachims (SIGIR 2019), on any corpus.

Rankers trained on small samples of the queries serve the others; users examine position k with probability
p_k(x), and click what they examine if it is relevant, or else with a small probability:

    Pr(C = 1 | q, d, k) = p_k(x_q) · r(q, d),   r = 1 if d is relevant, `noise` if not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.interventions import Interventions
from clickharvest.simulate.contexts import CONTEXT_FEATURES, ContextFeatures
from clickharvest.simulate.corpus import Corpus, synthetic_corpus
from clickharvest.simulate.examination import Examination
from clickharvest.simulate.rankers import top, train_rankers, training_queries

if TYPE_CHECKING:
    import pyarrow as pa

SPARE = 1.12
"""Queries to make up for each that is needed, as some have no relevant document."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated log and the truth behind it, for R rankers, n training queries and K positions.

    Query numbers are those of `train`, document numbers its rows.

    Attributes:
        train: the queries of the log.
        test: other queries, to measure errors on.
        train_contexts: [n, 10].
        test_contexts: [m, 10].
        examination: the truth, contexts [·, 10] → p_k(x) [·, K].
        traffic: share of the traffic of each ranker.
        shown: document of each ranker, query and position, −1 for none, [R, n, K].
        served: how often each ranker served each query, [R, n].
        clicks: clicks on each ranker's documents, [R, n, K].
    """

    train: Corpus
    test: Corpus
    train_contexts: NDArray[np.float64]
    test_contexts: NDArray[np.float64]
    examination: Examination
    traffic: dict[str, float]
    shown: NDArray[np.int64]
    served: NDArray[np.int64]
    clicks: NDArray[np.int64]

    @property
    def context(self) -> tuple[str, ...]:
        """Names of the context columns, x1 to x10."""
        return tuple(f"x{j}" for j in range(1, CONTEXT_FEATURES + 1))

    @cached_property
    def test_examination(self) -> NDArray[np.float64]:
        """The true p_k(x) of the test contexts, [m, K]."""
        return self.examination(self.test_contexts)

    @cached_property
    def log(self) -> pa.Table:
        """The log, with columns `query, doc, ranker, position, clicks, impressions, x1 … x10`.

        One row per ranker, query it served and document it showed, with the counts of all displays.
        """
        cells = np.nonzero((self.shown >= 0) & (self.served[:, :, None] > 0))
        contexts = self.train_contexts[cells[1]]
        counts = {"clicks": self.clicks[cells], "impressions": self.served[cells[:2]]}
        return self._table(cells, counts | {name: contexts[:, j] for j, name in enumerate(self.context)})

    @cached_property
    def rankings(self) -> pa.Table:
        """Where every ranker puts documents, columns `query, doc, ranker, position`: the top K of every query."""
        return self._table(np.nonzero(self.shown >= 0), {})

    def harvest(self) -> Interventions:
        """Harvest the log with design exposures, the way a user would."""
        from clickharvest.designs import Rankings
        from clickharvest.harvesting import harvest
        from clickharvest.logs import read_log

        log = read_log(self.log, context=self.context, validate=False)
        return harvest(log, design=Rankings(self.rankings, self.traffic))

    def interventions(self) -> Interventions:
        """Return what `harvest` does (exposures up to rounding), straight from the arrays and without an engine."""
        possible = (self.shown >= 0) & (self.served.sum(axis=0) > 0)[:, None]
        ranker, query, place = np.nonzero(possible)
        positions = self.shown.shape[2]
        key, first, cell = np.unique(self.shown[possible] * positions + place, return_index=True, return_inverse=True)
        doc = key // positions
        _, unit, seen_at = np.unique(doc, return_inverse=True, return_counts=True)
        kept = seen_at[unit] >= 2
        if not kept.any():
            raise NotIdentifiedError("no document is at two positions: simulate more queries, rankers or sweeps")

        def summed(values: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
            return np.asarray(np.bincount(cell, weights=values)[kept], np.float64)

        query = query[first][kept]
        return Interventions(
            unit=np.unique(unit[kept], return_inverse=True)[1].astype(np.int64),
            query=query,
            position=key[kept] % positions + 1,
            exposure=summed(np.array(list(self.traffic.values()))[ranker]),
            clicks=summed(self.clicks[possible]).astype(np.int64),
            impressions=summed(np.broadcast_to(self.served[:, :, None], possible.shape)[possible]).astype(np.int64),
            contexts={name: self.train_contexts[query, j] for j, name in enumerate(self.context)},
            exposure_kind="design",
        )

    def _table(self, cells: tuple[NDArray[np.int64], ...], more: dict[str, NDArray[np.generic]]) -> pa.Table:
        import pyarrow as pa

        ranker, query, place = cells
        names = pa.array(list(self.traffic))
        columns = {
            "query": query,
            "doc": self.shown[cells],
            "ranker": pa.DictionaryArray.from_arrays(ranker, names).cast(pa.string()),
            "position": place + 1,
        }
        return pa.table(columns | more)


def simulate_protocol(
    *,
    sweeps: float,
    eta: float = 0.5,
    zeta: float = 1.0,
    examination: str = "power",
    traffic: Sequence[float] = (1, 1),
    positions: int = 10,
    queries: int = 11_473,
    test_queries: int = 2_000,
    noise: float = 0.1,
    seed: int = 0,
    corpus: Corpus | None = None,
) -> Simulation:
    """Simulate the log of an A/B test between linear rankers, with context-dependent examination.

    The queries with a relevant document are split at random: some train the rankers (`train_rankers`), `queries`
    make the log, `test_queries` are held out. With one seed and corpus, logs that differ in `sweeps`, `eta`,
    `examination`, `noise` or `traffic` (of as many rankers) share queries and contexts.

    Args:
        sweeps: how often a ranker serves each query: ranker i does `sweeps · traffic_i / mean(traffic)` times;
            2.3 times means twice, and once more for a random 30 % of the queries.
        eta: how strongly examination depends on context, w ~ U[−η, η) minus its mean.
        zeta: share of the context features tied to relevance, see `ContextFeatures`.
        examination: one of `EXAMINATIONS`.
        traffic: traffic of each ranker, in any unit; as many rankers as numbers.
        positions: K, documents shown on a page.
        queries: number of training queries n.
        test_queries: number of test queries m.
        noise: probability of a click on an irrelevant document that is examined.
        seed: seed of all randomness.
        corpus: where queries come from; by default a synthetic corpus of the same seed.

    Raises:
        InputError: the arguments make no sense, or the corpus has too few queries with a relevant document.

    Example:
        >>> simulation = simulate_protocol(sweeps=2, queries=100, test_queries=50)
        >>> simulation.log.num_rows, simulation.test_examination.shape, simulation.traffic
        (2000, (50, 10), {'f1': 0.5, 'f2': 0.5})
    """
    if sweeps <= 0 or positions < 2 or queries < 1 or len(traffic) < 2 or min(traffic) <= 0 or not 0 <= noise <= 1:
        raise InputError(
            f"sweeps={sweeps}, positions={positions}, queries={queries}, traffic={tuple(traffic)}, noise={noise}: "
            "expected sweeps > 0, two or more positions, queries, two or more rankers with traffic, noise from 0 to 1"
        )
    rankers = len(traffic)
    parts = np.cumsum([training_queries(rankers), queries, test_queries])
    if corpus is None:
        corpus = synthetic_corpus(
            int(SPARE * parts[-1]) + 100, docs=(max(20, positions), max(40, positions)), seed=seed
        )
    usable = corpus.queries_with_relevant()
    if len(usable) < parts[-1]:
        raise InputError(
            f"the corpus has {len(usable):,} queries with a relevant document, {parts[-1]:,} are needed: "
            "lower queries or test_queries"
        )
    # What depends on fewer arguments is drawn first, so that it stays the same when the others change.
    random = np.random.default_rng([seed, 1])
    samples, train, test = (corpus.take(part) for part in np.split(random.permutation(usable), parts)[:3])
    features = ContextFeatures.draw(train, zeta, random)
    train_contexts, test_contexts = features.of(train, random), features.of(test, random)
    truth = Examination.draw(examination, positions, features=CONTEXT_FEATURES, eta=eta, random=random)
    weights = train_rankers(samples, rankers)
    shown = np.stack([top(train, w, positions) for w in weights])
    share = np.array(traffic, float) / sum(traffic)
    served = np.stack([_serve(queries, sweeps * rankers * s, random) for s in share])
    attraction = np.where(train.relevant[shown], 1.0, noise)
    clicks = random.binomial(np.where(shown >= 0, served[:, :, None], 0), truth(train_contexts) * attraction)
    return Simulation(
        train=train,
        test=test,
        train_contexts=train_contexts,
        test_contexts=test_contexts,
        examination=truth,
        traffic={f"f{i}": float(s) for i, s in enumerate(share, 1)},
        shown=shown,
        served=served,
        clicks=clicks,
    )


def _serve(queries: int, times: float, random: np.random.Generator) -> NDArray[np.int64]:
    whole = int(times)
    served = np.full(queries, whole)
    served[random.permutation(queries)[: round((times - whole) * queries)]] += 1
    return served
