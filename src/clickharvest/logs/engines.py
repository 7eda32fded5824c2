"""Engines: where the queries run. DuckDB inside this process by default, `spark`, or the engine of an Ibis table.

An `Engine` wraps one Ibis connection. It runs an expression with progress and one-line errors, and writes its result as
one Parquet file, whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis

from clickharvest.errors import ClickharvestError, EngineError, InputError
from clickharvest.files import FOOTER_KEY, atomic_path, remove_folder, temporary_folder
from clickharvest.logs.ibis_inside import compile_on, hash_of_two, sql_types
from clickharvest.progress import Progress, silent
from clickharvest.words import first_line

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

BATCH = 500_000
"""Rows of a batch between engine and Arrow."""
UNWRITTEN = re.compile(r'not write file \\?"(?P<file>.+?)\\?": (?P<why>[^"\n]+)')
"""DuckDB's message about a full disk, in JSON or not."""
DICTIONARY = 8_000
"""Distinct values of a Parquet column chunk up to which DuckDB writes a dictionary; larger ones cost time, not size."""
BITS = 28
"""Bits kept of a sum: nine digits. Sums of two engines differ in the last few of 53."""
DIGITS = 12
"""Hexadecimal digits of an MD5 that draws by hash compare."""


class Engine:
    """Any Ibis backend as an engine.

    Args:
        backend: an Ibis connection.
        progress: a function that shows progress on long work; silent by default.
    """

    name = "ibis"

    def __init__(self, backend: Any, *, progress: Progress = silent) -> None:
        self.backend = backend
        self.progress = progress

    def fetch(self, table: ir.Table, *, task: str, coded: bool = False) -> pa.Table:
        """Run an expression and return its rows as an Arrow table; texts become codes of a dictionary if `coded`."""
        with self.running(task), self._batches(table) as batches:
            return gather(batches, coded=coded)

    def numbered(self, table: ir.Table, keys: Sequence[str], name: str, *, like: ir.Value) -> ir.Table:
        """Return the rows with a column that numbers them from 0 in the order of their keys.

        Args:
            table: rows that differ in their keys.
            keys: what to sort by.
            name: what to call the number.
            like: a column with the distribution of the first key that is cheaper to sample.
        """
        return table.mutate(**{name: ibis.row_number().over(order_by=[table[key] for key in keys])})

    def digest(self, columns: Sequence[ir.Value]) -> ir.Value | None:
        """Return a 64-bit hash of the values of some columns; None where the engine has none."""
        return None

    @contextmanager
    def output(self, path: Path) -> Iterator[Path]:
        """Yield a temporary path to write to; it gets the name `path` only if the block succeeds."""
        with atomic_path(path) as partial:
            yield partial

    def stream(self, table: ir.Table, *, task: str, rows: int = 100_000) -> Iterator[pa.RecordBatch]:
        """Run an expression and yield its rows in batches of about `rows`; one stream at a time."""
        with self.running(task), self._batches(table, rows) as batches:
            yield from batches

    def write_parquet(self, table: ir.Table, path: Path, *, metadata: dict[str, Any], task: str) -> int:
        """Write an expression's rows to one Parquet file and return their number.

        `metadata` goes into the file's key-value metadata as JSON under the key `clickharvest`. Wrap the call
        in `output`, so that the file appears whole or not at all.
        """
        with self.running(task):
            return self._copy(table, path, json.dumps(metadata))

    def materialise(self, table: ir.Table, *, task: str) -> ir.Table:
        """Run an expression once and keep its rows inside the engine for several later queries.

        An engine that cannot keep them returns the expression as it is.
        """
        with self.running(task):
            return self._keep(table, f"clickharvest_{uuid.uuid4().hex}")

    def fraction(self) -> float | None:
        """Return how much of the running query is done, in [0, 1]; None where the engine does not know."""
        return None

    @contextmanager
    def running(self, task: str) -> Iterator[None]:
        """Show progress while the block runs, and turn the engine's failures into one-line errors."""
        try:
            with self.progress(task, self.fraction):
                yield
        except ClickharvestError:
            raise
        except Exception as error:
            raise self.explain(error, task) from error

    def explain(self, error: Exception, task: str) -> Exception:
        """Return the error to raise for a failure inside the engine."""
        return EngineError(f"{task} failed in {self.name}: {first_line(error)}")

    def _keep(self, table: ir.Table, name: str) -> ir.Table:
        return table

    def _batches(self, table: ir.Table, rows: int = BATCH) -> pa.RecordBatchReader:
        if self.backend.name == "duckdb":
            return duckdb_batches(self.backend, table, rows)
        return self.backend.to_pyarrow_batches(table, chunk_size=rows)

    def _copy(self, table: ir.Table, path: Path, metadata: str) -> int:
        import pyarrow.parquet as pq

        rows = 0
        with self._batches(table) as batches:
            schema = batches.schema.with_metadata({FOOTER_KEY: metadata})
            with pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
        return rows


