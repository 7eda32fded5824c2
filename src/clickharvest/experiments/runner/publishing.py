"""Publishing: what the results of experiments come to, as tables and figures in files.

Each experiment leaves `ID.csv` (its table), `ID.json` (table, checks, lines of the last table) and `ID.png` in the
folder of its world; `figures.html` beside them shows all figures of the world and works offline. Nothing in them
depends on when or how fast they were made.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

from clickharvest.experiments.runner.experiment import Check, Experiment, Headline, Row
from clickharvest.experiments.runner.registry import is_current
from clickharvest.experiments.runner.runs import Results, Run
from clickharvest.experiments.runner.store import Store
from clickharvest.files import atomic_path

SCALE = 2
"""Pixels of a figure's PNG for each of its points."""


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

    @cached_property
    def stale(self) -> Results:
        """The results that were measured with other code than that which is here now."""
        return Results(result for result in self.results if not is_current(result))

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON holds it."""
        told = {
            "id": self.experiment.id,
            "world": self.world,
            "runs": len(self.results),
            "missing": self.missing,
            "stale": len(self.stale),
            "refused": len(self.results.refused),
            "rows": self.rows,
            "headline": [asdict(line) for line in self.headlines],
            "checks": [asdict(check) for check in self.checks],
        }
        plain: dict[str, Any] = _plain(told)
        return plain


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


def publish(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write the tables and figures of outcomes that have rows."""
    charts: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        if not outcome.rows:
            continue
        place = folder / outcome.world
        place.mkdir(parents=True, exist_ok=True)
        name = outcome.experiment.id
        _write(place / f"{name}.csv", _csv(outcome.rows))
        _write(place / f"{name}.json", json.dumps(outcome.to_dict(), indent=1, ensure_ascii=False) + "\n")
        if (chart := outcome.experiment.chart(outcome.whole)) is not None:
            with atomic_path(place / f"{name}.png") as partial:
                chart.save(str(partial), format="png", scale_factor=SCALE)
            charts.setdefault(outcome.world, {})[f"{name}: {outcome.experiment.title}"] = chart.to_dict()
    for world, own in charts.items():
        _write(folder / world / "figures.html", _page(world, own))


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _page(world: str, charts: Mapping[str, Any]) -> str:
    """Return one page of figures, with the library that draws them inside."""
    import vl_convert

    library = vl_convert.javascript_bundle("window.embed = vegaEmbed;")
    figures = [f'<h2>{escape(title)}</h2><div id="figure{i}"></div>' for i, title in enumerate(charts)]
    specs = json.dumps(list(charts.values())).replace("<", "\\u003c")
    title = f"Figures of the experiments, {escape(world)}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>body {{ font-family: sans-serif; margin: 2em; }}</style></head>\n<body><h1>{title}</h1>\n"
        + "\n".join(figures)
        + f'\n<script type="module">{library}\n{specs}.forEach((spec, i) => embed("#figure" + i, spec));</script>\n'
        "</body></html>\n"
    )


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return a value with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
