"""Exports that are not quite as documented: what can be read is, and what cannot is told, never dropped in silence."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from clickharvest import read_export
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.engines import DuckDBEngine

pytestmark = pytest.mark.usefixtures("one_duckdb")

Event = dict[str, Any]
AT = 1_767_225_600_000_000


@pytest.fixture(scope="module")
def engine() -> DuckDBEngine:
    return DuckDBEngine()


@pytest.fixture
def read(tmp_path: Path, engine: DuckDBEngine) -> Any:
    """Return a function that reads events and returns (query, document, position, click) and what was told."""

    def of(format: str, events: list[Event], **options: Any) -> tuple[list[tuple[Any, ...]], list[str]]:
        path = tmp_path / "events.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", HarvestWarning)
            log = read_export(path, format, engine=engine, **options)
        found = log.engine.fetch(log.table.select("query", "doc", "position", "clicks"), task="").to_pylist()
        notes = [str(one.message).partition(": ")[2] for one in told if issubclass(one.category, HarvestWarning)]
        return sorted(tuple(row.values()) for row in found), notes

    return of


def ga4(name: str | None, after: int, *items: Event) -> Event:
    return {"event_name": name, "event_timestamp": AT + after, "user_pseudo_id": "u", "items": list(items)}


def segment(name: str, minute: int | str, **properties: Any) -> Event:
    time = f"2026-03-01T10:{minute:02}:00Z" if isinstance(minute, int) else minute
    return {"event": name, "messageId": f"{name} {minute}", "anonymousId": "u", "timestamp": time,
            "properties": properties}  # fmt: skip


BOOTS = [{"item_id": doc, "item_list_index": i, "item_list_name": "Boots", "item_list_id": "L1"}
         for i, doc in enumerate("ab", 1)]  # fmt: skip
PRODUCTS = [{"product_id": doc, "position": i} for i, doc in enumerate("ab", 1)]
SEEN = [("Boots", "a", 1, 0), ("Boots", "b", 2, 1)]


def test_a_click_may_know_its_list_by_the_id_alone(read: Any) -> None:
    click = ga4("select_item", 10, {"item_id": "b", "item_list_id": "L1"})
    assert read("ga4", [ga4("view_item_list", 0, *BOOTS), click]) == (SEEN, [])


def test_a_click_on_another_list_is_on_none_of_these(read: Any) -> None:
    stray = ga4("select_item", 10, {"item_id": "a", "item_list_id": "elsewhere"})
    found, notes = read("ga4", [ga4("view_item_list", 0, *BOOTS), ga4("select_item", 10, BOOTS[1]), stray])
    assert found == SEEN
    assert notes == ["1 of 2 clicks match nothing of what was shown and are left out: 1 too late, or on another list"]


def test_events_without_a_name_and_clicks_without_items_are_told(read: Any) -> None:
    events = [ga4("view_item_list", 0, *BOOTS), ga4("select_item", 9, BOOTS[1]), ga4("select_item", 9), ga4(None, 9)]
    assert read("ga4", events) == (SEEN, ["1 event without a name: left out", "1 click without items: left out"])


def test_objects_as_text_and_names_in_capitals(read: Any) -> None:
    events = [segment("Product List Viewed", 0, list_id="Boots", products=PRODUCTS),
              segment("Product Clicked", 1, product_id="b"), segment("Product Clicked", 2, product_id="b")]  # fmt: skip
    written = [event | {"properties": json.dumps(event["properties"])} for event in events]
    assert read("segment", [*written, {"event": "Odd", "properties": "no JSON"}]) == (SEEN, [])
    shown = {"event": "product_list_viewed", "id": "m", "anonymous_id": "u", "timestamp": "2026-03-01 10:00:00",
             "list_id": "Boots", "products": json.dumps(PRODUCTS)}  # fmt: skip
    click = shown | {"event": "product_clicked", "id": "k", "products": None, "product_id": "b"}
    in_capitals = [{name.upper(): value for name, value in event.items()} for event in (shown, click)]
    assert read("segment", in_capitals) == (SEEN, [])


def test_times_that_cannot_be_read_are_told(read: Any) -> None:
    events = [segment("Product List Viewed", 0, list_id="Boots", products=PRODUCTS),
              segment("Product List Viewed", "soon", list_id="Boots", products=PRODUCTS[:1]),
              segment("Product Clicked", 1, product_id="b")]  # fmt: skip
    found, notes = read("segment", events)
    assert found == [("Boots", "a", 1, 0), *SEEN]
    assert notes == ["1 of 3 results without a readable time, so that no time is used but to match clicks"]


def test_elastic_counts_on_from_the_pages_before(read: Any) -> None:
    hits = [{"document": {"id": doc}} for doc in "cd"]
    search = {"@timestamp": "2026-03-01T10:00:00Z", "event": {"action": "search"}, "session": {"id": "s"},
              "search": {"query": "boots", "page": {"current": 2, "size": 2}, "results": {"items": hits}}}  # fmt: skip
    click = search | {"@timestamp": "2026-03-01T10:00:09Z", "event": {"action": "search_click"},
                      "search": {"query": "boots"}, "document": {"id": "d"}}  # fmt: skip
    assert read("elastic", [search, click]) == ([("boots", "c", 3, 0), ("boots", "d", 4, 1)], [])


def test_adobe_events_without_their_unit_are_told(read: Any) -> None:
    unit = {"searchUnitId": "u", "searchRequestId": "r", "products": [{"sku": "a", "rank": 1}, {"sku": "b", "rank": 2}]}
    about = {"searchUnitId": "u", "searchResultsContext": {"units": [unit]},
             "searchInputContext": {"units": [{"searchRequestId": "r", "phrase": "Boots"}]}}  # fmt: skip
    click = {"event": "search-product-click", "eventInfo": about | {"sku": "b"}}
    lost = [{"event": "search-results-view", "eventInfo": {}},
            {"event": "search-product-click", "eventInfo": about | {"searchUnitId": "other"}}]  # fmt: skip
    found, notes = read("adobe", [{"event": "search-results-view", "eventInfo": about}, click, *lost])
    assert found == SEEN
    assert notes == ["2 events without the unit of search results that it is about: left out"]


def test_positions_of_clicks_that_contradict_the_results_are_told(read: Any, tmp_path: Path) -> None:
    answer = {"queryID": "q", "query": "Boots", "hits": [{"objectID": "a"}, {"objectID": "b"}, {"objectID": "c"}]}
    (tmp_path / "results.jsonl").write_text(json.dumps(answer))
    click = {"eventType": "click", "queryID": "q", "objectIDs": ["b", "c"], "positions": [2, 1]}
    found, notes = read("algolia", [click], results=str(tmp_path / "results.jsonl"))
    assert found == [*SEEN, ("Boots", "c", 3, 1)]
    assert "1 of 2 clicks were at another position than the list says: that of the list counts" in notes


@pytest.mark.parametrize("clicked", ["b", [{"id": "b"}], {"id": "b"}, ["b"], 2])
def test_clicked_alone_or_as_objects(clicked: Any, read: Any) -> None:
    found, _ = read("pages", [{"query": "Boots", "docs": [{"id": "a"}, {"id": "b"}], "clicked": clicked}])
    assert found == SEEN


def test_pages_whose_flags_do_not_fit_are_told(read: Any) -> None:
    page = {"query": "Boots", "docs": ["a", "b"], "clicked": [0, 1]}
    found, notes = read("pages", [page, page, page | {"clicked": [1]}])
    assert found == sorted(SEEN * 2)
    assert notes == ["1 page with more or fewer flags in clicked than documents: left out"]


def test_bad_lines_of_the_second_file_are_told(read: Any, tmp_path: Path) -> None:
    (tmp_path / "clicks.jsonl").write_text('{"page": "1", "doc": "b"}\n{"page": "1"')
    page = {"query": "Boots", "docs": ["a", "b"], "page": "1"}
    found, notes = read("pages", [page], clicks_from=str(tmp_path / "clicks.jsonl"))
    assert found == SEEN
    assert notes == ["1 line of the export is no JSON object and is left out"]


def test_lists_that_are_none(tmp_path: Path, engine: DuckDBEngine) -> None:
    (tmp_path / "x.csv").write_text('query,docs,clicked\nboots,"a,b",b\n')
    with pytest.raises(InputError, match="column 'docs' holds no lists: expected the documents of a page as a list"):
        read_export(tmp_path / "x.csv", "pages", engine=engine)


def test_a_log_of_rows_needs_no_format(tmp_path: Path, engine: DuckDBEngine) -> None:
    (tmp_path / "x.csv").write_text("query,doc,position,click\nboots,a,1,0\nboots,b,2,1\n")
    with pytest.raises(InputError, match="it looks like a log of rows: leave --format out"):
        read_export(tmp_path / "x.csv", "ga4", engine=engine)
