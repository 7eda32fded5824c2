"""Benchmark of the harvest: clickharvest, DuckDB SQL written by hand, pandas and Polars, on synthetic click logs.

    make benchmark-harvest
    .venv/bin/python benchmarks/harvest.py --sizes 1,5 --rounds 2 --data /a/roomy/folder

Sizes are in millions of rows. Logs are made on first use and kept in the data folder. Every contender runs in a
process of its own, contenders take turns, and the best of the rounds counts. A run of all sizes writes its table
into `benchmarks/tables`; any other run prints it only. Exits with 1 where results differ or a bar is missed.

This process stays small on purpose: on Linux a child's peak memory is at least that of the parent that started it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accuracy import HERE, machine, say
from tables import write_table

OURS, UNCHECKED, SQL = "clickharvest", "clickharvest, validate=False", "hand-written SQL"
IN_MEMORY = ("pandas", "Polars")
SIZES = (1, 5, 20, 100)
MEMORY_LIMIT = 20
"""Millions of rows above which those that hold all of them in memory are left out."""
BAR_SIZE, BAR_RATIO = 20, 1.3
SPILL_SIZE = 100
BYTES_PER_ROW = 150
"""Disk to have free per row of the largest log: the log, three results, and what a contender spills."""


@dataclass(frozen=True)
class Took:
    """What one run of a contender took; `failure` says why it did not finish."""

    seconds: float = float("inf")
    cpu_seconds: float = float("inf")
    peak_mb: float = 0
    spilled_mb: float = 0
    failure: str = ""


@dataclass(frozen=True)
class Case:
    """One log and the contenders that harvest it."""

    millions: int
    contenders: tuple[str, ...]
    rounds: int
    context: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.millions}M" + "".join(f", {column}" for column in self.context)


Results = dict[Case, dict[str, Took]]


def main() -> None:
    """Run the benchmark."""
    options = parse_options()
    sizes = [int(size) for size in options.sizes.split(",")]
    options.data.mkdir(parents=True, exist_ok=True)
    check_disk(options.data, max(sizes))
    results: Results = {}
    for case in plan(sizes, options.rounds):
        log = options.data / f"log-{case.millions}M.parquet"
        if not log.exists():
            say(f"{case.millions}M: making the log")
            work("generate", f"{case.millions}000000", str(log))
        results[case] = measure(case, log, options.data)
    bars = judge(results)
    text = "\n".join([*table(results), "", *(f"- {bar}" for bar in bars)])
    print(text)
    if sizes == list(SIZES):
        write_table("harvest", f"{text}\n\n{about()}")
    sys.exit(any("FAIL" in bar for bar in bars))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Benchmark of the harvest.")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="millions of rows, such as 1,5")
    parser.add_argument("--rounds", type=int, default=3, help=f"rounds; one above {BAR_SIZE}M rows")
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the logs and of what is spilled")
    return parser.parse_args()


def plan(sizes: Sequence[int], rounds: int) -> list[Case]:
    """Return the cases: each size without context, and the bar's size with one."""
    cases = []
    for size in sizes:
        contenders = (OURS, UNCHECKED, SQL, *(IN_MEMORY if size <= MEMORY_LIMIT else ()))
        cases.append(Case(size, contenders, rounds if size <= BAR_SIZE else 1))
        if size == BAR_SIZE:
            cases.append(Case(size, (OURS, SQL), rounds, context=("device",)))
    return cases


def measure(case: Case, log: Path, data: Path) -> dict[str, Took]:
    """Run the contenders in turns, check that their results are equal, and return the best of each."""
    best: dict[str, Took] = {}
    with tempfile.TemporaryDirectory(prefix="harvest-", dir=data) as folder:
        for turn in range(case.rounds):
            for contender in case.contenders:
                took = run(contender, case, log, Path(folder))
                best[contender] = min(best.get(contender, took), took, key=lambda took: took.seconds)
                note = took.failure or f"{took.seconds:.1f} s, {took.peak_mb:,.0f} MB"
                say(f"{case}: round {turn + 1} of {case.rounds}, {contender}: {note}")
        finished = [result_path(Path(folder), contender) for contender, took in best.items() if not took.failure]
        for other in finished[1:]:
            work("compare", str(finished[0]), str(other))
        say(f"{case}: {len(finished)} results are equal, row for row")
    return best


