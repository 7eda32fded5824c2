"""Propensity SVM-Rank: seconds at full size, and side by side with LinearSVC on pairwise differences.

    make benchmark-svm_rank                                               # writes the table
    .venv/bin/python benchmarks/svm_rank.py --clicks 5000 --small 500 --rounds 1  # a try; prints its table

Lists have 24 documents with 136 features; a click at position k has propensity 1/k, clipped at .05. At full size every
click has a list of its own. The smaller problems, which LinearSVC solves too, are a log in which queries come back (20
clicks to a query) and one in which none does.

LinearSVC (liblinear, hinge loss, no intercept) is given the 23 differences of every click, with the click's weight as
sample weight, which is the same objective; or the distinct differences only, with summed weights. Both sides start from
the same ranking data: the clock of LinearSVC counts making the differences, ours making blocks of pairs.

Equal objective means: within .01 % of the minimum, which the duality gap of a tight fit tells, by one function for all
that scores every pair in double precision. LinearSVC runs at its default tolerance, and at the loosest of a grid that
gets there, which a user would not know. Contenders take turns; the best of the rounds counts, but who takes more than
20 s has one round only. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from accuracy import say
from many_logs import judge as judged
from numpy.typing import NDArray
from sklearn.svm import LinearSVC
from tables import write_table

from clickharvest.rank import PropensitySVMRank, RankingData, ranking_data
from clickharvest.simulate import synthetic_corpus

CLICKS, SMALL, DOCS, FEATURES = 100_000, 20_000, 24, 136
REPEATED = 20
"""Clicks to a query, where queries come back."""
COSTS = (1.0, 10.0, 100.0)
CLIP = 0.05
EQUAL = 1e-4
"""How close to the minimum an objective counts as equal to it, relatively."""
PATIENCE = 20.0
"""Seconds from which on one round is enough."""
DEFAULT = 1e-4
TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, DEFAULT)
"""Tolerances of LinearSVC, of which its default is the last."""
SECONDS_BAR, RATIO_BAR = 60.0, 10.0

OURS, EVERY, DISTINCT = "clickharvest", "LinearSVC, all pairs", "LinearSVC, distinct pairs"

Report = dict[str, Any]


class Pairs(NamedTuple):
    """Pairs of a clicked and another document, with their weights in the objective."""

    winners: NDArray[np.int64]
    others: NDArray[np.int64]
    weights: NDArray[np.float64]


Weights = NDArray[np.float64]
Way = Callable[[], Weights]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Speed of Propensity SVM-Rank.")
    parser.add_argument("--clicks", type=int, default=CLICKS, help="clicks of the large problem")
    parser.add_argument("--small", type=int, default=SMALL, help="clicks of the problems that LinearSVC solves too")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of which the best counts")
    options = parser.parse_args()
    rows = []
    for repeated in (REPEATED, 1):
        small = simulate(options.small // repeated, repeated, seed=0)
        rows += [row for C in COSTS for row in side_by_side(small, C, options.rounds)]
    large = simulate(options.clicks, 1, seed=1)
    rows += [alone(large, C, options.rounds) for C in COSTS]
    bars = judge(rows)
    text = "\n".join([*table(rows), "", *judged(bars), "", note(options.rounds)])
    print(text)
    if (options.clicks, options.small) == (CLICKS, SMALL):
        write_table("svm_rank", text)
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def simulate(queries: int, clicks: int, seed: int) -> RankingData:
    """Simulate clicks on every query: position k by its chance 1/k, times 1 where relevant and .1 elsewhere."""
    say(f"simulating {queries:,} queries with {clicks} clicks each")
    corpus = synthetic_corpus(queries, docs=(DOCS, DOCS), features=FEATURES, seed=seed)
    random = np.random.default_rng(seed)
    taste = random.normal(size=FEATURES).astype(np.float32)
    order = np.argsort(-(corpus.features @ taste).reshape(queries, DOCS), axis=1)
    propensity = 1 / np.arange(1, DOCS + 1)
    relevance = np.where(corpus.relevant, 1.0, 0.1).reshape(queries, DOCS)
    chance = (propensity * np.take_along_axis(relevance, order, axis=1)).cumsum(axis=1)
    luck = random.random((clicks, queries, 1)) * chance[:, -1:]
    place = (chance > luck).argmax(axis=2)
    clicked = corpus.starts[:-1] + order[np.arange(queries), place]
    return ranking_data(corpus.features, corpus.starts, clicked.ravel(), propensity[place].ravel())


def side_by_side(data: RankingData, C: float, rounds: int) -> list[Report]:
    """Solve the same problem both ways to the same objective."""
    tight = PropensitySVMRank(C=C, clip=CLIP, tol=EQUAL / 10).fit(data)
    least, every = tight.objective_ / (1 + tight.gap_), pairs(data, C)
    ways: dict[tuple[str, str], Way] = {(OURS, f"tol {EQUAL:g}"): partial(clickharvest, data, C)}
    repeated = len(np.unique(data.clicked)) < len(data.clicked)
    for who, make in ((EVERY, pairs), (DISTINCT, merged))[: 2 if repeated else 1]:
        for tol in TOLERANCES:
            if objective(liblinear(data, C, make, tol), data, every) <= (1 + EQUAL) * least:
                break
        ways[who, f"loosest tol {tol:g}"] = partial(liblinear, data, C, make, tol)
        ways[who, f"default tol {DEFAULT:g}"] = partial(liblinear, data, C, make, DEFAULT)
    reports: dict[tuple[str, str], Report] = {}
    for _ in range(rounds):
        for (who, how), way in ways.items():
            before = reports.get((who, how))
            if before is None or before["seconds"] < PATIENCE:
                w, seconds = timed(way)
                found = report(who, data, C, seconds, objective(w, data, every), least, how)
                reports[who, how] = min(before or found, found, key=lambda one: one["seconds"])
    return list(reports.values())


def clickharvest(data: RankingData, C: float) -> Weights:
    """Solve with Propensity SVM-Rank."""
    return PropensitySVMRank(C=C, clip=CLIP, tol=EQUAL).fit(data).coef_


def liblinear(data: RankingData, C: float, make: Callable[[RankingData, float], Pairs], tol: float) -> Weights:
    """Make the differences and solve with LinearSVC; it wants two classes, so half of them are mirrored.

    They are made in single precision as the features are, which is the fastest; LinearSVC turns them into double.
    """
    given = make(data, C)
    sign = np.where(np.arange(len(given.weights)) % 2, 1, -1)
    differences = data.features.matrix[given.winners]
    differences -= data.features.matrix[given.others]
    differences *= sign.astype(differences.dtype)[:, None]
    svm = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=tol, max_iter=100_000, random_state=0)
    w: Weights = svm.fit(differences, sign, sample_weight=given.weights).coef_[0]
    return w


def alone(data: RankingData, C: float, rounds: int) -> Report:
    """Solve the large problem to the default tolerance."""
    fits = [timed(lambda: PropensitySVMRank(C=C, clip=CLIP).fit(data)) for _ in range(rounds)]
    ranker, seconds = min(fits, key=lambda fit: fit[1])
    least = ranker.objective_ / (1 + ranker.gap_)
    return report(OURS, data, C, seconds, ranker.objective_, least, f"tol {ranker.tol:g}")


def pairs(data: RankingData, C: float) -> Pairs:
    """Return the pairs of every click and every other document of its list."""
    return rivals(data, data.clicked, C / data.clicks.sum() * data.weights(CLIP))


def rivals(data: RankingData, clicked: NDArray[np.int64], weights: Weights) -> Pairs:
    """Return the pairs of clicked documents and all others of their lists."""
    lists = np.searchsorted(data.starts, clicked, side="right") - 1
    winners = np.repeat(clicked, DOCS)
    others = (data.starts[lists][:, None] + np.arange(DOCS)).ravel()
    apart = winners != others
    return Pairs(winners[apart], others[apart], np.repeat(weights, DOCS)[apart])


def merged(data: RankingData, C: float) -> Pairs:
    """Return the distinct pairs, with summed weights."""
    clicked, record = np.unique(data.clicked, return_inverse=True)
    weights = np.bincount(record, C / data.clicks.sum() * data.weights(CLIP))
    return rivals(data, clicked, weights.astype(np.float64))


def objective(w: Weights, data: RankingData, given: Pairs) -> float:
    """Return ½|w|² + Σ c max(0, 1 − w·d)."""
    scores = np.asarray(data.features.matrix, np.float64) @ w
    margins = scores[given.winners] - scores[given.others]
    return 0.5 * float(w @ w) + float(given.weights @ np.maximum(0, 1 - margins))


def timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """Return what the work returns, and its seconds and CPU seconds."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - begin, time.process_time() - cpu_begin)


