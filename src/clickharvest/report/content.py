"""Content: the texts of the page and the data of its charts, as plain lists and dicts.

`make_content` returns `view`, the texts and tables of the HTML, and `data`, the JSON that the page's script draws. Both
hold the user's strings unchanged; `page` escapes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from clickharvest.checks import Checked, budget_of, findings_of
from clickharvest.errors import InputError
from clickharvest.model.budget import BUDGET
from clickharvest.model.cautions import after_click, gaps, outcome_of
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.propensities import Propensities
from clickharvest.model.summary import NO_ORIGIN, spell_counts, spell_left, spell_thinned
from clickharvest.model.support import certain_values
from clickharvest.positions.places import name_place, spell_label
from clickharvest.report.importance import Importance, contrast_columns, movement, rank_columns
from clickharvest.report.log_summary import LogSummary
from clickharvest.report.packing import pack_model
from clickharvest.report.sections import budget_data, budget_view, checks_view, traffic_data, traffic_view
from clickharvest.report.values import ColumnValues, column_values, name_queries, typical_query, value_doubts
from clickharvest.words import clean_text, finite, spell_positions

MOST_WRITTEN = 6
"""Most context columns that the Python example writes out."""
SLIDER = 1_000
"""Steps of a slider of the page."""


def make_content(
    model: Propensities,
    summary: LogSummary | None = None,
    *,
    level: float = 0.95,
    name: str = "model.safetensors",
    commands: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the view and the data of a report.

    Args:
        model: the model.
        summary: the summary of its log; None takes the checks that the model keeps.
        level: level of the intervals.
        name: the model's file.
        commands: the commands that make the report and the weights, where they are known.
    """
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level:g}; expected a number between 0 and 1, such as 0.95")
    log = "LOG" if summary is None else shlex.quote(summary.name)
    x, plan, clipping = (None, None, None) if summary is None else (summary.x, summary.plan, summary.clipping)
    checked = checked_of(model, summary)
    if checked is not None:  # the states of positions must agree with the checks that are shown
        model = replace(model, info=dict(model.info) | {BUDGET: checked.budget.to_dict()})
    columns = column_values(model, x)
    contrasts = contrast_columns(model, columns, level=level)
    ranked = rank_columns(model, columns, x, contrasts)
    order = _order(columns, ranked)
    packed = pack_model(model, level)
    weigh = commands.get("weigh", _weigh_command(model, log, name))
    view = {
        "budget": budget_view(checked, weigh),
        "checks": checks_view(findings_of(model) if checked is None else checked.findings),
        "level": f"{100 * level:g} %",
        "has_intervals": model.draws is not None,
        "users": model.fit_info.users,
        "typical": typical_query([columns[i] for i in order]) if columns else "",
        "movement": movement(model, columns, ranked, contrasts, level),
        "name": name,
        "has_context": bool(columns),
        "bands": _bands(model, packed, level),
        "anchor": name_place(model.curve.anchor, model.places),
        "what": "position" if model.places is None else "place",
        "grid": _places(model)["grid"] if model.places is not None else None,
        "gaps": gaps(model),
        "outcome": outcome_of(model),
        "after_click": after_click(model),
        "same_data": None if summary is None else summary.same_data,
        "traffic": traffic_view(plan, len(columns)) if plan else None,
        "clipping": clipping,
        "fill": f"clickharvest report {shlex.quote(name)} --log {log} -o report.html",
        "example": _example(columns),
        "selection": _selection(model.fit_info),
        "settings": _settings(model, summary, level),
        "made_by": model.provenance and model.provenance.command_line,
        "again": commands.get("report"),
        "weigh": weigh,
    }
    data = {
        "model": packed,
        "places": None if model.places is None else _places(model),
        "columns": [_column(model, column, i) for i, column in enumerate(columns)],
        "importance": [asdict(importance) for importance in ranked],
        "order": order,
        "budget": budget_data(model, None if checked is None else checked.budget, level),
        "traffic": traffic_data(plan) if plan else None,
    }
    return view, data


def checked_of(model: Propensities, summary: LogSummary | None) -> Checked | None:
    """Return the checks of the log, or those that the model keeps; None where there are none."""
    if summary is not None:
        return summary.checked
    budget = budget_of(model)
    return None if budget is None else Checked(tuple(findings_of(model)), budget)


def _places(model: Propensities) -> dict[str, Any]:
    """Return the names of places by number, and rows and columns of a grid of numbers.

    A line joins neighbours that differ only in the number in their last column: positions of one page.
    """
    places = model.places
    assert places is not None
    known = range(1, len(places) + 1)
    numeric = [places.is_numeric(i) for i in range(len(places.columns))]
    grid = len(numeric) == 2 and all(numeric)
    return {
        "columns": list(places.columns),
        "names": {k: places.name(k) for k in known},
        "short": {k: ", ".join(clean_text(spell_label(value), 12) for value in places.labels[k - 1]) for k in known},
        "group": {k: ", ".join(map(str, places.labels[k - 1][: len(numeric) - numeric[-1]])) for k in known},
        "grid": {str(k): list(places.labels[k - 1]) for k in model.shown} if grid else None,
    }


def _weigh_command(model: Propensities, log: str, name: str) -> str:
    """Return the command that weighs a log by the model."""
    rest = "--clip auto -o weighted.parquet"
    if (outcome := outcome_of(model)) is None:
        return f"clickharvest weigh {log} {shlex.quote(name)} {rest}"
    after = f"--outcome {shlex.quote(outcome)} --after-click {shlex.quote(name)}"
    return f"clickharvest weigh {log} model.safetensors {after} {rest}"


