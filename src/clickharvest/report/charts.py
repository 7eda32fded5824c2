"""Charts as functions: each returns an Altair chart, which notebooks show and `chart.save` writes.

| function | shows |
|---|---|
| `plot_curves` | examination by position with its intervals, for models and contexts |
| `plot_estimators` | what several estimators say of one log, with intervals |
| `plot_overlap` | how much each pair of positions is compared through common documents |
| `plot_plan` | how precise each position is, or will be, against the width wanted |
| `plot_importance` | which context columns move examination |

Names from logs are data here, never field names or markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.files import atomic_path
from clickharvest.model.contexts import column_names
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import name_place, name_places
from clickharvest.report.importance import column_importance
from clickharvest.words import finite, shorten

if TYPE_CHECKING:
    import altair as alt

    from clickharvest.baselines import EstimatorComparison
    from clickharvest.checks.diagnosing import Diagnosis
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.planning.designing import DesignPlan
    from clickharvest.planning.traffic import Plan

PALETTE = ["#0f766e", "#c2410c", "#4f46e5", "#a16207", "#be185d", "#475569", "#0369a1", "#65a30d"]
CHART_FORMATS: dict[str, Literal["html", "svg", "png"]] = {".html": "html", ".svg": "svg", ".png": "png"}
_ESTIMATE = ("propensity", "lower", "upper")


def plot_curves(models: Any, contexts: Any = None, *, level: float = 0.95, log: bool = False) -> alt.LayerChart:
    """Plot p_k(x) / p_anchor(x) by position k, with intervals where the models have them.

    Args:
        models: `Propensities`, a fitted estimator, or a mapping of names to such.
        contexts: table with one row per curve; None takes each model's typical context.
        level: level of the intervals.
        log: whether propensities are drawn on a logarithmic axis.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> model = Propensities(curve, {"b": np.log([0.5])}, None, shown=(1, 2))
        >>> chart = plot_curves({"PBM": model})
        >>> [(row["curve"], row["position"], row["propensity"]) for row in chart.data.values]
        [('PBM', 1, 1.0), ('PBM', 2, 0.5)]
    """
    require("altair", "plots", "a chart")
    import altair as alt

    named = _named(models)
    rows = [row for name, model in named.items() for row in _curve_rows(name, model, contexts, level, len(named) > 1)]
    curves = list(dict.fromkeys(row["curve"] for row in rows))
    anchors = list(dict.fromkeys(name_place(model.curve.anchor, model.places) for model in named.values()))
    free = any(model.places is not None for model in named.values())
    x: Any = alt.X("position:Q", title="position", axis=alt.Axis(tickMinStep=1, format="d", grid=False))
    if free:
        names = list(dict.fromkeys(row["position"] for row in rows))
        x = alt.X("position:N", title="place", sort=names, axis=alt.Axis(labelAngle=-40, grid=False))
    scale = alt.Scale(type="log") if log else alt.Scale(zero=True)
    base = alt.Chart().encode(
        x=x,
        color=alt.Color(
            "curve:N",
            title=None,
            sort=curves,
            scale=alt.Scale(domain=curves, range=[PALETTE[i % len(PALETTE)] for i in range(len(curves))]),
            legend=None
            if len(curves) == 1
            else alt.Legend(orient="top", labelLimit=300, columns=3, symbolOpacity=1, symbolType="stroke"),
        ),
        tooltip=[
            alt.Tooltip("curve:N"),
            alt.Tooltip("position:N" if free else "position:Q"),
            alt.Tooltip("propensity:Q", format=".4f"),
            alt.Tooltip("lower:Q", format=".4f"),
            alt.Tooltip("upper:Q", format=".4f"),
        ],
    )
    title = f"examination relative to {', '.join(anchors)}".replace(", position ", ", ")
    band = (base.mark_rule() if free else base.mark_area(opacity=0.18, line=False)).encode(
        y=alt.Y("lower:Q", title=title, scale=scale), y2=alt.Y2("upper:Q")
    )
    line = base.mark_circle(size=50) if free else base.mark_line(point=alt.OverlayMarkDef(size=36))
    line = line.encode(y=alt.Y("propensity:Q", title=title, scale=scale))
    return alt.LayerChart(data=alt.InlineData(rows), layer=[band, line]).properties(width=480, height=300)


def plot_estimators(comparison: EstimatorComparison) -> alt.LayerChart:
    """Plot p_k / p_anchor by position k of every estimator, with intervals, on a logarithmic axis.

    Example:
        >>> from clickharvest.baselines import compare_estimators
        >>> from clickharvest.logs.reading import read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> found = compare_estimators(read_log(simulate_ab_log(pages=500)[0]), estimators=["ctr", "pivotone"])
        >>> {row["estimator"] for row in plot_estimators(found).data.values} == {"CTR", "PivotOne"}
        True
    """
    require("altair", "plots", "a chart")
    import altair as alt

    several = len(comparison.estimates)
    rows: list[dict[str, Any]] = [
        # Marks stand beside each other, so that no interval hides another.
        {"estimator": estimate.label, "position": k, "beside": round(k + 0.09 * (i - (several - 1) / 2), 3)}
        | {name: _rounded(value) for name, value in zip(_ESTIMATE, values, strict=True)}
        for i, estimate in enumerate(comparison.estimates.values())
        for k, values in estimate.propensity.items()
    ]
    labels = [estimate.label for estimate in comparison.estimates.values()]
    colour = alt.Color(
        "estimator:N",
        title=None,
        scale=alt.Scale(domain=labels, range=PALETTE[:several]),
        legend=alt.Legend(orient="right", symbolType="stroke", symbolOpacity=1),
    )
    ends = comparison.positions[0] - 0.5, comparison.positions[-1] + 0.5
    drawn = [row["propensity"] for row in rows]
    base = alt.Chart().encode(
        x=alt.X(
            "beside:Q",
            title="position",
            axis=alt.Axis(tickMinStep=1, format="d", grid=False),
            scale=alt.Scale(domain=ends, nice=False),
        ),
        color=colour,
        tooltip=["estimator:N", "position:Q", *(alt.Tooltip(f"{n}:Q", format=".4f") for n in _ESTIMATE)],
    )
    # Intervals that are wider than the picture run to its edge.
    scale = alt.Scale(type="log", domain=(min(drawn) / 3, 2 * max(drawn)), clamp=True)
    y = alt.Y("propensity:Q", title="examination relative to the anchor", scale=scale)
    lines = base.mark_line(point=alt.OverlayMarkDef(size=30), strokeWidth=1.5, opacity=0.85).encode(y=y)
    bars = (
        base.transform_filter("isValid(datum.lower)").mark_rule().encode(y=alt.Y("lower:Q", scale=scale), y2="upper:Q")
    )
    return alt.LayerChart(data=alt.InlineData(rows), layer=[bars, lines]).properties(width=560, height=360)


def check_chart(path: Path) -> None:
    """Raise `InputError` where a chart cannot be written under a name, before anything is computed."""
    require("altair", "plots", "a chart")
    if path.suffix.lower() not in CHART_FORMATS:
        raise InputError(f"a chart is HTML, SVG or PNG: {path} should end in {', '.join(CHART_FORMATS)}")


def save_chart(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart to one file that needs no network, whole or not at all."""
    check_chart(path)
    with atomic_path(path) as partial:
        kind = CHART_FORMATS[path.suffix.lower()]
        embedded: dict[str, Any] = {"inline": True} if kind == "html" else {}
        chart.save(str(partial), format=kind, scale_factor=2, **embedded)


