"""Do tests reject as often as they say, and see what they are for? Many small simulated logs, with and without a fault.

    .venv/bin/python benchmarks/levels.py                                # all worlds; writes the README's table
    .venv/bin/python benchmarks/levels.py --worlds cascade --logs 50     # some of them; prints their table
    .venv/bin/python benchmarks/levels.py --jobs 16 --queries            # those that need no engine, in 16 processes

A world is a way to simulate logs. Under the null what a test asks about is as it should be, though much else is not:
users differ and come back, queries have curves of their own, documents drift. P-values are kept in
`benchmarks/data/levels.json` (`--json`), and a run goes on where an earlier one ended; once all worlds are complete the
table in `benchmarks/README.md` is written. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from context_worlds import context_interventions
from shared_cells import HOME, USERS, ZIPF, SharedCell, simulate_shared
from worlds import POSITIONS, click_log, page_log, query_interventions, swap_log

from clickharvest.files import atomic_path

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
BEGIN, END = "<!-- levels:begin -->", "<!-- levels:end -->"
BAR = (0.03, 0.07)
LOGS = {"null": 500, "alternative": 100, "shown": 200}
"""Logs of a world by its kind; what is `shown` is no null of its tests, and has no bar."""
PART = 20
"""Logs between two writes of the file."""

PValues = dict[str, float | None]
ASSIGNMENT = ("ranker and query", "ranker and device", "sample ratio")
RANKERS = ("usual position", "depth by ranker")
DRIFT = ("drift with position", "common drift", "drift of single units")


@dataclass(frozen=True)
class World:
    """A way to simulate logs.

    Attributes:
        kind: `null`, `alternative` or `shown`.
        told: what is so, in words.
        tests: the findings that are judged.
        measure: from a seed to the p-values of tests.
        engine: whether it takes a database to measure.
        times: how many times as many logs it has as others of its kind: a level near its bar takes more to tell.
    """

    kind: str
    told: str
    tests: tuple[str, ...]
    measure: Callable[[int], PValues]
    engine: bool
    times: int = 1

    @property
    def logs(self) -> int:
        """How many logs the table has of it."""
        return LOGS[self.kind] * self.times


def of_log(told: str, *tests: str, kind: str = "null", users: bool = False, times: int = 1, **settings: Any) -> World:
    """Return a world of logs of pages."""

    def measure(seed: int) -> PValues:
        from clickharvest import read_log
        from clickharvest.diagnosis.assignment import ranker_independence, sample_ratio
        from clickharvest.diagnosis.cascade import clicks_above
        from clickharvest.diagnosis.diagnosing import compare_rankers
        from clickharvest.diagnosis.drift import drift
        from clickharvest.diagnosis.usual_position import usual_position_by_user

        table = click_log(seed, **settings) if "clicks" in settings else page_log(seed, **settings)
        user = "user" if users else ""
        log = read_log(table, context=["device"], user=user, engine=_engine(), validate=False)
        findings = []
        if set(tests) & set(ASSIGNMENT):
            findings += ranker_independence(log) + sample_ratio(log, {"a": 1, "b": 1})
        if set(tests) & set(DRIFT):
            findings += drift(log)
        if set(tests) & set(RANKERS):
            findings += compare_rankers(log)
        if "usual position by user" in tests:
            findings += usual_position_by_user(log)
        if "clicks above" in tests:
            findings += clicks_above(log)
        return {finding.name: finding.p_value for finding in findings}

    return World(kind, told, tests, measure, engine=True, times=times)


@cache
def _engine() -> Any:
    from clickharvest.logs.engines import DuckDBEngine

    return DuckDBEngine()


def of_queries(told: str, test: str, *, kind: str = "null", **settings: Any) -> World:
    """Return a world of interventions in which queries cluster."""

    def measure(seed: int) -> PValues:
        return {test: _check(test)(query_interventions(seed, **settings)).p_value}

    return World(kind, told, (test,), measure, engine=False)


def of_contexts(told: str, law: str, curve: str, *, kind: str = "null", trust: float = 0.0) -> World:
    """Return a world in which contexts decide the power of the position, tested with a curve that was fitted to it."""

    def measure(seed: int) -> PValues:
        from clickharvest import CPBM

        rows = context_interventions(seed, law, trust=trust, pages=60_000 if trust else 12_000)
        penalty: Any = "auto" if curve == "linear" else 1.0
        model = CPBM(curve=curve, penalty=penalty, intervals=None).fit(rows).propensities_
        return {"trust bias": _check("trust bias")(rows, model=model).p_value}

    return World(kind, told, ("trust bias",), measure, engine=False)


def within_queries(told: str, *, kind: str = "null", trust: float = 0.0) -> World:
    """Return a world of two devices, tested as `fit --model affine` does."""

    def measure(seed: int) -> PValues:
        from clickharvest.click_models.affine import Affine

        rows = context_interventions(seed, "device", trust=trust, pages=60_000 if trust else 12_000)
        return {finding.name: finding.p_value for finding in Affine().check(rows)}

    return World(kind, told, ("trust within queries",), measure, engine=False)


def of_users(told: str, cell: SharedCell, *tests: str, kind: str = "null", times: int = 1) -> World:
    """Return a world of interventions in which users cluster, or pages."""

    def measure(seed: int) -> PValues:
        rows = simulate_shared(cell, np.random.default_rng(seed)).interventions
        return {test: _check(test)(rows).p_value for test in tests}

    return World(kind, told, tests, measure, engine=False, times=times)


def _check(test: str) -> Callable[..., Any]:
    from clickharvest.estimation import model_checks
    from clickharvest.estimation.trust_bias import trust_bias

    return {
        "trust bias": trust_bias,
        "context matters": model_checks.context_matters,
        "transitivity": model_checks.transitivity,
    }[test]


def of_purchases(told: str, *, kind: str = "null", context: bool = False, pages: int, **settings: Any) -> World:
    """Return a world of logs with purchases after clicks."""
    test = "outcome and position"

    def measure(seed: int) -> PValues:
        from clickharvest import harvest, read_log
        from clickharvest.errors import NotIdentifiedError
        from clickharvest.estimation.outcome_checks import position_matters
        from clickharvest.logs import after_click
        from clickharvest.simulate import add_purchases, simulate_ab_log

        table = add_purchases(simulate_ab_log(pages=pages, seed=seed)[0], seed=seed, **settings)
        log = read_log(table, context=["device"] if context else [], engine=_engine(), validate=False)
        try:
            return {test: position_matters(harvest(after_click(log, "purchase").log, clicked_only=True)).p_value}
        except NotIdentifiedError:
            return {test: None}

    return World(kind, told, (test,), measure, engine=True)


def of_swaps(told: str, *, kind: str = "null", users: bool = False, times: int = 1, **settings: Any) -> World:
    """Return a world of logs of swaps."""
    test = "swap ranks"

    def measure(seed: int) -> PValues:
        from clickharvest import read_log
        from clickharvest.diagnosis.swap_ranks import swap_ranks
        from clickharvest.harvesting import Swap

        user = "user" if users else ""
        log = read_log(swap_log(seed, **settings), user=user, engine=_engine(), validate=False)
        return {test: swap_ranks(log, Swap.uniform(POSITIONS))[0].p_value}

    return World(kind, told, (test,), measure, engine=True, times=times)


WORLDS = {
    "trust": of_queries("curves of queries differ in steepness, exp N(0, .5²)", "trust bias", spread=0.5),
    "trust, large": of_queries(
        "curves of queries differ in steepness, exp N(0, .7²), 200 queries, 100 pages each",
        "trust bias", spread=0.7, queries=200, sessions=100
    ),
    "trust, own curves": of_queries(
        "every query has a curve of its own, 1 ± .6 at single positions, 300 queries, 300 pages each",
        "trust bias", spread=0.5, unlike=0.6, appeal=0.36, queries=300, sessions=300
    ),
    "trust, own curves, thin": of_queries(
        "the same, 2,000 queries, 15 pages each",
        "trust bias", spread=0.5, unlike=0.6, appeal=0.36, queries=2_000, sessions=15
    ),
    "trust, own curves, large and thin": of_queries(
        "the same, 20,000 queries, 15 pages each",
        "trust bias", spread=0.5, unlike=0.6, appeal=0.36, queries=20_000, sessions=15
    ),
    "trust, seen": of_queries(
        "clicks as `simulate --clicks trust`, steepness exp N(0, .5²), 200 queries, 200 pages each",
        *("trust bias",), kind="alternative", spread=0.5, trust=True, queries=200, sessions=200,
    ),
    "context": of_queries("80 queries alike in size, two contexts that do nothing", "context matters", unlike=0.6),
    "context, Zipf": of_queries(
        "queries of Zipf sizes: a few have most clicks; two contexts that do nothing",
        "context matters", unlike=0.6, zipf=1.0
    ),
    "context, one query": of_queries(
        "one query has 60 % of the clicks (sizes fall as the square of the rank); two contexts that do nothing",
        "context matters", unlike=0.6, zipf=2.0
    ),
    "context, popularity": of_queries(
        "Zipf sizes, 200 queries; the context is the logarithm of how often the query is shown, and does nothing",
        "context matters", unlike=0.6, zipf=1.0, appeal=0.36, queries=200, popularity=True
    ),
    "context, seen": of_queries(
        "Zipf sizes, k^-2 in one context and k^-.5 in the other", "context matters",
        kind="alternative", unlike=0.6, zipf=1.0, main=0.7,
    ),
    "context, one query, seen": of_queries(
        "one query has 60 % of the clicks, k^-2 in one context and k^-.5 in the other", "context matters",
        kind="alternative", unlike=0.6, zipf=2.0, main=0.7,
    ),
    "context, together": of_queries(
        "two contexts that change steepness only together", "context matters",
        kind="alternative", unlike=0.6, together=0.4,
    ),
    "trust, additive": of_contexts(
        "k^-1.4 or k^-.5 by the value of one of two columns; the curve `linear` is fitted", "additive", "linear"
    ),
    "trust, together": of_contexts(
        "k^-1.4 where two columns agree and k^-.5 where not; the curve `index` is fitted", "xor", "index"
    ),
    "trust, office hours": of_contexts(
        "k^-1.4 from 9 to 17 o'clock and k^-.5 else; the curve `linear` is fitted, which misses that",
        "office", "linear"
    ),
    "trust, wave": of_contexts(
        "k^-(1 + .5 cos(2π hour / 12)); the curve `linear` is fitted, which misses that", "wave", "linear"
    ),
    "trust, together, seen": of_contexts(
        "as two columns agree, and irrelevant results are clicked at k as if relevant in .8 / k, 60,000 pages",
        "xor", "index", kind="alternative", trust=0.8
    ),
    "trust, device": within_queries("k^-1.4 on phones and k^-.5 on desks, tested as `fit --model affine` does"),
    "trust, device, seen": within_queries(
        "the same, and irrelevant results are clicked at k as if relevant in .8 / k, 60,000 pages",
        kind="alternative", trust=0.8
    ),
    "clusters, users": of_users(
        "300 users cluster, who read and click unlike each other; two contexts that do nothing",
        replace(USERS, levels=2, effect=0.0), "context matters", "trust bias", times=3,
    ),
    "clusters, Zipf": of_users(
        "500 users of Zipf sizes cluster; two contexts that do nothing",
        replace(ZIPF, levels=2, effect=0.0), "context matters", "trust bias", times=3,
    ),
    "clusters, half": of_users(
        "100 users cluster, one with half of the pages; two contexts that do nothing",
        replace(USERS, users=100, half=True, levels=2, effect=0.0), "context matters", "trust bias", times=3,
    ),
    "clusters, pages": of_users(
        "8,000 pages of one query cluster, four rankings",
        replace(HOME, arms=4, users=2_000, pages=4.0, apart=0.0, mood=0.0, by="page"), "trust bias",
    ),
    "clusters, users, seen": of_users(
        "300 users cluster; two contexts, whose steepness differs by .4 on average",
        replace(USERS, levels=2, pages=80.0), "context matters", kind="alternative",
    ),
    "transitivity": of_queries("one curve, clicks of a query and a page depend", "transitivity", unlike=0.6),
    "transitivity, seen": of_queries(
        "documents also shown at 3 are clicked e times as much at 2, 300 queries, 200 pages each",
        "transitivity", kind="alternative", adjacent=1.0, queries=300, sessions=200,
    ),
    "cascade": of_log("PBM, as `simulate --clicks pbm`", "clicks above", clicks="pbm"),
    "moods": of_log(
        "PBM, but some users click six times as much as others", "clicks above", clicks="pbm", mood=True
    ),
    "cascade, seen": of_log(
        "as `simulate --clicks cascade`, 2,000 pages", "clicks above", kind="alternative", clicks="cascade", pages=2_000
    ),
    "pages": of_log("every page assigned by chance, no user column", *ASSIGNMENT, each=1),
    "users": of_log(
        "users assigned by chance, ten pages each, user column", *ASSIGNMENT,
        users=True, each=10, by_user=True, times=3,
    ),
    "users, ten arms": of_log(
        "users assigned by chance to ten rankers, ten pages each, 5,000 pages, user column", *ASSIGNMENT[:2],
        users=True, each=10, by_user=True, arms=10, share=0.1, pages=5_000,
    ),
    "users, small arm": of_log(
        "users assigned by chance, 95 and 5 %, ten pages each, 10,000 pages, user column", *ASSIGNMENT[:2],
        users=True, each=10, by_user=True, share=0.95, pages=10_000, times=3,
    ),
    "users, Zipf": of_log(
        "users assigned by chance, who come back at any time, a fifth of the pages from one; user column",
        *ASSIGNMENT, *DRIFT, users=True, each=10, by_user=True, zipf=1.0,
    ),
    "users, drift": of_log(
        "users assigned by chance, ten pages each, user column", *DRIFT, users=True, each=10, by_user=True
    ),
    "users, not named": of_log(
        "users assigned by chance, ten pages each, no user column: what a user column is for",
        *ASSIGNMENT, *DRIFT, kind="shown", each=10, by_user=True
    ),
    "pages of users": of_log(
        "every page assigned by chance, ten pages a user, user column", *ASSIGNMENT, users=True, each=10, times=3
    ),
    "two lists": of_log("pages of two lists, positions restart at 1", *ASSIGNMENT, each=1, lists=2),
    "users, skewed": of_log(
        "users assigned, 30 % of them by their device, 3,000 pages", "ranker and device",
        kind="alternative", users=True, each=10, by_user=True, skew=0.3, pages=3_000,
    ),
    "users, lost": of_log(
        "users assigned 60 : 40, 3,000 pages", "sample ratio",
        kind="alternative", users=True, each=10, by_user=True, share=0.6, pages=3_000,
    ),
    "drift": of_log("nothing drifts, no user column", *DRIFT, each=1),
    "drift, harmless": of_log(
        "documents drift strongly, positions do not follow", "drift with position", each=1, single=0.3
    ),
    "drift, harmful": of_log(
        "documents drift as strongly, and their positions follow, 4,000 pages", "drift with position",
        kind="alternative", each=1, single=0.3, follow=0.3, pages=4_000,
    ),
    "drift, seen": of_log(
        "documents drift, each its own way, 4,000 pages", "drift of single units",
        kind="alternative", each=1, single=0.3, pages=4_000,
    ),
    "drift, common": of_log(
        "all documents are clicked more and more", "common drift", kind="alternative", each=1, common=0.2
    ),
    "rankers": of_log(
        "rankers move results by chance, 2,000 pages, no user column", *RANKERS, each=1, pages=2_000, times=3
    ),
    "rankers, users": of_log(
        "the same, 3,000 pages, users like different results and read to different depths, ten pages each, user column",
        *RANKERS, users=True, each=10, by_user=True, pages=3_000, liking=0.7, depth=0.3,
    ),
    "rankers, Zipf": of_log(
        "the same, a fifth of the pages from one user",
        *RANKERS, users=True, each=10, by_user=True, zipf=1.0, pages=3_000, liking=0.7, depth=0.3, times=3,
    ),
    "rankers, ten arms": of_log(
        "the same, ten rankers, 5,000 pages",
        *RANKERS, users=True, each=10, by_user=True, arms=10, share=0.1, pages=5_000, liking=0.7, depth=0.3,
    ),
    "rankers, home page": of_log(
        "the same, one query, 3,000 pages",
        *RANKERS, users=True, each=10, by_user=True, queries=1, pages=3_000, liking=0.7, depth=0.3,
    ),
    "rankers, personal": of_log(
        "rankers know what users like in part, 4,000 pages", "usual position",
        kind="alternative", each=1, pages=4_000, liking=0.7, personal=0.2,
    ),
    "rankers, shuffled": of_log(
        "positions are logged before 3 in 10 pages are shuffled, 4,000 pages", "usual position",
        kind="alternative", each=1, pages=4_000, shuffled=0.3,
    ),
    "rankers, depth": of_log(
        "with one ranker k^-1.4 instead of k^-1, 3,000 pages", "depth by ranker",
        kind="alternative", each=1, pages=3_000, apart=0.4,
    ),
    "personal, home page": of_log(
        "one query, 3,000 pages, ten of each user; users like different results and read to different depths",
        "usual position by user", users=True, each=10, queries=1, pages=3_000, liking=0.7, depth=0.3,
    ),
    "personal, thin": of_log(
        "the same, two pages of each user",
        "usual position by user", users=True, each=2, queries=1, pages=3_000, liking=0.7, depth=0.3,
    ),
    "personal, queries": of_log(
        "the same, 20 queries, 6,000 pages, 20 of each user, two rankers by user",
        "usual position by user", users=True, each=20, by_user=True, pages=6_000, liking=0.7, depth=0.3,
    ),
    "personal, Zipf": of_log(
        "the same, a sixth of the pages from one user",
        "usual position by user",
        users=True, each=20, by_user=True, zipf=1.0, pages=6_000, liking=0.7, depth=0.3, times=3,
    ),
    "personal, seen": of_log(
        "one query, 3,000 pages, ten of each user, whose likings rankers know in part", "usual position by user",
        kind="alternative", users=True, each=10, queries=1, pages=3_000, liking=0.7, personal=0.2,
    ),
    "swaps": of_swaps("the first result is swapped with one of 5 ranks, 500 pages, no user column"),
    "swaps, users": of_swaps("the same, ten pages of each user, user column", users=True, each=10),
    "swaps, kept": of_swaps("the same, users keep their rank", users=True, each=10, keep=True, times=3),
    "swaps, Zipf": of_swaps(
        "the same, 200 users, a sixth of the 2,000 pages from one", users=True, each=10, keep=True, zipf=1.0,
        pages=2_000, times=3,
    ),
    "swaps, not named": of_swaps(
        "users keep their rank, ten pages each, no user column: what a user column is for",
        kind="shown", each=10, keep=True,
    ),
    "swaps, none": of_swaps(
        "nothing is swapped, 500 pages, ten of each user, user column",
        kind="alternative", users=True, each=10, swapped=0.0,
    ),
    "swaps, part": of_swaps(
        "the same, a fifth of the pages is swapped", kind="alternative", users=True, each=10, swapped=0.2,
    ),
    "swaps, most": of_swaps(
        "the same, four fifths of them", kind="alternative", users=True, each=10, swapped=0.8,
    ),
    "purchases": of_purchases("buying after a click is the same everywhere, 3,000 pages", pages=3_000),
    "purchases, eager": of_purchases(
        "the same, but half of the pages buy up to six times as often as the others", pages=3_000, eagerness=6.0
    ),
    "purchases, few": of_purchases(
        "the same, 300 pages: about 145 purchases, a tenth to a sixth of them in one query", pages=300
    ),
    "purchases, device": of_purchases("the same, units by device", pages=3_000, context=True),
    "purchases, seen": of_purchases(
        "a click leads to a purchase k^-.2 times as often, 3,000 pages", kind="alternative", pages=3_000, steepness=0.2
    ),
    "purchases, plain": of_purchases(
        "a click leads to a purchase k^-.4 times as often, 3,000 pages", kind="alternative", pages=3_000, steepness=0.4
    ),
}  # fmt: skip


def main() -> None:
    """Run what is missing, print the table, and judge it."""
    options = parse_options()
    done = read_p_values(options.json)
    for name in options.worlds:
        world, own = WORLDS[name], done.setdefault(name, {})
        wanted = min(options.logs or world.logs, world.logs)
        missing = [seed for seed in range(wanted) if str(seed) not in own]
        parts = [missing[i : i + PART] for i in range(0, len(missing), PART)]
        for found in run(name, parts, options.jobs):
            own |= found
            write_p_values(options.json, done)
            print(f"{datetime.now():%H:%M:%S} {name}: {len(own)} logs", file=sys.stderr, flush=True)
    lines, bars = table(done)
    text = "\n".join([*lines, "", *(f"- {bar}" for bar in bars), "", machine()])
    print(text)
    complete = all(len(done.get(name, {})) >= world.logs for name, world in WORLDS.items())
    if complete or options.readme:
        before, rest = README.read_text().split(BEGIN)
        write(README, f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def run(name: str, parts: list[list[int]], jobs: int) -> Iterator[dict[str, PValues]]:
    """Yield the p-values of a world by seed, part by part, as they come."""
    if jobs == 1:
        yield from (measure_all(name, seeds) for seeds in parts)
        return
    for done in as_completed([pool(jobs).submit(measure_all, name, seeds) for seeds in parts]):
        yield done.result()


@cache
def pool(jobs: int) -> ProcessPoolExecutor:
    """Return the processes that all worlds share."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def measure_all(name: str, seeds: list[int]) -> dict[str, PValues]:
    """Return the p-values of some logs of a world, by seed."""
    return {str(seed): WORLDS[name].measure(seed) for seed in seeds}


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, help="logs of each world, at most; by default what the table needs")
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS), metavar="WORLD")
    parser.add_argument("--queries", action="store_true", help="of the worlds named, those alone that need no engine")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, default=HERE / "data" / "levels.json", help="file of p-values")
    parser.add_argument("--readme", action="store_true", help="write the README's table, though logs are missing")
    options = parser.parse_args()
    options.worlds = [name for name in options.worlds if not (options.queries and WORLDS[name].engine)]
    return options


