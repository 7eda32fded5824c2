"""The command `fit`: from a log or a file of interventions to a model file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.click_models.registry import AUTO, CLICK_MODELS, EXAMINATION
from clickharvest.commands.declaring import SEED, between, option, parse_words, registered, whole
from clickharvest.commands.options import (
    CHECKS,
    QUERY,
    UNITS,
    AnchorOption,
    CheckOptions,
    ClusterOption,
    HarvestOptions,
    JsonFlag,
    LogOptions,
    MaxClicksOption,
    OutcomeOption,
    OutputPath,
    flags_of,
    require_clusters,
)
from clickharvest.commands.outcomes import harvest_outcomes, read_with_outcomes
from clickharvest.commands.output import complain, place_to_write, tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.commands.show import model_record
from clickharvest.errors import InputError
from clickharvest.parameters import MOST_CLICKS
from clickharvest.positions.places import find_anchor
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.checks import Checked
    from clickharvest.checks.instrument import Instrumented
    from clickharvest.click_models.base import ClickModel
    from clickharvest.click_models.choosing import ModelChoice
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog

LARGEST_PENALTY = 1e12
MOST_LINES = 25
"""Of the output; more of them do not fit on a screen."""
REPLICATES, MOST_REPLICATES = 1_000, 10_000
MOST_UNITS = 1_000
"""Of a shape, such as hidden units."""

_model = partial(option, panel="The model")


@dataclass(frozen=True)
class FitOptions:
    """Which model to fit, and how."""

    click_model: str = _model(
        "Clicks depend on examination and relevance; browsing: and on the last click above; reading: and on skipped "
        "results; affine: and on trust in high results; auto: whichever fits.",
        default=EXAMINATION, flags=("--model",), names=registered("click_models.registry", "CLICK_MODELS", AUTO),
    )  # fmt: skip
    objective: str = _model(
        "What the fit maximises.", default="clickshare", rare=True,
        names=registered("estimation.objectives", "OBJECTIVES"),
    )  # fmt: skip
    curve: str = _model(
        "How examination depends on position and context; auto: by cross-validation, constant without context columns.",
        default="auto", names=registered("model.curves.registry", "CURVES", "auto"),
    )  # fmt: skip
    shape: str | None = _model(
        "Shape parameters of the curve, such as rank=2 of lowrank or width=8 of mlp.", "NAME=N,…", rare=True
    )
    penalty: float | None = _model(
        "Penalty λ on context effects, instead of pooling or cross-validation.",
        rare=True,
        check=between(0, LARGEST_PENALTY),
    )
    relevance: str | None = _model(
        "Relevance model of AllPairs (default: auto, or constant if a curve or penalty is named).",
        names=registered("estimation.objectives", "RELEVANCE", "auto"), rare=True,
    )  # fmt: skip
    weighting: str = _model(
        "Weights of units in AllPairs.", default="paper", rare=True,
        names=registered("estimation.objectives", "WEIGHTINGS"),
    )  # fmt: skip
    intervals: str = _model(
        "Error bars, by query; auto is clustered with --objective clickshare. Elsewhere it is bootstrap, and none "
        "where folds chose curve or penalty.",
        default="auto", rare=True, names=["auto", "clustered", "bootstrap", "sandwich", "none"],
    )  # fmt: skip
    bootstrap: int = _model(
        "Bootstrap replicates, where intervals are those of a bootstrap.", "N", REPLICATES, rare=True,
        check=whole(2, MOST_REPLICATES),
    )  # fmt: skip
    start: Path | None = _model("Yesterday's model: start from its curve and penalty.", "MODEL", rare=True)
    seed: int = _model("Seed of all randomness.", default=0, rare=True, check=SEED)
    log_to: str | None = _model(
        "Track the fit: parameters, figures, the model and its report.", rare=True, names=["mlflow"]
    )

    def choose(self, data: ClickLog | Interventions, anchor: str, harvesting: dict[str, Any]) -> ModelChoice:
        """Return the click model that the data support.

        Raises:
            InputError: an option is given that not every click model takes.
        """
        from clickharvest.click_models.choosing import choose_click_model

        self._refuse_others(set.intersection(*(set(kind.options()) for kind in CLICK_MODELS.values())))
        at = find_anchor(anchor, data.places)
        return choose_click_model(data, anchor=at, seed=self.seed, progress=show_progress, **harvesting)

    def _refuse_others(self, taken: Collection[str]) -> None:
        names = {"bootstrap": "replicates"}
        for field in fields(self):
            is_given = getattr(self, field.name) != field.default
            if is_given and names.get(field.name, field.name) not in (*taken, "click_model", "log_to"):
                raise InputError(f"--{field.name}: the model {self.click_model} has no such option; leave it out")

    def model(self) -> ClickModel:
        """Return the click model with the options that it takes, but for the anchor, which depends on the harvest.

        Raises:
            InputError: an option is given that the model does not take.
        """
        from clickharvest.model.loading import load_propensities

        kind: type[ClickModel] = CLICK_MODELS.find(self.click_model)
        taken = kind.options()
        self._refuse_others(taken)
        options: dict[str, Any] = {
            **{name: getattr(self, name) for name in ("objective", "curve", "penalty", "relevance", "weighting")},
            "shape": self.curve_shape,
            "intervals": None if self.intervals == "none" else self.intervals,
            "replicates": self.bootstrap,
            "start": None if self.start is None else load_propensities(self.start),
            "seed": self.seed,
            "progress": show_progress,
        }
        return kind(**{name: value for name, value in options.items() if name in taken})

    @property
    def curve_shape(self) -> dict[str, int] | None:
        """The shape of the curve, if given."""
        if self.shape is None:
            return None
        words = parse_words(self.shape, "--shape")
        for name, value in words.items():
            if not (value.isdecimal() and len(value) < 10 and 1 <= int(value) <= MOST_UNITS):
                wrong = clean_text(f"{name}={value}")
                raise InputError(f"--shape {wrong}: expected a whole number from 1 to {MOST_UNITS:,}, as in rank=2")
        return {name: int(value) for name, value in words.items()}


@dataclass(frozen=True)
class _Data:
    """What a model is fitted to, and what its checks need.

    Attributes:
        interventions: what the model is fitted to.
        source: the log or interventions; None of outcomes, whose checks are their own.
        info: what a model keeps of it.
        harvesting: how a log was harvested.
        choice: the click model that was chosen by the data, if it was.
        arms: rankers as instruments, if they are.
    """

    interventions: Interventions
    source: ClickLog | Interventions | None = None
    info: dict[str, Any] | None = None
    harvesting: dict[str, Any] | None = None
    choice: ModelChoice | None = None
    arms: Instrumented | None = None


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
        str | None,
        option(
            "Compare rankers: they are personalised, and an A/B test assigned users at random.",
            panel=UNITS, rare=True, names=["ranker"],
        ),
    ] = None,
    no_checks: Annotated[bool, option("Skip the checks and the error budget.", panel=CHECKS, rare=True)] = False,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Estimate how examination falls with position, and with the context.

    Reads a click log, or a file of interventions, and writes a model file. With --outcome the model is of what comes of
    a click, such as a purchase, by position: weigh takes it as --after-click.

    The answer ends with how far off the curve can be, by position and by cause, and what was not tested.

    Examples:

      clickharvest fit clicks.parquet --context device -o model.safetensors

      clickharvest fit interventions.parquet --curve power -o model.safetensors

      clickharvest fit today.parquet --start yesterday.safetensors -o model.safetensors
    """
    # Yesterday's model may be replaced by today's.
    output = place_to_write(output, "the model", "model.safetensors", [*log.sources, units.rankings])
    check_options = checks.arguments()  # a fit is not to be lost to an option that cannot be read
    if instrument is not None:
        data = _compare_rankers(log, units, model, outcome, cluster)
    elif outcome is not None:
        data = _harvest_outcomes(log, units, model, outcome, cluster, max_clicks, anchor)
    else:
        data = _harvest(log, units, model, cluster, max_clicks, anchor)
    if data.choice is not None:
        model = replace(model, click_model=data.choice.model)
    info = dict(data.info or {})
    if data.interventions.thinned_from:
        info |= {"thinned_from": data.interventions.thinned_from, "max_clicks": max_clicks}
    at = find_anchor(anchor, data.interventions.places)
    click_model: ClickModel = replace(model.model(), anchor=at)  # type: ignore[call-arg]
    fitted = _fit(data.interventions, click_model, info)
    fitted.save(output)  # before the checks: a failure of theirs must not cost the fit
    checked = None
    if not no_checks:
        checked, findings = _check(data, units, click_model, fitted, check_options)
        fitted = replace(fitted, info=dict(fitted.info) | findings)
        fitted.save(output)
    run = {}
    if model.log_to is not None:
        from clickharvest.report.tracking import log_to_mlflow

        run["mlflow_run"] = log_to_mlflow(fitted, output)
    if as_json:
        tell_json({"file": str(output), **run} | model_record(fitted))
        return
    read = data.source if data.harvesting or instrument is not None else None
    _print(fitted, data.interventions, read, checks.verbose)
    if read is None or (checked is not None and checked.budget.word == "cannot tell"):
        tell(f"saved: {output}")
    else:
        tell(f"next: clickharvest weigh {shlex.join([log.source, str(output), *flags_of(log)])}")
    for tracked in run.values():
        tell(f"Logged to MLflow: run {tracked}")