def _bands(model: Propensities, packed: dict[str, Any], level: float) -> str:
    """Return a sentence on the intervals of the curves."""
    if model.draws is None:
        return "There are no bands: the model was fitted without intervals."
    if packed["draws"] is None:
        return (
            "There are no bands: the model's draws would make the page too large. clickharvest propensities has them."
        )
    count, of = packed["draws"]["count"], packed["draws"]["of"]
    sentence = f"Bands are {100 * level:g} % intervals, one {'position' if model.places is None else 'place'} at a time"
    return f"{sentence}." if count == of else f"{sentence}, from {count:,} of the {of:,} draws."


def _order(columns: list[ColumnValues], ranked: list[Importance]) -> list[int]:
    names = [column.part.name for column in columns]
    return [names.index(importance.column) for importance in ranked]


def _column(model: Propensities, column: ColumnValues, index: int) -> dict[str, Any]:
    part = column.part
    offered = [column.typical, *column.choices]
    features = np.array([choice.features for choice in offered])
    values = [next(iter(np.flatnonzero(has).tolist()), None) for has in certain_values(part, features)]
    typical, *choices = [
        asdict(choice) | {"doubts": doubts, "value": value}
        for choice, doubts, value in zip(offered, value_doubts(model, index, features), values, strict=True)
    ]
    words = [name_queries(column, choice) for choice in column.choices]
    return {
        "name": part.name,
        "kind": part.kind,
        "start": column.start,
        "mean": part.mean,
        "sd": part.sd,
        "typical": typical,
        "choices": [choice | {"words": queries} for choice, queries in zip(choices, words, strict=True)],
        "range": column.range,
        "steps": _slider(model, column, index),
    }


def _slider(model: Propensities, column: ColumnValues, index: int) -> list[dict[str, Any]]:
    """Return the runs of steps of a slider with the same doubts: the first, the last, and the doubts."""
    if column.range is None:
        return []
    numbers = np.linspace(*column.range, SLIDER + 1)
    x = np.zeros((len(numbers), len(column.part.features)))
    x[:, 0] = (numbers - column.part.mean) / column.part.sd
    runs: list[dict[str, Any]] = []
    for step, doubts in enumerate(value_doubts(model, index, x)):
        if doubts and runs and runs[-1]["doubts"] == doubts and runs[-1]["last"] == step - 1:
            runs[-1]["last"] = step
        elif doubts:
            runs.append({"first": step, "last": step, "doubts": doubts})
    return runs


def _example(columns: list[ColumnValues]) -> str | None:
    """Return a context as Python writes it: the mean of numbers, the most frequent value of others."""
    if not columns or len(columns) > MOST_WRITTEN:
        return "contexts" if columns else None
    values: dict[str, list[Any]] = {}
    for column in columns:
        likely = max(column.choices, key=lambda choice: choice.share)
        level: Any = likely.label
        if column.part.kind == "boolean":
            level = likely.label == "yes"
        elif column.part.kind == "numeric":
            level = float(f"{column.part.mean:.4g}")
        values[column.part.name] = [level]
    return repr(values)


def _selection(fit: FitInfo) -> list[dict[str, Any]]:
    """Return the best penalty of each curve, with its held-out score."""
    return [
        {"curve": name, "label": "chosen" if row.get("chosen") else spell_left(row.get("folds"))}
        | {"chosen": bool(row.get("chosen"))}
        | {"penalty": "pooled" if row.get("penalty") is None else _format(row["penalty"], ".4g")}
        | {"score": _format(row.get("score"), ".5f")}
        | {"se": _format(None if row.get("folds") else row.get("se"), ".5f")}
        for name, row in fit.best_candidates().items()
    ]


def _spread(pooled: Mapping[str, float | None] | None) -> str | None:
    """Return the standard deviations of pooling, as far as the model has them."""
    known = [f"{name} {_format(value, '.3g')}" for name, value in (pooled or {}).items() if value]
    return f"standard deviations: {', '.join(known)}" if known else None


def _settings(model: Propensities, summary: LogSummary | None, level: float) -> list[tuple[str, str]]:
    info, curve = model.fit_info, model.curve
    counts = spell_counts(model.info)
    intervals = "none" if model.draws is None else f"{100 * level:g} %, {model.draws_kind}"
    if model.draws is not None and model.draws_kind != "clustered":
        intervals += f", {len(model.draws):,} draws"
    rows = [
        ("Estimator", info.estimator),
        ("Objective", info.objective),
        ("Curve", ", ".join([curve.name, *(f"{key} {value}" for key, value in curve.shape.items())])),
        ("Penalty", None if info.penalty is None else _format(info.penalty, ".4g")),
        ("Pooled", _spread(info.pooled)),
        ("Anchor", name_place(model.curve.anchor, model.places)),
        ("Positions", spell_positions(model.curve.positions) if model.places is None else None),
        ("Places", f"{len(model.curve.positions)}, by {', '.join(model.places.columns)}" if model.places else None),
        ("Context", ", ".join(model.encoder.columns) if model.encoder else "none"),
        ("Intervals", intervals),
        ("Seed", info.seed),
        ("Fitted on", ", ".join(counts)),
        ("Thinned", spell_thinned(model.info)),
        ("The fit", info.status),
        ("Data (SHA-256)", info.data),
        ("Log read here", summary.name if summary else "none"),
        ("Compared in it", summary.compared if summary else None),
        *_origin(model),
    ]
    return [(key, str(value)) for key, value in rows if value not in (None, "")]


def _origin(model: Propensities) -> list[tuple[str, str]]:
    """Return the model's provenance without its command, which stands above the table."""
    if model.provenance is None:
        return [("Origin", NO_ORIGIN)]
    return [(label, text) for label, text in model.provenance.rows() if label != "Command"]


def _format(value: Any, form: str) -> str:
    number = finite(value)
    return "–" if number is None else format(number, form)
