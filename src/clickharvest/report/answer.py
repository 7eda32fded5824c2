"""The answer: what a model found, in three sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clickharvest.model.cautions import gaps
from clickharvest.model.propensities import Propensities
from clickharvest.model.summary import typical_context
from clickharvest.report.charts import shorten
from clickharvest.report.evidence import Evidence
from clickharvest.report.importance import Importance
from clickharvest.report.values import ColumnValues
from clickharvest.words import count, spell_positions

NOTICEABLE = 0.05
"""Mean |Δ log p| from which a column is said to move the curve."""


def answer(
    model: Propensities,
    columns: list[ColumnValues],
    ranked: list[Importance],
    evidence: Evidence | None,
    level: float = 0.95,
) -> list[str]:
    """Return three sentences: how examination falls, what moves it, and whether to trust it.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2, 4), anchor=1, n_features=0)
        >>> model = Propensities(curve, {"b": np.log([0.5, 0.25])}, None, shown=(1, 2, 3, 4))
        >>> for sentence in answer(model, [], [], None):
        ...     print(sentence)
        A result at position 2 is looked at 0.50 times as often as one at position 1; the figure is 0.25 at position 4.
        Every context gets this one curve: the model was fitted without context columns.
        No estimate at position 3: nothing links it to position 1; what the log supports is not shown here.
    """
    order = [importance.column for importance in ranked]
    columns = sorted(columns, key=lambda column: order.index(column.part.name))
    return [_fall(model, columns, level), _movement(model, columns, ranked), _trust(model, evidence)]


def _fall(model: Propensities, columns: list[ColumnValues], level: float) -> str:
    predicted = model.predict_encoded(typical_context(model), level=level)
    others = [k for k in model.curve.positions if k != model.curve.anchor]
    first, *rest = sorted({others[0], others[len(others) // 2], others[-1]})

    def value(k: int) -> str:
        return spell(predicted.propensity[0, model.shown.index(k)])

    at = model.shown.index(first)
    interval = ""
    if model.draws is not None:
        ends = spell(predicted.lower[0, at]), spell(predicted.upper[0, at])
        interval = f" ({100 * level:g} % interval {ends[0]} to {ends[1]})"
    where = f"In a typical context ({_typical(columns)}), a result" if columns else "A result"
    more = " and ".join(f"{value(k)} at position {k}" for k in rest)
    anchor = model.curve.anchor
    return (
        f"{where} at position {first} is looked at {value(first)} times as often as one at position {anchor}{interval}"
        f"{f'; the figure is {more}' if more else ''}."
    )


def _typical(columns: list[ColumnValues]) -> str:
    named = ", ".join(f"{shorten(c.part.name, 30)} = {shorten(c.typical.label, 30)}" for c in columns[:3])
    return named + (", …" if len(columns) > 3 else "")


def _movement(model: Propensities, columns: list[ColumnValues], ranked: list[Importance]) -> str:
    if not columns:
        return "Every context gets this one curve: the model was fitted without context columns."
    if ranked[0].effect < NOTICEABLE:
        none = f"{shorten(columns[0].part.name)} does not move"
        if len(columns) > 1:
            none = f"none of the {len(columns)} context columns moves"
        return f"This hardly depends on context: {none} the curve noticeably."
    column = next(column for column in columns if column.part.name == ranked[0].column)
    choices = [choice for choice in column.choices if choice.share > 0]
    x = np.repeat(typical_context(model), len(choices), axis=0)
    x[:, column.features] = [choice.features for choice in choices]
    last = max(k for k in model.curve.positions if k != model.curve.anchor)
    p = replace(model, draws=None, draws_kind=None).predict_encoded(x).propensity[:, model.shown.index(last)]
    high, low = int(np.argmax(p)), int(np.argmin(p))
    name = shorten(column.part.name)
    most = f"What moves this most is {name}" if len(columns) > 1 else f"This depends on {name}"
    return (
        f"{most}: position {last} is looked at {spell(p[high])} times as often as position {model.curve.anchor} where "
        f"{name} is {shorten(choices[high].label, 30)}, and {spell(p[low])} times as often where it is "
        f"{shorten(choices[low].label, 30)}."
    )


def _trust(model: Propensities, evidence: Evidence | None) -> str:
    if evidence is None:
        if model.unsupported:
            return f"{gaps(model).rstrip('.')}; what the log supports is not shown here."
        return "What the log supports is not shown here, because none was given."
    diagnosis = evidence.diagnosis
    findings = [finding for finding in (*diagnosis.findings, *evidence.checks) if finding.name != "connectivity"]
    warnings = [finding.name for finding in findings if finding.status in ("warning", "blocking")]
    if evidence.same_data is False:
        return "Take care: the log given here is not the data that the model was fitted on, so the two may not agree."
    if not diagnosis.identified:
        missing = spell_positions(diagnosis.unlinked) or "other than the anchor"
        linked = f"The log says nothing about examination at positions {missing}"
    else:
        stood = "shown at" if evidence.exposure_kind == "realised" else "that the rankers place at"
        results = count(diagnosis.totals["units"], "result")
        linked = f"The log links all {len(diagnosis.positions)} positions through {results} {stood} several of them"
    if not warnings:
        return f"{linked}, and none of the {len(findings)} checks below raises an alarm."
    joint = "but" if diagnosis.identified else "and"
    told = f"{len(warnings)} of {len(findings)} checks {'warn' if len(warnings) > 1 else 'warns'}"
    return f"{linked}, {joint} {told}: {', '.join(warnings)}."


def spell(value: float) -> str:
    """Return a propensity with two digits that tell something.

    Example:
        >>> spell(1.234), spell(0.4321), spell(0.08), spell(0.00049)
        ('1.23', '0.43', '0.080', '0.00049')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"
