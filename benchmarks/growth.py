"""Benchmark of growth: tally, harvest, check, fit and weigh as a user runs them, at 1, 10 and 100 million rows.

    make benchmark-growth
    .venv/bin/python benchmarks/growth.py --sizes 1,10 --rounds 1 --data /a/roomy/folder

Sizes are in millions of rows; logs are those of the harvest benchmark. Every step is a process of its own with
`--memory-limit 2GB`; of the rounds the one with the least time of CPU counts (one round at 100 million), and growth is
judged by it. With `--json FILE` every step is kept as soon as it is done, and what the file holds is not run again: a
run may be stopped, and go on later. A run of all sizes writes its table into `benchmarks/tables`; any other run
prints it only. Exits with 1 where a step fails or a bar is missed.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accuracy import HERE
from harvest import about
from tables import write_table

SIZES = (1, 10, 100)
LIMIT_MB, MORE_MB = 2_000, 500
"""DuckDB's memory, and what the rest of the process may take."""
BAR_GROWTH = 1.1
"""Time may grow so many times as fast as rows."""
LARGE = 100
"""Millions of rows from which on one round is enough."""
STEPS = {
    "tally": "tally {log} --context device -o {folder}/tallies/day.parquet",
    "harvest": "harvest {log} --context device --max-clicks 1000000000 -o {folder}/interventions.parquet",
    "harvest of the tally": "harvest {folder}/tallies --context device --max-clicks 1000000000 -o {folder}/t.parquet",
    "check": "check {log} --context device",
    "fit": "fit {log} --context device --curve linear -o {folder}/model.safetensors",
    "weigh": "weigh {log} {folder}/model.safetensors --clip auto -o {folder}/weighted.parquet",
}
"""The steps in the order in which one needs the output of another."""

Kept = dict[str, dict[str, dict[str, Any]]]
"""What steps took, by size and round."""


@dataclass(frozen=True)
class Took:
    """What one run of a step took; `failure` says why it did not finish."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    failure: str = ""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Benchmark of growth.")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="millions of rows, such as 1,10")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the best counts")
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the logs and of what is spilled")
    parser.add_argument("--json", type=Path, help="file of the results, step by step")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    sizes = [int(size) for size in options.sizes.split(",")]
    kept: Kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    took = {size: measure(size, options, kept) for size in sizes}
    lines = ["| step | rows | seconds | growth | CPU seconds | growth | peak MB |", "|---|---|--:|--:|--:|--:|--:|"]
    bars = []
    for step in STEPS:
        for i, size in enumerate(sizes):
            found = took[size][step]
            if found.failure:
                lines.append(f"| {step} | {size}M | {found.failure} | | | | {found.peak_mb:,.0f} |")
                bars.append(f"FAIL: {step} at {size}M rows: {found.failure}")
                continue
            before = took[sizes[i - 1]][step] if i else None
            growth = ["", ""]
            if before is not None and not before.failure:
                ratios = (found.seconds / before.seconds, found.cpu_seconds / before.cpu_seconds)
                growth = [f"×{ratio:.1f}" for ratio in ratios]
                most = BAR_GROWTH * size / sizes[i - 1]
                verdict = "PASS" if ratios[1] <= most else "FAIL"
                bars.append(f"{verdict}: {step} from {sizes[i - 1]}M to {size}M: {growth[1]} of CPU (bar: ×{most:.0f})")
            lines.append(
                f"| {step} | {size}M | {found.seconds:.1f} | {growth[0]} | {found.cpu_seconds:.1f} | {growth[1]} "
                f"| {found.peak_mb:,.0f} |"
            )
            verdict = "PASS" if found.peak_mb <= LIMIT_MB + MORE_MB else "FAIL"
            bars.append(f"{verdict}: {step} at {size}M: {found.peak_mb:,.0f} MB (bar: {LIMIT_MB + MORE_MB:,})")
    text = "\n".join([*lines, "", *(f"- {bar}" for bar in bars)])
    print(text)
    if sizes == list(SIZES):
        write_table("growth", f"{text}\n\n{about()}")
    sys.exit(any("FAIL" in bar for bar in bars))


def measure(millions: int, options: argparse.Namespace, kept: Kept) -> dict[str, Took]:
    """Run all steps on a log, but for those that are kept, and return the best of each."""
    log = options.data / f"log-{millions}M.parquet"
    rounds = 1 if millions >= LARGE else options.rounds
    for turn in range(rounds):
        of_turn = kept.setdefault(f"{millions}M, round {turn + 1}", {})
        if set(of_turn) == set(STEPS):
            continue
        if not log.exists():
            command = [sys.executable, str(HERE / "contenders.py"), "generate", f"{millions}000000", str(log)]
            subprocess.run(command, check=True)
        # Steps need each other's output, which a run that was stopped leaves here.
        folder = options.data / f"growth-{millions}M-{turn + 1}"
        Path(folder, "tallies").mkdir(parents=True, exist_ok=True)
        for step, command in STEPS.items():
            if step in of_turn:
                continue
            words = command.format(log=log, folder=folder).split()
            found = run([*words, "--memory-limit", "2GB"], Path(folder, "spill"))
            of_turn[step] = asdict(found)
            note = found.failure or f"{found.seconds:.1f} s, {found.cpu_seconds:.1f} of CPU, {found.peak_mb:,.0f} MB"
            print(f"{millions}M, round {turn + 1}, {step}: {note}", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(kept, indent=1) + "\n")
        shutil.rmtree(folder)
    runs = [kept[f"{millions}M, round {turn + 1}"] for turn in range(rounds)]
    return {step: min((Took(**one[step]) for one in runs), key=_rank) for step in STEPS}


def _rank(took: Took) -> tuple[bool, float]:
    return bool(took.failure), took.cpu_seconds


def run(words: list[str], spill: Path) -> Took:
    """Run a command in a process of its own."""
    spill.mkdir(exist_ok=True)
    start = time.perf_counter()
    with tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            [sys.executable, "-m", "clickharvest", *words],
            stdout=subprocess.DEVNULL, stderr=err, env=os.environ | {"TMPDIR": str(spill)},
        )  # fmt: skip
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        said = err.read().decode().splitlines()
    shutil.rmtree(spill, ignore_errors=True)
    failure = (said or [f"ended with {child.returncode}"])[-1] if child.returncode else ""
    peak = usage.ru_maxrss * 1024 / 1e6
    return Took(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, peak, failure)


if __name__ == "__main__":
    main()
