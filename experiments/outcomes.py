"""Outcomes: what the results of experiments come to, as tables and figures in files.

Each experiment leaves its table as `WORLD/ID.csv` and a figure of all its worlds as `ID.svg` in the folder of results.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clickharvest.files import atomic_path
from clickharvest.report import save_chart
from experiments.experiment import SYNTHETIC, Check, Experiment, Headline, Row
from experiments.runs import Results, Store


@dataclass(frozen=True)
class Outcome:
    """What an experiment came to in one world.

    Attributes:
        experiment: the experiment.
        world: where its logs came from.
        results: the results of its runs.
        missing: number of runs without a result; with any, there are no rows, headlines or checks.
    """

    experiment: Experiment
    world: str
    results: Results
    missing: int
    rows: list[Row]
    headlines: list[Headline]
    checks: list[Check]


def judge(
    experiment: Experiment, store: Store, *, quick: bool = False, world: str = SYNTHETIC, seeds: int | None = None
) -> Outcome:
    """Return what an experiment came to, by the results in a store.

    Args:
        experiment: the experiment.
        store: where results are kept.
        quick: whether its plan is the quick one.
        world: the corpus, where the experiment has no world of its own.
        seeds: how many seeds must be there, by default all. Further seeds count if no run of an earlier one is missing.
    """
    plan = experiment.plan(quick=quick, world=world)
    runs = experiment.runs(plan)
    if seeds is not None:
        first_missing = min((run.seed for run in store.missing(runs)), default=len(runs))
        runs = [run for run in runs if run.seed < max(seeds, first_missing)]
    results, missing = store.results(runs), len(store.missing(runs))
    if missing or not results:
        return Outcome(experiment, plan.world, results, missing, [], [], [])
    made = experiment.rows(results), experiment.headlines(results), experiment.checks(results)
    return Outcome(experiment, plan.world, results, missing, *made)


def find_outcomes(
    experiments: Sequence[Experiment], store: Store, *, quick: bool, seeds: int | None = None
) -> list[Outcome]:
    """Return the outcomes of all results in a store, complete or not, by experiment and then by world."""
    own_worlds = {experiment.world for experiment in experiments}
    corpora = sorted(set(store.worlds()) - own_worlds, key=lambda world: (world != SYNTHETIC, world))
    outcomes = [
        judge(experiment, store, quick=quick, world=world, seeds=seeds)
        for experiment in experiments
        for world in (corpora if experiment.world is None else [experiment.world])
    ]
    return [outcome for outcome in outcomes if outcome.results]


def figure_name(experiment: Experiment) -> str:
    """Return the file of the figure of an experiment, in the folder of results."""
    return f"{experiment.id}.svg"


def publish(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write the tables and figures of outcomes that have rows; those of an experiment make one figure."""
    charts: dict[str, list[Any]] = {}
    for outcome in (outcome for outcome in outcomes if outcome.rows):
        with (
            atomic_path(folder / outcome.world / f"{outcome.experiment.id}.csv") as partial,
            partial.open("w", newline="") as file,
        ):
            writer = csv.DictWriter(file, list(outcome.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(outcome.rows)
        if (chart := outcome.experiment.chart(outcome.results)) is not None:
            title = {} if outcome.experiment.world else {"title": outcome.world}
            charts.setdefault(figure_name(outcome.experiment), []).append(chart.properties(**title))
    for name, parts in charts.items():
        import altair as alt

        save_chart(parts[0] if len(parts) == 1 else alt.hconcat(*parts), folder / name)
