"""Readers: how DuckDB and Spark read each file format without rounding values to a guessed type.

- Parquet, CSV, TSV and JSONL by either engine; DuckDB files by DuckDB alone.
- A view in a DuckDB file is a query, and a query may read any file that this process can. So tables are attached and
  read in place, whereas a view runs in an instance of its own that can open nothing but its file.
- Parquet files that are read together may differ in the types of their columns. Engines take the types of one file, and
  some round the others' numbers to them, so the type that holds all values is found first.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet as pq

from clickharvest.errors import InputError
from clickharvest.logs.click_log import OURS
from clickharvest.logs.engines import DuckDBEngine, Engine, sql_literal, sql_name
from clickharvest.logs.ibis_inside import sql_types
from clickharvest.words import first_line

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir

RECORD = f"{OURS}record"
"""The column of unparsed records."""
LONGEST = 2**26
"""Bytes of a record: pages of results can be long."""
CSV = {"header": True, "skip": 0, "quote": '"', "escape": '"', "comment": ""}
"""Settings that DuckDB must not guess: it may skip the header line or take the # of a query for a comment."""
JSONL = {"sample_size": -1, "map_inference_threshold": -1, "field_appearance_threshold": 0}
"""Settings that make DuckDB read every record, so rare attributes become columns, too."""
LOOKED_AT = 32
"""Files of JSONL up to which DuckDB reads every record to guess types."""
WHOLE = ("int8", "int16", "int32", "int64")
NUMBERS = (*WHOLE, "double")
WIDENINGS = (
    NUMBERS,
    ("uint8", "uint16", "uint32", "uint64"),
    ("float", "double"),
    ("timestamp[ms]", "timestamp[us]", "timestamp[ns]"),
    ("timestamp[ms] with zone", "timestamp[us] with zone", "timestamp[ns] with zone"),
)
"""Chains of types: a later one holds the values of those before it; double holds int64 up to `EXACT`."""
NOT_ON_SPARK = ("int64", "double"), ("null", "string")
"""Pairs of types of which Spark cannot read the first as the second."""
EXACT = 2**53
"""Whole numbers up to this one are exact as doubles."""


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
        options: settings by which DuckDB does not make columns of the names of folders.
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
        # Rows of unequal length make DuckDB see one wide column; with the delimiter, it names the first such row.
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
    """DuckDB's function `error`, which fails at a row."""


def _whole_number(text: ir.Value) -> ir.Value:
    """Return texts as whole numbers, and fail at others: DuckDB would round 1.5 to 2."""
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
    """Whether values of a type in JSON are read as they are written, unlike other numbers or dates."""
    return bool(kind.is_integer() or kind.is_boolean() or kind.is_nested())


def names_written(
    columns: Sequence[str], location: str | list[str], kind: str, files: Sequence[Path], engine: Engine
) -> list[str]:
    """Return the columns as the file writes them: where two have one name, DuckDB calls the second `click_1`."""
    lower = {column.lower() for column in columns}
    if not any((alike := re.fullmatch(r"(.+)_\d+", name)) and alike[1] in lower for name in lower):
        return list(columns)
    if kind == "parquet":
        return list(pq.read_schema(files[0]).names)
    con = engine.backend
    if kind == "jsonl":
        text = con.con.execute("SELECT DISTINCT unnest(json_keys(json)) FROM read_json_objects(?)", [location])
        return [name for (name,) in text.fetchall()]
    options: dict[str, Any] = CSV | {"header": False, "all_varchar": True} | ({"delim": "\t"} if kind == "tsv" else {})
    header = con.read_csv(location, **options).limit(1)
    return [str(name) for name in con.con.sql(str(con.compile(header))).fetchall()[0]]