def plot_overlap(source: Diagnosis | Interventions) -> alt.Chart:
    """Plot the effective clicks of every pair of positions as a heat map; an empty cell has no common documents.

    Effective clicks of a pair are Σ_u n_u · 4 π_u (1 − π_u), see `clickharvest.checks.overlap`. Positions that
    nothing links to the anchor are named in the subtitle.

    Args:
        source: a diagnosis, or interventions, which are diagnosed.

    Example:
        >>> from clickharvest.harvesting.interventions import Interventions
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]),
        ...     exposure=np.array([3.0, 1.0]), clicks=np.array([2, 1]), impressions=np.array([3, 1]))
        >>> plot_overlap(interventions).data.values
        [{'position': 1, 'other': 2, 'units': 1, 'clicks': 3, 'effective': 2.25}]
    """
    require("altair", "plots", "a chart")
    import altair as alt

    from clickharvest.checks.diagnosing import Diagnosis, diagnose

    diagnosis = source if isinstance(source, Diagnosis) else diagnose(source)
    places = diagnosis.places
    names = {k: k if places is None else places.name(k) for k in diagnosis.positions}
    rows = [
        {
            "position": names[pair.position],
            "other": names[pair.other],
            "units": pair.units,
            "clicks": pair.clicks + pair.other_clicks,
            "effective": round(pair.effective_clicks, 3),
        }
        for pair in diagnosis.pairs
    ]
    unlinked = name_places(diagnosis.unlinked, places).removeprefix("positions ").removeprefix("position ")
    subtitle = f"Not linked to {name_place(diagnosis.anchor, places)}: {unlinked}"
    every = list(names.values())
    what, turned = ("position", 0) if places is None else ("place", -40)
    chart = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("position:O", title=what, scale=alt.Scale(domain=every), axis=alt.Axis(labelAngle=turned)),
        y=alt.Y("other:O", title=what, scale=alt.Scale(domain=every)),
        tooltip=["position:O", "other:O", "units:Q", "clicks:Q", alt.Tooltip("effective:Q", format=",.0f")],
    )
    cells = chart.mark_rect(cornerRadius=2).encode(
        color=alt.Color(
            "effective:Q", title="effective clicks", scale=alt.Scale(type="sqrt", scheme="teals", domainMin=0)
        )
    )
    title = alt.TitleParams(f"Clicks that compare two {what}s", subtitle=subtitle if diagnosis.unlinked else [])
    size = max(240, min(480, 26 * len(every)))
    sized: alt.Chart = cells.properties(width=size, height=size, title=title)
    return sized


