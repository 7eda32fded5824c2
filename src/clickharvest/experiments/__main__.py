"""Measure experiments where there is no engine: `python3 -m clickharvest.experiments table-pbm --jobs 16`.

Needs NumPy, SciPy, JAX and optax. Results go into a folder, what it holds is not measured again, and `clickharvest
reproduce` makes tables and figures of it elsewhere. Exits with 1 where a run failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from clickharvest.errors import ClickharvestError
from clickharvest.experiments import experiment_ids, load_experiment
from clickharvest.experiments.families.corpora import SYNTHETIC, find_corpus
from clickharvest.experiments.runner.measuring import default_jobs, measure_missing
from clickharvest.experiments.runner.runs import Run
from clickharvest.experiments.runner.store import Store


def main(arguments: list[str] | None = None) -> int:
    """Measure what the arguments ask for; return the exit code."""
    options = parse_options(arguments)
    if options.device != "auto":
        os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[options.device]
    try:
        corpus = find_corpus(options.corpus)
        experiments = [load_experiment(name) for name in options.ids or experiment_ids()]
        if corpus.name != SYNTHETIC and not options.ids:
            experiments = [experiment for experiment in experiments if experiment.world is None]
        runs: list[Run] = []
        for experiment in experiments:
            reason = experiment.unavailable()
            if experiment.needs_engine and find_spec("ibis") is None:
                reason = "it needs Ibis and DuckDB"
            if reason is None:
                runs += experiment.runs(experiment.plan(quick=options.quick, corpus=corpus.name))
            else:
                say(f"{experiment.id} is left out: {reason}")
        folder = options.results / "quick" if options.quick else options.results
        failures = measure_missing(runs, Store(folder), jobs=options.jobs, source=corpus.path, tick=tell)
    except ClickharvestError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    for failure in failures:
        print(f"FAIL: {failure.run}: {failure.error}", file=sys.stderr)
    return int(bool(failures))


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m clickharvest.experiments", description="Measure experiments.")
    parser.add_argument("ids", nargs="*", metavar="ID", help=f"of {', '.join(experiment_ids())}; all by default")
    parser.add_argument("--corpus", default=SYNTHETIC, help="synthetic, mq2007_part, mq2008 or a LETOR path")
    parser.add_argument("--quick", action="store_true", help="small logs and few seeds")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="processes at work; they share the cores")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto", help="where JAX computes")
    return parser.parse_args(arguments)


def tell(done: int, total: int, last: str) -> None:
    """Print a line of progress."""
    say(f"{done} of {total}: {last}")


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
