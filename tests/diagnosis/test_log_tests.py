"""Each test of an assumption must have uniform p-values when it holds, and find a plain violation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats
from scipy.special import betaincc, chdtrc, ndtr

from clickharvest import PBM, diagnose, harvest
from clickharvest.diagnosis.assignment import ranker_independence, sample_ratio
from clickharvest.diagnosis.cascade import clicks_above, tell_clicks_above
from clickharvest.diagnosis.drift import drift
from clickharvest.diagnosis.findings import Finding
from clickharvest.diagnosis.laws import chi_square_tail, clustered_tail, hotelling_tail, normal_tail, squares_tail
from clickharvest.diagnosis.repetition import repetition
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from clickharvest.simulate import SimulatedUsers

ENGINE = DuckDBEngine()


def simulated(
    seed: int,
    *,
    pages: int = 400,
    skewed_device: bool = False,
    shares: tuple[float, ...] = (0.5, 0.5),
    common_drift: float = 0.0,
    single_drift: float = 0.0,
    follow: bool = False,
) -> ClickLog:
    """A log of pages with one to three results each; everything an assumption speaks of can be broken."""
    random = np.random.default_rng(seed)
    query = random.integers(20, size=pages)
    ranker = random.choice(len(shares), pages, p=shares)
    device = random.integers(2, size=pages)
    if skewed_device:
        ranker = np.where(random.random(pages) < 0.4, device, ranker)
    position = np.tile([1, 2, 3], pages)
    query, ranker, device, time = (np.repeat(column, 3) for column in (query, ranker, device, np.arange(pages)))
    trend = 2 * time / pages - 1
    ways = np.where(random.integers(2, size=60) == 1, 1, -1)
    doc = query * 3 + (position + ranker) % 3
    if follow:
        lift = ways.reshape(20, 3)[query[::3]] * trend[::3, None] + random.normal(0, 1, (pages, 3))
        doc = query * 3 + np.argsort(-lift, axis=1).ravel()
    own_way = ways[doc]
    chance = (0.2 + 0.4 * random.random(60))[doc] + common_drift * trend + single_drift * own_way * trend
    return read_log(
        pa.table(
            {
                "query": query,
                "doc": doc,
                "position": position,
                "ranker": ranker.astype(str),
                "device": device.astype(str),
                "time": time,
                "click": (random.random(3 * pages) < chance).astype(int),
            }
        ),
        context=["device"],
        engine=ENGINE,
        validate=False,
    )


def named(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


TESTS: dict[str, Callable[[ClickLog], list[Finding]]] = {
    "ranker and device": ranker_independence,
    "ranker and query": ranker_independence,
    "sample ratio": lambda log: sample_ratio(log, {"0": 1, "1": 1}),
    "common drift": drift,
    "drift of single units": drift,
    "drift with position": drift,
}


@pytest.fixture(scope="module")
def null_p_values() -> dict[str, list[float]]:
    p_values: dict[str, list[float]] = {name: [] for name in TESTS}
    for seed in range(60):
        log = simulated(seed)
        for findings in (ranker_independence(log), sample_ratio(log, {"0": 1, "1": 1}), drift(log)):
            for found in findings:
                assert found.p_value is not None
                p_values[found.name].append(found.p_value)
    return p_values


@pytest.mark.parametrize("name", TESTS)
def test_p_values_are_uniform_when_all_is_well(name: str, null_p_values: dict[str, list[float]]) -> None:
    assert len(null_p_values[name]) == 60
    assert stats.kstest(null_p_values[name], "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("name", "broken", "status"),
    [
        ("ranker and device", {"skewed_device": True}, "warning"),
        ("sample ratio", {"shares": (0.7, 0.3)}, "warning"),
        ("common drift", {"common_drift": 0.2}, "note"),
        ("drift of single units", {"single_drift": 0.25}, "note"),
        ("drift with position", {"single_drift": 0.25, "follow": True}, "warning"),
    ],
)
def test_violations_are_found(name: str, broken: dict[str, Any], status: str) -> None:
    found = named(TESTS[name](simulated(7, pages=4000, **broken)), name)
    assert found.status == status
    assert found.p_value is not None
    assert found.p_value < 0.001
    assert "p < 0.001" in found.sentence


def test_a_ranker_that_follows_clicks_is_not_told_the_wrong_way() -> None:
    """A bandit moves up what was clicked by luck: units that lose clicks move down, and the curve is too flat."""
    random = np.random.default_rng(0)
    queries, docs, pages = 200, 6, 8_000
    appeal, clicks, shown = random.beta(1, 2, (queries, docs)), np.ones((queries, docs)), np.full((queries, docs), 2.0)
    rows = []
    for page, q in enumerate(random.integers(queries, size=pages)):
        order = np.argsort(-(clicks[q] / shown[q] + random.normal(0, 1e-3, docs)))
        click = random.random(docs) < appeal[q, order] / np.arange(1, docs + 1)
        clicks[q, order] += click
        shown[q, order] += 1
        rows += [(q, docs * q + doc, k + 1, page, int(click[k])) for k, doc in enumerate(order)]
    columns = dict(zip(("query", "doc", "position", "time", "click"), map(list, zip(*rows, strict=True)), strict=True))
    log = read_log(pa.table(columns), engine=ENGINE)
    found = named(drift(log), "drift with position")
    assert found.status == "warning"
    assert "lose clicks move down" in found.sentence
    assert "if rankers follow clicks themselves, chance included, it is too flat" in found.sentence
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PBM(intervals=None).fit(harvest(log))
    assert (model.predict().propensity[0, 1:] > 1.2 / np.arange(2, docs + 1)).all()


def test_drift_by_hand() -> None:
    """One document at one position, clicks 1 1 | 0 0 in time: a = 2, E = 2·2/4 = 1, V = 2·½·½·2/3 = 1/3."""
    shown = {"query": ["q"] * 4, "doc": ["a"] * 4, "position": [1] * 4, "click": [1, 1, 0, 0], "time": [1, 2, 3, 4]}
    common = named(drift(read_log(pa.table(shown))), "common drift")
    assert common.value == pytest.approx(2 / 1 - 1)
    assert common.p_value == pytest.approx(2 * stats.norm.sf(1 / np.sqrt(1 / 3)))


def timed_log(*units: tuple[str, str, list[int], list[int]]) -> ClickLog:
    """One row per display, in the order of time: query, document, positions and clicks of each unit."""
    rows = [
        (query, doc, position, click, time)
        for query, doc, positions, clicks in units
        for time, (position, click) in enumerate(zip(positions, clicks, strict=True))
    ]
    columns = zip(*rows, strict=True)
    table = dict(zip(("query", "doc", "position", "click", "time"), map(list, columns), strict=True))
    return read_log(pa.table(table), engine=ENGINE)


def test_displays_of_one_day_are_in_no_order() -> None:
    """Three days, each with a click in four displays, whichever comes first: days 2 and 3 are late, together."""
    shown = {"query": ["q"] * 12, "doc": ["d"] * 12, "position": [1] * 12, "time": np.repeat([1, 2, 3], 4)}
    found = drift(read_log(pa.table(shown | {"click": [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]})))
    common, single = (named(found, name) for name in ("common drift", "drift of single units"))
    assert (common.value, common.p_value) == (0, 1)
    assert single.value == 0


@pytest.mark.parametrize("days", [1, 2])
def test_a_first_day_with_most_displays_is_early(days: int) -> None:
    shown = {"query": ["q"] * 8, "doc": ["d"] * 8, "position": [1] * 8, "time": [1] * 5 + [days] * 3}
    found = drift(read_log(pa.table(shown | {"click": [1, 0, 0, 0, 0, 1, 1, 0]})))
    assert ([finding.name for finding in found] == ["drift"]) == (days == 1)
    if days == 2:  # one click in five, of three in eight
        assert named(found, "common drift").value == pytest.approx(1 / (3 * 5 / 8) - 1)


def test_drift_of_single_units_by_hand() -> None:
    """Query q: (a − E)² = 1, V = 1/3, surplus 2/3. Query r: a = E = 1, surplus −1/3. So t² = 1/5 and g = 7 / 5^1.5."""
    log = timed_log(("q", "a", [1] * 4, [1, 1, 0, 0]), ("r", "b", [1] * 4, [1, 0, 0, 1]))
    single = named(drift(log), "drift of single units")
    assert single.value == pytest.approx(1 / (2 / 3))
    t, skew = 5**-0.5, 7 / 5**1.5
    assert single.p_value == pytest.approx(stats.norm.sf(t + skew / 15 + skew**2 * t / 135 + skew / 6))
    assert single.status == "ok"
    common = named(drift(log), "common drift")
    assert common.value == pytest.approx((2 + 1) / (1 + 1) - 1)
    assert "first halves of units got 50.0% more clicks than expected" in common.sentence


@pytest.mark.parametrize(
    "silent",
    [
        ("q", "b", [1] * 4, [1, 1, 1, 1]),
        ("q", "b", [1] * 4, [0, 0, 0, 0]),
        ("q", "b", [1, 1, 2, 2], [1, 0, 1, 0]),
    ],
    ids=["always clicked", "never clicked", "another position in each half"],
)
def test_units_that_cannot_drift_do_not_count(silent: Any) -> None:
    loud = ("q", "a", [1] * 4, [1, 1, 0, 0])
    assert drift(timed_log(loud, silent)) == drift(timed_log(loud))


def test_drift_that_cannot_be_tested_is_a_note() -> None:
    (found,) = drift(timed_log(("q", "a", [1, 2], [1, 0]), ("q", "b", [2, 1], [1, 1])))
    assert (found.name, found.status, found.p_value) == ("drift", "note", None)


def test_aggregated_rows_drift_like_single_ones() -> None:
    single = {"query": ["q"] * 4, "doc": ["a"] * 4, "position": [1] * 4, "click": [1, 1, 0, 0], "time": [1, 1, 2, 2]}
    counted = {"query": ["q"] * 2, "doc": ["a"] * 2, "position": [1] * 2, "clicks": [2, 0], "time": [1, 2]}
    assert drift(read_log(pa.table(single))) == drift(read_log(pa.table(counted | {"impressions": [2, 2]})))


def pages_log(pages: dict[tuple[str, str], int]) -> ClickLog:
    """A log with so many pages of each ranker and device; results at position 2 are shown five times as often."""
    rows = [(ranker, device, k, count * (1, 5)[k - 1]) for (ranker, device), count in pages.items() for k in (1, 2)]
    ranker, device, position, impressions = (list(column) for column in zip(*rows, strict=True))
    columns = {"query": ["q"] * len(rows), "doc": ["a"] * len(rows), "position": position, "ranker": ranker}
    counts = {"device": device, "impressions": impressions, "clicks": [0] * len(rows)}
    return read_log(pa.table(columns | counts), context=["device"], engine=ENGINE, validate=False)


def test_the_sample_ratio_by_hand() -> None:
    """30 and 10 pages where 20 and 20 were meant: χ² = 10, p = .0016, which is a weak sign, not yet an alarm."""
    found = named(sample_ratio(pages_log({("a", "x"): 30, ("b", "x"): 10}), {"a": 2, "b": 2, "c": 0}), "sample ratio")
    assert found.value == pytest.approx(10 / 40)
    assert found.p_value == pytest.approx(stats.chi2.sf(10, 1))
    assert found.status == "note"
    assert "a weak sign" in found.sentence
    assert "a 75.0 %, b 25.0 %" in found.sentence
    worse = named(sample_ratio(pages_log({("a", "x"): 60, ("b", "x"): 20}), {"a": 1, "b": 1}), "sample ratio")
    assert worse.status == "warning"
    guessed = [sample_ratio(pages_log({("a", "x"): n, ("b", "x"): 10}), None)[0].status for n in (10, 100)]
    assert guessed == ["ok", "note"]


def test_a_ranker_that_was_meant_to_serve_and_did_not_counts() -> None:
    log = pages_log({("a", "x"): 20, ("b", "x"): 20})
    missing = named(sample_ratio(log, {"a": 1, "b": 1, "c": 2}), "sample ratio")
    assert missing.p_value == pytest.approx(stats.chisquare([20, 20, 0], [10, 10, 20]).pvalue)
    assert missing.value == pytest.approx(20 / 40)


def test_one_ranker_is_nothing_to_test() -> None:
    log = pages_log({("a", "x"): 20, ("a", "y"): 20})
    assert [found.status for found in sample_ratio(log, None)] == ["note"]
    assert [found.status for found in ranker_independence(log)] == ["note", "note"]


def test_a_column_of_one_value_is_no_lack_of_pages() -> None:
    found = named(ranker_independence(pages_log({("a", "x"): 5_000, ("b", "x"): 5_000})), "ranker and device")
    assert found.sentence == "device has one value on all pages, on which no choice of ranker can depend."
    assert (found.status, found.p_value) == ("note", None)
    few = named(ranker_independence(pages_log({("a", "x"): 3, ("b", "y"): 2})), "ranker and device")
    assert few.sentence == "Too few pages to test whether the ranker depends on device."


def test_independence_by_hand() -> None:
    """Mixes of ⅔, ⅓ and ⅓, ⅔ where the whole is half and half: they differ from it by ½ (⅙ + ⅙)."""
    pages = np.array([[20, 10], [10, 20]])
    log = pages_log({(r, d): int(pages[i, j]) for i, r in enumerate("ab") for j, d in enumerate("xy")})
    found = named(ranker_independence(log), "ranker and device")
    assert found.value == pytest.approx(1 / 6)
    assert found.p_value == pytest.approx(stats.chi2_contingency(pages, correction=False).pvalue)
    assert found.status == "note"
    assert found.sentence == (
        "Weak sign that the choice of ranker depends on device (p = 0.010, pages taken as independent)."
    )


def test_levels_too_rare_for_the_test_are_put_together() -> None:
    """Levels y and z have expected counts of 4 with the smaller ranker, together 8; x and the two are compared."""
    pages = {("a", "x"): 40, ("b", "x"): 40, ("a", "y"): 5, ("b", "y"): 3, ("a", "z"): 2, ("b", "z"): 6}
    found = named(ranker_independence(pages_log(pages)), "ranker and device")
    assert found.p_value == pytest.approx(stats.chi2_contingency([[40, 7], [40, 9]], correction=False).pvalue)
    rare = {("a", "x"): 40, ("b", "x"): 40, ("a", "y"): 2, ("b", "y"): 3}
    assert named(ranker_independence(pages_log(rare)), "ranker and device").p_value is None
    exactly_five = {("a", "x"): 43, ("b", "x"): 47, ("a", "y"): 7, ("b", "y"): 3}
    expected = stats.chi2_contingency([[43, 7], [47, 3]], correction=False).pvalue
    assert named(ranker_independence(pages_log(exactly_five)), "ranker and device").p_value == pytest.approx(expected)


def repeated_log(unique: int, device: str = "p") -> ClickLog:
    """One document shown twice to one session, and once to each of some others."""
    rows = [("q", "a", 1 + n % 2, 1, f"s{n}") for n in range(unique)] + [("q", "a", k, 1, device) for k in (1, 2)]
    columns = zip(*rows, strict=True)
    table = dict(zip(("query", "doc", "position", "click", "session"), map(list, columns), strict=True))
    return read_log(pa.table(table), context=["session"], engine=ENGINE, validate=False)


@pytest.mark.parametrize(("unique", "status"), [(0, "ok"), (8, "ok"), (9, "warning")])
def test_contexts_that_hide_four_fifths_of_the_repetition_warn(unique: int, status: str) -> None:
    found = named(repetition(repeated_log(unique)), "repetition")
    assert found.status == status
    assert found.value == pytest.approx(2 / (2 + unique))


def test_a_log_without_repetition_has_nothing_to_lose() -> None:
    columns = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [1, 0], "device": ["x", "x"]}
    findings = repetition(read_log(pa.table(columns), context=["device"]))
    assert [(found.name, found.status) for found in findings] == [
        ("repetition", "note"),
        ("context within queries", "ok"),
    ]
    assert named(findings, "repetition").value == 0.0
    assert repetition(read_log(pa.table(columns))) == []


def test_contexts_that_vary_within_queries_are_a_note() -> None:
    columns = {"query": ["q", "q", "r"], "doc": ["a"] * 3, "position": [1, 2, 1], "click": [1, 0, 1]}
    table = pa.table(columns | {"device": ["x", "y", "x"], "topic": ["s", "s", None]})
    found = named(repetition(read_log(table, context=["device", "topic"])), "context within queries")
    assert found.status == "note"
    assert "topic: constant within every query; device varies within 50.0 % of queries" in found.sentence


def test_an_empty_value_is_one_more_value_of_a_context() -> None:
    columns = {"query": ["q", "q", "r"], "doc": ["a"] * 3, "position": [1, 2, 1], "click": [1, 0, 1]}
    table = pa.table(columns | {"device": [None, "y", "x"], "topic": pa.array([None] * 3, pa.string())})
    findings = repetition(read_log(table, context=["device", "topic"]))
    assert named(findings, "context within queries").sentence == "device varies within 50.0 % of queries."
    empty = named(findings, "empty context")
    assert (empty.status, "nothing can depend on it: topic." in empty.sentence) == ("warning", True)


def test_equal_shares_are_only_a_guess_without_traffic() -> None:
    assert named(sample_ratio(simulated(1, shares=(0.7, 0.3)), None), "sample ratio").status == "note"


def test_meant_traffic_is_compared() -> None:
    assert named(sample_ratio(simulated(1, shares=(0.7, 0.3)), {"0": 70, "1": 30}), "sample ratio").status == "ok"
    assert "Rankers outside" in named(sample_ratio(simulated(1), {"0": 1}), "sample ratio").sentence


def test_a_log_without_rankers_or_time_is_not_tested() -> None:
    log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
    assert ranker_independence(log) == sample_ratio(log, None) == drift(log) == []


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 31, 400])
@pytest.mark.parametrize("x", [0.0, 1e-3, 0.7, 5.0, 60.0, 900.0])
def test_tails_are_those_of_scipy(x: float, freedom: int) -> None:
    assert chi_square_tail(x, freedom) == pytest.approx(chdtrc(freedom, x), rel=1e-10, abs=1e-300)
    assert normal_tail(x) == pytest.approx(ndtr(-x), rel=1e-12)
    assert normal_tail(-x) == pytest.approx(ndtr(x), rel=1e-12)


def user_log(seed: int, *, by_user: bool = True, skewed: bool = False, lists: int = 1, pages: int = 1000) -> ClickLog:
    """A log of users with ten pages each, one device, one taste for queries, and much or little clicking."""
    random = np.random.default_rng(seed)
    user = np.arange(pages) // 10
    device, query, mood = (random.integers(n, size=pages // 10)[user] for n in (2, 4, 2))
    assigned = random.integers(2, size=pages)
    ranker = assigned[user] if by_user else assigned
    ranker = np.where(skewed & (random.random(pages)[user] < 0.5), device, ranker)
    rows, position = 3 * lists, np.tile(np.tile([1, 2, 3], lists), pages)
    columns = {"query": query, "ranker": ranker, "device": device, "user": user, "page": np.arange(pages)}
    columns = {name: np.repeat(column, rows) for name, column in columns.items()}
    columns["time"] = columns["page"]
    columns["doc"] = np.tile(np.arange(rows), pages)
    clicked = random.random(pages * rows) < np.repeat(0.2 + 0.6 * mood, rows) / position
    return read_log(
        pa.table(columns | {"position": position, "click": clicked.astype(int)}),
        context=["device"],
        engine=ENGINE,
        validate=False,
    )


def without_users(log: ClickLog) -> ClickLog:
    return read_log(log.source, context=["device"], user="", engine=ENGINE, validate=False)


def all_p_values(log: ClickLog) -> dict[str, float]:
    findings = ranker_independence(log) + sample_ratio(log, {"0": 1, "1": 1}) + drift(log)
    return {found.name: found.p_value for found in findings if found.p_value is not None}


@pytest.fixture(scope="module")
def user_p_values() -> list[dict[str, float]]:
    return [all_p_values(user_log(seed)) for seed in range(24)]


@pytest.fixture(scope="module")
def lonely_p_values() -> list[dict[str, float]]:
    return [all_p_values(without_users(user_log(seed))) for seed in range(10)]


@pytest.mark.parametrize("name", ["ranker and query", "ranker and device", "sample ratio", "common drift"])
def test_users_that_come_back_are_no_violation(
    name: str, user_p_values: list[dict[str, float]], lonely_p_values: list[dict[str, float]]
) -> None:
    p_values = [own[name] for own in user_p_values]
    assert stats.kstest(p_values, "uniform").pvalue > 0.001
    assert min(p_values) > 0.001
    assert min(own[name] for own in lonely_p_values) < 0.001


def test_rankers_that_depend_on_the_device_of_users_are_found() -> None:
    found = named(ranker_independence(user_log(3, skewed=True, pages=6000)), "ranker and device")
    assert (found.status, "clustered by user" in found.sentence) == ("warning", True)


def test_users_are_counted_where_each_met_one_ranker() -> None:
    by_user = named(sample_ratio(user_log(5), {"0": 1, "1": 1}), "sample ratio")
    users = np.unique(np.array(user_log(5).source.to_pyarrow().select(["user", "ranker"]).to_pandas()), axis=0)
    count = np.bincount(users[:, 1])
    assert by_user.p_value == pytest.approx(stats.chisquare(count).pvalue)
    assert "of users" in by_user.sentence
    by_page = named(sample_ratio(user_log(5, by_user=False), {"0": 1, "1": 1}), "sample ratio")
    assert "clustered by user" in by_page.sentence


def test_one_page_a_user_is_the_plain_test_nearly() -> None:
    """With one page each, T with the variance Σ d_u d_uᵀ tends to Pearson's χ²."""
    log = user_log(8, by_user=False, pages=4000)
    lonely = read_log(log.source, user="page", page="", context=["device"], engine=ENGINE, validate=False)
    for own, plain in zip(ranker_independence(lonely), ranker_independence(without_users(log)), strict=True):
        assert own.p_value == pytest.approx(plain.p_value, rel=0.1)


