"""beyond-traffic, -repetition, -relevance, -trust and -cascade: logs that depart from the paper's protocol in one way.

Every model of propensities is judged by RelError on both logs, the protocol's and the changed one. Where users trust or
browse, the click models that `fit --model` offers are judged on the same logs by errors of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any

from experiments.click_models import AFFINE, AUTO, BROWSING, EXAMINATION, FAMILY, READING
from experiments.click_models import make_runs as make_click_model_runs
from experiments.error_tables import error_chart, error_headline, error_rows
from experiments.experiment import Check, Experiment, Headline, Plan, Row
from experiments.models import CLICKSHARE, CPBM, CPBM_CONSTANT, CPBM_NETWORK, CTR, EM, PBM
from experiments.runs import Results, Run
from experiments.semi_synthetic import is_judged, make_runs

PLAIN, CHANGED, ALIKE = "the paper's protocol", "changed", "changed, examination alike in all contexts"
MOST_RISE = 1.5
"""Largest ratio of ClickShare's errors with unequal and with equal traffic."""
LEAST_RISE = 2.0
"""Smallest ratio of ClickShare's errors where an assumption of every curve is broken."""
SLOPES = 0.1
"""Largest error of slopes where examination is alike in all contexts."""
BROWSING_CAUSE = (
    "browsing tells pages apart by their last click alone, while the truth also depends on the results that were "
    "skipped. Against the mean truth of pages with the same last click its mean |log(p̂/p)| is 0.23 (examination: "
    "0.93), against that of each page 0.78 (benchmarks/browsing.py)"
)

Errors = dict[str, float]
"""RelError by model at the largest size."""


