"""Small logs whose examination is known, sound or with one thing wrong, for the tests of checks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clickharvest import CPBM, PBM, harvest, read_log
from clickharvest.checks import CHECKS, Evidence, Finding, read_displays
from clickharvest.errors import HarvestWarning
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.model.propensities import Propensities

Array = NDArray[Any]
WIDE, QUERIES, DOCS = 6, 40, 8
ENGINE = DuckDBEngine()
LOG_K = np.log(np.arange(1, WIDE + 1))


@dataclass
class World:
    """Pages of `WIDE` results, [pages] or [pages, WIDE]; their users examine position k with probability 1 / k.

    Attributes:
        random: source of chance.
        columns: `page`, `query`, `user`, `ranker`, `time` and whatever a test adds, by page.
        doc: the results, numbered through within queries.
        appeal: probability of a click on what is examined.
        examined: probability that the position is examined.
        clicks: what was clicked.
        kept: which rows the log has.
        rows: further columns by row, [pages, WIDE].
    """

    random: np.random.Generator
    columns: dict[str, Array]
    doc: Array
    appeal: Array
    examined: Array
    clicks: Array = field(default_factory=lambda: np.zeros(0))
    kept: Array | None = None
    rows: dict[str, Array] = field(default_factory=dict)

    def draw(self) -> World:
        """Let users click, each result for itself."""
        self.clicks = self.random.random(self.doc.shape) < np.minimum(self.examined * self.appeal, 1)
        return self

    def shuffled(self, share: float = 0.1) -> World:
        """Let chance order the results of some pages, whose ranker is `random`; the clicks are to be drawn after it."""
        chosen = self.random.random(len(self.doc)) < share
        order = np.argsort(self.random.random(self.doc.shape), axis=1)
        for name in ("doc", "appeal"):
            own = getattr(self, name)
            setattr(self, name, np.where(chosen[:, None], np.take_along_axis(own, order, axis=1), own))
        self.columns["ranker"] = np.where(chosen, "random", self.columns["ranker"])
        return self

    def swapped(self, share: float = 0.3) -> World:
        """Let some pages exchange the first result with one of all ranks; `original` is where results stood before."""
        drawn = np.where(self.random.random(len(self.doc)) < share, self.random.integers(WIDE, size=len(self.doc)), 0)
        order = np.tile(np.arange(WIDE), (len(self.doc), 1))
        order[:, 0] = drawn
        order[np.arange(len(self.doc)), drawn] = 0
        for name in ("doc", "appeal"):
            setattr(self, name, np.take_along_axis(getattr(self, name), order, axis=1))
        self.rows["original"] = order + 1
        return self

    def table(self, *without: str) -> pa.Table:
        """Return the log, but for some columns."""
        rows = np.ones(self.doc.shape, bool) if self.kept is None else self.kept
        position = np.tile(np.arange(1, WIDE + 1), (len(self.doc), 1))
        table = {name: np.repeat(one, WIDE)[rows.ravel()] for name, one in self.columns.items() if name not in without}
        named = {"doc": self.columns["query"][:, None] * DOCS + self.doc, "position": position, **self.rows}
        return pa.table(table | {name: one[rows] for name, one in named.items()} | {"click": self.clicks[rows] * 1})

    def log(self, *without: str, context: tuple[str, ...] = ()) -> ClickLog:
        """Return the log, read, without some columns."""
        with quietly():
            return read_log(self.table(*without), context=list(context), engine=ENGINE)


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings of what checks find, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarvestWarning)
        yield


def world(
    seed: int = 0,
    pages: int = 12_000,
    *,
    noise: tuple[float, ...] = (0.3, 0.3),
    per_user: float = 6.0,
    page_noise: float = 0.0,
    taste: float = 0.0,
    known: float = 0.0,
    change: float = 0.0,
    turns: bool = False,
) -> World:
    """Return pages that were not clicked yet.

    Args:
        seed: seed of all chance.
        pages: their number.
        noise: what each ranker adds to relevance for good, when it sorts; rankers are drawn by user.
        per_user: pages of a user, on average.
        page_noise: what is added on every page.
        taste: standard deviation of what single users think of documents, on the log scale.
        known: how much of that rankers know.
        change: how much documents gain or lose over time, a share of their relevance; rankers follow it.
        turns: whether rankers take turns in time, and each is as it was made, before the start or at the end.
    """
    random = np.random.default_rng(seed)
    users = int(pages / per_user)
    query, user = random.integers(QUERIES, size=pages), random.integers(users, size=pages)
    ranker, time = random.integers(len(noise), size=users)[user], np.sort(random.random(pages))
    made = np.round(time) if turns else time
    ranker = made.astype(np.int64) if turns else ranker
    way = random.choice([-change, change], (QUERIES, DOCS))[query]
    relevance = random.uniform(0.1, 0.8, (QUERIES, DOCS))[query]
    known_now, now = (relevance * (1 + way * (2 * when[:, None] - 1)) for when in (made, time))
    own = np.stack([random.normal(0, one, (QUERIES, DOCS)) for one in noise])
    liking = random.normal(0, taste, (users, DOCS))[user]
    score = known_now + own[ranker, query] + known * liking + random.normal(0, page_noise, now.shape)
    doc = np.argsort(-score, axis=1)[:, :WIDE]
    appeal = np.take_along_axis(now * np.exp(liking - taste**2 / 2), doc, axis=1)
    columns = {"page": np.arange(pages), "query": query, "user": user, "ranker": np.array(list("abcd"))[ranker]}
    return World(random, columns | {"time": time}, doc, appeal, np.tile(np.exp(-LOG_K), (pages, 1)))


def fitted(log: ClickLog, *, anchor: int = 1, **how: Any) -> Propensities:
    """Return the free curve of a log without context, or the power law of one with."""
    with quietly():
        model = CPBM(curve="power", anchor=anchor) if log.context else PBM(anchor=anchor)
        return model.fit(harvest(log, **how)).propensities_


def evidence_of(log: ClickLog, *, anchor: int = 1, **how: Any) -> Evidence:
    """Return the displays of a log beside the curve that fits it."""
    return Evidence(read_displays(log), fitted(log, anchor=anchor), **how)


def answer(kind: str, evidence: Evidence) -> Finding:
    """Return what one check finds."""
    return CHECKS[kind].run(evidence)
