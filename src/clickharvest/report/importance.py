"""Importance: which context columns move examination, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.differences import Contrasts, find_contrasts
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.report.values import Choice, ColumnValues, column_values, encode_contexts

BASES = 200
"""Contexts in which a column is varied."""
MOST_COMPARED = 20
"""Values of a column that are compared with each other, the most frequent ones."""


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
    """Return what `column_importance` does, from values, encoded contexts x [n, d] and contrasts that are there."""
    base = typical_context(propensities) if x is None or not len(x) else x
    base = base[np.linspace(0, len(base) - 1, min(BASES, len(base))).astype(int)]
    found = []
    for column in columns:
        clear = None if contrasts is None else contrasts.clear(column)
        found.append(Importance(column.part.name, _effect(propensities, column, base), clear))
    return sorted(found, key=lambda importance: -importance.effect)


def contrast_columns(
    propensities: Propensities, columns: list[ColumnValues], *, level: float = 0.95
) -> ColumnContrasts | None:
    """Compare the values of every column with each other, the others being typical; None without intervals."""
    values, contexts = [], []
    for column in columns:
        frequent = sorted((choice for choice in column.choices if choice.share > 0), key=lambda own: -own.share)
        for choice in frequent[:MOST_COMPARED]:
            values.append((column, choice))
            contexts.append(typical_context(propensities, (column.start, choice.features)))
    which = [column.start for column, _ in values]
    found = find_contrasts(propensities, np.concatenate(contexts), which, level=level) if values else None
    return None if found is None else ColumnContrasts(values, found)


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
