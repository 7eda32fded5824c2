"""Tables of places: natural order, names, anchors, files."""

from __future__ import annotations

from typing import Any

import pytest

from clickharvest.errors import InputError
from clickharvest.positions.places import Places, find_anchor, name_places

GRID = Places.of(("row", "column"), [(i, j) for i in (2, 10, 1) for j in (1, 2)])


def test_numbers_sort_numerically_and_texts_alphabetically() -> None:
    assert GRID.labels == ((1, 1), (1, 2), (2, 1), (2, 2), (10, 1), (10, 2))
    assert Places.of(("page",), [("10",), ("9",), ("1",)]).labels == ((1,), (9,), (10,))
    assert Places.of(("slot",), [("top",), ("9",), ("10",)]).labels == (("10",), ("9",), ("top",))
    mixed = Places.of(("rank", "slot"), [("2", "b"), ("2", "a"), ("1.5", "a")])
    assert mixed.labels == ((1.5, "a"), (2, "a"), (2, "b"))
    # Texts that are one number stay texts, each of its own.
    assert Places.of(("slot",), [("1",), ("01",)]).labels == (("01",), ("1",))


@pytest.mark.parametrize("pair", [("top", "top "), ("a\x1b", "a\x07"), ("a  b", "a b")])
def test_places_that_read_alike_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="two places read alike"):
        Places.of(("slot",), [(text,) for text in pair])


def test_long_texts_that_begin_alike_are_places_of_their_own() -> None:
    assert len(Places.of(("slot",), [("recommended for you because you bought " + text,) for text in "ab"])) == 2


def test_an_anchor_is_a_number_or_a_place() -> None:
    assert [GRID.find(anchor) for anchor in (3, "3", "2,1", "2, 1", (2, 1))] == [3] * 5
    slots = Places.of(("slot",), [("top",), ("side",)])
    assert (slots.find("top"), find_anchor("side", slots), find_anchor("4", None)) == (2, 1, 4)
    with pytest.raises(InputError, match=r"no place '3,1' \(row, column\): expected one of the 6 places, such as 1,1"):
        GRID.find("3,1")
    with pytest.raises(InputError, match="the anchor is top: expected a position"):
        find_anchor("top", None)


def test_many_places_are_named_in_one_line() -> None:
    many = Places.of(("slot",), [(f"s{i:03d}",) for i in range(500)])
    assert name_places(range(1, 501), many).endswith("slot s005 and 494 more")
    assert name_places([1, 5], GRID) == "row 1, column 1 and row 10, column 1"


def test_a_table_survives_json_and_a_damaged_one_is_refused() -> None:
    assert Places.from_dict(GRID.to_dict()) == GRID
    told = GRID.to_dict()
    for damaged in (
        [], told | {"columns": ["row"]}, told | {"labels": [[1, 1], [1, 1]]}, told | {"labels": [[1, None]]},
        told | {"labels": [[1, float("nan")]]}, told | {"columns": ["row", "row"]}, told | {"labels": []},
    ):  # fmt: skip
        with pytest.raises(InputError):
            Places.from_dict(damaged)


def test_another_log_numbers_places_otherwise() -> None:
    other = Places.of(("row", "column"), [(2, 1), (1, 1), (3, 3)])
    assert GRID.numbers_of(other) == (1, 3, 7)
    with pytest.raises(InputError, match="--place row,column"):
        GRID.numbers_of(Places.of(("slot",), [("top",)]))


@pytest.mark.parametrize("anchor", ["0", "-1", "top", "1.5", "99999999999999999999", 0])
def test_an_anchor_of_a_list_is_a_position(anchor: str | int) -> None:
    with pytest.raises(InputError, match="expected a position from 1 to"):
        find_anchor(anchor, None)


def test_places_of_another_table_are_found_by_how_they_read() -> None:
    """One text among the rows of a log makes all of them texts: places that the model knows stay those."""
    model, log = Places.of(("row",), [(1,), (2,)]), Places.of(("row",), [("1",), ("2",), ("end",)])
    assert model.numbers_of(log) == (1, 2, 3)


@pytest.mark.parametrize("label", [{"a": 1}, [1], 2**63, 10**400, True, None, float("inf")])
def test_labels_that_are_no_values_of_tables_are_refused(label: Any) -> None:
    with pytest.raises(InputError, match="expected a number or text"):
        Places.from_dict({"columns": ["row"], "labels": [[1], [label]]})


def test_numbers_beyond_tables_stay_what_tables_hold() -> None:
    assert Places.of(("row",), [(1e300,), (2.0,)]).labels == ((2,), (1e300,))
    assert isinstance(Places.of(("row",), [("1e300",), ("2",)]).labels[1][0], float)


def test_columns_of_the_result_are_no_columns_of_places() -> None:
    with pytest.raises(InputError, match="'Propensity', as one of the result: rename"):
        Places.of(("Propensity", "row"), [(1, 1)])
