"""Benchmark of preparation: from interventions to the arrays that fits take, at 1.33 and 13.3 million rows.

    make benchmark-prepare
    .venv/bin/python benchmarks/prepare.py --copies 10 --rounds 1

The log is that of the speed benchmark, 132,794 rows of interventions and ten numbers for a context, copied 10 and 100
times; every copy has queries, and contexts, of its own. A second log has these rows shuffled, as no harvest leaves
them, a third texts for queries and a device for a context. Every run is a process of its own; the best of the rounds
counts (one round at 100 copies); memory is measured in a run of its own, because to trace it takes time. A run with the
default options writes its table into `benchmarks/tables`; any other run prints it only. Exits with 1 where a bar is
missed; shuffled rows have none.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

from accuracy import QUERIES, case_path, load_case, machine, say, simulate
from speed import in_fresh_process
from tables import write_table

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions

SETTING, SEED = "s10", 0
COPIES = (10, 100)
BAR_COPIES, BAR_SECONDS, BAR_BYTES = 100, 8.0, 150.0
LARGE = 100
"""Copies from which on one round is enough."""
NUMBERS, SHUFFLED, DEVICE = "ten numbers", "ten numbers, rows shuffled", "device, texts for queries"
STEPS = ("positions", "encoder", "sample", "support")
"""`supported_positions`, `ContextEncoder.fit`, `make_sample` and `find_support`."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Benchmark of preparation.")
    parser.add_argument("--copies", default=",".join(map(str, COPIES)), help="how often the log is copied, as 10,100")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of which the best counts")
    options = parser.parse_args()
    lines = ["| rows | context | " + " | ".join(STEPS) + " | CPU seconds | seconds | peak, bytes a row |"]
    lines.append("|--:|---|" + "--:|" * (len(STEPS) + 3))
    bars = []
    with tempfile.TemporaryDirectory(prefix="prepare-") as folder:
        say("simulating the log")
        in_fresh_process(simulate, SEED, [SETTING], QUERIES, folder)
        for copies in map(int, options.copies.split(",")):
            for case in (NUMBERS, SHUFFLED, DEVICE):
                found = best(folder, case, copies, options.rounds)
                steps = " | ".join(f"{found[step]:.2f}" for step in STEPS)
                lines.append(
                    f"| {found['rows']:,.0f} | {case} | {steps} | {found['cpu_seconds']:.1f} | {found['seconds']:.1f} "
                    f"| {found['bytes']:.0f} |"
                )
                if copies == BAR_COPIES and case != SHUFFLED:
                    bars.append(verdict(case, "seconds of CPU", found["cpu_seconds"], BAR_SECONDS))
                    bars.append(verdict(case, "bytes a row", found["bytes"], BAR_BYTES))
    load = f"load average {os.getloadavg()[0]:.1f} at the end"
    text = "\n".join(
        [*lines, "", *bars, "", f"Best of {options.rounds}, of one at {LARGE} copies; {machine()}, {load}."]
    )
    print(text)
    if vars(options) == vars(parser.parse_args([])):
        write_table("prepare", text)
    sys.exit(any("FAIL" in bar for bar in bars))


def verdict(case: str, unit: str, found: float, bar: float) -> str:
    """Return whether a bar is met."""
    return f"- {'PASS' if found <= bar else 'FAIL'}: {case}: {found:.1f} {unit} (bar: {bar:.0f})"


def best(folder: str, case: str, copies: int, rounds: int) -> dict[str, float]:
    """Return the quickest of the rounds, and the memory that one more run took."""
    took = []
    for turn in range(1 if copies >= LARGE else rounds):
        took.append(in_fresh_process(measure, folder, case, copies, False))
        say(f"{case}, {copies} copies, round {turn + 1}: {took[-1]['cpu_seconds']:.1f} s of CPU")
    memory = in_fresh_process(measure, folder, case, copies, True)
    say(f"{case}, {copies} copies: {memory['bytes']:.0f} bytes a row")
    return min(took, key=lambda found: found["cpu_seconds"]) | {"bytes": memory["bytes"]}


def measure(folder: str, case: str, copies: int, is_traced: bool) -> dict[str, float]:
    """Prepare a log once; CPU seconds of the steps, or bytes a row at the peak, beside those of the interventions."""
    import numpy as np

    from clickharvest.estimation.sample import make_sample, supported_positions
    from clickharvest.estimation.support import find_support
    from clickharvest.model.contexts import ContextEncoder
    from clickharvest.model.curves import make_curve

    interventions = copied(load_case(case_path(folder, SETTING, SEED)).interventions, case, copies)
    clock = [time.process_time()]
    begin = time.perf_counter()
    if is_traced:
        tracemalloc.start()
    positions = supported_positions(interventions, 1)
    clock.append(time.process_time())
    encoder = ContextEncoder.fit(interventions.contexts)
    clock.append(time.process_time())
    sample = make_sample(interventions, positions, encoder)
    clock.append(time.process_time())
    curve = make_curve("linear", positions, 1, sample.x.shape[1])
    find_support(sample, curve, curve.init(np.random.default_rng(SEED)), encoder)
    clock.append(time.process_time())
    found = dict(zip(STEPS, np.diff(clock).tolist(), strict=True))
    found |= {"seconds": time.perf_counter() - begin, "cpu_seconds": clock[-1] - clock[0]}
    peak = tracemalloc.get_traced_memory()[1] if is_traced else 0
    return found | {"rows": len(interventions), "bytes": peak / len(interventions)}


def copied(one: Interventions, case: str, copies: int) -> Interventions:
    """Return copies of interventions, each with units, queries and contexts of its own."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    copy = np.repeat(np.arange(copies), len(one))
    repeated = one.take(np.tile(np.arange(len(one)), copies))
    n_queries = int(one.query.max()) + 1
    query = repeated.query + n_queries * copy
    if case == DEVICE:
        texts = np.array([f"query {q:010}" for q in range(n_queries * copies)], dtype=object)
        devices = np.array(["phone", "desktop", "tablet"], dtype=object)[rng.choice(3, n_queries * copies)]
        contexts, query = {"device": devices[query]}, texts[query]
    else:
        moved = rng.normal(size=(len(one.contexts), n_queries * copies), scale=0.01)
        columns = zip(repeated.contexts.items(), moved, strict=True)
        contexts = {name: column + more[query] for (name, column), more in columns}
    unit = repeated.unit + (int(one.unit.max()) + 1) * copy
    whole = replace(repeated, unit=unit, query=query, contexts=contexts)
    return whole.take(rng.permutation(len(whole))) if case == SHUFFLED else whole


if __name__ == "__main__":
    main()
