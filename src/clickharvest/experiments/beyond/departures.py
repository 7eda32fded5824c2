"""What the experiments beyond the paper share: the sweep over sizes, with one thing changed, and every model on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

from clickharvest.experiments.families.error_tables import error_headline, error_points, error_rows
from clickharvest.experiments.families.figures import line_chart
from clickharvest.experiments.families.models import CLICKSHARE, CPBM, CTR, EM, PBM
from clickharvest.experiments.families.semi_synthetic import make_runs
from clickharvest.experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from clickharvest.experiments.runner.runs import Results, Run

SWEEPS, QUICK_SWEEPS = (1, 10), (10,)
MODELS = (PBM, CPBM, CLICKSHARE, EM, CTR)
PLAIN, CHANGED = "the paper's protocol", "changed"

Judge = Callable[[dict[str, float], dict[str, float]], list[Check]]
"""Errors by model at the largest size, without and with the change, to checks."""


def make_experiment(
    *, id: str, title: str, claim: str, settings: dict[str, Any], judge: Judge, models: Sequence[str] = MODELS,
    plain: dict[str, Any] | None = None, notes: tuple[str, ...] = (),
) -> Experiment:  # fmt: skip
    """Return an experiment that changes something of the paper's protocol.

    Args:
        id: its id.
        title: its title.
        claim: what we expect to come out.
        settings: arguments of `simulate_protocol` that differ from the protocol at η=.5 and ζ=1.
        judge: makes the checks.
        models: the models to compare.
        plain: settings of the log without the change, to compare with; the protocol's by default.
        notes: what else to tell.
    """
    unchanged = plain or {}

    def runs(plan: Plan) -> list[Run]:
        seeds, sweeps = (1, QUICK_SWEEPS) if plan.quick else (3, SWEEPS)
        logs = [unchanged, settings] if unchanged != settings else [settings]
        return [run for log in logs for s in sweeps for run in make_runs(plan, models, seeds=seeds, sweeps=s, **log)]

    def changed(results: Results) -> Results:
        return results.where(**settings)

    def plain_ones(results: Results) -> Results:
        absent: dict[str, Any] = dict.fromkeys(settings)
        return results.where(**(absent | {"eta": 0.5, "zeta": 1.0} | unchanged))

    def summarise(results: Results) -> list[Row]:
        tables = {PLAIN: plain_ones(results), CHANGED: changed(results)}
        if unchanged == settings:
            del tables[PLAIN]
        return [{"log": log, **row} for log, own in tables.items() for row in error_rows(own, by=("training_queries",))]

    def headline(results: Results) -> list[Headline]:
        largest = _largest(changed(results))
        return [
            error_headline(f"RelError, {largest[0].run['training_queries']:,} queries", largest, paper=None, ours=CPBM)
        ]

    def checks(results: Results) -> list[Check]:
        return judge(_errors(plain_ones(results), models), _errors(changed(results), models))

    def chart(results: Results) -> Any:
        points = error_points(changed(results), x="training_queries")
        return line_chart(
            points, x="training_queries", x_title="training queries", y_title="RelError", log_x=True, log_y=True
        )

    return Experiment(
        id=id, title=title, claim=claim, runs=runs, summarise=summarise, headline=headline, checks=checks, chart=chart,
        notes=notes,
    )  # fmt: skip


def smallest_error(errors: dict[str, float], *, of: Sequence[str]) -> Check:
    """Return the check that ClickShare has the smallest error of some models."""
    others = {model: errors[model] for model in of if model != CLICKSHARE and not isnan(errors[model])}
    best = min(others, key=others.__getitem__)
    return Check(
        "ClickShare has the smallest error of all",
        errors[CLICKSHARE] < others[best],
        f"{errors[CLICKSHARE]:.4f}; next is {best}, {others[best]:.4f}",
    )


def _largest(results: Results) -> Results:
    return results.where(training_queries=max(results.settings("training_queries")))


def _errors(results: Results, models: Sequence[str]) -> dict[str, float]:
    largest = _largest(results)
    return {model: largest.where(model=model).typical("rel_error") for model in models}
