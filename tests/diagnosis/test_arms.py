"""What else differs between rankers is harmful where results move one way, and only there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.diagnosis.diagnosing import compare_rankers
from clickharvest.diagnosis.findings import Finding
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

ENGINE = DuckDBEngine()


def told(way: str, *, factor: float, pages: int = 6_000, seed: int = 0) -> list[Finding]:
    """Return the finding on two rankers of six results of 30 queries, the second of which is clicked otherwise.

    With `both` it reverses some pages' order; with `down` it puts a new result on top; with `mostly` it does so below
    rank 2, which keeps its results.
    """
    random = np.random.default_rng(seed)
    query, arm = random.integers(30, size=pages), random.integers(2, size=pages)
    appeal = np.hstack([random.beta(1, 2, (30, 6)), np.full((30, 1), 0.3)])
    other = {"both": [2, 1, 0, 5, 4, 3], "down": [6, 0, 1, 2, 3, 4], "mostly": [0, 1, 6, 2, 3, 4]}[way]
    doc = np.array([[0, 1, 2, 3, 4, 5], other])[arm]
    chance = appeal[query[:, None], doc] / np.arange(1, 7) * np.where(arm == 1, factor, 1.0)[:, None]
    columns = {"page": np.arange(pages), "query": query, "ranker": np.array(["old", "new"])[arm]}
    table = {name: np.repeat(column, 6) for name, column in columns.items()}
    table |= {"doc": (doc + 7 * query[:, None]).ravel(), "position": np.tile(np.arange(1, 7), pages)}
    table["click"] = (random.random(chance.shape) < chance).ravel().astype(int)
    found = compare_rankers(read_log(pa.table(table), engine=ENGINE, validate=False))
    return [finding for finding in found if finding.name == "clicks by ranker"]


def test_one_arm_that_is_clicked_less_is_harmless_where_results_move_both_ways() -> None:
    (found,) = told("both", factor=0.5)
    assert found.status == "note"
    assert found.p_value is not None
    assert found.p_value < 0.001
    assert "harmless" in found.sentence
    (found,) = told("both", factor=1.0)
    assert found.status == "ok"


def test_it_is_harmful_where_they_move_one_way() -> None:
    (found,) = told("mostly", factor=0.5)
    assert found.status == "warning"
    assert found.value is not None
    assert found.value < -0.5
    assert "too steep" in found.sentence
    assert "with ranker old as with others" in found.sentence
    (found,) = told("mostly", factor=1.0)
    assert found.status == "ok"


def test_nothing_tells_where_no_result_keeps_its_position() -> None:
    for factor in (0.5, 1.0):
        (found,) = told("down", factor=factor)
        assert found.status == "warning"
        assert found.p_value is None
        assert "would look like position" in found.sentence


@pytest.mark.parametrize("pages", [1, 40])
def test_few_units_tell_nothing(pages: int) -> None:
    assert [finding for finding in told("down", factor=1.0, pages=pages) if finding.status != "ok"] == []


def test_a_log_without_rankers_is_not_compared() -> None:
    table = pa.table({"query": ["q"] * 4, "doc": list("aabb"), "position": [1, 2, 2, 1], "click": [1, 1, 0, 0]})
    assert compare_rankers(read_log(table)) == []
