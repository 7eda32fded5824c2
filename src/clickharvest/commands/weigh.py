"""The command `weigh`: from a log and a model to the log with weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickharvest.commands.declaring import option
from clickharvest.commands.options import (
    JsonFlag,
    LogOptions,
    ModelPath,
    OutcomeOption,
    OutputPath,
    TrustOption,
)
from clickharvest.commands.outcomes import warn_of_dependence
from clickharvest.commands.output import place_to_write, tell_json
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.weights.weighing import Clip

_weights = partial(option, panel="The weights")


@dataclass(frozen=True)
class WeighOptions:
    """How propensities become weights."""

    clip: str | None = _weights("Least propensity to divide by, as 0.05; auto: 1 / √clicks.", "P")
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
        if self.clip is None or self.clip == "auto":
            return self.clip  # type: ignore[return-value]
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
    trust: TrustOption = "checked",
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
    from clickharvest.click_models.base import load_model
    from clickharvest.click_models.registry import CLICK_MODELS
    from clickharvest.commands.tables import screen
    from clickharvest.model.loading import load_propensities
    from clickharvest.weights.weighing import SAME

    after_file = None if weights.after_click in (None, SAME) else Path(weights.after_click)
    output = place_to_write(output, "the weighed log", "weighted.parquet", [*log.sources, model, after_file])
    how: dict[str, Any] = {"clip": weights.least_propensity, "trust": trust}
    how |= {"normalise": weights.normalise, "policy_aware": weights.policy_aware}
    fitted: Any = load_model(model)
    after = None if after_file is None else load_propensities(after_file)
    if outcome is not None or weights.after_click is not None:
        if not CLICK_MODELS[fitted.kind].weighs_outcomes:
            raise InputError(f"--outcome: {model} is a model of {fitted.kind}, and outcomes are weighed by examination")
        how |= {"outcome": outcome, "after_click": after or weights.after_click}
    clicks = log.with_columns_of(fitted, *([] if after is None else [after])).read()
    report = CLICK_MODELS[fitted.kind].weigh(clicks, fitted, output, **how)
    if outcome is not None and weights.after_click == SAME:
        warn_of_dependence(clicks, outcome, fitted.curve.anchor)
    if as_json:
        tell_json({"file": str(output), **report.to_dict()})
    else:
        screen().print(f"{report}\nSaved: {output}")
