"""Speed of the fits, with the paper's recipe as 1 x.

    PYTHONPATH=src python3 benchmarks/speed.py --json speed.json                  # the whole thing
    PYTHONPATH=src python3 benchmarks/speed.py --queries 800 --rounds 1           # a try
    PYTHONPATH=src python3 benchmarks/speed.py --json speed.json --report         # tell what a file holds

All contenders fit the same simulated log (η=.5, 10 sweeps). They take turns, each in a fresh process, and of the rounds
the one with the least seconds of CPU counts. Only the fit is timed, from interventions to propensities; imports and
reading the data are not. With `--large`, two contenders also fit 10 and 100 copies of the log, with queries of their
own and slightly different numbers, once each. A run at full size writes its tables into `benchmarks/tables`. Exits
with 1 where a bar is missed. Needs NumPy and SciPy, no engine.

This process stays small on purpose: on Linux a child's peak memory is at least that of the parent that started it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accuracy import DEEPER, MODELS, QUERIES, case_path, fingerprint, load_case, machine, say, simulate
from tables import write_table, write_whole

from clickharvest.commands.app import LIMITS

if TYPE_CHECKING:
    from clickharvest.estimation.estimators import CPBM
    from clickharvest.harvesting.interventions import Interventions

SETTING, SEED, ROUNDS = "s10", 0, 2
PENALTY = 10.0
"""The fixed penalty of `linear`; how long a fit takes hardly depends on it."""

RECIPE = "the paper's recipe"
LINEAR, AUTO, BOOTSTRAP = "ClickShare linear", "ClickShare auto, all of its selection", "1,000 bootstraps of linear"
INTERVALS, START = "ClickShare auto with intervals", "the same from yesterday's model"
BARS = {LINEAR: 0.05, AUTO: 0.12, BOOTSTRAP: 0.10}
"""Largest ratio to the recipe's seconds of CPU: what else runs on the machine moves these least."""

COPIES, LARGE = (1, 10, 100), (LINEAR, INTERVALS)
"""How many copies of the log the contenders of `LARGE` fit."""
JITTER = 1e-6
"""Standard deviation of what is added to the numbers of a query, so that copies have contexts of their own."""

Report = dict[str, Any]


def main() -> None:
    """Run the benchmark."""
    options = parse_options()
    if options.report:
        report: Report = json.loads(options.json.read_text())
    else:
        report = compare(options)
        if options.json:
            write_whole(options.json, json.dumps(report, indent=1) + "\n")
    bars = judge(report)
    text = "\n".join([*table(report), "", *(f"- {bar}" for bar in bars), "", *growth(report), note(report)])
    print(text)
    if report["queries"] == QUERIES:
        write_table("speed", text)
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Speed of the fits.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of which the best counts")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of the log; fewer for a try")
    parser.add_argument("--large", action="store_true", help="fit 10 and 100 copies of the log, too")
    parser.add_argument("--json", type=Path, help="file of the results")
    parser.add_argument("--report", action="store_true", help="compute nothing, tell what the file holds")
    options = parser.parse_args()
    if options.report and not options.json:
        parser.error("--report needs the file of --json")
    return options


def compare(options: argparse.Namespace) -> Report:
    """Time the contenders in turns."""
    os.environ |= dict.fromkeys(LIMITS, "1")  # as the command line has it
    runs: dict[str, list[Report]] = {contender: [] for contender in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="speed-") as folder:
        say("simulating the log")
        in_fresh_process(simulate, SEED, [SETTING], options.queries, folder)
        for turn in range(options.rounds):
            for contender in CONTENDERS:
                took = in_fresh_process(measure, contender, folder)
                runs[contender].append(took)
                say(f"round {turn + 1} of {options.rounds}, {contender}: {took['seconds']:.2f} s")
        large = {contender: [] for contender in LARGE}
        for contender, copies in product(LARGE, COPIES) if options.large else ():
            large[contender].append(took := in_fresh_process(measure, contender, folder, copies))
            say(f"{contender}, {took['rows']:,} rows: {took['seconds']:.2f} s")
    return {"queries": options.queries, "machine": machine(), "code": fingerprint(), "runs": runs, "large": large}


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure(contender: str, folder: str, copies: int = 1) -> Report:
    """Time one fit, the first of its process."""
    import clickharvest.estimation.estimators  # noqa: F401  imports are not what is timed

    interventions = repeated(load_case(case_path(folder, SETTING, SEED)).interventions, copies)
    model = CONTENDERS[contender](interventions)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    model.fit(interventions)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "rows": len(interventions),
        "clicks": int(interventions.clicks.sum()),
    }


