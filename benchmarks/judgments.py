"""Are judgments from clicks right, and do their intervals cover? Simulated logs of hostile kinds, and a real log.

    .venv/bin/python benchmarks/judgments.py                     # writes the tables in benchmarks/README.md
    .venv/bin/python benchmarks/judgments.py --logs 5 --cells "thin;one query"

Every simulated log is read, harvested and fitted with `PBM` as a user would: propensities are estimates. Judgments are
compared with raw click-through (CTR) and clicks over expected clicks (COEC), by the rank correlation with the truth
over all documents and within queries; coverage is that of the 95 % intervals. On the real log (Yandex's sample, where
it lies beside the repository) pages are divided in two halves at random, all is learned on one, and clicks of the other
are predicted. There CTR and COEC are told raw and shrunk by the very model that judgments are shrunk by.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accuracy import say, write_between_markers
from numpy.typing import NDArray
from scipy.stats import spearmanr

from clickharvest import PBM, harvest, read_log
from clickharvest.judging import judge, shrink

Array = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
YANDEX = HERE.parents[1] / "shared" / "data" / "yandex_sessions.parquet"
BAR = (0.93, 0.97)


@dataclass(frozen=True)
class Cell:
    """A kind of log.

    Attributes:
        queries: number of queries.
        pages: pages of a typical query; they differ log-normally.
        positions: positions of a page; a query has two documents more.
        noise: how far rankers differ from the truth, and documents move: the standard deviation of their scores.
        taste: standard deviation of the log odds between queries.
        within: standard deviation of the log odds within a query.
        rate: relevance of a typical document, in log odds.
        apart: standard deviation of what single queries read otherwise at single positions, on the log scale.
        rankers: two alternating rankers, or as many as there are.
        never: share of the documents that nobody ever clicks.
    """

    queries: int = 300
    pages: float = 60.0
    positions: int = 10
    noise: float = 1.0
    taste: float = 0.7
    within: float = 1.0
    rate: float = -1.5
    apart: float = 0.0
    rankers: int = 4
    never: float = 0.0


CELLS = {
    "plain": Cell(),
    "thin: 6 pages a query": Cell(pages=6.0),
    "many pages": Cell(queries=100, pages=1_000.0),
    "few queries": Cell(queries=20),
    "one query": Cell(queries=3, pages=400.0),
    "queries differ widely": Cell(taste=2.0, within=1.5, rate=-2.5),
    "users of queries read differently": Cell(apart=0.4),
    "a third is never clicked": Cell(never=0.33),
    "nearly all is clicked": Cell(rate=1.0, within=0.5),
    "a good ranker": Cell(noise=0.3),
    "two rankers, few links": Cell(noise=0.3, rankers=2, queries=60, pages=30.0),
}


def main() -> None:
    """Run, print the tables, and judge them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=40, help="simulated logs of each cell")
    parser.add_argument("--seed", type=int, default=17, help="of the logs")
    parser.add_argument("--cells", default=None, help="beginnings of names, divided by ;")
    options = parser.parse_args()
    begins = tuple((options.cells or "").split(";"))
    warnings.simplefilter("ignore")
    lines = [
        "| cell | logs | covered | judgments | CTR | COEC | within queries | CTR | COEC | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    missed = 0
    for name, cell in CELLS.items():
        if not name.startswith(begins):
            continue
        found = np.array([measure(cell, np.random.default_rng([i, options.seed])) for i in range(options.logs)])
        mean, error = found.mean(axis=0), found[:, 0].std() / np.sqrt(max(len(found) - 1, 1))
        wrong = [] if BAR[0] <= mean[0] <= BAR[1] else [f"misses {BAR[0]:.0%}-{BAR[1]:.0%}"]
        wrong += [] if mean[1] > max(mean[2:4]) and mean[4] > max(mean[5:7]) else ["orders worse"]
        missed += bool(wrong)
        rest = " | ".join(f"{value:.3f}" for value in mean[1:])
        lines.append(f"| {name} | {len(found)} | {mean[0]:.1%} ± {error:.1%} | {rest} | {', '.join(wrong)} |")
        say(lines[-1])
    text = "\n".join(lines)
    if YANDEX.exists() and options.cells is None:
        text += "\n\n" + real()
    print(text)
    if options.cells is None:
        write_between_markers(README, "judgments", text)
    sys.exit(bool(missed))


def measure(cell: Cell, random: np.random.Generator) -> list[float]:
    """Return coverage, then rank correlations over all and within queries of judgments, CTR and COEC."""
    rows, relevance = simulate(cell, random)
    log = read_log(rows)
    model = PBM().fit(harvest(log)).propensities_
    table = judge(log, model).table
    doc = np.array([int(text[1:]) for text in table["doc"].to_pylist()])
    truth, query = relevance[doc], doc // (cell.positions + 2)
    covered = (table["lower"].to_numpy() <= truth) & (truth <= table["upper"].to_numpy())
    code, place, clicked = (rows[name].to_numpy() for name in ("code", "position", "click"))
    ctr, coec = (c[doc] for c in rates(code, place, clicked, np.ones(len(code)), len(relevance)))
    contenders = [table["relevance"].to_numpy(), ctr, coec]
    return [
        float(covered.mean()),
        *(float(spearmanr(one, truth).statistic) for one in contenders),
        *(within(one, truth, query) for one in contenders),
    ]


def rates(code: Any, place: Any, clicks: Any, shown: Any, n: int) -> tuple[Array, Array]:
    """Return CTR and COEC of documents 0 … n − 1."""
    total, displays = np.bincount(code, clicks, n), np.bincount(code, shown, n)
    by_place = np.bincount(place, clicks) / np.maximum(np.bincount(place, shown), 1)
    expected = np.bincount(code, by_place[place] * shown, n)
    return total / np.maximum(displays, 1), total / np.maximum(expected, 1e-9)


def within(score: Array, truth: Array, query: Any) -> float:
    """Return the mean rank correlation over queries."""
    found = [spearmanr(score[query == q], truth[query == q]).statistic for q in np.unique(query)]
    return float(np.nanmean(found))


def simulate(cell: Cell, random: np.random.Generator) -> tuple[pa.Table, Array]:
    """Return a log of pages, and the relevance of every document: the rate of clicks on it at position 1."""
    k, docs = cell.positions, cell.positions + 2
    odds = (
        cell.rate
        + random.normal(0, cell.taste, (cell.queries, 1))
        + random.normal(0, cell.within, (cell.queries, docs))
    )
    relevance = 1 / (1 + np.exp(-odds))
    relevance[random.random(relevance.shape) < cell.never] = 0.0
    examined = np.arange(1, k + 1) ** -1.0
    reads = np.exp(random.normal(0, cell.apart, (cell.queries, k)) - cell.apart**2 / 2)
    scores = odds[:, None] + random.normal(0, cell.noise, (cell.queries, cell.rankers, docs))
    order = np.argsort(-scores, axis=2)[:, :, :k]
    pages = 1 + random.poisson(cell.pages * random.lognormal(0, 0.7, cell.queries))
    query = np.repeat(np.arange(cell.queries), pages)
    shown = order[query, random.integers(cell.rankers, size=len(query))]
    chance = np.minimum(examined * reads[query] * relevance[query[:, None], shown], 1.0)
    click = random.random(chance.shape) < chance
    code = query[:, None] * docs + shown
    return pa.table(
        {
            "query": np.repeat(query, k),
            "doc": [f"d{one}" for one in code.ravel()],
            "code": code.ravel(),
            "position": np.tile(np.arange(1, k + 1), len(query)),
            "click": click.ravel().astype(np.int64),
        }
    ), relevance.ravel()


def real() -> str:
    """Return the table of predictions on the real log."""
    rows = pq.read_table(YANDEX)
    session = np.unique(rows["session"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    learned = np.random.default_rng(0).random(session.max() + 1)[session] < 0.5
    train = rows.filter(pa.array(learned))
    log = read_log(train)
    interventions = harvest(log)
    model = PBM().fit(interventions).propensities_
    p = np.concatenate([[np.nan], model.predict().propensity[0]])
    keys = [f"{q} {d}" for q, d in zip(rows["query"].to_pylist(), rows["doc"].to_pylist(), strict=True)]
    names, code = np.unique(keys, return_inverse=True)
    query = np.unique([name.split(" ")[0] for name in names], return_inverse=True)[1]
    place, click = rows["position"].to_numpy(), rows["click"].to_numpy().astype(float)
    n = len(names)
    ours = {f"{row['query']} {row['doc']}": row["relevance"] for row in judge(log, model).table.to_pylist()}
    own, at, one = code[learned], place[learned], click[learned]
    ctr_of_place = np.bincount(at, one) / np.maximum(np.bincount(at), 1)
    clicks, displays = np.bincount(own, one, n), np.bincount(own, minlength=n).astype(float)
    expected = np.bincount(own, ctr_of_place[at], n)
    seen = displays > 0
    _, number = np.unique(query[seen], return_inverse=True)
    full = np.full(n, np.nan)

    def shrunk(exposure: Array) -> Array:
        out = full.copy()
        out[seen] = shrink(number, clicks[seen], exposure[seen]).relevance
        return out

    ones = np.ones_like(ctr_of_place)
    predictions = {
        "judgments": (np.array([ours.get(name, np.nan) for name in names]), p),
        "CTR": (clicks / np.maximum(displays, 1), ones),
        "CTR, shrunk": (shrunk(displays), ones),
        "COEC": (clicks / np.maximum(expected, 1e-9), ctr_of_place),
        "COEC, shrunk": (shrunk(expected), ctr_of_place),
    }
    test = ~learned & seen[code]
    table = np.zeros((n, place.max() + 1))
    np.add.at(table, (own, at), 1)
    moved = test & (place != table.argmax(axis=1)[code])
    lines = [
        "| predictor | deviance a click: all displays | elsewhere than usual | order of clicks elsewhere |",
        "|---|--:|--:|--:|",
    ]
    for name, (rate, of_place) in predictions.items():
        chance = np.clip(rate[code] * of_place[place], 1e-4, 1 - 1e-4)
        deviance = -2 * (click * np.log(chance) + (1 - click) * np.log(1 - chance))
        told = [deviance[which].sum() / click[which].sum() for which in (test, moved)]
        elsewhere = np.bincount(code[moved], click[moved], n) / np.maximum(
            np.bincount(code[moved], p[place[moved]], n), 1e-9
        )
        enough = np.bincount(code[moved], minlength=n) >= 20
        own_query = [q for q in np.unique(query) if (enough & (query == q)).sum() >= 5]
        order = np.mean(
            [spearmanr(rate[enough & (query == q)], elsewhere[enough & (query == q)]).statistic for q in own_query]
        )
        lines.append(f"| {name} | {told[0]:.4f} | {told[1]:.4f} | {order:.3f} |")
    return "\n".join(
        [
            f"Yandex, {int(test.sum()):,} displays kept aside, {int(moved.sum()):,} of them elsewhere than usual:",
            "",
            *lines,
        ]
    )


if __name__ == "__main__":
    main()
