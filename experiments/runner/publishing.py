"""Publishing: what the results of experiments come to, as tables and figures in files.

Each experiment leaves its table as `WORLD/ID.csv` and a figure of all its worlds as `ID.svg` in the folder of results.
Nothing in them depends on when or how fast they were made.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clickharvest.files import atomic_path
from clickharvest.report import save_chart
from clickharvest.words import json_value
from experiments.runner.experiment import SYNTHETIC, Check, Experiment, Headline, Row
from experiments.runner.runs import Results, Run
from experiments.runner.store import Store


@dataclass(frozen=True)
class Outcome:
    """What an experiment came to in one world.

    Attributes:
        experiment: the experiment.
        world: where its logs came from.
        results: the results of its runs.
        missing: number of runs without a result; with any, there are no rows, headlines or checks, but for experiments
            that tell of what is there. These leave a model out on logs where some of its seeds are missing.
        whole: the results that are told of.
    """

    experiment: Experiment
    world: str
    results: Results
    missing: int
    rows: list[Row]
    headlines: list[Headline]
    checks: list[Check]
    whole: Results = field(default_factory=Results)

    @property
    def complete(self) -> bool:
        """Whether every run has a result."""
        return self.missing == 0

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON holds it."""
        told = {
            "id": self.experiment.id,
            "world": self.world,
            "runs": len(self.results),
            "missing": self.missing,
            "refused": len(self.results.refused),
            "rows": self.rows,
            "headline": [asdict(line) for line in self.headlines],
            "checks": [asdict(check) for check in self.checks],
        }
        plain: dict[str, Any] = json_value(told)
        return plain


def find_outcomes(
    experiments: Sequence[Experiment], store: Store, *, quick: bool, seeds: int | None = None
) -> list[Outcome]:
    """Return what the results in a store come to, complete or not, by experiment and then by world; see `judge`."""
    own_worlds = {experiment.world for experiment in experiments}
    corpora = sorted(set(store.worlds()) - own_worlds, key=lambda world: (world != SYNTHETIC, world))
    found = []
    for experiment in experiments:
        for world in corpora if experiment.world is None else [experiment.world]:
            outcome = judge(experiment, store, quick=quick, corpus=world, seeds=seeds)
            if outcome.results:
                found.append(outcome)
    return found


def judge(experiment: Experiment, store: Store, *, quick: bool, corpus: str, seeds: int | None = None) -> Outcome:
    """Return what an experiment came to, by the results in a store.

    Args:
        experiment: the experiment.
        store: where results are kept.
        quick: whether its plan is the quick one.
        corpus: the corpus, where the experiment has no world of its own.
        seeds: how many seeds are asked for, by default all. Results of further ones are told where none of them is
            missing.
    """
    plan = experiment.plan(quick=quick, corpus=corpus)
    runs = list(dict.fromkeys(experiment.runs(plan)))
    found = {result.run for result in store.results(runs)}
    if seeds is not None:
        unfinished = {_part(experiment, run) for run in runs if run not in found}
        runs = [run for run in runs if run.seed < seeds or _part(experiment, run) not in unfinished]
    results = store.results(runs)
    missing = len(runs) - len(results)
    lacking = {_cell(run) for run in runs if run not in found}
    whole = Results(result for result in results if _cell(result.run) not in lacking)
    if missing and not (experiment.by_model and whole):
        return Outcome(experiment, plan.world, results, missing, [], [], [])
    told = experiment.summarise(whole), experiment.headline(whole), experiment.checks(whole)
    return Outcome(experiment, plan.world, results, missing, *told, whole)


def _part(experiment: Experiment, run: Run) -> str:
    """Return which part of an experiment a run belongs to; its seeds are told all or but those asked for."""
    return _cell(run) if experiment.by_model else ""


def _cell(run: Run) -> str:
    """Return what the runs of a model on logs that differ in their seed have in common."""
    return json.dumps([run.family, run.log, run.fit], sort_keys=True)


def figure_name(experiment: Experiment) -> str:
    """Return the file of the figure of an experiment, in the folder of results."""
    return f"{experiment.id}.svg"


def publish(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write the tables and figures of outcomes that have rows; those of an experiment make one figure."""
    done = [outcome for outcome in outcomes if outcome.rows]
    charts: dict[str, list[Any]] = {}
    for outcome in done:
        place = folder / outcome.world
        place.mkdir(parents=True, exist_ok=True)
        with atomic_path(place / f"{outcome.experiment.id}.csv") as partial, partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(outcome.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(outcome.rows)
        if (chart := outcome.experiment.chart(outcome.whole)) is not None:
            title = {} if outcome.experiment.world else {"title": outcome.world}
            charts.setdefault(figure_name(outcome.experiment), []).append(chart.properties(**title))
    for name, own in charts.items():
        import altair as alt

        chart = own[0] if len(own) == 1 else alt.hconcat(*own)
        save_chart(chart, folder / name)
