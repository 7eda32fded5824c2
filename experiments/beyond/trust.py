"""beyond-trust: users believe what stands high, so a click depends on the position even when the result is seen."""

from __future__ import annotations

from typing import Any

from experiments.beyond.click_models import Beside, at_most, chooses
from experiments.beyond.departures import make_experiment
from experiments.families.click_models import AFFINE, AUTO, EXAMINATION, make_runs
from experiments.families.models import CLICKSHARE
from experiments.runner.experiment import Check, Plan
from experiments.runner.runs import Results, Run

LEAST = 2.0
SLOPES = 0.1
"""Largest error of slopes where examination is alike in all contexts."""


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: trust bias does break the estimate, ours too."""
    return [
        Check(
            "trust bias at least doubles ClickShare's error",
            changed[CLICKSHARE] >= LEAST * plain[CLICKSHARE],
            f"from {plain[CLICKSHARE]:.4f} to {changed[CLICKSHARE]:.4f}",
        )
    ]


def click_models(plan: Plan, seeds: int, sweeps: float) -> list[Run]:
    """Return affine, auto and what they must beat: on the same logs, and on logs without an effect of context."""
    log: dict[str, Any] = {"seeds": seeds, "sweeps": sweeps, "clicks": "trust"}
    return [
        *make_runs(plan, (EXAMINATION, AFFINE, AUTO), context=True, **log),
        *make_runs(plan, (AFFINE, AUTO), context=False, **log),
        *make_runs(plan, (EXAMINATION, AFFINE, AUTO), context=False, eta=0.0, **log),
    ]


def judge_models(results: Results, others: dict[str, float]) -> list[Check]:
    """Return: corrected clicks are right where the model is, and twice as exact as weighed ones where it is not."""
    checks = []
    for eta, context, where in (
        (0.0, False, "where contexts change nothing"),
        (0.5, True, "where it knows the contexts that change examination"),
        (0.5, False, "though contexts that it does not know change examination"),
    ):
        own = results.where(eta=eta)
        half = own.where(model=EXAMINATION).mean("corrected") / 2
        found = own.where(model=AFFINE, context=context).mean("corrected")
        claim = f"affine: corrected clicks are twice as exact as those of the examination model, {where}"
        checks.append(at_most(claim, found, half, "half of the examination model's error"))
    alike = results.where(eta=0.0)
    claim = "affine: slopes are within a tenth where contexts change nothing"
    checks.append(at_most(claim, alike.where(model=AFFINE).mean("slope_error"), SLOPES, "the bar"))
    known = "auto chooses affine in every log where it knows the contexts that change examination"
    hidden = "auto chooses affine in every log though contexts that it does not know change examination"
    return [
        *checks,
        chooses(alike, (AFFINE,), "auto chooses affine in every log where contexts change nothing"),
        chooses(results.where(eta=0.5, context=True), (AFFINE,), known),
        chooses(results.where(eta=0.5, context=False), (AFFINE,), hidden),
    ]


EXPERIMENT = make_experiment(
    id="beyond-trust",
    title="Trust bias",
    claim="Clicks that depend on the position even when a result is examined break every method that compares "
    "positions: what is estimated is examination times trust. All errors should be large, ours too.",
    settings={"clicks": "trust"},
    judge=judge,
    notes=(
        "Errors are against examination alone. Trust falls with the position for irrelevant results more than for "
        "relevant ones, and so no single curve describes clicks; `clickharvest fit` tests for that.",
        "Rows of examination, affine and auto are of `fit --model`: *slopes* is the mean of |1 − â/a| against the true "
        "slopes α_k(x) / α_1(x), *corrected* the root mean square of (E[C] − b̂) / â less the click rate at position 1, "
        "over displays below it. For examination â are its propensities and b̂ is 0. With context, affine has a line "
        "for each of five classes of how steeply examination falls. Without, queries are unlike, which it mistakes for "
        "trust (docs/trust.md).",
    ),
    beside=Beside(
        (EXAMINATION, AFFINE, AUTO), click_models, {"slope_error": "slopes", "corrected": "corrected"}, judge_models
    ),
)
