from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickharvest.harvesting.interventions import linked_positions, longest_linked_prefix
from clickharvest.words import spell_positions

pairs = st.dictionaries(
    st.sampled_from(list(itertools.combinations(range(1, 7), 2))),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


def reachable(pairs: dict[tuple[int, int], tuple[int, int]], start: int, forward: bool) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        k = waiting.pop()
        for (a, b), (at_a, at_b) in pairs.items():
            arrows = [(a, b)] * bool(at_a) + [(b, a)] * bool(at_b)
            steps = [end if forward else begin for begin, end in arrows if k == (begin if forward else end)]
            for step in steps:
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
    return seen


@given(pairs, st.integers(1, 6))
def test_linked_means_reachable_both_ways(clicks: dict[tuple[int, int], tuple[int, int]], anchor: int) -> None:
    columns = [[*map(int, column)] for column in zip(*((a, b, *c) for (a, b), c in clicks.items()), strict=True)]
    found = linked_positions(anchor, *(columns or [[], [], [], []]))
    assert set(found) == reachable(clicks, anchor, True) & reachable(clicks, anchor, False)
    assert list(found) == sorted(found)


def test_linked_positions_are_those_with_a_finite_estimate() -> None:
    """Positions 1-2 exchange clicks; 3 never wins: its likelihood grows as p_3 goes to 0."""
    shares = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    clicks = np.array([[3.0, 2.0, 0.0], [0.0, 4.0, 0.0]])

    def likelihood(log_p: np.ndarray) -> float:
        weights = shares * np.exp(log_p)
        chosen = np.divide(weights, weights.sum(1, keepdims=True), where=weights > 0, out=np.ones_like(weights))
        return float((clicks * np.log(chosen)).sum())

    falling = [likelihood(np.array([0.0, np.log(2 / 3), -depth])) for depth in (1, 10, 30)]
    assert falling == sorted(falling)
    assert linked_positions(1, [1, 2], [2, 3], [3, 4], [2, 0]) == (1, 2)


@pytest.mark.parametrize(("positions", "text"), [([], ""), ([4], "4"), ([2, 1], "1-2"), ([1, 3, 4, 5, 9], "1, 3-5, 9")])
def test_spelling(positions: list[int], text: str) -> None:
    assert spell_positions(positions) == text


def test_prefix() -> None:
    assert longest_linked_prefix([1, 2, 3], [1, 2, 3]) == 3
    assert longest_linked_prefix([1, 2, 3], [2, 3]) == 0
