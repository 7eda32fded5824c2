"""Differences: where two contexts of one model, or two models, differ by more than chance.

Curves with intervals that overlap may differ, and others may not: the error of the ratio decides. Within a model, draws
of the parameters move both curves at once and give that error (`find_contrasts`; `benchmarks/contrasts.py` measures how
often a clear difference is real). Between models of independent logs, it follows from the intervals of both
(`find_differences`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.model.contexts import ContextColumn
from clickharvest.model.intervals import DrawnCurves
from clickharvest.model.prediction import Prediction
from clickharvest.model.typical import Model, varied_values
from clickharvest.positions.places import Places, name_place, name_places
from clickharvest.words import clean_text, count, json_value

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

NORMALS = 4_000
"""Normal draws whose largest deviations show what chance does among all that is compared."""
AT_ONCE = 4_000_000
"""Deviations held at once, about 30 MB."""
NOTHING = 1e-9
"""Standard deviation of a log ratio up to which it is the same for all parameters, but for rounding."""
TYPICAL = "typical"


@dataclass(frozen=True)
class Contrast:
    """Two contexts and the position at which they differ most clearly.

    Attributes:
        high: number of the context in which the position is examined more.
        low: number of the other one.
        position: the position.
        clear: whether the difference is beyond chance, given all that was compared.
        deeper: number of the context that is read further down: it examines less above the anchor, or more below it.
            None unless the last position that can be compared has the same sign.
    """

    high: int
    low: int
    position: int
    clear: bool
    deeper: int | None


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Ratios of examination between m pairs of contexts at K positions.

    They say which of two contexts is read further down, not by how much: what a curve is off by at a position in a
    single context is in the intervals of its propensities, and cancels here.

    Attributes:
        positions: the positions of the curve, [K].
        anchor: the position that examination is relative to.
        pairs: the two contexts of each pair, [m, 2].
        column: what the contexts of each pair differ in, [m].
        log_ratio: log p_k of the first over that of the second, [m, K]; NaN where one of them is not supported, and
            where the ratio is the same for all parameters.
        sd: its standard deviation, [m, K], likewise.
        z: how many of them a log ratio must be away from 0 to be clear beside all others.
    """

    positions: tuple[int, ...]
    anchor: int
    pairs: Integers
    column: Integers
    log_ratio: Array
    sd: Array
    z: float

    def clearest(self, column: int | None = None) -> Contrast | None:
        """Return the clearest difference, by standard deviations; None where nothing can be compared, or differs.

        Args:
            column: look only at contexts that differ in this column.
        """
        chosen = np.ones(len(self.pairs), dtype=np.bool_) if column is None else self.column == column
        distance = np.where(chosen[:, None], np.abs(self.log_ratio) / self.sd, np.nan)
        if not np.nansum(distance):
            return None
        i, k = np.unravel_index(int(np.nanargmax(distance)), distance.shape)
        known = np.flatnonzero(np.isfinite(self.log_ratio[i]))
        # Positive where the first of the two is read further down.
        depth = self.log_ratio[i] * np.sign(np.array(self.positions) - self.anchor)
        first, second = self.pairs[i].tolist()
        high, low = (first, second) if self.log_ratio[i, k] > 0 else (second, first)
        deeper = (first if depth[k] > 0 else second) if depth[k] * depth[known[-1]] > 0 else None
        return Contrast(high, low, self.positions[k], bool(distance[i, k] > self.z), deeper)


