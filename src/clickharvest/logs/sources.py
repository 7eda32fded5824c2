"""Opening what a log may come from: files, folders, globs, DuckDB tables, DataFrames, Ibis tables."""

from __future__ import annotations

import glob
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import ibis.expr.types as ir
import pyarrow as pa

from clickharvest.errors import InputError
from clickharvest.logs.duckdb_files import open_duckdb_file
from clickharvest.logs.engines import DuckDBEngine, Engine, sql_literal
from clickharvest.logs.ibis_inside import sql_types
from clickharvest.logs.spark import SparkEngine
from clickharvest.words import first_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".db": "duckdb",
}
TEXT = ("csv", "tsv", "jsonl")
"""Formats that are parsed anew by every query."""
COMPRESSED = (".gz", ".zst")
CSV = {"header": True, "skip": 0, "quote": '"', "escape": '"', "comment": ""}
"""What DuckDB must not guess: its guesses may skip the header line or take a query's # for a comment."""
JSONL = {"sample_size": -1, "map_inference_threshold": -1, "field_appearance_threshold": 0}
"""Look at every record, so that attributes which few events have still become columns."""

OURS = "_clickharvest_"
"""What names of columns begin with that are added to a log inside the engine."""
RECORD = f"{OURS}record"
"""The column of records that are left as they are."""
LONGEST = 2**26
"""Bytes of a record: pages of results can be long."""

NO_PARTITIONS: dict[bool, dict[str, Any]] = {False: {"hive_partitioning": False}, True: {"recursiveFileLookup": True}}
"""What tells DuckDB, and Spark, that names of folders such as `position=7` are no columns."""


def open_source(
    source: Any,
    engine: Engine | None = None,
    *,
    table: str | None = None,
    text: Collection[str] = (),
    records: bool = False,
) -> tuple[ir.Table, Engine]:
    """Open a log's source.

    Args:
        source: a path (Parquet, CSV, TSV, JSONL, each plain or compressed; a folder; a glob; a DuckDB file), a
            pandas or Polars DataFrame, anything else that speaks Arrow, or an Ibis table.
        engine: where to read it; an embedded DuckDB by default, which downloads nothing. An Ibis table brings its
            own; Spark also reads the addresses that it is set up for, such as `hdfs://…`.
        table: the table of a DuckDB file that holds more than one.
        text: columns that CSV and TSV must keep as text, so that document `007` stays `007`.
        records: whether DuckDB leaves the records of a JSONL file as they are, in one column `RECORD`; lines that are
            no JSON become nulls.

    Returns:
        The source as an Ibis table, and the engine it lives in.
    """
    if isinstance(source, ir.Table):
        try:
            return source, engine or Engine(source.get_backend())
        except ibis.common.exceptions.IbisError:
            return source, engine or DuckDBEngine()
    engine = engine or DuckDBEngine()
    if isinstance(source, str | Path):
        return _open_path(str(source), engine, table, {name.lower() for name in text}, records), engine
    arrow = _to_arrow(source)
    check_names(arrow.column_names)
    return ibis.memtable(arrow), engine


def spell_columns(columns: Sequence[str], *, most: int = 12) -> str:
    """Return column names for a message: the first dozen, in one line.

    Example:
        >>> spell_columns([f"c{i}" for i in range(40)], most=3)
        'c0, c1, c2 and 37 more'
    """
    names = ", ".join(" ".join(name.split()) for name in columns[:most]) or "no column"
    return names if len(columns) <= most else f"{names} and {len(columns) - most} more"


def file_format(path: str) -> str | None:
    """Return the format that a file's name tells, or None.

    Example:
        >>> file_format("logs/2024-*.csv.gz"), file_format("clicks")
        ('csv', None)
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return FORMATS.get(suffixes[-1]) if suffixes else None


def data_files(path: str) -> list[Path]:
    """Return the files of this machine that a path names, a folder's in the order of their names; none elsewhere.

    Example:
        >>> data_files("nowhere.parquet")
        []
    """
    if "://" in path and not Path(path).exists():
        return []
    found = _files(path)
    if len(found) == 1 and found[0].is_dir():
        found = [file for file in found[0].rglob("*") if file_format(file.name) is not None]
    return sorted(file for file in found if file.is_file())


def _to_arrow(source: Any) -> pa.Table:
    if hasattr(source, "collect") and hasattr(source, "lazy"):
        source = source.collect()
    if not hasattr(source, "__arrow_c_stream__"):
        raise InputError(
            f"cannot read a log from {type(source).__name__}: expected a path, a pandas or Polars DataFrame, "
            "an Arrow table or an Ibis table"
        )
    try:
        return pa.table(source)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(
            f"the {type(source).__name__} cannot be converted to an Arrow table: {first_line(error)} "
            "Give each column a name of its own and one type."
        ) from error


def check_names(names: Sequence[str]) -> None:
    """Raise `InputError` if two columns have one name but for upper and lower case, or one is called as ours are."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower().startswith(OURS) and name != RECORD:
            raise InputError(f"the column {name!r} has a name as those that are added while a log is read; rename it")
        if name.lower() in seen:
            raise InputError(
                f"the columns {seen[name.lower()]!r} and {name!r} differ at most in upper and lower case, which "
                "engines do not tell apart: rename one"
            )
        seen[name.lower()] = name


