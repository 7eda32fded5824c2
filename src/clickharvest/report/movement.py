"""Which queries are read further down, in a sentence."""

from __future__ import annotations

import numpy as np

from clickharvest.model.cautions import outcome_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import name_place
from clickharvest.report.importance import ColumnContrasts, Importance
from clickharvest.report.phrases import queries, spell
from clickharvest.report.values import ColumnValues
from clickharvest.words import shorten


def movement(
    model: Propensities,
    columns: list[ColumnValues],
    ranked: list[Importance],
    contrasts: ColumnContrasts | None,
    level: float = 0.95,
) -> str:
    """Return a sentence on what changes examination, and by how much where it does so most clearly.

    That some queries are read further down than others is said where they differ beyond chance, correcting for all
    comparisons.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> movement(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2)), [], [], None)
        'All queries get this one curve: the model was fitted without context columns.'
    """
    if not columns:
        return "All queries get this one curve: the model was fitted without context columns."
    if not ranked[0].effect:
        return "All queries get this one curve, whatever their context."
    if contrasts is None:
        return "Curves differ by context, but without intervals the difference may be chance."
    if (clearest := contrasts.found.clearest()) is None:
        return "Curves differ by context, but the log cannot tell by how much."
    outcome = outcome_of(model)
    if not clearest.clear:
        which = f"any of the {len(columns)} context columns" if len(columns) > 1 else shorten(columns[0].part.name)
        what = "which queries are read further down" if model.places is None else "which queries look more at a place"
        what = what if outcome is None else f"after which queries' clicks {outcome} depends more on the position"
        return f"The log cannot tell {what}: no two values of {which} differ by more than chance."
    deeper = clearest.deeper if model.places is None and outcome is None else None
    first = clearest.high if deeper is None else deeper
    (column, own), (_, other) = (contrasts.values[i] for i in (first, clearest.high + clearest.low - first))
    x = np.concatenate([typical_context(model, (column.start, choice.features)) for choice in (own, other)])
    predicted, at = model.predict_encoded(x, level=level), model.shown.index(clearest.position)
    there, beside = (
        f"{spell(predicted.propensity[i, at])} ({spell(predicted.lower[i, at])} to {spell(predicted.upper[i, at])})"
        for i in range(2)
    )
    where, anchor = (name_place(k, model.places) for k in (clearest.position, model.curve.anchor))
    depends = f"{'Most clearly it depends' if len(columns) > 1 else 'It depends'} on {shorten(column.part.name)}: "
    some, others = queries(column, own), queries(column, other)
    if outcome is not None:
        return (
            f"{depends}a click at {where} leads to {outcome} {there} times as often as one at {anchor} for {some}, "
            f"against {beside} times for {others}."
        )
    more = f"look more at {where} than" if deeper is None else "are read further down than"
    return (
        f"{depends}{some} {more} {others}; {where} is looked at {there} times as often as {anchor} there, against "
        f"{beside} times."
    )
