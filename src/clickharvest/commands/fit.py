"""The command `fit`: from a log or a file of interventions to a model file."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.click_models.registry import AUTO, EXAMINATION
from clickharvest.commands.bounds import SEED, between, whole
from clickharvest.commands.check_options import CHECKS, CheckOptions
from clickharvest.commands.choices import (
    curve_names,
    model_names,
    objective_names,
    relevance_names,
    weighting_names,
)
from clickharvest.commands.harvest_options import HarvestOptions, require_clusters
from clickharvest.commands.inputs import place_to_write
from clickharvest.commands.options import (
    QUERY,
    UNITS,
    AnchorOption,
    ClusterOption,
    JsonFlag,
    LogOptions,
    MaxClicksOption,
    OutputPath,
    option,
    parse_words,
)
from clickharvest.commands.outcomes import OutcomeOption, harvest_outcomes, outcome_info, read_with_outcomes
from clickharvest.commands.output import complain, tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.telling import described
from clickharvest.commands.threads import keep_to_one_thread
from clickharvest.errors import InputError
from clickharvest.parameters import MOST_CLICKS
from clickharvest.positions.places import Anchor, find_anchor
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Finding
    from clickharvest.checks.instrument import Instrumented
    from clickharvest.click_models.base import ClickModel
    from clickharvest.click_models.choosing import ModelChoice
    from clickharvest.harvesting.designs import Design
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

MODEL = "The model"
LARGEST_PENALTY = 1e12
MOST_LINES = 25
"""Of the output; more of them do not fit on a screen."""
REPLICATES, MOST_REPLICATES = 1_000, 10_000
MOST_UNITS = 1_000
"""Of a shape, such as hidden units."""


class IntervalName(StrEnum):
    """Where error bars come from."""

    auto = "auto"
    clustered = "clustered"
    bootstrap = "bootstrap"
    sandwich = "sandwich"
    none = "none"


class InstrumentName(StrEnum):
    """What decides by chance where users see a result."""

    ranker = "ranker"


class TrackerName(StrEnum):
    """Where fits are tracked."""

    mlflow = "mlflow"


_model = partial(option, panel=MODEL)


@dataclass(frozen=True)
class FitOptions:
    """Which model to fit, and how."""

    click_model: str = _model(
        "How clicks come about: by examination and relevance; browsing: the last click above counts, too; reading: and "
        "what was skipped; affine: trust in high results, too; auto: whichever fits.",
        default=EXAMINATION, flags=("--model",), names=model_names,
    )  # fmt: skip
    objective: str = _model("What the fit maximises.", default="clickshare", names=objective_names, rare=True)
    curve: str = _model(
        "How examination depends on position and context; auto: by cross-validation, constant without context columns.",
        default="auto", names=curve_names,
    )  # fmt: skip
    shape: str | None = _model(
        "Shape parameters of the curve, such as rank=2 of lowrank or width=8 of mlp.", "NAME=N,…", rare=True
    )
    penalty: float | None = _model(
        "Instead of pooling or cross-validation: λ on context effects.", rare=True, check=between(0, LARGEST_PENALTY)
    )
    relevance: str | None = _model(
        "Relevance model of AllPairs (default: auto, or constant if a curve or penalty is named).",
        names=relevance_names, rare=True,
    )  # fmt: skip
    weighting: str = _model("Weights of units in AllPairs.", default="paper", names=weighting_names, rare=True)
    intervals: IntervalName = _model(
        "Error bars, by query; auto is clustered with --objective clickshare. Elsewhere it is bootstrap, and none "
        "where folds chose curve or penalty.",
        default=IntervalName.auto, rare=True,
    )  # fmt: skip
    bootstrap: int = _model(
        "Bootstrap replicates, where intervals are those of a bootstrap.", "N", REPLICATES, rare=True,
        check=whole(2, MOST_REPLICATES),
    )  # fmt: skip
    start: Path | None = _model("Yesterday's model: start from its curve and penalty.", "MODEL", rare=True)
    seed: int = _model("Seed of all randomness.", default=0, rare=True, check=whole(*SEED))
    log_to: TrackerName | None = _model("Track the fit: parameters, figures, the model and its report.", rare=True)

    def chosen(self, data: ClickLog | Interventions, anchor: Anchor, how: dict[str, Any]) -> ModelChoice:
        """Return which click model the data speak for.

        Raises:
            InputError: an option is given that not every click model takes.
        """
        from clickharvest.click_models.choosing import choose_click_model
        from clickharvest.click_models.registry import CLICK_MODELS

        self._refuse(set.intersection(*(set(kind.options()) for kind in CLICK_MODELS.values())))
        at = find_anchor(anchor, data.places)
        return choose_click_model(data, anchor=at, seed=self.seed, progress=show_progress, **how)

    def _refuse(self, taken: Collection[str]) -> None:
        flags = {"bootstrap": "replicates"}
        for field in fields(self):
            is_given = getattr(self, field.name) != field.default
            if is_given and flags.get(field.name, field.name) not in (*taken, "click_model", "log_to"):
                raise InputError(f"--{field.name}: the model {self.click_model} has no such option; leave it out")

    def model(self) -> ClickModel:
        """Return the click model with the options that it takes, but for the anchor, which a harvest must tell first.

        Raises:
            InputError: an option is given that the model does not take.
        """
        from clickharvest.click_models.registry import CLICK_MODELS

        kind: type[ClickModel] = CLICK_MODELS.find(self.click_model)
        taken = kind.options()
        self._refuse(taken)
        given: dict[str, Any] = {
            **{name: getattr(self, name) for name in ("objective", "curve", "penalty", "relevance", "weighting")},
            "shape": self.curve_shape,
            "intervals": None if self.intervals is IntervalName.none else self.intervals.value,
            "replicates": self.bootstrap,
            "start": self.started_from,
            "seed": self.seed,
            "progress": show_progress,
        }
        return kind(**{name: value for name, value in given.items() if name in taken})

    @property
    def started_from(self) -> Propensities | None:
        """The model to start from, if given."""
        if self.start is None:
            return None
        from clickharvest.click_models.loading import load_model
        from clickharvest.model.propensities import Propensities

        found = load_model(self.start)
        if not isinstance(found, Propensities):
            raise InputError(f"--start {self.start} is a model of {found.kind}: expected one of {EXAMINATION}")
        return found

    @property
    def curve_shape(self) -> dict[str, int] | None:
        """The shape of the curve, if given."""
        if self.shape is None:
            return None
        words = parse_words(self.shape, "--shape")
        fits = [value.isdecimal() and len(value) < 10 and 1 <= int(value) <= MOST_UNITS for value in words.values()]
        if bad := [f"{name}={value}" for (name, value), fit in zip(words.items(), fits, strict=True) if not fit]:
            raise InputError(
                f"--shape {clean_text(bad[0])}: expected a whole number from 1 to {MOST_UNITS:,}, as in rank=2"
            )
        return {name: int(value) for name, value in words.items()}


def fit(
    log: LogOptions,
    units: HarvestOptions,
    model: FitOptions,
    checks: CheckOptions,
    outcome: OutcomeOption = None,
    cluster: ClusterOption = QUERY,
    max_clicks: MaxClicksOption = MOST_CLICKS,
    anchor: AnchorOption = "1",
    instrument: Annotated[
        InstrumentName | None,
        option(
            "Rankers know their users, and an A/B test assigned them at random: compare rankers.",
            panel=UNITS,
            rare=True,
        ),
    ] = None,
    no_checks: Annotated[bool, option("Do not tell how far off the curve can be.", panel=CHECKS, rare=True)] = False,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Estimate how examination falls with position, and with the context.

    Reads a click log, or a file of interventions, and writes a model file. With --outcome the model is of what comes of
    a click, such as a purchase, by position: weigh takes it as --after-click.

    The answer ends with how far off the curve can be, by position and by cause, and what was not tested.

    Examples:

      clickharvest fit clicks.parquet --context device -o model.safetensors

      clickharvest fit interventions.parquet --curve power -o model.safetensors

      clickharvest fit today.parquet --start yesterday.safetensors -o model.safetensors
    """
    keep_to_one_thread()
    from clickharvest.checks.checking import FINDINGS
    from clickharvest.commands.one_screen import words_of_log
    from clickharvest.harvesting.large_logs import thin
    from clickharvest.harvesting.reading import is_interventions

    # Yesterday's model may be replaced by today's.
    output = place_to_write(output, "the model", "model.safetensors", [*log.sources, units.rankings])
    checks.arguments()  # a fit is not to be lost to an option that cannot be read
    told: dict[str, Any] = {}
    choice: ModelChoice | None = None
    data: ClickLog | Interventions | None = None
    how: dict[str, Any] = {}
    arms: Instrumented | None = None
    if instrument is not None:
        others = {
            "a file of interventions": is_interventions(log.source),
            f"--model {model.click_model}": model.click_model != EXAMINATION,
            "--outcome": outcome is not None,
            "--cluster": cluster != QUERY,
            "the design of exposures": units.design(log.base) is not None,
        }
        if given := [other for other, is_given in others.items() if is_given]:
            raise InputError(f"--instrument compares what rankers showed in a log: it does not go with {given[0]}")
        data = log.read(show_progress)
        arms = _compare_arms(data, units)
        interventions, told = arms.interventions, {"instrument": instrument.value}
    elif outcome is not None:
        interventions, told = _harvest_outcomes(log, units, model, outcome, cluster, max_clicks, anchor)
    else:
        if is_interventions(log.source):
            data = units.read_interventions(log)
            require_clusters(data, cluster, log.source)
            data = thin(data, max_clicks)
        else:
            data = log.read(show_progress)
            how = {**units.arguments(log), "cluster": cluster, "max_clicks": max_clicks}
        if model.click_model == AUTO:
            choice = model.chosen(data, anchor, how)
            model, told = replace(model, click_model=choice.model), choice.info()
        interventions = _harvest(data, model.model(), how)
    if interventions.thinned_from:
        told |= {"thinned_from": interventions.thinned_from, "max_clicks": max_clicks}
    chosen = replace(model.model(), anchor=find_anchor(anchor, interventions.places))  # type: ignore[call-arg]
    fitted = _fit(interventions, chosen, told)
    fitted.save(output)  # before the checks: nothing that befalls them shall cost the fit
    checked: Checked | None = None
    if data is not None and not no_checks:
        with show_progress("Checking"):
            further = _of_design(data, how.get("design"), how.get("max_position"))
            further += [] if arms is None else [arms.finding(fitted)]
            asked = {"unit": units.unit_kind, "further": further, **checks.arguments()}
            seen: Any = data if arms is None else arms.displays
            checked = chosen.check(seen, interventions, fitted, **asked)
        checked = checked if choice is None else choice.settle(checked)
        fitted = replace(fitted, info=dict(fitted.info) | checked.info())
        fitted.save(output)
    elif not no_checks:
        from clickharvest.checks.outcome import outcome_and_position

        found = outcome_and_position(interventions, anchor=fitted.curve.anchor, outcome=fitted.info["outcome"])
        fitted = replace(fitted, info=dict(fitted.info) | {FINDINGS: [found.to_dict()]})
        fitted.save(output)
    run = {} if model.log_to is None else {"mlflow_run": _track(fitted, output)}
    if as_json:
        tell(json.dumps({"file": str(output), **run} | described(fitted), indent=2))
        return
    read = None if data is None or is_interventions(log.source) else data
    _print(fitted, interventions, read, checks.verbose)
    if read is None or (checked is not None and checked.budget.word == "cannot tell"):
        tell(f"saved: {output}")
    else:
        words = [str(log.source), str(output), *words_of_log(sys.argv[2:])]
        tell(f"next: clickharvest weigh {shlex.join(words)}")
    for tracked in run.values():
        tell(f"Logged to MLflow: run {tracked}")


