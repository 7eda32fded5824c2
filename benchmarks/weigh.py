"""Benchmark of weighing: clickharvest against DuckDB merely copying the log, on the logs of the harvest benchmark.

What must be paid for the further columns is shown by a third contender: the same copy with propensity and weight,
written by hand for the very curve, without checks, clip by the clicks, support and report.

    make benchmark-weigh
    .venv/bin/python benchmarks/weigh.py --millions 1 --rounds 2

Every contender runs in a process of its own, contenders take turns, and the best of the rounds counts. What was written
is checked: as many rows, the log's own values, and the propensity of every row. A run with the default options writes
its table into `benchmarks/tables`; any other run prints it only. Exits with 1 where a result is wrong or a bar is
missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from accuracy import HERE, machine, say
from speed import in_fresh_process
from tables import write_table

COPY = "DuckDB copies the log"
BARE = "DuckDB copies the log and adds two columns by hand"
OURS = "clickharvest"
BAR_MILLIONS, BAR_RATIO = 20, 1.5
CASES = {"no context": (), "device": ("device",), "age, own to every page": ("age",)}
"""Context columns of the model in each case."""
ETA = {"phone": 1.0, "desktop": 0.5}
"""p_k = k^−η; without context it is that of a phone, and of an age the age itself."""
OWN_ETA = {
    (): str(ETA["phone"]),
    ("device",): "CASE device " + " ".join(f"WHEN '{d}' THEN {e}" for d, e in ETA.items()) + " END",
    ("age",): "age",
}
"""The same in SQL, by the model's context columns."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Benchmark of weighing.")
    parser.add_argument("--millions", type=int, default=BAR_MILLIONS, help="millions of rows")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the best counts")
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the logs")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    took = {case: measure(case, options.millions, options) for case in CASES}
    lines = ["| rows | context | contender | seconds | ratio to copy | CPU seconds | ratio | peak MB |"]
    lines.append("|---|---|---|--:|--:|--:|--:|--:|")
    bars = []
    for case, best in took.items():
        for contender, found in best.items():
            ratios = [found[key] / best[COPY][key] for key in ("seconds", "cpu_seconds")]
            lines.append(
                f"| {options.millions}M | {case} | {contender} | {found['seconds']:.2f} | {ratios[0]:.2f} "
                f"| {found['cpu_seconds']:.1f} | {ratios[1]:.2f} | {found['peak_mb']:,.0f} |"
            )
            if contender == OURS and options.millions == BAR_MILLIONS:
                verdict = "PASS" if ratios[0] <= BAR_RATIO else "FAIL"
                bars.append(f"- {verdict}: {case}: {ratios[0]:.2f} x the copy (bar: {BAR_RATIO})")
    text = "\n".join([*lines, "", *bars])
    print(text)
    if vars(options) == vars(parser.parse_args([])):
        load = f"load average {os.getloadavg()[0]:.1f} at the end"
        write_table("weigh", f"{text}\n\n{machine('DuckDB', 'Ibis-framework')}, {load}.")
    sys.exit(any("FAIL" in bar for bar in bars))


