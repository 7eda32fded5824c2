"""What was shown and what was clicked, in two files: joined by page, or by user and time."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clickharvest import read_two_files
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine

pytestmark = pytest.mark.usefixtures("one_duckdb")

START = datetime(2026, 3, 1, 10)


@pytest.fixture(scope="module")
def engine() -> DuckDBEngine:
    return DuckDBEngine()


def clicked(log: ClickLog) -> list[tuple[Any, ...]]:
    """Return the query, document and position of all clicks."""
    t = log.table.filter(log.table.clicks == 1)
    fetched = log.engine.fetch(t.select("query", "doc", "position"), task="").to_pylist()
    return sorted(tuple(row.values()) for row in fetched)


def lists(*shown: tuple[str, str, float, str]) -> pa.Table:
    """Return lists of documents (user, query, minute, documents) as what was shown."""
    found = [
        {"user": user, "query": query, "time": START + timedelta(minutes=minute), "doc": doc, "position": place}
        for user, query, minute, docs in shown
        for place, doc in enumerate(docs, 1)
    ]
    return pa.Table.from_pylist(found)


def clicks(*done: tuple[str, float | None, str | None]) -> pa.Table:
    """Return clicks of a user, at a minute, on a document."""
    found = [
        {"user": user, "time": None if minute is None else START + timedelta(minutes=minute), "doc": doc}
        for user, minute, doc in done
    ]
    return pa.Table.from_pylist(found, pa.schema({"user": pa.string(), "time": pa.timestamp("us"), "doc": pa.string()}))


def test_by_page_and_document(engine: DuckDBEngine) -> None:
    shown = pa.table({"page": [7, 7, 8], "q": ["x", "x", "y"], "sku": ["007", "b", "007"], "position": [1, 2, 1]})
    done = pa.table({"page": ["7", "7", "8", "9", "8"], "sku": ["b", "b", "007", "b", "z"]})
    told = r"2 of 4 clicks match nothing .*: 1 on a page that is not there, 1 on a document that its page did not show"
    with pytest.warns(HarvestWarning, match=told):
        log = read_two_files(shown, done, query="q", doc="sku", engine=engine)
    assert clicked(log) == [("x", "b", 2), ("y", "007", 1)]
    assert log.facts is not None
    assert log.facts.rows == 3


def test_the_latest_list_of_the_user_that_had_the_document(engine: DuckDBEngine) -> None:
    shown = lists(("u", "first", 0, "ab"), ("u", "second", 5, "bc"), ("v", "other", 6, "ab"), ("u", "late", 9, "a"))
    done = clicks(("u", 7, "b"), ("u", 7, "a"), ("v", 6, "a"))
    log = read_two_files(shown, done, engine=engine)
    assert clicked(log) == [("first", "a", 1), ("other", "a", 1), ("second", "b", 1)]


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (("u", 31, "a"), "1 too late, or on another list"),
        (("u", -1, "a"), "1 before it was shown"),
        (("w", 1, "a"), "1 on a document that its user was not shown"),
        (("u", 1, "z"), "1 on a document that its user was not shown"),
        (("u", None, "a"), "1 without a page, and without user or time"),
        (("u", 1, None), "1 without a document"),
    ],
)
def test_what_fits_nothing_is_told(done: tuple[str, float | None, str | None], told: str, engine: DuckDBEngine) -> None:
    with pytest.warns(HarvestWarning, match=f"1 of 2 clicks match nothing of what was shown and are left out: {told}"):
        log = read_two_files(lists(("u", "q", 0, "ab")), clicks(("u", 30, "b"), done), engine=engine)
    assert clicked(log) == [("q", "b", 2)]


def test_two_lists_at_one_time_share_no_click(engine: DuckDBEngine) -> None:
    """A tie goes to one of them, the same every time, and is told."""
    shown = lists(("u", "p", 0, "ab"), ("u", "q", 0, "ac")).append_column("page", pa.array(list("2211")))
    with pytest.warns(HarvestWarning, match="1 click fits several pages equally well"):
        log = read_two_files(shown, clicks(("u", 1, "a")), engine=engine)
    assert clicked(log) == [("q", "a", 1)]


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
def test_times_as_numbers_or_text(unit: int, engine: DuckDBEngine) -> None:
    since = 1_772_359_200
    shown = pa.table({"user": ["u"], "query": ["q"], "doc": ["a"], "position": [1], "time": [since * unit]})
    done = pa.table({"user": ["u", "u"], "doc": ["a", "a"], "time": ["2026-03-01 10:10:00", "2026-03-01T10:20:00"]})
    assert clicked(read_two_files(shown, done, engine=engine, within="20min")) == [("q", "a", 1)]
    with pytest.raises(InputError, match="no click is on what was shown: 2 too late"):
        read_two_files(shown, done, engine=engine, within="9min")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "table"])
def test_times_of_other_zones(kind: str, tmp_path: Path, engine: DuckDBEngine) -> None:
    """Ten past ten in London, twelve in Athens, and five in New York; a list that names no zone is of UTC."""
    shown = tmp_path / "shown.csv"
    shown.write_text("user,query,doc,position,time\nu,q,a,1,2026-03-01 10:00:00\n")
    for at in ("2026-03-01T12:10:00+02:00", "2026-03-01 05:10:00.5-05", "2026-03-01T10:10:00Z"):
        done: Any = tmp_path / f"clicks.{kind}"
        if kind == "table":
            done = pa.table({"user": ["u"], "doc": ["a"], "time": [at]})
        else:
            line = f"user,doc,time\nu,a,{at}" if kind == "csv" else f'{{"user": "u", "doc": "a", "time": "{at}"}}'
            done.write_text(line + "\n")
        assert clicked(read_two_files(shown, done, engine=engine, within="11min")) == [("q", "a", 1)]


@pytest.mark.parametrize("within", ["", "30", "min", "-1h", "0s", "2 weeks", "1e3s", "9999d"])
def test_windows_that_are_none(within: str, engine: DuckDBEngine) -> None:
    with pytest.raises(InputError, match="expected a length of time such as 30min"):
        read_two_files(lists(("u", "q", 0, "a")), clicks(("u", 0, "a")), within=within, engine=engine)


@pytest.mark.parametrize("named", ["clicked", ""])
def test_a_click_column_does_not_go_with_a_second_file(engine: DuckDBEngine, named: str) -> None:
    shown = pa.table({"page": [1], "query": ["q"], "doc": ["a"], "position": [1]})
    with pytest.raises(InputError, match="--click does not go with --clicks-from"):
        read_two_files(shown, pa.table({"page": [1], "doc": ["a"]}), click=named, engine=engine)
