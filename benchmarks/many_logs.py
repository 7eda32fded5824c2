"""What benchmarks of many worlds share: simulate logs of each, keep what was measured, print and write the table.

What was measured is kept in `benchmarks/data/<name>.json` (`--json`), and a run goes on where an earlier one ended.
Once all worlds have their logs (or with `--report`) the table in `benchmarks/tables` is written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from accuracy import HERE, machine, say
from tables import write_table, write_whole

Kept = dict[str, list[Any]]
"""By the name of a world, the outcome of each log."""
Measure = Callable[[str, int], Any]
SECONDS = 5
"""Seconds between two writes of the file."""


def main(
    name: str,
    told: str | None,
    logs: Mapping[str, int],
    measure: Measure,
    table: Callable[[Kept], tuple[list[str], list[str]]],
) -> None:
    """Measure the logs that are missing, print the table and its bars, and exit with 1 where a bar is missed.

    Args:
        name: name of the benchmark, of its file and of its section's markers.
        told: docstring of the benchmark.
        logs: by the name of a world, its number of logs.
        measure: returns the outcome of a log, by the name of its world and its seed.
        table: returns the lines of the table, and a sentence for each bar, which begins with PASS or FAIL.
    """
    parser = argparse.ArgumentParser(description=(told or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, help="logs of each world, at most; by default what the table needs")
    parser.add_argument("--worlds", nargs="+", default=list(logs), choices=list(logs), metavar="WORLD")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, default=HERE / "data" / f"{name}.json", help="file of what was measured")
    parser.add_argument("--report", action="store_true", help="measure nothing more, write the README's table")
    options = parser.parse_args()
    kept: dict[str, dict[str, Any]] = json.loads(options.json.read_text()) if options.json.exists() else {}
    wanted = {world: min(logs[world], options.logs or logs[world]) for world in options.worlds}
    missing = [
        (world, seed)
        for seed in range(max(wanted.values()))
        for world in options.worlds
        if not options.report and seed < wanted[world] and str(seed) not in kept.get(world, {})
    ]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    saved = time.monotonic()
    for done, (world, seed, outcome) in enumerate(run(missing, measure, options.jobs), 1):
        kept.setdefault(world, {})[str(seed)] = outcome
        if time.monotonic() > saved + SECONDS or done == len(missing):
            write_whole(options.json, json.dumps(kept))
            say(f"{done} of {len(missing)} logs")
            saved = time.monotonic()
    lines, bars = table({world: list(kept[world].values()) for world in options.worlds if kept.get(world)})
    text = "\n".join([*lines, "", *judge(bars), "", f"{machine()}."])
    print(text)
    if options.report or all(len(kept.get(world, {})) >= own for world, own in logs.items()):
        write_table(name, text)
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def judge(bars: Sequence[str]) -> list[str]:
    """Return how many bars hold, and the sentences of the others."""
    others = [bar for bar in bars if not bar.startswith("PASS")]
    return [
        f"{len(bars) - len(others)} of {len(bars)} bars hold.",
        *(["", *(f"- {bar}" for bar in others)] * bool(others)),
    ]


def run(logs: list[tuple[str, int]], measure: Measure, jobs: int) -> Iterator[tuple[str, int, Any]]:
    """Yield world, seed and outcome as they come."""
    if jobs == 1:
        yield from ((world, seed, measure(world, seed)) for world, seed in logs)
        return
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        work = {pool.submit(measure, world, seed): (world, seed) for world, seed in logs}
        for done in as_completed(work):
            yield (*work[done], done.result())
