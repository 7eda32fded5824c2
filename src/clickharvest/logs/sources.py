"""Sources: open files, folders, globs, DuckDB tables, DataFrames and Ibis tables as Ibis tables."""

from __future__ import annotations

import glob
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from clickharvest.errors import InputError
from clickharvest.logs.click_log import OURS
from clickharvest.logs.engines import DuckDBEngine, Engine
from clickharvest.logs.readers import (
    RECORD,
    names_written,
    open_duckdb_file,
    partition_keys,
    read_records,
    read_with_duckdb,
    read_with_spark,
)
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
"""Formats that every query parses anew."""
COMPRESSED = (".gz", ".zst")
NO_PARTITIONS: dict[bool, dict[str, Any]] = {False: {"hive_partitioning": False}, True: {"recursiveFileLookup": True}}
"""Settings of DuckDB, and of Spark, that make no columns of names of folders such as `position=7`."""


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


def file_format(path: str) -> str | None:
    """Return the format by a file's name, or None.

    Example:
        >>> file_format("logs/2024-*.csv.gz"), file_format("clicks")
        ('csv', None)
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return FORMATS.get(suffixes[-1]) if suffixes else None


def data_files(path: str) -> list[Path]:
    """Return the files of this machine that a path names, sorted; none elsewhere.

    Of a folder, these are the files of a known format at any depth. Files and folders beneath the one that is named
    whose names begin with `_` or `.` are no data: Spark and others keep there what is not finished.

    Example:
        >>> data_files("nowhere.parquet")
        []
    """
    return _find_files(path)[0]


def _find_files(path: str) -> tuple[list[Path], bool]:
    """Return the data files that a path names, see `data_files`, and whether it names others, too."""
    named = Path(path)
    if not path or ("://" in path and not named.exists()):
        return [], False
    places, depth = [named], len(named.parts)
    if not named.exists():
        places = [Path(place) for place in glob.glob(path, recursive=True, include_hidden=True)]
        depth = len(list(takewhile(lambda part: not glob.has_magic(part), named.parts)))
    named_prefixes = {part[0] for part in named.parts[depth:]}  # a glob may begin with them itself
    matches: set[Path] = set()
    for place in places:
        matches |= {file for file in place.rglob("*") if file_format(file.name)} if place.is_dir() else {place}
    files = [file for file in sorted(matches) if not file.is_dir()]
    data = [
        file
        for file in files
        if not any(part[0] in {"_", "."} - named_prefixes and "=" not in part for part in file.parts[depth:])
    ]
    return data, len(data) < len(files)


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
    exists = bool(path) and Path(path).exists()
    local = "://" not in path or exists
    if not local and not spark:
        raise InputError(f"{path} is an address, and nothing is downloaded: copy the file here and name its path")
    files, others = _find_files(path)
    if local and not files and not exists:
        if isinstance(engine, SparkEngine) and file_format(path) is None:
            return engine.known_table(path)
        raise InputError(
            f"no file matches {path or repr(path)}: check the path, and quote a glob so that the shell keeps it"
        )
    kind = file_format(path)
    # Engines would take brackets, stars and question marks in the name of a file for a glob.
    location: str | list[str] = glob.escape(path) if exists else path
    if Path(path).is_dir():
        ending = _folder_ending(path, files)
        kind = file_format(f"x{ending}")
        files = [file for file in files if file.name.endswith(ending)]
        location = str(Path(glob.escape(path), "**", f"*{ending}"))
    if others or (spark and files and files != [Path(path)]):
        location = [glob.escape(str(file)) for file in files]
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
    if files and not any(file.stat().st_size for file in files):
        raise InputError(f"{path} is empty: expected a click log of at least one row")
    _check_gzip(files)
    reader = read_with_spark if spark else read_with_duckdb
    try:
        if records and kind == "jsonl" and not spark:
            return read_records(location, engine)
        keys = partition_keys(files)
        opened = reader(location, kind, engine, text, NO_PARTITIONS[spark] if keys or not spark else {}, files)
        if keys and not keys & {name.lower() for name in opened.columns}:
            # Names of folders become columns, unless a column of the file has the name.
            opened = reader(location, kind, engine, text, {}, files)
        check_names(opened.columns if spark else names_written(opened.columns, location, kind, files, engine))
        return opened
    except InputError as error:
        raise InputError(f"{path}: {error}" if str(error).startswith("the ") else f"{path} {error}") from error
    except Exception as error:
        called = "Parquet" if kind == "parquet" else kind.upper()
        raise InputError(f"{path} cannot be read as {called}: {_without_folder(error, path)}") from error


def _without_folder(error: Exception, path: str) -> str:
    """Return the message of the engine, with the path as the user wrote it."""
    if "Error when sniffing file" in str(error):
        return "its lines are no UTF-8 text with one delimiter and equally many fields each."
    return first_line(error).replace(str(Path(path).absolute()), path)


def _check_gzip(files: Sequence[Path]) -> None:
    """Raise `InputError` if a gzip file is damaged: DuckDB compares no checksums."""
    for file in files:
        if file.suffix.lower() == ".gz":
            try:
                with pa.input_stream(file, compression="gzip") as stream:
                    while stream.read(2**20):
                        pass
            except OSError as error:
                raise InputError(f"the file {file} cannot be unpacked: {first_line(error)} Copy it again.") from error


def _folder_ending(folder: str, files: Sequence[Path]) -> str:
    """Return the one ending of the names of a folder's data files, such as `.parquet` or `.csv.gz`."""
    endings = sorted({_ending(file.name) for file in files if file_format(file.name) != "duckdb"})
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
