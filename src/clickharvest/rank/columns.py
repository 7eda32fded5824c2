"""Features from the columns of a table of documents, in training and in use.

| column | features |
|---|---|
| numbers, true or false | itself; empty is missing (NaN), which trees take and linear rankers do not |
| text | one for each of its most frequent values, `brand=acme`: 1 where the document has it, else 0 |
| map of numbers by text | one for each key, `words:cheap`, 0 where the document lacks it; the matrix is then sparse |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from clickharvest.errors import InputError
from clickharvest.words import name_columns

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.logs.engines import Engine

MOST_VALUES = 100
"""Features of a text column, at most: those of its most frequent values."""
MOST_KEYS = 1_000_000
"""Features of a map column, at most."""


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of features; the ranker's file has them, so that other documents are read the same way.

    Attributes:
        columns: the columns, in the order of their features.
        values: the values of each text column that have a feature.
        keys: the keys of each map column.
        single: whether all numbers are kept in single precision, which holds them.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"price": pa.array([2.5, None], pa.float32()), "brand": ["acme", "other"]})
        >>> columns = FeatureColumns(("price", "brand"), {"brand": ("acme",)}, single=True)
        >>> columns.names
        ('price', 'brand=acme')
        >>> columns.encode(table)
        array([[2.5, 1. ],
               [nan, 0. ]], dtype=float32)
    """

    columns: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    single: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, [F]."""
        names: list[str] = []
        for column in self.columns:
            names += [f"{column}={value}" for value in self.values.get(column, ())]
            names += [f"{column}:{key}" for key in self.keys.get(column, ())]
            names += [] if column in self.values or column in self.keys else [column]
        return tuple(names)

    @property
    def is_sparse(self) -> bool:
        """Whether the matrix is sparse."""
        return bool(self.keys)

    def encode(self, table: pa.Table | pa.RecordBatch, name: str = "the table of documents") -> Any:
        """Return the features of some documents, an array or CSR array, [n, F].

        Args:
            table: their rows.
            name: what it is called in messages.

        Raises:
            InputError: a column is missing or of another kind than in training.
        """
        if missing := [column for column in self.columns if column not in table.schema.names]:
            raise InputError(f"{name} lacks the {name_columns([*map(repr, missing[:5])])}: the ranker needs it")
        kind = np.float32 if self.single else np.float64
        if not self.is_sparse:
            features = np.empty((table.num_rows, len(self.names)), kind)
            at = 0
            for column in self.columns:
                wide = len(self.values.get(column, (column,)))
                features[:, at : at + wide] = self._dense(table[column], column, name)
                at += wide
            return features
        parts = [
            _of_maps(table[column], self.keys[column], column, name)
            if column in self.keys
            else csr_array(self._dense(table[column], column, name))
            for column in self.columns
        ]
        return csr_array(hstack(parts, format="csr"), dtype=np.float64)

    def _dense(self, column: Any, of: str, name: str) -> NDArray[Any]:
        """Return the features of one column that is no map, [n, number]."""
        if of in self.values:
            if not _is_text(column.type):
                raise InputError(f"{name}, column {of!r} holds {column.type}: the ranker expects text")
            texts = np.asarray(column.to_pylist(), dtype=object)
            return np.stack([texts == value for value in self.values[of]], axis=1)
        if not _is_number(column.type):
            raise InputError(f"{name}, column {of!r} holds {column.type}: expected numbers; encode it as numbers")
        return _numbers(column)[:, None]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it; `from_dict` reads it back."""
        lists = {"values": self.values, "keys": self.keys}
        by_kind = {
            name: {column: list(texts) for column, texts in by_column.items()} for name, by_column in lists.items()
        }
        return {"columns": list(self.columns), **by_kind, "single": self.single}

    @classmethod
    def from_dict(cls, saved: Any) -> FeatureColumns:
        """Read what `to_dict` wrote; anything else is an InputError."""
        try:
            lists = [
                {str(name): tuple(map(str, texts)) for name, texts in saved[kind].items()}
                for kind in ("values", "keys")
            ]
            return cls(tuple(map(str, saved["columns"])), lists[0], lists[1], single=bool(saved["single"]))
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(
                "the columns of a ranker cannot be read: expected their names, values and keys; save the ranker again"
            ) from error


def find_columns(table: ir.Table, engine: Engine, names: Sequence[str], name: str) -> FeatureColumns:
    """Return how columns of a table of documents become features; the engine counts values and keys.

    Args:
        table: the documents.
        engine: where they live.
        names: the columns.
        name: what the table is called in messages.
    """
    values: dict[str, tuple[str, ...]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    single = True
    for column in names:
        kind = table[column].type()
        if kind.is_string():
            counted = table.select(value=table[column]).filter(lambda t: t.value.notnull())
            values[column] = _most_frequent(counted, engine, column, MOST_VALUES)
        elif kind.is_map() and kind.key_type.is_string() and kind.value_type.is_numeric():
            counted = table.select(value=table[column].keys().unnest())
            keys[column] = _most_frequent(counted, engine, column, MOST_KEYS)
        elif kind.is_numeric() or kind.is_boolean():
            small = kind.is_boolean() or (kind.is_integer() and kind.nbytes <= 2)
            single &= small or (kind.is_floating() and kind.nbytes <= 4)
        else:
            raise InputError(
                f"{name}, column {column!r} holds {kind}: expected numbers, text or a map of numbers; "
                "encode it, or name the others with --features"
            )
    return FeatureColumns(tuple(names), values, keys, single=single)


def _most_frequent(values: ir.Table, engine: Engine, column: str, most: int) -> tuple[str, ...]:
    """Return the most frequent values of a table's one column, sorted."""
    import ibis

    counted = values.group_by("value").agg(n=values.count())
    counted = counted.mutate(all=counted.n.sum().over(ibis.window()))
    chosen = counted.order_by([ibis.desc("n"), "value"]).limit(most)
    frequent = engine.fetch(chosen, task=f"Counting values of {column}")
    if not frequent.num_rows:
        raise InputError(f"column {column!r} of the documents is empty: name the others with --features")
    if sum(frequent["n"].to_pylist()) < frequent["all"][0].as_py() / 2:
        raise InputError(
            f"column {column!r} of the documents has so many values that the {most:,} most frequent are not half of "
            "them: encode it as numbers, or name the others with --features"
        )
    return tuple(sorted(frequent["value"].to_pylist()))


def _numbers(column: Any) -> NDArray[Any]:
    """Return a column of numbers, in single precision where it came so; NaN where it is empty."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    kind = pa.float32() if pa.types.is_float32(column.type) else pa.float64()
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.cast(kind)
    array: NDArray[Any] = np.asarray(column)
    return array


def _of_maps(column: Any, keys: Sequence[str], of: str, name: str) -> Any:
    """Return the features of a column of maps, a CSR array [n, number of keys]; unknown keys are left out."""
    import pyarrow as pa

    maps = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_map(maps.type):
        raise InputError(f"{name}, column {of!r} holds {maps.type}: the ranker expects a map of numbers")
    place = {key: at for at, key in enumerate(keys)}
    entries = [(i, place.get(key, -1), value) for i, one in enumerate(maps.to_pylist()) for key, value in one or ()]
    row, at, numbers = np.array(entries, np.float64).reshape(-1, 3).T
    known = at >= 0
    return csr_array((numbers[known], (row[known].astype(int), at[known].astype(int))), shape=(len(maps), len(keys)))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)
