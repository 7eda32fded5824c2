"""The command `fit`: from a log or a file of interventions to a model file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from clickharvest.commands.choices import choice, curve_names, objective_names, relevance_names, weighting_names
from clickharvest.commands.options import (
    AnchorOption,
    HarvestOptions,
    JsonFlag,
    LogOptions,
    OutputPath,
    parse_words,
    with_options,
)
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.progress import Progress

if TYPE_CHECKING:
    from clickharvest.estimation.estimators import CPBM, PBM, Intervals
    from clickharvest.harvesting.interventions import Interventions

MODEL = "The model"


class IntervalName(StrEnum):
    """Where error bars come from."""

    auto = "auto"
    clustered = "clustered"
    bootstrap = "bootstrap"
    sandwich = "sandwich"
    none = "none"


class TrackerName(StrEnum):
    """Where fits are tracked."""

    mlflow = "mlflow"


@dataclass(frozen=True)
class FitOptions:
    """Which model to fit, and how."""

    objective: Annotated[str, choice("--objective", objective_names, help="What the fit maximises.", panel=MODEL)] = (
        "clickshare"
    )
    curve: Annotated[
        str,
        choice(
            "--curve",
            curve_names,
            help="How examination depends on position and context; auto chooses by cross-validation. "
            "Without context columns it is constant.",
            panel=MODEL,
        ),
    ] = "auto"
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="NAME=N,…",
            help="Shape parameters of the curve, such as rank=2 of lowrank or width=8 of mlp.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    penalty: Annotated[
        float | None,
        typer.Option(
            "--penalty", help="Instead of pooling or cross-validation: λ on context effects.", rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None  # fmt: skip
    relevance: Annotated[
        str | None,
        choice(
            "--relevance",
            relevance_names,
            help="Relevance model of AllPairs (default: auto, or constant if a curve or penalty is named).",
            show_default=False,
            panel=MODEL,
        ),
    ] = None
    weighting: Annotated[
        str, choice("--weighting", weighting_names, help="Weights of units in AllPairs.", panel=MODEL)
    ] = "paper"
    intervals: Annotated[
        IntervalName,
        typer.Option(
            "--intervals",
            help="Error bars, by query; auto is clustered where log examination is linear in the parameters, "
            "and bootstrap elsewhere.",
            rich_help_panel=MODEL,
        ),
    ] = IntervalName.auto
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", metavar="N", help="Bootstrap replicates.", rich_help_panel=MODEL)
    ] = 1_000
    seed: Annotated[int, typer.Option("--seed", help="Seed of all randomness.", rich_help_panel=MODEL)] = 0
    log_to: Annotated[
        TrackerName | None,
        typer.Option(
            "--log-to", help="Track the fit: parameters, figures, the model and its report.", rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None  # fmt: skip

    def estimator(self, with_context: bool, anchor: int, progress: Progress) -> PBM | CPBM:
        """Return the estimator the options describe: a CPBM where there is context to depend on."""
        from clickharvest.estimation.estimators import CPBM, PBM

        if self.bootstrap < 2:
            raise InputError(f"--bootstrap {self.bootstrap}: expected 2 replicates or more, or --intervals none")
        if self.penalty is not None and self.penalty < 0:
            raise InputError(f"--penalty {self.penalty:g}: expected 0 or more")
        intervals = None if self.intervals is IntervalName.none else cast("Intervals", self.intervals.value)
        if not with_context:
            if self.curve not in ("auto", "constant"):
                raise InputError(f"--curve {self.curve}: a curve that depends on context needs --context columns")
            if self.shape is not None:
                raise InputError(f"--shape {self.shape}: the constant curve has no shape; name context and a curve")
            return PBM(
                objective=self.objective, anchor=anchor, weighting=self.weighting, intervals=intervals,
                replicates=self.bootstrap, seed=self.seed, progress=progress,
            )  # fmt: skip
        return CPBM(
            curve=self.curve, shape=self.curve_shape, objective=self.objective, anchor=anchor,
            penalty="auto" if self.penalty is None else self.penalty, relevance=self.relevance,
            weighting=self.weighting, intervals=intervals, replicates=self.bootstrap, seed=self.seed,
            progress=progress,
        )  # fmt: skip

    @property
    def curve_shape(self) -> dict[str, int] | None:
        """The shape of the curve, if given."""
        if self.shape is None:
            return None
        words = parse_words(self.shape, "--shape")
        if bad := [f"{name}={value}" for name, value in words.items() if not value.isdecimal()]:
            raise InputError(f"--shape {bad[0]}: expected an integer, as in rank=2")
        return {name: int(value) for name, value in words.items()}


@with_options
def fit(
    log: LogOptions,
    units: HarvestOptions,
    model: FitOptions,
    anchor: AnchorOption = 1,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Estimate how examination falls with position, and with the context.

    Reads a click log, or a file of interventions, and writes a model file.

    Examples:

      clickharvest fit clicks.parquet --context device -o model.safetensors

      clickharvest fit interventions.parquet --curve linear --bootstrap 500 -o model.safetensors
    """
    from clickharvest.harvesting.collecting import harvest
    from clickharvest.harvesting.interventions import is_interventions, read_interventions

    if output is None:
        raise InputError("nowhere to write the model: name a file with -o model.safetensors")
    if output.suffix != ".safetensors":
        raise InputError(f"a model is a safetensors file: -o {output} should end in .safetensors")
    if is_interventions(log.source):
        interventions = read_interventions(log.source)
    else:
        interventions = harvest(log.read(show_progress), **units.arguments(log))
    _fit(interventions, model, output, anchor, as_json)


def _fit(interventions: Interventions, options: FitOptions, output: Path, anchor: int, as_json: bool) -> None:
    """Fit, save the model, and print what it found."""
    from clickharvest.commands.terminal import finding_line, screen
    from clickharvest.estimation.model_checks import check_model
    from clickharvest.model.summary import describe_model
    from clickharvest.report.tracking import log_to_mlflow

    with_context = bool(interventions.contexts) and options.curve != "constant"
    model = options.estimator(with_context, anchor, show_progress).fit(interventions)
    with show_progress("Checking the model"):
        findings = check_model(interventions, anchor=anchor, seed=options.seed)
    checks = [asdict(finding) for finding in findings]
    found = model.propensities_
    origin = found.provenance and found.provenance.with_command(sys.argv[1:])
    propensities = replace(found, info=dict(found.info) | {"checks": checks}, provenance=origin)
    propensities.save(output)
    run = {} if options.log_to is None else {"mlflow_run": log_to_mlflow(propensities, output)}
    if as_json:
        print(json.dumps({"file": str(output), **run} | describe_model(propensities), indent=2))
        return
    console = screen()
    console.print(str(propensities))
    console.print("\nDoes the model fit?")
    for finding in findings:
        console.print(finding_line(finding))
    console.print(f"\nSaved: {output}")
    for tracked in run.values():
        console.print(f"Logged to MLflow: run {tracked}")
