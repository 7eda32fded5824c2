"""What a browsing model says about itself, for people: a table of ranks and last clicks, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from clickharvest.model.propensities import Propensities
from clickharvest.model.summary import aligned, spell_fitted, wrap
from clickharvest.model.support import CANNOT_TELL
from clickharvest.model.typical import typical_context
from clickharvest.positions.states import number_of
from clickharvest.words import count

MOST_RANKS, MOST_CLICKS = 25, 9
"""Rows and columns of last clicks that are shown."""


class _Model(Protocol):
    """What a summary needs of `BrowsingPropensities`, whose `str` it is."""

    @property
    def states(self) -> Propensities: ...
    @property
    def ranks(self) -> int: ...
    @property
    def anchor(self) -> int: ...
    @property
    def info(self) -> Mapping[str, Any]: ...


def summarise_browsing(model: _Model) -> str:
    """Return what `str` of a browsing model shows: data, how a click above changes looking, a table of states."""
    info, states = model.info, model.states
    predicted = states.predict_encoded(typical_context(states))
    where = f"Propensity relative to position {model.anchor} with no click above it"
    where += "" if states.encoder is None else " in a typical context"
    parts = [wrap("Examination propensities of browsing states: position and last click above"), spell_fitted(info)]
    parts += [wrap(sentence) for sentence in spell_effects(info)]
    parts += [wrap(where + ", by the position of the last click above:"), _table(model, predicted)]
    signs = []
    if not predicted.supported.all():
        signs.append("* no clicks link the state: its number leans on its rank and the distance to the last click")
    if predicted.cannot_tell.any():
        signs.append(f"? {CANNOT_TELL}: the interval spans a factor of 10 or more")
    if states.draws is not None:
        signs.append(f"Intervals: {states.draws_kind}; clickharvest propensities MODEL lists them")
    return "\n\n".join([*(part for part in parts if part), wrap(". ".join(signs) + ".")] if signs else parts)


def spell_effects(info: Mapping[str, Any]) -> list[str]:
    """Return the sentence on how a click above changes looking below, if the model tells.

    Example:
        >>> near, far = {"ratio": 1.5, "lower": 1.2, "upper": 1.8}, {"ratio": 0.4, "lower": 0.3, "upper": 0.5}
        >>> spell_effects({"click_above": {"next": near, "further": far}})[0]
        'Right below a click, a result is looked at 1.50 times as often as at the same position with no click above \
(1.20 to 1.80); further below, 0.40 times (0.30 to 0.50).'
    """
    found = info.get("click_above")
    if not isinstance(found, Mapping):
        return []
    near, far = (_ratio(found.get(name)) for name in ("next", "further"))
    if near is None:
        return ["No result below a click was clicked, too: the numbers of such states lean on those without a click."]
    told = f"Right below a click, a result is looked at {near[0]} times as often as at the same position with no click "
    return [f"{told}above{near[1]}{'' if far is None else f'; further below, {far[0]} times{far[1]}'}."]


def _ratio(found: Any) -> tuple[str, str] | None:
    """Return a ratio and its interval in words; None where there is none."""
    if not isinstance(found, Mapping) or not isinstance(found.get("ratio"), int | float):
        return None
    ends = [found.get(name) for name in ("lower", "upper")]
    told = f" ({ends[0]:.2f} to {ends[1]:.2f})" if all(isinstance(end, int | float) for end in ends) else ""
    return f"{found['ratio']:.2f}", told


def _table(model: _Model, predicted: Any) -> str:
    """Return ranks down, last clicks across."""
    ranks, clicks = min(model.ranks, MOST_RANKS), min(model.ranks - 1, MOST_CLICKS)
    header = ["position", "none", *(f"at {j}" for j in range(1, clicks + 1))]
    rows = []
    for rank in range(1, ranks + 1):
        cells = [_cell(predicted, int(number_of(rank, last))) for last in range(min(rank - 1, clicks) + 1)]
        rows.append([str(rank), *cells, *[""] * (clicks + 1 - len(cells))])
    left = model.ranks * (model.ranks + 1) // 2 - sum(min(rank, clicks + 1) for rank in range(1, ranks + 1))
    more = [f"… {count(left, 'more state')}"] if left else []
    return "\n".join([aligned(header, rows), *more])


def _cell(predicted: Any, number: int) -> str:
    value = predicted.propensity[0, number - 1]
    if predicted.cannot_tell[0, number - 1] or not np.isfinite(value):
        return "?"
    text = f"{value:.2f}" if value < 100 else f"{value:.0f}"
    return text if predicted.supported[0, number - 1] else f"{text}*"
