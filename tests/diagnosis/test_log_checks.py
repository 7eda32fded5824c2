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


def test_aggregated_rows_drift_like_single_ones() -> None:
    single = {"query": ["q"] * 4, "doc": ["a"] * 4, "position": [1] * 4, "click": [1, 1, 0, 0], "time": [1, 1, 2, 2]}
    counted = {"query": ["q"] * 2, "doc": ["a"] * 2, "position": [1] * 2, "clicks": [2, 0], "time": [1, 2]}
    assert drift(read_log(pa.table(single))) == drift(read_log(pa.table(counted | {"impressions": [2, 2]})))


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
