"""What the page of an affine model says beside its average curve: slopes and offsets of every position."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickharvest.click_models.affine.fitted import AffineModel
from clickharvest.click_models.affine.levels import AffineLevels
from clickharvest.model.budget import CANNOT_TELL


def affine_view(model: AffineModel | AffineLevels, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of the section."""
    return {
        "sentences": model.sentences(),
        "anchor": model.anchor,
        "percent": f"{100 * level:.4g} %",
        "rows": [row for name, own in model.parts for row in _rows(own, level, f"{name}: " if name else "")],
    }


def _rows(model: AffineModel, level: float, before: str) -> list[dict[str, Any]]:
    predicted = model.predict(level=level)
    columns = ("slope", "slope_lower", "slope_upper", "offset", "offset_lower", "offset_upper")
    return [
        {
            "position": f"{before}{position}",
            "cells": [_cell(getattr(predicted, column)[i], bool(predicted.supported[i])) for column in columns]
            + ["" if predicted.supported[i] else CANNOT_TELL],
        }
        for i, position in enumerate(model.shown)
    ]


def _cell(value: float, supported: bool) -> str:
    return f"{value:.3f}" if supported and np.isfinite(value) else "–"
