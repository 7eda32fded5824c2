"""The typical context, and those that differ from it in one column: what is told of a model where there is no log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.model.support import Support, certain_values, value_names
from clickharvest.parameters import alike
from clickharvest.words import clean_text

MOST_LEVELS = 6
"""Levels of a category that are shown."""


class _Model(Protocol):
    """What tells the typical context of `Propensities`."""

    @property
    def encoder(self) -> ContextEncoder | None: ...
    @property
    def support(self) -> Support | None: ...


class Varied(NamedTuple):
    """A context x, [1, d], that differs from the typical one in one column: its name, which column, and the value."""

    name: str
    column: int
    value: Any
    x: NDArray[np.float64]


def typical_context(model: _Model, given: tuple[int, ArrayLike] | None = None) -> NDArray[np.float64]:
    """Return x [1, d]: numbers at their mean, yes/no at its share of yes, categories at the most frequent level.

    Where no value is more frequent, the value is missing. Of a category, that is the most frequent level, or a missing
    value, among those that training had together with each column before it, or of all where there is none such.

    Args:
        model: the model.
        given: where the features of a column begin, and those that it has instead: then categories go together with it.
    """
    parts = () if model.encoder is None else model.encoder.parts
    begins = np.cumsum([0, *(len(part.features) for part in parts)]).tolist()
    x = np.zeros((1, begins[-1]))
    apart = set() if model.support is None else set(model.support.apart)
    fixed, had = None if given is None else begins.index(given[0]), list[tuple[int, int]]()
    if given is not None and fixed is not None:
        own = x[:, begins[fixed] : begins[fixed + 1]]
        own[0] = given[1]
        had = [(fixed, value) for value in np.flatnonzero(certain_values(parts[fixed], own)[0]).tolist()]
    for i, part in enumerate(parts):
        if i != fixed:
            ranked = list(_ranked_values(part))
            fitting = (own for own in ranked if not any(_apart(apart, i, own[0], one) for one in had))
            value, features = next(fitting, ranked[0])
            x[0, begins[i] : begins[i + 1]] = features
            if value is not None and (part.kind == "categorical" or part.missing_rank is not None):
                had.append((i, value))
    return x


def _apart(apart: set[tuple[int, int, int, int]], column: int, value: int | None, other: tuple[int, int]) -> bool:
    """Return whether a value of a column, if it is one, and another were never together."""
    if value is None:
        return False
    first, second = sorted(((column, value), other))
    return (*first, *second) in apart


def _ranked_values(part: ContextColumn) -> Iterator[tuple[int | None, NDArray[np.float64]]]:
    """Yield what may be typical of a column, the most frequent first: which of its values, and its features.

    An average of no and yes is none of its values, and neither are the levels without a feature of their own.
    """
    unit, average = np.eye(len(part.features)), np.zeros(len(part.features))
    found: list[tuple[int | None, NDArray[np.float64]]]
    if part.kind == "categorical":
        found = [(a, unit[a]) for a in range(len(part.levels))] or [(None, unit[0])]
    else:
        average[0] = part.mean if part.kind == "boolean" else 0.0
        found = [(0 if part.kind == "numeric" else None, average)]
    if part.missing_rank is not None:
        found.insert(part.missing_rank, (len(value_names(part)) - 1, unit[-1]))
    yield from found


def typical_names(model: _Model) -> Iterator[str]:
    """Yield the typical value of every column."""
    x, begin = typical_context(model)[0], 0
    for part in () if model.encoder is None else model.encoder.parts:
        name = clean_text(part.name, 16)
        if part.missing and x[begin + len(part.features) - 1]:
            yield f"{name} is missing"
        elif part.kind == "categorical":
            level = int(np.argmax(x[begin : begin + len(part.features)]))
            yield f"{name} = {clean_text(part.levels[level], 16) if part.levels else 'other'}"
        else:
            yield f"{name} = {part.mean:.4g}" if part.kind == "numeric" else f"{name} = yes in {part.mean:.0%}"
        begin += len(part.features)


def varied_contexts(model: _Model, most: int | None = MOST_LEVELS) -> list[Varied]:
    """Return contexts with another value of one column than the typical one has, or the same, of categories of `most`.

    Numbers and yes/no that are one and the same in all of training, but for rounding, have no others.
    """
    varied: list[Varied] = []
    begin = 0
    for column, part in enumerate(() if model.encoder is None else model.encoder.parts):
        for name, value in telling_values(part, most):
            if value is not None and _is_one_value(part, model.support, column):
                continue
            features = np.zeros((1, len(part.features)))
            part.fill(features, np.array([value], dtype=object))
            varied.append(Varied(name, column, value, typical_context(model, (begin, features[0]))))
        begin += len(part.features)
    return varied


def _is_one_value(part: ContextColumn, support: Support | None, column: int) -> bool:
    """Return whether a column has one number, or answer, alone, or none, as far as the model tells."""
    if part.kind != "numeric":
        return part.kind == "boolean" and part.mean in (0.0, 1.0)
    reach = None if support is None else support.columns[column].reach
    if support is not None and (reach is None or reach[0] == reach[1]):
        return True
    return alike(part.mean - part.sd, part.mean + part.sd)


def telling_values(part: ContextColumn, most: int | None = MOST_LEVELS) -> list[tuple[str, Any]]:
    """Return values of a column that show what it does, with their names; of a category, the `most` frequent levels.

    The last one is None, a missing value, where training had such.

    Example:
        >>> columns = {"device": ["desk", None, "desk"], "pays": [True] * 3, "day": [20001, 20002, 20003]}
        >>> encoder = ContextEncoder.fit(columns)
        >>> [name for part in encoder.parts for name, _ in telling_values(part)]
        ['device = desk', 'device is missing', 'pays = no', 'pays = yes', 'day = 20001', 'day = 20003']
    """
    name = clean_text(part.name, 16)
    if part.kind == "numeric":
        ends = part.mean - part.sd, part.mean + part.sd
        known: list[tuple[str, Any]] = [
            (f"{name} = {words}", value) for words, value in zip(_told_apart(*ends), ends, strict=True)
        ]
    elif part.kind == "boolean":
        known = [(f"{name} = {word}", value) for word, value in (("no", False), ("yes", True))]
    else:
        known = [(f"{name} = {clean_text(level, 12)}", level) for level in part.levels[:most]]
    return [*known, (f"{name} is missing", None)] if part.missing else known


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Return two numbers with as many digits, four or more, as tell them apart."""
    digits = next((n for n in range(4, 17) if f"{one:.{n}g}" != f"{other:.{n}g}"), 4)
    return f"{one:.{digits}g}", f"{other:.{digits}g}"
