"""The command `weigh`: from a log and a model to the log with weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickharvest.commands.inputs import place_to_write
from clickharvest.commands.options import (
    JsonFlag,
    LogOptions,
    ModelPath,
    OutputPath,
    TrustName,
    TrustOption,
    option,
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


_weights = partial(option, panel=WEIGHTS)


@dataclass(frozen=True)
class WeighOptions:
    """How propensities become weights."""

    clip: str | None = _weights(
        "Least propensity to divide by, as 0.05; auto: 1 / √clicks.",
        "P",
    )
    normalise: bool = _weights("Let the weights sum to the number of clicks.", default=False)
    policy_aware: bool = _weights(
        "Weigh by the share of a query's pages on which the document was examined (policy_propensity): right where "
        "rankers show different documents.",
        default=False,
    )
    after_click: str | None = _weights(
        "With --outcome: its model, of fit --outcome; or 'same' where the position does not matter after a click.",
        "MODEL|same",
    )

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

    Writes all rows and columns of LOG, and propensity (relative to the model's anchor), ips_weight (of one click,
    1 / max(propensity, clip): multiply clicks by it) and propensity_state: usable, with care or cannot tell. Where it
    is cannot tell, propensity is that of the last position above that can be told. Context columns and places are those
    of the model.

    With a model of fit --model affine the columns are click_slope, click_offset, corrected_click, which is
    (click - offset) / slope on all rows, and correction_supported. With --outcome there are also outcome_propensity
    (of the click times that of --after-click), outcome_weight and outcome_state.

    Examples:

      clickharvest weigh clicks.parquet model.safetensors --clip auto -o w.parquet

      clickharvest weigh log.parquet model.safetensors --policy-aware -o w.parquet

      clickharvest weigh clicks.parquet model.safetensors --outcome bought --after-click after.safetensors -o w.parquet
    """
    from clickharvest.click_models.loading import load_model
    from clickharvest.click_models.registry import CLICK_MODELS
    from clickharvest.commands.terminal import screen
    from clickharvest.model.loading import load_propensities
    from clickharvest.model.propensities import Propensities
    from clickharvest.weights.weighing import SAME, weigh_to_parquet

    given = None if weights.after_click in (None, SAME) else Path(weights.after_click)
    output = place_to_write(output, "the weighed log", "weighted.parquet", [*log.sources, model, given])
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