def _harvest(data: ClickLog | Interventions, model: ClickModel, how: dict[str, Any]) -> Interventions:
    """Return the interventions that a click model is fitted to."""
    from clickharvest.harvesting.interventions import Interventions

    if not isinstance(data, Interventions):
        return model.harvest(data, **how)
    if model.needs_page:
        raise InputError(
            f"--model {model.name} needs the log itself, to see the clicks above every result: interventions do not "
            "tell them"
        )
    return data if model.needs_unclicked else data.clicked()


def _compare_arms(log: ClickLog, units: HarvestOptions) -> Instrumented:
    """Return the exposures of a log with rankers as instruments."""
    from clickharvest.checks.instrument import compare_arms

    if not log.has("ranker"):
        raise InputError("--instrument compares rankers, and the log has none: name their column with --ranker")
    return compare_arms(log, unit=units.unit_kind, max_position=units.max_position)


def _of_design(data: Any, design: Design | None, max_position: int | None) -> list[Finding]:
    """Return whether the log agrees with the design; where it does not, exposures are wrong by any factor."""
    from clickharvest.checks.design_holds import design_findings
    from clickharvest.harvesting.placements import LoggedPlacements

    if design is None or isinstance(design, LoggedPlacements):
        return []
    return design_findings(data.parsed(), design, max_position)


