"""Measure experiments where there is no engine: `python3 -m clickharvest.experiments table-pbm --jobs 16`.

Needs NumPy, SciPy and lazy_loader. Results go into a folder, what it holds is not measured again, and
`clickharvest reproduce` makes tables and figures of it elsewhere. Exits with 1 where a run failed.

`--stamp REASON` measures nothing new: it gives runs that older code has measured the fingerprint of the code as it is
now, after measuring a few of them again. Exits with 1 where one of these came out otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from clickharvest.errors import ClickharvestError, InputError
from clickharvest.experiments import Experiment, experiment_ids, load_experiment, load_experiments
from clickharvest.experiments.families.corpora import find_corpus
from clickharvest.experiments.runner.experiment import SYNTHETIC
from clickharvest.experiments.runner.measuring import default_jobs, measure_missing
from clickharvest.experiments.runner.runs import Run
from clickharvest.experiments.runner.stamping import TOLERANCE, stamp
from clickharvest.experiments.runner.store import Store


def main(arguments: list[str] | None = None) -> int:
    """Measure what the arguments ask for; return the exit code."""
    options = parse_options(arguments)
    try:
        experiments = [load_experiment(name) for name in options.ids or experiment_ids()]
        store = Store(options.results / "quick" if options.quick else options.results)
        return (measure if options.stamp is None else stamp_kept)(experiments, store, options)
    except ClickharvestError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code


def measure(experiments: Sequence[Experiment], store: Store, options: argparse.Namespace) -> int:
    """Measure the experiments that can run here, on one corpus."""
    corpus = find_corpus(options.corpus)
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
    failures = measure_missing(
        runs, store, jobs=options.jobs, source=corpus.path, keep_stale=options.keep_stale, update=tell
    )
    for failure in failures:
        print(f"FAIL: {failure.run}: {failure.error}", file=sys.stderr)
    return int(bool(failures))


def stamp_kept(experiments: Sequence[Experiment], store: Store, options: argparse.Namespace) -> int:
    """Stamp the stale runs of experiments in all worlds of the store whose data are at hand."""
    corpora: dict[str, Path | None] = {}
    for world in set(store.worlds()) - {experiment.world for experiment in load_experiments()}:
        try:
            corpora[world] = find_corpus(world).path
        except InputError as error:
            say(f"{world} is left out: {error}")
    runs = [
        run
        for experiment in experiments
        if experiment.unavailable() is None
        for world in (sorted(corpora) if experiment.world is None else [experiment.world])
        for run in experiment.runs(experiment.plan(quick=options.quick, corpus=world))
    ]
    found = stamp(
        runs,
        store,
        options.stamp,
        sources=corpora,
        sample=options.sample,
        tolerance=options.tolerance,
        jobs=options.jobs,
        update=tell,
    )
    differing = []
    for one in found:
        print(f"{one.family}: {one.repeated} runs repeated, {one.stamped} stamped", flush=True)
        for told in one.differing:
            print(f"  DIFFERS {told}", flush=True)
        differing.append(bool(one.differing))
    if not differing:
        print("No run is stale: there is nothing to stamp.")
    return int(any(differing))


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m clickharvest.experiments", description="Measure experiments.")
    parser.add_argument("ids", nargs="*", metavar="ID", help=f"of {', '.join(experiment_ids())}; all by default")
    parser.add_argument("--corpus", default=SYNTHETIC, help="synthetic, mq2007_part, mq2008 or a LETOR path")
    parser.add_argument("--quick", action="store_true", help="small logs and few seeds")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="processes at work; they share the cores")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--keep-stale", action="store_true", help="do not repeat what other code has measured")
    parser.add_argument(
        "--stamp", metavar="REASON", help="give stale runs the fingerprint of the code, if a sample is repeated by it"
    )
    parser.add_argument(
        "--sample", type=int, default=1, help="runs of a family that --stamp repeats, of every model and world"
    )
    parser.add_argument(
        "--tolerance", type=float, default=TOLERANCE, help="how much numbers of --stamp may differ; default %(default)g"
    )
    return parser.parse_args(arguments)


def tell(share: float, note: str = "", /) -> None:
    """Print a line of progress."""
    say(note)


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
