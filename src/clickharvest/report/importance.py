"""Importance: which context columns move examination, by how much, and a sentence on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.cautions import outcome_of
from clickharvest.model.differences import Contrasts, find_contrasts
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import name_place
from clickharvest.report.values import (
    Choice,
    ColumnValues,
    column_values,
    encode_contexts,
    name_queries,
    spell,
)
from clickharvest.words import shorten

BASES = 200
"""Contexts in which a column is varied."""
MOST_COMPARED = 20
"""Most values of a column that are compared with each other, by frequency."""


@dataclass(frozen=True)
class Importance:
    """How much one context column moves examination.

    Attributes:
        column: its name.
        effect: I_c, the mean |Δ log p|, at least 0; e^{I_c} is the typical factor between two of its values.
        clear: whether two of its values differ beyond chance, all columns being counted; None without intervals.
    """

    column: str
    effect: float
    clear: bool | None = None


@dataclass(frozen=True, eq=False)
class ColumnContrasts:
    """Values of the context columns, compared in the typical context.

    Attributes:
        values: the column and the value of every context that was compared.
        found: how they differ.
    """

    values: list[tuple[ColumnValues, Choice]]
    found: Contrasts

    def clear(self, column: ColumnValues) -> bool:
        """Return whether two values of a column differ beyond chance."""
        clearest = self.found.clearest(column.start)
        return clearest is not None and clearest.clear


def column_importance(propensities: Propensities, contexts: Any = None) -> list[Importance]:
    """Return the importance of every context column, the largest first.

    I_c = mean_x mean_{k ≠ anchor} Σ_{a<b} ω_ab |log p_k(x; c = a) − log p_k(x; c = b)|, where x runs over contexts,
    column c alone is set to a or b, and p_k is relative to the anchor. A number with many values is compared at its
    10 % and its 90 % quantile. Levels, yes and no, and numbers with at most 12 values are compared in pairs, with
    ω_ab ∝ f_a f_b, the product of their frequencies.

    Args:
        propensities: the model; one without context has no importances.
        contexts: table of contexts to average over, with the model's columns. None takes the typical context, normal
            quantiles, and equal frequencies.

    Example:
        >>> from clickharvest.model.contexts import ContextEncoder
        >>> from clickharvest.model.curves import make_curve
        >>> table = {"phone": [True, False], "age": [20.0, 40.0]}
        >>> curve = make_curve("linear", (1, 2), 1, 2)
        >>> model = Propensities(
        ...     curve, {"b": np.zeros(1), "W": np.array([[-1.5], [0.0]])}, ContextEncoder.fit(table), (1, 2))
        >>> column_importance(model, table)
        [Importance(column='phone', effect=1.5, clear=None), Importance(column='age', effect=0.0, clear=None)]
    """
    x = None if contexts is None else encode_contexts(propensities, contexts)
    columns = column_values(propensities, x)
    return rank_columns(propensities, columns, x, contrast_columns(propensities, columns))


def rank_columns(
    propensities: Propensities,
    columns: list[ColumnValues],
    x: NDArray[np.float64] | None,
    contrasts: ColumnContrasts | None,
) -> list[Importance]:
    """Return `column_importance` from values, encoded contexts x [n, d] and contrasts."""
    base = typical_context(propensities) if x is None or not len(x) else x
    base = base[np.linspace(0, len(base) - 1, min(BASES, len(base))).astype(int)]
    importances = []
    for column in columns:
        clear = None if contrasts is None else contrasts.clear(column)
        importances.append(Importance(column.part.name, _effect(propensities, column, base), clear))
    return sorted(importances, key=lambda importance: -importance.effect)


def contrast_columns(
    propensities: Propensities, columns: list[ColumnValues], *, level: float = 0.95
) -> ColumnContrasts | None:
    """Compare the values of every column with each other, the others being typical; None without intervals."""
    values, contexts = [], []
    for column in columns:
        frequent = sorted((choice for choice in column.choices if choice.share > 0), key=lambda choice: -choice.share)
        for choice in frequent[:MOST_COMPARED]:
            values.append((column, choice))
            contexts.append(typical_context(propensities, (column.start, choice.features)))
    which = [column.start for column, _ in values]
    contrasts = find_contrasts(propensities, np.concatenate(contexts), which, level=level) if values else None
    return None if contrasts is None else ColumnContrasts(values, contrasts)


def _effect(propensities: Propensities, column: ColumnValues, base: NDArray[np.float64]) -> float:
    curves, shares = [], []
    for choice in column.choices:
        if choice.share > 0:
            x = base.copy()
            x[:, column.features] = choice.features
            curves.append(propensities.curve.relative(propensities.params, x))
            shares.append(choice.share)
    pairs = list(combinations(range(len(curves)), 2))
    weights = np.array([shares[a] * shares[b] for a, b in pairs])
    if not pairs:
        return 0.0
    others = len(base) * (len(propensities.curve.positions) - 1)
    moves = np.array([np.abs(curves[a] - curves[b]).sum() / others for a, b in pairs])
    return float(weights @ moves / weights.sum())


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
    (column, choice_there), (_, other) = (contrasts.values[i] for i in (first, clearest.high + clearest.low - first))
    x = np.concatenate([typical_context(model, (column.start, choice.features)) for choice in (choice_there, other)])
    predicted, at = model.predict_encoded(x, level=level), model.shown.index(clearest.position)
    there, beside = (
        f"{spell(predicted.propensity[i, at])} ({spell(predicted.lower[i, at])} to {spell(predicted.upper[i, at])})"
        for i in range(2)
    )
    where, anchor = (name_place(k, model.places) for k in (clearest.position, model.curve.anchor))
    depends = f"{'Most clearly it depends' if len(columns) > 1 else 'It depends'} on {shorten(column.part.name)}: "
    some, others = name_queries(column, choice_there), name_queries(column, other)
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
