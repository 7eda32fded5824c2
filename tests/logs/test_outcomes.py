"""What came of clicks, as a log of its own: counted against plain Python, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.harvesting.collecting import harvest
from clickharvest.logs.outcomes import after_click
from clickharvest.logs.reading import read_log

pytestmark = pytest.mark.usefixtures("one_duckdb")


def rows(**columns: Any) -> pa.Table:
    """Two documents of a query at two positions, twice."""
    shown = {"query": ["q"] * 8, "doc": ["a", "a", "b", "b"] * 2, "position": [1, 2, 1, 2] * 2}
    return pa.table(shown | {"click": [1, 1, 1, 1, 1, 1, 0, 1]} | columns)


def test_clicks_are_displays_and_outcomes_are_clicks() -> None:
    after = after_click(read_log(rows(bought=[1, 1, 0, 1, 0, 0, 0, 0])), "bought")
    assert after.to_dict() == {"clicks": 7, "outcomes": 3, "without_click": 0, "beyond_clicks": 0}
    found = harvest(after.log)
    cells = zip(found.unit, found.position, found.clicks, found.exposure, strict=True)
    assert [tuple(map(int, cell)) for cell in cells] == [(0, 1, 1, 2), (0, 2, 1, 2), (1, 1, 0, 1), (1, 2, 1, 2)]


def test_counted_rows_give_what_single_rows_give() -> None:
    counted = pa.table(
        {"query": ["q"] * 4, "doc": ["a", "a", "b", "b"], "position": [1, 2, 1, 2], "clicks": [2, 2, 1, 2],
         "impressions": [2, 2, 2, 2], "bought": [1, 1, 0, 1]}
    )  # fmt: skip
    found = harvest(after_click(read_log(counted), "bought").log)
    expected = harvest(after_click(read_log(rows(bought=[1, 1, 0, 1, 0, 0, 0, 0])), "bought").log)
    for name in ("unit", "position", "clicks", "exposure", "impressions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_outcomes_without_a_click_and_beyond_one_are_counted_and_told() -> None:
    log = read_log(rows(bought=[3, 1, 0, None, 0, 0, 2, 0]))
    with pytest.warns(
        HarvestWarning, match="2 outcomes on rows without a click and 2 outcomes beyond one a click left"
    ):
        after = after_click(log, "bought")
    assert after.to_dict() == {"clicks": 7, "outcomes": 2, "without_click": 2, "beyond_clicks": 2}
    assert after.left_out.endswith("left out of 6")
    assert harvest(after.log).clicks.max() == 1


@pytest.mark.parametrize("words", [["yes", "no"], ["True", "False"], ["1", "0"], [True, False], [1.0, 0.0]])
def test_words_and_text_count_as_numbers(words: list[Any]) -> None:
    bought = [words[0] if i in (0, 1, 3) else words[1] for i in range(8)]
    assert after_click(read_log(rows(bought=bought)), "BOUGHT").outcomes == 3


@pytest.mark.parametrize(
    ("bought", "outcome", "told"),
    [
        ([1, 0] * 4, "sold", "--outcome sold: no such column, found query, doc, position, click, bought"),
        ([1, 0] * 4, "click", "that is the column of click"),
        ([1, 0] * 4, "position", "that is the column of position"),
        ([0] * 8, "bought", "none of 7 clicks has the outcome"),
        ([0] * 6 + [1, 0], "bought", "none of 7 clicks has the outcome .*1 outcome on rows without a click"),
        ([1] * 6 + [0, 1], "bought", "all of 7 clicks have the outcome"),
        ([1, -1] * 4, "bought", "4 of 8 rows are no outcomes, such as -1, -1, -1; expected 0 or 1"),
        ([9.99, 0.0] * 4, "bought", "4 of 8 rows are no outcomes, such as 9.99"),
        ([float("nan"), 0.0] * 4, "bought", "4 of 8 rows are no outcomes"),
        (["a lot", "0"] * 4, "bought", "4 of 8 rows are no outcomes, such as 'a lot'"),
        ([[1], [0]] * 4, "bought", "expected numbers"),
    ],
)
def test_what_is_no_outcome_is_refused(bought: list[Any], outcome: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        after_click(read_log(rows(bought=bought)), outcome)


def test_contexts_and_merged_places_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be a context column as well"):
        after_click(read_log(rows(bought=[1, 0] * 4), context=["bought"]), "bought")
    pages = rows(bought=[1, 0] * 4, page=[1, 2, 1, 2, 3, 4, 3, 4])
    with pytest.raises(InputError, match="does not go with --repeat first"):
        after_click(read_log(pages, repeat="first"), "bought")
