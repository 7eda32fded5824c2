"""Rows that are whole pages are found out, and read as the rows of their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest import read_log
from clickharvest.errors import InputError
from command_line import Command

pytestmark = pytest.mark.usefixtures("one_duckdb")

DOCS, FLAGS = [["a", "b", "c"], ["b", "a"]], [[0, 1, 0], [1, 0]]
EXPECTED = [("q", "a", 1, 0), ("q", "b", 2, 1), ("q", "c", 3, 0), ("r", "a", 2, 0), ("r", "b", 1, 1)]


def joined(parts: list[Any], mark: str) -> str:
    return mark.join(map(str, parts))


def rows(source: Any, **options: Any) -> list[tuple[Any, ...]]:
    log = read_log(source, **options)
    found = log.table.select("query", "doc", "position", "clicks").order_by("query", "doc")
    return [tuple(row.values()) for row in log.engine.fetch(found, task="Reading").to_pylist()]


@pytest.mark.parametrize("name", ["docs", "documents", "items", "results"])
def test_lists_of_documents_and_clicks(name: str) -> None:
    assert rows(pa.table({"query": ["q", "r"], name: DOCS, "clicks": FLAGS})) == EXPECTED


def test_lists_of_clicked_documents_and_of_other_names() -> None:
    assert rows(pa.table({"query": ["q", "r"], "docs": DOCS, "clicked": [["b"], ["b"]]})) == EXPECTED
    assert rows(pa.table({"query": ["q", "r"], "shown": DOCS, "hits": FLAGS}), doc="shown", click="hits") == EXPECTED


@pytest.mark.parametrize("mark", ["|", ";", ",", " ", "json"])
def test_separated_text(mark: str, tmp_path: Path) -> None:
    docs, flags = ([json.dumps(one) if mark == "json" else joined(one, mark) for one in own] for own in (DOCS, FLAGS))
    if mark in ("json", ";"):
        assert rows(pa.table({"query": ["q", "r"], "results": docs, "clicked": flags})) == EXPECTED
        return
    lines = "\n".join("\t".join(line) for line in zip("qr", docs, flags, strict=True))
    (tmp_path / "pages.tsv").write_text(f"query\tresults\tclicked\n{lines}\n")
    assert rows(tmp_path / "pages.tsv") == EXPECTED


def test_a_log_of_rows_stays_one() -> None:
    """A column called items holds a number, or positions are there: rows are results."""
    plain = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [1, 0], "items": [["a"], ["b"]]}
    assert len(rows(pa.table(plain))) == 2
    with pytest.raises(InputError, match="missing column"):
        read_log(pa.table({"query": ["q"], "items": [3], "clicks": [1]}))


def test_what_goes_with_rows_alone_is_refused() -> None:
    with pytest.raises(InputError, match="block does not go with the format pages"):
        read_log(pa.table({"query": ["q", "r"], "docs": DOCS, "clicks": FLAGS}), block={"query": "q"})


def test_commands_say_what_was_read(run: Command, tmp_path: Path) -> None:
    shown, hits = [["a", "b"], ["b", "a"]] * 60, [[1, 0], [1, 1], [0, 1], [1, 0]] * 30
    pq.write_table(pa.table({"query": list("qqrrss") * 20, "docs": shown, "clicks": hits}), tmp_path / "p.parquet")
    code, out, _ = run("check p.parquet")
    assert code == 0
    assert "240 rows: click, query, doc, position" in " ".join(out.split())
    assert "rows were pages, with lists in docs and clicks" in " ".join(out.split())