def log_of_users(pages: npt.NDArray[np.int64]) -> ClickLog:
    """Pages of users by ranker and query, [users, rankers, queries]."""
    user, ranker, query = np.nonzero(pages)
    row = np.repeat(np.arange(len(user)), pages[user, ranker, query])
    columns = {"user": user[row], "ranker": ranker[row].astype(str), "query": np.char.add("q", query[row].astype(str))}
    ones = np.ones(len(row), int)
    rows = columns | {"page": np.arange(len(row)), "doc": ones, "position": ones, "click": ones}
    return read_log(pa.table(rows), engine=ENGINE, validate=False)


def test_independence_by_user_by_hand() -> None:
    """What each user adds to Pearson's residuals, their squares and products, spelled out."""
    pages = np.random.default_rng(0).poisson(0.6, (40, 3, 4))
    table = pages.sum(0)
    expected = stats.contingency.expected_freq(table)
    by_user = pages - pages.sum(1, keepdims=True) * (table.sum(1) / table.sum())[None, :, None]
    by_user = by_user - by_user.sum(2, keepdims=True) * table.sum(0) / table.sum()
    d = (by_user / np.sqrt(expected)).reshape(40, -1)
    assert d.sum(0) == pytest.approx(((table - expected) / np.sqrt(expected)).ravel())
    products, squares = d @ d.T, (d**2).sum(1)
    freedom = squares.sum() ** 2 / ((products**2).sum() - (squares**2).sum())
    groups = squares.sum() ** 2 / (squares**2).sum()
    found = named(ranker_independence(log_of_users(pages)), "ranker and query")
    assert found.p_value == pytest.approx(stats.f.sf(products.sum() / squares.sum(), freedom, 2 * groups * freedom))


