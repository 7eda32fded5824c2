"""The state of every row, from the clicks above it on its page, inside the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from clickharvest.click_models.browsing import browsing_log
from clickharvest.click_models.browsing.fitted import (
    MOST_RANKS,
    n_states,
    number_of,
    require_few,
    state_places,
    states_of,
)
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.reading import read_log
from clickharvest.logs.tallies import write_tally
from clickharvest.simulate import simulate_ab_log

PAGES = {
    "page": ["p", "p", "p", "p", "r", "r", "r"],
    "query": ["q"] * 4 + ["s"] * 3,
    "doc": list("abcd") + list("xyz"),
    "position": [1, 2, 3, 5, 2, 4, 9],
    "click": [0, 1, 1, 0, 1, 0, 0],
}
"""Two pages; ranks may leave gaps, and need not start at 1."""
STATES = [(1, 0), (2, 0), (3, 2), (5, 3), (2, 0), (4, 2), (9, 2)]


def states(log: ClickLog) -> dict[str, int]:
    rows = log.engine.fetch(log.table.select("doc", "position"), task="").to_pylist()
    return {row["doc"]: row["position"] for row in rows}


def shuffled(columns: dict[str, list[Any]]) -> pa.Table:
    table = pa.table(columns)
    return table.take(pa.array(np.random.default_rng(3).permutation(table.num_rows)))


EXPECTED = dict(zip(PAGES["doc"], (int(number_of(*state)) for state in STATES), strict=True))


def test_states_by_hand_whatever_the_order_of_rows() -> None:
    assert states(browsing_log(read_log(shuffled(PAGES)))) == EXPECTED


def test_a_log_of_text_counted_from_zero(tmp_path: Path) -> None:
    table = shuffled(PAGES | {"position": [k - 1 for k in PAGES["position"]], "click": list("nyynynn")})
    csv.write_csv(table, tmp_path / "log.csv")
    assert states(browsing_log(read_log(tmp_path / "log.csv", position_base=0))) == EXPECTED


def test_a_named_log_tells_its_states() -> None:
    log = browsing_log(read_log(shuffled(PAGES)), named=True)
    assert log.places is not None
    assert log.places.labels[EXPECTED["d"] - 1] == (5, 3)
    assert len(log.places) == 45


def test_thinning_takes_whole_pages() -> None:
    log = read_log(simulate_ab_log(pages=300, queries=40, seed=2)[0])
    whole, part = (
        {(row["page"], row["doc"]): row["position"] for row in own.engine.fetch(own.table, task="").to_pylist()}
        for own in (browsing_log(log), browsing_log(log.thinned(0.3)))
    )
    assert 0 < len(part) < len(whole)
    assert part == {row: whole[row] for row in part}


REFUSED = {
    "no page": (
        {name: column for name, column in PAGES.items() if name != "page"},
        "needs the page that each row stood on.*--page COLUMN",
    ),
    "counts": (
        {n: c for n, c in PAGES.items() if n != "click"} | {"clicks": [1] * 7, "impressions": [2] * 7},
        "one row per impression with a page column, found counts",
    ),
    "session": (PAGES | {"page": ["p"] * 7}, "1 of 1 pages show results of several queries, as a session does"),
    "shared": (PAGES | {"position": [1, 2, 2, 3, 2, 4, 9]}, "1 of 2 pages show several results at one position"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_logs_that_do_not_tell_what_is_above_are_refused(why: str) -> None:
    columns, message = REFUSED[why]
    with pytest.raises(InputError, match=message):
        browsing_log(read_log(pa.table(columns)))


def test_places_and_tallies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out --place position,page"):
        browsing_log(read_log(pa.table(PAGES), place=["position", "page"]))
    write_tally(read_log(pa.table(PAGES)), tmp_path / "tally.parquet")
    with pytest.raises(InputError, match="a tally has counted them away"):
        browsing_log(read_log(tmp_path / "tally.parquet"))


def test_rows_that_are_numbered_are_no_pages() -> None:
    """Nothing would ever be above: all weights would be those of results without a click above."""
    with pytest.raises(InputError, match="each of 7 pages shows one result alone"):
        browsing_log(read_log(pa.table(PAGES | {"page": list(range(7))})))


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
