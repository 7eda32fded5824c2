from __future__ import annotations

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.rank import RankingData, ranking_data, split_lists, take_lists


def mostly_unclicked() -> RankingData:
    """Twelve queries of two lists each; four are clicked, one more has a record of no clicks."""
    return ranking_data(
        np.zeros((48, 1)),
        np.arange(25) * 2,
        clicked=[0, 9, 18, 27, 40],
        clicks=[1, 2, 1, 1, 0],
        query=np.repeat(np.arange(12), 2),
    )


CLICKED = {0, 2, 4, 6}


@pytest.mark.parametrize("seed", range(5))
def test_the_share_held_out_is_one_of_the_queries_with_a_click(seed: int) -> None:
    data = mostly_unclicked()
    held = split_lists(data, 0.5, seed=seed)
    assert len(set(data.query[held])) == 2
    assert set(data.query[held]) <= CLICKED
    assert held.sum() == 2 * 2


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_two_queries_with_a_click_are_needed_on_either_side(share: float) -> None:
    with pytest.raises(InputError, match="of 4 queries with a click"):
        split_lists(mostly_unclicked(), share)


@pytest.mark.parametrize(("share", "held"), [(0.2, 2), (0.25, 2), (0.5, 5), (0.8, 8)])
def test_the_share_is_rounded_to_whole_queries(share: float, held: int) -> None:
    data = ranking_data(np.zeros((20, 1)), np.arange(11) * 2, clicked=np.arange(10) * 2)
    assert split_lists(data, share).sum() == held


def test_lists_taken_keep_all_that_belongs_to_them() -> None:
    data = ranking_data(
        np.arange(7)[:, None],
        [0, 2, 3, 7],
        clicked=[1, 2, 4, 6],
        propensity=[0.1, 0.2, 0.3, 0.4],
        clicks=[1, 2, 3, 4],
        query=["b", "a", "b"],
        impressions=[5, 6, 7],
    )
    part = take_lists(data, np.array([True, False, True]))
    assert part.features.matrix[:, 0].tolist() == [0, 1, 3, 4, 5, 6]
    assert (part.starts.tolist(), part.clicked.tolist()) == ([0, 2, 6], [1, 3, 5])
    assert (part.propensity.tolist(), part.clicks.tolist()) == ([0.1, 0.3, 0.4], [1, 3, 4])
    assert part.query.tolist() == [0, 0]
    assert part.impressions is not None
    assert part.impressions.tolist() == [5, 7]