def find_contrasts(model: Model, x: Array, column: ArrayLike | None = None, *, level: float = 0.95) -> Contrasts | None:
    """Compare contexts with each other, two and two; None where the model has no intervals.

    The log ratio log p_k(x_a) − log p_k(x_b) has the standard deviation that the draws of the parameters give it. z is
    the `level` quantile of the largest |error| / sd of all pairs and positions, over normal errors with the draws'
    covariance: if no context differs from another, a difference is called clear in 1 − `level` of all logs at most.

    Args:
        model: the model.
        x: encoded contexts, [n, d].
        column: what each differs in from a common one, [n]: contexts are compared within columns alone. None compares
            all with each other.
        level: how often nothing is called clear where nothing differs.

    Raises:
        InputError: `column` is not as long as x.

    Example:
        Log p_2 of phones is −1.5 ± 0.2 and that of desks −0.5 ± 0.2, independently: 1 apart, ± 0.3.

        >>> from clickharvest.model.contexts import ContextEncoder
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> encoder = ContextEncoder.fit({"device": ["desk", "phone"]})
        >>> log_p, away = np.array([0.0, -0.5, -1.5, 0.0]), 0.2 * np.array([[0, 1, 1, 0], [0, 1, -1, 0]])
        >>> model = Propensities(
        ...     make_curve("linear", (1, 2), 1, 3), {"b": log_p[:1], "W": log_p[1:, None]}, encoder, (1, 2),
        ...     draws=log_p + np.concatenate([away, -away]), draws_kind="bootstrap")
        >>> find_contrasts(model, np.eye(3)[:2]).clearest()
        Contrast(high=0, low=1, position=2, clear=True, deeper=0)
    """
    x = np.asarray(x, dtype=np.float64)
    columns = np.zeros(len(x), dtype=np.intp) if column is None else np.asarray(column, dtype=np.intp)
    if columns.shape != (len(x),):
        raise InputError(f"column is {columns.shape}; expected one number for each of {len(x)} contexts")
    if model.draws is None:
        return None
    positions, predicted = model.curve.positions, model.predict_encoded(x, level=level)
    of_curve = np.isin(predicted.positions, positions)
    known = predicted.supported[:, of_curve] & (np.array(positions) != model.curve.anchor)
    same_column = [(a, b) for a, b in combinations(range(len(x)), 2) if columns[a] == columns[b]]
    pairs = np.array(same_column, dtype=np.intp).reshape(-1, 2)
    errors = DrawnCurves.of(model.curve, model.params, model.draws, model.draws_kind).deviations(x)
    log_p = model.curve.relative(model.params, x)
    log_ratio, sd = np.full((2, len(pairs), len(positions)), np.nan)
    for i, (a, b) in enumerate(pairs):
        pair_sd = (errors[:, a] - errors[:, b]).std(axis=0, ddof=1)
        both = known[a] & known[b] & (pair_sd > NOTHING)
        log_ratio[i, both], sd[i, both] = (log_p[a] - log_p[b])[both], pair_sd[both]
    z = float(np.quantile(_largest(errors, pairs, sd), level))
    return Contrasts(positions, model.curve.anchor, pairs, columns[pairs[:, 0]], log_ratio, sd, z)


