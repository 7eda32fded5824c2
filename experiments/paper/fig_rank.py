"""fig-rank: the error at each position."""

from __future__ import annotations

from typing import Any

from experiments.families.figures import line_chart
from experiments.families.models import CLICKSHARE, PBM, ROBUST
from experiments.families.semi_synthetic import POSITIONS, is_judged, make_runs
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

MODELS = (PBM, ROBUST, CLICKSHARE)
TOP, BOTTOM = range(2, 5), range(8, 11)
LEAST_CORRELATION = 0.8


def runs(plan: Plan) -> list[Run]:
    """Return ten sweeps at η=.5 and ζ=1, the log of table-pbm."""
    return make_runs(plan, MODELS, seeds=1 if plan.quick else 6, sweeps=10)


def by_position(results: Results, model: str) -> Results:
    """Return one result per run and position, so that means are over runs at a position."""
    return Results(
        type(r)(type(r.run)(r.run.family, r.run.world, r.run.seed, {"position": k}, r.run.fit), {"rel_error": error})
        for r in results.where(model=model)
        for k, error in enumerate(r.numbers.get("by_position", []), 1)
    )


def mean_errors(results: Results, model: str) -> list[float]:
    """Return the mean error at each position, [K]."""
    own = by_position(results, model)
    return [own.where(position=k).mean("rel_error") for k in range(1, POSITIONS + 1)]


def summarise(results: Results) -> list[Row]:
    """Return one row per position, with every model's error and standard deviation."""
    own = {model: by_position(results, model) for model in MODELS}
    rows: list[Row] = []
    for k in range(1, POSITIONS + 1):
        row: Row = {"position": k}
        for model in MODELS:
            here = own[model].where(position=k)
            row |= {model: here.mean("rel_error"), f"{model} sd": here.sd("rel_error")}
        rows.append(row | {"runs": len(own[ROBUST].where(position=k).values("rel_error"))})
    return rows


def headline(results: Results) -> list[Headline]:
    """Return the errors at positions 2, 5 and 10; the paper shows them in a figure, without numbers."""
    lines = []
    for k in (2, 5, 10):
        ours, share = (by_position(results, model).where(position=k) for model in (ROBUST, CLICKSHARE))
        means = ours.mean("rel_error"), share.mean("rel_error")
        sds = ours.sd("rel_error"), share.sd("rel_error")
        lines.append(Headline(f"RelError at position {k}", None, *means, len(ours), *sds))
    return lines


def checks(results: Results) -> list[Check]:
    """Return: the error grows with the position, for the CPBM and for ClickShare."""
    models = (ROBUST, CLICKSHARE) if is_judged(results) else (CLICKSHARE,)
    return [_grows(model, mean_errors(results, model)) for model in models if results.where(model=model)]


def _grows(model: str, errors: list[float]) -> Check:
    from scipy.stats import spearmanr

    places = list(range(2, POSITIONS + 1))
    correlation = float(spearmanr(places, errors[1:]).statistic)
    top, bottom = (sum(errors[k - 1] for k in part) / len(part) for part in (TOP, BOTTOM))
    return Check(
        f"the error of {model} grows with the position",
        correlation >= LEAST_CORRELATION and bottom > top,
        f"rank correlation {correlation:.2f} (at least {LEAST_CORRELATION}); mean {top:.4f} at positions 2-4, "
        f"{bottom:.4f} at 8-10",
    )


def chart(results: Results) -> Any:
    """Return RelError by position."""
    points = []
    for model in MODELS:
        own = by_position(results, model)
        for k in range(1, POSITIONS + 1):
            here = own.where(position=k)
            points.append({"model": model, "position": k, "mean": here.mean("rel_error"), "sd": here.sd("rel_error")})
    return line_chart(points, x="position", x_title="position", y_title="RelError")


EXPERIMENT = Experiment(
    id="fig-rank",
    title="RelError by position",
    claim="With 114,730 training queries, η=.5 and ζ=1 the error of the CPBM grows with the position.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    by_model=True,
    notes=("Position 1 is the anchor, with no error by definition.",),
)