def read_records(location: str | list[str], engine: Engine) -> ir.Table:
    """Return the records of JSONL, or of one JSON array, unparsed."""
    files = ", ".join(map(sql_literal, [location] if isinstance(location, str) else location))
    rows = f"SELECT json AS {RECORD} FROM read_json_objects([{files}], maximum_object_size={LONGEST}, "
    lines, array = f"{rows}format='newline_delimited', ignore_errors=true)", f"{rows}format='array')"
    run = engine.backend.con.execute
    # An array is one long line, or lines of which the first is a bracket, which is no JSON.
    first = run(f"SELECT json_type({RECORD}) FROM ({lines}) LIMIT 1").fetchone()
    if first in [(None,), ("ARRAY",)]:
        with suppress(duckdb.Error):
            run(f"SELECT count({RECORD}) FROM ({array})").fetchall()
            lines = array
    name = f"clickharvest_{uuid.uuid4().hex}"
    run(f"CREATE TEMP VIEW {name} AS {lines}")
    return engine.backend.table(name)


def open_duckdb_file(path: str, engine: DuckDBEngine, table: str | None) -> ir.Table:
    """Return a table or view of a DuckDB file.

    Args:
        path: the file.
        engine: where its rows are read.
        table: its name, with its schema or without; needed where the file holds more than one.

    Raises:
        InputError: the file cannot be opened or holds no such table, or the view reads other files.
    """
    con = engine.backend.con
    catalog = f"log_{uuid.uuid4().hex}"
    try:
        con.execute(f"ATTACH {sql_literal(path)} AS {catalog} (TYPE duckdb, READ_ONLY)")
    except Exception as error:
        raise InputError(f"{path} cannot be opened as a DuckDB file: {first_line(error)}") from error
    query = "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_catalog = ?"
    tables = con.execute(f"{query} ORDER BY ALL", [catalog]).fetchall()
    wanted = [row for row in tables if table is None or table in (row[1], ".".join(row[:2]))]
    if len(wanted) == 1:
        schema, name, kind = wanted[0]
        if kind != "VIEW":
            return engine.backend.table(name, database=(catalog, schema))
        con.execute(f"DETACH {catalog}")
        return _copy_view(path, schema, name, engine)
    if not tables:
        raise InputError(f"{path} holds no table: expected one with the log's rows")
    names = ", ".join(name if schema == "main" else f"{schema}.{name}" for schema, name, _ in tables)
    problem = f"{len(wanted)} tables" if wanted else f"no table {table!r}"
    raise InputError(f"{path} holds {problem}: found {names}; name one with --table")


def _copy_view(path: str, schema: str, name: str, engine: DuckDBEngine) -> ir.Table:
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "memory_limit": str(engine.setting("memory_limit")),
        "temp_directory": f"{engine.setting('temp_directory')}/view",
        "lock_configuration": "true",
    }
    copy = f"clickharvest_{uuid.uuid4().hex}"
    try:
        with duckdb.connect(path, read_only=True, config=config) as apart:
            rows = apart.sql(f"SELECT * FROM {sql_name(schema)}.{sql_name(name)}").to_arrow_reader(100_000)
            con = engine.backend.con
            con.register(f"{copy}_rows", rows)
            with engine.running("Reading the view"):
                con.execute(f"CREATE TEMP TABLE {copy} AS FROM {copy}_rows")
            con.unregister(f"{copy}_rows")
    except duckdb.Error as error:
        raise InputError(
            f"{path}, view {name!r} cannot be read: {first_line(error)} A view may read the tables of its own file "
            "alone; store its rows as a table."
        ) from error
    return engine.backend.table(copy)


def find_common_types(files: Sequence[Path], *, spark: bool = False) -> dict[str, str]:
    """Return the columns that differ in type between Parquet files, and for each the type that holds all values.

    Args:
        files: the files, whose footers are read.
        spark: whether Spark will read them.

    Raises:
        InputError: no type holds the values of two files, or a file is no Parquet.
    """
    common: dict[str, str] = {}
    for column, files_of in _types_of_columns(files).items():
        if len(files_of) == 1:
            continue
        names = [name for name in files_of if name != "null"]
        clash = next((pair for pair in combinations(names, 2) if not _chains(pair)), None)
        if {"int64", "double"} <= set(names) and not all(_is_exact_in(file, column) for file in files_of["int64"]):
            clash = ("int64", "double")
        if spark:
            clash = next((pair for pair in NOT_ON_SPARK if set(pair) <= set(files_of)), clash)
        if clash:
            types = " and ".join(f"{name} in {files_of[name][0]}" for name in clash)
            raise InputError(f"the column {column!r} is {types}: write it with one type in all files")
        common[column] = max(names, key=_chains(names)[0].index) if names[1:] else names[0]
    return common


