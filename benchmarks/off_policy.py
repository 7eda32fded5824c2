"""Off-policy estimates where the arms of a test show different documents: bias and coverage, with true propensities.

Two rankers each show ten of a query's twenty documents; B is the better one and gets half, a tenth or a twentieth of
the traffic. The difference B − A in DCG@10 of an average page is estimated from many logs, each with new queries, and
compared with its true value over all queries. Examination depends on a context of the page, and its truth is given, so
that whatever is wrong is the estimator's fault.

| estimator | what it is |
|---|---|
| ips, snips, dr | policy-aware: absent pages count, see `clickharvest.rank.off_policy` |
| click / p | what it was before: the propensity of the position alone |

    make benchmark-off_policy        # writes the table

`few pages` is the hostile cell: most queries were never served by the small arm, and what it would have shown is
unknown there. As shown, arms are compared on the queries that both served.
"""

from __future__ import annotations

import argparse
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clickharvest.rank import RankingData, ShownRanking, off_policy, ranking_data

DOCS, SHOWN, METRIC = 20, 10, "dcg@10"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A kind of log: its name, B's share of the traffic, queries and mean pages of a query."""

    name: str
    share: float
    queries: int = 300
    pages: float = 150.0


CELLS = (
    Cell("50/50", 0.5),
    Cell("90/10", 0.1),
    Cell("95/5", 0.05),
    Cell("90/10, 40 queries", 0.1, queries=40),
    Cell("90/10, few pages", 0.1, queries=2_000, pages=12),
)


@dataclass(frozen=True)
class World:
    """Queries with relevances [Q, docs] and the orders of two rankers, [2, Q, shown]."""

    relevance: Array
    orders: NDArray[np.int64]

    @property
    def relevant(self) -> float:
        """The relevant documents of an average query among those that either ranker shows."""
        shown = np.zeros(self.relevance.shape, dtype=np.bool_)
        for order in self.orders:
            np.put_along_axis(shown, order, values=True, axis=1)
        return float((self.relevance * shown).sum(1).mean())

    @property
    def gap(self) -> float:
        """The true difference B − A in DCG of an average page."""
        worth = 1 / np.log2(1 + np.arange(1, SHOWN + 1))
        queries = np.arange(len(self.relevance))[:, None]
        a, b = (float((self.relevance[queries, order] * worth).sum(1).mean()) for order in self.orders)
        return b - a


def world(random: np.random.Generator, queries: int) -> World:
    relevance = random.beta(0.4, 1.6, size=(queries, DOCS))
    noise = random.normal(size=(2, queries, DOCS)) * np.array([0.45, 0.25])[:, None, None]
    return World(relevance, np.argsort(-(relevance + noise), axis=2)[:, :, :SHOWN])


@cache
def population() -> tuple[float, float]:
    """Return the true difference B − A, and the relevant documents of an average query, of so many queries."""
    large = world(np.random.default_rng(12345), 200_000)
    return large.gap, large.relevant


def examination(context: Array) -> Array:
    """Return p_k(x), relative to position 1, of pages with a context: [n] → [n, shown]."""
    return np.asarray((1.0 / np.arange(1, SHOWN + 1)) ** (0.6 + 0.8 * context)[:, None])


