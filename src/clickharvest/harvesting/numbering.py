"""Codes for values: queries, units and contexts as numbers from 0, in the order of the values.

A harvest numbers units by query and context, so equal values stand together and mostly ascend. Then nothing is sorted;
otherwise only the first value of every run of equal values is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = 4
"""Integers are looked up in a table where it is at most so many times as long as there are rows."""


def as_array(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return an Arrow column as an array, without importing pandas for numbers without gaps.

    Arrow's `to_numpy` imports pandas, which takes as long as a small fit.

    Example:
        >>> import pyarrow as pa
        >>> as_array(pa.chunked_array([[1, 2], [3]]))
        array([1, 2, 3])
    """
    import pyarrow as pa

    plain = pa.types.is_integer(column.type) or pa.types.is_float32(column.type) or pa.types.is_float64(column.type)
    if not plain or column.null_count or not column.num_chunks:
        return np.asarray(column.to_numpy())
    return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])


def as_column(values: NDArray[Any]) -> pa.Array:
    """Return an array of numbers or booleans as an Arrow column, without importing pandas.

    Example:
        >>> as_column(np.array([True, False, True])).to_pylist()
        [True, False, True]
    """
    import pyarrow as pa

    bits = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(bits)])


def run_starts(columns: Iterable[NDArray[Any]], rows: int) -> NDArray[np.bool_]:
    """Return which rows differ from the one before them in some column, the first row among them.

    Values that are unlike themselves, as NaN is, differ from each other; what cannot be compared differs too.

    Example:
        >>> run_starts([np.array([3, 3, 3, 1]), np.array(["a", "b", "b", "b"])], rows=4).tolist()
        [True, True, False, True]
    """
    starts = np.zeros(rows, dtype=bool)
    starts[:1] = True
    for column in columns:
        try:
            starts[1:] |= np.asarray(column[1:] != column[:-1], dtype=bool)
        except TypeError:  # pandas.NA has no truth value
            starts[:] = True
    return starts


def numbered(values: NDArray[Any]) -> tuple[int, NDArray[np.int64]]:
    """Return the number of distinct values, and for each row the place of its value among them, ascending, [n].

    The codes are those of `np.unique(values, return_inverse=True)`.

    Example:
        >>> count, code = numbered(np.array(["b", "b", "a", "b"]))
        >>> count, code.tolist()
        (2, [1, 1, 0, 1])
    """
    starts = run_starts([values], len(values))
    heads = values if starts.all() else values[starts]
    ascend = bool(np.all(heads[1:] > heads[:-1]))
    if ascend or len(heads) < len(values):
        run = np.cumsum(starts, dtype=np.int64)
        run -= 1
        if ascend:
            return len(heads), run
    del starts
    count, code = _looked_up(heads) if heads.dtype.kind in "iu" else _sorted(heads)
    return count, code if len(heads) == len(values) else code[run]


def distinct(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of every combination of values, in their order, and which of them each row has, [n].

    Example:
        >>> first, row = distinct(np.array([4, 2, 4]), np.array([0, 9, 0]))
        >>> first.tolist(), row.tolist()
        ([1, 0], [1, 0, 1])
    """
    count, code = numbered(columns[0])
    for column in columns[1:]:
        if count == len(code):
            break
        size, code_here = numbered(column)
        # Numbered again after every column, so that numbers never outgrow the square of the rows.
        count, code = numbered(code * size + code_here)
    first = np.empty(count, dtype=np.intp)
    first[code[::-1]] = np.arange(len(code))[::-1]  # of rows with one code, the last that is written stays
    return first, code


def code_values(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of each value in the order of values; what is missing is a value, too.

    Example:
        >>> code_values(np.array(["b", None, "a", "b"], dtype=object)).tolist()
        [1, -1, 0, 1]
    """
    if values.dtype != object:
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    plain = values.tolist()
    place = {value: i for i, value in enumerate(sorted(set(plain) - {None}))}
    return np.fromiter((place.get(value, -1) for value in plain), np.int64, len(plain))


def whole_numbers(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct integers of an array, ascending, as `np.unique` does.

    Example:
        >>> whole_numbers(np.array([4, 2, 4])).tolist()
        [2, 4]
    """
    if not len(values) or not _fits_table(values):
        return np.unique(values)
    low, _, there = _table(values)
    return np.flatnonzero(there) + low


def _fits_table(values: NDArray[Any]) -> bool:
    return int(values.max()) - int(values.min()) <= TABLE * len(values)


def _table(values: NDArray[Any]) -> tuple[int, NDArray[Any], NDArray[np.bool_]]:
    """Return the least of some integers, how far above it each is, [n], and which numbers from it on are there."""
    low, high = int(values.min()), int(values.max())
    wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)  # 127 − (−128) is no int8
    place = wide - wide.dtype.type(low)
    there = np.zeros(high - low + 1, dtype=bool)
    there[place] = True
    return low, place, there


def _looked_up(values: NDArray[Any]) -> tuple[int, NDArray[np.int64]]:
    if not _fits_table(values):
        return _sorted(values)
    _, place, there = _table(values)
    code = np.cumsum(there, dtype=np.int64)
    code -= 1
    return int(code[-1]) + 1, code[place]


def _sorted(values: NDArray[Any]) -> tuple[int, NDArray[np.int64]]:
    distinct_values, code = np.unique(values, return_inverse=True)
    return len(distinct_values), code