def plot_importance(model: Any, contexts: Any = None, *, top: int = 20) -> alt.Chart:
    """Plot which context columns move examination most, as bars of I_c; see `column_importance` for the formula.

    Bars of columns of which no two values differ beyond chance are hollow.

    Args:
        model: `Propensities` or a fitted estimator, with context.
        contexts: table of contexts to average over, such as `interventions.contexts`.
        top: number of columns shown.

    Raises:
        InputError: the model has no context.
    """
    require("altair", "plots", "a chart")
    import altair as alt

    propensities = _propensities(model)
    if propensities.encoder is None:
        raise InputError("the model has no context, so that nothing moves its curve: fit a CPBM with context columns")
    ranked = column_importance(propensities, contexts)[:top]
    rows = [
        {
            "column": shorten(importance.column),
            "effect": importance.effect,
            "factor": float(np.exp(importance.effect)),
            "beyond chance": bool(importance.clear),
        }
        for importance in ranked
    ]
    bars = alt.Chart(alt.InlineData(rows)).encode(
        y=alt.Y("column:N", title=None, sort=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False)),
        x=alt.X("effect:Q", title="mean |Δ log examination| between two values of the column"),
        fillOpacity=alt.condition(alt.datum["beyond chance"], alt.value(1), alt.value(0)),
        tooltip=[
            alt.Tooltip("column:N"),
            alt.Tooltip("effect:Q", format=".3f"),
            alt.Tooltip("factor:Q", format=".2f"),
            alt.Tooltip("beyond chance:N"),
        ],
    )
    marks = bars.mark_bar(color=PALETTE[0], stroke=PALETTE[0], cornerRadiusEnd=2, height={"band": 0.7})
    sized: alt.Chart = marks.properties(width=420, height=alt.Step(22))
    return sized