class DuckDBEngine(Engine):
    """DuckDB inside this process; larger than memory is fine, it spills to disk.

    Args:
        memory_limit: such as `"2GB"`; DuckDB's default is 80 % of the machine's memory.
        temp_directory: where to spill; a directory of its own, removed at exit, by default.
        progress: what shows progress on long work; silent by default.

    Example:
        >>> engine = DuckDBEngine(memory_limit="500MB")
        >>> engine.fetch(ibis.memtable({"x": [1, 2]}), task="Reading").num_rows
        2
    """

    name = "duckdb"

    def __init__(
        self,
        *,
        memory_limit: str | None = None,
        temp_directory: str | Path | None = None,
        progress: Progress = silent,
    ) -> None:
        super().__init__(ibis.duckdb.connect(), progress=progress)
        if temp_directory is None:
            temp_directory = temporary_folder()
            weakref.finalize(self, remove_folder, temp_directory)
        settings = {
            "temp_directory": str(temp_directory),
            "enable_progress_bar": True,
            # Nothing downloads by itself.
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        try:
            for setting, value in settings.items():
                self.backend.con.execute(f"SET {setting} = {sql_literal(str(value))}")
        except duckdb.Error as error:
            raise InputError(
                f"DuckDB does not accept {setting} = {value!r}: {first_line(error)} "
                "Expected a size such as 2GB or 800MB."
            ) from error
        self.backend.con.execute("SET enable_progress_bar_print = false")

    def digest(self, columns: Sequence[ir.Value]) -> ir.Value:
        """Return DuckDB's own 64-bit hash of the values of some columns."""
        return reduce(hash_of_two, columns[1:], hash_of_two(columns[0], ibis.literal(0)))

    def setting(self, name: str) -> Any:
        """Return the value of one of DuckDB's settings."""
        return self.backend.con.execute(f"SELECT current_setting({sql_literal(name)})").fetchall()[0][0]

    def fraction(self) -> float | None:
        """Return how much of the running query is done, in [0, 1]; None where DuckDB does not know."""
        percent = self.backend.con.query_progress()
        return percent / 100 if percent >= 0 else None

    def explain(self, error: Exception, task: str) -> Exception:
        """Return the error to raise: of the data, of a limit, of DuckDB, or an `OSError` of the disk for `output`."""
        unwritten = UNWRITTEN.search(str(error))
        if unwritten and unwritten["file"].endswith(".partial"):
            return OSError(unwritten["why"])
        if unwritten or isinstance(error, duckdb.OutOfMemoryException):
            why = f"{unwritten['why']}." if unwritten else first_line(error)
            return EngineError(
                f"{task} ran out of memory or of disk to spill to: {why} "
                "Raise --memory-limit or free space in the temporary directory (TMPDIR)."
            )
        if isinstance(error, duckdb.DataError | duckdb.InvalidInputException | duckdb.IOException):
            return InputError(f"{task} failed on the data: {first_line(error)}")
        return super().explain(error, task)

    def _keep(self, table: ir.Table, name: str) -> ir.Table:
        self.backend.con.execute(f"CREATE TEMP TABLE {name} AS {compile_as_promised(self.backend, table)}")
        return self.backend.table(name)

    def _copy(self, table: ir.Table, path: Path, metadata: str) -> int:
        query = compile_as_promised(self.backend, table)
        # Higher levels take a quarter longer for files that are a fiftieth smaller.
        size = f"COMPRESSION zstd, COMPRESSION_LEVEL 1, DICTIONARY_SIZE_LIMIT {DICTIONARY}"
        footer = f"KV_METADATA {{clickharvest: {sql_literal(metadata)}}}"
        options = f"FORMAT parquet, {size}, USE_TMP_FILE false, {footer}"
        copy = f"COPY ({query}) TO {sql_literal(str(path))} ({options})"
        return int(self.backend.con.execute(copy).fetchone()[0])


def duckdb_batches(backend: Any, table: ir.Table, rows: int) -> pa.RecordBatchReader:
    """Return rows in batches, without pandas, which Ibis would import, and without methods that DuckDB 2 removed."""
    return backend.con.sql(compile_as_promised(backend, table)).to_arrow_reader(rows)


def compile_as_promised(backend: Any, table: ir.Table) -> str:
    """Return SQL with the column types of the Ibis schema: DuckDB itself sums integers into HUGEINT."""
    if broken := [name for name in table.columns if "\0" in name]:
        raise InputError(f"the column {broken[0]!r} has the character NUL in its name, where engines end it; rename it")
    types = sql_types(backend, table.schema())
    casts = ", ".join(f"CAST({sql_name(name)} AS {kind}) AS {sql_name(name)}" for name, kind in types.items())
    return f"SELECT *{f' REPLACE ({casts})' if casts else ''} FROM ({compile_on(backend, table)})"


def gather(batches: pa.RecordBatchReader, *, coded: bool = False) -> pa.Table:
    """Return all rows as one table; texts as dictionaries if `coded`."""
    import pyarrow as pa

    if not coded or not any(pa.types.is_string(kind) for kind in batches.schema.types):
        return batches.read_all()
    encoded = [
        pa.table({
            name: column.dictionary_encode() if pa.types.is_string(column.type) else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        })
        for batch in batches
    ]  # fmt: skip
    return pa.concat_tables(encoded).unify_dictionaries() if encoded else batches.schema.empty_table()


def sql_literal(text: str) -> str:
    """Return `text` as a quoted SQL string.

    Example:
        >>> sql_literal("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def sql_name(text: str) -> str:
    """Return `text` as a quoted SQL identifier.

    Example:
        >>> print(sql_name('a "b" c'))
        "a ""b"" c"
    """
    return '"' + text.replace('"', '""') + '"'


def steady(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a table with columns of sums rounded to `BITS`, so that every run has the same.

    Hashes of sums, and iterative fits, would otherwise change from run to run.

    Example:
        >>> import pyarrow as pa
        >>> sums = pa.table({"doc": ["a", "b"], "exposure": [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]})
        >>> len(sums["exposure"].unique()), len(steady(sums, ["exposure"])["exposure"].unique())
        (2, 1)
    """
    import pyarrow as pa

    for name in names:
        rounded = pa.array(_rounded(table[name].to_numpy()))
        table = table.set_column(table.column_names.index(name), name, rounded)
    return table


def _rounded(values: Any) -> Any:
    import numpy as np

    share, power = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(share, BITS)), power - BITS)


def hexadecimal(column: ir.Value) -> ir.StringValue:
    """Return the first digits of the MD5 of values as text: evenly spread, and in the order of numbers."""
    return column.cast("string").hexdigest("md5").substr(0, DIGITS)


def is_drawn(column: ir.Value, share: float) -> ir.BooleanValue:
    """Return whether the MD5 of a value draws it into the sample of this share, [0, 1): the same on every engine.

    Example:
        >>> numbers = ibis.range(10_000).unnest().name("n").as_table()
        >>> drawn = numbers.filter(is_drawn(numbers.n, 0.25))
        >>> DuckDBEngine().fetch(drawn.agg(n=drawn.count()), task="Drawing").to_pylist()
        [{'n': 2529}]
    """
    return hexadecimal(column) < _bound(share)


def is_text_drawn(text: str, share: float) -> bool:
    """Return `is_drawn` for the text of one value, without an engine.

    Example:
        >>> sum(is_text_drawn(str(number), 0.25) for number in range(10_000))
        2529
    """
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:DIGITS] < _bound(share)


def _bound(share: float) -> str:
    return f"{int(share * 16**DIGITS):0{DIGITS}x}"
