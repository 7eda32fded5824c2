"""Displays: a log as arrays of numbers, every row counted once and known by what it shares with others."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.testing as npt
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from checks.worlds import ENGINE, QUERIES, WIDE, world
from clickharvest import harvest, read_log
from clickharvest.checks import Displays, log_rows, read_displays
from clickharvest.checks.checking import displays_of

LOG: dict[str, Any] = {
    "query": ["b", "b", "a", "a", "b", "b"],
    "doc": ["x", "y", "x", "z", "y", "x"],
    "position": [1, 2, 1, 2, 1, 2],
    "click": [1, 0, 0, 1, 1, 0],
}


def read(more: dict[str, Any] | None = None, unit: Any = "context", **roles: Any) -> Displays:
    return read_displays(read_log(pa.table(LOG | (more or {})), engine=ENGINE, **roles), unit)


def together(number: NDArray[Any] | None, names: list[Any]) -> bool:
    """Return whether rows have one number just where they have one name."""
    assert number is not None
    numbers = np.asarray(number)
    same_name = np.array([[one == other for other in names] for one in names])
    return bool(((numbers[:, None] == numbers) == same_name).all())


def test_equal_names_have_equal_numbers() -> None:
    more = {
        "user": [7, 7, 9, 9, 7, 7],
        "page": ["p", "p", "q", "q", "r", "r"],
        "ranker": ["f", "f", "g", "g", "g", "g"],
    }
    found = read(more)
    assert len(found) == 6
    assert together(found.query, LOG["query"])
    assert together(found.unit, list(zip(LOG["query"], LOG["doc"], strict=True)))
    assert together(found.user, more["user"])
    assert together(found.page, more["page"])
    assert together(found.ranker, more["ranker"])
    assert found.position.tolist() == LOG["position"]
    assert found.clicks.tolist() == LOG["click"]
    assert found.shown.tolist() == [1] * 6
    assert not found.counted


def test_what_the_log_lacks_is_none() -> None:
    found = read()
    assert (found.user, found.page, found.ranker, found.time, found.viewer) == (None,) * 5
    assert found.contexts == {}


@pytest.mark.parametrize("empty", [[None, None, "v", "v", None, None], [None, None, 0, 0, None, None]])
def test_who_saw_a_page_is_its_page_where_the_user_is_unknown(empty: list[Any]) -> None:
    page = [5, 5, 1, 1, 2, 2]
    found = read({"user": empty, "page": page})
    assert found.user is not None
    assert [number < 0 for number in found.user] == [name is None for name in empty]
    assert found.user[~np.isin(empty, [None])].min() == 0
    assert together(
        found.viewer, [user if user is not None else ("page", p) for user, p in zip(empty, page, strict=True)]
    )
    assert together(read({"page": page}).viewer, page)
    assert together(read({"user": [1, 1, 2, 2, 3, 3], "page": page}).viewer, [1, 1, 2, 2, 3, 3])


def test_counted_rows_keep_their_counts() -> None:
    counts = {"clicks": [3, 0, 2, 1], "impressions": [10, 20, 5, 0]}
    log = {"query": ["q"] * 4, "doc": list("abcd"), "position": [1, 2, 3, 4], **(counts | {"clicks": [3, 0, 2, 0]})}
    found = read_displays(read_log(pa.table(log), engine=ENGINE))
    assert found.counted
    assert found.shown.tolist() == [10, 20, 5], "rows that were never shown are no displays"
    assert found.clicks.tolist() == [3, 0, 2]


def test_context_columns_are_kept_under_their_names() -> None:
    """Also under those of the columns that displays have themselves."""
    more = {"shown": [1.5, 2.5, 1.5, 2.5, 1.5, 2.5], "doubts": list("ababab"), "counted": [True, False] * 3}
    found = read(more, context=list(more))
    assert list(found.contexts) == list(more)
    for name, values in more.items():
        assert found.contexts[name].tolist() == values
    assert found.shown.tolist() == [1] * 6


def test_contexts_tell_units_apart_or_not() -> None:
    device = ["m", "m", "m", "m", "d", "d"]
    found = read({"device": device}, context=["device"])
    assert together(found.unit, list(zip(LOG["query"], LOG["doc"], device, strict=True)))
    found = read({"device": device}, unit="query", context=["device"])
    assert together(found.unit, list(zip(LOG["query"], LOG["doc"], strict=True)))
    assert found.contexts["device"].tolist() == device


DAY = datetime.datetime(2024, 5, 1)


@pytest.mark.parametrize(
    ("time", "rank"),
    [
        ([30, -5, -5, 10, 1000, 30], [2, 0, 0, 1, 3, 2]),
        ([0.5, 0.25, 0.25, 0.125, 1e9, 0.5], [2, 1, 1, 0, 3, 2]),
        (["2024-03", "2024-01", "2024-01", "2024-02", "2025-01", "2024-03"], [2, 0, 0, 1, 3, 2]),
        ([DAY + datetime.timedelta(seconds=s) for s in (9, 1, 1, 2, 60, 9)], [2, 0, 0, 1, 3, 2]),
        ([DAY.date() + datetime.timedelta(days=d) for d in (9, 1, 1, 2, 60, 9)], [2, 0, 0, 1, 3, 2]),
    ],
)
def test_times_are_ranks_whatever_their_type(time: list[Any], rank: list[int]) -> None:
    found = read({"time": time})
    assert found.time is not None
    assert found.time.tolist() == rank


def test_large_logs_are_thinned_by_whole_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    log = world(0, 2_000).draw().log()
    whole = read_displays(log)
    monkeypatch.setattr(log_rows, "MOST_ROWS", len(whole) // 2)
    some = read_displays(log)
    assert 0.2 * len(whole) < len(some) < 0.8 * len(whole)
    rows, kept = (np.bincount(one.query)[np.unique(one.query)].tolist() for one in (whole, some))
    assert set(kept) <= set(rows), "queries stay whole"
    assert 5 < len(kept) < QUERIES
    again = read_displays(log)
    for name in ("query", "unit", "position", "clicks", "user", "page"):
        npt.assert_array_equal(getattr(again, name), getattr(some, name))
    assert some.page is not None
    assert set(np.bincount(some.page).tolist()) == {WIDE}, "pages stay whole"


def test_a_log_of_so_many_rows_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    log = world(0, 500).draw().log()
    monkeypatch.setattr(log_rows, "MOST_ROWS", 500 * WIDE)
    assert len(read_displays(log)) == 500 * WIDE


def test_some_rows_keep_their_numbers() -> None:
    found = read({"user": [7, 7, 9, 9, 7, 7], "device": list("mmmmdd")}, context=["device"])
    some = found.take(np.array([5, 2]))
    assert some.position.tolist() == [2, 1]
    assert some.contexts["device"].tolist() == ["d", "m"]
    assert found.user is not None
    assert some.user is not None
    assert some.user.tolist() == found.user[[5, 2]].tolist()
    assert some.unit.tolist() == found.unit[[5, 2]].tolist()
    assert some.time is None


def test_interventions_are_displays_without_people() -> None:
    interventions = harvest(world(0, 1_000).draw().log())
    found = displays_of(interventions)
    assert found.counted
    assert found.clicks.sum() == interventions.clicks.sum()
    npt.assert_allclose(found.shown, interventions.exposure)
    assert together(found.unit[:200], interventions.unit[:200].tolist())
    assert (found.user, found.page, found.ranker, found.time) == (None,) * 4
