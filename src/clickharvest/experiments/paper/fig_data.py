"""fig-data: how much data it takes."""

from __future__ import annotations

from math import isnan
from typing import Any

from clickharvest.experiments.families.error_tables import error_headline, error_points, error_rows
from clickharvest.experiments.families.figures import line_chart
from clickharvest.experiments.families.models import AUTHORS, AUTHORS_ORACLE, CLICKSHARE, CPBM, PBM, ROBUST
from clickharvest.experiments.families.semi_synthetic import is_judged, make_runs
from clickharvest.experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from clickharvest.experiments.runner.runs import Results, Run
from clickharvest.experiments.runner.spelling import spell

SWEEPS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10)
QUICK_SWEEPS = (2, 10)
MODELS = (PBM, ROBUST, CPBM, AUTHORS, AUTHORS_ORACLE, CLICKSHARE)
SAME = (PBM, ROBUST, AUTHORS, AUTHORS_ORACLE)
FLAT_FROM, FLAT = 0.5, 0.02
"""Sweeps from which on the paper's error is flat, and by how much it may still fall to count as flat."""


def runs(plan: Plan) -> list[Run]:
    """Return logs of a hundredth of a sweep to ten, at η=.5 and ζ=1."""
    seeds, sweeps = (1, QUICK_SWEEPS) if plan.quick else (6, SWEEPS)
    own = [run for s in sweeps for run in make_runs(plan, MODELS, seeds=seeds, sweeps=s)]
    few = [s for s in sweeps if s < 1]
    return own + [run for s in few for run in make_runs(plan, SAME, seeds=seeds, sweeps=s, repetition="same")]


def summarise(results: Results) -> list[Row]:
    """Return one row per size and model."""
    return error_rows(results, by=("training_queries",))


def headline(results: Results) -> list[Headline]:
    """Return the errors at each size; the paper shows them in a figure, without numbers."""
    return [
        error_headline(f"RelError, {size:,} queries", results.where(training_queries=size), paper=None)
        for size in results.settings("training_queries")
    ]


def checks(results: Results) -> list[Check]:
    """Return: CPBM below PBM at every size, the error falls with data, and is flat from half a sweep."""
    sizes = results.settings("training_queries")
    means = {
        model: [results.where(training_queries=size, model=model).typical("rel_error") for size in sizes]
        for model in MODELS
    }
    found = [
        _below(means[PBM], means[CLICKSHARE], sizes, "ClickShare is below the PBM at every size"),
        _below(means[CPBM], means[CLICKSHARE], sizes, "ClickShare is below the CPBM at every size"),
        _falls(CLICKSHARE, means[CLICKSHARE], sizes),
    ]
    if is_judged(results):
        start = means[CPBM][SWEEPS.index(FLAT_FROM)]
        found += [
            _below(means[PBM], means[CPBM], sizes, "the CPBM is below the PBM at every size"),
            _falls(CPBM, means[CPBM], sizes),
            Check(
                "the CPBM's error is flat from about 5,700 training queries",
                start - means[CPBM][-1] <= FLAT,
                f"it falls from {start:.4f} at {sizes[SWEEPS.index(FLAT_FROM)]:,} to {means[CPBM][-1]:.4f} at "
                f"{sizes[-1]:,}; flat means by {FLAT} at most",
            ),
        ]
    return found


def _falls(model: str, errors: list[float], sizes: list[int]) -> Check:
    first = next((i for i, error in enumerate(errors) if not isnan(error)), 0)
    told = f"from {spell(errors[first])} at {sizes[first]:,} to {errors[-1]:.4f} at {sizes[-1]:,}"
    return Check(f"the error of {model} falls as data grow", errors[-1] < errors[first], told)


def _below(high: list[float], low: list[float], sizes: list[int], claim: str) -> Check:
    """Compare two models where both have an error; where either has none, that is told."""
    known = [i for i in range(len(sizes)) if not isnan(high[i]) and not isnan(low[i])]
    above = [f"{sizes[i]:,} ({spell(low[i])} against {spell(high[i])})" for i in known if low[i] >= high[i]]
    told = f"not at {', '.join(above)}" if above else f"at {len(known)} of {len(sizes)} sizes"
    return Check(
        claim, bool(known) and not above, told + ("" if len(known) == len(sizes) else "; no error at the others")
    )


def chart(results: Results) -> Any:
    """Return RelError by the number of training queries."""
    points = error_points(results, x="training_queries")
    return line_chart(points, x="training_queries", x_title="training queries", y_title="RelError", log_x=True, top=1.0)


EXPERIMENT = Experiment(
    id="fig-data",
    title="RelError by the number of training queries",
    claim="The error of the CPBM falls quickly with data and is flat from about 5,700 training queries on; the CPBM is "
    "below the PBM at every size.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    notes=(
        "Sizes are .01, .05, .1, .5, 1, 5 and 10 sweeps over the paper's 11,473 queries. A log of few clicks may leave "
        "positions that no intervention links to the first: such a run has no RelError, and the table counts it under "
        "*without estimate*. Means are over the others, and so may flatter the smallest sizes.",
        "Our CPBM has no penalty: the paper says that hyper-parameters were chosen by cross-validation, not that there "
        "is one. With a thousand training queries or fewer its 110 parameters of examination are not held back, and "
        "ratios to a propensity near 0 make means enormous. ClickShare's penalty is cross-validated. "
        "The figure ends at 1, the error of an estimate of 0.",
    ),
)
