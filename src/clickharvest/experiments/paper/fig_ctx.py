"""fig-ctx: what the strength of the context's influence does to the models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from clickharvest.experiments.families.error_tables import error_headline, error_points, error_rows
from clickharvest.experiments.families.figures import line_chart
from clickharvest.experiments.families.models import AUTHORS, AUTHORS_ORACLE, CLICKSHARE, CPBM, PBM, ROBUST
from clickharvest.experiments.families.semi_synthetic import is_judged, make_runs
from clickharvest.experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from clickharvest.experiments.runner.runs import Results, Run

ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
QUICK_ETAS = (0.5, 1.0)
MODELS = (PBM, ROBUST, CPBM, AUTHORS, AUTHORS_ORACLE, CLICKSHARE)
MATCH = 0.02
"""By how much an error may exceed another and still match it."""


def runs(plan: Plan) -> list[Run]:
    """Return five sweeps at each η, ten in quick plans, where the log of η=.5 is that of the other experiments."""
    seeds, etas, sweeps = (1, QUICK_ETAS, 10) if plan.quick else (6, ETAS, 5)
    return [run for eta in etas for run in make_runs(plan, MODELS, seeds=seeds, sweeps=sweeps, eta=eta)]


def summarise(results: Results) -> list[Row]:
    """Return one row per η and model."""
    return error_rows(results, by=("eta",))


def headline(results: Results) -> list[Headline]:
    """Return the errors at each η; the paper shows them in a figure, without numbers."""
    return [
        error_headline(f"RelError, η = {eta:g}", results.where(eta=eta), paper=None) for eta in results.settings("eta")
    ]


def checks(results: Results) -> list[Check]:
    """Return: CPBM at most PBM at every η, and the PBM's error grows with η."""
    etas = results.settings("eta")
    means = {model: [results.where(eta=eta, model=model).typical("rel_error") for eta in etas] for model in MODELS}
    grown = ", ".join(f"{e:.4f}" for e in means[PBM])
    found = [
        _matches("ClickShare outperforms or matches the PBM at every η", etas, means[CLICKSHARE], means[PBM]),
        Check("the PBM's error grows with η", all(a < b for a, b in pairwise(means[PBM])), grown),
    ]
    if is_judged(results):
        found.insert(0, _matches("the CPBM outperforms or matches the PBM at every η", etas, means[CPBM], means[PBM]))
    return found


def _matches(claim: str, etas: list[float], low: list[float], high: list[float]) -> Check:
    above = [
        f"{eta:g} ({a:.4f} against {b:.4f})" for eta, a, b in zip(etas, low, high, strict=True) if not a <= b + MATCH
    ]
    told = f"not at η = {', '.join(above)}" if above else f"η = {', '.join(f'{eta:g}' for eta in etas)}"
    return Check(claim, not above, f"{told}; to match is to be at most {MATCH} above")


def chart(results: Results) -> Any:
    """Return RelError by η."""
    return line_chart(error_points(results, x="eta"), x="eta", x_title="η", y_title="RelError")


EXPERIMENT = Experiment(
    id="fig-ctx",
    title="RelError by the strength η of context",
    claim="With 57,365 training queries and ζ=1 the CPBM outperforms or at least matches the PBM at every η, and the "
    "error of the PBM grows with η.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    notes=(
        "The paper does not list its values of η; ours are 0, .25, .5, .75 and 1. At η=0 the PBM is the truth, and a "
        "network without a penalty, which has to find out so, pays for it; ClickShare finds a large penalty by "
        "cross-validation.",
    ),
)
