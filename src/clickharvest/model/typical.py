# ruff: noqa: D102
"""The typical context, and those that differ from it in one column: where a model is shown without a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.model.contexts import ContextColumn, ContextEncoder, Table
from clickharvest.model.curves import Curve, Params
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.prediction import Prediction
from clickharvest.model.provenance import Provenance
from clickharvest.model.support import Support, certain_values, value_names
from clickharvest.parameters import alike
from clickharvest.positions.places import Places
from clickharvest.words import clean_text

MOST_LEVELS = 6
"""Levels of a category that are shown."""


class Recorded(Protocol):
    """What any model tells of where it comes from."""

    @property
    def info(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Provenance | None: ...


class Model(Recorded, Protocol):
    """What summaries and comparisons need of `Propensities`, which shows its summary itself."""

    @property
    def curve(self) -> Curve: ...
    @property
    def params(self) -> Params: ...
    @property
    def encoder(self) -> ContextEncoder | None: ...
    @property
    def shown(self) -> tuple[int, ...]: ...
    @property
    def unsupported(self) -> tuple[int, ...]: ...
    @property
    def draws(self) -> NDArray[np.float32] | None: ...
    @property
    def draws_kind(self) -> str | None: ...
    @property
    def fit_info(self) -> FitInfo: ...
    @property
    def support(self) -> Support | None: ...
    @property
    def places(self) -> Places | None: ...
    def predict(self, contexts: Table | None = None, *, level: float = 0.95) -> Prediction: ...
    def predict_encoded(self, x: ArrayLike, *, level: float = 0.95) -> Prediction: ...


class Varied(NamedTuple):
    """A context x, [1, d], that differs from the typical one in one column: its name, which column, and the value."""

    name: str
    column: int
    value: Any
    x: NDArray[np.float64]


def typical_context(model: Model, given: tuple[int, ArrayLike] | None = None) -> NDArray[np.float64]:
    """Return x [1, d]: numbers at their mean, yes/no at its share of yes, categories at the most frequent level.

    Where missing is more frequent than any value, the value is missing. A category takes its most frequent level (or a
    missing value) among those that training had together with each column before it, or among all where there is none.

    Args:
        model: the model.
        given: where the features of a column begin, and the values that they have instead.
    """
    parts = () if model.encoder is None else model.encoder.parts
    begins = np.cumsum([0, *(len(part.features) for part in parts)]).tolist()
    x = np.zeros((1, begins[-1]))
    apart = set() if model.support is None else set(model.support.apart)
    fixed, chosen = None, list[tuple[int, int]]()
    if given is not None:
        fixed = begins.index(given[0])
        block = x[:, begins[fixed] : begins[fixed + 1]]
        block[0] = given[1]
        chosen = [(fixed, value) for value in np.flatnonzero(certain_values(parts[fixed], block)[0]).tolist()]
    for i, part in enumerate(parts):
        if i == fixed:
            continue
        ranked = _ranked_values(part)
        together = (own for own in ranked if not any(_apart(apart, i, own[0], other) for other in chosen))
        value, features = next(together, ranked[0])
        x[0, begins[i] : begins[i + 1]] = features
        if value is not None and (part.kind == "categorical" or part.missing_rank is not None):
            chosen.append((i, value))
    return x


def _apart(apart: set[tuple[int, int, int, int]], column: int, value: int | None, other: tuple[int, int]) -> bool:
    """Return whether training never had a value of a column, if it is one, together with another."""
    if value is None:
        return False
    first, second = sorted(((column, value), other))
    return (*first, *second) in apart


def _ranked_values(part: ContextColumn) -> list[tuple[int | None, NDArray[np.float64]]]:
    """Return what may be typical of a column, the most frequent first: which of its values, and its features.

    The average of no and yes is none of a column's values, and neither are levels without a feature of their own.
    """
    unit, average = np.eye(len(part.features)), np.zeros(len(part.features))
    ranked: list[tuple[int | None, NDArray[np.float64]]]
    if part.kind == "categorical":
        ranked = [(a, unit[a]) for a in range(len(part.levels))] or [(None, unit[0])]
    else:
        average[0] = part.mean if part.kind == "boolean" else 0.0
        ranked = [(0 if part.kind == "numeric" else None, average)]
    if part.missing_rank is not None:
        ranked.insert(part.missing_rank, (len(value_names(part)) - 1, unit[-1]))
    return ranked


def typical_names(model: Model) -> Iterator[str]:
    """Yield the typical value of every column."""
    x, begin = typical_context(model)[0], 0
    for part in () if model.encoder is None else model.encoder.parts:
        name, features = clean_text(part.name, 16), x[begin : begin + len(part.features)]
        begin += len(features)
        if part.missing and features[-1]:
            yield f"{name} is missing"
        elif part.kind == "categorical":
            yield f"{name} = {clean_text(part.levels[features.argmax()], 16) if part.levels else 'other'}"
        else:
            yield f"{name} = {part.mean:.4g}" if part.kind == "numeric" else f"{name} = yes in {part.mean:.0%}"


def varied_contexts(model: Model, most: int | None = MOST_LEVELS) -> list[Varied]:
    """Return contexts that take the values of `varied_values` in one column each, and are typical in the others.

    Numbers and yes/no that are one and the same in all of training, but for rounding, are not varied.
    """
    varied: list[Varied] = []
    begin = 0
    for column, part in enumerate(() if model.encoder is None else model.encoder.parts):
        for name, value in varied_values(part, most):
            if value is not None and _is_one_value(part, model.support, column):
                continue
            features = np.zeros((1, len(part.features)))
            part.fill(features, np.array([value], dtype=object))
            varied.append(Varied(name, column, value, typical_context(model, (begin, features[0]))))
        begin += len(part.features)
    return varied


def _is_one_value(part: ContextColumn, support: Support | None, column: int) -> bool:
    """Return whether a column of numbers or yes/no has at most one value, as far as the model tells."""
    if part.kind != "numeric":
        return part.kind == "boolean" and part.mean in (0.0, 1.0)
    if support is not None:
        reach = support.columns[column].reach
        if reach is None or reach[0] == reach[1]:
            return True
    return alike(part.mean - part.sd, part.mean + part.sd)


def varied_values(part: ContextColumn, most: int | None = MOST_LEVELS) -> list[tuple[str, Any]]:
    """Return values of a column that show what it does, with their names; of a category, the `most` frequent levels.

    The last one is None, a missing value, where training had such.

    Example:
        >>> columns = {"device": ["desk", None, "desk"], "pays": [True] * 3, "day": [20001, 20002, 20003]}
        >>> encoder = ContextEncoder.fit(columns)
        >>> [name for part in encoder.parts for name, _ in varied_values(part)]
        ['device = desk', 'device is missing', 'pays = no', 'pays = yes', 'day = 20001', 'day = 20003']
    """
    name = clean_text(part.name, 16)
    values: list[tuple[str, Any]]
    if part.kind == "numeric":
        low, high = part.mean - part.sd, part.mean + part.sd
        digits = next((n for n in range(4, 17) if f"{low:.{n}g}" != f"{high:.{n}g}"), 4)
        values = [(f"{end:.{digits}g}", end) for end in (low, high)]
    elif part.kind == "boolean":
        values = [("no", False), ("yes", True)]
    else:
        values = [(clean_text(level, 12), level) for level in part.levels[:most]]
    named = [(f"{name} = {words}", value) for words, value in values]
    return [*named, (f"{name} is missing", None)] if part.missing else named