def _open_path(path: str, engine: Engine, table: str | None, text: set[str], records: bool) -> ir.Table:
    spark = isinstance(engine, SparkEngine)
    local = "://" not in path or Path(path).exists()
    if not local and not spark:
        raise InputError(f"{path} is an address, and nothing is downloaded: copy the file here and name its path")
    files = _files(path) if local else []
    if local and not files:
        if isinstance(engine, SparkEngine) and file_format(path) is None:
            return _spark_table(path, engine)
        raise InputError(
            f"no file matches {path or repr(path)}: check the path, and quote a glob so that the shell keeps it"
        )
    # A path that exists is that file: engines would take its brackets, stars and question marks for a glob.
    location, kind = glob.escape(path) if Path(path).exists() else path, file_format(path)
    if local and Path(path).is_dir():
        ending = _folder_ending(path)
        kind = file_format(f"x{ending}")
        files = [file for file in Path(path).rglob("*") if file.is_file()]
        location = location if spark else str(Path(location, "**", f"*{ending}"))
    if kind is None:
        raise InputError(
            f"cannot tell the format of {path} from its name: expected one of {', '.join(FORMATS)}, "
            f"CSV and JSONL also with {' or '.join(COMPRESSED)}"
        )
    if kind == "duckdb":
        if not isinstance(engine, DuckDBEngine):
            raise InputError(f"{path} is a DuckDB file, which the {engine.name} engine cannot read; use DuckDB")
        return open_duckdb_file(path, engine, table)
    if table is not None:
        raise InputError(f"a table name ({table}) goes with a DuckDB file; {path} is {kind}")
    if files and not any(file.is_dir() or file.stat().st_size for file in files):
        raise InputError(f"{path} is empty: expected a click log of at least one row")
    reader = _read_spark if spark else _read_duckdb
    try:
        if records and kind == "jsonl" and not spark:
            return _read_records(location, engine)
        keys = _partition_keys(files)
        opened = reader(location, kind, engine, text, NO_PARTITIONS[spark] if keys else {})
        if keys and not keys & {name.lower() for name in opened.columns}:
            # Names of folders are columns, unless they would replace what the file itself says.
            opened = reader(location, kind, engine, text, {})
        check_names(opened.columns if spark else _names_written(opened.columns, location, kind, files, engine))
        return opened
    except InputError as error:
        raise InputError(f"{path}: {error}" if str(error).startswith("the ") else f"{path} {error}") from error
    except Exception as error:
        called = "Parquet" if kind == "parquet" else kind.upper()
        raise InputError(f"{path} cannot be read as {called}: {_without_folder(error, path)}") from error


def _without_folder(error: Exception, path: str) -> str:
    """Return what the engine says, with the file under the name that the user gave it."""
    if "Error when sniffing file" in str(error):
        return "its lines are no UTF-8 text with one delimiter and equally many fields each."
    return first_line(error).replace(str(Path(path).absolute()), path)


def _files(path: str) -> list[Path]:
    """Return what a path names: itself, or what matches it as a glob."""
    if not path:
        return []
    return [Path(path)] if Path(path).exists() else [Path(found) for found in glob.glob(path, recursive=True)]


def _folder_ending(folder: str) -> str:
    """Return how the names of a folder's data files end, such as `.parquet` or `.csv.gz`: all in one way."""
    names = [file.name for file in Path(folder).rglob("*") if file.is_file()]
    endings = sorted({_ending(name) for name in names if file_format(name) not in (None, "duckdb")})
    if not endings:
        raise InputError(f"the folder {folder} holds no data files: expected Parquet, CSV, TSV or JSONL")
    if len(endings) > 1:
        raise InputError(
            f"the folder {folder} must hold data files of one kind, found {', '.join(endings)}: "
            f"choose with a glob such as '{Path(folder, '**', '*' + endings[0])}'"
        )
    return endings[0]


def _ending(name: str) -> str:
    suffixes = Path(name).suffixes
    return "".join(suffixes[-2:] if suffixes[-1].lower() in COMPRESSED else suffixes[-1:])