def draw_log(w: World, cell: Cell, random: np.random.Generator) -> tuple[RankingData, Array, list[ShownRanking]]:
    """Return the ranking data, Σ clicks / p of every document, and both arms as shown."""
    queries = len(w.relevance)
    n = random.poisson(cell.pages, size=queries)
    query = np.repeat(np.arange(queries), n)
    arm = (random.random(len(query)) < cell.share).astype(np.int64)
    p = examination(random.random(len(query)))
    doc = w.orders[arm, query]
    clicks = random.random(p.shape) < p * w.relevance[query[:, None], doc]
    row = (query[:, None] * DOCS + doc).ravel()
    exposure = np.bincount(row, p.ravel(), queries * DOCS)
    counts = np.bincount(row, clicks.ravel(), queries * DOCS)
    naive = np.bincount(row, (clicks / p).ravel(), queries * DOCS)
    clicked = np.flatnonzero(counts)
    rho = exposure[clicked] / n[clicked // DOCS]
    starts = np.arange(0, queries * DOCS + 1, DOCS)
    data = ranking_data(
        np.zeros((queries * DOCS, 1)),
        starts,
        clicked,
        rho,
        clicks=counts[clicked],
        impressions=n,
        exposure=exposure,
    )
    arms = []
    for k in (0, 1):
        served = np.bincount(query[arm == k], minlength=queries) > 0
        rows = (np.arange(queries)[:, None] * DOCS + w.orders[k])[served].ravel()
        place = np.tile(np.arange(1.0, SHOWN + 1), int(served.sum()))
        arms.append(ShownRanking(rows, place, np.ones(len(rows)), served))
    return data, naive, arms


def scores(order: NDArray[np.int64]) -> Array:
    """Return scores that put the documents of an order first, all others below."""
    found = np.full((len(order), DOCS), -float(DOCS))
    np.put_along_axis(found, order, -np.arange(SHOWN, dtype=float)[None].repeat(len(order), 0), axis=1)
    return found.ravel()


def one(cell: Cell, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return for every estimator: error, whether the interval covers, its half width."""
    random = np.random.default_rng([CELLS.index(cell), seed])
    truth, relevant = population()
    w = world(random, cell.queries)
    data, naive, arms = draw_log(w, cell, random)
    a, b = (scores(order) for order in w.orders)
    guess = np.clip(w.relevance.ravel() + random.normal(scale=0.2, size=w.relevance.size), 0, 1)
    old = replace(
        data,
        clicked=(kept := np.flatnonzero(naive)),
        clicks=data.clicks_by_document[kept],
        propensity=data.clicks_by_document[kept] / naive[kept],
    )
    found = {
        "ips": off_policy(data, b, METRIC, estimator="ips", baseline=a),
        "dr": off_policy(data, b, METRIC, estimator="dr", baseline=a, relevance=guess),
        "dr, clip .02": off_policy(data, b, METRIC, estimator="dr", baseline=a, relevance=guess, clip=0.02),
        "as shown, ips": off_policy(data, arms[1], METRIC, estimator="ips", baseline=arms[0]),
        "click / p": off_policy(old, b, METRIC, estimator="ips", baseline=a),
    }
    told = {name: (e.value - truth, e.lower <= truth <= e.upper, e.upper - e.value) for name, e in found.items()}
    ratio = off_policy(data, b, METRIC, estimator="snips", baseline=a)
    lower, value, upper = (relevant * end for end in (ratio.lower, ratio.value, ratio.upper))
    told["snips"] = (value - truth, lower <= truth <= upper, upper - value)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description="Bias and coverage of off-policy estimates on A/B logs.")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    lines = ["| log | estimator | bias | in standard errors | covered | half width |", "|---|---|--:|--:|--:|--:|"]
    for cell in CELLS:
        with ProcessPoolExecutor(options.jobs) as pool:
            runs = list(pool.map(one, [cell] * options.logs, range(options.logs)))
        for name in ("ips", "snips", "dr", "dr, clip .02", "as shown, ips", "click / p"):
            error, covered, width = np.array([run[name] for run in runs], dtype=np.float64).T
            bias, noise = error.mean(), error.std(ddof=1) / np.sqrt(len(error))
            told = f"{bias:+.4f} | {bias / noise:+.1f} | {covered.mean():.1%} | {width.mean():.3f}"
            lines.append(f"| {cell.name} | {name} | {told} |")
            print(lines[-1], flush=True)

    told = f"{options.logs} logs each; the true difference is {population()[0]:.3f}. {os.cpu_count()} cores, Python "
    from tables import write_table

    write_table("off-policy", "\n".join([*lines, "", told + platform.python_version() + "."]))


if __name__ == "__main__":
    main()
