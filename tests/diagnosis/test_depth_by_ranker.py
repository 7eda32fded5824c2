"""Pages of a ranker that are read to another depth are seen, whatever its order of results; all else is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.diagnosis.diagnosing import compare_rankers
from clickharvest.diagnosis.findings import Finding
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

ENGINE = DuckDBEngine()
QUERIES, K = 40, 6


def found(powers: tuple[float, ...], *, times: tuple[float, ...] = (), seed: int = 0, n: int = 8_000) -> list[Finding]:
    """Return the finding on rankers that differ in the order of some results, in depth, and in how much is clicked."""
    random, arms = np.random.default_rng(seed), len(powers)
    query, arm = random.integers(QUERIES, size=n), random.integers(arms, size=n)
    order = np.argsort(np.arange(K) + random.normal(0, 0.6, (arms, QUERIES, K)), axis=2)
    doc = order[arm, query]
    power, factor = np.array(powers)[arm, None], np.array(times or (1.0,) * arms)[arm, None]
    appeal = random.beta(1, 2, (QUERIES, K))[query[:, None], doc]
    chance = 0.6 * factor * appeal * np.arange(1, K + 1) ** -power
    columns = {"page": np.arange(n), "query": query, "ranker": np.array(list("abc"))[arm]}
    rows: dict[str, Any] = {name: np.repeat(column, K) for name, column in columns.items()}
    rows |= {"doc": (doc + K * query[:, None]).ravel(), "position": np.tile(np.arange(1, K + 1), n)}
    rows["click"] = (random.random(chance.shape) < chance).ravel().astype(int)
    told = compare_rankers(read_log(pa.table(rows), engine=ENGINE, validate=False))
    return [one for one in told if one.name == "depth by ranker"]


def test_a_ranker_whose_pages_are_read_less_far_is_named() -> None:
    (finding,) = found((0.6, 0.6, 1.4))
    assert finding.status == "warning"
    assert finding.value == pytest.approx(-0.8, abs=0.25)
    assert "Pages of ranker c are read less far than others" in finding.sentence
    assert "from position 1 to 6" in finding.sentence


def test_of_two_rankers_the_one_with_more_clicks_is_told_on() -> None:
    (finding,) = found((0.5, 1.2))
    assert finding.status == "warning"
    assert finding.value == pytest.approx(0.7, abs=0.2)
    assert "Pages of ranker a are read farther than others" in finding.sentence


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 0.5, 1.5)])
def test_another_order_and_another_click_rate_are_no_matter(times: tuple[float, ...]) -> None:
    for seed in range(3):
        (finding,) = found((0.8, 0.8, 0.8), times=times, seed=seed)
        assert finding.p_value is not None
        assert finding.p_value > 0.01


def counts(power: float, displays: int) -> pa.Table:
    """Return counts of 200 units at two positions with two rankers, the second of which is read to another depth."""
    random = np.random.default_rng(1)
    unit, arm, position = (index.ravel() for index in np.indices((200, 2, 2)))
    n = displays * random.integers(1, 5, len(unit))
    clicks = random.binomial(n, 0.2 * (position + 1.0) ** -(0.7 + power * arm))
    columns = {"query": unit // 5, "doc": unit, "ranker": arm, "position": position + 1}
    return pa.table(columns | {"impressions": n, "clicks": clicks})


@pytest.mark.parametrize(("displays", "tolerance"), [(100, 0.1), (10_000, 0.01)])
def test_the_power_is_that_of_the_simulation(displays: int, tolerance: float) -> None:
    for power in (0.0, 0.1):
        log = read_log(counts(power, displays), ranker="ranker", engine=ENGINE)
        finding = compare_rankers(log)[-1]
        assert finding.value is not None
        assert abs(finding.value) == pytest.approx(power, abs=tolerance)


def test_a_difference_that_is_certain_and_small_is_a_note() -> None:
    finding = compare_rankers(read_log(counts(0.05, 10_000), ranker="ranker", engine=ENGINE))[-1]
    assert finding.status == "note"
    assert finding.p_value is not None
    assert finding.p_value < 0.001
    assert "too little to matter" in finding.sentence


def test_results_that_all_stand_at_one_position_tell_nothing_of_depth() -> None:
    rows = {"query": ["q"] * 8, "doc": list("aaaabbbb"), "position": [1] * 4 + [2] * 4, "ranker": list("xxxxyyyy")}
    assert compare_rankers(read_log(pa.table(rows | {"click": [0, 1] * 4}))) == []
