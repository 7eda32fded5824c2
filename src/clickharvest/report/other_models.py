"""Sections of a report that only affine and browsing models have, beside their average curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.affine.fitted import AffineModel
from clickharvest.click_models.affine.levels import AffineLevels
from clickharvest.click_models.browsing.fitted import UNLINKED, BrowsingPropensities, number_of
from clickharvest.click_models.reading import ReadingPropensities
from clickharvest.model.budget import CANNOT_TELL
from clickharvest.model.prediction import Prediction
from clickharvest.model.typical import typical_context

DEEPEST = 0.75
"""Shade of the largest propensity."""


def affine_view(model: AffineModel | AffineLevels, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of an affine model: slope and offset of every position."""
    return {
        "sentences": model.sentences(),
        "anchor": model.anchor,
        "percent": f"{100 * level:.4g} %",
        "rows": [row for name, own in model.parts for row in _affine_rows(own, level, f"{name}: " if name else "")],
    }


def _affine_rows(model: AffineModel, level: float, before: str) -> list[dict[str, Any]]:
    predicted = model.predict(level=level)
    columns = ("slope", "slope_lower", "slope_upper", "offset", "offset_lower", "offset_upper")
    return [
        {
            "position": f"{before}{position}",
            "cells": [_affine_cell(getattr(predicted, column)[i], bool(predicted.supported[i])) for column in columns]
            + ["" if predicted.supported[i] else CANNOT_TELL],
        }
        for i, position in enumerate(model.shown)
    ]


def _affine_cell(value: float, supported: bool) -> str:
    return f"{value:.3f}" if supported and np.isfinite(value) else "–"


def browsing_view(fitted: BrowsingPropensities | ReadingPropensities, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of a browsing model by position and last click; of a reading model, its start."""
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
            "cells": [_browsing_cell(predicted, notes, n, largest) for n in number_of(rank, np.arange(rank)).tolist()],
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


def _browsing_cell(predicted: Prediction, notes: NDArray[np.object_], number: int, largest: float) -> dict[str, Any]:
    state = number - 1
    value = float(predicted.propensity[0, state])
    low, high = float(predicted.lower[0, state]), float(predicted.upper[0, state])
    note = notes[state] or ""
    interval = f"{low:.3g} to {high:.3g}" if np.isfinite(low) and np.isfinite(high) else "no interval"
    supported = bool(predicted.supported[0, state])
    text = "?" if supported and predicted.cannot_tell[0, state] else f"{value:.2f}{'' if supported else '*'}"
    shade = round(100 * DEEPEST * value / largest, 1) if np.isfinite(value) else 0.0
    return {"text": text, "note": f"{interval}{f'; {note}' if note else ''}", "shade": shade}
