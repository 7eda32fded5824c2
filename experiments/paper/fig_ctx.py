"""fig-ctx: what the strength of the context's influence does to the models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from experiments.families.error_tables import (
    error_headline,
    error_points,
    error_rows,
    outperforms_or_matches,
    typical_errors,
)
from experiments.families.figures import line_chart
from experiments.families.models import AUTHORS, AUTHORS_ORACLE, CLICKSHARE, CPBM, PBM, ROBUST
from experiments.families.semi_synthetic import make_runs
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
QUICK_ETAS = (0.5, 1.0)
MODELS = (PBM, ROBUST, CPBM, AUTHORS, AUTHORS_ORACLE, CLICKSHARE)
QUICK_MODELS = (PBM, ROBUST, CLICKSHARE)


def runs(plan: Plan) -> list[Run]:
    """Return five sweeps at each η, ten in quick plans, where the log of η=.5 is that of the other experiments."""
    seeds, etas, sweeps, models = (1, QUICK_ETAS, 10, QUICK_MODELS) if plan.quick else (6, ETAS, 5, MODELS)
    return [run for eta in etas for run in make_runs(plan, models, seeds=seeds, sweeps=sweeps, eta=eta)]


def summarise(results: Results) -> list[Row]:
    """Return one row per η and model."""
    return error_rows(results, by=("eta",))


def headline(results: Results) -> list[Headline]:
    """Return the errors at each η; the paper shows them in a figure, without numbers."""
    return [
        error_headline(f"RelError, η = {eta:g}", results.where(eta=eta), paper=None) for eta in results.settings("eta")
    ]


def checks(results: Results) -> list[Check]:
    """Return: CPBM and ClickShare at most PBM at every η, and the PBM's error grows with η."""
    etas = [f"η = {eta:g}" for eta in results.settings("eta")]
    means = typical_errors(results, "eta", MODELS)
    claim = "{} outperforms or matches the PBM at every η"
    return [
        *(
            outperforms_or_matches(claim.format(name), etas, means[model], means[PBM])
            for name, model in (("the CPBM", ROBUST), ("ClickShare", CLICKSHARE))
            if results.where(model=model)
        ),
        Check(
            "the PBM's error grows with η",
            all(a < b for a, b in pairwise(means[PBM])),
            ", ".join(f"{error:.4f}" for error in means[PBM]),
        ),
    ]


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
    by_model=True,
    notes=(
        "The paper does not list its values of η; ours are 0, .25, .5, .75 and 1. At η=0 the PBM is the truth. A "
        "network without a penalty has to find out so and pays for it (*CPBM AllPairs*, and the authors' recipe after "
        "the last epoch). The models are those of table-pbm.",
    ),
)
