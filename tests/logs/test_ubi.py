"""OpenSearch User Behavior Insights: nested and dotted exports, what counts as shown and clicked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from clickharvest import read_ubi
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.formats.ubi import OBJECT, ORDINAL

QUERIES = [
    {"query_id": "1", "user_query": "shoes", "timestamp": "2026-01-01T10:00:00Z",
     "query_attributes": {"experiment": "a"}},
    {"query_id": "2", "user_query": "shoes", "timestamp": "2026-01-01T11:00:00Z",
     "query_attributes": {"experiment": "b"}},
]  # fmt: skip


def event(query_id: str, action: str, sku: str | None, ordinal: Any) -> dict[str, Any]:
    attributes = {"object": {"object_id": sku}, "position": {"ordinal": ordinal}}
    return {"query_id": query_id, "action_name": action, "event_attributes": attributes}


EVENTS = [
    event("1", "impression", "007", 1),
    event("1", "view", "8", 2),
    event("1", "click", "007", 1),
    event("1", "click", "007", 1),
    event("2", "IMPRESSION", "8", 1),
    event("2", "click", "9", 4),
    event("2", "scroll", "8", 7),
    event("2", "impression", None, 3),
]
EXPECTED = [("1", "007", 1, 1), ("1", "8", 2, 0), ("2", "8", 1, 0), ("2", "9", 4, 1)]


def rows(log: ClickLog) -> list[tuple[Any, ...]]:
    t = log.table
    table = t.select("page", "doc", t.position.cast("int64").name("position"), "clicks")
    return sorted(tuple(row.values()) for row in log.engine.fetch(table, task="Reading").to_pylist())


def dotted(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    plain = {}
    for name, value in record.items():
        plain |= dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return plain


def as_table(records: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dotted(record) for record in records])


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("wrapped", [False, True])
def test_json_exports_and_index_dumps(tmp_path: Path, wrapped: bool) -> None:
    files = [
        write_jsonl(tmp_path / name, [{"_index": "ubi", "_source": r} if wrapped else r for r in records])
        for name, records in (("queries.jsonl", QUERIES), ("events.jsonl", EVENTS))
    ]
    log = read_ubi(*files, ranker="query_attributes.experiment")
    assert rows(log) == EXPECTED
    assert log.roles["ranker"] == "query_attributes.experiment"
    assert {"ranker", "time", "page"} <= log.columns.keys()


def test_csv_exports_name_attributes_with_dots(tmp_path: Path) -> None:
    for name, records in (("queries.csv", QUERIES), ("events.csv", EVENTS)):
        pa.csv.write_csv(as_table(records), tmp_path / name)
    assert rows(read_ubi(tmp_path / "queries.csv", tmp_path / "events.csv")) == EXPECTED


def test_rare_attributes_after_many_other_events(tmp_path: Path) -> None:
    """Events of other kinds may come first, in any number, and lack the attributes."""
    others = [{"query_id": "1", "action_name": "scroll", "event_attributes": {"depth": 3}}] * 25_000
    files = write_jsonl(tmp_path / "q.jsonl", QUERIES), write_jsonl(tmp_path / "e.jsonl", others + EVENTS)
    assert rows(read_ubi(*files)) == EXPECTED


def test_context_comes_from_the_queries() -> None:
    queries = as_table(QUERIES).append_column("device", pa.array(["phone", "desktop"]))
    log = read_ubi(queries, as_table(EVENTS), context=["device"])
    fetched = log.engine.fetch(log.table.select("page", "device").distinct(), task="Reading").to_pylist()
    assert {row["page"]: row["device"] for row in fetched} == {"1": "phone", "2": "desktop"}


def test_ordinals_from_0() -> None:
    events = as_table([event("1", "view", "a", 0), event("1", "click", "a", 0)])
    assert rows(read_ubi(as_table(QUERIES), events, position_base=0)) == [("1", "a", 1, 1)]


def test_the_position_of_the_impression_counts() -> None:
    events = as_table([event("1", "click", "a", 9), event("1", "impression", "a", 2)])
    assert rows(read_ubi(as_table(QUERIES), events)) == [("1", "a", 2, 1)]


def test_results_of_unknown_queries_are_left_out_and_told() -> None:
    with pytest.warns(HarvestWarning, match="2 of 4 results were shown for a query_id that is not among the queries"):
        log = read_ubi(as_table(QUERIES[:1]), as_table(EVENTS))
    assert rows(log) == EXPECTED[:2]


@pytest.mark.parametrize(
    ("queries", "events", "options", "message"),
    [
        (QUERIES, EVENTS[2:4], {}, "no impressions among the events: expected the actions impression or view"),
        (QUERIES, EVENTS[:2], {}, "no clicks at all in 2 rows"),
        (QUERIES * 2, EVENTS, {}, "column 'query_id': 8 of 8 rows show a document twice on one page"),
        (QUERIES, [event("1", "view", "a", 0), event("1", "click", "a", 0)], {}, f"column '{ORDINAL}': 1 of 1 rows"),
        (QUERIES, EVENTS, {"context": ["device"]}, "missing context column 'device': found .*user_query"),
        (QUERIES, EVENTS, {"ranker": "arm"}, "missing column 'arm': found .*query_attributes.experiment"),
        ([{"query_id": "3", "user_query": "x"}], EVENTS, {}, "no query_id of the 4 results shown"),
        ([{"query_id": "1"}], EVENTS, {}, "the UBI queries lack user_query: found query_id"),
        (QUERIES, [{"query_id": "1", "action_name": "click"}], {}, f"the UBI events lack {OBJECT}, {ORDINAL}"),
    ],
)
def test_what_is_no_ubi_export(
    queries: list[dict[str, Any]], events: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_ubi(as_table(queries), as_table(events), **options)
