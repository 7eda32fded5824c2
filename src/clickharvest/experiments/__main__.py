"""Measure experiments where there is no engine: `python3 -m clickharvest.experiments table-pbm --jobs 16`.

Needs NumPy, SciPy and lazy_loader. Results go into a folder, what it holds is not measured again, and
`clickharvest reproduce` makes tables and figures of it elsewhere. Exits with 1 where a run failed.

`--repeat` measures a sample of what is kept again, and notes what came of it beside the results. Exits with 1 where a
run came out otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path

from clickharvest.errors import ClickharvestError, InputError
from clickharvest.experiments import Experiment, experiment_ids, load_experiment, load_experiments
from clickharvest.experiments.families.corpora import find_corpus
from clickharvest.experiments.runner.experiment import SYNTHETIC
from clickharvest.experiments.runner.measuring import default_jobs, measure_missing
from clickharvest.experiments.runner.repeating import FILE, choose_sample, repeat
from clickharvest.experiments.runner.runs import Run
from clickharvest.experiments.runner.store import Store
from clickharvest.files import atomic_path


def main(arguments: list[str] | None = None) -> int:
    """Measure what the arguments ask for; return the exit code."""
    options = parse_options(arguments)
    try:
        experiments = [load_experiment(name) for name in options.ids or experiment_ids()]
        store = Store(options.results / "quick" if options.quick else options.results)
        return (repeat_kept if options.repeat else measure)(experiments, store, options)
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
        if can_run(experiment):
            runs += experiment.runs(experiment.plan(quick=options.quick, corpus=corpus.name))
    failures = measure_missing(runs, store, jobs=options.jobs, source=corpus.path, update=tell)
    for failure in failures:
        print(f"FAIL: {failure.run}: {failure.error}", file=sys.stderr)
    return int(bool(failures))


def repeat_kept(experiments: Sequence[Experiment], store: Store, options: argparse.Namespace) -> int:
    """Repeat a sample of the kept runs of experiments, in all worlds of the store whose data are at hand."""
    corpora: dict[str, Path | None] = {}
    for world in set(store.worlds()) - {experiment.world for experiment in load_experiments()}:
        try:
            corpora[world] = find_corpus(world).path
        except InputError as error:
            say(f"{world} is left out: {error}")
    kept = store.results(
        run
        for experiment in experiments
        if can_run(experiment)
        for world in (sorted(corpora) if experiment.world is None else [experiment.world])
        for run in experiment.runs(experiment.plan(quick=options.quick, corpus=world))
    )
    file = store.folder / FILE
    note = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    every = []
    for family in dict.fromkeys(result.run.family for result in kept):
        chosen = choose_sample([result for result in kept if result.run.family == family])
        differing = repeat(chosen, corpora, jobs=options.jobs, update=tell)
        print(f"{family}: {len(chosen) - len(differing)} of {len(chosen)} runs came out as they are kept.", flush=True)
        for told in differing:
            print(f"  DIFFERS {told}", flush=True)
        note[family] = {"date": str(date.today()), "repeated": len(chosen), "differing": differing}
        every += differing
        with atomic_path(file) as partial:
            partial.write_text(json.dumps(note, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(bool(every))


def can_run(experiment: Experiment) -> bool:
    """Return whether an experiment can be measured here; say so if not."""
    reason = experiment.unavailable()
    if experiment.needs_engine and find_spec("ibis") is None:
        reason = "it needs Ibis and DuckDB"
    if reason is not None:
        say(f"{experiment.id} is left out: {reason}")
    return reason is None


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m clickharvest.experiments", description="Measure experiments.")
    parser.add_argument("ids", nargs="*", metavar="ID", help=f"of {', '.join(experiment_ids())}; all by default")
    parser.add_argument("--corpus", default=SYNTHETIC, help="synthetic, mq2007_part, mq2008 or a LETOR path")
    parser.add_argument("--quick", action="store_true", help="small logs and few seeds")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="processes at work; they share the cores")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--repeat", action="store_true", help="measure a sample of what is kept again, and compare")
    return parser.parse_args(arguments)


def tell(share: float, note: str = "", /) -> None:
    """Print a line of progress."""
    say(note)


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
