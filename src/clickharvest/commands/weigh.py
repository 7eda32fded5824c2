"""The command `weigh`: from a log and a model to the log with weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import (
    JsonFlag,
    LogOptions,
    ModelPath,
    OutputPath,
    TrustName,
    TrustOption,
    with_options,
)
from clickharvest.commands.outcomes import OutcomeOption, warn_of_dependence
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.click_models.base import FittedModel
    from clickharvest.positions.places import Places
    from clickharvest.weights.weighing import Clip

WEIGHTS = "The weights"


@dataclass(frozen=True)
class WeighOptions:
    """How propensities become weights."""

    clip: Annotated[
        str | None,
        typer.Option(
            "--clip",
            metavar="P",
            help="Least propensity to divide by, such as 0.05; 'auto' takes 1 / √clicks, whose bias vanishes as clicks "
            "grow in number.",
            rich_help_panel=WEIGHTS,
            show_default=False,
        ),
    ] = None
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            help="Divide the weights by their mean over the clicks, so that they sum to the number of clicks.",
            rich_help_panel=WEIGHTS,
        ),
    ] = False

    policy_aware: Annotated[
        bool,
        typer.Option(
            "--policy-aware",
            help="Make the weights of the share of a query's pages on which the document was examined: right where "
            "rankers show different documents. Adds the column policy_propensity.",
            rich_help_panel=WEIGHTS,
        ),
    ] = False

    after_click: Annotated[
        str | None,
        typer.Option(
            "--after-click",
            metavar="MODEL|same",
            help="With --outcome: the model of fit --outcome; or 'same' to say that what comes of a click does not "
            "depend on the position.",
            rich_help_panel=WEIGHTS,
            show_default=False,
        ),
    ] = None

    @property
    def least_propensity(self) -> Clip:
        """The clip, read."""
        if self.clip is None:
            return None
        if self.clip == "auto":
            return "auto"
        try:
            number = float(self.clip)
        except ValueError:
            number = 0.0
        if not 0 < number <= 1:
            raise InputError(f"--clip {self.clip}: expected a propensity above 0 and at most 1, or auto")
        return number


@with_options
def weigh(
    log: LogOptions,
    model: ModelPath,
    weights: WeighOptions,
    trust: TrustOption = TrustName.checked,
    outcome: OutcomeOption = None,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Add propensities and inverse-propensity weights to a log.

    Writes all rows and columns of LOG, and the columns propensity (relative to the model's anchor), ips_weight and
    propensity_state. ips_weight is that of one click, 1 / max(propensity, clip): multiply clicks by it. Context columns
    and places are those of the model. propensity_state says how far off the estimate can be: usable, with care or
    cannot tell. Where it is cannot tell, propensity is that of the last position above that can be told in the context.

    With a model of fit --model affine the columns are click_slope, click_offset, corrected_click, which is
    (click - offset) / slope and given on rows without a click too, and correction_supported.

    With --outcome it also adds outcome_propensity, outcome_weight and outcome_state, for what came of clicks: the
    propensity of the click times that of --after-click.

    Examples:

      clickharvest weigh clicks.parquet model.safetensors --clip auto -o weighted.parquet

      clickharvest weigh clicks.parquet model.safetensors --ranker arm --policy-aware -o weighted.parquet

      clickharvest weigh clicks.parquet model.safetensors --outcome bought --after-click after.safetensors -o w.parquet
    """
    from clickharvest.click_models.loading import load_model
    from clickharvest.click_models.registry import CLICK_MODELS
    from clickharvest.commands.terminal import screen
    from clickharvest.logs.sources import file_format
    from clickharvest.model.loading import load_propensities
    from clickharvest.model.propensities import Propensities
    from clickharvest.weights.weighing import SAME, weigh_to_parquet

    if output is None:
        raise InputError("nowhere to write the weighed log: name a file with -o weighted.parquet")
    if file_format(output.name) != "parquet":
        raise InputError(f"the weighed log is written as Parquet: -o {output} should end in .parquet")
    given = None if weights.after_click in (None, SAME) else Path(weights.after_click)
    refuse_overwriting(output, [*log.sources, model, given])
    clip = weights.least_propensity
    fitted = load_model(model)
    curve = SAME if weights.after_click == SAME else None if given is None else load_propensities(given)
    needed = [fitted, curve] if isinstance(curve, Propensities) else [fitted]
    read = replace(log, context=context_of(log, *needed), place=place_of(log, fitted))
    clicks = read.read(show_progress)
    how: dict[str, Any] = {"normalise": weights.normalise, "policy_aware": weights.policy_aware}
    how["trust"] = trust.value
    if outcome is None and curve is None:
        report = CLICK_MODELS[fitted.kind].weigh(clicks, fitted, output, clip=clip, **how)
    elif not isinstance(fitted, Propensities):
        raise InputError(f"--outcome: {model} is a model of {fitted.kind}, and outcomes are weighed by examination")
    else:
        report = weigh_to_parquet(clicks, fitted, output, clip=clip, outcome=outcome, after_click=curve, **how)
        if outcome is not None and curve == SAME:
            warn_of_dependence(clicks, outcome, fitted.curve.anchor)
    if as_json:
        tell(json.dumps({"file": str(output), **report.to_dict()}))
    else:
        screen().print(f"{report}\nSaved: {output}")


def context_of(log: LogOptions, *models: FittedModel) -> list[str]:
    """Return the models' context columns, which the user need not name again."""
    needed = list(dict.fromkeys(name for one in models for name in one.context))
    if log.context_columns and set(log.context_columns) != set(needed):
        raise InputError(
            f"--context {','.join(log.context_columns)}: the model depends on {', '.join(needed) or 'no context'}; "
            "leave --context out, the model names its columns itself"
        )
    return needed


def place_of(log: LogOptions, model: FittedModel) -> list[str] | None:
    """Return the columns that make the model's places, which the user need not name again."""
    places: Places | None = getattr(model, "places", None)
    return log.place if log.place_columns or places is None else list(places.columns)
