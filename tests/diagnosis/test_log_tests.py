"""Each test of an assumption must have uniform p-values when it holds, and find a plain violation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.special import chdtrc, ndtr

from clickharvest.diagnosis.log_checks import (
    Finding,
    _chi_square_tail,
    _normal_tail,
    drift,
    ranker_independence,
    repetition,
    sample_ratio,
)
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

ENGINE = DuckDBEngine()


def simulated(
    seed: int,
    *,
    pages: int = 400,
    skewed_device: bool = False,
    shares: tuple[float, ...] = (0.5, 0.5),
    common_drift: float = 0.0,
    single_drift: float = 0.0,
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
    trend = 2 * time / pages - 1
    own_way = np.where(random.integers(2, size=60) == 1, 1, -1)[doc]
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
}


@pytest.fixture(scope="module")
def null_p_values() -> dict[str, list[float]]:
    p_values: dict[str, list[float]] = {name: [] for name in TESTS}
    for seed in range(120):
        log = simulated(seed)
        for findings in (ranker_independence(log), sample_ratio(log, {"0": 1, "1": 1}), drift(log)):
            for found in findings:
                assert found.p_value is not None
                p_values[found.name].append(found.p_value)
    return p_values


@pytest.mark.parametrize("name", TESTS)
def test_p_values_are_uniform_when_all_is_well(name: str, null_p_values: dict[str, list[float]]) -> None:
    assert len(null_p_values[name]) == 120
    assert stats.kstest(null_p_values[name], "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("ranker and device", {"skewed_device": True}),
        ("sample ratio", {"shares": (0.7, 0.3)}),
        ("common drift", {"common_drift": 0.2}),
        ("drift of single units", {"single_drift": 0.25}),
    ],
)
def test_violations_are_found(name: str, broken: dict[str, Any]) -> None:
    found = named(TESTS[name](simulated(7, pages=4000, **broken)), name)
    assert found.status == "warning"
    assert found.p_value is not None
    assert found.p_value < 0.001
    assert "p < 0.001" in found.sentence


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


def test_drift_of_single_units_by_hand() -> None:
    """Query q: (a − E)² = 1, V = 1/3, surplus 2/3. Query r: a = E = 1, surplus −1/3."""
    log = timed_log(("q", "a", [1] * 4, [1, 1, 0, 0]), ("r", "b", [1] * 4, [1, 0, 0, 1]))
    single = named(drift(log), "drift of single units")
    assert single.value == pytest.approx(1 / (2 / 3))
    assert single.p_value == pytest.approx(stats.norm.sf((2 / 3 - 1 / 3) / np.sqrt((2 / 3) ** 2 + (1 / 3) ** 2)))
    assert single.status == "ok"
    assert named(drift(log), "common drift").value == pytest.approx((2 + 1) / (1 + 1) - 1)


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
    """30 and 10 pages where 20 and 20 were meant: χ² = 10, p = .0016, which is not yet an alarm."""
    found = named(sample_ratio(pages_log({("a", "x"): 30, ("b", "x"): 10}), {"a": 2, "b": 2, "c": 0}), "sample ratio")
    assert found.value == pytest.approx(10 / 40)
    assert found.p_value == pytest.approx(stats.chi2.sf(10, 1))
    assert found.status == "ok"
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


def test_independence_by_hand() -> None:
    """Mixes of ⅔, ⅓ and ⅓, ⅔ where the whole is half and half: they differ from it by ½ (⅙ + ⅙)."""
    pages = np.array([[20, 10], [10, 20]])
    log = pages_log({(r, d): int(pages[i, j]) for i, r in enumerate("ab") for j, d in enumerate("xy")})
    found = named(ranker_independence(log), "ranker and device")
    assert found.value == pytest.approx(1 / 6)
    assert found.p_value == pytest.approx(stats.chi2_contingency(pages, correction=False).pvalue)
    assert found.status == "ok"


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
    return read_log(pa.table(table), context=["session"], engine=ENGINE)


@pytest.mark.parametrize(("unique", "status"), [(0, "ok"), (8, "ok"), (9, "warning")])
def test_contexts_that_hide_four_fifths_of_the_repetition_warn(unique: int, status: str) -> None:
    found = named(repetition(repeated_log(unique)), "repetition")
    assert found.status == status
    assert found.value == pytest.approx(2 / (2 + unique))


def test_a_log_without_repetition_has_nothing_to_lose() -> None:
    columns = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [1, 0], "device": ["x", "x"]}
    findings = repetition(read_log(pa.table(columns), context=["device"]))
    assert [(found.name, found.status) for found in findings] == [
        ("repetition", "ok"),
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
    assert _chi_square_tail(x, freedom) == pytest.approx(chdtrc(freedom, x), rel=1e-10, abs=1e-300)
    assert _normal_tail(x) == pytest.approx(ndtr(-x), rel=1e-12)
    assert _normal_tail(-x) == pytest.approx(ndtr(x), rel=1e-12)
