"""Blocks, pages that count anew, documents twice on a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickharvest import read_log
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.simulate import simulate_ab_log
from command_line import Command

pytestmark = pytest.mark.usefixtures("one_duckdb")

PAGES = {
    "query": ["q"] * 6,
    "doc": list("abcdea"),
    "position": [1, 2, 1, 2, 1, 2],
    "click": [1, 0, 0, 0, 0, 1],
    "list": [1, 1, 1, 1, 1, 2],
    "screen": [1, 1, 2, 2, 3, 1],
    "kind": ["top", "top", "top", "top", "ad", "top"],
}


def rows(log: ClickLog, *columns: str) -> list[tuple[Any, ...]]:
    fetched = log.engine.fetch(log.table.select(*columns).order_by(*columns), task="Reading")
    return [tuple(row.values()) for row in fetched.to_pylist()]


def test_pages_that_count_anew_are_counted_through() -> None:
    log = read_log(pa.table(PAGES), page="list", page_number="Screen", page_size=2)
    assert rows(log, "doc", "position") == [("a", 1), ("a", 2), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]
    assert log.facts is not None
    assert log.facts.shared_pages == 0


def test_pages_are_counted_through_from_0_as_well() -> None:
    table = pa.table(PAGES | {"position": [0, 1, 0, 1, 0, 1], "original": [0, 1, 0, 1, 0, 0]})
    log = read_log(table, page_number="screen", page_size=2, position_base=0)
    assert [place for _, place in rows(log, "doc", "position")] == [1, 2, 2, 3, 4, 5]
    assert [place for _, place in rows(log, "doc", "original")] == [1, 1, 2, 3, 4, 5]


def test_a_block_is_kept_alone() -> None:
    assert len(rows(read_log(pa.table(PAGES), block={"KIND": "top"}), "doc")) == 5
    assert len(rows(read_log(pa.table(PAGES), block={"screen": "1"}), "doc")) == 3
    assert len(rows(read_log(pa.table(PAGES), block={"screen": "1", "list": "1"}), "doc")) == 2
    flags = pa.table(PAGES | {"ad": [False] * 5 + [True], "click": [1, 0, 0, 0, 0, 0]})
    assert len(rows(read_log(flags, block={"ad": "false"}), "doc")) == 5
    assert len(rows(read_log(flags, block={"ad": "False"}), "doc")) == 5


def test_a_block_of_no_row_is_refused_with_the_values_that_there_are() -> None:
    flags = pa.table(PAGES | {"ad": [False] * 4 + [True, None]})
    for block, values in {
        "ad": "no: no row has this value; found false (4 rows), true (1 row), nothing (1 row)",
        "screen": "4: no row has this value; found 1 (2 rows), 2 (2 rows), 3 (1 row)",
        "kind": "organic: no row has this value; found top (5 rows), ad (1 row)",
    }.items():
        asked = values.partition(":")[0]
        with pytest.raises(InputError, match=f"^{re.escape(f'--block {block}={values}')}$"):
            read_log(flags, block={"list": "1", block: asked} if block == "screen" else {block: asked})
    many = pa.table({name: column * 5 for name, column in PAGES.items()} | {"number": list(range(30))})
    with pytest.raises(InputError, match=r"5 \(1 row\) and others$"):
        read_log(many, block={"number": "30"})


impressions = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=20
)


@given(shown=impressions)
@settings(deadline=None, max_examples=40)
def test_a_repeated_document_keeps_its_first_place_and_any_click(
    shown: list[tuple[int, str, int, int]], duckdb_engine: DuckDBEngine
) -> None:
    expected: dict[tuple[int, str], tuple[int, int]] = {}
    for page, doc, position, click in shown:
        place, clicked = expected.get((page, doc), (position, click))
        expected[page, doc] = (min(place, position), max(clicked, click))
    columns = dict(zip(("page", "doc", "position", "click"), map(list, zip(*shown, strict=True)), strict=True))
    table = pa.table({"query": ["q"] * len(shown)} | columns)
    if 0 in columns["click"] and 1 in columns["click"] and not all(c for _, c in expected.values()):
        log = read_log(table, repeat="first", engine=duckdb_engine)
    else:
        log = read_log(table, repeat="first", engine=duckdb_engine, validate=False)
    found = {
        (page, doc): (place, clicks) for page, doc, place, clicks in rows(log, "page", "doc", "position", "clicks")
    }
    assert found == expected


def test_yes_and_no_survive_the_repetition() -> None:
    table = pa.table({"query": ["q"] * 3, "doc": ["a", "a", "b"], "position": [3, 1, 2], "click": ["yes", "no", "no"]})
    log = read_log(table.append_column("page", pa.array([1, 1, 1])), repeat="first")
    assert rows(log, "doc", "position", "clicks") == [("a", 1, 1.0), ("b", 2, 0.0)]


def test_counted_rows_repeat_nothing() -> None:
    counted = {"query": ["q"], "doc": ["a"], "position": [1], "clicks": [1], "impressions": [2], "page": [1]}
    with pytest.raises(InputError, match="pages of one row per impression"):
        read_log(pa.table(counted), repeat="first")
    with pytest.raises(InputError, match="expected first"):
        read_log(pa.table(PAGES), page="list", repeat="last")  # type: ignore[arg-type]


def test_weights_are_those_of_the_place_in_the_list(run: Command) -> None:
    table, _ = simulate_ab_log(pages=2_000, seed=0)
    pq.write_table(table, "whole.parquet")
    cut = table.set_column(
        table.column_names.index("position"),
        "position",
        pa.array([(k - 1) % 5 + 1 for k in table["position"].to_pylist()]),
    ).append_column("screen", pa.array([(k - 1) // 5 + 1 for k in table["position"].to_pylist()]))
    pq.write_table(cut, "cut.parquet")
    assert run("fit whole.parquet --intervals none -o m.safetensors")[0] == 0
    assert run("weigh whole.parquet m.safetensors -o a.parquet")[0] == 0
    assert run("weigh cut.parquet m.safetensors --page-number screen --page-size 5 -o b.parquet")[0] == 0
    a, b = (
        pq.read_table(name).sort_by([("page", "ascending"), ("position", "ascending")])
        for name in ("a.parquet", "b.parquet")
    )
    assert a["ips_weight"].equals(b["ips_weight"])
    assert a["position"].to_pylist() == b["position"].to_pylist()


def test_the_printed_query_prepares_the_rows(run: Command) -> None:
    code, out, _ = run("harvest shop.clicks --block kind=top --page-number screen --page-size 10 --emit-sql duckdb")
    assert code == 0
    assert "'top'" in out
    assert "screen" in out


@pytest.mark.filterwarnings("always")
def test_pages_of_a_file_are_counted_through(run: Command, tmp_path: Path) -> None:
    pq.write_table(pa.table(PAGES), tmp_path / "log.parquet")
    code, _, complaint = run("harvest log.parquet --page list -o out.parquet")
    assert code == 0
    assert complaint.startswith("Warning: 1 of 2 pages show several documents at one position (page 1 has 'a' and 'e'")
    code, _, complaint = run("harvest log.parquet --page list --page-number screen --page-size 2 -o out.parquet")
    assert (code, complaint) == (0, "")
