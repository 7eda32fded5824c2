"""One piece of work of the harvest benchmark, run in a process of its own by `harvest.py`.

    python benchmarks/contenders.py generate ROWS LOG
    python benchmarks/contenders.py run CONTENDER LOG RESULT TEMP [CONTEXT ...]
    python benchmarks/contenders.py compare RESULT OTHER

`run` prints the seconds and the CPU seconds of the work, without the imports, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

MEMORY_LIMIT = "2GB"

LOG = """
    WITH pages AS (  -- heavy tail: the density of queries falls like 1/q
        SELECT
            i AS page,
            floor(exp(hash(i * 3 + 1) / 18446744073709551616.0 * ln({pages} * 10)))::BIGINT AS q,
            CASE WHEN hash(i * 7) % 2 = 0 THEN 'phone' ELSE 'desktop' END AS device
        FROM range({pages}) AS r(i)
    ),
    shown AS (SELECT *, unnest(range(1, 11))::INTEGER AS k FROM pages),
    ranked AS (  -- two rankers; the second shifts the documents of a query by one to three positions
        SELECT *, CASE WHEN hash(page) % 2 = 0 THEN k ELSE (k + hash(q) % 3) % 12 + 1 END AS d FROM shown
    )
    SELECT
        'query ' || q AS query,
        'doc ' || q || '-' || d AS doc,
        k AS position,
        (hash(page * 16 + k) / 18446744073709551616.0 < 0.4 / k * (hash(q * 64 + d) % 100) / 100)::TINYINT AS click,
        device
    FROM ranked
"""

HARVEST = """
    WITH units AS (
        SELECT {keys}, row_number() OVER (ORDER BY {keys}) - 1 AS unit
        FROM (SELECT {keys} FROM '{log}' GROUP BY ALL HAVING min(position) < max(position))
    )
    SELECT
        unit, any_value(query) AS query, position::BIGINT AS position, count(*)::DOUBLE AS exposure,
        count(*) FILTER (click = 1) AS clicks, count(*) AS impressions{context}
    FROM '{log}' JOIN units USING ({keys})
    GROUP BY unit, position
    ORDER BY unit, position
"""
# Reads the log twice, and so groups by two integers where one pass would group by texts: as fast at 20M rows as a
# group-by of the log followed by a join with its own units, and a tenth less CPU time at 100M (one run of each).


def generate(rows: str, log: str) -> None:
    """Write a click log of pages of ten results; the same rows every time, on any number of threads."""
    import duckdb

    partial = Path(f"{log}.partial")
    query = LOG.format(pages=int(rows) // 10)
    duckdb.execute(f"COPY ({query}) TO '{partial}' (FORMAT parquet, COMPRESSION zstd)")
    partial.rename(log)


def clickharvest(log: str, result: str, temp: str, context: Sequence[str], *, validate: bool = True) -> None:
    """Harvest as a user does."""
    from clickharvest import harvest_to_parquet, read_log
    from clickharvest.logs.engines import DuckDBEngine

    engine = DuckDBEngine(memory_limit=MEMORY_LIMIT, temp_directory=temp)
    harvest_to_parquet(read_log(log, context=context, engine=engine, validate=validate), result)


def clickharvest_unchecked(log: str, result: str, temp: str, context: Sequence[str]) -> None:
    """Harvest without the checks of the log's rows."""
    clickharvest(log, result, temp, context, validate=False)


def sql(log: str, result: str, temp: str, context: Sequence[str]) -> None:
    """Harvest with one DuckDB query written by hand."""
    import duckdb

    con = duckdb.connect()
    con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    con.execute(f"SET temp_directory = '{temp}'")
    keys = ", ".join(["query", *context, "doc"])
    contexts = "".join(f", any_value({column}) AS {column}" for column in context)
    query = HARVEST.format(log=log, keys=keys, context=contexts)
    con.execute(f"COPY ({query}) TO '{result}' (FORMAT parquet, COMPRESSION zstd)")


def pandas(log: str, result: str, temp: str, context: Sequence[str]) -> None:
    """Harvest with a pandas group-by and merge, all in memory."""
    import pandas as pd

    keys = ["query", *context, "doc"]
    rows = pd.read_parquet(log, columns=[*keys, "position", "click"])
    cells = rows.groupby([*keys, "position"], as_index=False, sort=False).agg(
        clicks=("click", "sum"), impressions=("click", "size")
    )
    units = cells.groupby(keys, as_index=False).size().query("size >= 2").reset_index(drop=True)
    units["unit"] = units.index
    found = cells.merge(units, on=keys).sort_values(["unit", "position"])
    found["exposure"] = found["impressions"].astype("float64")
    counts = dict.fromkeys(("unit", "position", "clicks", "impressions"), "int64")
    columns = ["unit", "query", "position", "exposure", "clicks", "impressions", *context]
    found[columns].astype(counts).to_parquet(result, compression="zstd", index=False)


def polars(log: str, result: str, temp: str, context: Sequence[str]) -> None:
    """Harvest with one lazy query of Polars, run by its streaming engine."""
    import polars as pl

    keys = ["query", *context, "doc"]
    cells = (
        pl.scan_parquet(log)
        .group_by([*keys, "position"])
        .agg(clicks=pl.col("click").cast(pl.Int64).sum(), impressions=pl.len().cast(pl.Int64))
    )
    units = cells.group_by(keys).len().filter(pl.col("len") >= 2).sort(keys).with_row_index("unit").drop("len")
    found = cells.join(units, on=keys).sort("unit", "position")
    columns = ["unit", "query", "position", "exposure", "clicks", "impressions", *context]
    found.with_columns(
        pl.col("unit", "position").cast(pl.Int64), exposure=pl.col("impressions").cast(pl.Float64)
    ).select(columns).collect(engine="streaming").write_parquet(result, compression="zstd")


CONTENDERS: dict[str, Callable[[str, str, str, Sequence[str]], None]] = {
    "clickharvest": clickharvest,
    "clickharvest, validate=False": clickharvest_unchecked,
    "hand-written SQL": sql,
    "pandas": pandas,
    "Polars": polars,
}
LIBRARIES = {
    "clickharvest": ["clickharvest.harvesting.collecting", "clickharvest.logs.validation"],
    "clickharvest, validate=False": ["clickharvest.harvesting.collecting"],
    "hand-written SQL": ["duckdb"],
    "pandas": ["pandas", "pyarrow.parquet"],
    "Polars": ["polars"],
}


def run(contender: str, log: str, result: str, temp: str, *context: str) -> None:
    """Run one contender and print what it took."""
    for library in LIBRARIES[contender]:
        importlib.import_module(library)
    start, start_cpu = time.perf_counter(), time.process_time()
    CONTENDERS[contender](log, result, temp, context)
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - start_cpu}
    print(json.dumps(took))


def compare(result: str, other: str) -> None:
    """Exit with a message unless two results have the same columns, types and rows, in the same order."""
    import duckdb

    schemas = [duckdb.execute(f"DESCRIBE FROM '{path}'").fetchall() for path in (result, other)]
    if schemas[0] != schemas[1]:
        sys.exit(f"different columns: {schemas[0]} and {schemas[1]}")
    pairs = f"FROM '{result}' AS a POSITIONAL JOIN '{other}' AS b"
    different, total = duckdb.execute(
        f"SELECT count(*) FILTER (a IS DISTINCT FROM b), count(*) {pairs}",
    ).fetchall()[0]
    if different or not total:
        sys.exit(f"{different:,} of {total:,} rows differ")


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    {"generate": generate, "run": run, "compare": compare}[task](*arguments)
