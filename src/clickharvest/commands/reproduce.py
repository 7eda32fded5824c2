"""The command `reproduce`: measure what is missing, then tables, figures, the page, and what holds."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clickharvest.commands.bounds import whole
from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import JsonFlag, argument, option
from clickharvest.commands.output import complain, tell
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.extras import require

if TYPE_CHECKING:
    from rich.table import Table

    from clickharvest.experiments import Experiment, Headline
    from clickharvest.experiments.families.corpora import CorpusSource
    from clickharvest.experiments.runner.measuring import Failure
    from clickharvest.experiments.runner.publishing import Outcome
    from clickharvest.experiments.runner.store import Store

QUICK = "quick"
"""The folder of quick results, inside the folder of results."""
NEEDED = {"altair": "plots", "vl_convert": "plots", "sklearn": "rank"}
"""Packages that experiments use, and the extras that bring them."""


@dataclass(frozen=True)
class ReproduceOptions:
    """On what corpus to run experiments, how large, and where to keep what comes out."""

    corpus: str = option("synthetic, mq2007_part, mq2008 or LETOR files.", "NAME|PATH", "synthetic")
    quick: bool = option("Small logs and few seeds; kept apart, in RESULTS/quick.", default=False)
    seeds: int | None = option(
        "Seeds to measure of every model and log; by default 1 (all in quick plans), an hour and a half on two busy "
        "cores. What is kept of further ones is told too; the published page has 3 to 20.",
        "N",
        check=whole(1, 1_000),
    )
    jobs: int | None = option("Processes; by default one per core.", "N", check=whole(1, 1_000))
    results: Path = option("Folder of the results; what it holds is not repeated.", "FOLDER", Path("results"))
    no_run: bool = option("Measure nothing: tables, figures and the page of the runs that are kept.", default=False)
    page: Path | None = option("The page to write; by default RESULTS/reproduction.md.", "FILE")


def reproduce(
    options: ReproduceOptions,
    ids: Annotated[list[str] | None, argument("Experiments; all by default.", "ID")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the paper's experiments and further ones, and compare.

    Finished runs are kept: an interrupted command resumes where it stopped. Exit code 1: a claim does not hold.

    Examples:

      clickharvest reproduce table-pbm --quick

      clickharvest reproduce --seeds 3

      clickharvest reproduce --corpus mq2007_part --jobs 8
    """
    run_reproduce(ids or [], options, as_json=as_json)


def run_reproduce(ids: Sequence[str], options: ReproduceOptions, *, as_json: bool = False) -> None:
    """Run experiments: `clickharvest reproduce [ID …]`.

    Without ids all are run; on another corpus than the synthetic one, those that depend on the corpus.

    Raises:
        InputError: there is no such experiment or corpus.
        typer.Exit: with 1 where a check or a run failed.
    """
    from clickharvest.experiments import load_experiments
    from clickharvest.experiments.families.corpora import find_corpus
    from clickharvest.experiments.runner.page import make_page
    from clickharvest.experiments.runner.publishing import find_outcomes, judge, publish
    from clickharvest.experiments.runner.store import Store
    from clickharvest.experiments.runner.tables import TABLES, make_tables
    from clickharvest.files import atomic_path

    for package, extra in NEEDED.items():
        require(package, extra, "reproduce")
    source = find_corpus(options.corpus)
    chosen, left_out = _choose(ids, source.name)
    quick, page = options.quick, options.page
    if page is not None:
        refuse_overwriting(page, [source.path])
    folder = options.results / QUICK if quick else options.results
    _make_folder(folder)
    store = Store(folder)
    seeds = options.seeds if quick else options.seeds or 1
    written = folder / "reproduction.md" if page is None else page
    with atomic_path(written) as partial:  # opened before hours of work, not after them
        failures = [] if options.no_run else _measure(chosen, store, source, options, seeds)
        outcomes = [judge(experiment, store, quick=quick, corpus=source.name, seeds=seeds) for experiment in chosen]
        every = find_outcomes(load_experiments(), store, quick=quick, seeds=seeds)
        publish([outcome for outcome in every if outcome.experiment in chosen], folder)
        partial.write_text(make_page(every, folder, written), encoding="utf-8")
    with atomic_path(folder / TABLES) as partial:
        partial.write_text(make_tables(every, folder), encoding="utf-8")
    if as_json:
        told = [outcome.to_dict() for outcome in outcomes]
        failed = [{"run": failure.run.to_dict(), "error": failure.error} for failure in failures]
        tell(json.dumps({"outcomes": told, "failures": failed, "left_out": left_out, "page": str(written)}, indent=1))
    else:
        _print(outcomes, failures, left_out, written)
    if failures or any(not check.passed for outcome in outcomes for check in outcome.checks):
        raise typer.Exit(1)


