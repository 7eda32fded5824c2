"""Each test of an assumption must have uniform p-values when it holds, and find a plain violation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats

from clickharvest import diagnose
from clickharvest.checks.assignment import ranker_independence, sample_ratio
from clickharvest.checks.finding import Finding
from clickharvest.checks.result_movement import repetition
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from samples import logs

ENGINE = DuckDBEngine()


@cache
def simulated(
    seed: int,
    *,
    pages: int = 400,
    skewed_device: bool = False,
    shares: tuple[float, ...] = (0.5, 0.5),
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
    doc = query * 3 + (position + ranker) % 3
    chance = (0.2 + 0.4 * random.random(60))[doc]
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
    (found,) = [finding for finding in findings if finding.kind == name]
    return found


TESTS: dict[str, Callable[[ClickLog], list[Finding]]] = {
    "ranker and device": ranker_independence,
    "ranker and query": ranker_independence,
    "sample ratio": lambda log: sample_ratio(log, {"0": 1, "1": 1}),
}


@logs(daily=5, nightly=60)
def test_p_values_are_uniform_when_all_is_well(logs: int) -> None:
    p_values = [all_p_values(simulated(seed)) for seed in range(logs)]
    for name in TESTS:
        assert stats.kstest([own[name] for own in p_values], "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("name", "broken", "status"),
    [
        ("ranker and device", {"skewed_device": True}, "warning"),
        ("sample ratio", {"shares": (0.7, 0.3)}, "warning"),
    ],
)
def test_violations_are_found(name: str, broken: dict[str, Any], status: str) -> None:
    found = named(TESTS[name](simulated(7, pages=2000, **broken)), name)
    assert found.severity == status
    assert found.p is not None
    assert found.p < 0.001
    assert "p < 0.001" in found.details


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
    assert found.p == pytest.approx(stats.chi2.sf(10, 1))
    assert found.severity == "note"
    assert "a weak sign" in found.sentence
    assert "a 75.0 %, b 25.0 %" in found.sentence
    worse = named(sample_ratio(pages_log({("a", "x"): 60, ("b", "x"): 20}), {"a": 1, "b": 1}), "sample ratio")
    assert worse.severity == "warning"
    guessed = [sample_ratio(pages_log({("a", "x"): n, ("b", "x"): 10}), None)[0].severity for n in (10, 100)]
    assert guessed == ["ok", "note"]


def test_a_ranker_that_was_meant_to_serve_and_did_not_counts() -> None:
    log = pages_log({("a", "x"): 20, ("b", "x"): 20})
    missing = named(sample_ratio(log, {"a": 1, "b": 1, "c": 2}), "sample ratio")
    assert missing.p == pytest.approx(stats.chisquare([20, 20, 0], [10, 10, 20]).pvalue)
    assert missing.value == pytest.approx(20 / 40)


def test_one_ranker_is_nothing_to_test() -> None:
    log = pages_log({("a", "x"): 20, ("a", "y"): 20})
    assert [found.severity for found in sample_ratio(log, None)] == ["note"]
    assert [found.severity for found in ranker_independence(log)] == ["note", "note"]


def test_a_column_of_one_value_is_no_lack_of_pages() -> None:
    found = named(ranker_independence(pages_log({("a", "x"): 5_000, ("b", "x"): 5_000})), "ranker and device")
    assert found.sentence == "device has one value on all pages, on which no choice of ranker can depend."
    assert (found.severity, found.p) == ("note", None)
    few = named(ranker_independence(pages_log({("a", "x"): 3, ("b", "y"): 2})), "ranker and device")
    assert few.sentence == "Too few pages to test whether the ranker depends on device."


def test_independence_by_hand() -> None:
    """Mixes of ⅔, ⅓ and ⅓, ⅔ where the whole is half and half: they differ from it by ½ (⅙ + ⅙)."""
    pages = np.array([[20, 10], [10, 20]])
    log = pages_log({(r, d): int(pages[i, j]) for i, r in enumerate("ab") for j, d in enumerate("xy")})
    found = named(ranker_independence(log), "ranker and device")
    assert found.value == pytest.approx(1 / 6)
    assert found.p == pytest.approx(stats.chi2_contingency(pages, correction=False).pvalue)
    assert found.severity == "note"
    assert found.sentence == "Weak sign that the choice of ranker depends on device."
    assert found.details == "p = 0.010, pages taken as independent"


def test_levels_too_rare_for_the_test_are_put_together() -> None:
    """Levels y and z have expected counts of 4 with the smaller ranker, together 8; x and the two are compared."""
    pages = {("a", "x"): 40, ("b", "x"): 40, ("a", "y"): 5, ("b", "y"): 3, ("a", "z"): 2, ("b", "z"): 6}
    found = named(ranker_independence(pages_log(pages)), "ranker and device")
    assert found.p == pytest.approx(stats.chi2_contingency([[40, 7], [40, 9]], correction=False).pvalue)
    rare = {("a", "x"): 40, ("b", "x"): 40, ("a", "y"): 2, ("b", "y"): 3}
    assert named(ranker_independence(pages_log(rare)), "ranker and device").p is None
    exactly_five = {("a", "x"): 43, ("b", "x"): 47, ("a", "y"): 7, ("b", "y"): 3}
    expected = stats.chi2_contingency([[43, 7], [47, 3]], correction=False).pvalue
    assert named(ranker_independence(pages_log(exactly_five)), "ranker and device").p == pytest.approx(expected)


def repeated_log(unique: int, device: str = "p") -> ClickLog:
    """One document shown twice to one session, and once to each of some others."""
    rows = [("q", "a", 1 + n % 2, 1, f"s{n}") for n in range(unique)] + [("q", "a", k, 1, device) for k in (1, 2)]
    columns = zip(*rows, strict=True)
    table = dict(zip(("query", "doc", "position", "click", "session"), map(list, columns), strict=True))
    return read_log(pa.table(table), context=["session"], engine=ENGINE, validate=False)


@pytest.mark.parametrize(("unique", "status"), [(0, "ok"), (8, "ok"), (9, "warning")])
def test_contexts_that_hide_four_fifths_of_the_repetition_warn(unique: int, status: str) -> None:
    found = named(repetition(repeated_log(unique)), "repetition")
    assert found.severity == status
    assert found.value == pytest.approx(2 / (2 + unique))


def test_a_log_without_repetition_has_nothing_to_lose() -> None:
    columns = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [1, 0], "device": ["x", "x"]}
    findings = repetition(read_log(pa.table(columns), context=["device"]))
    assert [(found.kind, found.severity) for found in findings] == [
        ("repetition", "note"),
        ("context within queries", "ok"),
    ]
    assert named(findings, "repetition").value == 0.0
    assert repetition(read_log(pa.table(columns))) == []


def test_contexts_that_vary_within_queries_are_a_note() -> None:
    columns = {"query": ["q", "q", "r"], "doc": ["a"] * 3, "position": [1, 2, 1], "click": [1, 0, 1]}
    table = pa.table(columns | {"device": ["x", "y", "x"], "topic": ["s", "s", None]})
    found = named(repetition(read_log(table, context=["device", "topic"])), "context within queries")
    assert found.severity == "note"
    assert "topic: constant within every query; device varies within 50.0 % of queries" in found.sentence


def test_an_empty_value_is_one_more_value_of_a_context() -> None:
    columns = {"query": ["q", "q", "r"], "doc": ["a"] * 3, "position": [1, 2, 1], "click": [1, 0, 1]}
    table = pa.table(columns | {"device": [None, "y", "x"], "topic": pa.array([None] * 3, pa.string())})
    findings = repetition(read_log(table, context=["device", "topic"]))
    assert named(findings, "context within queries").sentence == "device varies within 50.0 % of queries."
    empty = named(findings, "empty context")
    assert (empty.severity, "nothing can depend on it: topic." in empty.sentence) == ("warning", True)


def test_equal_shares_are_only_a_guess_without_traffic() -> None:
    assert named(sample_ratio(simulated(1, shares=(0.7, 0.3)), None), "sample ratio").severity == "note"


def test_meant_traffic_is_compared() -> None:
    assert named(sample_ratio(simulated(1, shares=(0.7, 0.3)), {"0": 70, "1": 30}), "sample ratio").severity == "ok"
    assert "Rankers outside" in named(sample_ratio(simulated(1), {"0": 1}), "sample ratio").sentence


def test_a_log_without_rankers_is_not_tested() -> None:
    log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
    assert ranker_independence(log) == sample_ratio(log, None) == []


@cache
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
    findings = ranker_independence(log) + sample_ratio(log, {"0": 1, "1": 1})
    return {found.kind: found.p for found in findings if found.p is not None}


@logs(daily=4, nightly=24)
def test_users_that_come_back_are_no_violation(logs: int) -> None:
    samples = [user_log(seed) for seed in range(logs)]
    p_values, without = ([all_p_values(log) for log in own] for own in (samples, map(without_users, samples)))
    for name in TESTS:
        assert stats.kstest([own[name] for own in p_values], "uniform").pvalue > 0.001
        assert min(own[name] for own in p_values) > 0.001
        assert min(own[name] for own in without) < 0.001


def test_rankers_that_depend_on_the_device_of_users_are_found() -> None:
    found = named(ranker_independence(user_log(3, skewed=True, pages=4000)), "ranker and device")
    assert (found.severity, "clustered by user" in found.details) == ("warning", True)


def test_users_are_counted_where_each_met_one_ranker() -> None:
    by_user = named(sample_ratio(user_log(5), {"0": 1, "1": 1}), "sample ratio")
    users = np.unique(np.array(user_log(5).source.to_pyarrow().select(["user", "ranker"]).to_pandas()), axis=0)
    count = np.bincount(users[:, 1])
    assert by_user.p == pytest.approx(stats.chisquare(count).pvalue)
    assert "of users" in by_user.sentence
    by_page = named(sample_ratio(user_log(5, by_user=False), {"0": 1, "1": 1}), "sample ratio")
    assert "clustered by user" in by_page.details


def test_one_page_a_user_is_the_plain_test_nearly() -> None:
    """With one page each, T with the variance Σ d_u d_uᵀ tends to Pearson's χ²."""
    log = user_log(8, by_user=False, pages=4000)
    lonely = read_log(log.source, user="page", page="", context=["device"], engine=ENGINE, validate=False)
    for own, plain in zip(ranker_independence(lonely), ranker_independence(without_users(log)), strict=True):
        assert own.p == pytest.approx(plain.p, rel=0.1)


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
    assert found.p == pytest.approx(stats.f.sf(products.sum() / squares.sum(), freedom, 2 * groups * freedom))


