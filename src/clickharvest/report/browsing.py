"""What the page of a browsing model says beside its average curve: a table of positions and last clicks, shaded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.browsing.fitted import UNLINKED, BrowsingPropensities, number_of
from clickharvest.click_models.reading import ReadingPropensities
from clickharvest.model.prediction import Prediction
from clickharvest.model.typical import typical_context

DEEPEST = 0.75
"""Shade of the largest propensity."""


def browsing_view(fitted: BrowsingPropensities | ReadingPropensities, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of the section; of a reading model the table is its first step."""
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
    return {
        "sentences": [*read, *model.sentences()],
        "anchor": model.anchor,
        "typical": "" if states.encoder is None else ", in a typical context",
        "columns": list(range(1, model.ranks)),
        "rows": rows,
        "leaning": UNLINKED if states.leaning else "",
        "percent": "" if states.draws is None else f"{100 * level:.4g} %",
    }


def _cell(predicted: Prediction, notes: NDArray[np.object_], number: int, largest: float) -> dict[str, Any]:
    state = number - 1
    value = float(predicted.propensity[0, state])
    low, high = float(predicted.lower[0, state]), float(predicted.upper[0, state])
    note = notes[state] or ""
    interval = f"{low:.3g} to {high:.3g}" if np.isfinite(low) and np.isfinite(high) else "no interval"
    supported = bool(predicted.supported[0, state])
    text = "?" if supported and predicted.cannot_tell[0, state] else f"{value:.2f}{'' if supported else '*'}"
    shade = round(100 * DEEPEST * value / largest, 1) if np.isfinite(value) else 0.0
    return {"text": text, "note": f"{interval}{f'; {note}' if note else ''}", "shade": shade}
