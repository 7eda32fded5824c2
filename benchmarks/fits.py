"""What a fit costs from the command line: CPU seconds and peak memory of child processes, the best of several.

make benchmark-fits writes the table. CPU seconds are user and system time together, imports and checks
of the model included.

    python benchmarks/fits.py --times 5
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

from start import SMALL_LOG, measure

ROWS = 100_000
LOGS = f"""
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from clickharvest.simulate import simulate_ab_log, simulate_protocol
pq.write_table(simulate_ab_log(pages={ROWS // 10}, queries=200)[0], "ab.parquet")
rows = simulate_protocol(queries={ROWS // 20}, sweeps=1, test_queries=100).rows()
x1 = rows["x1"].to_numpy()
device = np.where(x1 > np.median(x1), "mobile", "desktop")
pq.write_table(rows.append_column("device", pa.array(device)), "protocol.parquet")
"""
NUMBERS = ",".join(f"x{j}" for j in range(1, 11))
BAR = 4.0
FITS = (
    ("small.csv", "device", "an A/B test, 1,000 rows", BAR),
    ("ab.parquet", "device", f"an A/B test, {ROWS:,} rows of 200 queries", BAR),
    ("protocol.parquet", "device", f"the paper's protocol, {ROWS:,} rows of {ROWS // 20:,} queries", BAR),
    ("protocol.parquet", NUMBERS, "the same, ten numbers as context", None),
)
"""Log, context, what it is, and the CPU seconds it may take."""


def main() -> None:
    """Measure all fits and write the table."""
    parser = argparse.ArgumentParser(description="CPU time and memory of fits from the command line.")
    parser.add_argument("--times", type=int, default=5, help="runs of each; the best counts")
    times = parser.parse_args().times
    lines = ["| `clickharvest fit LOG --context …` | CPU seconds | peak memory, MB | at most |", "|---|--:|--:|--:|"]
    over = []
    with tempfile.TemporaryDirectory() as folder:
        for logs in (SMALL_LOG, LOGS):
            subprocess.run([sys.executable, "-c", logs], cwd=folder, check=True)
        for log, context, told, bar in FITS:
            command = [
                sys.executable,
                "-m",
                "clickharvest",
                "fit",
                log,
                "--context",
                context,
                "-o",
                "model.safetensors",
            ]
            cpu, memory = measure(command, folder, times)
            what = f"`{log}`, {'x1 … x10' if context == NUMBERS else context}: {told}"
            lines.append(f"| {what} | {cpu:.2f} | {memory:.0f} | {bar or ''} |")
            over += [told] if bar and round(cpu, 2) > bar else []
    verdict = f"FAIL: over the bar: {'; '.join(over)}" if over else "PASS: all at or under the bar"
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "ibis-framework", "duckdb"))
    lines += [
        "",
        f"- {verdict}",
        "",
        f"Best of {times}; {os.cpu_count()} cores; Python {platform.python_version()}, {versions}; "
        f"{datetime.now(UTC):%Y-%m-%d}, load average {os.getloadavg()[0]:.1f} at the end.",
    ]
    print("\n".join(lines))
    # Late, as a child's peak memory counts that of the process it was forked from.

    from tables import write_table

    write_table("fits", "\n".join(lines))
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
