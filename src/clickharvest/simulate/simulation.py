"""What the protocol's simulation gives: the log in several forms, and the truth behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.simulate.corpus import Corpus, top
from clickharvest.simulate.examination import CONTEXT_FEATURES, Examination
from clickharvest.simulate.users import SimulatedUsers, deal_clicks

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated log and the truth behind it, for R rankers, n training queries and K positions.

    Query numbers are those of `train`, document numbers its rows.

    Attributes:
        train: the queries of the log.
        test: other queries, to measure errors on.
        train_contexts: [n, 10].
        test_contexts: [m, 10].
        examination: the truth, contexts [·, 10] → p_k(x) [·, K]; where users browse, what
            `SimulatedUsers` make of it depends on the clicks above.
        traffic: share of the traffic of each ranker.
        shown: document of each ranker, query and position, −1 for none, [R, n, K].
        served: how often each ranker served each query, [R, n].
        clicks: clicks on each ranker's documents, [R, n, K].
        weights: the linear rankers, [R, F].
        click_model: how users click.
        consecutive: whether the rankers were deployed one after the other, in their order, instead of side by side.
        clicked: whether each display was clicked at each position, in the order of rankers and queries,
            [displays, K], where the counts do not tell all that matters: where users browse.
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
    weights: NDArray[np.float64]
    click_model: SimulatedUsers
    consecutive: bool = False
    clicked: NDArray[np.bool_] | None = field(default=None, repr=False)

    @property
    def context(self) -> tuple[str, ...]:
        """Names of the context columns, x1 to x10."""
        return tuple(f"x{j}" for j in range(1, CONTEXT_FEATURES + 1))

    @cached_property
    def train_examination(self) -> NDArray[np.float64]:
        """How often users examine each position, query by query of `train`, [n, K]; see `test_examination`."""
        return self._marginal(self.train, self.train_contexts)

    @cached_property
    def test_examination(self) -> NDArray[np.float64]:
        """The true p_k(x) of the test contexts, [m, K].

        Where users browse this is the probability that position k is examined on the pages of the test query, averaged
        over the rankers by their traffic: it depends on the results, and no p_k(x) equals it.
        """
        return self._marginal(self.test, self.test_contexts)

    def _marginal(self, corpus: Corpus, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        curve = self.examination(contexts)
        if not self.click_model.browses:
            return curve
        shown = self.rank(corpus, curve.shape[1])
        examined = self.click_model.examination(curve, corpus.relevant[shown] & (shown >= 0))
        return np.asarray(np.average(examined, axis=0, weights=list(self.traffic.values())))

    def rank(self, corpus: Corpus, positions: int | None = None) -> NDArray[np.int64]:
        """Rank the documents of any queries: document of each ranker, query and position, [R, ·, positions].

        Args:
            corpus: the queries, `train` or `test` for example.
            positions: how far down; by default as far as the longest query goes. −1 stands where there is none.
        """
        positions = int(corpus.sizes.max()) if positions is None else positions
        return np.stack([top(corpus, weights, positions) for weights in self.weights])

    @cached_property
    def log(self) -> pa.Table:
        """The log, with columns `query, doc, ranker, position, clicks, impressions, x1 … x10`.

        One row per ranker, query it served and document it showed, with the counts of all displays. Where rankers
        were deployed one after the other, a column `time` has the period: 1 for the first ranker.
        """
        cells = np.nonzero((self.shown >= 0) & (self.served[:, :, None] > 0))
        counts = {"clicks": self.clicks[cells], "impressions": self.served[cells[:2]]}
        time = {"time": cells[0] + 1} if self.consecutive else {}
        return self._table(cells, {**counts, **time, **self._context_columns(cells[1])})

    def rows(self, *, seed: int = 0, truth: bool = False) -> pa.Table:
        """Return the same log with one row per display and position, in the order of time.

        Columns `query, doc, ranker, position, click, page, time, x1 … x10`. Pages are numbered as they came, which
        is their time too.

        Args:
            seed: seed of the order of pages, and of which of a page's displays had the clicks that were counted.
            truth: add `examination`, the probability with which each row's result was examined given the clicks above
                it on its page.
        """
        random = np.random.default_rng([seed, 3])
        rankers, queries, positions = self.shown.shape
        cell = np.repeat(np.arange(rankers * queries), self.served.ravel())
        clicked = self.clicked
        if clicked is None:
            clicked = deal_clicks(self.served.ravel(), self.clicks.reshape(-1, positions), random)
        order = random.permutation(len(cell))
        if self.consecutive:
            order = order[np.argsort(cell[order] // queries, kind="stable")]
        cell = cell[order]
        page, place = np.nonzero(self.shown.reshape(-1, positions)[cell] >= 0)
        ranker, query = np.divmod(cell[page], queries)
        columns: dict[str, NDArray[Any]] = {
            "click": clicked[order[page], place].astype(np.int8),
            "page": page,
            "time": page,
        }
        if truth:
            here = self.shown.reshape(-1, positions)[cell]
            curve = self.examination(self.train_contexts)[cell % queries]
            relevant = self.train.relevant[here] & (here >= 0)
            columns["examination"] = self.click_model.examination_given(curve, relevant, clicked[order])[page, place]
        return self._table((ranker, query, place), {**columns, **self._context_columns(query)})

    @cached_property
    def rankings(self) -> pa.Table:
        """Where every ranker puts documents, columns `query, doc, ranker, position`: the top K of every query."""
        return self._table(np.nonzero(self.shown >= 0), {})

    @cached_property
    def documents(self) -> pa.Table:
        """Every document of the queries of the log, columns `query, doc, f1 … fF`: what a ranker learns from."""
        import pyarrow as pa

        return pa.table(self._keys | {f"f{j}": column for j, column in enumerate(self.train.features.T, 1)})

    @cached_property
    def judgements(self) -> pa.Table:
        """The grade of every document of the queries of the log, columns `query, doc, grade`."""
        import pyarrow as pa

        return pa.table(self._keys | {"grade": self.train.grades})

    @property
    def _keys(self) -> dict[str, NDArray[Any]]:
        return {"query": self.train.query, "doc": np.arange(len(self.train.grades))}

    def harvest(self) -> Interventions:
        """Harvest the log with design exposures, the way a user would."""
        from clickharvest.harvesting.collecting import harvest
        from clickharvest.harvesting.designs import Rankings
        from clickharvest.logs.reading import read_log

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
            contexts=self._context_columns(query),
            exposure_kind="design",
        )

    def _context_columns(self, query: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        return {name: self.train_contexts[query, j] for j, name in enumerate(self.context)}

    def _table(self, cells: tuple[NDArray[np.int64], ...], more: Mapping[str, NDArray[Any]]) -> pa.Table:
        import pyarrow as pa

        ranker, query, place = cells
        names = pa.array(list(self.traffic))
        columns = {
            "query": query,
            "doc": self.shown[cells],
            "ranker": pa.DictionaryArray.from_arrays(ranker, names).cast(pa.string()),
            "position": place + 1,
        }
        return pa.table(columns | dict(more))
