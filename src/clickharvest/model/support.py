"""Support: the contexts and positions that the data of a fit have.

A curve gives a number for every context. Only some of these numbers rest on data:

- a *position* is supported where clicks link it to the anchor (`linked_positions`); elsewhere there is no number;
- a *value* of a yes/no column or a category, and a missing value, is supported at the positions that the units with
  that value link to the anchor among themselves, by `ENOUGH` effective queries or more (or users, if they cluster). A
  value that training never had is supported nowhere, and neither is one too rare for a feature of its own;
- a *number* is supported up to half the width of its reach beyond it. The reach is as far as five queries go (half of
  them, where there are fewer than ten): a single outlier does not widen it.

Columns are judged one by one, and two by two: values that training never had together are not supported together. Where
only the context is not supported, the number stays, for weights, but without an interval.

A supported position can still rest on few effective queries (`Support.queries`), and its estimate can be so far off
that its state is `cannot tell` (`budget`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.words import clean_text, count

Mask = NDArray[np.bool_]

FEW = 5
"""Fewer effective queries than these are few: what they have in common is mistaken for the position."""
ENOUGH = 3
"""Effective queries that a value of a context must have at a position: with fewer, intervals cover too seldom."""
BEYOND = 0.5
"""How far beyond its reach a number is still supported, in widths of the reach."""


@dataclass(frozen=True)
class ColumnSupport:
    """What training had of one context column.

    Attributes:
        linked: for each of `value_names`, the positions that enough queries with it link to the anchor; none where
            training had no such unit.
        rare: whether training had values without a feature of their own.
        reach: from where to where numbers go, in the column's own unit; None without numbers.
    """

    linked: tuple[tuple[int, ...], ...]
    rare: bool = False
    reach: tuple[float, float] | None = None

    def ends(self, sd: float) -> tuple[float, float] | None:
        """Return from where to where numbers are supported: half of their reach further; None without numbers.

        Args:
            sd: the column's standard deviation, which tells what rounding is.

        Example:
            >>> [round(end, 6) for end in ColumnSupport(((1, 2),), reach=(0.0, 10.0)).ends(1.0)]
            [-5.0, 15.0]
        """
        if self.reach is None:
            return None
        low, high = self.reach
        far = (high - low) * BEYOND + 1e-9 * max(abs(low), abs(high), sd)
        return low - far, high + far


@dataclass(frozen=True)
class Support:
    """What the data of a fit speak of; estimators make it.

    Attributes:
        columns: of the encoder's columns, in their order; none without context.
        queries: effective queries that each of the curve's positions rests on, None for the anchor: 1 / Σ share², of
            the shares that queries have in the variance of log p_k / p_anchor.
        apart: values that training had, but never together: number of a column, of its value in `linked`, and the same
            of a later column.

    Example:
        Desktops were shown at two positions, phones at three.

        >>> encoder = ContextEncoder.fit({"device": ["desk", "desk", "phone"]})
        >>> support = Support((ColumnSupport(((1, 2), (1, 2, 3))),), (None, 40.0, 2.2))
        >>> x = encoder.transform({"device": ["desk", "phone", "tv"]})
        >>> for doubt in support.doubts(encoder, x, (1, 2, 3)):
        ...     print(doubt.why, doubt.where.astype(int).tolist())
        device: a value that training never had [[0], [0], [1]]
        device: too few queries with this value link this position to the anchor [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    """

    columns: tuple[ColumnSupport, ...]
    queries: tuple[float | None, ...]
    apart: tuple[tuple[int, int, int, int], ...] = ()

    def doubts(
        self,
        encoder: ContextEncoder | None,
        x: NDArray[np.float64],
        positions: Sequence[int],
        lacking: Mask | None = None,
        clusters: str = "queries",
    ) -> tuple[Doubt, ...]:
        """Return what speaks against contexts, at some positions.

        Args:
            encoder: the encoder whose columns these are; None without context.
            x: encoded contexts, [n, d].
            positions: the positions, [K].
            lacking: where a value is missing that never was in training, [n, columns], see `ContextEncoder.encode`.
            clusters: what values are supported by.
        """
        doubts: list[Doubt] = []
        parts, values = encoder.parts if encoder else (), []
        begin = 0
        for i, (part, column) in enumerate(zip(parts, self.columns, strict=True)):
            block = x[:, begin : begin + len(part.features)]
            begin += len(part.features)
            values.append(certain_values(part, block))
            doubts += _column_doubts(part, column, block, positions, clusters)
            if lacking is not None:
                why = f"{clean_text(part.name)}: missing, as it never was in training"
                doubts.append(Doubt(why, lacking[:, i, None]))
        for (i, j), pairs in self.apart_by_columns().items():
            never = np.zeros((values[i].shape[1], values[j].shape[1]), dtype=np.float32)
            never[tuple(np.array(pairs).T)] = 1
            where: Mask = np.any((values[i].astype(np.float32) @ never > 0) & values[j], axis=1, keepdims=True)
            doubts.append(Doubt(never_together(parts[i], parts[j]), where))
        return tuple(doubt for doubt in doubts if doubt.where.any())

    def apart_by_columns(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return the pairs of values that were never together, by their columns."""
        pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, a, j, b in self.apart:
            pairs.setdefault((i, j), []).append((a, b))
        return pairs

    def check(self, encoder: ContextEncoder | None, positions: Sequence[int]) -> None:
        """Raise an InputError unless the support is one of these columns and positions."""
        sizes = [len(column.linked) for column in self.columns]
        if sizes != [len(value_names(part)) for part in (() if encoder is None else encoder.parts)]:
            raise InputError("the support has other columns or values than the encoder")
        if len(self.queries) != len(positions):
            raise InputError(f"the support has {len(self.queries)} positions, the curve {len(positions)}")
        if not all(0 <= i < j < len(sizes) and 0 <= a < sizes[i] and 0 <= b < sizes[j] for i, a, j, b in self.apart):
            raise InputError("the support has values that were never together of columns that it does not have")
        numbers = [n for n in self.queries if n is not None]
        numbers += [end for column in self.columns for end in column.reach or ()]
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
            raise InputError("the support has numbers that are not finite")

    def to_dict(self) -> dict[str, Any]:
        """Return the support as JSON holds it; `from_dict` reads it back."""
        columns = [
            {
                "linked": [list(linked) for linked in column.linked],
                "rare": column.rare,
                "reach": None if column.reach is None else list(column.reach),
            }
            for column in self.columns
        ]
        return {"columns": columns, "queries": list(self.queries), "apart": [list(pair) for pair in self.apart]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        columns = []
        for entry in saved["columns"]:
            linked = tuple(tuple(int(k) for k in positions) for positions in entry["linked"])
            reach = None if entry["reach"] is None else (float(entry["reach"][0]), float(entry["reach"][1]))
            columns.append(ColumnSupport(linked, bool(entry["rare"]), reach))
        queries = tuple(None if n is None else float(n) for n in saved["queries"])
        # Files of older versions do not tell which values were together.
        apart = tuple((int(i), int(a), int(j), int(b)) for i, a, j, b in saved.get("apart", ()))
        return cls(tuple(columns), queries, apart)


@dataclass(frozen=True, eq=False)
class Doubt:
    """A reason not to rely on numbers, and where it holds: [n or 1, K or 1]."""

    why: str
    where: Mask


def supported_by(doubts: Sequence[Doubt], shape: tuple[int, ...]) -> Mask:
    """Return where there is no doubt, [n, K]."""
    supported = np.ones(shape, dtype=bool)
    for doubt in doubts:
        supported &= ~doubt.where
    return supported


def rests_on_few(queries: float | None) -> bool:
    """Return whether effective queries are few, one to four when rounded; False where they are unknown.

    Example:
        >>> rests_on_few(4.4), rests_on_few(4.6), rests_on_few(None)
        (True, False, False)
    """
    return queries is not None and queries < FEW - 0.5


def spell_queries(queries: float) -> str:
    """Return the words that stand beside an interval.

    Example:
        >>> spell_queries(2.2), spell_queries(1.0)
        ('rests on 2 queries', 'rests on 1 query')
    """
    return f"rests on {count(max(queries, 1.0), 'query', 'queries')}"


def value_names(part: ContextColumn) -> tuple[str, ...]:
    """Return the values of a column that support tells apart, as `ColumnSupport.linked` lists them.

    Those are the levels of a category, *no* and *yes*, or *any* number; then, if some were missing, *missing*.
    """
    names = {"numeric": ("any",), "boolean": ("no", "yes"), "categorical": part.levels}[part.kind]
    return (*names, "missing") if part.missing else names


def used_values(part: ContextColumn, block: NDArray[np.float64]) -> tuple[Mask, Mask]:
    """Return which values contexts have, [n, values], and which have none with a feature of its own, [n].

    A context between no and yes, such as a typical one that is *yes in 40 %*, has the nearer one.

    Args:
        part: the column.
        block: its features, [n, features].
    """
    missing = block[:, -1:] != 0 if part.missing else np.zeros((len(block), 0), dtype=bool)
    if part.kind == "categorical":
        levels = block[:, : len(part.levels)] != 0
        values = np.concatenate([levels, missing], axis=1)
        return values, (block[:, len(part.levels)] != 0) | ~values.any(axis=1)
    present, is_yes = ~np.any(missing, axis=1, keepdims=True), block[:, :1] >= 0.5
    own = [present] if part.kind == "numeric" else [present & ~is_yes, present & is_yes]
    return np.concatenate([*own, missing], axis=1), np.zeros(len(block), dtype=bool)


def certain_values(part: ContextColumn, block: NDArray[np.float64]) -> Mask:
    """Return what `used_values` does, but neither no nor yes for a context between them, [n, values]."""
    values, _ = used_values(part, block)
    if part.kind == "boolean":
        values[:, :2] &= np.isin(block[:, :1], (0.0, 1.0))
    return values


def never_together(part: ContextColumn, other: ContextColumn) -> str:
    """Return the words of a doubt about two columns."""
    return f"{clean_text(part.name)} and {clean_text(other.name)}: values that training never had together"


def _column_doubts(
    part: ContextColumn, column: ColumnSupport, block: NDArray[np.float64], positions: Sequence[int], clusters: str
) -> list[Doubt]:
    name = clean_text(part.name)
    values, unknown = used_values(part, block)
    never = np.array([not linked for linked in column.linked], dtype=bool)
    unlinked = np.zeros((len(never), len(positions)), dtype=bool)
    for i in np.flatnonzero(~never):
        unlinked[i] = ~np.isin(positions, column.linked[i])
    known = "never had, or too rarely for an estimate of its own" if column.rare else "never had"
    doubts = [
        Doubt(f"{name}: a value that training {known}", unknown[:, None]),
        Doubt(f"{name}: a value that training had no clicks with", (values & never).any(axis=1, keepdims=True)),
    ]
    ends = column.ends(part.sd)
    if column.reach is not None and ends is not None:
        number = part.mean + part.sd * block[:, 0]
        outside = values[:, 0] & ((number < ends[0]) | (number > ends[1]))
        had = " to ".join(f"{end:.4g}" for end in column.reach)
        doubts.append(Doubt(f"{name}: far outside of what training had, {had}", outside[:, None]))
    if unlinked.any():
        where = values.astype(np.float32) @ unlinked.astype(np.float32) > 0
        doubts.append(Doubt(f"{name}: too few {clusters} with this value link this position to the anchor", where))
    return doubts