@dataclass(frozen=True)
class Departure:
    """A change of the protocol, the models that are compared on it, and what should come out.

    Attributes:
        settings: arguments of `simulate_protocol` that differ from the protocol at η=.5 and ζ=1.
        judge: errors without and with the change to checks.
        models: the models to compare.
        plain: settings of the log without the change.
        click_models: fits of click models: model, whether it is given the contexts, settings of its log.
        columns: names of the errors of click models to names of columns.
        judge_click_models: results of click models at the largest size, and ClickShare's error there, to checks.
    """

    settings: Mapping[str, Any]
    judge: Callable[[Errors, Errors], list[Check]]
    models: tuple[str, ...] = (PBM, CPBM, CLICKSHARE, EM, CTR)
    plain: Mapping[str, Any] = field(default_factory=dict)
    click_models: tuple[tuple[str, bool, Mapping[str, Any]], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    judge_click_models: Callable[[Results, float], list[Check]] = lambda results, clickshare: []

    def runs(self, plan: Plan) -> list[Run]:
        """Return one sweep and ten, with and without the change; ten in quick plans."""
        seeds, sweeps = (1, [10]) if plan.quick else (3, [1, 10])
        logs = [self.plain, self.settings] if self.plain != self.settings else [self.settings]
        runs = [
            run for log in logs for s in sweeps for run in make_runs(plan, self.models, seeds=seeds, sweeps=s, **log)
        ]
        for s in sweeps:
            for model, context, log in self.click_models:
                runs += make_click_model_runs(plan, [model], seeds=seeds, sweeps=s, context=context, **log)
        return runs

    def parts(self, results: Results) -> tuple[Results, Results, Results]:
        """Return the results without the change, those with it, and those of click models."""
        others = Results(r for r in results if r.run.family != FAMILY)
        absent: dict[str, Any] = dict.fromkeys(self.settings)
        plain = others.where(**absent | {"eta": 0.5, "zeta": 1.0} | dict(self.plain))
        return plain, others.where(**self.settings), Results(r for r in results if r.run.family == FAMILY)

    def rows(self, results: Results) -> list[Row]:
        """Return one row per log, size and model."""
        plain, changed, click_models = self.parts(results)
        tables = {PLAIN: plain, CHANGED: changed} if self.plain != self.settings else {CHANGED: changed}
        rows: list[Row] = [
            {"log": log, **row} for log, part in tables.items() for row in error_rows(part, by=("training_queries",))
        ]
        rows = [row | dict.fromkeys(self.columns.values()) for row in rows]
        names = ("eta", "training_queries", "model", "context")
        for eta, queries, model, context in dict.fromkeys(tuple(r.run[name] for name in names) for r in click_models):
            runs = click_models.where(eta=eta, training_queries=queries, model=model, context=context)
            chosen = [r.numbers["chosen"] for r in runs if "chosen" in r.numbers]
            row: Row = {
                "log": ALIKE if eta == 0 else CHANGED,
                "training_queries": queries,
                "model": f"{model}{', with context' * bool(context)}",
                "runs": len(runs) - len(runs.refused),
                "without estimate": len(runs.refused),
                "clicks": round(runs.mean("clicks")) if runs.values("clicks") else None,
                "curves": ", ".join(f"{name} × {chosen.count(name)}" for name in dict.fromkeys(chosen)),
            }
            row |= {column: runs.mean(name) if runs.values(name) else None for name, column in self.columns.items()}
            rows.append(dict.fromkeys(rows[0]) | row)
        return rows

    def headlines(self, results: Results) -> list[Headline]:
        """Return the errors at the largest size."""
        changed = largest(self.parts(results)[1])
        return [error_headline(f"RelError, {changed[0].run['training_queries']:,} queries", changed, ours=CPBM)]

    def checks(self, results: Results) -> list[Check]:
        """Return what should come out; of click models only on large logs."""
        plain, changed, click_models = (largest(part) for part in self.parts(results))
        before, after = (
            {model: part.where(model=model).typical("rel_error") for model in self.models} for part in (plain, changed)
        )
        checks = self.judge(before, after)
        if click_models and is_judged(click_models):
            checks += self.judge_click_models(click_models, after[CLICKSHARE])
        return checks

    def chart(self, results: Results) -> Any:
        """Return RelError with the change by the number of training queries."""
        changed = self.parts(results)[1]
        return error_chart(changed, "training_queries", "training queries", log_x=True, log_y=True)


def largest(results: Results) -> Results:
    """Return the results on the largest logs."""
    return results.where(training_queries=max(results.settings("training_queries"), default=0))


def smallest_error(errors: Errors) -> Check:
    """Return the check that ClickShare has the smallest error of all models."""
    others = {model: error for model, error in errors.items() if model != CLICKSHARE and not isnan(error)}
    best = min(others, key=others.__getitem__)
    sentence = f"{errors[CLICKSHARE]:.4f}; next is {best}, {others[best]:.4f}"
    return Check("ClickShare has the smallest error of all", errors[CLICKSHARE] < others[best], sentence)


def judge_traffic(plain: Errors, changed: Errors) -> list[Check]:
    """Return: ClickShare is best, and hardly worse than with equal traffic."""
    claim = f"unequal traffic raises ClickShare's error by less than {MOST_RISE - 1:.0%}"
    return [smallest_error(changed), _rise(claim, plain, changed, changed[CLICKSHARE] < MOST_RISE * plain[CLICKSHARE])]


def judge_repetition(plain: Errors, changed: Errors) -> list[Check]:
    """Return: ClickShare is best, and still has less than half of the PBM's error."""
    sentence = (
        f"{changed[CLICKSHARE]:.4f} and {changed[PBM]:.4f}; with even repetition {plain[CLICKSHARE]:.4f} and "
        f"{plain[PBM]:.4f}"
    )
    claim = "ClickShare's error is less than half of the PBM's"
    return [smallest_error(changed), Check(claim, changed[CLICKSHARE] < changed[PBM] / 2, sentence)]


def judge_relevance(plain: Errors, changed: Errors) -> list[Check]:
    """Return: ClickShare, without a relevance model, beats AllPairs with the right and with the wrong one."""
    pairs = {"a network": changed[CPBM_NETWORK], "constants": changed[CPBM_CONSTANT], "one chosen": changed[CPBM]}
    numbers = ", ".join(f"{relevance} for g {error:.4f}" for relevance, error in pairs.items())
    claim = "ClickShare beats AllPairs whatever its relevance model"
    passed = changed[CLICKSHARE] < min(pairs.values())
    return [Check(claim, passed, f"{changed[CLICKSHARE]:.4f}; AllPairs with {numbers}")]


def judge_break(what: str, plain: Errors, changed: Errors) -> list[Check]:
    """Return: the change breaks the estimate, ours too."""
    claim = f"{what} at least doubles ClickShare's error"
    return [_rise(claim, plain, changed, changed[CLICKSHARE] >= LEAST_RISE * plain[CLICKSHARE])]


def _rise(claim: str, plain: Errors, changed: Errors, passed: bool) -> Check:
    return Check(claim, passed, f"from {plain[CLICKSHARE]:.4f} to {changed[CLICKSHARE]:.4f}")


def at_most(claim: str, error: float, bar: float, of: str, cause: str = "") -> Check:
    """Return the check that an error is at most a bar.

    Example:
        >>> check = at_most("half", 0.3, 0.25, "half of .5")
        >>> check.verdict, check.sentence
        ('FAIL', '0.3000; half of .5 is 0.2500')
    """
    number = "no estimate" if isnan(error) else f"{error:.4f}"
    return Check(claim, error <= bar, f"{number}; {of} is {bar:.4f}", cause)


def chooses(results: Results, wanted: str, where: str) -> Check:
    """Return the check that auto chooses a model in every log."""
    chosen = [r.numbers.get("chosen", "nothing") for r in results.where(model=AUTO)]
    counts = ", ".join(f"{name} in {chosen.count(name)}" for name in dict.fromkeys(chosen))
    claim = f"auto chooses {wanted} in every log{where}"
    return Check(claim, set(chosen) == {wanted}, f"of {len(chosen)} logs, {counts or 'none'}")


def judge_trust(results: Results, clickshare: float) -> list[Check]:
    """Return: corrected clicks are right where the model is, and twice as exact as weighed ones where it is not."""
    cases = (
        (0.0, False, "where contexts change nothing"),
        (0.5, True, "where it knows the contexts that change examination"),
        (0.5, False, "though contexts that it does not know change examination"),
    )
    checks = []
    for eta, context, where in cases:
        log = results.where(eta=eta)
        half = log.where(model=EXAMINATION).mean("corrected") / 2
        error = log.where(model=AFFINE, context=context).mean("corrected")
        claim = f"affine: corrected clicks are twice as exact as those of the examination model, {where}"
        checks.append(at_most(claim, error, half, "half of the examination model's error"))
    slopes = results.where(eta=0.0, model=AFFINE).mean("slope_error")
    checks.append(at_most("affine: slopes are within a tenth where contexts change nothing", slopes, SLOPES, "the bar"))
    for eta, context, where in cases:
        checks.append(chooses(results.where(eta=eta, context=context), AFFINE, f" {where}"))
    return checks


def judge_cascade(results: Results, clickshare: float) -> list[Check]:
    """Return: models of pages come close to what each display is worth; the bar was set before they were there."""
    checks = []
    names = {"impression_error": "RelError by display", "seen_error": "the error of what is seen"}
    for model, cause in ((BROWSING, BROWSING_CAUSE), (READING, "")):
        own = results.where(model=model)
        claim = f"{model}: RelError by display is at most a third of ClickShare's RelError by context"
        checks.append(at_most(claim, own.mean("impression_error"), clickshare / 3, "a third of ClickShare's", cause))
        for name, error in names.items():
            examination = results.where(model=EXAMINATION).mean(name)
            claim = f"{model}: {error} is smaller than that of the examination model"
            checks.append(at_most(claim, own.mean(name), examination, "the examination model's", cause))
    return [*checks, chooses(results, READING, "")]


TRUST, CASCADE, STRONG = {"clicks": "trust"}, {"clicks": "cascade"}, {"eta": 1.0, "zeta": 1.0}
DEPARTURES = {
    "traffic": Departure({"traffic": [80, 15, 5]}, judge_traffic),
    "repetition": Departure({"repetition": "zipf"}, judge_repetition),
    "relevance": Departure(
        STRONG, judge_relevance, (PBM, CPBM, CPBM_NETWORK, CPBM_CONSTANT, CLICKSHARE, EM, CTR), plain=STRONG
    ),
    "trust": Departure(
        TRUST,
        partial(judge_break, "trust bias"),
        click_models=(
            *((model, True, TRUST) for model in (EXAMINATION, AFFINE, AUTO)),
            *((model, False, TRUST) for model in (AFFINE, AUTO)),
            *((model, False, TRUST | {"eta": 0.0}) for model in (EXAMINATION, AFFINE, AUTO)),
        ),
        columns={"slope_error": "slopes", "corrected": "corrected"},
        judge_click_models=judge_trust,
    ),
    "cascade": Departure(
        CASCADE,
        partial(judge_break, "the cascade"),
        click_models=tuple((model, True, CASCADE) for model in (EXAMINATION, BROWSING, READING, AUTO)),
        columns={"impression_error": "by display", "seen_error": "of what is seen"},
        judge_click_models=judge_cascade,
    ),
}
EXPERIMENTS = [
    Experiment(f"beyond-{name}", one.runs, one.rows, one.headlines, one.checks, one.chart)
    for name, one in DEPARTURES.items()
]