def repeated(interventions: Interventions, copies: int) -> Interventions:
    """Return a log of so many copies, each with queries and documents of its own and slightly different numbers."""
    import numpy as np

    if copies == 1:
        return interventions
    rows, random = len(interventions), np.random.default_rng(SEED)
    whole = interventions.take(np.tile(np.arange(rows), copies))
    copy = np.repeat(np.arange(copies), rows)
    own = np.unique(interventions.query, return_inverse=True)[1]
    query = np.tile(own, copies) + copy * (own.max() + 1)
    noise = random.normal(0, JITTER, (len(whole.contexts), query.max() + 1))
    return replace(
        whole,
        unit=whole.unit + copy * (interventions.unit.max() + 1),
        query=query,
        contexts={name: column + add[query] for (name, column), add in zip(whole.contexts.items(), noise, strict=True)},
    )


def recipe(_: Interventions) -> CPBM:
    """AllPairs, two-layer sigmoid networks of 12, Adam at .03, 1,000 epochs on the full batch."""
    return estimator(**MODELS[DEEPER], intervals=None)


def linear(_: Interventions) -> CPBM:
    """One ClickShare fit of `linear` with a fixed penalty."""
    return estimator(curve="linear", penalty=PENALTY, intervals=None)


def auto(_: Interventions) -> CPBM:
    """Every curve and penalty of `auto`, cross-validated, and the fit of the chosen one."""
    return estimator(intervals=None)


def bootstrap(_: Interventions) -> CPBM:
    """The fit of `linear` with a fixed penalty, and 1,000 bootstrap replicates of it."""
    return estimator(curve="linear", penalty=PENALTY, intervals="bootstrap", replicates=1_000)


def with_intervals(_: Interventions) -> CPBM:
    """What `clickharvest fit` does."""
    return estimator()


def going_on(interventions: Interventions) -> CPBM:
    """What `clickharvest fit --start` does, from a model of the units with an even number."""
    yesterday = interventions.take(interventions.unit % 2 == 0)
    return estimator(start=estimator(intervals=None).fit(yesterday).propensities_)


def estimator(**options: Any) -> CPBM:
    """Return a CPBM."""
    from clickharvest.estimation.estimators import CPBM

    return CPBM(**options, seed=SEED)


CONTENDERS: dict[str, Callable[[Interventions], CPBM]] = {
    RECIPE: recipe,
    LINEAR: linear,
    AUTO: auto,
    BOOTSTRAP: bootstrap,
    INTERVALS: with_intervals,
    START: going_on,
}


def best_of(report: Report) -> dict[str, Report]:
    """Return the run of each contender that took the least seconds of CPU."""
    return {name: min(runs, key=lambda took: took["cpu_seconds"]) for name, runs in report["runs"].items()}


def judge(report: Report) -> list[str]:
    """Return a sentence for each bar."""
    best = best_of(report)
    bars = []
    for contender, bar in BARS.items():
        ratio = best[contender]["cpu_seconds"] / best[RECIPE]["cpu_seconds"]
        told = f"{ratio:.3f} x the CPU seconds of {RECIPE} (bar: {bar:g})"
        bars.append(f"{'PASS' if ratio <= bar else 'FAIL'}: {contender}: {told}")
    return bars


def table(report: Report) -> list[str]:
    """Return the lines of a Markdown table."""
    best = best_of(report)
    lines = ["| contender | seconds | ratio | CPU seconds | ratio | peak MB |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for contender, took in best.items():
        ratio, of_cpu = (took[key] / best[RECIPE][key] for key in ("seconds", "cpu_seconds"))
        cells = (
            f"{took['seconds']:.2f} | {ratio:.3f} | {took['cpu_seconds']:.1f} | {of_cpu:.3f} | {took['peak_mb']:,.0f}"
        )
        lines.append(f"| {contender} | {cells} |")
    return lines


def growth(report: Report) -> list[str]:
    """Return the lines of a Markdown table of the copies of the log, if they were fitted."""
    if not any(report["large"].values()):
        return []
    lines = [
        "| contender | rows | CPU seconds | of the size before | bytes a row, Python included |",
        "|---|--:|--:|--:|--:|",
    ]
    for contender, runs in report["large"].items():
        for before, took in zip([None, *runs], runs, strict=False):
            ratio = f"{took['cpu_seconds'] / before['cpu_seconds']:.1f} x" if before else ""
            each = took["peak_mb"] * 1e6 / took["rows"]
            lines.append(f"| {contender} | {took['rows']:,} | {took['cpu_seconds']:.1f} | {ratio} | {each:,.0f} |")
    return [*lines, ""]


def note(report: Report) -> str:
    """Return a line on the data, the rounds, the machine and the versions."""
    took = best_of(report)[RECIPE]
    data = f"{report['queries']:,} queries, {took['clicks']:,} clicks on units"
    rounds = f"best of {min(len(runs) for runs in report['runs'].values())}"
    return f"{data}; {rounds}; {report['machine']}; code {report['code']}."


if __name__ == "__main__":
    main()
