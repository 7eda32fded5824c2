"""The page of a browsing model: a table of positions and last clicks, shaded, and what to do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.browsing.fitted import UNLINKED, BrowsingPropensities, number_of, spell_effects
from clickharvest.click_models.reading import ReadingPropensities
from clickharvest.errors import InputError
from clickharvest.model.prediction import Prediction
from clickharvest.model.summary import spell_counts
from clickharvest.model.typical import typical_context
from clickharvest.report.plain import kept_findings, write_page

TITLE = "What does a click above change?"
DEEPEST = 0.75
"""Shade of the largest propensity."""


def write_browsing_report(
    path: str | Path,
    model: BrowsingPropensities | ReadingPropensities,
    *,
    title: str = TITLE,
    level: float = 0.95,
    name: str = "model.safetensors",
    made: str = "",
    weigh: str = "clickharvest weigh clicks.parquet model.safetensors --page page --clip auto -o weighted.parquet",
) -> int:
    """Write the page of a browsing or reading model, whole or not at all, and return its size in bytes.

    Args:
        path: the file to write.
        model: the model.
        title: the page's title.
        level: level of the intervals.
        name: the model's file name.
        made: when the page was made.
        weigh: the command that makes weights.

    Raises:
        InputError: the file cannot be written, or the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level:g}; expected a number between 0 and 1, such as 0.95")
    view = browsing_view(model, level=level) | {"title": title, "name": name, "made": made, "weigh": weigh}
    return write_page(Path(path), "browsing.html", view)


def browsing_view(fitted: BrowsingPropensities | ReadingPropensities, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of the page; of a reading model the table is its first step."""
    if isinstance(fitted, ReadingPropensities):
        model, read = fitted.base, [*fitted.sentences(), "The table is its first step, without what was skipped:"]
    else:
        model, read = fitted, []
    states = model.states
    predicted = states.predict_encoded(typical_context(states), level=level)
    largest = max(float(np.nanmax(predicted.propensity)), 1.0)
    notes = predicted.notes()[0]
    rows = [
        {
            "position": rank,
            "cells": [_cell(predicted, notes, n, largest) for n in number_of(rank, np.arange(rank)).tolist()],
        }
        for rank in range(1, model.ranks + 1)
    ]
    told = {"fitted on": ", ".join(spell_counts(fitted.info)), "context": ", ".join(model.context) or "none"}
    origin = [] if fitted.provenance is None else fitted.provenance.rows()
    return {
        "users": str(fitted.info.get("users") or ""),
        "effects": [*read, *spell_effects(model.info)],
        "anchor": model.anchor,
        "typical": "" if states.encoder is None else ", in a typical context",
        "columns": list(range(1, model.ranks)),
        "rows": rows,
        "leaning": UNLINKED if states.leaning else "",
        "percent": "" if states.draws is None else f"{100 * level:.4g} %",
        "findings": kept_findings(fitted),
        "settings": [*told.items(), *origin],
    }


def _cell(predicted: Prediction, notes: NDArray[np.object_], number: int, largest: float) -> dict[str, Any]:
    state = number - 1
    value = float(predicted.propensity[0, state])
    low, high = float(predicted.lower[0, state]), float(predicted.upper[0, state])
    note = notes[state] or ""
    interval = f"{low:.3g} to {high:.3g}" if np.isfinite(low) and np.isfinite(high) else "no interval"
    supported = bool(predicted.supported[0, state])
    text = "?" if predicted.cannot_tell[0, state] else f"{value:.2f}{'' if supported else '*'}"
    shade = round(100 * DEEPEST * value / largest, 1) if np.isfinite(value) else 0.0
    return {"text": text, "note": f"{interval}{f'; {note}' if note else ''}", "shade": shade}
