"""Which verdict do hostile logs get? Simulated logs of each kind, fitted and judged as `clickharvest report` does.

    .venv/bin/python benchmarks/verdicts.py --jobs 2                                    # writes docs/report.md's table
    .venv/bin/python benchmarks/verdicts.py --logs 20 --cells "cascade;harmful drift"   # some kinds; prints their rows

Pages of three rankers, ten results each, on two devices; examination is k^−0.7 on desktops and k^−1.4 on mobiles. Exits
with 1 where a log is called trustworthy that misleads, or may mislead for all that it tells.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
from accuracy import write_between_markers

from clickharvest import CPBM, PBM, harvest, read_log
from clickharvest.errors import NotIdentifiedError
from clickharvest.model.propensities import Propensities
from clickharvest.report import gather_evidence, judge

REPORT = Path(__file__).resolve().parent.parent / "docs" / "report.md"
DOCS, K, RANKERS = 15, 10, 3
LEAVE = 0.7
"""In a cascade, how many of those who click leave."""
TRUST = 0.4
"""With trust bias, how often a useless result at the top is clicked when it is looked at."""


@dataclass(frozen=True)
class Cell:
    """A kind of log.

    Attributes:
        doubtful: whether it misleads, or may for all that it tells, and must not be called trustworthy.
        pages: number of pages.
        queries: number of queries.
        kind: how users click and what changes: `pbm`, `cascade`, `trust`, `drift`, `personal` (rankers know what users
            like), `shuffled` (three pages in ten, after positions were logged) or `fixed` (nothing moves).
        per_user: pages of a user, who stays with one ranker and one device.
        drop: columns that the log lacks.
        context: context columns named.
        curve: the curve; None for a PBM.
        intervals: whether the model has any.
        given: the log given to the report: its own, another one, or none.
        cluster: what clusters.
    """

    doubtful: bool = True
    pages: int = 20_000
    queries: int = 200
    kind: str = "pbm"
    per_user: int = 1
    drop: tuple[str, ...] = ()
    context: tuple[str, ...] = ("device",)
    curve: str | None = "linear"
    intervals: bool = True
    given: str = "own"
    cluster: str = "query"


LARGE = Cell(pages=60_000, queries=1_000)
CELLS = {
    "fine, 150,000 pages": replace(LARGE, doubtful=False, pages=150_000),
    "fine, 60,000 pages": replace(LARGE, doubtful=False),
    "fine, 20,000 pages": Cell(doubtful=False),
    "users assigned, known": replace(LARGE, doubtful=False, per_user=10),
    "users assigned, not known": replace(LARGE, doubtful=False, per_user=10, drop=("user",)),
    "no time column": replace(LARGE, drop=("time",)),
    "no ranker column": replace(LARGE, drop=("ranker",)),
    "thin, 400 pages": Cell(pages=400, queries=40),
    "thin, 60 pages": Cell(pages=60, queries=20),
    "one query": Cell(pages=3_000, queries=1),
    "one query, by user": Cell(pages=3_000, queries=1, per_user=10, cluster="user", context=(), curve=None),
    "three queries": Cell(pages=3_000, queries=3),
    "nothing moves": Cell(pages=5_000, kind="fixed"),
    "harmful drift": Cell(kind="drift"),
    "harmful drift, 3,000 pages": Cell(kind="drift", pages=3_000),
    "harmful drift, no time column": Cell(kind="drift", drop=("time",)),
    "cascade": Cell(kind="cascade"),
    "cascade, 3,000 pages": Cell(kind="cascade", pages=3_000),
    "cascade, no page column": Cell(kind="cascade", drop=("page",)),
    "personal rankings": Cell(kind="personal"),
    "personal rankings, no ranker column": Cell(kind="personal", drop=("ranker",)),
    "positions before a shuffle": Cell(kind="shuffled"),
    "trust bias, 20,000 pages": Cell(kind="trust"),
    "trust bias, 60,000 pages": replace(LARGE, kind="trust"),
    "trust bias, 150,000 pages": replace(LARGE, kind="trust", pages=150_000),
    "context left out": replace(LARGE, curve=None),
    "no intervals": Cell(intervals=False),
    "no log given": Cell(given="none"),
    "another log given": Cell(given="other"),
}


def simulate(cell: Cell, seed: int) -> pa.Table:
    """Return a log of a kind."""
    random = np.random.default_rng(seed)
    relevance = random.beta(1, 2, (cell.queries, DOCS))
    noise = random.normal(0, 0.25, (RANKERS, cell.queries, DOCS))
    frequency = 1 / np.arange(1, cell.queries + 1)
    query = random.choice(cell.queries, cell.pages, p=frequency / frequency.sum())
    user = np.arange(cell.pages) // cell.per_user
    ranker, device = (random.integers(n, size=user.max() + 1)[user] for n in (RANKERS, 2))
    time = np.arange(cell.pages) / cell.pages
    now = relevance[query]
    score = now + noise[0 if cell.kind == "fixed" else ranker, query]
    if cell.kind == "drift":
        # Half of the documents wear out, the others come up, and rankers follow.
        worn = (random.random((cell.queries, DOCS)) < 0.5)[query]
        now = now * np.where(worn, 1 - 0.8 * time[:, None], 0.2 + 0.8 * time[:, None])
        score = now + 0.15 * noise[ranker, query]
    if cell.kind == "personal":
        liking = random.normal(0, 0.7, now.shape)
        now, score = np.clip(now * np.exp(liking), 0, 1), score + 0.2 * liking
    shown = np.argsort(-score, axis=1)[:, :K]
    k = np.arange(1, K + 1)
    attraction = np.take_along_axis(now, shown, axis=1)
    if cell.kind == "trust":
        attraction = attraction * (0.9 + 0.1 / k) + (1 - attraction) * TRUST / k
    clicks = random.random(attraction.shape) < (k ** -np.array([[0.7], [1.4]]))[device] * attraction
    if cell.kind == "cascade":
        left = clicks & (random.random(clicks.shape) < LEAVE)
        clicks &= np.cumsum(left, axis=1) - left == 0
    columns = {"page": np.arange(cell.pages), "time": time, "user": user, "query": query}
    columns |= {"ranker": np.array(list("abc"))[ranker], "device": np.array(["desktop", "mobile"])[device]}
    rows = {name: np.repeat(column, K) for name, column in columns.items() if name not in cell.drop}
    doc = (query[:, None] * DOCS + shown).ravel()
    position = np.tile(k, (cell.pages, 1))
    if cell.kind == "shuffled":
        position = np.where(random.random((cell.pages, 1)) < 0.3, random.permuted(position, axis=1), position)
    return pa.table(rows | {"doc": doc, "position": position.ravel(), "click": clicks.ravel().astype(np.int8)})


def verdict(cell: Cell, seed: int) -> tuple[str, str]:
    """Return the verdict on a log of a kind, and why."""

    def read(seed: int) -> pa.Table:
        table = simulate(cell, seed)
        roles = {name: name for name in ("page", "time", "user") if name in table.column_names}
        return read_log(table, context=list(cell.context), **roles)

    log = read(seed)
    try:
        interventions = harvest(log, cluster=cell.cluster)
    except NotIdentifiedError as error:
        return "refused", str(error)
    intervals = "auto" if cell.intervals else None
    estimator = PBM(intervals=intervals) if cell.curve is None else CPBM(curve=cell.curve, intervals=intervals)
    model: Propensities = estimator.fit(interventions).propensities_
    if cell.given == "none":
        found = judge(model)
    else:
        found = judge(model, gather_evidence(log if cell.given == "own" else read(seed + 1_000), model).grounds)
    return found.word, found.why


def judged(name: str, seed: int) -> tuple[str, str]:
    """Return the verdict on a log by the name of its kind; warnings of a harvest are findings, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verdict(CELLS[name], seed)


def main() -> int:
    """Judge the logs, print a row for each kind, and write the table if it is whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=4, help="logs of each kind")
    parser.add_argument("--cells", default="", help="kinds of logs, separated by semicolons; all by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    names = [name.strip() for name in arguments.cells.split(";") if name] or list(CELLS)
    wrong, lines = 0, ["| log | verdict | why, in the first log |", "|---|---|---|"]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {name: [pool.submit(judged, name, seed) for seed in range(arguments.logs)] for name in names}
        for name, logs in waiting.items():
            found = [log.result() for log in logs]
            counts = Counter(word for word, _ in found)
            wrong += CELLS[name].doubtful * counts["trustworthy"]
            told = ", ".join(f"{word} {times}" for word, times in counts.most_common())
            lines.append(f"| {name} | {told} | {found[0][1]} |")
            print(lines[-1], flush=True)
    if names == list(CELLS):
        write_between_markers(REPORT, "verdicts", "\n".join(lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
