"""Where two models differ beyond their intervals: last month against this month, without a log.

Both are asked for the same contexts: a typical one, and those that differ from it in one column, as a summary varies
them. At every context and position the ratio of the two propensities gets an interval made of the intervals of both;
it is wide enough to hold for all contexts and positions together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.model.contexts import ContextColumn
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import telling_values
from clickharvest.positions.places import Places, name_place, name_places
from clickharvest.words import clean_text, count, json_value

Array = NDArray[np.float64]
TYPICAL = "typical"


@dataclass(frozen=True, eq=False)
class Differences:
    """The ratio of a second model's propensities to a first one's, for n contexts and K positions.

    Attributes:
        contexts: names of the contexts.
        values: their values by column, n each; empty where neither model depends on context.
        positions: the positions other than the anchor that both models have an estimate for.
        anchor: the position that propensities are relative to.
        ratio: propensity of the second model over that of the first, [n, K]; NaN where one of them has none.
        lower: lower end of its interval, [n, K].
        upper: upper end, [n, K].
        level: how often all intervals together cover the true ratios.
        same_data: whether both were fitted on the same interventions, so that their errors are not independent.
        places: what positions stand for, where they are numbers of places and not of a list.
    """

    contexts: tuple[str, ...]
    values: Mapping[str, list[Any]]
    positions: tuple[int, ...]
    anchor: int
    ratio: Array
    lower: Array
    upper: Array
    level: float
    same_data: bool
    places: Places | None = None

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Where the interval leaves 1 out, [n, K]."""
        return (self.lower > 1) | (self.upper < 1)

    @property
    def verdict(self) -> str:
        """What was found, in a sentence or two."""
        compared, found = int(np.isfinite(self.ratio).sum()), int(self.differs.sum())
        places = count(compared, "propensity", "propensities")
        told = ""
        if self.same_data:
            told = " Both were fitted on the same clicks: the intervals do not count what their errors share."
        if not found:
            least = np.exp(np.nanmedian(np.log(self.upper / self.ratio)))
            return (
                f"No difference beyond the intervals in {places}; one would typically show from a factor of "
                f"{_spell(least)} on.{told}"
            )
        clear = np.where(self.ratio > 1, np.log(self.lower), -np.log(self.upper))
        i, k = np.unravel_index(int(np.argmax(np.where(self.differs, clear, -np.inf))), clear.shape)
        where = name_place(self.positions[k], self.places) + (f", {self.contexts[i]}" if self.values else "")
        return (
            f"The models differ in {found:,} of {places}, most clearly at {where}: {_spell(self.ratio[i, k])} times "
            f"({_spell(self.lower[i, k])} to {_spell(self.upper[i, k])}).{told}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as JSON holds them, a record for each context and position."""
        cells = [
            {
                "context": self.contexts[i],
                "position": k,
                **({} if self.places is None else {"place": self.places.name(k)}),
                **{name: json_value(getattr(self, name)[i, j]) for name in ("ratio", "lower", "upper")},
                "differs": bool(self.differs[i, j]),
            }
            for i in range(len(self.contexts))
            for j, k in enumerate(self.positions)
        ]
        return {
            "anchor": self.anchor,
            "level": self.level,
            "contexts": dict(zip(self.contexts, self._records(), strict=True)),
            "cells": cells,
            "compared": int(np.isfinite(self.ratio).sum()),
            "differ": int(self.differs.sum()),
            "same_data": self.same_data,
            "verdict": self.verdict,
        }

    def _records(self) -> list[dict[str, Any]]:
        rows = range(len(self.contexts))
        return [{name: json_value(column[i]) for name, column in self.values.items()} for i in rows]


def find_differences(first: Propensities, second: Propensities, *, level: float = 0.95) -> Differences:
    """Compare two models of independent logs, context by context and position by position.

    With d = log p_k(x) of the second minus that of the first, and l, u the distances from a log propensity to the
    ends of its interval, the interval of d is from d − √(l₂² + u₁²) to d + √(u₂² + l₁²): for normal errors that is
    d ± z √(se₁² + se₂²). The intervals have the level 1 − (1 − level) / m, with m the number of propensities
    compared, so that all of them together are right with probability `level` (Bonferroni).

    Contexts: numbers at their mean, yes/no at the more frequent answer, categories at the most frequent level, or all
    of them missing where that is more frequent; and one column at a time at mean ± sd, at no and yes, at the most
    frequent levels that both models know, and missing, if both models know that. They are those of the first model
    that has the column.

    Args:
        first: the model that ratios are relative to, such as last month's.
        second: the other one.
        level: how often no difference is found where there is none.

    Raises:
        InputError: the anchors differ, a model has no intervals, or a context column is of two kinds.
        NotIdentifiedError: there is no position besides the anchor that both have an estimate for.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> def fitted(p, sd):
        ...     draws = np.log(p) + sd * np.array([[-1.0], [0.0], [1.0]])
        ...     return Propensities(curve, {"b": np.log([p])}, None, (1, 2), draws=draws, draws_kind="bootstrap")
        >>> print(find_differences(fitted(0.5, 0.03), fitted(0.6, 0.04)).verdict)  # exp(±1.96 · 0.05) around 1.2
        The models differ in 1 of 1 propensity, most clearly at position 2: 1.20 times (1.09 to 1.32).
        >>> print(find_differences(fitted(0.5, 0.03), fitted(0.52, 0.04)).verdict)
        No difference beyond the intervals in 1 propensity; one would typically show from a factor of 1.10 on.
    """
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level}; expected a number between 0 and 1, such as 0.95")
    models = (first, second)
    anchor = first.curve.anchor
    if first.places != second.places:
        raise InputError("the models speak of different places: fit both on logs that show the same ones")
    if second.curve.anchor != anchor:
        raise InputError(
            f"one model is relative to {name_place(anchor, first.places)}, the other to "
            f"{name_place(second.curve.anchor, first.places)}: fit one of them again with the other's anchor, "
            "or compare them on a log, where the anchor does not matter"
        )
    if any(model.draws_kind is None for model in models):
        raise InputError("a model has no intervals to compare by: fit it with intervals, or compare them on a log")
    positions = tuple(sorted((set(first.curve.positions) & set(second.curve.positions)) - {anchor}))
    if not positions:
        own = [name_places(model.curve.positions, model.places) for model in models]
        told = f"{own[0]} and {own[1].removeprefix('positions ')}"
        raise NotIdentifiedError(f"nothing to compare: the models have estimates for {told}")
    names, values = _contexts(models)
    table = values or None
    estimates = [_logs(model.predict(table, level=level), positions) for model in models]
    cells = np.isfinite(estimates[0]).all(axis=0) & np.isfinite(estimates[1]).all(axis=0)
    if not cells.any():
        raise NotIdentifiedError("nothing to compare: no context and position has an interval in both models")
    bar = 1 - (1 - level) / int(cells.sum())
    (p, p_lower, p_upper), (q, q_lower, q_upper) = (
        np.where(cells, _logs(model.predict(table, level=bar), positions), np.nan) for model in models
    )
    log_ratio = q - p
    with np.errstate(over="ignore"):
        return Differences(
            contexts=names,
            values=values,
            positions=positions,
            anchor=anchor,
            ratio=np.exp(log_ratio),
            lower=np.exp(log_ratio - np.hypot(q - q_lower, p_upper - p)),
            upper=np.exp(log_ratio + np.hypot(q_upper - q, p - p_lower)),
            level=level,
            same_data=first.info.get("data") is not None and first.info.get("data") == second.info.get("data"),
            places=first.places,
        )