def _harvest_outcomes(
    log: LogOptions,
    units: HarvestOptions,
    model: FitOptions,
    outcome: str,
    cluster: str,
    max_clicks: int,
    anchor: Anchor,
) -> tuple[Interventions, dict[str, Any]]:
    """Return the interventions of what comes of clicks, and what a model keeps of it."""
    if units.design(log.base) is not None:
        raise InputError(f"--outcome {outcome}: results are exposed after the click by clicks, not by a design")
    if model.click_model != EXAMINATION:
        raise InputError(f"--outcome {outcome}: what comes of a click has a curve of its own: --model {EXAMINATION}")
    _, after = read_with_outcomes(log, outcome)
    interventions = harvest_outcomes(
        after,
        units,
        find_anchor(anchor, after.log.places),
        cluster=cluster,
        clicked_only=not model.model().needs_unclicked,
        max_clicks=max_clicks,
    )
    return interventions, outcome_info(after)


def _fit(interventions: Interventions, model: ClickModel, told: dict[str, Any]) -> Any:
    """Return the fitted model, which keeps what is told of it and the command."""
    found: Any = model.fit(interventions)
    replicates, kind = getattr(model, "replicates", REPLICATES), getattr(found, "draws_kind", None)
    if replicates != REPLICATES and kind != IntervalName.bootstrap:
        told_instead = "there are no intervals" if kind is None else f"the intervals are {kind}"
        complain(f"Warning: --bootstrap {replicates} has no effect, {told_instead}: ask for --intervals bootstrap")
    provenance = found.provenance and found.provenance.with_command(sys.argv[1:])
    return replace(found, info=dict(found.info) | told, provenance=provenance)


