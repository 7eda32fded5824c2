"""The typical context, and those that differ from it in one column: what is told of a model where there is no log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.model.support import Support, certain_values
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

    Of a category, that is the most frequent level among those that training had together with each column before it, or
    of all where there is none such.

    Args:
        model: the model.
        given: where the features of a column begin, and those that it has instead: then categories go together with it.
    """
    parts = () if model.encoder is None else model.encoder.parts
    begins = np.cumsum([0, *(len(part.features) for part in parts)]).tolist()
    x = np.concatenate([np.zeros((1, 0)), *(_typical_features(part) for part in parts)], axis=1)
    apart = set() if model.support is None else set(model.support.apart)
    fixed, had = None if given is None else begins.index(given[0]), list[tuple[int, int]]()
    if given is not None and fixed is not None:
        own = x[:, begins[fixed] : begins[fixed + 1]]
        own[0] = given[1]
        had = [(fixed, value) for value in np.flatnonzero(certain_values(parts[fixed], own)[0]).tolist()]
    for i, part in enumerate(parts):
        if part.kind == "categorical" and i != fixed:
            level = next((a for a in range(len(part.levels)) if not any(_apart(apart, (i, a), one) for one in had)), 0)
            x[0, begins[i] : begins[i + 1]] = np.arange(len(part.features)) == level
            had.append((i, level))
    return x


def _apart(apart: set[tuple[int, int, int, int]], one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two values, each with its column, were never together."""
    first, second = sorted((one, other))
    return (*first, *second) in apart


def _typical_features(part: ContextColumn) -> NDArray[np.float64]:
    """Return the features [1, …] of a column's typical value, of a category those of its first level."""
    x = np.zeros((1, len(part.features)))
    if part.kind != "numeric":
        x[0, 0] = part.mean if part.kind == "boolean" else 1.0
    return x


def typical_names(model: _Model) -> Iterator[str]:
    """Yield the typical value of every column."""
    x, begin = typical_context(model)[0], 0
    for part in () if model.encoder is None else model.encoder.parts:
        name = clean_text(part.name, 16)
        if part.kind == "categorical":
            level = int(np.argmax(x[begin : begin + len(part.features)]))
            yield f"{name} = {clean_text(part.levels[level], 16) if part.levels else 'other'}"
        else:
            yield f"{name} = {part.mean:.4g}" if part.kind == "numeric" else f"{name} = yes in {part.mean:.0%}"
        begin += len(part.features)


def varied_contexts(model: _Model, most: int | None = MOST_LEVELS) -> list[Varied]:
    """Return contexts that differ from the typical one in one column, of categories in some levels or in any."""
    varied: list[Varied] = []
    begin = 0
    for column, part in enumerate(() if model.encoder is None else model.encoder.parts):
        for name, value in telling_values(part, most):
            features = np.zeros((1, len(part.features)))
            part.fill(features, np.array([value], dtype=object))
            varied.append(Varied(name, column, value, typical_context(model, (begin, features[0]))))
        begin += len(part.features)
    return varied


def telling_values(part: ContextColumn, most: int | None = MOST_LEVELS) -> list[tuple[str, Any]]:
    """Return values of a column that show what it does, with their names; of a category, the `most` frequent levels."""
    name = clean_text(part.name, 16)
    if part.kind == "numeric":
        return [(f"{name} = {value:.4g}", value) for value in (part.mean - part.sd, part.mean + part.sd)]
    if part.kind == "boolean":
        return [(f"{name} = {word}", value) for word, value in (("no", False), ("yes", True))]
    return [(f"{name} = {clean_text(level, 12)}", level) for level in part.levels[:most]]
