"""Opening what a log may come from: files, folders, globs, DuckDB tables, DataFrames, Ibis tables."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from clickharvest.engines import DuckDBEngine, Engine, SparkEngine, first_line, sql_literal
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection

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
COMPRESSED = (".gz", ".zst")


def open_source(
    source: Any, engine: Engine | None = None, *, table: str | None = None, text: Collection[str] = ()
) -> tuple[ir.Table, Engine]:
    """Open a log's source.

    Args:
        source: a path (Parquet, CSV, TSV, JSONL, each plain or compressed; a folder; a glob; a DuckDB file), a
            pandas or Polars DataFrame, an Arrow table, or an Ibis table.
        engine: where to read it; an embedded DuckDB by default. An Ibis table brings its own.
        table: the table of a DuckDB file that holds more than one.
        text: columns that CSV and TSV must keep as text, so that document `007` stays `007`.

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
        return _open_path(str(source), engine, table, set(text)), engine
    return ibis.memtable(_to_arrow(source)), engine


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


def _to_arrow(source: Any) -> pa.Table:
    if hasattr(source, "collect") and hasattr(source, "lazy"):
        source = source.collect()
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.RecordBatchReader):
        source = source.read_all()
    if isinstance(source, pa.Table):
        return source
    try:
        if hasattr(source, "to_arrow"):
            return source.to_arrow()
        if hasattr(source, "to_parquet") and hasattr(source, "columns"):
            return pa.Table.from_pandas(source, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(
            f"the DataFrame cannot be converted to Arrow: {first_line(error)} Give each column one type."
        ) from error
    raise InputError(
        f"cannot read a log from {type(source).__name__}: expected a path, a pandas or Polars DataFrame, "
        "an Arrow table or an Ibis table"
    )


def _open_path(path: str, engine: Engine, table: str | None, text: set[str]) -> ir.Table:
    remote = "://" in path
    if isinstance(engine, SparkEngine) and not remote and not _matches(path) and file_format(path) is None:
        return _spark_table(path, engine)
    if not remote and not _matches(path):
        raise InputError(f"no file matches {path}: check the path, and quote a glob so that the shell keeps it")
    location = Path(path)
    kind = file_format(path)
    if not remote and location.is_dir():
        ending = _folder_ending(location)
        kind = file_format(f"x{ending}")
        if isinstance(engine, DuckDBEngine):
            path = str(location / "**" / f"*{ending}")
    if kind is None:
        raise InputError(
            f"cannot tell the format of {path} from its name: expected one of {', '.join(FORMATS)}, "
            f"CSV and JSONL also with {' or '.join(COMPRESSED)}"
        )
    if kind == "duckdb":
        return _duckdb_table(path, engine, table)
    if table is not None:
        raise InputError(f"a table name ({table}) goes with a DuckDB file; {path} is {kind}")
    reader = _read_spark if isinstance(engine, SparkEngine) else _read_duckdb
    try:
        opened = reader(path, kind, engine, text)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be read as {kind.upper()}: {first_line(error)}") from error
    return opened


def _matches(path: str) -> bool:
    return Path(path).exists() or bool(glob.glob(path, recursive=True))


def _folder_ending(folder: Path) -> str:
    """Return how the names of a folder's data files end, such as `.parquet` or `.csv.gz`: all in one way."""
    names = [file.name for file in folder.rglob("*") if file.is_file() and file_format(file.name)]
    endings = sorted({_ending(name) for name in names})
    if len(endings) != 1:
        found = ", ".join(endings) or "none"
        raise InputError(f"the folder {folder} must hold data files of one kind, found {found}; or pass a glob")
    return endings[0]


def _ending(name: str) -> str:
    suffixes = Path(name).suffixes
    return "".join(suffixes[-2:] if suffixes[-1].lower() in COMPRESSED else suffixes[-1:])


def _read_duckdb(path: str, kind: str, engine: Engine, text: set[str]) -> ir.Table:
    con = engine.backend
    if kind == "parquet":
        return con.read_parquet(path)
    if kind == "jsonl":
        return con.read_json(path)
    options: dict[str, Any] = {"delim": "\t"} if kind == "tsv" else {}
    columns = con.read_csv(path, **options).columns
    types = {column: "VARCHAR" for column in columns if column in text}
    return con.read_csv(path, types=types, **options) if types else con.read_csv(path, **options)


def _read_spark(path: str, kind: str, engine: Engine, text: set[str]) -> ir.Table:
    con = engine.backend
    if kind == "parquet":
        return con.read_parquet(path)
    if kind == "jsonl":
        return con.read_json(path)
    from pyspark.sql.types import StringType, StructField, StructType

    options = {"header": True, "sep": "\t" if kind == "tsv" else ","}
    inferred = engine.session.read.csv(path, inferSchema=True, **options).schema  # type: ignore[attr-defined]
    schema = StructType([StructField(f.name, StringType() if f.name in text else f.dataType) for f in inferred.fields])
    return con.read_csv(path, schema=schema, **options)


def _spark_table(name: str, engine: SparkEngine) -> ir.Table:
    if not engine.session.catalog.tableExists(name):
        raise InputError(f"{name} is neither a file nor a table that Spark knows")
    return engine.backend.table(name)


def _duckdb_table(path: str, engine: Engine, table: str | None) -> ir.Table:
    if not isinstance(engine, DuckDBEngine):
        raise InputError(f"{path} is a DuckDB file, which the {engine.name} engine cannot read; use DuckDB")
    con = engine.backend
    catalog = f"log_{len(con.list_catalogs())}"
    try:
        con.con.execute(f"ATTACH {sql_literal(path)} AS {catalog} (READ_ONLY)")
    except Exception as error:
        raise InputError(f"{path} cannot be opened as a DuckDB file: {first_line(error)}") from error
    found = con.con.execute(
        f"SELECT schema_name, name FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() "
        f"UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal) "
        f"WHERE database_name = '{catalog}' ORDER BY ALL"
    ).fetchall()
    wanted = [pair for pair in found if table is None or table in (pair[1], ".".join(pair))]
    if len(wanted) != 1:
        names = ", ".join(name if schema == "main" else f"{schema}.{name}" for schema, name in found) or "none"
        asked = f"no single table {table!r}" if table else f"{len(found)} tables"
        raise InputError(f"{path} holds {asked}: found {names}; name one with --table")
    schema, name = wanted[0]
    return con.table(name, database=(catalog, schema))