@logs(daily=3, nightly=25)
def test_users_of_many_arms_are_no_violation(logs: int) -> None:
    """Five pages a user, half of them of one query. Whitened by their covariance, residuals reject 40 % at 5 %."""
    p_values = []
    for seed in range(logs):
        random = np.random.default_rng(seed)
        pages = np.zeros((1_000, 10, 20), dtype=np.int64)
        user = np.repeat(np.arange(1_000), 5)
        favourite, other = random.integers(20, size=1_000)[user], random.integers(20, size=5_000)
        query = np.where(random.random(5_000) < 0.5, favourite, other)
        np.add.at(pages, (user, random.integers(10, size=1_000)[user], query), 1)
        found = named(ranker_independence(log_of_users(pages)), "ranker and query")
        assert found.p is not None
        p_values.append(found.p)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_a_rare_level_of_one_ranker_is_not_left_out() -> None:
    """Ranker c serves level z alone, whose expected count is below 5: z joins y, and c is still compared."""
    pages = {("a", "x"): 600, ("b", "x"): 600, ("a", "y"): 300, ("b", "y"): 300, ("c", "z"): 20}
    found = named(ranker_independence(pages_log(pages)), "ranker and device")
    expected = stats.chi2_contingency([[600, 300], [600, 300], [0, 20]], correction=False).pvalue
    assert found.p == pytest.approx(expected)


