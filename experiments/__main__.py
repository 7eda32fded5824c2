"""Run the experiments from the root of the repository, and write their tables, figures and page.

    python -m experiments table-pbm --quick
    python -m experiments --seeds 3 --page docs/reproduction.md
    python -m experiments --no-run --page docs/reproduction.md     # measures nothing
    python -m experiments --repeat                                 # measures a sample of the kept runs again

Finished runs are kept: an interrupted command goes on where it stopped. Exit code 1: a claim does not hold, a run
failed, or (`--repeat`) a run came out differently. Needs `pip install '.[rank,plots]'`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from clickharvest.errors import ClickharvestError, InputError
from clickharvest.files import atomic_path
from experiments import Experiment, experiment_ids, load_experiment, load_experiments
from experiments.families.corpora import CorpusSource, find_corpus
from experiments.runner.experiment import SYNTHETIC
from experiments.runner.measuring import default_jobs, measure_missing
from experiments.runner.page import make_page
from experiments.runner.publishing import Outcome, find_outcomes, judge, publish
from experiments.runner.repeating import repeat_kept
from experiments.runner.spelling import spell
from experiments.runner.store import Store
from experiments.runner.tables import TABLES, make_tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments ask for; return the exit code."""
    options = parse_options(arguments)
    store = Store(options.results / "quick" if options.quick else options.results)
    try:
        corpus = find_corpus(options.corpus)
        experiments = choose(options.ids, corpus.name)
        if options.repeat:
            return int(repeat_kept(experiments, store, quick=options.quick, jobs=options.jobs, update=say_progress))
        return reproduce(experiments, store, corpus, options)
    except ClickharvestError as error:
        say(f"Error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say(f"Interrupted; finished runs are kept in {store.folder}, run again to go on.")
        return 130


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Run experiments and compare.")
    parser.add_argument("ids", nargs="*", metavar="ID", help=f"of {', '.join(experiment_ids())}; all by default")
    parser.add_argument("--corpus", default=SYNTHETIC, help="synthetic, mq2007_part, mq2008 or a LETOR path")
    parser.add_argument("--quick", action="store_true", help="small logs and few seeds, kept apart in RESULTS/quick")
    parser.add_argument(
        "--seeds",
        type=int,
        help="seeds of every model and log; by default 1 (an hour and a half on two busy cores), all in quick plans",
    )
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="processes; by default one per core")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--page", type=Path, help="the page to write; by default RESULTS/reproduction.md")
    parser.add_argument("--no-run", action="store_true", help="measure nothing")
    parser.add_argument("--repeat", action="store_true", help="measure a sample of the kept runs again, and compare")
    return parser.parse_args(arguments)


def choose(ids: Sequence[str], corpus: str) -> list[Experiment]:
    """Return the experiments to run: by default all that depend on the corpus, on the synthetic one all.

    Raises:
        InputError: there is no such experiment, or it cannot run here.
    """
    experiments = [load_experiment(name) for name in dict.fromkeys(ids or experiment_ids())]
    if not ids and corpus != SYNTHETIC:
        experiments = [experiment for experiment in experiments if experiment.world is None]
    for experiment in list(experiments):
        if (reason := experiment.unavailable()) is not None:
            if ids:
                raise InputError(f"{experiment.id} cannot run: {reason}")
            say(f"{experiment.id} is left out: {reason}")
            experiments.remove(experiment)
    return experiments


def reproduce(
    experiments: Sequence[Experiment], store: Store, corpus: CorpusSource, options: argparse.Namespace
) -> int:
    """Measure what is missing, seed by seed, and write tables, figures and the page."""
    seeds = options.seeds if options.quick else options.seeds or 1
    runs = [run for one in experiments for run in one.runs(one.plan(quick=options.quick, corpus=corpus.name))]
    runs = sorted((run for run in runs if seeds is None or run.seed < seeds), key=lambda run: run.seed)
    page = options.page or store.folder / "reproduction.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    if not options.no_run:
        failures = measure_missing(runs, store, jobs=options.jobs, source=corpus.path, update=say_progress)
    every = find_outcomes(load_experiments(), store, quick=options.quick, seeds=seeds)
    publish([outcome for outcome in every if outcome.experiment in experiments], store.folder)
    for file, text in (
        (page, make_page(every, store.folder, page)),
        (store.folder / TABLES, make_tables(every, store.folder)),
    ):
        with atomic_path(file) as partial:
            partial.write_text(text, encoding="utf-8")
    outcomes = [judge(one, store, quick=options.quick, corpus=corpus.name, seeds=seeds) for one in experiments]
    print_outcomes(outcomes)
    for failure in failures:
        print(f"FAIL {failure.run}: {failure.error}")
    checks = [check for outcome in outcomes for check in outcome.checks]
    print(f"\n{sum(check.passed for check in checks)} of {len(checks)} checks pass. The page: {page}")
    return int(bool(failures) or not all(check.passed for check in checks))


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print the numbers and checks of every experiment."""
    for outcome in outcomes:
        print(f"\n{outcome.experiment.id}: {outcome.experiment.title}")
        for line in outcome.headlines:
            paper, ours, clickshare = (spell(value) for value in (line.paper, line.ours, line.clickshare))
            print(f"{line.what}: paper {paper}, paper's estimator {ours}, ClickShare {clickshare}")
        for check in outcome.checks:
            print(f"{check.verdict} {check.claim}. {check.sentence}")
        if not outcome.complete:
            print(f"{outcome.missing} runs are missing; run again to go on.")


def say_progress(share: float, note: str = "", /) -> None:
    """Print a line of progress."""
    say(f"{datetime.now():%H:%M:%S} {note}")


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
