"""Numbers of browsing states."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.click_models.browsing.fitted import (
    MOST_RANKS,
    n_states,
    number_of,
    require_few,
    state_places,
    states_of,
)
from clickharvest.errors import InputError


def test_numbers_and_states_are_one_to_one_and_in_order() -> None:
    rank, last = np.tril_indices(200, -1)
    numbers = number_of(rank, last)
    assert numbers.tolist() == list(range(1, len(rank) + 1))
    back = states_of(numbers)
    assert np.array_equal(back[0], rank)
    assert np.array_equal(back[1], last)


def test_ranks_up_to_k_have_the_numbers_up_to_their_count() -> None:
    for ranks in (1, 2, 7, 60):
        numbers = [int(number_of(k, j)) for k in range(1, ranks + 1) for j in range(k)]
        assert numbers == list(range(1, n_states(ranks) + 1))


def test_the_table_of_states_names_them_by_number() -> None:
    places = state_places(4)
    assert len(places) == 10
    assert places.labels[int(number_of(4, 2)) - 1] == (4, 2)


def test_too_many_ranks_are_refused() -> None:
    require_few(MOST_RANKS)
    with pytest.raises(InputError, match="61 positions, which make 1,891 browsing states: expected at most 60"):
        require_few(MOST_RANKS + 1)
