"""Tables and charts of curves that the experiments on the arXiv-like log share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.families.arxiv_curves import CURVE
from experiments.families.arxiv_log import KINDS
from experiments.runner.experiment import Row
from experiments.runner.runs import Results


def curve_of(results: Results, model: str, part: str, kind: str) -> dict[str, NDArray[np.float64]]:
    """Return the arrays `CURVE` [K] that a run measured, NaN where there is no estimate."""
    found = results.where(model=model, part=part)
    numbers = found[0].numbers if found else {}
    return {name: np.array(numbers.get(f"{kind}_{name}", [None]), np.float64) for name in CURVE}


def curve_rows(results: Results, models: Sequence[tuple[str, str]]) -> list[Row]:
    """Return one row per kind of query and position, with estimate and band of each (model, part)."""
    rows = []
    for kind in KINDS:
        curves = {(model, part): curve_of(results, model, part, kind) for model, part in models}
        truth = next(iter(curves.values()))["truth"]
        for k in range(len(truth)):
            row: Row = {"queries": kind, "position": k + 1, "truth": float(truth[k])}
            for (model, part), curve in curves.items():
                row[f"{model} ({part})"] = float(curve["propensity"][k])
                row[f"{model} ({part}) band"] = f"{curve['lower'][k]:.3f}–{curve['upper'][k]:.3f}"
            rows.append(row)
    return rows


def curve_chart(results: Results, models: Sequence[tuple[str, str]]) -> Any:
    """Return the curves with their bands, one panel per model, the truth as a dashed line."""
    import altair as alt

    points: list[dict[str, Any]] = []
    for model, part in models:
        for kind in KINDS:
            curve = curve_of(results, model, part, kind)
            for k in range(len(curve["truth"])):
                values = {name: None if np.isnan(curve[name][k]) else float(curve[name][k]) for name in CURVE}
                points.append({"model": f"{model} ({part})", "queries": kind, "position": k + 1, **values})
    base = alt.Chart(alt.InlineData(points)).encode(
        x=alt.X("position:Q", title="position", scale=alt.Scale(domain=[1, max(p["position"] for p in points)])),
        color=alt.Color("queries:N", title="queries"),
    )
    band = base.mark_area(opacity=0.25).encode(y=alt.Y("lower:Q", title="examination"), y2="upper:Q")
    line = base.mark_line(point=True).encode(y="propensity:Q")
    truth = base.mark_line(strokeDash=[4, 3], opacity=0.7).encode(y="truth:Q")
    return (band + line + truth).properties(width=280, height=220).facet(column=alt.Column("model:N", title=None))
