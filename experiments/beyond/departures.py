"""What the experiments beyond the paper share: the sweep over sizes, with one thing changed, and every model on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

from experiments.beyond.click_models import Beside, apart, model_rows
from experiments.families.error_tables import error_headline, error_points, error_rows
from experiments.families.figures import line_chart
from experiments.families.models import CLICKSHARE, CPBM, CTR, EM, PBM
from experiments.families.semi_synthetic import make_runs
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

SWEEPS, QUICK_SWEEPS = (1, 10), (10,)
MODELS = (PBM, CPBM, CLICKSHARE, EM, CTR)
PLAIN, CHANGED = "the paper's protocol", "changed"

Judge = Callable[[dict[str, float], dict[str, float]], list[Check]]
"""Errors by model at the largest size, without and with the change, to checks."""


def make_experiment(
    *, id: str, title: str, claim: str, settings: dict[str, Any], judge: Judge, models: Sequence[str] = MODELS,
    plain: dict[str, Any] | None = None, notes: tuple[str, ...] = (), beside: Beside | None = None,
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
        beside: click models that are tried on the same logs.
    """
    unchanged = plain or {}

    def runs(plan: Plan) -> list[Run]:
        seeds, sweeps = (1, QUICK_SWEEPS) if plan.quick else (3, SWEEPS)
        logs = [unchanged, settings] if unchanged != settings else [settings]
        found = [run for log in logs for s in sweeps for run in make_runs(plan, models, seeds=seeds, sweeps=s, **log)]
        return found if beside is None else [*found, *(run for s in sweeps for run in beside.runs(plan, seeds, s))]

    def changed(results: Results) -> Results:
        return apart(results)[0].where(**settings)

    def plain_ones(results: Results) -> Results:
        absent: dict[str, Any] = dict.fromkeys(settings)
        return apart(results)[0].where(**(absent | {"eta": 0.5, "zeta": 1.0} | unchanged))

    def summarise(results: Results) -> list[Row]:
        tables = {PLAIN: plain_ones(results), CHANGED: changed(results)}
        if unchanged == settings:
            del tables[PLAIN]
        rows: list[Row] = [
            {"log": log, **row} for log, own in tables.items() for row in error_rows(own, by=("training_queries",))
        ]
        if beside is None or not apart(results)[1]:
            return rows
        found = model_rows(apart(results)[1], beside.columns, rows[0] if rows else {}, CHANGED)
        return [row | dict.fromkeys(beside.columns.values()) for row in rows] + found

    def headline(results: Results) -> list[Headline]:
        if not changed(results):
            return []
        largest = _largest(changed(results))
        return [
            error_headline(f"RelError, {largest[0].run['training_queries']:,} queries", largest, paper=None, ours=CPBM)
        ]

    def checks(results: Results) -> list[Check]:
        if not changed(results) or not plain_ones(results):
            return []
        errors = _errors(changed(results), models)
        found = judge(_errors(plain_ones(results), models), errors)
        return found if beside is None else found + beside.checks(apart(results)[1], errors)

    def chart(results: Results) -> Any:
        points = error_points(changed(results), x="training_queries")
        return line_chart(
            points, x="training_queries", x_title="training queries", y_title="RelError", log_x=True, log_y=True
        )

    return Experiment(
        id=id, title=title, claim=claim, runs=runs, summarise=summarise, headline=headline, checks=checks, chart=chart,
        notes=notes, by_model=beside is not None,
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
