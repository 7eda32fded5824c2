"""Do tests reject as often as they say, and see what they are for? Many small simulated logs, with and without a fault.

    .venv/bin/python benchmarks/levels.py                                # all worlds; writes the README's table
    .venv/bin/python benchmarks/levels.py --worlds cascade --logs 50     # some of them; prints their table

A world is a way to simulate logs. In sound worlds what a test asks about is as it should be, though much else is not:
users differ and come back, queries have curves of their own, documents drift. Exits with 1 where a test rejects less
than 3 or more than 7 % of the logs of a sound world.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import many_logs
import numpy as np
from context_worlds import context_interventions
from shared_cells import HOME, USERS, ZIPF, SharedCell, simulate_shared
from worlds import POSITIONS, click_log, page_log, query_interventions, swap_log

BAR = (0.03, 0.07)
LOGS = {"sound": 500, "faulty": 100, "incomplete": 200}
"""Logs of a world by its kind; `incomplete` logs lack a column that the test needs."""

PValues = dict[str, float | None]
ASSIGNMENT = ("ranker and query", "ranker and device", "sample ratio")
RANKERS = ("usual position", "depth by ranker")
DRIFT = ("drift with position", "common drift", "drift of single units")


@dataclass(frozen=True)
class World:
    """A way to simulate logs.

    Attributes:
        kind: `sound`, `faulty` or `incomplete`.
        told: what is so, in words.
        tests: the findings that are judged.
        measure: from a seed to the p-values of tests.
        times: how many times as many logs it has as others of its kind: a level near its bar takes more to tell.
    """

    kind: str
    told: str
    tests: tuple[str, ...]
    measure: Callable[[int], PValues]
    times: int = 1

    @property
    def logs(self) -> int:
        """How many logs the table has of it."""
        return LOGS[self.kind] * self.times


def of_log(told: str, *tests: str, kind: str = "sound", users: bool = False, times: int = 1, **settings: Any) -> World:
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

    return World(kind, told, tests, measure, times=times)


@cache
def _engine() -> Any:
    from clickharvest.logs.engines import DuckDBEngine

    return DuckDBEngine()


def of_queries(told: str, test: str, *, kind: str = "sound", **settings: Any) -> World:
    """Return a world of interventions in which queries cluster."""

    def measure(seed: int) -> PValues:
        return {test: _check(test)(query_interventions(seed, **settings)).p_value}

    return World(kind, told, (test,), measure)


def of_contexts(told: str, law: Literal["xor", "office"], curve: str) -> World:
    """Return a world in which contexts decide the power of the position, tested with a curve that was fitted to it."""

    def measure(seed: int) -> PValues:
        from clickharvest import CPBM

        rows = context_interventions(seed, law)
        penalty: Any = "auto" if curve == "linear" else 1.0
        model = CPBM(curve=curve, penalty=penalty, intervals=None).fit(rows).propensities_
        return {"trust bias": _check("trust bias")(rows, model=model).p_value}

    return World("sound", told, ("trust bias",), measure)


def within_queries(told: str, *, kind: str = "sound", trust: float = 0.0) -> World:
    """Return a world of two devices, tested as `fit --model affine` does."""

    def measure(seed: int) -> PValues:
        from clickharvest.click_models.affine import Affine

        rows = context_interventions(seed, "device", trust=trust, pages=60_000 if trust else 12_000)
        return {finding.name: finding.p_value for finding in Affine().check(rows)}

    return World(kind, told, ("trust within queries",), measure)


def of_users(told: str, cell: SharedCell, *tests: str, kind: str = "sound", times: int = 1) -> World:
    """Return a world of interventions in which users cluster, or pages."""

    def measure(seed: int) -> PValues:
        rows = simulate_shared(cell, np.random.default_rng(seed)).interventions
        return {test: _check(test)(rows).p_value for test in tests}

    return World(kind, told, tests, measure, times=times)


def _check(test: str) -> Callable[..., Any]:
    from clickharvest.estimation import model_checks
    from clickharvest.estimation.trust_bias import trust_bias

    return {
        "trust bias": trust_bias,
        "context matters": model_checks.context_matters,
        "transitivity": model_checks.transitivity,
    }[test]


def of_purchases(told: str, *, kind: str = "sound", context: bool = False, pages: int, **settings: Any) -> World:
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

    return World(kind, told, (test,), measure)


def of_swaps(told: str, *, kind: str = "sound", users: bool = False, times: int = 1, **settings: Any) -> World:
    """Return a world of logs of swaps."""
    test = "swap ranks"

    def measure(seed: int) -> PValues:
        from clickharvest import read_log
        from clickharvest.diagnosis.swap_ranks import swap_ranks
        from clickharvest.harvesting import Swap

        user = "user" if users else ""
        log = read_log(swap_log(seed, **settings), user=user, engine=_engine(), validate=False)
        return {test: swap_ranks(log, Swap.uniform(POSITIONS))[0].p_value}

    return World(kind, told, (test,), measure, times=times)


DIFFERENT = "users like different results and read to different depths"
WORLDS = {
    "trust, own curves, large and thin": of_queries(
        "every query has its own curve, 1 ± .6 at single positions, 20,000 queries, 15 pages each",
        "trust bias", spread=0.5, unlike=0.6, appeal=0.36, queries=20_000, sessions=15
    ),
    "trust, seen": of_queries(
        "clicks as `simulate --clicks trust`, 200 queries",
        *("trust bias",), kind="faulty", spread=0.5, trust=True, queries=200, sessions=200,
    ),
    "context, one query": of_queries(
        "one query has 60 % of the clicks, two contexts without effect", "context matters", unlike=0.6, zipf=2.0
    ),
    "context, popularity": of_queries(
        "queries of Zipf sizes, 200 queries; the context is the logarithm of how often the query is shown",
        "context matters", unlike=0.6, zipf=1.0, appeal=0.36, queries=200, popularity=True
    ),
    "context, seen": of_queries(
        "k^-2 in one context and k^-.5 in the other, Zipf sizes", "context matters",
        kind="faulty", unlike=0.6, zipf=1.0, main=0.7,
    ),
    "context, one query, seen": of_queries(
        "the same contexts, one query has 60 % of the clicks", "context matters",
        kind="faulty", unlike=0.6, zipf=2.0, main=0.7,
    ),
    "context, together": of_queries(
        "two contexts that matter only together", "context matters", kind="faulty", unlike=0.6, together=0.4
    ),
    "trust, together": of_contexts("k^-1.4 where two columns agree and k^-.5 elsewhere", "xor", "index"),
    "trust, office hours": of_contexts("k^-1.4 from 9 to 17 o'clock and k^-.5 elsewhere", "office", "linear"),
    "trust, device": within_queries("k^-1.4 on phones and k^-.5 on desks"),
    "trust, device, seen": within_queries(
        "irrelevant results are clicked at k as if relevant in .8 / k, 60,000 pages", kind="faulty", trust=0.8
    ),
    "clusters, users": of_users(
        "300 users cluster, who read and click differently; two contexts without effect",
        replace(USERS, levels=2, alike=True), "context matters", "trust bias", times=3,
    ),
    "clusters, Zipf": of_users(
        "500 users of Zipf sizes cluster; two contexts without effect",
        replace(ZIPF, levels=2, alike=True), "context matters", "trust bias", times=3,
    ),
    "clusters, pages": of_users(
        "8,000 pages of one query cluster, four rankings", HOME, "trust bias"
    ),
    "transitivity": of_queries("one curve, clicks of a query and a page depend", "transitivity", unlike=0.6),
    "transitivity, seen": of_queries(
        "documents also shown at 3 are clicked e times as much at 2, 300 queries, 200 pages each",
        "transitivity", kind="faulty", adjacent=1.0, queries=300, sessions=200,
    ),
    "cascade": of_log("PBM, as `simulate --clicks pbm`", "clicks above", clicks="pbm"),
    "moods": of_log("PBM, some users click six times as much as others", "clicks above", clicks="pbm", mood=True),
    "cascade, seen": of_log(
        "`simulate --clicks cascade`, 2,000 pages", "clicks above", kind="faulty", clicks="cascade", pages=2_000
    ),
    "pages": of_log("every page assigned by chance, no user column", *ASSIGNMENT, each=1),
    "users": of_log(
        "users assigned by chance, ten pages each", *ASSIGNMENT, users=True, each=10, by_user=True, times=3
    ),
    "users, ten arms": of_log(
        "users assigned by chance to ten rankers, ten pages each, 5,000 pages", *ASSIGNMENT[:2],
        users=True, each=10, by_user=True, arms=10, share=0.1, pages=5_000,
    ),
    "users, small arm": of_log(
        "users assigned by chance, 95 and 5 %, ten pages each, 10,000 pages", *ASSIGNMENT[:2],
        users=True, each=10, by_user=True, share=0.95, pages=10_000, times=3,
    ),
    "users, Zipf": of_log(
        "users assigned by chance, who come back at any time, a fifth of the pages from one",
        *ASSIGNMENT, *DRIFT, users=True, each=10, by_user=True, zipf=1.0,
    ),
    "users, drift": of_log(
        "users assigned by chance, ten pages each", *DRIFT, users=True, each=10, by_user=True
    ),
    "users, not named": of_log(
        "no user column, users come back", *ASSIGNMENT, *DRIFT, kind="incomplete", each=10, by_user=True
    ),
    "pages of users": of_log(
        "every page assigned by chance, ten pages a user", *ASSIGNMENT, users=True, each=10, times=3
    ),
    "users, skewed": of_log(
        "30 % of the users assigned by their device, 3,000 pages", "ranker and device",
        kind="faulty", users=True, each=10, by_user=True, skew=0.3, pages=3_000,
    ),
    "users, lost": of_log(
        "users assigned 60 : 40, 3,000 pages", "sample ratio",
        kind="faulty", users=True, each=10, by_user=True, share=0.6, pages=3_000,
    ),
    "drift": of_log("nothing drifts, no user column", *DRIFT, each=1),
    "drift, harmless": of_log(
        "documents drift strongly, positions do not follow", "drift with position", each=1, single=0.3
    ),
    "drift, harmful": of_log(
        "documents drift and their positions follow, 4,000 pages", "drift with position",
        kind="faulty", each=1, single=0.3, follow=0.3, pages=4_000,
    ),
    "drift, seen": of_log(
        "each document drifts its own way, 4,000 pages", "drift of single units",
        kind="faulty", each=1, single=0.3, pages=4_000,
    ),
    "drift, common": of_log(
        "all documents are clicked more and more", "common drift", kind="faulty", each=1, common=0.2
    ),
    "rankers": of_log(
        "rankers move results by chance, 2,000 pages, no user column", *RANKERS, each=1, pages=2_000, times=3
    ),
    "rankers, Zipf": of_log(
        f"{DIFFERENT}, a fifth of the pages from one user",
        *RANKERS, users=True, each=10, by_user=True, zipf=1.0, pages=3_000, liking=0.7, depth=0.3, times=3,
    ),
    "rankers, ten arms": of_log(
        f"{DIFFERENT}, ten rankers, 5,000 pages",
        *RANKERS, users=True, each=10, by_user=True, arms=10, share=0.1, pages=5_000, liking=0.7, depth=0.3,
    ),
    "rankers, home page": of_log(
        f"{DIFFERENT}, one query, 3,000 pages",
        *RANKERS, users=True, each=10, by_user=True, queries=1, pages=3_000, liking=0.7, depth=0.3,
    ),
    "rankers, personal": of_log(
        "rankers know what users like in part, 4,000 pages", "usual position",
        kind="faulty", each=1, pages=4_000, liking=0.7, personal=0.2,
    ),
    "rankers, shuffled": of_log(
        "positions logged before 3 in 10 pages are shuffled, 4,000 pages", "usual position",
        kind="faulty", each=1, pages=4_000, shuffled=0.3,
    ),
    "rankers, depth": of_log(
        "k^-1.4 with one ranker, k^-1 with the other, 3,000 pages", "depth by ranker",
        kind="faulty", each=1, pages=3_000, apart=0.4,
    ),
    "personal, home page": of_log(
        f"{DIFFERENT}, one query, 3,000 pages, ten of each user",
        "usual position by user", users=True, each=10, queries=1, pages=3_000, liking=0.7, depth=0.3,
    ),
    "personal, thin": of_log(
        f"{DIFFERENT}, one query, 3,000 pages, two of each user",
        "usual position by user", users=True, each=2, queries=1, pages=3_000, liking=0.7, depth=0.3,
    ),
    "personal, queries": of_log(
        f"{DIFFERENT}, 20 queries, 6,000 pages, 20 of each user, two rankers by user",
        "usual position by user", users=True, each=20, by_user=True, pages=6_000, liking=0.7, depth=0.3,
    ),
    "personal, seen": of_log(
        "one query, the ranker knows what users like in part, 3,000 pages", "usual position by user",
        kind="faulty", users=True, each=10, queries=1, pages=3_000, liking=0.7, personal=0.2,
    ),
    "swaps": of_swaps("the first result is swapped with one of 5 ranks, 500 pages, no user column"),
    "swaps, Zipf": of_swaps(
        "users keep their rank, a sixth of the 2,000 pages from one user", users=True, each=10, keep=True, zipf=1.0,
        pages=2_000, times=3,
    ),
    "swaps, not named": of_swaps("no user column, users keep their rank", kind="incomplete", each=10, keep=True),
    "swaps, most": of_swaps(
        "swaps on four fifths of 500 pages", kind="faulty", users=True, each=10, swapped=0.8
    ),
    "purchases, eager": of_purchases(
        "half of 3,000 pages buy up to six times as often as the others", pages=3_000, eagerness=6.0
    ),
    "purchases, few": of_purchases("300 pages: about 145 purchases", pages=300),
    "purchases, device": of_purchases("units by device, 3,000 pages", pages=3_000, context=True),
    "purchases, seen": of_purchases(
        "a click leads to a purchase k^-.2 times as often, 3,000 pages", kind="faulty", pages=3_000, steepness=0.2
    ),
}  # fmt: skip


def measure(name: str, seed: int) -> PValues:
    """Return the p-values of a log."""
    return WORLDS[name].measure(seed)


def table(kept: dict[str, list[PValues]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table with one row per test, and a sentence for each bar."""
    head = ("test", "rejects of sound logs", "most often where", "sees", "without the column it needs")
    lines, bars = [f"| {' | '.join(head)} |", "|---|--:|---|---|---|"], []
    for test in dict.fromkeys(test for name in kept for test in WORLDS[name].tests):
        share = {name: rejected(own, test) for name, own in kept.items() if test in WORLDS[name].tests}
        sound, faulty, incomplete = (
            {name: one for name, one in share.items() if WORLDS[name].kind == kind} for kind in LOGS
        )
        for name, (level, error, logs) in sound.items():
            verdict = "PASS" if BAR[0] <= level <= BAR[1] else "FAIL"
            verdict = verdict if logs >= WORLDS[name].logs else "OPEN"
            bars.append(f"{verdict}: {test} ({name}): {100 * level:.1f} ± {100 * error:.1f} % of {logs} logs")
        where = max(sound, key=lambda name: sound[name][0], default="")
        hardest = f"{WORLDS[where].told} (± {100 * sound[where][1]:.1f})" if where else ""
        ends = dict.fromkeys(f"{100 * end(one[0] for one in sound.values()):.1f}" for end in (min, max) if sound)
        seen, lacking = (
            "; ".join(f"{WORLDS[name].told}: {100 * one[0]:.0f} %" for name, one in some.items())
            for some in (faulty, incomplete)
        )
        lines.append(f"| {test} | {' to '.join(ends)} % | {hardest} | {seen} | {lacking} |")
    return lines, bars


def rejected(own: list[PValues], test: str) -> tuple[float, float, int]:
    """Return the share of logs that a test rejects at 5 %, its standard error, and the number of logs."""
    level = float(np.mean(np.array([one[test] for one in own], dtype=np.float64) < 0.05))
    return level, math.sqrt(max(level * (1 - level), 0.01) / len(own)), len(own)


if __name__ == "__main__":
    many_logs.main("levels", __doc__, {name: world.logs for name, world in WORLDS.items()}, measure, table)
