"""Placing: from the columns that tell where a result stood to the numbers of places, inside the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ibis

from clickharvest.errors import InputError
from clickharvest.logs.click_log import find_column
from clickharvest.logs.sources import spell_columns
from clickharvest.positions.places import MOST_PLACES, Places

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.engines import Engine

NUMBER = "_clickharvest_place"
"""The column of the number of a row's place."""


def place_columns(columns: Sequence[str], asked: Sequence[str], context: Sequence[str]) -> tuple[str, ...]:
    """Return the log's columns that make places.

    Raises:
        InputError: one is missing, named twice or a context column, too.
    """
    found = tuple(find_column(columns, name) for name in asked)
    if missing := [name for name in found if name not in columns]:
        raise InputError(f"--place {','.join(asked)}: no column {missing[0]!r}, found {spell_columns(columns)}")
    if len(set(found)) < len(found):
        raise InputError(f"--place {','.join(asked)}: a column is named twice; name it once")
    if both := [name for name in found if name in {find_column(columns, own) for own in context}]:
        raise InputError(f"column {both[0]!r} is named by --place and --context: it is one of the two; name it once")
    return found


def number_places(opened: ir.Table, columns: Sequence[str], engine: Engine) -> tuple[ir.Table, Places | None]:
    """Return the rows with the number of their place, and the table of places.

    One column of numbers is a list: its numbers are the positions, and there is no table.

    Args:
        opened: the log.
        columns: its columns that make places.
        engine: where it lives.

    Raises:
        InputError: rows have no place, or there are too many places.
    """
    plain = {f"_place_{i}": _plain(opened[column]) for i, column in enumerate(columns)}
    rows = opened.select(**plain)
    counted = rows.group_by(*plain).agg(_rows=rows.count()).limit(MOST_PLACES + 1)
    found = engine.fetch(counted, task="Looking at places")
    if found.num_rows > MOST_PLACES:
        raise InputError(
            f"--place {','.join(columns)} makes more than {MOST_PLACES:,} places: expected where results stand, not an "
            "identifier; name fewer or coarser columns"
        )
    if not found.num_rows:
        raise InputError("the log is empty: expected at least one row (of the block, where --block names one)")
    labels = list(zip(*(found[name].to_pylist() for name in plain), strict=True))
    for i, column in enumerate(columns):
        empty = sum(n for n, label in zip(found["_rows"].to_pylist(), labels, strict=True) if _is_empty(label[i]))
        if empty:
            raise InputError(
                f"column {column!r}: {empty:,} rows are empty, and do not tell their place; fill them in or leave "
                "those rows out"
            )
    places = Places.of(columns, labels)
    if len(columns) == 1 and places.is_numeric(0):
        return opened, None
    numbers = ibis.memtable(found.select(list(plain)).append_column(NUMBER, [_numbers(labels, places)]))
    joined = opened.left_join(numbers, [value == numbers[name] for name, value in plain.items()])
    return joined.select(*(opened[name] for name in opened.columns), numbers[NUMBER]), places


def _numbers(labels: list[tuple[Any, ...]], places: Places) -> list[int]:
    """Return the number of the place of each label found, whose texts may be numbers."""
    number = {label: k for k, label in enumerate(places.labels, 1)}
    numeric = [places.is_numeric(i) for i in range(len(places.columns))]
    return [
        number[
            tuple(
                float(v) if is_number and isinstance(v, str) else v for v, is_number in zip(label, numeric, strict=True)
            )
        ]
        for label in labels  # 1 and 1.0 are one key; a float would not hold the last digits of a long number
    ]


def _plain(column: ir.Value) -> ir.Value:
    kind = column.type()
    if kind.is_integer():
        return column.cast("int64")
    return column.cast("float64") if kind.is_numeric() and not kind.is_boolean() else column.cast("string")


def _is_empty(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())
