"""The page of benchmarks shows parts of the tables that benchmarks wrote."""

from __future__ import annotations

import sys

import pytest

from places import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from tables import README, TABLES, excerpt, page

TABLE = """# speed

| what | seconds | seconds |
|---|--:|--:|
| ours, 1M | 1 | 2 |
| theirs, 1M | 3 | 4 |

- PASS: ours
- FAIL: theirs
"""


def test_the_page_is_what_the_tables_say() -> None:
    text = README.read_text(encoding="utf-8")
    assert page(text) == text
    assert len(text.encode()) <= 40_000


def test_every_table_is_shown() -> None:
    text = README.read_text(encoding="utf-8")
    assert [file.stem for file in sorted(TABLES.glob("*.md")) if f"(tables/{file.name})" not in text] == []


def test_an_excerpt_has_the_rows_and_columns_that_were_named() -> None:
    assert excerpt(TABLE, ["^ours"], ["what", "seconds#2"]) == [
        "| what | seconds |",
        "| --- | --: |",
        "| ours, 1M | 2 |",
        "",
        "1 of 2 bars hold.",
    ]


def test_a_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no columns"):
        excerpt(TABLE, [""], ["minutes"])
