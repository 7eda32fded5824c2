"""Spark as an engine, in this machine's cores or on a cluster."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis

from clickharvest.errors import EngineError, InputError
from clickharvest.extras import require
from clickharvest.files import FOOTER_KEY, SHARED, atomic_folder, remove_folder, temporary_folder
from clickharvest.logs.engines import BATCH, Engine, hexadecimal
from clickharvest.logs.ibis_inside import compile_on
from clickharvest.progress import Progress, silent
from clickharvest.words import first_line

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

SPARK_JAVA = 17
"""The oldest Java that Spark 4 runs on."""
standard_error = 2
"""Descriptor of the standard error of this process, on which interrupts are reported; another one while Java starts."""
PARTS = 256
"""Parts of about equal size into which rows are cut to be numbered."""
SAMPLE = 8 * PARTS


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
                self._shuffle_little()
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
        """Return the rows numbered in the order of their keys, without sorting all of them on one worker.

        A sample of the first key's values, drawn by hash, cuts its range into parts, and rows are numbered within each.
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
        within = ibis.row_number().over(group_by=joined._part, order_by=[joined[key] for key in keys])
        return joined.select(*table.columns, **{name: (within + joined._before).cast("int64")})

    @contextmanager
    def output(self, path: Path) -> Iterator[Path]:
        """Yield a file path in this machine's cores, and on a cluster a folder that all machines can write to."""
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
        """Return the rows by way of Arrow: pandas would turn integers with gaps into floats."""
        return self._frame(table).toArrow().cast(table.schema().to_pyarrow()).to_reader(rows)

    def _shuffle_little(self) -> None:
        """Use two shuffle partitions per core unless the user has set a number; Spark's 200 suit clusters."""
        name = "spark.sql.shuffle.partitions"
        if self._is_local() and self.session.conf.get(name) == "200":
            self.session.conf.set(name, str(2 * self.session.sparkContext.defaultParallelism))

    def known_table(self, name: str) -> ir.Table:
        """Return a table of Spark's catalogue.

        Raises:
            InputError: Spark knows no such table.
        """
        if not name or not self.session.catalog.tableExists(name):
            raise InputError(f"{name or repr(name)} is neither a file nor a table that Spark knows")
        return self.backend.table(name)

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
        """Write parts in parallel, and in this machine's cores stream them into one file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = table.schema().to_pyarrow().with_metadata({FOOTER_KEY: metadata})
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


@contextmanager
def java_errors_elsewhere() -> Iterator[Path]:
    """Send the errors of a Java that the block starts to a file, as they are pages of stack traces.

    Java inherits the descriptor, so this process writes to the file, too, while the block runs.
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
    """Restore the program's own handler of interrupts, if it has one, after the block.

    PySpark's handler cancels its jobs and raises in the middle of a call to Java, and both print stack traces.
    """
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _part_of(value: ir.Value, cuts: Sequence[Any], low: int, high: int) -> ir.Value:
    """Return how many cuts are at most the value, by bisection between `low` and `high`."""
    if low == high:
        return ibis.literal(low, "int64")
    middle = (low + high) // 2
    below = value < ibis.literal(cuts[middle], value.type())
    return below.ifelse(_part_of(value, cuts, low, middle), _part_of(value, cuts, middle + 1, high))


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
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < SPARK_JAVA:
        raise EngineError(f"Java {version[1] if version else 'of unknown version'} found at {java}; {advice}")