def test_users_of_many_arms_are_no_violation() -> None:
    """Five pages a user, half of them of one query. Whitened by their covariance, residuals reject 40 % at 5 %."""
    p_values = []
    for seed in range(25):
        random = np.random.default_rng(seed)
        pages = np.zeros((1_000, 10, 20), dtype=np.int64)
        user = np.repeat(np.arange(1_000), 5)
        favourite, other = random.integers(20, size=1_000)[user], random.integers(20, size=5_000)
        query = np.where(random.random(5_000) < 0.5, favourite, other)
        np.add.at(pages, (user, random.integers(10, size=1_000)[user], query), 1)
        found = named(ranker_independence(log_of_users(pages)), "ranker and query")
        assert found.p_value is not None
        p_values.append(found.p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_a_rare_level_of_one_ranker_is_not_left_out() -> None:
    """Ranker c serves level z alone, whose expected count is below 5: z joins y, and c is still compared."""
    pages = {("a", "x"): 600, ("b", "x"): 600, ("a", "y"): 300, ("b", "y"): 300, ("c", "z"): 20}
    found = named(ranker_independence(pages_log(pages)), "ranker and device")
    expected = stats.chi2_contingency([[600, 300], [600, 300], [0, 20]], correction=False).pvalue
    assert found.p_value == pytest.approx(expected)


def test_positions_that_restart_count_a_page_once() -> None:
    for one, two in zip(ranker_independence(user_log(2, lists=2)), ranker_independence(user_log(2)), strict=True):
        assert (one.value, one.p_value) == (two.value, pytest.approx(two.p_value))
    assert sample_ratio(without_users(user_log(2, lists=2)), None) == sample_ratio(without_users(user_log(2)), None)


def test_users_may_be_unknown() -> None:
    """Who is not known is somebody else on every page, or left out where there are no pages."""
    table = user_log(4, by_user=False).source.to_pyarrow()
    nobody = table.set_column(table.column_names.index("user"), "user", pa.nulls(len(table), pa.string()))
    alone = read_log(nobody, context=["device"], engine=ENGINE)
    paged = read_log(table, user="page", page="", context=["device"], engine=ENGINE)
    assert all_p_values(alone) == pytest.approx(all_p_values(paged))
    unpaged = read_log(nobody, page="", context=["device"], engine=ENGINE)
    assert [found.status for found in ranker_independence(unpaged)] == ["note", "note"]


def click_model_log(seed: int, clicks: str, *, pages: int = 1500, mood: bool = False) -> ClickLog:
    """Pages of five of ten documents a query, in a new order each time, that a click model clicks on."""
    random = np.random.default_rng(seed)
    query = random.integers(20, size=pages)
    quality = random.random((20, 10))
    doc = np.argsort(-(quality[query] + random.normal(0, 0.4, (pages, 10))), axis=1)[:, :5]
    curve = np.tile(1 / np.arange(1.0, 6), (pages, 1)) * (random.choice([0.2, 1.0], (pages, 1)) if mood else 1.0)
    relevant = (quality[query[:, None], doc] > 0.6)[None]
    model = SimulatedUsers(clicks, 0.2)
    drawn, _ = model.draw(np.ones((1, pages), np.int64), np.ones(relevant.shape, bool), relevant, curve, random)
    columns = {"page": np.repeat(np.arange(pages), 5), "query": np.repeat(query, 5), "doc": doc.ravel()}
    columns |= {"position": np.tile(np.arange(1, 6), pages), "click": drawn.ravel()}
    return read_log(pa.table(columns), engine=ENGINE, validate=False)


@pytest.mark.parametrize("mood", [False, True])
def test_clicks_above_are_uniform_where_they_change_nothing(mood: bool) -> None:
    findings = [clicks_above(click_model_log(seed, "pbm", mood=mood))[0] for seed in range(40)]
    p_values = np.array([found.p_value for found in findings], dtype=np.float64)
    assert stats.kstest(p_values, "uniform").pvalue > 0.001
    assert np.mean(p_values < 0.05) <= 0.12


def test_a_cascade_is_noticed() -> None:
    findings = [clicks_above(click_model_log(seed, "cascade", pages=3000))[0] for seed in range(5)]
    assert [found.status for found in findings] == ["warning"] * 5
    assert all(found.value is not None and 0.2 < found.value < 0.8 for found in findings)
    assert "as when users leave once served" in findings[0].sentence


@pytest.mark.parametrize("score", [-40.0, -4.0, 4.0, 40.0])
def test_a_number_is_told_of_clicks_above_only_where_it_is_known(score: float) -> None:
    """The standard error of log ratio is 1/10, and then 2: the interval spans a factor of 1.5, and one of 2,500."""
    some: dict[str, Any] = {"score": score, "variance": 100.0, "squares": 100.0, "products": 0.0, "sizes": 100.0}
    known, unknown = (tell_clicks_above(weight=weight, **some).sentence for weight in (100.0, 5.0))
    assert f"{np.exp(score / 100):.2f} times as often" in known
    assert "times as often" not in unknown
    told = (
        f"{'more' if score > 0 else 'less'} often, the more clicks" if abs(score) > 10 else "how much they might is not"
    )
    assert told in unknown


def test_clicks_above_need_pages_and_results_above() -> None:
    log = click_model_log(0, "pbm", pages=50)
    assert clicks_above(read_log(log.source, page="", engine=ENGINE, validate=False)) == []
    same = {
        "page": [1, 1, 2, 2],
        "query": ["q"] * 4,
        "doc": ["a", "b"] * 2,
        "position": [1, 2] * 2,
        "click": [1, 0, 0, 1],
    }
    (found,) = clicks_above(read_log(pa.table(same), engine=ENGINE))
    assert (found.status, found.p_value) == ("note", None)


def test_clustered_tail_by_hand() -> None:
    """Scores 3, 1 of information 1: θ = 2, Σ(U − θ)² = 2, times 2/1; scores that agree leave Σ V: too few for t."""
    assert clustered_tail(4, 2, 10, 4, 2) == pytest.approx(2 * stats.norm.sf(4 / 2))
    assert clustered_tail(6, 2, 18, 6, 2) == pytest.approx(2 * stats.norm.sf(6 / 2**0.5))
    assert clustered_tail(5, 2, 25, 10, 4) == pytest.approx(2 * stats.norm.sf(5 / 2**0.5))
    assert clustered_tail(0, 0, 0, 0, 0) == 1
    score, size = np.array([4.0, -1.0, 2.0, 0.5, 3.0, 1.0, -2.0]), np.array([1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    groups = 81 / 13
    variance = np.sum((score - score.sum() / 9 * size) ** 2) * groups / (groups - 1)
    found = clustered_tail(score.sum(), 9, np.sum(score**2), score @ size, 13)
    assert found == pytest.approx(2 * stats.t.sf(score.sum() / variance**0.5, groups - 1))
    # Six groups that agree to the last digit.
    assert clustered_tail(6, 6, 6, 6, 6) == pytest.approx(2 * stats.norm.sf(6**0.5))
    assert clustered_tail(0, 6, 0, 0, 6) == 1


def test_groups_alike_reject_as_often_as_they_say() -> None:
    """With independent scores of 12 groups; the larger of two variances would reject 3 % of these at 5 %."""
    random = np.random.default_rng(0)
    size = random.uniform(0.5, 2, 12)
    score = random.normal(0, np.sqrt(size), (4_000, 12))
    sums = zip(score.sum(axis=1), np.sum(score**2, axis=1), score @ size, strict=True)
    p_values = np.array([clustered_tail(u, size.sum(), own, cross, size @ size) for u, own, cross in sums])
    assert np.mean(p_values < 0.05) == pytest.approx(0.05, abs=0.01)
    assert np.mean(p_values < 0.2) == pytest.approx(0.2, abs=0.02)


def test_drift_with_position_by_hand() -> None:
    """Unit q, a: at 1 a = 2, E = 1 early; position 1 1 | 1 1: it did not move. Unit r, b went from 1 to 1, 2."""
    log = timed_log(
        ("q", "a", [1, 1, 1, 1], [1, 1, 0, 0]),
        ("r", "b", [1, 1, 1, 2], [1, 1, 0, 0]),
        ("s", "c", [2, 2, 2, 1], [0, 1, 0, 1]),
    )
    moved = named(drift(log), "drift with position")
    # b: M = −½ log 2; at 1 C = 2, early 2 of 3, a − E = 2 − 4/3. c: M = ½ log 2, a − E = 1 − 2/3.
    parts = np.array([-0.5 * np.log(2) * 2 / 3, 0.5 * np.log(2) / 3])
    assert moved.p_value == pytest.approx(2 * stats.norm.sf(abs(parts.sum()) / np.sqrt(np.sum(parts**2))))
    spread = np.sqrt((1 + 4 / 9 + 1 / 9) * 2 * (0.5 * np.log(2)) ** 2)
    assert moved.value == pytest.approx(parts.sum() / spread)


@pytest.mark.parametrize("groups", [2, 20, 100, 100_000])
@pytest.mark.parametrize("share", [0.0, 1e-4, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("freedom", [1, 19])
def test_the_law_of_groups_is_that_of_scipy(groups: int, share: float, freedom: int) -> None:
    expected = betaincc(freedom / 2, (groups - freedom) / 2, share) if groups > freedom else 1.0
    assert hotelling_tail(share * groups, freedom, groups) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("groups", [3.0, 40.5, 1e6])
@pytest.mark.parametrize("freedom", [1.0, 7.3, 150.0])
@pytest.mark.parametrize("share", [0.0, 0.9, 1.4, 3.0])
def test_the_law_of_squares_is_that_of_scipy(groups: float, freedom: float, share: float) -> None:
    mean = 2.0
    found = squares_tail(share * mean, mean, mean**2 / freedom + mean**2 / groups, mean**2 / groups, 200)
    assert found == pytest.approx(stats.f.sf(share, freedom, 2 * groups * freedom), rel=1e-6)


def test_drift_by_user_is_the_plain_test_where_each_user_saw_a_unit_once() -> None:
    """Residuals of small strata are small because their rates are fitted: two displays each, and V is not halved."""
    random = np.random.default_rng(0)
    units = 300
    rows = {
        "query": np.repeat(np.arange(units), 2),
        "doc": np.zeros(2 * units, int),
        "position": np.ones(2 * units, int),
    }
    rows |= {"time": np.tile([0, 1], units), "click": random.integers(2, size=2 * units)}
    plain, by_user = (
        named(drift(read_log(pa.table(rows | more), engine=ENGINE, validate=False)), "common drift")
        for more in ({}, {"user": np.arange(2 * units)})
    )
    assert "clustered by user" in by_user.sentence
    assert by_user.p_value == pytest.approx(plain.p_value)


def test_a_page_clusters_drift_where_there_are_no_users() -> None:
    """Ten results on every page, clicked all or none: as many observations as pages, not as results."""
    random = np.random.default_rng(1)
    pages, wide = 60, 10
    rows: dict[str, Any] = {"query": np.zeros(pages * wide, int), "doc": np.tile(np.arange(wide), pages)}
    rows |= {"position": rows["doc"] + 1, "time": np.repeat(np.arange(pages), wide)}
    rows["click"] = np.repeat(random.integers(2, size=pages), wide)
    variance = []
    for more in ({}, {"page": rows["time"]}):
        found = named(drift(read_log(pa.table(rows | more), engine=ENGINE, validate=False)), "common drift")
        assert found.p_value is not None
        variance.append(stats.norm.isf(found.p_value / 2) ** -2)
    assert variance[1] == pytest.approx(wide * variance[0], rel=0.1)


def test_nothing_is_fine_with_a_small_p_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test finds with p = .002, it is a note at least, and does not say that there is no sign."""
    for module, laws in {
        "assignment": ("chi_square_tail", "hotelling_tail", "squares_tail"),
        "drift": ("two_sided", "skewed_tail"),
        "cascade": ("clustered_tail",),
    }.items():
        for law in laws:
            monkeypatch.setattr(f"clickharvest.diagnosis.{module}.{law}", lambda *_: 0.002)
    found = clicks_above(click_model_log(0, "pbm"))
    for log in (user_log(0), without_users(user_log(0)), simulated(0)):
        found += ranker_independence(log) + sample_ratio(log, None) + drift(log)
        found += sample_ratio(log, dict.fromkeys(log.source.ranker.to_pyarrow().to_pylist(), 1.0))
    found = [finding for finding in found if finding.p_value is not None]
    assert len({finding.name for finding in found}) == 7
    for finding in found:
        assert finding.p_value == 0.002
        assert finding.status == "note", finding
        assert "No sign" not in finding.sentence
        assert "as meant (" not in finding.sentence


@pytest.mark.parametrize("traffic", [{"a": -1}, {"a": float("nan")}, {"a": "much"}, {"a": 0, "b": 0}, {}])
def test_traffic_that_is_no_share_is_refused(traffic: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="traffic"):
        diagnose(pages_log({("a", "x"): 30, ("b", "x"): 10}), traffic=traffic)
