from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from clickharvest.harvesting.numbering import as_column, distinct, numbered, run_starts, whole_numbers

wide = st.sampled_from([-(2**62), -3, 0, 1, 2, 2**62])
columns = st.one_of(
    st.lists(st.integers(-3, 5)).map(lambda v: np.array(v, dtype=np.int64)),
    st.lists(wide).map(lambda v: np.array(v, dtype=np.int64)),
    st.lists(st.integers(0, 255)).map(lambda v: np.array(v, dtype=np.uint8)),
    st.lists(st.sampled_from([0.5, -1.0, np.nan, np.inf])).map(lambda v: np.array(v, dtype=np.float64)),
    st.lists(st.sampled_from(["b", "a", "ä", ""])).map(lambda v: np.array(v, dtype=object)),
    st.lists(st.sampled_from(["b", "a", "ä", ""])).map(lambda v: np.array(v, dtype="U2")),
    st.lists(st.booleans()).map(lambda v: np.array(v, dtype=bool)),
)


@given(columns, st.booleans())
def test_numbers_are_those_of_sorting(values: NDArray[Any], in_order: bool) -> None:
    values = np.sort(values) if in_order else values
    found, code = np.unique(values, return_inverse=True)
    count, own = numbered(values)
    assert count == len(found)
    assert own.tolist() == code.tolist()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1), st.sampled_from([0.0, 0.5]))))
def test_distinct_combinations_are_those_of_sorting(rows: list[tuple[int, int, float]]) -> None:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    first, code = distinct(*table.T)
    _, expected_first, expected = np.unique(table, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert code.tolist() == expected.tolist()


def test_what_cannot_be_compared_differs() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install -e '.[dev]'")
    values = np.array(["a", "a", pandas.NA, pandas.NA], dtype=object)
    starts = run_starts([values], 4)
    assert starts[[0, 2, 3]].all()


def test_narrow_integers_do_not_overflow() -> None:
    values = np.tile(np.array([127, -128, 0], dtype=np.int8), 100)
    assert numbered(values)[1][:3].tolist() == [2, 0, 1]


@pytest.mark.parametrize(("low", "high", "rows"), [(-9, 9, 30), (0, 10**12, 20), (5, 6, 1), (0, 1, 0)])
def test_whole_numbers_are_those_of_sorting(low: int, high: int, rows: int) -> None:
    values = np.random.default_rng(0).integers(low, high, rows)
    assert whole_numbers(values).tolist() == np.unique(values).tolist()


@pytest.mark.parametrize("values", [np.arange(10.0)[::2], np.arange(21) % 3 == 0, np.arange(4), np.zeros(0)])
def test_arrays_become_columns(values: NDArray[Any]) -> None:
    assert as_column(values).to_pylist() == values.tolist()
