"""A large log is read twice instead of held whole, and what is harvested of it is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.checks.diagnosing import diagnose
from clickharvest.harvesting import large_logs
from clickharvest.harvesting.collecting import harvest, harvest_to_parquet
from clickharvest.harvesting.reading import read_interventions
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine, Engine
from clickharvest.logs.reading import read_log

pytestmark = pytest.mark.usefixtures("one_duckdb")

ROWS = 3_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows of some queries that repeat and many that do not, a context that is sometimes empty, and users."""
    random = np.random.default_rng(5)
    query = np.minimum(random.zipf(1.3, ROWS), 10**6)
    device = random.choice(["phone", "desktop", None], size=ROWS, p=[0.5, 0.4, 0.1])
    return pa.table({
        "query": query.astype(str),
        "doc": random.integers(12, size=ROWS),
        "position": random.choice([1, 2, 3, 31, 32, 33, 70], size=ROWS),
        "click": random.integers(0, 2, size=ROWS),
        "device": pa.array(device.tolist()),
        "user": random.integers(40, size=ROWS),
    })  # fmt: skip


def read(rows: pa.Table) -> ClickLog:
    return read_log(rows, context=["device"], user="user")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> list[ClickLog]:
    """Let the log be a large one, and return the narrowed logs as they are made."""
    monkeypatch.setattr(large_logs, "LARGE", ROWS)
    monkeypatch.setattr(large_logs, "SAMPLE", 1_000)
    made: list[ClickLog] = []
    materialise = DuckDBEngine.materialise

    def noted(self: DuckDBEngine, table: Any, *, task: str) -> Any:
        found = materialise(self, table, task=task)
        if task == "Looking for interventions":
            made.append(found)
        return found

    monkeypatch.setattr(DuckDBEngine, "materialise", noted)
    return made


@pytest.mark.parametrize(
    "options",
    [{}, {"unit": "query"}, {"max_position": 32}, {"cluster": "user"}, {"clicked_only": True}, {"max_clicks": 300}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*thinned")
def test_what_is_harvested_is_the_same(
    rows: pa.Table, options: dict[str, Any], large: list[ClickLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = harvest(read(rows), **options)
    assert len(large) == 1
    monkeypatch.undo()
    expected = harvest(read(rows), **options)
    assert found.to_arrow().equals(expected.to_arrow())
    assert found.clicks.sum() > 100


def test_positions_may_be_texts(rows: pa.Table, large: list[ClickLog]) -> None:
    """As those of CSV are, which become numbers with a fraction."""
    texts = rows.set_column(2, "position", rows["position"].cast("string"))
    assert harvest(read(texts)).to_arrow().equals(harvest(read(rows)).to_arrow())
    assert len(large) == 2


def test_units_that_share_a_digest_are_told_apart(
    rows: pa.Table, large: list[ClickLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = harvest(read(rows))
    digest = DuckDBEngine.digest
    monkeypatch.setattr(large_logs, "SPARSE", 0.0)

    def poor(self: DuckDBEngine, columns: Sequence[Any]) -> Any:
        return digest(self, columns) % 7

    monkeypatch.setattr(DuckDBEngine, "digest", poor)
    assert harvest(read(rows)).to_arrow().equals(expected.to_arrow())
    assert [table.count().execute() for table in large][1] == 7


def test_files_and_diagnoses_are_the_same(
    rows: pa.Table, tmp_path: Path, large: list[ClickLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = diagnose(read(rows)).to_dict()
    harvest_to_parquet(read(rows), tmp_path / "narrowed.parquet")
    assert len(large) == 2
    monkeypatch.undo()
    assert found == diagnose(read(rows)).to_dict()
    narrowed, whole = (read_interventions(path) for path in (tmp_path / "narrowed.parquet", harvested(rows, tmp_path)))
    assert narrowed.to_arrow().equals(whole.to_arrow())


def harvested(rows: pa.Table, folder: Path) -> Path:
    harvest_to_parquet(read(rows), folder / "whole.parquet")
    return folder / "whole.parquet"


def test_logs_that_gain_nothing_are_left_as_they_are(rows: pa.Table, large: list[ClickLog]) -> None:
    keys = ["query", "device", "doc"]
    log = read(rows)
    assert large_logs.narrowed(log, keys).likely is not None
    dense = read(pa.concat_tables([rows.slice(0, 100)] * 30))
    foreign = replace(log, engine=Engine(log.engine.backend))
    unchecked = read_log(rows, context=["device"], validate=False)
    for other in (dense, foreign, unchecked, replace(log, is_text=True)):
        assert large_logs.narrowed(other, keys) is other