def _harvest(
    log: LogOptions, units: HarvestOptions, model: FitOptions, cluster: str, max_clicks: int, anchor: str
) -> _Data:
    """Return the interventions that a click model is fitted to, of a log or of a file of interventions."""
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.harvesting.large_logs import thin

    data, harvesting = units.read(log), {}
    if isinstance(data, Interventions):
        require_clusters(data, cluster, log.source)
        data = thin(data, max_clicks)
    else:
        harvesting = {**units.arguments(log), "cluster": cluster, "max_clicks": max_clicks}
    choice = None
    if model.click_model == AUTO:
        choice = model.choose(data, anchor, harvesting)
        model = replace(model, click_model=choice.model)
    click_model = model.model()
    if not isinstance(data, Interventions):
        interventions = click_model.harvest(data, **harvesting)
    elif click_model.needs_page:
        raise InputError(
            f"--model {click_model.name} needs the log itself, to see the clicks above every result: interventions do "
            "not tell them"
        )
    else:
        interventions = data if click_model.needs_unclicked else data.clicked()
    return _Data(interventions, data, None if choice is None else choice.info(), harvesting, choice)


def _compare_rankers(
    log: LogOptions, units: HarvestOptions, model: FitOptions, outcome: str | None, cluster: str
) -> _Data:
    """Return the exposures of a log with rankers as instruments."""
    from clickharvest.checks.instrument import compare_arms
    from clickharvest.harvesting.reading import is_interventions

    refused = {
        "a file of interventions": is_interventions(log.source),
        f"--model {model.click_model}": model.click_model != EXAMINATION,
        "--outcome": outcome is not None,
        "--cluster": cluster != QUERY,
        "the design of exposures": units.design(log.base) is not None,
    }
    if given := [name for name, is_given in refused.items() if is_given]:
        raise InputError(f"--instrument compares what rankers showed in a log: it does not go with {given[0]}")
    clicks = log.read()
    if not clicks.has("ranker"):
        raise InputError("--instrument compares rankers, and the log has none: name their column with --ranker")
    arms = compare_arms(clicks, unit=units.unit_kind, max_position=units.max_position)
    return _Data(arms.interventions, clicks, {"instrument": "ranker"}, arms=arms)


