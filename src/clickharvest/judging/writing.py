"""Files of judgments for tools that evaluate search.

| format | what it is |
|---|---|
| `table` | every column, as CSV, in which no text is a formula, or as Parquet where the file ends in .parquet |
| `quepid` | CSV of `query,docid,rating`, Quepid's ratings |
| `qrels` | lines `query 0 doc grade`, TREC's judgments; blanks, which it has no place for, become `_` |
| `opensearch` | JSON for `PUT _plugins/_search_relevance/judgments` of OpenSearch's Search Relevance Workbench |

Texts in CSV are quoted. Those for tools, which match texts, are as in the log: do not open them in a spreadsheet, which
may read a query as a formula. Ratings are grades; with `rating="relevance"` they are click rates at the anchor, which
qrels cannot hold. Only the table has documents without a grade.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TextIO

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.judging.judgments import Judgments
from clickharvest.words import not_a_formula

Format = Literal["table", "quepid", "qrels", "opensearch"]
Rating = Literal["grade", "relevance"]

FORMATS: tuple[Format, ...] = ("table", "quepid", "qrels", "opensearch")
ENDINGS: dict[str, Format] = {".csv": "table", ".parquet": "table", ".pq": "table", ".qrels": "qrels",
                              ".txt": "qrels", ".json": "opensearch"}  # fmt: skip
"""The format of a file whose name alone is given."""
PARQUET = (".parquet", ".pq")
BLANKS = re.compile(r"\s+")


def write_judgments(
    judgments: Judgments,
    path: str | Path,
    *,
    format: Format | None = None,
    rating: Rating = "grade",
    name: str = "clickharvest",
) -> Format:
    """Write judgments to a file, whole or not at all, and return the format.

    Args:
        judgments: the judgments.
        path: the file.
        format: one of `FORMATS`; by default that of the file's ending: a table, qrels for .qrels and .txt, the
            Search Relevance Workbench's JSON for .json.
        rating: what a tool takes for its rating, grades or relevance.
        name: name of the judgments in OpenSearch.

    Raises:
        InputError: the format is unknown, or cannot hold what it should.
    """
    path = Path(path)
    chosen = check_format(path, format, rating)
    with atomic_path(path) as partial:
        if path.suffix.lower() in PARQUET:
            _write_parquet(judgments, partial)
        else:
            with partial.open("w", encoding="utf-8", newline="") as file:
                _write_text(judgments, file, chosen, rating, name)
    return chosen


def check_format(path: Path, format: Format | None = None, rating: Rating = "grade") -> Format:
    """Return the format that a file of judgments gets, as `write_judgments` chooses it.

    Raises:
        InputError: the format is unknown, or cannot hold what it should.

    Example:
        >>> check_format(Path("judged.qrels"))
        'qrels'
    """
    chosen = format or ENDINGS.get(path.suffix.lower())
    if chosen not in FORMATS:
        known = ", ".join(FORMATS)
        raise InputError(f"no format for judgments in {path}: end it in {', '.join(ENDINGS)}, or name one of {known}")
    if rating not in ("grade", "relevance"):
        raise InputError(f"no rating {rating!r}: expected grade or relevance")
    if chosen == "qrels" and rating == "relevance":
        raise InputError("qrels hold whole numbers: write grades, or another format")
    if path.suffix.lower() in PARQUET and chosen != "table":
        raise InputError(
            f"{chosen} is text: {path} should not end in {path.suffix}, but such as in .csv, .txt or .json"
        )
    return chosen


def _write_parquet(judgments: Judgments, path: Path) -> None:
    import pyarrow.parquet as pq

    about = json.dumps({"what": "judgments", **judgments.to_dict()})
    pq.write_table(judgments.table.replace_schema_metadata({"clickharvest": about}), path, compression="zstd")


def _write_text(judgments: Judgments, file: TextIO, format: Format, rating: Rating, name: str) -> None:
    lines = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    if format == "table":
        lines.writerow(judgments.table.column_names)
        lines.writerows([_cell(value) for value in row.values()] for row in _rows(judgments))
    elif format == "quepid":
        lines.writerow(("query", "docid", "rating"))
        lines.writerows((row["query"], row["doc"], row[rating]) for row in _graded(judgments))
    elif format == "qrels":
        file.writelines(f"{_word(row['query'])} 0 {_word(row['doc'])} {row['grade']}\n" for row in _graded(judgments))
    else:
        _write_opensearch(judgments, file, rating, name)


def _write_opensearch(judgments: Judgments, file: TextIO, rating: Rating, name: str) -> None:
    """Write query by query: a corpus of judgments is not held twice."""
    about = str(judgments).replace("\n", " ")
    head = json.dumps({"name": name, "description": about, "type": "IMPORT_JUDGMENT"}, ensure_ascii=False)
    file.write(head[:-1] + ', "judgmentRatings": [')
    for i, (query, rows) in enumerate(groupby(_graded(judgments), key=lambda row: row["query"])):
        ratings = [{"docId": str(row["doc"]), "rating": f"{row[rating]:.3f}"} for row in rows]
        file.write(
            ("," if i else "") + "\n" + json.dumps({"query": str(query), "ratings": ratings}, ensure_ascii=False)
        )
    file.write("\n]}\n")


def _rows(judgments: Judgments) -> Iterator[dict[str, Any]]:
    for batch in judgments.table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _graded(judgments: Judgments) -> Iterator[dict[str, Any]]:
    return (row for row in _rows(judgments) if row["grade"] is not None)


def _cell(value: Any) -> Any:
    return not_a_formula(value) if isinstance(value, str) else value


def _word(value: Any) -> str:
    return BLANKS.sub("_", str(value).strip()) or "_"
