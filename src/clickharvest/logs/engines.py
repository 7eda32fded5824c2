"""Engines: where the queries run. DuckDB inside this process by default, Spark, or the engine of an Ibis table.

An `Engine` wraps one Ibis connection and does the few things Ibis leaves to its
caller: run an expression with progress and one-line errors, and write its result as one Parquet file, atomically.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import uuid
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis

from clickharvest.errors import ClickharvestError, EngineError, InputError
from clickharvest.extras import require
from clickharvest.files import SHARED, atomic_folder, atomic_path, remove_folder, temporary_folder
from clickharvest.logs.footers import KEY
from clickharvest.logs.hashing import hexadecimal
from clickharvest.logs.ibis_inside import compile_on, connect_duckdb, sql_types
from clickharvest.progress import Progress, silent
from clickharvest.words import first_line

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

BATCH = 500_000
"""Rows that travel at a time."""
DICTIONARY = 8_000
"""Distinct values of a part of a Parquet column up to which DuckDB writes each of them once."""
SPARK_JAVA = 17
"""The oldest Java that Spark 4 runs on."""
standard_error = 2
"""Descriptor of this process's standard error, another one while Java starts: what an interrupt is told on."""
PARTS = 256
"""Into so many parts of about equal size rows fall that Spark numbers."""
SAMPLE = 8 * PARTS