def measure(case: str, millions: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run copy and clickharvest in turns and return the best of each."""
    log = options.data / f"log-{millions}M.parquet"
    if not log.exists():
        rows = f"{millions}000000"
        subprocess.run([sys.executable, str(HERE / "contenders.py"), "generate", rows, str(log)], check=True)
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="weigh-", dir=options.data) as folder:
        if "age" in CASES[case]:
            log = with_age(log, Path(folder, "log.parquet"))
        for turn in range(options.rounds):
            for contender in (COPY, BARE, OURS):
                result = str(Path(folder, "result.parquet"))
                found = in_fresh_process(run, case, contender, str(log), result)
                best[contender] = min(best.get(contender, found), found, key=lambda took: took["seconds"])
                say(f"{case}, round {turn + 1}, {contender}: {found['seconds']:.2f} s")
                if turn == 0 and contender == OURS:
                    check(case, str(log), result)
    return best


def with_age(log: Path, path: Path) -> Path:
    """Write the log with a number that every page has for its own."""
    import duckdb

    age = "hash(file_row_number // 10) / 18446744073709551616.0 AS age"
    duckdb.execute(
        f"COPY (SELECT * EXCLUDE (file_row_number), {age} FROM read_parquet('{log}', file_row_number = true)) "
        f"TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
    )
    return path


def run(case: str, contender: str, log: str, result: str) -> dict[str, float]:
    """Copy or weigh the log and return what it took, without imports and the making of the model."""
    work = weigher(case, log, result) if contender == OURS else copier(case if contender == BARE else None, log, result)
    start, start_cpu = time.perf_counter(), time.process_time()
    work()
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - start_cpu}
    return took | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def copier(case: str | None, log: str, result: str) -> Any:
    """Return what copies the log's columns with DuckDB, and adds propensity and weight of a case where one is named."""
    import duckdb

    p = "" if case is None else f", exp(-({OWN_ETA[CASES[case]]}) * ln(position)) AS propensity"
    weight = "" if case is None else ", 1 / greatest(propensity, 0.001) AS ips_weight"
    query = f"SELECT *{p}{weight} FROM '{log}'"
    return lambda: duckdb.execute(f"COPY ({query}) TO '{result}' (FORMAT parquet, COMPRESSION zstd)")


def weigher(case: str, log: str, result: str) -> Any:
    """Return what reads the log, with its checks, and weighs it as a user does."""
    import numpy as np

    from clickharvest.logs import validation  # noqa: F401
    from clickharvest.logs.reading import read_log
    from clickharvest.model.contexts import ContextColumn, ContextEncoder
    from clickharvest.model.curves import make_curve
    from clickharvest.model.propensities import Propensities
    from clickharvest.weights.weighing import weigh_to_parquet

    context = CASES[case]
    encoder = None
    log_k = np.log(np.arange(2, 11))
    params = {"b": -log_k}
    if context == ("device",):
        encoder = ContextEncoder((ContextColumn("device", "categorical", missing=False, levels=tuple(ETA)),))
        params = {"b": 0 * log_k, "W": np.outer([*(-eta for eta in ETA.values()), 0.0], log_k)}
    elif context:
        encoder = ContextEncoder((ContextColumn("age", "numeric", missing=False),))
        params = {"b": 0 * log_k, "W": -log_k[None]}
    features = 0 if encoder is None else len(encoder.feature_names)
    curve = make_curve("linear" if context else "constant", tuple(range(1, 11)), 1, features)
    model = Propensities(curve, params, encoder, tuple(range(1, 11)))
    return lambda: weigh_to_parquet(read_log(log, context=context), model, result, clip="auto")


def check(case: str, log: str, result: str) -> None:
    """End the benchmark unless the result holds the log's rows with their propensities."""
    import duckdb

    columns = "query, doc, position, click, device" + (", age" if "age" in CASES[case] else "")
    rows = f"SELECT count(*), bit_xor(hash({columns})), sum(hash({columns})::DOUBLE) FROM"
    ours, theirs = (duckdb.execute(f"{rows} '{path}'").fetchone() for path in (result, log))
    if ours[:2] != theirs[:2]:
        sys.exit(f"{case}: the rows are not those of the log: {ours}, expected {theirs}")
    truth = f"position ** -({OWN_ETA[CASES[case]]})"
    wrong = f"abs(propensity / {truth} - 1) > 1e-9 OR propensity IS NULL OR ips_weight IS NULL"
    count = duckdb.execute(f"SELECT count(*) FROM '{result}' WHERE {wrong}").fetchone()
    if count != (0,):
        sys.exit(f"{case}: {count} rows have a wrong propensity")


if __name__ == "__main__":
    main()