def _partition_keys(files: Sequence[Path]) -> set[str]:
    """Return the names that folders such as `day=7` give to columns, in lower case."""
    return {part.partition("=")[0].lower() for file in files for part in file.parts[:-1] if "=" in part}


def _names_written(
    columns: Sequence[str], location: str, kind: str, files: Sequence[Path], engine: Engine
) -> list[str]:
    """Return the columns as the file writes them: where two have one name, DuckDB calls the second `click_1`."""
    lower = {column.lower() for column in columns}
    if not any((alike := re.fullmatch(r"(.+)_\d+", name)) and alike[1] in lower for name in lower):
        return list(columns)
    first = next(file for file in files if file.is_file())
    if kind == "parquet":
        import pyarrow.parquet as pq

        return list(pq.read_schema(first).names)
    con = engine.backend
    if kind == "jsonl":
        text = con.con.execute("SELECT DISTINCT unnest(json_keys(json)) FROM read_json_objects(?)", [location])
        return [name for (name,) in text.fetchall()]
    options: dict[str, Any] = CSV | {"header": False, "all_varchar": True} | ({"delim": "\t"} if kind == "tsv" else {})
    header = con.read_csv(location, **options).limit(1)
    return [str(name) for name in con.con.sql(str(con.compile(header))).fetchall()[0]]


def _read_duckdb(path: str, kind: str, engine: Engine, text: set[str], options: dict[str, Any]) -> ir.Table:
    if kind == "parquet":
        return engine.backend.read_parquet(path, **options)
    return (_read_jsonl if kind == "jsonl" else _read_csv)(path, kind, engine, text, options)


def _read_csv(path: str, kind: str, engine: Engine, text: set[str], options: dict[str, Any]) -> ir.Table:
    con = engine.backend
    options = CSV | ({"delim": "\t"} if kind == "tsv" else {}) | options
    columns = con.read_csv(path, **options).columns
    if columns == ("column0",):
        raise InputError("has no header line: expected column names, then one row a line")
    if len(columns) == 1 and (delimiters := [mark for mark in ",;\t|" if mark in columns[0]]):
        # Rows of unequal length make DuckDB see one wide column; told the delimiter, it names the first such row.
        names = columns[0].split(delimiters[0])
        options |= {"delim": delimiters[0], "columns": dict.fromkeys(names, "VARCHAR")}
        return con.read_csv(path, **options)
    return con.read_csv(path, types={name: "VARCHAR" for name in columns if name.lower() in text}, **options)


def _read_jsonl(path: str, kind: str, engine: Engine, text: set[str], options: dict[str, Any]) -> ir.Table:
    con = engine.backend
    opened = con.read_json(path, **JSONL, **options)
    if opened.columns == ("json",):
        raise InputError('holds no records: expected one JSON object a line, such as {"query": …, "doc": …}')
    types = opened.schema()
    named = [name for name in types if name.lower() in text]
    guessed = [name for name in named if not (types[name].is_numeric() or types[name].is_nested())]
    if all(types[name].is_string() or types[name].is_boolean() for name in guessed):
        return opened
    # Texts that look like dates, or mix with numbers, stay as they are written.
    kinds = sql_types(con, types)
    return con.read_json(path, columns=kinds | dict.fromkeys(guessed, "VARCHAR"), **options)


def _read_records(path: str, engine: Engine) -> ir.Table:
    """Return the records of JSONL, or of one JSON array, unparsed."""
    rows = f"SELECT json AS {RECORD} FROM read_json_objects({sql_literal(path)}, maximum_object_size={LONGEST}, "
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


def _read_spark(path: str, kind: str, engine: Engine, text: set[str], options: dict[str, Any]) -> ir.Table:
    con = engine.backend
    if kind == "parquet":
        return con.read_parquet(path, **options)
    if kind == "jsonl":
        return con.read_json(path, **options)
    from pyspark.sql.types import StringType, StructField, StructType

    options = {"header": True, "sep": "\t" if kind == "tsv" else ",", "escape": '"'} | options
    inferred = engine.session.read.csv(path, inferSchema=True, **options).schema  # type: ignore[attr-defined]
    fields = [StructField(f.name, StringType() if f.name.lower() in text else f.dataType) for f in inferred.fields]
    return con.read_csv(path, schema=StructType(fields), **options)


def _spark_table(name: str, engine: SparkEngine) -> ir.Table:
    if not name or not engine.session.catalog.tableExists(name):
        raise InputError(f"{name or repr(name)} is neither a file nor a table that Spark knows")
    return engine.backend.table(name)
