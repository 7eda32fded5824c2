"""How fast the command line starts: CPU seconds and peak memory of child processes, the best of several.

make benchmark-start writes the table. CPU seconds are user and system time together; the best of several
is what the work takes, the rest is what else the machine did.

    python benchmarks/start.py --times 9
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version

from clickharvest.commands.app import COMMANDS

ROWS = 1_000
SMALL_LOG = f"""
import pyarrow.csv
from clickharvest.simulate import simulate_ab_log
pyarrow.csv.write_csv(simulate_ab_log(pages=200, queries=10)[0].slice(0, {ROWS}), "small.csv")
"""
HELP_BAR, CHECK_BAR = 0.3, 1.5
"""CPU seconds that help and version, and the check of a small log, may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time and memory of short commands.")
    parser.add_argument("--times", type=int, default=9, help="runs of each; the best counts")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", SMALL_LOG], cwd=folder, check=True)
        rows = [(what, bar, *measure(command, folder, times)) for what, command, bar in commands()]
    lines = [
        "| | CPU seconds | peak memory, MB | at most |",
        "|---|--:|--:|--:|",
        *(f"| {what} | {cpu:.2f} | {memory:.0f} | {bar or ''} |" for what, bar, cpu, memory in rows),
        "",
    ]
    over = [what for what, bar, cpu, _ in rows if bar and round(cpu, 2) > bar]
    verdict = f"FAIL: over the bar: {', '.join(over)}" if over else "PASS: all at or under the bar"
    versions = ", ".join(f"{name} {version(name)}" for name in ("typer", "rich", "ibis-framework", "duckdb"))
    lines += [
        f"- {verdict}",
        "",
        f"A log of {ROWS:,} rows as CSV; best of {times}; {os.cpu_count()} cores; Python {platform.python_version()}, "
        f"{versions}; {datetime.now(UTC):%Y-%m-%d}, load average {os.getloadavg()[0]:.1f} at the end.",
    ]
    print("\n".join(lines))
    # Late, as a child's peak memory counts that of the process it was forked from.

    from tables import write_table

    write_table("start", "\n".join(lines))
    sys.exit(bool(over))


def commands() -> list[tuple[str, list[str], float | None]]:
    """Return what is measured: its name, the command line and the bar."""
    program = [sys.executable, "-m", "clickharvest"]
    return [
        ("`python -c pass`", [sys.executable, "-c", "pass"], None),
        ("`import typer`", [sys.executable, "-c", "import typer"], None),
        ("`import typer.rich_utils` (Typer and rich)", [sys.executable, "-c", "import typer.rich_utils"], None),
        ("`clickharvest --version`", [*program, "--version"], HELP_BAR),
        ("`clickharvest --help`", [*program, "--help"], HELP_BAR),
        *((f"`clickharvest {name} --help`", [*program, name, "--help"], HELP_BAR) for name in COMMANDS),
        ("`clickharvest check small.csv`", [*program, "check", "small.csv"], CHECK_BAR),
        (
            "`clickharvest fit small.csv --intervals sandwich`",
            [*program, "fit", "small.csv", "--intervals", "sandwich", "-o", "model.safetensors"],
            None,
        ),
    ]


def measure(command: list[str], folder: str, times: int) -> tuple[float, float]:
    """Return the least CPU seconds and peak megabytes of a command that has to end with 0 or 3."""
    found = []
    for _ in range(times):
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = child.stderr.read() if child.stderr else b""
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 3):
            sys.exit(f"{' '.join(command)} ended with {child.returncode}: {errors.decode()}")
        if child.stderr:
            child.stderr.close()
        found.append((used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
    return min(cpu for cpu, _ in found), min(memory for _, memory in found)


if __name__ == "__main__":
    main()