def _logs(prediction: Prediction, positions: tuple[int, ...]) -> Array:
    """Return the logs of estimate, lower and upper end at some positions, [3, n, K]."""
    own = [prediction.positions.index(k) for k in positions]
    with np.errstate(divide="ignore"):
        return np.log([values[:, own] for values in (prediction.propensity, prediction.lower, prediction.upper)])


def _contexts(models: tuple[Propensities, Propensities]) -> tuple[tuple[str, ...], dict[str, list[Any]]]:
    """Return the names of the contexts to compare, and their columns."""
    columns: dict[str, list[ContextColumn]] = {}
    for model in models:
        for part in () if model.encoder is None else model.encoder.parts:
            columns.setdefault(part.name, []).append(part)
    for name, parts in columns.items():
        if len(kinds := {part.kind for part in parts}) > 1:
            raise InputError(f"context column {name!r} is {' in one model and '.join(sorted(kinds))} in the other")
    known = {name: set.intersection(*(set(part.levels) for part in parts)) for name, parts in columns.items()}
    typical = {name: _typical(parts, known[name]) for name, parts in columns.items()}
    rows = {TYPICAL: typical}
    for name, parts in columns.items():
        for label, value in telling_values(parts[0]):
            if value is None:
                compared = all(part.missing for part in parts)
            else:
                compared = parts[0].kind != "categorical" or value in known[name]
            if compared and value != typical[name]:
                rows[label] = typical | {name: value}
    if not columns:
        return (TYPICAL,), {}
    spelt = ", ".join(f"{clean_text(name, 16)} = {_word(value)}" for name, value in typical.items())
    names = (f"{TYPICAL} ({spelt})", *list(rows)[1:])
    return names, {name: [row[name] for row in rows.values()] for name in columns}


def _typical(parts: list[ContextColumn], known: set[str]) -> Any:
    """Return the value of a typical context: one that occurs, so that two encoders can read it; None if missing."""
    part = parts[0]
    own: list[Any] = [level for level in part.levels if level in known]
    if part.kind != "categorical":
        own = [part.mean if part.kind == "numeric" else part.mean >= 0.5]
    if part.missing_rank is not None and all(each.missing for each in parts):
        before = [level in known for level in part.levels] if part.kind == "categorical" else [True]
        own.insert(sum(before[: part.missing_rank]), None)
    return own[0] if own else None


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "missing"
    return f"{value:.4g}" if isinstance(value, float) else clean_text(value, 16)


def _spell(factor: float) -> str:
    return f"{factor:.2f}" if 0.01 <= factor < 1000 else f"{factor:.2g}"
