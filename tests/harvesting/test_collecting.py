from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.collecting import harvest, harvest_to_parquet
from clickharvest.harvesting.designs import Rankings, Swap
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.reading import read_interventions
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

pytestmark = pytest.mark.usefixtures("one_duckdb")

ENGINE = DuckDBEngine()

impressions = st.fixed_dictionaries(
    {
        "query": st.sampled_from(["a", "b"]),
        "doc": st.sampled_from(["1", "2", "3"]),
        "position": st.integers(1, 4),
        "click": st.integers(0, 1),
        "device": st.sampled_from(["desk", "phone", None]),
        "length": st.sampled_from([1.5, 2.0, None]),
    }
)
# A unit seen at two positions, so that there is always something to harvest, and not clicked at one of them.
ANCHORED = [{"query": "z", "doc": "1", "position": p, "click": p % 2, "device": None, "length": None} for p in (1, 2)]
logs = st.lists(impressions, max_size=40).map(lambda rows: rows + ANCHORED)
quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SCHEMA = pa.schema(
    {"query": "str", "doc": "str", "position": "int64", "click": "int64", "device": "str", "length": "float64"}
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def harvested(source: pa.Table, **options: Any) -> Interventions:
    unit = options.pop("unit", "context")
    return harvest(read_log(source, engine=ENGINE, context=["device", "length"], **options), unit=unit)


def rows_of(interventions: Interventions) -> list[dict[str, Any]]:
    return interventions.to_arrow().to_pylist()


def expected(rows: list[dict[str, Any]], unit: tuple[str, ...]) -> list[dict[str, Any]]:
    """The harvest by its definition, in plain Python."""
    cells: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        cell = cells[tuple(row[key] for key in ("query", "device", "length", "doc", "position"))]
        cell[0] += row["click"]
        cell[1] += 1
    units: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for (query, device, length, doc, position), (clicks, shown) in cells.items():
        row = {"query": query, "device": device, "length": length, "doc": doc, "position": position}
        counts = {"exposure": float(shown), "clicks": clicks, "impressions": shown}
        units[tuple(row[key] for key in unit)].append(row | counts)
    kept = {key: members for key, members in units.items() if len({m["position"] for m in members}) > 1}
    empty_last = lambda values: tuple((value is None, value) for value in values)  # noqa: E731
    result = []
    for number, key in enumerate(sorted(kept, key=empty_last)):
        members = sorted(kept[key], key=lambda m: empty_last((m["position"], m["device"], m["length"])))
        result += [{"unit": number} | {k: v for k, v in m.items() if k != "doc"} for m in members]
    return result


@quick
@given(logs)
def test_harvest_equals_its_definition(rows: list[dict[str, Any]]) -> None:
    """Which knows no order of rows, no files and no names of documents: none of them matters."""
    assert rows_of(harvested(table(rows))) == expected(rows, ("query", "device", "length", "doc"))


@quick
@given(logs)
def test_contexts_inside_a_unit_equal_their_definition(rows: list[dict[str, Any]]) -> None:
    assert rows_of(harvested(table(rows), unit="query")) == expected(rows, ("query", "doc"))


@quick
@given(logs)
def test_aggregating_first_does_not_matter(rows: list[dict[str, Any]]) -> None:
    keys = ["query", "doc", "position", "device", "length"]
    counted = table(rows).group_by(keys).aggregate([("click", "sum"), ("click", "count")])
    counted = counted.rename_columns([*keys, "clicks", "impressions"])
    assert rows_of(harvested(counted)) == expected(rows, ("query", "device", "length", "doc"))


def test_max_position_leaves_lower_positions_out() -> None:
    rows = [
        {"query": "q", "doc": doc, "position": k, "click": k % 2} for doc, k in [("a", 1), ("a", 2), ("a", 3), ("b", 3)]
    ]
    log = read_log(pa.Table.from_pylist(rows))
    assert harvest(log).position.tolist() == [1, 2, 3]
    assert harvest(log, max_position=2).position.tolist() == [1, 2]


def test_integer_identifiers_stay_integers() -> None:
    shown = pa.table({"query": [7, 7], "doc": [1, 1], "position": [1, 2], "click": [1, 0]})
    assert harvest(read_log(shown)).query.dtype == np.int64


def test_nothing_shown_twice_is_not_identified(tmp_path: Any) -> None:
    log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
    with pytest.raises(NotIdentifiedError, match="no unit"):
        harvest(log)
    with pytest.raises(NotIdentifiedError, match="no unit"):
        harvest_to_parquet(log, tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"unit": "page"}, {"max_position": 1}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
    with pytest.raises(InputError):
        harvest(log, **options)


def test_the_file_equals_the_harvest_in_memory(tmp_path: Any) -> None:
    rows = [row | {"device": "it's", "length": 2.0} for row in ANCHORED] + ANCHORED
    log = read_log(table(rows), context=["device", "length"])
    for unit in ("context", "query"):
        in_memory = harvest(log, unit=unit)
        assert harvest_to_parquet(log, tmp_path / "out.parquet", unit=unit) == len(in_memory)
        read_back = read_interventions(tmp_path / "out.parquet")
        assert read_back.to_arrow().equals(in_memory.to_arrow(), check_metadata=True)


def test_the_real_log(yandex_log: Any) -> None:
    interventions = harvest(read_log(yandex_log, page="session"))
    clicked = interventions.clicked()
    assert clicked.n_units == 404
    assert clicked.clicks.sum() == 39_677


def test_any_context_name_will_do(toy_rankings: pa.Table) -> None:
    names = ["positions", "weight", "shown", "level", "early", "arm", "share", "part", "rows"]
    rows = [
        row | dict.fromkeys(names, 1.0) | {"click": row["position"] % 2, "original": row["position"], "time": 1}
        for row in toy_rankings.to_pylist()
    ]
    log = read_log(pa.Table.from_pylist(rows), context=names)
    for design in (None, Rankings(toy_rankings), Swap.uniform(3)):
        assert set(harvest(log, design=design).contexts) == set(names)
    assert [segment.column for segment in diagnose(log, design=Swap.uniform(3)).segments] == names


def test_counted_rows_never_shown_are_left_out() -> None:
    shown = {"query": ["q"] * 3, "doc": ["a"] * 3, "position": [1, 2, 3], "clicks": [1, 1, 0], "impressions": [2, 1, 0]}
    assert harvest(read_log(pa.table(shown))).position.tolist() == [1, 2]
    assert diagnose(read_log(pa.table(shown))).positions == (1, 2)
