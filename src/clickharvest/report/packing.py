"""Packing: the model inside the page, small enough for a mail.

Parameters are packed in double precision. Draws, which only tell how wide the bands are, are rounded to 16 bits, or
to 8 where that would make the page too large: a step of 1/256 of a parameter's range changes a standard deviation by
about 1 part in 10,000. Of more draws than fit even so, the first ones are kept; but points of a covariance only tell it
all together, so that they are kept whole, or not at all.
"""

from __future__ import annotations

import base64
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.budget import CANNOT_TELL, budget_of, most_noise, why_cannot_tell
from clickharvest.model.cautions import off_curve_in_contexts, off_curve_positions
from clickharvest.model.curves import flatten_params
from clickharvest.model.propensities import NORMAL, Propensities
from clickharvest.model.support import never_together, rests_on_few, spell_queries
from clickharvest.model.trace import trace_curve

MOST_BYTES = 1_500_000
"""Most bytes of packed draws, before base64 adds a third."""
MOST_BYTES_OF_POINTS = 4_000_000
"""Most bytes of the points of a clustered covariance."""
UNLIMITED = 1e6
"""A width of intervals beyond all others."""
FEWEST_DRAWS = 50
"""Least draws for bands; fewer are too rough."""


def pack_model(model: Propensities, level: float = 0.95) -> dict[str, Any]:
    """Return the data from which the page computes p_k(x) and its interval, for JSON.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> packed = pack_model(Propensities(curve, {"b": np.log([0.5])}, None, shown=(1, 2, 3)))
        >>> packed["layout"], packed["positions"], packed["draws"]
        ({'b': 0}, [1, 2], None)
    """
    layout, begin = {}, 0
    for name in sorted(model.params):
        layout[name] = begin
        begin += int(np.size(model.params[name]))
    budget = budget_of(model)
    limits = most_noise(budget, model.curve.positions, model.curve.anchor)[1]
    drawn = None if model.draws is None else model.drawn_curves()
    return {
        "program": trace_curve(model.curve).to_list(),
        "program_of_draws": None if drawn is None or drawn.curve == model.curve else trace_curve(drawn.curve).to_list(),
        "positions": list(map(int, model.curve.positions)),
        "shown": list(model.shown),
        "anchor": int(model.curve.anchor),
        "features": model.curve.n_features,
        "layout": layout,
        "params": _base64(flatten_params(model.params), "<f8"),
        "draws": None if drawn is None else _pack_draws(drawn.draws, model.draws_kind),
        "level": level,
        "z": -(1.0 if drawn is None else drawn.factor) * NormalDist().inv_cdf((1 - level) / 2),
        "limits": np.minimum(limits * NormalDist().inv_cdf((1 + level) / 2) / NORMAL, UNLIMITED).tolist(),
        "untold": f"{CANNOT_TELL}: {why_cannot_tell(budget)}",
        "doubts": _doubts(model),
        "apart": _apart(model),
        "beside": _beside(model),
    }


def _doubts(model: Propensities) -> list[dict[str, Any]]:
    """Return the doubts about positions in every context."""
    shown = np.array(model.shown)
    # Without contexts to doubt, doubts are those of positions.
    doubts = model.doubts(np.zeros((0, model.curve.n_features)))
    return [{"why": doubt.why, "at": shown[doubt.where[0]].tolist()} for doubt in doubts]


def _apart(model: Propensities) -> list[dict[str, Any]]:
    """Return the values of two columns that training never had together: the columns, the reason, and the pairs."""
    if model.support is None or model.encoder is None:
        return []
    parts = model.encoder.parts
    return [
        {"columns": [i, j], "why": never_together(parts[i], parts[j]), "pairs": pairs}
        for (i, j), pairs in model.support.apart_by_columns().items()
    ]


def _beside(model: Propensities) -> list[dict[str, Any]]:
    """Return footnotes for positions that rest on few queries or lie off the curve, everywhere or where a feature is
    not 0; the first one of a position is shown."""
    queries = () if model.support is None else zip(model.curve.positions, model.support.queries, strict=True)
    few = [(k, None, spell_queries(n)) for k, n in queries if n is not None and rests_on_few(n)]
    where = [(None, off_curve_positions(model)), *off_curve_in_contexts(model).items()]
    odd = [(k, feature, "does not follow the curve of the others") for feature, at in where for k in at]
    return [{"at": int(k), "feature": feature, "note": note} for k, feature, note in few + odd]


def _pack_draws(draws: NDArray[np.float64], kind: str | None) -> dict[str, Any] | None:
    """Return draws [B, n] as integers q with value = low + step · q, per parameter."""
    count, size = draws.shape
    room = (MOST_BYTES_OF_POINTS if kind == "clustered" else MOST_BYTES) // max(size, 1)
    kept = draws[:room]
    if len(kept) < (count if kind == "clustered" else min(count, FEWEST_DRAWS)):
        return None
    bits = 16 if 2 * kept.size <= MOST_BYTES else 8
    low = kept.min(axis=0)
    step = (kept.max(axis=0) - low) / (2**bits - 1)
    steps = np.rint((kept - low) / np.where(step > 0, step, 1))
    return {
        "count": len(kept),
        "of": count,
        "bits": bits,
        "low": _base64(low, "<f8"),
        "step": _base64(step, "<f8"),
        "steps": _base64(steps, f"<u{bits // 8}"),
    }


def _base64(array: NDArray[Any], kind: str) -> str:
    return base64.b64encode(array.astype(kind).tobytes()).decode("ascii")