class Engine:
    """Any Ibis backend as an engine.

    Args:
        backend: an Ibis connection.
        progress: what shows progress on long work; silent by default.
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
            like: a column whose values are spread like those of the first key, and are cheap to look at.
        """
        return table.mutate(**{name: ibis.row_number().over(order_by=[table[key] for key in keys])})

    @contextmanager
    def output(self, path: Path) -> Iterator[Path]:
        """Yield where to write what is to be called `path`; it gets that name only if the block succeeds."""
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
        """How much of the running query is done, in [0, 1]; None where the engine cannot tell."""
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
            schema = batches.schema.with_metadata({KEY: metadata})
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
        super().__init__(connect_duckdb(), progress=progress)
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

    def setting(self, name: str) -> Any:
        """Return the value of one of DuckDB's settings."""
        return self.backend.con.execute(f"SELECT current_setting({sql_literal(name)})").fetchall()[0][0]

    def fraction(self) -> float | None:
        """How much of the running query is done, in [0, 1]; None where DuckDB cannot tell."""
        percent = self.backend.con.query_progress()
        return percent / 100 if percent >= 0 else None

    def explain(self, error: Exception, task: str) -> Exception:
        """Return the error to raise: the data's fault, a limit's, or DuckDB's own."""
        if isinstance(error, duckdb.OutOfMemoryException):
            return EngineError(
                f"{task} ran out of memory or of disk to spill to: {first_line(error)} "
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
        told = f"KV_METADATA {{clickharvest: {sql_literal(metadata)}}}"
        # Higher levels take a quarter longer for files that are a fiftieth smaller, and larger dictionaries a seventh
        # for files that are no smaller. The file is temporary already.
        small = f"COMPRESSION zstd, COMPRESSION_LEVEL 1, DICTIONARY_SIZE_LIMIT {DICTIONARY}"
        options = f"FORMAT parquet, {small}, USE_TMP_FILE false, {told}"
        copy = f"COPY ({query}) TO {sql_literal(str(path))} ({options})"
        return int(self.backend.con.execute(copy).fetchone()[0])


class SparkEngine(Engine):
    """Spark, in this machine's cores by default or on a cluster.

    Args:
        master: a Spark master URL, such as `"spark://host:7077"` or `"yarn"`; `"local[*]"` by default.
        memory_limit: memory of the driver, such as `"4g"`.
        progress: what shows progress on long work; silent by default.

    Raises:
        EngineError: PySpark is not installed, or Java is missing or too old.
    """

    name = "spark"

    def __init__(
        self, *, master: str | None = None, memory_limit: str | None = None, progress: Progress = silent
    ) -> None:
        check_java()
        sql = require("pyspark.sql", "spark", "the Spark engine", error=EngineError)
        builder = (
            sql.SparkSession.builder.appName("clickharvest")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.session.timeZone", "UTC")
        )
        if master is not None or "SPARK_REMOTE" not in os.environ:
            builder = builder.master(master or "local[*]")
        if memory_limit is not None:
            builder = builder.config("spark.driver.memory", re.sub(r"(?i)i?b$", "", memory_limit.strip()))
        try:
            with warnings.catch_warnings(), java_errors_elsewhere() as said, own_interrupts():
                warnings.simplefilter("ignore", ResourceWarning)
                self.session = builder.getOrCreate()
                super().__init__(ibis.pyspark.connect(self.session), progress=progress)
        except Exception as error:
            why = next((line for line in said.read_text().splitlines() if "rror" in line), "")
            raise EngineError(f"Spark did not start: {first_line(RuntimeError(why) if why else error)}") from error

    def fraction(self) -> float | None:
        """Finished tasks of the active stages over all of their tasks."""
        tracker = self.session.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage)
        return sum(stage.numCompletedTasks for stage in stages if stage) / total if total else None

    def numbered(self, table: ir.Table, keys: Sequence[str], name: str, *, like: ir.Value) -> ir.Table:
        """Return the rows numbered in the order of their keys, without one worker that sorts all of them.

        A sample of the first key's values, drawn by hash, cuts its range into parts; rows are numbered within each, and
        each part begins where the rows of those before it end.
        """
        values = like.as_table().rename(value=like.get_name()).distinct()
        drawn = values.order_by(hexadecimal(values.value), "value").limit(SAMPLE).order_by("value")
        sample = self.fetch(drawn, task="Sampling")["value"].to_pylist()
        cuts = sorted({sample[i * len(sample) // PARTS] for i in range(1, PARTS)} if sample else ())
        parted = table.mutate(_part=_part_of(table[keys[0]], cuts, 0, len(cuts)))
        sizes = parted.group_by("_part").agg(_rows=parted.count())
        before = sizes._rows.sum().over(ibis.window(order_by=sizes._part, preceding=None, following=0)) - sizes._rows
        begins = sizes.select(_own=sizes._part, _before=before)
        joined = parted.inner_join(begins, parted._part == begins._own)
        own = ibis.row_number().over(group_by=joined._part, order_by=[joined[key] for key in keys])
        return joined.select(*table.columns, **{name: (own + joined._before).cast("int64")})

    @contextmanager
    def output(self, path: Path) -> Iterator[Path]:
        """Yield a file in this machine's cores, and on a cluster a folder that all of its machines can write to."""
        if self._is_local():
            with super().output(path) as partial:
                yield partial
            return

        def refuse_strangers() -> None:
            if path.is_dir() and not (path / SHARED).exists() and any(path.iterdir()):
                raise InputError(f"cannot write {path}: it is a folder of something else; name another")

        with atomic_folder(path, refuse_strangers) as partial:
            yield partial

    def _batches(self, table: ir.Table, rows: int = BATCH) -> pa.RecordBatchReader:
        """Return the rows by way of Arrow; pandas would make floats of integers with gaps."""
        return self._frame(table).toArrow().cast(table.schema().to_pyarrow()).to_reader(rows)

    def _is_local(self) -> bool:
        try:
            return re.fullmatch(r"local(\[.*\])?", str(self.session.sparkContext.master)) is not None
        except AttributeError:  # a session on a remote server has no context
            return False

    def _frame(self, table: ir.Table) -> Any:
        return self.session.sql(compile_on(self.backend, table))

    def _keep(self, table: ir.Table, name: str) -> ir.Table:
        self._frame(table).cache().createOrReplaceTempView(name)
        return self.backend.table(name)

    def _copy(self, table: ir.Table, path: Path, metadata: str) -> int:
        """Let Spark write parts in parallel, and in this machine's cores stream them into one file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = table.schema().to_pyarrow().with_metadata({KEY: metadata})
        if path.is_dir():
            self._frame(table).write.mode("append").parquet(path.absolute().as_uri(), compression="zstd")
            parts = sorted(path.glob("part-*.parquet"))
            if not parts:
                raise EngineError(
                    f"Spark's executors wrote to disks of their own: name an output that all machines share, not {path}"
                )
            pq.write_metadata(schema, path / SHARED)
            return sum(pq.read_metadata(part).num_rows for part in parts)
        folder = path.with_name(f"{path.name}.parts")
        rows = 0
        try:
            self._frame(table).write.parquet(folder.absolute().as_uri())
            with pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for part in sorted(folder.glob("part-*.parquet")):
                    for batch in pq.ParquetFile(part).iter_batches(batch_size=500_000):
                        writer.write_table(pa.Table.from_batches([batch]).cast(schema))
                        rows += batch.num_rows
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return rows


def duckdb_batches(backend: Any, table: ir.Table, rows: int) -> pa.RecordBatchReader:
    """Return rows without the pandas that Ibis would import, or a method of DuckDB's that is gone since DuckDB 2."""
    return backend.con.sql(compile_as_promised(backend, table)).to_arrow_reader(rows)


def compile_as_promised(backend: Any, table: ir.Table) -> str:
    """Return SQL with the column types Ibis promises: DuckDB itself sums integers into HUGEINT."""
    types = sql_types(backend, table.schema())
    casts = ", ".join(f"CAST({sql_name(name)} AS {kind}) AS {sql_name(name)}" for name, kind in types.items())
    return f"SELECT *{f' REPLACE ({casts})' if casts else ''} FROM ({compile_on(backend, table)})"


@contextmanager
def java_errors_elsewhere() -> Iterator[Path]:
    """Let a Java that the block starts write its errors to a file for all its life: they are pages of stack traces.

    Java inherits the descriptor, so for as long as the block runs this process writes there as well.
    """
    global standard_error
    folder = temporary_folder()
    atexit.register(remove_folder, folder)
    said = folder / "java.log"
    with said.open("wb") as file:
        standard_error = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            yield said
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            standard_error = 2


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep what a program has chosen to do when it is interrupted; PySpark's choice stays where it has chosen nothing.

    PySpark cancels its jobs and raises, in the middle of what it tells Java, and both print what they think of it.
    """
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _part_of(value: ir.Value, cuts: Sequence[Any], low: int, high: int) -> ir.Value:
    """Return how many of the cuts are at most the value, found by halving: their number is between low and high."""
    if low == high:
        return ibis.literal(low, "int64")
    middle = (low + high) // 2
    below = value < ibis.literal(cuts[middle], value.type())
    return below.ifelse(_part_of(value, cuts, low, middle), _part_of(value, cuts, middle + 1, high))


def gather(batches: pa.RecordBatchReader, *, coded: bool = False) -> pa.Table:
    """Return all rows as one table; of texts, if `coded`, each once in a dictionary and its code in every row."""
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


def check_java() -> None:
    """Raise `EngineError` unless a Java that Spark can run on is found."""
    advice = f"Spark needs Java {SPARK_JAVA} or newer: install a JDK {SPARK_JAVA} or point JAVA_HOME at one"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise EngineError(f"no Java found on PATH; {advice}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"Java at {java} does not run ({first_line(error)}); {advice}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) < SPARK_JAVA:
        raise EngineError(f"Java {found[1] if found else 'of unknown version'} found at {java}; {advice}")


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
