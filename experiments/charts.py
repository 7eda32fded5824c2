"""Charts that experiments share. Altair is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan
from typing import Any

from experiments.models import (
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

Points = Sequence[Mapping[str, Any]]


def line_chart(
    points: Points,
    *,
    x: str,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    top: float | None = None,
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
    """
    import altair as alt

    rows = [_bar(point, inf if top is None else 1.1 * top) | {"x": point[x]} for point in points]
    if log_y:
        rows = [row | {"low": row["mean"] ** 2 / row["high"]} for row in rows]
    scale = alt.Scale(zero=False)
    if log_x:
        places = [row["x"] for row in rows]
        scale = alt.Scale(type="log", domain=[min(places) / 1.2, max(places) * 1.2])
    cut = top is not None
    height = alt.Scale(domain=[0.0, top]) if cut else alt.Scale(type="log" if log_y else "linear")
    models = list(dict.fromkeys(row["model"] for row in rows))
    across = alt.X("x:Q", title=x_title, scale=scale)
    colour = alt.Color("model:N", title=None, scale=_colours(models), sort=models)
    base = alt.Chart(alt.InlineData(rows))
    mean, low = (alt.Y(f"{end}:Q", title=y_title, scale=height) for end in ("mean", "low"))
    return alt.layer(
        base.mark_line(clip=cut).encode(x=across, y=mean, color=colour),
        base.mark_rule(opacity=0.5, clip=cut).encode(x=across, y=low, y2="high:Q", color=colour),
        base.mark_point(filled=True, size=45, clip=cut).encode(
            x=across, y=mean, color=colour, tooltip=["model:N", "mean:Q"]
        ),
    ).properties(width=WIDTH, height=HEIGHT)


def bar_chart(points: Points, *, y_title: str, paper: Mapping[str, float] | None = None) -> Any:
    """Return one bar per model with its standard deviation, and the paper's number as a black tick.

    Args:
        points: one mapping per bar: `model`, `mean` and `sd` (NaN for none).
        y_title: title of the axis of the numbers.
        paper: the paper's number of some models.
    """
    import altair as alt

    rows = [_bar(point) | {"paper": (paper or {}).get(point["model"])} for point in points]
    models = [row["model"] for row in rows]
    base = alt.Chart(alt.InlineData(rows))
    side = alt.Y("model:N", title=None, sort=models, axis=alt.Axis(labelLimit=240))
    colour = alt.Color("model:N", legend=None, scale=_colours(models))
    bars = base.mark_bar(opacity=0.8).encode(y=side, x=alt.X("mean:Q", title=y_title), color=colour)
    spread = base.mark_rule().encode(y=side, x=alt.X("low:Q", title=y_title), x2="high:Q")
    ticks = base.mark_tick(color="black", thickness=3, size=22).encode(y=side, x=alt.X("paper:Q", title=y_title))
    layers = [bars, spread, ticks] if paper else [bars, spread]
    return alt.layer(*layers).properties(width=WIDTH, height=36 * len(rows))


def band_chart(points: Points) -> Any:
    """Return curves of complex and simple queries with bands, one panel per model, the truth as a dashed line."""
    import altair as alt

    base = alt.Chart(alt.InlineData(list(points))).encode(
        x=alt.X("position:Q", title="position", scale=alt.Scale(domain=[1, max(p["position"] for p in points)])),
        color=alt.Color("queries:N", title="queries"),
    )
    band = base.mark_area(opacity=0.25).encode(y=alt.Y("lower:Q", title="examination"), y2="upper:Q")
    line = base.mark_line(point=True).encode(y="propensity:Q")
    truth = base.mark_line(strokeDash=[4, 3], opacity=0.7).encode(y="truth:Q")
    return (band + line + truth).properties(width=280, height=220).facet(column=alt.Column("model:N", title=None))


def interval_bars(points: Points, *, order: Sequence[str], title: str) -> Any:
    """Return the gain of each group of features as a bar with its interval, one panel per objective."""
    import altair as alt

    base = alt.Chart().encode(y=alt.Y("features:N", sort=order, title=None))
    bars = base.mark_bar().encode(x=alt.X("gain:Q", title=title))
    rules = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    return (
        alt.layer(bars, rules, data=alt.InlineData(list(points)))
        .properties(width=260, height=160)
        .facet(column=alt.Column("objective:N", title=None))
        .resolve_scale(x="independent")
    )


def estimator_chart(points: Points, models: Sequence[str]) -> Any:
    """Return the curves of estimators with their bands, one panel per log."""
    import altair as alt

    base = alt.Chart(alt.InlineData(list(points)))
    colour = alt.Color("model:N", title=None, sort=list(models), legend=alt.Legend(symbolOpacity=1))
    across = alt.X("position:Q", axis=alt.Axis(tickMinStep=1))
    band = base.mark_area(opacity=0.12).encode(
        x=across, y=alt.Y("lower:Q", title="propensity"), y2="upper:Q", color=colour
    )
    line = base.mark_line(point=True).encode(x=across, y=alt.Y("propensity:Q", title="propensity"), color=colour)
    return alt.layer(band, line).properties(width=300, height=260).facet(column=alt.Column("log:N", title=None))


def _bar(point: Mapping[str, Any], most: float = inf) -> dict[str, Any]:
    """Return a point with the ends of its bar, none above `most`: renderers lose marks that end far outside."""
    sd = 0.0 if isnan(point["sd"]) else point["sd"]
    ends = {"mean": point["mean"], "low": point["mean"] - sd, "high": point["mean"] + sd}
    return {"model": point["model"], **{name: min(value, most) for name, value in ends.items()}}


def _colours(models: Sequence[str]) -> Any:
    import altair as alt

    return alt.Scale(domain=list(models), range=[COLOURS.get(model, "#2ca02c") for model in models])