def _harvest_outcomes(
    log: LogOptions,
    units: HarvestOptions,
    model: FitOptions,
    outcome: str,
    cluster: str,
    max_clicks: int,
    anchor: str,
) -> _Data:
    """Return the interventions of what comes of clicks."""
    if units.design(log.base) is not None:
        raise InputError(f"--outcome {outcome}: results are exposed after the click by clicks, not by a design")
    if model.click_model != EXAMINATION:
        raise InputError(f"--outcome {outcome}: what comes of a click has a curve of its own: --model {EXAMINATION}")
    _, after = read_with_outcomes(log, outcome)
    at, clicked_only = find_anchor(anchor, after.log.places), not model.model().needs_unclicked
    interventions = harvest_outcomes(
        after, units, at, cluster=cluster, clicked_only=clicked_only, max_clicks=max_clicks
    )
    return _Data(interventions, info={"outcome": after.column, "outcomes": after.to_dict()})


def _fit(interventions: Interventions, model: ClickModel, info: dict[str, Any]) -> Any:
    """Return the fitted model, which keeps the info and the command."""
    fitted: Any = model.fit(interventions)
    replicates, kind = getattr(model, "replicates", REPLICATES), getattr(fitted, "draws_kind", None)
    if replicates != REPLICATES and kind != "bootstrap":
        instead = "there are no intervals" if kind is None else f"the intervals are {kind}"
        complain(f"Warning: --bootstrap {replicates} has no effect, {instead}: ask for --intervals bootstrap")
    provenance = fitted.provenance and fitted.provenance.with_command(sys.argv[1:])
    return replace(fitted, info=dict(fitted.info) | info, provenance=provenance)


