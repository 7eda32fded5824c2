"""Support: which contexts and positions the data of a fit speak of.

A curve gives a number for every context. Only some of these numbers rest on data:

- a *position* is supported where clicks link it to the anchor (`linked_positions`); elsewhere there is no number;
- a *value* of a yes/no column or a category, and a missing value, is supported at the positions that the units with
  that value link to the anchor among themselves, by `ENOUGH` effective queries or more (users, if they cluster, and so
  on). One that training never had is supported nowhere, and neither is one too rare for a feature of its own: its
  number is that of all rarer values together;
- a *number* is supported up to half the width of its reach beyond it. The reach is as far as five queries go (half of
  them, where there are fewer than ten): a single outlier does not widen it.

Columns are judged one by one, and two by two: values that training had, but never together, are not supported together.
Three that were seen two by two are. Where only the context is not supported the number stays, as something for weights
to stand on, but without an interval: it is what the curve makes of other contexts.

A supported position can still rest on little: `Support.queries` are its effective queries, of which `FEW` or more are
enough; and its estimate can be so far off that it tells nothing, see `budget`. NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.words import clean_text, count

Mask = NDArray[np.bool_]

SPAN = 10.0
"""An interval of a slope of affine clicks that spans such a factor tells nothing."""
FEW = 5
"""Fewer effective queries than these are few: whatever they have in common looks like the position."""
ENOUGH = 3
"""Effective queries that a value of a context must have at a position. In simulations with twenty levels the intervals
of those with fewer covered the truth three times in four: what has few clicks is often steeper than others are."""
BEYOND = 0.5
"""How far beyond its reach a number is still supported, in widths of the reach."""


@dataclass(frozen=True)
class ColumnSupport:
    """What training had of one context column.

    Attributes:
        linked: for each value, the positions that enough queries with it link to the anchor; none where training had no
            such unit. Values are: of a category its levels; of yes/no *no* and *yes*; of a number *any*; then, where
            values were missing in training, *missing*.
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
        found: list[Doubt] = []
        parts, values = encoder.parts if encoder else (), []
        begin = 0
        for i, (part, column) in enumerate(zip(parts, self.columns, strict=True)):
            block = x[:, begin : begin + len(part.features)]
            begin += len(part.features)
            values.append(certain_values(part, block))
            found += _column_doubts(part, column, block, positions, clusters)
            if lacking is not None:
                found.append(
                    Doubt(f"{clean_text(part.name)}: missing, as it never was in training", lacking[:, i, None])
                )
        for (i, j), pairs in self.apart_by_columns().items():
            never = np.zeros((values[i].shape[1], values[j].shape[1]), dtype=np.float32)
            never[tuple(np.array(pairs).T)] = 1
            where: Mask = np.any((values[i].astype(np.float32) @ never > 0) & values[j], axis=1, keepdims=True)
            found.append(Doubt(never_together(parts[i], parts[j]), where))
        return tuple(doubt for doubt in found if doubt.where.any())

    def apart_by_columns(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return the pairs of values that were never together, by their columns."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, a, j, b in self.apart:
            found.setdefault((i, j), []).append((a, b))
        return found

    def check(self, encoder: ContextEncoder | None, positions: Sequence[int]) -> None:
        """Raise an InputError unless the support is one of these columns and positions."""
        parts = () if encoder is None else encoder.parts
        if [len(column.linked) for column in self.columns] != [len(value_names(part)) for part in parts]:
            raise InputError("the support has other columns or values than the encoder")
        if len(self.queries) != len(positions):
            raise InputError(f"the support has {len(self.queries)} positions, the curve {len(positions)}")
        sizes = [len(column.linked) for column in self.columns]
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
    """A reason not to rely on numbers, in words, and where: [n or 1, K or 1]."""

    why: str
    where: Mask


def supported_by(doubts: Sequence[Doubt], shape: tuple[int, ...]) -> Mask:
    """Return where there is no doubt, [n, K]."""
    supported = np.ones(shape, dtype=bool)
    for doubt in doubts:
        supported &= ~doubt.where
    return supported


def cannot_tell(lower: ArrayLike, upper: ArrayLike) -> Mask:
    """Return where an interval tells nothing, because upper / lower ≥ `SPAN`: such a number is not a finding.

    Example:
        >>> cannot_tell([0.1, 0.1, 0.0, np.nan], [0.9, 1.0, 0.5, np.nan])
        array([False,  True,  True, False])
    """
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    wide: Mask = high >= SPAN * low * (1 - 1e-12)
    return wide & (high > 0)


def rests_on_few(queries: float | None) -> bool:
    """Return whether effective queries are few, one to four when rounded; not where nothing tells them.

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
    """Return the values of a column that support tells apart, as `ColumnSupport` lists them."""
    own = {"numeric": ("any",), "boolean": ("no", "yes"), "categorical": part.levels}[part.kind]
    return (*own, "missing") if part.missing else own


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
    there = ~missing.any(axis=1, keepdims=True)
    own = there if part.kind == "numeric" else there & np.concatenate([block[:, :1] < 0.5, block[:, :1] >= 0.5], axis=1)
    return np.concatenate([own, missing], axis=1), np.zeros(len(block), dtype=bool)


def certain_values(part: ContextColumn, block: NDArray[np.float64]) -> Mask:
    """Return which values contexts have, [n, values]: none of those between no and yes.

    Args:
        part: the column.
        block: its features, [n, features].
    """
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
    found = [
        Doubt(f"{name}: a value that training {known}", unknown[:, None]),
        Doubt(f"{name}: a value that training had no clicks with", (values & never).any(axis=1, keepdims=True)),
    ]
    if column.reach is not None and (ends := column.ends(part.sd)) is not None:
        number = part.mean + part.sd * block[:, 0]
        outside = values[:, 0] & ((number < ends[0]) | (number > ends[1]))
        had = " to ".join(f"{end:.4g}" for end in column.reach)
        found.append(Doubt(f"{name}: far outside of what training had, {had}", outside[:, None]))
    if unlinked.any():
        where = values.astype(np.float32) @ unlinked.astype(np.float32) > 0
        found.append(Doubt(f"{name}: too few {clusters} with this value link this position to the anchor", where))
    return found
