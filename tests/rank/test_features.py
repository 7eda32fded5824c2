"""Features that are scaled as they are used: the same numbers as those of a scaled copy, without the copy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from clickharvest.rank.features import PANEL, Features

N = 2 * PANEL + 7


@pytest.fixture
def given() -> np.ndarray:
    random = np.random.default_rng(0)
    return random.normal([3.0, -500.0, 0.0], [0.01, 40.0, 1.0], (N, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [None, np.arange(0, N, 3)])
def test_scaling_equals_a_scaled_copy(given: np.ndarray, dtype: type, rows: np.ndarray | None) -> None:
    x = given.astype(dtype)
    plain = Features.of(x) if rows is None else Features.of(x).take(rows, copy=False)
    own = x if rows is None else x[rows]
    found, scale = plain.scaled()
    copy = own / own.std(axis=0, dtype=np.float64)
    random = np.random.default_rng(1)
    w, v = random.normal(size=3), random.normal(size=len(own))
    tight = {"rtol": 1e-4 if dtype == np.float32 else 1e-10, "atol": 1e-2 if dtype == np.float32 else 1e-8}
    assert found.base is plain.base
    assert_allclose(scale, own.std(axis=0, dtype=np.float64), rtol=1e-6)
    assert_allclose(found.times(w), copy @ w, **tight)
    assert_allclose(found.sums(v), copy.T @ v, **tight)
    assert_allclose(found.matrix, copy, rtol=1e-5)
    assert_allclose(np.concatenate(list(found.panels())), copy, rtol=1e-5)
    for copied in (True, False):
        assert_allclose(found.take(np.array([5, 2]), copy=copied).matrix, copy[[5, 2]], rtol=1e-5)


def test_a_constant_column_stays() -> None:
    x = np.column_stack([np.full(10_001, 0.1), np.arange(10_001.0)])
    assert Features.of(x).scaled()[1][0] == 1.0
    assert Features.of(x.astype(np.float32)).scaled()[1][0] == 1.0
