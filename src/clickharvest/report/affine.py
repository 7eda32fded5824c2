"""The page of an affine model: what was found, slopes and offsets of every position, and what to do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clickharvest.click_models.affine.fitted import AffineModel
from clickharvest.click_models.affine.levels import AffineLevels
from clickharvest.model.summary import spell_counts
from clickharvest.model.support import CANNOT_TELL
from clickharvest.report.plain import kept_findings, write_page

TITLE = "Do people trust the top?"


def write_affine_report(
    path: str | Path,
    model: AffineModel | AffineLevels,
    *,
    title: str = TITLE,
    level: float = 0.95,
    name: str = "model.safetensors",
    made: str = "",
    weigh: str = "clickharvest weigh clicks.parquet model.safetensors -o corrected.parquet",
) -> int:
    """Write the page of an affine model, whole or not at all, and return its size in bytes.

    Args:
        path: the file to write.
        model: the model.
        title: the page's title.
        level: level of the intervals.
        name: the model's file name.
        made: when the page was made.
        weigh: the command that corrects clicks.

    Raises:
        InputError: the file cannot be written, or the level is not between 0 and 1.
    """
    view = affine_view(model, level=level) | {"title": title, "name": name, "made": made, "weigh": weigh}
    return write_page(Path(path), "affine.html", view)


def affine_view(model: AffineModel | AffineLevels, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of the page."""
    rows = [row for name, own in model.parts for row in _rows(own, level, f"{name}: " if name else "")]
    origin = [] if model.provenance is None else model.provenance.rows()
    return {
        "users": str(model.info.get("users") or ""),
        "sentences": model.sentences(),
        "anchor": model.anchor,
        "percent": f"{100 * level:.4g} %",
        "rows": rows,
        "findings": kept_findings(model),
        "settings": [("fitted on", ", ".join(spell_counts(model.info))), *origin],
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
