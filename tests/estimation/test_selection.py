from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clickharvest.estimation.selection import fold_weights


@given(st.integers(2, 60), st.integers(2, 6), st.integers(0, 5))
def test_every_query_is_kept_aside_once_and_folds_are_even(queries: int, folds: int, seed: int) -> None:
    folds = min(folds, queries)
    aside = fold_weights(queries, folds, seed)
    assert aside.sum(axis=0).tolist() == [1.0] * queries
    assert np.ptp(aside.sum(axis=1)) <= 1
    assert np.array_equal(aside, fold_weights(queries, folds, seed))