def _measure(
    chosen: Sequence[Experiment], store: Store, source: CorpusSource, options: ReproduceOptions, seeds: int | None
) -> list[Failure]:
    """Measure what is missing, seed by seed, so that some are soon whole."""
    from clickharvest.experiments.runner.measuring import measure_missing

    plans = [(experiment, experiment.plan(quick=options.quick, corpus=source.name)) for experiment in chosen]
    runs = [run for experiment, plan in plans for run in experiment.runs(plan) if seeds is None or run.seed < seeds]
    try:
        with _interruptible(), show_progress("Measuring") as update:
            return measure_missing(
                sorted(runs, key=lambda run: run.seed),
                store,
                jobs=_jobs(options),
                source=source.path,
                update=update,
            )
    except KeyboardInterrupt as error:
        complain(f"Interrupted; finished runs are kept in {store.folder}, run again to go on.")
        raise typer.Abort from error


def _jobs(options: ReproduceOptions) -> int:
    from clickharvest.experiments.runner.measuring import default_jobs

    return default_jobs() if options.jobs is None else options.jobs


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let an interrupt from the keyboard raise KeyboardInterrupt while the block runs: processes are to be ended."""
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; name another with --results") from error


def _choose(ids: Sequence[str], corpus: str) -> tuple[list[Experiment], dict[str, str]]:
    """Return the experiments to run, and why others are left out."""
    from clickharvest.experiments import experiment_ids, load_experiment
    from clickharvest.experiments.runner.experiment import SYNTHETIC

    wanted = [load_experiment(name) for name in dict.fromkeys(ids or experiment_ids())]
    if not ids and corpus != SYNTHETIC:
        wanted = [experiment for experiment in wanted if experiment.world is None]
    reasons = {experiment.id: experiment.unavailable() for experiment in wanted}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    if ids and left_out:
        name, reason = next(iter(left_out.items()))
        raise InputError(f"{name} cannot run: {reason}")
    return [experiment for experiment in wanted if experiment.id not in left_out], left_out


def _print(outcomes: Sequence[Outcome], failures: Sequence[Failure], left_out: dict[str, str], page: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    from clickharvest.commands.terminal import screen

    console = screen()
    console.print(headline_table(outcomes))
    for outcome in outcomes:
        for check in outcome.checks:
            line = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
            verdict = Text(check.verdict, style="green" if check.passed else "bold red")
            line.add_row(verdict, Text(f"{outcome.experiment.id}: {check.claim}. {check.sentence}"))
            console.print(line)
        if not outcome.complete:
            console.print(f"{outcome.experiment.id}: {outcome.missing} runs are missing; run again to go on.")
    for failure in failures:
        console.print(Text(f"FAIL {failure.run}: {failure.error}", style="bold red"))
    for name, reason in left_out.items():
        console.print(f"Left out {name}: {reason}.")
    checks = [check for outcome in outcomes for check in outcome.checks]
    console.print(f"\n{sum(check.passed for check in checks)} of {len(checks)} checks pass. The page: {page}")


def headline_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the last table: the paper's number beside ours, with the paper's estimator and with ClickShare."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("experiment")
    table.add_column("number")
    for name in ("paper", "paper's\nestimator", "ClickShare", "runs", "sd"):
        table.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        for i, line in enumerate(outcome.headlines):
            table.add_row(outcome.experiment.id if i == 0 else "", *_cells(line))
    return table


def _cells(line: Headline) -> list[str]:
    from clickharvest.experiments.runner.spelling import spell

    sd = "/".join(spell(value, digits=3) for value in (line.ours_sd, line.clickshare_sd))
    numbers = (spell(value) for value in (line.paper, line.ours, line.clickshare))
    return [line.what, *numbers, str(line.runs), sd if sd != "-/-" else "-"]