def test_positions_that_restart_count_a_page_once() -> None:
    for one, two in zip(ranker_independence(user_log(2, lists=2)), ranker_independence(user_log(2)), strict=True):
        assert (one.value, one.p) == (two.value, pytest.approx(two.p))
    one, two = (sample_ratio(without_users(log), None)[0].to_dict() for log in (user_log(2, lists=2), user_log(2)))
    assert one == two


def test_users_may_be_unknown() -> None:
    """Who is not known is somebody else on every page, or left out where there are no pages."""
    table = user_log(4, by_user=False).source.to_pyarrow()
    nobody = table.set_column(table.column_names.index("user"), "user", pa.nulls(len(table), pa.string()))
    alone = read_log(nobody, context=["device"], engine=ENGINE)
    paged = read_log(table, user="page", page="", context=["device"], engine=ENGINE)
    assert all_p_values(alone) == pytest.approx(all_p_values(paged))
    unpaged = read_log(nobody, page="", context=["device"], engine=ENGINE)
    assert [found.severity for found in ranker_independence(unpaged)] == ["note", "note"]


def test_nothing_is_fine_with_a_small_p_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test finds with p = .002, it is a note at least, and does not say that there is no sign."""
    for tail in ("chi_square_tail", "whitened_tail", "independence_tail"):
        monkeypatch.setattr(f"clickharvest.checks.assignment.{tail}", lambda *_: 0.002)
    found: list[Finding] = []
    for log in (user_log(0), without_users(user_log(0)), simulated(0)):
        found += ranker_independence(log) + sample_ratio(log, None)
        found += sample_ratio(log, dict.fromkeys(log.source.ranker.to_pyarrow().to_pylist(), 1.0))
    found = [finding for finding in found if finding.p is not None]
    assert len({finding.kind for finding in found}) == 3
    for finding in found:
        assert finding.p == 0.002
        assert finding.severity == "note", finding
        assert "No sign" not in finding.sentence
        assert ", as " not in finding.sentence


@pytest.mark.parametrize("traffic", [{"a": -1}, {"a": float("nan")}, {"a": "much"}, {"a": 0, "b": 0}, {}])
def test_traffic_that_is_no_share_is_refused(traffic: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="traffic"):
        diagnose(pages_log({("a", "x"): 30, ("b", "x"): 10}), traffic=traffic)
