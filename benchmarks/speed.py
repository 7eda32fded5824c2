"""Speed of the fits, with the paper's recipe as 1 x.

    PYTHONPATH=src python3 benchmarks/speed.py --json speed.json                  # the whole thing
    PYTHONPATH=src python3 benchmarks/speed.py --queries 800 --rounds 1           # a try
    PYTHONPATH=src python3 benchmarks/speed.py --json speed.json --report         # tell what a file holds

All contenders fit the same simulated log (η=.5, 10 sweeps). They take turns, each in a fresh process, and of the rounds
the one with the least seconds of CPU counts. Only the fit is timed, from interventions to propensities; imports and
reading the data are not. A run at full size writes its table into `benchmarks/README.md`. Exits with 1 where a bar is
missed. Needs NumPy and SciPy, no engine.

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
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accuracy import (
    DEEPER,
    QUERIES,
    README,
    case_path,
    fingerprint,
    fit_model,
    load_case,
    machine,
    say,
    simulate,
    write_between_markers,
    write_whole,
)

from clickharvest.commands.threads import LIMITS

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions

SETTING, SEED, ROUNDS = "s10", 0, 2
PENALTY = 10.0
"""The fixed penalty of `linear`; how long a fit takes hardly depends on it."""

RECIPE = "the paper's recipe"
LINEAR, AUTO, BOOTSTRAP = "ClickShare linear", "ClickShare auto, all of its selection", "1,000 bootstraps of linear"
BARS = {LINEAR: 0.05, AUTO: 0.15, BOOTSTRAP: 0.15}
"""Largest ratio to the recipe's seconds of CPU: what else runs on the machine moves these least."""

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
    text = "\n".join([*table(report), "", *(f"- {bar}" for bar in bars), "", note(report)])
    print(text)
    if report["queries"] == QUERIES:
        write_between_markers(README, "speed", text)
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Speed of the fits.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of which the best counts")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of the log; fewer for a try")
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
    return {"queries": options.queries, "machine": machine(), "code": fingerprint(), "runs": runs}


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure(contender: str, folder: str) -> Report:
    """Time one fit, the first of its process."""
    import clickharvest.estimation.estimators  # noqa: F401  imports are not what is timed

    case = load_case(case_path(folder, SETTING, SEED))
    begin, cpu_begin = time.perf_counter(), time.process_time()
    CONTENDERS[contender](case.interventions)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "clicks": int(case.interventions.clicks.sum()),
    }


def fit_recipe(interventions: Interventions) -> None:
    """AllPairs, two-layer sigmoid networks of 12, Adam at .03, 1,000 epochs on the full batch."""
    fit_model(DEEPER, interventions, SEED)


def fit_linear(interventions: Interventions) -> None:
    """One ClickShare fit of `linear` with a fixed penalty."""
    from clickharvest.estimation.estimators import CPBM

    CPBM(curve="linear", penalty=PENALTY, intervals=None).fit(interventions)


def fit_auto(interventions: Interventions) -> None:
    """Every curve and penalty of `auto`, cross-validated, and the fit of the chosen one."""
    from clickharvest.estimation.estimators import CPBM

    CPBM(intervals=None).fit(interventions)


def fit_bootstrap(interventions: Interventions) -> None:
    """The fit of `linear` with a fixed penalty, and 1,000 bootstrap replicates of it."""
    from clickharvest.estimation.estimators import CPBM

    CPBM(curve="linear", penalty=PENALTY, intervals="bootstrap", replicates=1_000).fit(interventions)


CONTENDERS: dict[str, Callable[[Interventions], None]] = {
    RECIPE: fit_recipe,
    LINEAR: fit_linear,
    AUTO: fit_auto,
    BOOTSTRAP: fit_bootstrap,
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


def note(report: Report) -> str:
    """Return a line on the data, the rounds, the machine and the versions."""
    took = best_of(report)[RECIPE]
    data = f"{report['queries']:,} queries, {took['clicks']:,} clicks on units"
    rounds = f"best of {min(len(runs) for runs in report['runs'].values())}"
    return f"{data}; {rounds}; {report['machine']}; code {report['code']}."


if __name__ == "__main__":
    main()
