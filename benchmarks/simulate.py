"""Speed of the simulators and of the LETOR reader.

    PYTHONPATH=src python3 benchmarks/simulate.py                    # 10M log rows of each kind; writes the table
    PYTHONPATH=src python3 benchmarks/simulate.py --millions 1       # a try
    PYTHONPATH=src python3 benchmarks/simulate.py --letor mq2007_part.txt.gz

Each piece of work runs in a process of its own, which measures its seconds (imports left out), CPU seconds and peak
memory. A run of 10M rows writes its table into `benchmarks/tables`. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accuracy import QUERIES, machine, say
from speed import in_fresh_process
from tables import write_table

BAR_SECONDS, BAR_MILLIONS = 60.0, 10
"""10M rows in under a minute."""
POSITIONS, RANKERS = 10, 2
YAHOO = {"docs": 47_000, "features": 700, "filled": 0.3}
"""The made-up LETOR file: a tenth of the documents of Yahoo's set 1, its number of features, about as sparse."""

Report = dict[str, Any]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Speed of the simulators and of the LETOR reader.")
    parser.add_argument("--millions", type=float, default=BAR_MILLIONS, help="log rows, in millions")
    parser.add_argument("--letor", action="append", default=[], help="a LETOR file to read besides")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="simulate-") as folder:
        made = Path(folder) / "yahoo.txt"
        write_letor(made)
        asked = [(name, f"{options.millions:g}") for name in SIMULATORS]
        asked += [("read_letor", str(made)), ("read_letor, cached", str(made))]
        asked += [("read_letor", path) for path in options.letor]
        reports = []
        for work in asked:
            reports.append(in_fresh_process(measure, *work))
            say(f"{reports[-1]['what']}: {reports[-1]['seconds']:.1f} s")
    bars = judge(reports, options.millions)
    text = "\n".join(
        [
            *table(reports),
            "",
            *(f"- {bar}" for bar in bars),
            "",
            f"{machine()}, load average {os.getloadavg()[0]:.1f} at the end.",
        ]
    )
    print(text)
    if options.millions == BAR_MILLIONS:
        write_table("simulate", text)
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def measure(name: str, argument: str) -> Report:
    """Return what one piece of work made and took."""
    import pyarrow  # noqa: F401  an import that should not count

    import clickharvest.simulate  # noqa: F401

    if name == "read_letor, cached":
        read_letor(argument, cached=True)
    start, cpu = time.perf_counter(), time.process_time()
    made = SIMULATORS[name](float(argument)) if name in SIMULATORS else read_letor(argument, "cached" in name)
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"name": name, **took, "peak_mb": peak, **made}


def simulate_rows(clicks: str) -> Callable[[float], Report]:
    """Return a run of the protocol, corpus and rankers included, that ends with one row per display and position."""

    def simulate(millions: float) -> Report:
        from clickharvest.simulate import simulate_protocol

        sweeps = millions * 1e6 / (RANKERS * POSITIONS * QUERIES)
        rows = simulate_protocol(sweeps=sweeps, clicks=clicks, seed=0).rows()
        return {"what": f"protocol, {clicks}: corpus, rankers, clicks, rows", "rows": rows.num_rows}

    return simulate


def simulate_ab(millions: float) -> Report:
    """Run the A/B test."""
    from clickharvest.simulate import simulate_ab_log

    log, _ = simulate_ab_log(pages=round(millions * 1e6 / POSITIONS), queries=10_000, seed=0)
    return {"what": "A/B test", "rows": log.num_rows}


SIMULATORS: dict[str, Callable[[float], Report]] = {
    "protocol, pbm": simulate_rows("pbm"),
    "protocol, cascade": simulate_rows("cascade"),
    "ab": simulate_ab,
}


def read_letor(path: str, cached: bool) -> Report:
    """Read a LETOR file, with a cache beside it or without any."""
    from clickharvest.simulate import read_letor as read

    corpus = read(path, cache=Path(path).parent if cached else None)
    size = f"{Path(path).stat().st_size / 1e6:.0f} MB, {corpus.features.shape[1]} features"
    return {"what": f"{'cache of' if cached else 'LETOR file'} {Path(path).name} ({size})", "rows": len(corpus.grades)}


def write_letor(path: Path) -> None:
    """Write a LETOR file of Yahoo's shape."""
    import numpy as np

    random = np.random.default_rng(0)
    docs, features = int(YAHOO["docs"]), int(YAHOO["features"])
    with path.open("w") as file:
        for doc in range(docs):
            chosen = np.flatnonzero(random.random(features) < YAHOO["filled"]) + 1
            pairs = zip(chosen.tolist(), random.random(len(chosen)).tolist(), strict=True)
            values = " ".join(f"{index}:{value:.5g}" for index, value in pairs)
            file.write(f"{random.integers(5)} qid:{doc // 24} {values}\n")


def judge(reports: list[Report], millions: float) -> list[str]:
    """Return a line for each bar: a minute for 10M rows or fewer, in proportion for more."""
    lines = []
    for report in (report for report in reports if report["name"] in SIMULATORS):
        limit = BAR_SECONDS * max(1.0, millions / BAR_MILLIONS)
        verdict = "PASS" if report["seconds"] < limit else "FAIL"
        lines.append(
            f"{verdict}: {report['what']}: {report['rows']:,} rows in {report['seconds']:.1f} s (bar: {limit:.0f})"
        )
    return lines


def table(reports: list[Report]) -> list[str]:
    """Return the lines of the table."""
    lines = ["| work | rows | seconds | rows/s | CPU seconds | peak MB |", "|---|--:|--:|--:|--:|--:|"]
    for r in reports:
        numbers = f"{r['rows']:,} | {r['seconds']:.1f} | {r['rows'] / r['seconds']:,.0f} | {r['cpu_seconds']:.1f}"
        lines.append(f"| {r['what']} | {numbers} | {r['peak_mb']:,.0f} |")
    return lines


if __name__ == "__main__":
    main()
