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
from pathlib import Path

from clickharvest.errors import ClickharvestError, InputError
from clickharvest.files import atomic_path
from experiments import Experiment, Store, load_experiments
from experiments.corpora import find_corpus
from experiments.experiment import SYNTHETIC
from experiments.measuring import measure_missing, say
from experiments.outcomes import Outcome, find_outcomes, judge, publish
from experiments.pages import TABLES, make_page, make_tables, spell
from experiments.repeating import repeat_kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments ask for; return the exit code."""
    options = parse_options(arguments)
    store = Store(options.results / "quick" if options.quick else options.results)
    try:
        return (repeat if options.repeat else reproduce)(choose(options), store, options)
    except ClickharvestError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"Interrupted; finished runs are kept in {store.folder}, run again to go on.", file=sys.stderr)
        return 130


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Run experiments and compare.")
    ids = ", ".join(experiment.id for experiment in load_experiments())
    parser.add_argument("ids", nargs="*", metavar="ID", help=f"of {ids}; all by default")
    parser.add_argument("--corpus", default=SYNTHETIC, help="synthetic, mq2007_part, mq2008 or a LETOR path")
    parser.add_argument("--quick", action="store_true", help="small logs and few seeds, kept apart in RESULTS/quick")
    seeds = "seeds of every model and log; by default 1 (an hour and a half on two busy cores), all in quick plans"
    parser.add_argument("--seeds", type=int, help=seeds)
    parser.add_argument("--jobs", type=int, help="processes; by default one per core, at most 8")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--page", type=Path, help="the page to write; by default RESULTS/reproduction.md")
    parser.add_argument("--no-run", action="store_true", help="measure nothing")
    parser.add_argument("--repeat", action="store_true", help="measure a sample of the kept runs again, and compare")
    return parser.parse_args(arguments)


def choose(options: argparse.Namespace) -> list[Experiment]:
    """Return the experiments to run: by default all, on a corpus other than the synthetic one those that depend on it.

    Raises:
        InputError: there is no such experiment, or it cannot run here.
    """
    experiments = []
    for experiment in load_experiments(options.ids):
        if (reason := experiment.unavailable()) is not None:
            if options.ids:
                raise InputError(f"{experiment.id} cannot run: {reason}")
            say(f"{experiment.id} is left out: {reason}")
        elif options.ids or options.corpus == SYNTHETIC or experiment.world is None:
            experiments.append(experiment)
    return experiments


def reproduce(experiments: Sequence[Experiment], store: Store, options: argparse.Namespace) -> int:
    """Measure what is missing, seed by seed, and write tables, figures and the page."""
    world, source = find_corpus(options.corpus)
    seeds = options.seeds if options.quick else options.seeds or 1
    page, tables = options.page or store.folder / "reproduction.md", store.folder / TABLES
    page.parent.mkdir(parents=True, exist_ok=True)
    failed = []
    if not options.no_run:
        plans = [(one, one.plan(quick=options.quick, world=world, source=source)) for one in experiments]
        runs = [run for one, plan in plans for run in one.runs(plan) if seeds is None or run.seed < seeds]
        failed = measure_missing(sorted(runs, key=lambda run: run.seed), store, jobs=options.jobs)
    every = find_outcomes(load_experiments(), store, quick=options.quick, seeds=seeds)
    publish([outcome for outcome in every if outcome.experiment in experiments], store.folder)
    for file, text in ((page, make_page(every, store.folder, page)), (tables, make_tables(every, store.folder))):
        with atomic_path(file) as partial:
            partial.write_text(text, encoding="utf-8")
    outcomes = [judge(one, store, quick=options.quick, world=world, seeds=seeds) for one in experiments]
    print_outcomes(outcomes)
    checks = [check for outcome in outcomes for check in outcome.checks]
    print(f"\n{sum(check.passed for check in checks)} of {len(checks)} checks pass. The page: {page}")
    return int(bool(failed) or not all(check.passed for check in checks))


def repeat(experiments: Sequence[Experiment], store: Store, options: argparse.Namespace) -> int:
    """Repeat a sample of the kept runs in all worlds whose data are at hand."""
    corpora: list[tuple[str, Path | None]] = []
    for world in set(store.worlds()) - {experiment.world for experiment in load_experiments()}:
        try:
            corpora.append(find_corpus(world))
        except InputError as error:
            say(f"{world} is left out: {error}")
    plans = [
        (one, one.plan(quick=options.quick, world=world, source=source))
        for one in experiments
        for world, source in (corpora if one.world is None else [(one.world, None)])
    ]
    results = store.results(run for one, plan in plans for run in one.runs(plan))
    return int(repeat_kept(results, store.folder, jobs=options.jobs))


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print the numbers and checks of every experiment."""
    for outcome in outcomes:
        print(f"\n{outcome.experiment.id}: {outcome.experiment.text[0]}")
        for line in outcome.headlines:
            paper, ours, clickshare = (spell(value) for value in (line.paper, line.ours, line.clickshare))
            print(f"{line.what}: paper {paper}, paper's estimator {ours}, ClickShare {clickshare}")
        for check in outcome.checks:
            print(f"{check.verdict} {check.claim}. {check.sentence}")
        if outcome.missing:
            print(f"{outcome.missing} runs are missing; run again to go on.")


if __name__ == "__main__":
    sys.exit(main())
