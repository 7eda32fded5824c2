"""OpenSearch User Behavior Insights: nested and dotted exports, what counts as shown and clicked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from clickharvest import read_export, read_ubi
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.formats.ubi import OBJECT, ORDINAL
from places import SHARED_DATA

pytestmark = pytest.mark.usefixtures("one_duckdb")

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
    event("2", "impression", "9", 4),
    event("2", "click", "9", 4),
    event("2", "scroll", "8", 7),
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


@pytest.mark.parametrize("base", [None, 1])
def test_where_ordinals_start_is_found_out_for_each_application_and_told(base: int | None) -> None:
    shown = [("old", "1", "a", 0), ("old", "1", "b", 1), ("new", "2", "a", 1)]
    shops = [event(page, "view", doc, ordinal) | {"application": shop} for shop, page, doc, ordinal in shown]
    shops.append(event("2", "click", "a", 1) | {"application": "new"})
    message = (
        "positions of old count from 0" if base is None else "1 of 3 items of lists are left out: 1 without a usable"
    )
    with pytest.warns(HarvestWarning, match=message):
        found = rows(read_ubi(as_table(QUERIES), as_table(shops), position_base=base))
    expected = [("1", "a", 1, 0), ("1", "b", 2, 0)] if base is None else [("1", "b", 1, 0)]
    assert found == [*expected, ("2", "a", 1, 1)]


def test_one_odd_ordinal_does_not_move_the_others() -> None:
    events = [event("1", "view", "a", 1), event("1", "view", "b", 2), event("2", "view", "c", 0),
              event("2", "view", "d", 1), event("3", "view", "a", 1), event("3", "click", "a", 1)]  # fmt: skip
    queries = [*QUERIES, {"query_id": "3", "user_query": "shoes", "timestamp": "2026-01-03"}]
    with pytest.warns(HarvestWarning, match="1 of 5 items of lists are left out: 1 without a usable position"):
        assert rows(read_ubi(as_table(queries), as_table(events)))[:2] == [("1", "a", 1, 0), ("1", "b", 2, 0)]


def test_a_click_without_an_impression_counts_as_shown_and_is_told() -> None:
    events = [event("1", "view", "a", 1), event("1", "click", "b", 3), event("2", "click", "c", 1)]
    with (
        pytest.warns(HarvestWarning, match="1 result clicked without having been shown"),
        pytest.warns(
            HarvestWarning, match="1 of 2 clicks match nothing of what was shown .*: 1 on a page that is not there"
        ),
    ):
        assert rows(read_ubi(as_table(QUERIES), as_table(events))) == [("1", "a", 1, 0), ("1", "b", 3, 1)]


def test_queries_that_repeat_an_id_do_not_double_pages() -> None:
    again = [QUERIES[0] | {"timestamp": "2026-01-01T10:00:05Z", "user_query": "shoe"}, *QUERIES, *QUERIES]
    with pytest.warns(HarvestWarning, match="1 query_id with several user queries: the first counts"):
        log = read_ubi(as_table(again), as_table(EVENTS))
    assert rows(log) == EXPECTED
    texts = log.engine.fetch(log.table.select("query").distinct(), task="").to_pylist()
    assert texts == [{"query": "shoes"}]


def test_queries_and_events_in_one_bulk_file(tmp_path: Path) -> None:
    lines = [line for r in [*QUERIES, *EVENTS] for line in ({"index": {"_index": "ubi"}}, r)]
    assert rows(read_export(write_jsonl(tmp_path / "bulk.ndjson", lines), "ubi")) == EXPECTED


def test_the_query_may_be_on_the_events(tmp_path: Path) -> None:
    events = [e | {"user_query": "shoes"} for e in EVENTS]
    assert rows(read_ubi(None, write_jsonl(tmp_path / "e.jsonl", events))) == EXPECTED


def test_where_nothing_was_seen_what_was_returned_stands_in_and_is_told() -> None:
    queries = [QUERIES[0] | {"query_response_hit_ids": ["a", "b", "c"]}, QUERIES[1] | {"query_response_hit_ids": []}]
    clicks = [event("1", "click", "b", 2), event("1", "click", "x", 9), event("2", "click", "a", 1)]
    tables = pa.Table.from_pylist(queries), pa.Table.from_pylist(clicks)
    with (
        pytest.warns(HarvestWarning, match="it holds what was returned"),
        pytest.warns(
            HarvestWarning, match="2 of 3 clicks match nothing .* 1 on a page .* 1 on a document that its page did not"
        ),
        pytest.warns(HarvestWarning, match="1 list without items"),
    ):
        found = rows(read_ubi(*tables))
    assert found == [("1", "a", 1, 0), ("1", "b", 2, 1), ("1", "c", 3, 0)]


def test_ids_that_never_match_are_noticed() -> None:
    queries = [QUERIES[0] | {"query_response_hit_ids": ["Xk3", "pq9"]}]
    tables = pa.Table.from_pylist(queries), pa.Table.from_pylist([event("1", "click", "sku7", 1)])
    with pytest.raises(InputError, match=r"no click is on what was shown: 1 on a document .* may hold Lucene's own"):
        read_ubi(*tables)


def test_ids_of_which_most_never_match_are_noticed() -> None:
    queries = [QUERIES[0] | {"query_response_hit_ids": ["Xk3", "pq9"]}, QUERIES[1] | {"query_response_hit_ids": ["a"]}]
    clicks = [event("1", "click", "sku7", 1), event("1", "click", "sku8", 2), event("2", "click", "a", 1)]
    with (
        pytest.warns(HarvestWarning, match="most clicks are on documents .* may hold Lucene's own ids"),
        pytest.warns(HarvestWarning, match="2 of 3 clicks match nothing"),
        pytest.warns(HarvestWarning, match="it holds what was returned"),
    ):
        read_ubi(pa.Table.from_pylist(queries), pa.Table.from_pylist(clicks))


def test_impressions_without_objects_give_way_to_what_was_returned(tmp_path: Path) -> None:
    """And a query that comes again with another answer is told."""
    answers = [QUERIES[0] | {"query_response_hit_ids": hits} for hits in (["a", "b"], ["b", "a"])]
    answers[1] = answers[1] | {"timestamp": "2026-01-01T10:05:00Z"}
    lines = [*answers, {"user_query": "no id"}, event("1", "impression", None, 1), event("1", "click", "b", 2)]
    with (
        pytest.warns(HarvestWarning, match="it holds what was returned"),
        pytest.warns(HarvestWarning, match="1 query_id with several answers: the first counts"),
        pytest.warns(HarvestWarning, match="1 event without a name: left out"),
    ):
        log = read_ubi(None, write_jsonl(tmp_path / "e.jsonl", lines))
    assert rows(log) == [("1", "a", 1, 0), ("1", "b", 2, 1)]


SAMPLE = SHARED_DATA / "ubi_sample.ndjson.gz"


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample of OpenSearch is not here")
@pytest.mark.filterwarnings("ignore::clickharvest.errors.HarvestWarning")
def test_the_sample_of_opensearch() -> None:
    log = read_export(SAMPLE, "ubi", context=("application",))
    assert log.facts is not None
    assert (log.facts.rows, log.facts.clicks, log.facts.pages) == (1952, 184, 256)


def test_the_position_of_the_impression_counts() -> None:
    events = as_table([event("1", "click", "a", 9), event("1", "impression", "a", 2)])
    assert rows(read_ubi(as_table(QUERIES), events)) == [("1", "a", 2, 1)]


def test_results_of_unknown_queries_are_left_out_and_told() -> None:
    told = "2 of 4 items of lists are left out: 2 without a query or name of a list"
    with pytest.warns(HarvestWarning, match=told), pytest.warns(HarvestWarning, match="1 of 2 clicks match nothing"):
        log = read_ubi(as_table(QUERIES[:1]), as_table(EVENTS))
    assert rows(log) == EXPECTED[:2]


@pytest.mark.parametrize(
    ("queries", "events", "options", "message"),
    [
        (QUERIES, EVENTS[2:4], {}, "no impressions among the events: expected the actions impression or view"),
        (QUERIES, EVENTS[:2], {}, "no click among 4 events of UBI: expected click, found a query"),
        (
            QUERIES,
            [event("1", "view", "a", -1), event("1", "click", "a", 0)],
            {},
            "of 1 item of lists, 1 without a usable",
        ),
        (QUERIES, EVENTS, {"context": ["device"]}, "missing context column 'device': found .*user_query"),
        (QUERIES, EVENTS, {"ranker": "arm"}, "missing column 'arm': found .*query_attributes.experiment"),
        (
            [{"query_id": "3", "user_query": "x"}],
            EVENTS,
            {},
            "4 without a query or name of a list; export queries and events of",
        ),
        ([{"query_id": "1"}], EVENTS, {}, "the UBI queries lack user_query: found query_id"),
        (QUERIES, [{"query_id": "1", "action_name": "click"}], {}, f"the UBI events lack {OBJECT}, {ORDINAL}"),
    ],
)
def test_what_is_no_ubi_export(
    queries: list[dict[str, Any]], events: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_ubi(as_table(queries), as_table(events), **options)