def read_p_values(path: Path) -> dict[str, dict[str, PValues]]:
    """Return the p-values in a file, by world and seed; none where there is no file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_p_values(path: Path, done: dict[str, dict[str, PValues]]) -> None:
    """Write p-values to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(done))


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    with atomic_path(path) as partial:
        partial.write_text(text)


def table(done: dict[str, dict[str, PValues]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar."""
    head = "| test | kind | what is simulated | logs | rejected at 5 % | ± | at .1 % | cannot tell |"
    lines, bars = [head, "|---|---|---|--:|--:|--:|--:|--:|"], []
    rows = [(test, name) for name, world in WORLDS.items() for test in world.tests if done.get(name)]
    tests = list(dict.fromkeys(test for test, _ in rows))
    for test, name in sorted(rows, key=lambda row: tests.index(row[0])):
        world = WORLDS[name]
        p_values = np.array([own[test] for own in done[name].values()], dtype=np.float64)
        level, alarm, silent = (
            float(np.mean(part)) for part in (p_values < 0.05, p_values < 0.001, np.isnan(p_values))
        )
        error = math.sqrt(max(level * (1 - level), 0.01) / len(p_values))
        lines.append(
            f"| {test} | {world.kind} | {world.told} | {len(p_values)} | {100 * level:.1f} % | {100 * error:.1f} "
            f"| {100 * alarm:.1f} % | {100 * silent:.0f} % |"
        )
        if world.kind == "null":
            verdict = "PASS" if BAR[0] <= level <= BAR[1] else "FAIL"
            verdict = verdict if len(p_values) >= world.logs else "OPEN"
            bars.append(f"{verdict}: {test} ({name}): {100 * level:.1f} ± {100 * error:.1f} % of {len(p_values)} logs")
    return lines, bars


def machine() -> str:
    """Return a line on the machine, the versions and the day."""
    return (
        f"{os.cpu_count()} cores; Python {platform.python_version()}, NumPy {np.__version__}; "
        f"{datetime.now(UTC):%Y-%m-%d}."
    )


if __name__ == "__main__":
    main()
