"""Browsing states: the rank of a result, and the rank of the last click above it on its page (0 where there is none).

The states of K ranks are numbered from 1, by rank and then by last click, as one counts the cells of a triangle:

    (1, 0) → 1;   (2, 0) → 2, (2, 1) → 3;   (3, 0) → 4, (3, 1) → 5, (3, 2) → 6;   …   number = k (k − 1) / 2 + j + 1

so that what knows positions knows states by number, the first state is the top of the page, and all states of ranks up
to K have the numbers up to K (K + 1) / 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.positions.places import Places

Integers = NDArray[np.int64]

COLUMNS = ("position", "last_click")
"""The columns of a table of states."""
MOST_RANKS = 60
"""Ranks beyond which there are too many states, 1,830, for their matrices to be factored in minutes."""


def n_states(ranks: int) -> int:
    """Return how many states there are of so many ranks.

    Example:
        >>> n_states(3), n_states(10)
        (6, 55)
    """
    return ranks * (ranks + 1) // 2


def number_of(rank: ArrayLike, last: ArrayLike) -> Integers:
    """Return the numbers of states, [n].

    Args:
        rank: ranks from 1, [n].
        last: ranks of the last click above, 0 for none, [n].

    Example:
        >>> number_of([1, 2, 2, 3], [0, 0, 1, 2]).tolist()
        [1, 2, 3, 6]
    """
    k, j = np.asarray(rank, dtype=np.int64), np.asarray(last, dtype=np.int64)
    numbers: Integers = k * (k - 1) // 2 + j + 1
    return numbers


def states_of(number: ArrayLike) -> tuple[Integers, Integers]:
    """Return the ranks and the ranks of the last click above of numbered states, each [n].

    Example:
        >>> rank, last = states_of([1, 2, 3, 6])
        >>> rank.tolist(), last.tolist()
        ([1, 2, 2, 3], [0, 0, 1, 2])
    """
    n = np.asarray(number, dtype=np.int64)
    rank = np.ceil((np.sqrt(8.0 * n + 1) - 1) / 2).astype(np.int64)
    last: Integers = n - rank * (rank - 1) // 2 - 1
    return rank, last


def state_places(ranks: int) -> Places:
    """Return the states of so many ranks as a table of places.

    Example:
        >>> state_places(3).name(6), state_places(3).columns
        ('position 3, last_click 2', ('position', 'last_click'))
    """
    rank, last = states_of(np.arange(1, n_states(ranks) + 1))
    return Places(COLUMNS, tuple(zip(rank.tolist(), last.tolist(), strict=True)))


def require_few(ranks: int) -> None:
    """Raise an InputError where ranks make too many states."""
    if ranks > MOST_RANKS:
        raise InputError(
            f"results were shown at {ranks} positions, which make {n_states(ranks):,} browsing states: expected at "
            f"most {MOST_RANKS} positions; leave out what stood lower with --max-position {MOST_RANKS}"
        )
