"""What the click models that `fit --model` offers make of a departure: their rows and checks beside the others'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan

from experiments.families.click_models import AUTO, FAMILY
from experiments.families.semi_synthetic import JUDGED_FROM
from experiments.runner.experiment import Check, Plan, Row
from experiments.runner.runs import Results, Run

ALIKE = "changed, examination alike in all contexts"


@dataclass(frozen=True)
class Beside:
    """Click models on the logs of an experiment, judged by errors of their own.

    Attributes:
        models: the models.
        runs: plan, number of seeds and sweeps to runs.
        columns: names of their errors to the names of columns.
        judge: their results at the largest size, and the errors of the other models there, to checks.
    """

    models: tuple[str, ...]
    runs: Callable[[Plan, int, float], list[Run]]
    columns: Mapping[str, str]
    judge: Callable[[Results, dict[str, float]], list[Check]]

    def checks(self, results: Results, others: dict[str, float]) -> list[Check]:
        """Return the checks at the largest size; none on small logs, or where a model has not been measured there."""
        size = max(results.settings("training_queries"), default=0)
        largest = results.where(training_queries=size)
        told = size >= JUDGED_FROM and set(self.models) <= set(largest.settings("model"))
        return self.judge(largest, others) if told else []


def apart(results: Results) -> tuple[Results, Results]:
    """Return the results of the other models, and those of click models."""
    own = Results(r for r in results if r.run.family == FAMILY)
    return Results(r for r in results if r.run.family != FAMILY), own


def model_name(run: Run) -> str:
    """Return the model of a run as tables name it.

    Example:
        >>> model_name(Run("click_models", "synthetic", 0, {}, {"model": "browsing", "context": True}))
        'browsing, with context'
    """
    return f"{run['model']}{', with context' * bool(run['context'])}"


def model_rows(results: Results, columns: Mapping[str, str], like: Row, changed: str) -> list[Row]:
    """Return one row per log, size and model: means over runs.

    Args:
        results: those of click models.
        columns: as of `Beside`.
        like: a row whose columns these shall have, too; empty where they are others.
        changed: the name of the log.
    """
    cells = dict.fromkeys((r.run["eta"], r.run["training_queries"], r.run["model"], r.run["context"]) for r in results)
    rows = []
    for eta, queries, model, context in cells:
        own = results.where(eta=eta, training_queries=queries, model=model, context=context)
        chosen = [r.numbers["chosen"] for r in own if "chosen" in r.numbers]
        rows.append(
            dict.fromkeys(like)
            | {
                "log": ALIKE if eta == 0 else changed,
                "training_queries": queries,
                "model": model_name(own[0].run),
                "runs": len(own) - len(own.refused),
                "without estimate": len(own.refused),
                "clicks": round(own.mean("clicks")) if own.values("clicks") else None,
                "curves": ", ".join(f"{name} × {chosen.count(name)}" for name in dict.fromkeys(chosen)),
                **{column: own.mean(name) if own.values(name) else None for name, column in columns.items()},
            }
        )
    return rows


def at_most(claim: str, found: float, bar: float, of: str, cause: str = "") -> Check:
    """Return the check that an error is at most a bar.

    Example:
        >>> check = at_most("half", 0.3, 0.25, "half of .5")
        >>> check.verdict, check.sentence
        ('FAIL', '0.3000; half of .5 is 0.2500')
    """
    told = "no estimate" if isnan(found) else f"{found:.4f}"
    return Check(claim, found <= bar, f"{told}; {of} is {bar:.4f}", cause)


def chooses(results: Results, wanted: tuple[str, ...], claim: str) -> Check:
    """Return the check that auto chooses one of some models in every log."""
    found = [r.numbers.get("chosen", "nothing") for r in results.where(model=AUTO)]
    told = ", ".join(f"{name} in {found.count(name)}" for name in dict.fromkeys(found))
    return Check(claim, bool(found) and set(found) <= set(wanted), f"of {len(found)} logs, {told or 'none'}")