def _largest(errors: Array, pairs: Integers, sd: Array) -> Array:
    """Return the largest |deviation| / sd of all pairs and positions, in normal draws of the errors, [NORMALS]."""
    random, largest = np.random.default_rng(0), np.zeros(NORMALS)
    size = max(1, AT_ONCE // max(errors[0].size, 1))
    for begin in range(0, NORMALS, size):
        part = largest[begin : begin + size]
        noise = random.normal(size=(len(part), len(errors))) / np.sqrt(max(len(errors) - 1, 1))
        normal = np.einsum("rb,bnk->rnk", noise, errors, optimize=True)
        for (a, b), pair_sd in zip(pairs, sd, strict=True):
            known = np.isfinite(pair_sd)
            distance = np.abs(normal[:, a] - normal[:, b])[:, known] / pair_sd[known]
            np.maximum(part, distance.max(axis=1, initial=0.0), out=part)
    return largest


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
        compared = count(int(np.isfinite(self.ratio).sum()), "propensity", "propensities")
        same_data = ""
        if self.same_data:
            same_data = " Both were fitted on the same clicks: the intervals do not count what their errors share."
        if not self.differs.any():
            least = np.exp(np.nanmedian(np.log(self.upper / self.ratio)))
            return (
                f"No difference beyond the intervals in {compared}; one would typically show from a factor of "
                f"{_spell(least)} on.{same_data}"
            )
        distance = np.where(self.ratio > 1, np.log(self.lower), -np.log(self.upper))
        i, k = np.unravel_index(int(np.argmax(np.where(self.differs, distance, -np.inf))), distance.shape)
        where = name_place(self.positions[k], self.places) + (f", {self.contexts[i]}" if self.values else "")
        return (
            f"The models differ in {self.differs.sum():,} of {compared}, most clearly at {where}: "
            f"{_spell(self.ratio[i, k])} times ({_spell(self.lower[i, k])} to {_spell(self.upper[i, k])}).{same_data}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as JSON holds them, a record for each context and position."""
        cells = [
            {
                "context": name,
                "position": k,
                **({} if self.places is None else {"place": self.places.name(k)}),
                **{end: json_value(getattr(self, end)[i, j]) for end in ("ratio", "lower", "upper")},
                "differs": bool(self.differs[i, j]),
            }
            for i, name in enumerate(self.contexts)
            for j, k in enumerate(self.positions)
        ]
        return {
            "anchor": self.anchor,
            "level": self.level,
            "contexts": {
                context: {name: json_value(column[i]) for name, column in self.values.items()}
                for i, context in enumerate(self.contexts)
            },
            "cells": cells,
            "compared": int(np.isfinite(self.ratio).sum()),
            "differ": int(self.differs.sum()),
            "same_data": self.same_data,
            "verdict": self.verdict,
        }


def find_differences(first: Model, second: Model, *, level: float = 0.95) -> Differences:
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
        >>> from clickharvest.model.propensities import Propensities
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
    models, anchor, places = (first, second), first.curve.anchor, first.places
    if places != second.places:
        raise InputError("the models speak of different places: fit both on logs that show the same ones")
    if second.curve.anchor != anchor:
        raise InputError(
            f"one model is relative to {name_place(anchor, places)}, the other to "
            f"{name_place(second.curve.anchor, places)}: fit one of them again with the other's anchor, or compare "
            "them on a log, where the anchor does not matter"
        )
    if any(model.draws_kind is None for model in models):
        raise InputError("a model has no intervals to compare by: fit it with intervals, or compare them on a log")
    positions = tuple(sorted((set(first.curve.positions) & set(second.curve.positions)) - {anchor}))
    if not positions:
        one, other = (name_places(model.curve.positions, places) for model in models)
        raise NotIdentifiedError(
            f"nothing to compare: the models have estimates for {one} and {other.removeprefix('positions ')}"
        )
    names, values = _contexts(models)
    estimates = [_logs(model.predict(values or None, level=level), positions) for model in models]
    cells = np.isfinite(estimates).all(axis=(0, 1))
    if not cells.any():
        raise NotIdentifiedError("nothing to compare: no context and position has an interval in both models")
    each = 1 - (1 - level) / int(cells.sum())
    (p, p_lower, p_upper), (q, q_lower, q_upper) = (
        np.where(cells, _logs(model.predict(values or None, level=each), positions), np.nan) for model in models
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
            same_data=first.fit_info.data is not None and first.fit_info.data == second.fit_info.data,
            places=places,
        )


def _logs(prediction: Prediction, positions: tuple[int, ...]) -> Array:
    """Return the logs of estimate, lower and upper end at some positions, [3, n, K]."""
    columns = [prediction.positions.index(k) for k in positions]
    with np.errstate(divide="ignore"):
        return np.log([values[:, columns] for values in (prediction.propensity, prediction.lower, prediction.upper)])


def _contexts(models: tuple[Model, Model]) -> tuple[tuple[str, ...], dict[str, list[Any]]]:
    """Return the names of the contexts to compare, and their columns."""
    columns: dict[str, list[ContextColumn]] = {}
    for model in models:
        for part in () if model.encoder is None else model.encoder.parts:
            columns.setdefault(part.name, []).append(part)
    for name, parts in columns.items():
        if len(kinds := {part.kind for part in parts}) > 1:
            raise InputError(f"context column {name!r} is {' in one model and '.join(sorted(kinds))} in the other")
    if not columns:
        return (TYPICAL,), {}
    known = {name: set.intersection(*(set(part.levels) for part in parts)) for name, parts in columns.items()}
    typical = {name: _typical(parts, known[name]) for name, parts in columns.items()}
    rows = {TYPICAL: typical}
    for name, parts in columns.items():
        for label, value in varied_values(parts[0]):
            if value is None:
                in_both = all(part.missing for part in parts)
            else:
                in_both = parts[0].kind != "categorical" or value in known[name]
            if in_both and value != typical[name]:
                rows[label] = typical | {name: value}
    named = ", ".join(f"{clean_text(name, 16)} = {_word(value)}" for name, value in typical.items())
    names = (f"{TYPICAL} ({named})", *list(rows)[1:])
    return names, {name: [row[name] for row in rows.values()] for name in columns}


def _typical(parts: list[ContextColumn], known: set[str]) -> Any:
    """Return the value of a typical context: one that occurs, so that two encoders can read it; None if missing."""
    part = parts[0]
    values: list[Any] = [level for level in part.levels if level in known]
    if part.kind != "categorical":
        values = [part.mean if part.kind == "numeric" else part.mean >= 0.5]
    if part.missing_rank is not None and all(each.missing for each in parts):
        before = [level in known for level in part.levels] if part.kind == "categorical" else [True]
        values.insert(sum(before[: part.missing_rank]), None)
    return values[0] if values else None


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "missing"
    return f"{value:.4g}" if isinstance(value, float) else clean_text(value, 16)


def _spell(factor: float) -> str:
    return f"{factor:.2f}" if 0.01 <= factor < 1000 else f"{factor:.2g}"