def run(contender: str, case: Case, log: Path, folder: Path) -> Took:
    """Run one contender in a process of its own and watch its memory and what it spills."""
    spill = folder / "spill"
    spill.mkdir()
    arguments = ["run", contender, str(log), str(result_path(folder, contender)), str(spill), *case.context]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command(arguments), stdout=out, stderr=err)
        spilled = 0
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            spilled = max(spilled, size_of(spill))
            time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(status)
        shutil.rmtree(spill)
        out.seek(0)
        err.seek(0)
        peak_mb = usage.ru_maxrss * 1024 / 1e6
        if child.returncode:
            lines = err.read().decode().splitlines() or [f"ended with {child.returncode}"]
            return Took(peak_mb=peak_mb, spilled_mb=spilled / 1e6, failure=lines[-1])
        return Took(**json.load(out), peak_mb=peak_mb, spilled_mb=spilled / 1e6)


def result_path(folder: Path, contender: str) -> Path:
    """Return where a contender's result goes."""
    return folder / f"{contender}.parquet"


def size_of(folder: Path) -> int:
    """Return the bytes that a folder's files take, which may vanish meanwhile."""
    total = 0
    for file in folder.iterdir():
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def work(*arguments: str) -> None:
    """Do what is not measured, in a process of its own too; end the benchmark where it fails."""
    if subprocess.run(command(arguments)).returncode:
        sys.exit(f"failed: {' '.join(arguments)}")


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a child."""
    return [sys.executable, str(HERE / "contenders.py"), *arguments]


def judge(results: Results) -> list[str]:
    """Return a sentence for each bar that this run's sizes can tell of."""
    bars = []
    for case, took in results.items():
        if case.millions == BAR_SIZE:
            ratio = took[OURS].seconds / took[SQL].seconds
            verdict = "PASS" if ratio <= BAR_RATIO else "FAIL"
            bars.append(f"{verdict}: {case}: {OURS} takes {ratio:.2f} x {SQL} (bar: {BAR_RATIO})")
        if case.millions == SPILL_SIZE:
            ours = took[OURS]
            verdict = "FAIL" if ours.failure else "PASS"
            ending = ours.failure or f"finished, {ours.spilled_mb:,.0f} MB spilled, {ours.peak_mb:,.0f} MB at its peak"
            bars.append(f"{verdict}: {case}: {OURS} under a limit of 2 GB: {ending}")
    return bars


def table(results: Results) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [
        "| rows | contender | seconds | rows/s | ratio to SQL | CPU seconds | peak MB | spilled MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for case, best in results.items():
        lines += [f"| {case} | {contender} | {figures(case, took, best[SQL])} |" for contender, took in best.items()]
        if not case.context:
            left_out = [contender for contender in IN_MEMORY if contender not in best]
            lines += [
                f"| {case} | {contender} | left out: no limit to its memory | | | | | |" for contender in left_out
            ]
    return lines


def figures(case: Case, took: Took, reference: Took) -> str:
    """Return the cells of one contender."""
    memory = f"{took.peak_mb:,.0f} | {took.spilled_mb:,.0f}"
    if took.failure:
        return f"failed | | | | {memory}"
    speed = f"{took.seconds:.2f} | {case.millions * 1e6 / took.seconds:,.0f}"
    return f"{speed} | {took.seconds / reference.seconds:.2f} | {took.cpu_seconds:.1f} | {memory}"


def about() -> str:
    """Return a line on the machine, the versions and the day."""
    load = f"load average {os.getloadavg()[2]:.1f} at the end"
    return f"{machine('DuckDB', 'Ibis-framework', 'pandas', 'Polars')}, {load}."


def check_disk(folder: Path, millions: int) -> None:
    """End the benchmark before it fills the disk."""
    needed, free = millions * 1e6 * BYTES_PER_ROW, shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(f"{folder} has {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB are needed: pass --data or --sizes")


if __name__ == "__main__":
    main()
