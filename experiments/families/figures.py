"""Charts that several experiments share. Altair is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan
from typing import Any

from experiments.families.models import (
    AUTHORS,
    AUTHORS_ORACLE,
    CLICKSHARE,
    CPBM,
    CPBM_CONSTANT,
    CPBM_NETWORK,
    CTR,
    EM,
    HIDDEN_NETWORK,
    PBM,
    ROBUST,
)

COLOURS = {
    PBM: "#7f7f7f",
    ROBUST: "#1f77b4",
    CPBM: "#8c564b",
    HIDDEN_NETWORK: "#ff7f0e",
    AUTHORS: "#e377c2",
    AUTHORS_ORACLE: "#c5b0d5",
    CPBM_CONSTANT: "#17becf",
    CPBM_NETWORK: "#2ca02c",
    CLICKSHARE: "#d62728",
    EM: "#9467bd",
    CTR: "#bcbd22",
}
"""The colour of each model, the same in every figure."""
WIDTH, HEIGHT = 460, 280


def line_chart(
    points: Sequence[Mapping[str, Any]],
    *,
    x: str,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    top: float | None = None,
    paper: Mapping[str, float] | None = None,
) -> Any:
    """Return lines of means with bars of one standard deviation, one line per model.

    Args:
        points: one mapping per point: `model`, `mean`, `sd` (NaN for none) and the place `x`.
        x: the key of the place.
        x_title: title of the horizontal axis.
        y_title: title of the vertical axis.
        log_x: whether the horizontal axis is logarithmic.
        log_y: whether the vertical axis is logarithmic; then bars of one factor 1 + sd / mean, up and down.
        top: where the vertical axis ends; what is above is cut off. None: all is shown.
        paper: the paper's numbers by name, drawn as dashed lines.
    """
    import altair as alt

    rows = [_bars(point, inf if top is None else 1.1 * top) | {"x": point[x]} for point in points]
    if log_y:
        rows = [row | {"low": row["mean"] ** 2 / row["high"]} for row in rows]
    models = list(dict.fromkeys(row["model"] for row in rows))
    scale = alt.Scale(zero=False)
    if log_x:
        places = [row["x"] for row in rows]
        scale = alt.Scale(type="log", domain=[min(places) / 1.2, max(places) * 1.2])
    cut = top is not None
    height = alt.Scale(domain=[0.0, top]) if cut else alt.Scale(type="log" if log_y else "linear")
    across = alt.X("x:Q", title=x_title, scale=scale)
    colour = alt.Color("model:N", title=None, scale=_colours(models), sort=models)
    base = alt.Chart(alt.InlineData(rows))
    up, low = (alt.Y(f"{end}:Q", title=y_title, scale=height) for end in ("mean", "low"))
    points_shown = base.mark_point(filled=True, size=45, clip=cut)
    drawn = [
        base.mark_line(clip=cut).encode(x=across, y=up, color=colour),
        base.mark_rule(opacity=0.5, clip=cut).encode(x=across, y=low, y2="high:Q", color=colour),
        points_shown.encode(x=across, y=up, color=colour, tooltip=["model:N", "mean:Q"]),
    ]
    if paper:
        lines = [{"name": f"paper: {name}", "value": value} for name, value in paper.items()]
        marks = alt.Chart(alt.InlineData(lines))
        drawn.append(marks.mark_rule(strokeDash=[5, 4], color="black").encode(y="value:Q"))
        text = marks.mark_text(align="right", dy=-6, color="black").encode(
            y="value:Q", x=alt.value(WIDTH), text="name:N"
        )
        drawn.append(text)
    return alt.layer(*drawn).properties(width=WIDTH, height=HEIGHT)


def bar_chart(points: Sequence[Mapping[str, Any]], *, y_title: str, paper: Mapping[str, float] | None = None) -> Any:
    """Return one bar per model with its standard deviation, and the paper's number as a black tick.

    Args:
        points: one mapping per bar: `model`, `mean` and `sd` (NaN for none).
        y_title: title of the axis of the numbers.
        paper: the paper's number of some models.
    """
    import altair as alt

    rows = [_bars(point) | {"paper": (paper or {}).get(point["model"])} for point in points]
    models = [row["model"] for row in rows]
    base = alt.Chart(alt.InlineData(rows))
    side = alt.Y("model:N", title=None, sort=models, axis=alt.Axis(labelLimit=240))
    colour = alt.Color("model:N", legend=None, scale=_colours(models))
    bars = base.mark_bar(opacity=0.8).encode(y=side, x=alt.X("mean:Q", title=y_title), color=colour)
    spread = base.mark_rule().encode(y=side, x=alt.X("low:Q", title=y_title), x2="high:Q")
    ticks = base.mark_tick(color="black", thickness=3, size=22).encode(y=side, x=alt.X("paper:Q", title=y_title))
    drawn = [bars, spread, ticks] if paper else [bars, spread]
    return alt.layer(*drawn).properties(width=WIDTH, height=36 * len(rows))


def _bars(point: Mapping[str, Any], most: float = inf) -> dict[str, Any]:
    """Return a point with the ends of its bar, none above `most`: renderers lose marks that end far outside."""
    sd = 0.0 if isnan(point["sd"]) else point["sd"]
    mean = point["mean"]
    ends = {"mean": mean, "low": mean - sd, "high": mean + sd}
    return {"model": point["model"], **{name: min(value, most) for name, value in ends.items()}}


def _colours(models: Sequence[str]) -> Any:
    import altair as alt

    return alt.Scale(domain=list(models), range=[COLOURS.get(model, "#2ca02c") for model in models])
