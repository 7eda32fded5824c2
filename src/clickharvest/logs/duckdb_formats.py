"""Parquet, CSV, TSV and JSONL as DuckDB reads them, with nothing rounded to a type that it has guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ibis

from clickharvest.errors import InputError
from clickharvest.logs.ibis_inside import sql_types
from clickharvest.logs.parquet_types import find_common_types

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir

    from clickharvest.logs.engines import Engine

CSV = {"header": True, "skip": 0, "quote": '"', "escape": '"', "comment": ""}
"""What DuckDB must not guess: its guesses may skip the header line or take a query's # for a comment."""
JSONL = {"sample_size": -1, "map_inference_threshold": -1, "field_appearance_threshold": 0}
"""Look at every record, so that attributes which few events have still become columns."""
LOOKED_AT = 32
"""Files of JSONL of which DuckDB looks at every record to guess types."""


def partition_keys(files: Sequence[Path]) -> set[str]:
    """Return the names that folders such as `day=7` give to columns, in lower case."""
    return {part.partition("=")[0].lower() for file in files for part in file.parts[:-1] if "=" in part}


def read_with_duckdb(
    location: str | list[str], kind: str, engine: Engine, text: set[str], options: dict[str, Any], files: Sequence[Path]
) -> ir.Table:
    """Return files as a table.

    Args:
        location: a path, a glob, or several paths.
        kind: their format: parquet, csv, tsv or jsonl.
        engine: where to read them.
        text: names in lower case of columns that are kept as they are written.
        options: what tells DuckDB that names of folders are no columns, if they are none.
        files: the files themselves.
    """
    if kind == "parquet":
        differ = len(files) > 1 and find_common_types(files)
        return engine.backend.read_parquet(location, **options | ({"union_by_name": True} if differ else {}))
    folders = set() if options else partition_keys([file.absolute() for file in files])  # DuckDB looks at all of them
    if kind == "jsonl":
        return _read_jsonl(location, engine, text, options, folders, sure=len(files) <= LOOKED_AT)
    return _read_csv(location, engine, text, ({"delim": "\t"} if kind == "tsv" else {}) | options, folders)


def _read_csv(
    location: str | list[str], engine: Engine, text: set[str], options: dict[str, Any], folders: set[str]
) -> ir.Table:
    con = engine.backend
    options = CSV | options
    guessed = con.read_csv(location, **options)
    columns = guessed.columns
    if columns == ("column0",):
        raise InputError("has no header line: expected column names, then one row a line")
    if len(columns) == 1 and (delimiters := [mark for mark in ",;\t|" if mark in columns[0]]):
        # Rows of unequal length make DuckDB see one wide column; told the delimiter, it names the first such row.
        names = columns[0].split(delimiters[0])
        options |= {"delim": delimiters[0], "columns": dict.fromkeys(names, "VARCHAR")}
        return con.read_csv(location, **options)
    types = {name: kind for name, kind in guessed.schema().items() if name.lower() not in folders}
    whole = [name for name in types if types[name].is_integer() and name.lower() not in text]
    as_text = [*whole, *(name for name in types if name.lower() in text)]
    opened = con.read_csv(location, types=sql_types(con, types) | dict.fromkeys(as_text, "VARCHAR"), **options)
    return opened.mutate(**{name: _whole_number(opened[name]) for name in whole}) if whole else opened


@ibis.udf.scalar.builtin(name="error")  # type: ignore[untyped-decorator]
def fail(message: str) -> int:  # type: ignore[empty-body]
    """DuckDB's way to fail at a row."""


def _whole_number(text: ir.Value) -> ir.Value:
    """Return texts as whole numbers, which the first of them are; DuckDB would round a later 1.5 to 2."""
    number = text.try_cast("int64")
    refused = fail(
        ibis.literal(f"column {text.get_name()!r}: '")
        + text
        + "' is not a whole number, as the values of the first rows are; write all of them in one way, such as 1.0 "
        "for 1, or save the log as Parquet"
    )
    fraction = text.contains(".") | text.contains("e") | text.contains("E")
    return ibis.cases(
        (number.isnull() & text.notnull(), refused),
        (fraction, (text.try_cast("float64") % 1 == 0).ifelse(number, refused)),
        else_=number,
    )


def _read_jsonl(
    location: str | list[str], engine: Engine, text: set[str], options: dict[str, Any], folders: set[str], *, sure: bool
) -> ir.Table:
    con = engine.backend
    opened = con.read_json(location, **JSONL, **options)
    if opened.columns == ("json",):
        raise InputError('holds no records: expected one JSON object a line, such as {"query": …, "doc": …}')
    types = {name: kind for name, kind in opened.schema().items() if name.lower() not in folders}
    whole = [] if sure else [name for name in types if types[name].is_integer()]
    as_text = [*whole, *(name for name in types if name.lower() in text and not _is_exact(types[name]))]
    read = con.read_json(location, columns=sql_types(con, types) | dict.fromkeys(as_text, "VARCHAR"), **options)
    changed = {name: _whole_number(read[name]) for name in whole}
    # In JSON 1 and 1.0 are one number.
    numbers = [name for name in as_text if name not in whole and types[name].is_floating()]
    changed |= {name: read[name].re_replace(r"\.0+$", "") for name in numbers}
    return read.mutate(**changed) if changed else read


def _is_exact(kind: dt.DataType) -> bool:
    """Whether JSON's values are as they are written: other numbers, or dates among words, are not."""
    return bool(kind.is_integer() or kind.is_boolean() or kind.is_nested())
