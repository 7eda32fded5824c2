"""Speed of the fits, with the paper's recipe as 1 x.

    PYTHONPATH=src python3 benchmarks/speed.py --json speed.json                  # on the CPU
    PYTHONPATH=src python3 benchmarks/speed.py --device gpu --json speed.json
    PYTHONPATH=src python3 benchmarks/speed.py --queries 800 --rounds 1           # a try
    PYTHONPATH=src python3 benchmarks/speed.py --json speed.json --report         # tell what a file holds

All contenders fit the same simulated log (η=.5, 10 sweeps). They take turns, each in a fresh process, and of the rounds
the one with the least time counts, of CPU or, beside a GPU, by the clock. Only the fit is timed, from interventions to
propensities, compilation included; imports, the start of the device and reading the data are not. A run at full size
writes its table into `benchmarks/README.md`, one per device. Exits with 1 where a bar is missed. Needs NumPy, SciPy,
JAX and optax, no engine.

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
    check_device,
    fingerprint,
    fit_model,
    load_case,
    machine,
    say,
    share_machine,
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
"""Largest ratio to the recipe's seconds of CPU, on the CPU: what else runs on the machine moves these least."""
SECONDS = {AUTO: 5.0, BOOTSTRAP: 1.5}
"""Most seconds on a machine with a GPU, which nothing else should run on."""

Report = dict[str, Any]


def main() -> None:
    """Run the benchmark."""
    options = parse_options()
    reports = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    if not options.report:
        reports[options.device] = compare(options)
        if options.json:
            write_whole(options.json, json.dumps(reports, indent=1) + "\n")
    if options.device not in reports:
        sys.exit(f"nothing is known of {options.device}: run without --report")
    report = reports[options.device]
    bars = judge(report)
    text = "\n".join([*table(report), "", *(f"- {bar}" for bar in bars), "", note(report)])
    print(text)
    if report["queries"] == QUERIES:
        write_between_markers(README, f"speed-{options.device}", text)
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Speed of the fits.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of which the best counts")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of the log; fewer for a try")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="where JAX computes")
    parser.add_argument("--json", type=Path, help="file of the results, one report per device")
    parser.add_argument("--report", action="store_true", help="compute nothing, tell what the file holds")
    return parser.parse_args()


def compare(options: argparse.Namespace) -> Report:
    """Time the contenders in turns."""
    share_machine(1, options.device)
    os.environ |= dict.fromkeys(LIMITS, "1")  # as the command line has it; the recipe's XLA keeps all cores
    runs: dict[str, list[Report]] = {contender: [] for contender in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="speed-") as folder:
        say("simulating the log")
        in_fresh_process(simulate, SEED, [SETTING], options.queries, folder)
        for turn in range(options.rounds):
            for contender in CONTENDERS:
                took = in_fresh_process(measure, contender, folder, options.device)
                runs[contender].append(took)
                say(f"round {turn + 1} of {options.rounds}, {contender}: {took['seconds']:.2f} s")
    about = {"queries": options.queries, "device": options.device, "machine": machine(), "code": fingerprint()}
    return about | {"runs": runs}


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure(contender: str, folder: str, device: str) -> Report:
    """Time one fit, the first of its process."""
    import jax

    import clickharvest.estimation.estimators  # noqa: F401  imports are not what is timed

    check_device(device)
    float(jax.device_put(0.0))  # the first transfer starts the device
    case = load_case(case_path(folder, SETTING, SEED))
    begin, cpu_begin = time.perf_counter(), time.process_time()
    CONTENDERS[contender](case.interventions)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "device_kind": jax.devices()[0].device_kind,
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
    """Return the run of each contender that took the least time: of CPU, and by the clock beside a GPU."""
    least = "cpu_seconds" if report["device"] == "cpu" else "seconds"
    return {name: min(runs, key=lambda took: took[least]) for name, runs in report["runs"].items()}


def judge(report: Report) -> list[str]:
    """Return a sentence for each bar of the device."""
    best = best_of(report)
    bars = []
    for contender, bar in (BARS if report["device"] == "cpu" else SECONDS).items():
        took = best[contender]["seconds"]
        told = f"{took:.2f} seconds (bar on the GPU's machine: {bar:g})"
        if report["device"] == "cpu":
            took = best[contender]["cpu_seconds"] / best[RECIPE]["cpu_seconds"]
            told = f"{took:.3f} x the CPU seconds of {RECIPE} (bar on the CPU: {bar:g})"
        bars.append(f"{'PASS' if took <= bar else 'FAIL'}: {contender}: {told}")
    return bars


def table(report: Report) -> list[str]:
    """Return the lines of a Markdown table."""
    best = best_of(report)
    lines = ["| device | contender | seconds | ratio | CPU seconds | ratio | peak MB |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for contender, took in best.items():
        ratio, of_cpu = (took[key] / best[RECIPE][key] for key in ("seconds", "cpu_seconds"))
        cells = (
            f"{took['seconds']:.2f} | {ratio:.3f} | {took['cpu_seconds']:.1f} | {of_cpu:.3f} | {took['peak_mb']:,.0f}"
        )
        lines.append(f"| {report['device']} | {contender} | {cells} |")
    return lines


def note(report: Report) -> str:
    """Return a line on the data, the rounds, the device and the versions."""
    took = best_of(report)[RECIPE]
    data = f"{report['queries']:,} queries, {took['clicks']:,} clicks on units"
    rounds = f"best of {min(len(runs) for runs in report['runs'].values())}"
    device = f"device {report['device']} ({took['device_kind']})"
    return f"{data}; {rounds}; {device}; {report['machine']}; code {report['code']}."


if __name__ == "__main__":
    main()
