"""Logs of places: what the columns make of them, and what they do not go with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from clickharvest import harvest, read_log
from clickharvest.errors import InputError
from clickharvest.harvesting import LoggedPlacements, Swap, read_interventions

pytestmark = pytest.mark.usefixtures("one_duckdb")

ROWS: dict[str, list[Any]] = {
    "query": ["q"] * 6,
    "doc": list("aabbcc"),
    "page": [1, 2, 1, 2, 1, 2],
    "position": [1, 10, 2, 1, 10, 2],
    "slot": ["top", "side", "top", "side", "end", "top"],
    "click": [1, 0, 1, 1, 0, 1],
}


def of(**changed: Any) -> pa.Table:
    return pa.table(ROWS | changed)


def test_columns_become_numbers_with_a_table(tmp_path: Path) -> None:
    log = read_log(of(), place=("page", "position"))
    assert log.places is not None
    assert log.places.labels == ((1, 1), (1, 2), (1, 10), (2, 1), (2, 2), (2, 10))
    assert not log.has("page")  # the number of a page tells no view apart
    rows = log.engine.fetch(log.table.order_by("doc", "position"), task="").to_pylist()
    assert [row["position"] for row in rows] == [1, 6, 2, 4, 3, 5]
    harvest(log).write(tmp_path / "harvest.parquet")
    again = read_interventions(tmp_path / "harvest.parquet")
    assert again.places == log.places
    assert str(again).count("6 places (page, position)") == 1
    for places in ({"columns": ["a"]}, log.places.to_dict() | {"labels": [[1, 1]]}):
        about = {"clickharvest": json.dumps(again.metadata | {"places": places})}
        pq.write_table(again.to_arrow().replace_schema_metadata(about), tmp_path / "forged.parquet")
        with pytest.raises(InputError, match=r"forged\.parquet"):
            read_interventions(tmp_path / "forged.parquet")


@pytest.mark.parametrize("place", ["page,position", "slot"])
def test_a_csv_file_gives_the_same_places_as_numbers(place: str, tmp_path: Path) -> None:
    pc.write_csv(of(), tmp_path / "log.csv")
    columns = tuple(place.split(","))
    one, two = (read_log(source, place=columns) for source in (of(), tmp_path / "log.csv"))
    assert one.places == two.places


def test_one_column_of_numbers_is_a_list() -> None:
    log = read_log(of(), place="position")
    assert log.places is None
    assert np.array_equal(harvest(log).position, harvest(read_log(of(), page="")).position)


@pytest.mark.parametrize(
    ("table", "options", "told"),
    [
        (of(slot=[*"abcd", None, "a"]), {"place": "slot"}, "column 'slot': 1 rows are empty"),
        (of(slot=[*"abcd", " ", ""]), {"place": "slot"}, "column 'slot': 2 rows are empty"),
        (of(page=[1.0, float("nan"), 1, 1, 1, 1]), {"place": ("page", "slot")}, "column 'page': 1 rows are empty"),
        (of(slot=["a", "a ", "a", "a", "a", "a"]), {"place": "slot"}, "two places read alike, 'a' and 'a '"),
        (of(), {"place": "shelf"}, "--place shelf: no column 'shelf', found query"),
        (of(), {"place": ("slot", "slot")}, "named twice"),
        (of(), {"place": "slot", "context": ["slot"]}, "named by --place and --context"),
        (of(), {"place": "slot", "position": "position"}, "--place slot does not go with --position:"),
        (of(), {"place": "slot", "position_base": 0}, "does not go with --position-base 0"),
        (of(), {"place": "slot", "original": "position"}, "does not go with --original"),
        (of(), {"place": "slot", "repeat": "first"}, "does not go with --repeat"),
        (of(slot=[{"a": 1}] * 6), {"place": "slot"}, "expected one plain value per row"),
    ],
)
def test_what_cannot_be_a_place_is_told(table: pa.Table, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        read_log(table, **options)


def test_an_identifier_is_no_place() -> None:
    n = 2_001
    table = pa.table({"query": ["q"] * n, "doc": [0] * n, "slot": [f"s{i}" for i in range(n)], "click": [1] * n})
    with pytest.raises(InputError, match="more than 2,000 places"):
        read_log(table, place="slot")


def test_designs_of_ranks_do_not_go_with_places_but_logged_probabilities_do() -> None:
    log = read_log(of(propensity_of_placement=[0.5] * 6), place="slot", page="")
    for options in ({"max_position": 2}, {"design": Swap.uniform(3)}):
        with pytest.raises(InputError, match=r"places \(slot\) have no ranks"):
            harvest(log, **options)  # type: ignore[arg-type]
    assert harvest(log, design=LoggedPlacements()).exposure.tolist() == [0.5] * 6


def test_the_last_digits_of_long_numbers_are_told_apart() -> None:
    log = read_log(of(position=[2**53 + k for k in (1, 2, 3, 1, 2, 3)]), place=["position", "slot"])
    assert log.places is not None
    assert {label[0] - 2**53 for label in log.places.labels} == {1, 2, 3}  # type: ignore[operator]


@pytest.mark.parametrize("name", ["_clickharvest_place", "_clickharvest_State"])
def test_columns_called_as_ours_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"the column '{name}' has a name .*rename it"):
        read_log(of(**{name: [1] * 6}), place=["slot"])
    pc.write_csv(of(**{name: [1] * 6}), tmp_path / "log.csv")
    with pytest.raises(InputError, match=f"log.csv: the column '{name}'"):
        read_log(tmp_path / "log.csv")