def plot_plan(plan: Plan | DesignPlan) -> alt.LayerChart:
    """Plot the half-width of every position, of every context, against the one that is wanted.

    Args:
        plan: what `plan_from_log` or `plan_from_design` gives.

    Example:
        >>> from clickharvest.planning import plan_from_design, ranked_outline
        >>> chart = plot_plan(plan_from_design(ranked_outline(3, swaps={(1, 2): 0.2, (2, 3): 0.2}), 9_000))
        >>> [(row["segment"], row["position"]) for row in chart.layer[0].data.values]
        [('all', 2), ('all', 3)]
    """
    require("altair", "plots", "a chart")
    import altair as alt

    margins = np.atleast_2d(plan.margin)
    segments = getattr(plan, "segments", ["all"])
    rows = [
        {"segment": shorten(segment, 80), "position": k, "percent": round(100 * float(margin), 3)}
        for segment, halves in zip(segments, margins, strict=True)
        for k, margin in zip(plan.positions, halves, strict=True)
        if np.isfinite(margin)
    ]
    title = f"half-width of the {100 * plan.level:g} % interval, %"
    legend = None if len(segments) == 1 else alt.Legend(orient="top", labelLimit=300, columns=3)
    lines = (
        alt.Chart(alt.InlineData(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("position:Q", title="position", axis=alt.Axis(tickMinStep=1, format="d", grid=False)),
            y=alt.Y("percent:Q", title=title, scale=alt.Scale(zero=True)),
            color=alt.Color("segment:N", title=None, legend=legend, scale=alt.Scale(range=PALETTE)),
            tooltip=["segment:N", "position:Q", alt.Tooltip("percent:Q", format=".1f")],
        )
    )
    wanted = (
        alt.Chart(alt.InlineData([{"percent": 100 * plan.width}]))
        .mark_rule(strokeDash=[4, 4], color="#475569")
        .encode(y="percent:Q")
    )
    return alt.LayerChart(layer=[lines, wanted]).properties(width=480, height=300)


def _named(models: Any) -> dict[str, Propensities]:
    if isinstance(models, Mapping):
        if not models:
            raise InputError("no model to plot: give Propensities, a fitted estimator, or a mapping of names to such")
        return {str(name): _propensities(model) for name, model in models.items()}
    model = _propensities(models)
    return {str(model.info.get("estimator", model.curve.name)): model}


def _propensities(model: Any) -> Propensities:
    fitted = getattr(model, "propensities_", model)
    if not isinstance(fitted, Propensities):
        raise InputError(f"cannot plot {type(model).__name__}: expected Propensities or a fitted estimator")
    return fitted


def _curve_rows(name: str, model: Propensities, contexts: Any, level: float, several: bool) -> list[dict[str, Any]]:
    if model.encoder is None or contexts is None:
        predicted, labels = model.predict_encoded(typical_context(model), level=level), [name]
    else:
        predicted = model.predict(contexts, level=level)
        labels = [f"{name}, {label}" if several else label for label in _labels(model.encoder.columns, contexts)]
    return [row for i, label in enumerate(labels) for row in _records(shorten(label, 80), predicted, i)]


def _labels(columns: Iterable[str], contexts: Any) -> list[str]:
    """Return one label per row, of the columns that differ between rows; numbered where rows agree in all."""
    texts = {
        name: [str(value) for value in _listed(contexts[name])] for name in columns if name in column_names(contexts)
    }
    n = len(next(iter(texts.values())))
    differing = [name for name, column in texts.items() if len(set(column)) > 1]
    labels = [", ".join(f"{name} = {texts[name][i]}" for name in differing) or "context" for i in range(n)]
    return [label if labels.count(label) == 1 else f"{label} ({i + 1})" for i, label in enumerate(labels)]


def _listed(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _records(curve: str, predicted: Prediction, i: int) -> list[dict[str, Any]]:
    columns = (predicted.propensity[i], predicted.lower[i], predicted.upper[i])
    return [
        {"curve": curve, "position": k if predicted.places is None else predicted.places.name(k)}
        | {name: _rounded(value) for name, value in zip(_ESTIMATE, values, strict=True)}
        for k, supported, *values in zip(predicted.positions, predicted.supported[i], *columns, strict=True)
        if supported
    ]


def _rounded(value: float | None) -> float | None:
    return None if (number := finite(value)) is None else round(number, 6)