def _print(fitted: Any, interventions: Interventions, log: Any, verbose: bool) -> None:
    """Print the fit on one screen; with `verbose`, how it came about and every check, too."""
    from clickharvest.checks import budget_of, findings_of
    from clickharvest.click_models.average import curve_of
    from clickharvest.commands.one_screen import every_finding, spell_fit, wrapped

    findings = findings_of(fitted)
    if verbose:
        tell(f"{fitted}\n")
    compared = interventions if fitted.kind == EXAMINATION else None
    sentences = [] if compared is not None else fitted.sentences()
    told = spell_fit(
        curve_of(fitted), budget_of(fitted), findings, log=log, interventions=compared, sentences=sentences
    )
    tell(told)
    if verbose and findings:
        tell(f"\n{every_finding(findings)}\n")
    if "users" in fitted.info:
        users = wrapped(" ".join([fitted.info["users"], *(fitted.info["why_this_model"] if verbose else ())]))
        if verbose or len(told.splitlines()) + len(users) < MOST_LINES:  # `show` tells it in any case
            tell("\n".join(users))


def _track(fitted: Any, output: Path) -> str:
    from clickharvest.model.propensities import Propensities
    from clickharvest.report.tracking import log_to_mlflow

    if not isinstance(fitted, Propensities):
        raise InputError(f"--log-to: only models of examination can be tracked; the model is saved at {output}")
    return log_to_mlflow(fitted, output)