def _check(
    data: _Data, units: HarvestOptions, model: ClickModel, fitted: Any, check_options: dict[str, Any]
) -> tuple[Checked | None, dict[str, Any]]:
    """Return what checks find of a fit, and how a model keeps it; of outcomes, whether they depend on the position."""
    from clickharvest.checks.checking import FINDINGS
    from clickharvest.checks.design_holds import design_findings
    from clickharvest.checks.outcome import outcome_and_position
    from clickharvest.harvesting.placements import LoggedPlacements

    with show_progress("Checking"):
        if data.source is None:
            finding = outcome_and_position(
                data.interventions, anchor=fitted.curve.anchor, outcome=fitted.info["outcome"]
            )
            return None, {FINDINGS: [finding.to_dict()]}
        further = [] if data.arms is None else [data.arms.finding(fitted)]
        harvesting = data.harvesting or {}
        design = harvesting.get("design")
        if design is not None and not isinstance(design, LoggedPlacements):
            log: Any = data.source  # where it does not agree with the design, exposures are wrong by any factor
            further += design_findings(log.parsed(), design, harvesting["max_position"])
        seen: Any = data.source if data.arms is None else data.arms.displays
        checked = model.check(seen, data.interventions, fitted, unit=units.unit_kind, further=further, **check_options)
        checked = checked if data.choice is None else data.choice.settle(checked)
        return checked, checked.info()


def _print(fitted: Any, interventions: Interventions, log: Any, verbose: bool) -> None:
    """Print the fit on one screen; with `verbose`, how it came about and every check, too."""
    from clickharvest.checks import budget_of, findings_of
    from clickharvest.click_models.average import curve_of
    from clickharvest.commands.text import every_finding, fit_screen, wrapped

    findings, sentences = findings_of(fitted), fitted.sentences()
    if verbose:
        tell(f"{fitted}\n")
    compared = None if sentences else interventions
    screen = fit_screen(
        curve_of(fitted), budget_of(fitted), findings, log=log, interventions=compared, sentences=sentences
    )
    tell(screen)
    if verbose and findings:
        tell(f"\n{every_finding(findings)}\n")
    if "users" in fitted.info:
        users = wrapped(" ".join([fitted.info["users"], *(fitted.info["why_this_model"] if verbose else ())]))
        if verbose or len(screen.splitlines()) + len(users) < MOST_LINES:  # `show` prints it in any case
            tell("\n".join(users))