def report(
    who: str, data: RankingData, C: float, seconds: tuple[float, float], reached: float, least: float, how: str
) -> Report:
    """Return the figures of one row."""
    say(f"{who}, {how}, {data.clicks.sum():,.0f} clicks, C {C:g}: {seconds[0]:.2f} s, CPU {seconds[1]:.2f} s")
    return {
        "who": who,
        "queries": len(data),
        "clicks": int(data.clicks.sum()),
        "C": C,
        "seconds": seconds[0],
        "cpu_seconds": seconds[1],
        "objective": reached,
        "above": reached / least - 1,
        "how": how,
    }


def judge(rows: list[Report]) -> list[str]:
    """Return a sentence for each bar."""
    bars = []
    ours = [row for row in rows if row["who"] == OURS]
    for own in ours:
        size = f"{own['clicks']:,} clicks on {own['queries']:,} queries, C {own['C']:g}"
        rivals = [row for row in rows if row is not own and all(row[key] == own[key] for key in ("queries", "C"))]
        for row in rivals:
            ratio = row["seconds"] / own["seconds"]
            cpu = row["cpu_seconds"] / own["cpu_seconds"]
            equal = max(own["above"], row["above"]) <= EQUAL
            passed = "PASS" if ratio >= RATIO_BAR and equal else "FAIL"
            bars.append(
                f"{passed}: {size}: {ratio:.1f} times as fast as {row['who']}, {row['how']}, at "
                f"{'equal' if equal else 'another'} objective, {cpu:.1f} by CPU time (bar: {RATIO_BAR:g})"
            )
        if not rivals:
            passed = "PASS" if own["seconds"] < SECONDS_BAR else "FAIL"
            bars.append(f"{passed}: {size}: {own['seconds']:.1f} s (bar: {SECONDS_BAR:g} s)")
    return bars


def table(rows: list[Report]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [
        "| clicks | queries | C | contender | seconds | CPU seconds | objective | above the minimum, at most |",
        "|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        size = f"{row['clicks']:,} | {row['queries']:,} | {row['C']:g}"
        cells = f"{row['seconds']:.2f} | {row['cpu_seconds']:.2f} | {row['objective']:.6g} | {100 * row['above']:.4f} %"
        lines.append(f"| {size} | {row['who']}, {row['how']} | {cells} |")
    return lines


def note(rounds: int) -> str:
    """Return a line on the data, the machine and the versions."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    data = f"{DOCS} documents of {FEATURES} features for every click, in single precision (LinearSVC: double)"
    versions = ", ".join(f"{name} {version(name.lower())}" for name in ("NumPy", "scikit-learn"))
    where = f"{os.cpu_count()} cores; Python {platform.python_version()}, {versions}; {datetime.now(UTC):%Y-%m-%d}"
    load = f"load average {os.getloadavg()[0]:.1f} at the end"
    return f"{data}; best of {rounds}; peak memory {peak:.1f} GB, data included; {where}, {load}."


if __name__ == "__main__":
    main()