def _chains(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [chain for chain in WIDENINGS if set(names) <= set(chain)]


def _types_of_columns(files: Sequence[Path]) -> dict[str, dict[str, list[Path]]]:
    """Return the files by type by column; fields inside records and lists count as columns: `items.element.id`."""
    by_column: dict[str, dict[str, list[Path]]] = {}
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"the file {file} cannot be read as Parquet: {first_line(error)}") from error
        for field in schema:
            for column, name in _leaves(field.name.lower(), field.type):
                by_column.setdefault(column, {}).setdefault(name, []).append(file)
    return by_column


def _leaves(name: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    if pa.types.is_nested(kind):
        for field in (kind.field(i) for i in range(kind.num_fields)):
            yield from _leaves(f"{name}.{field.name}", field.type)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(name, kind.value_type)
    elif pa.types.is_timestamp(kind):
        yield name, f"timestamp[{kind.unit}]" + " with zone" * (kind.tz is not None)
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        yield name, "string"
    else:
        yield name, str(kind)


def _is_exact_in(file: Path, column: str) -> bool:
    """Whether all whole numbers of a column are exact as doubles, by the statistics in the file."""
    metadata = pq.read_metadata(file)
    places = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path.lower() == column]
    parts = [metadata.row_group(group).column(i).statistics for group in range(metadata.num_row_groups) for i in places]
    return bool(places) and all(
        part is not None and (not part.num_values or (part.has_min_max and -EXACT <= part.min <= part.max <= EXACT))
        for part in parts
    )


def read_with_spark(
    location: str | list[str], kind: str, engine: Engine, text: set[str], options: dict[str, Any], files: Sequence[Path]
) -> ir.Table:
    """Return files as a table of Spark; arguments are those of `read_with_duckdb`."""
    from pyspark.sql import types as kinds
    from pyspark.sql.functions import regexp_replace
    from pyspark.sql.pandas.types import from_arrow_type

    options = dict(options)
    if kind != "parquet":
        options |= {"header": True, "sep": "\t" if kind == "tsv" else ",", "escape": '"', "inferSchema": True}
    if isinstance(location, list):
        folders = [Path(*takewhile(lambda part: "=" not in part, file.parent.parts)).absolute() for file in files]
        options |= {"basePath": os.path.commonpath(folders)}
    session = engine.session  # type: ignore[attr-defined]
    reader = session.read.format({"jsonl": "json", "tsv": "csv"}.get(kind, kind)).options(**options)
    frame = reader.load(location)
    types = {field.name: field.dataType for field in frame.schema}
    if kind == "parquet":
        common = find_common_types(files, spark=True) if len(files) > 1 else {}
        others = {name: from_arrow_type(pa.type_for_alias(kind)) for name, kind in common.items() if kind in NUMBERS}
    else:
        exact = (kinds.IntegralType, kinds.BooleanType) if kind == "jsonl" else ()
        others = {
            name.lower(): kinds.StringType()
            for name, of in types.items()
            if name.lower() in text and isinstance(of, kinds.AtomicType) and not isinstance(of, exact)
        }
    if others:
        fields = [kinds.StructField(name, others.get(name.lower(), of)) for name, of in types.items()]
        frame = reader.schema(kinds.StructType(fields)).load(location)
    if kind == "jsonl":  # in JSON 1 and 1.0 are one number
        for name, of in types.items():
            if name.lower() in others and isinstance(of, kinds.FractionalType):
                frame = frame.withColumn(name, regexp_replace(name, r"\.0+$", ""))
    name = f"clickharvest_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    return engine.backend.table(name)
