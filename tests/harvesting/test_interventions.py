from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.reading import is_interventions, read_interventions
from clickharvest.planning.traffic import plan_from_log

pytestmark = pytest.mark.usefixtures("one_duckdb")

COLUMNS: dict[str, list[Any]] = {
    "unit": [0, 0, 1, 1],
    "query": ["q", "q", "r", "r"],
    "position": [1, 2, 1, 3],
    "exposure": [3.0, 1.0, 2.0, 2.0],
    "clicks": [2, 0, 0, 0],
    "impressions": [3, 1, 2, 2],
    "device": ["phone", "phone", None, None],
}


def file_of(folder: Path, **changed: Any) -> Path:
    columns = {name: values for name, values in (COLUMNS | changed).items() if values is not None}
    pq.write_table(pa.table(columns), folder / "interventions.parquet")
    return folder / "interventions.parquet"


def test_a_foreign_file_is_read_with_every_further_column_as_context(tmp_path: Path) -> None:
    interventions = read_interventions(file_of(tmp_path))
    assert interventions.n_units == 2
    assert interventions.exposure_kind == "realised"
    assert interventions.contexts["device"].tolist() == ["phone", "phone", None, None]


def test_foreign_exposures_that_are_no_impressions_are_design(tmp_path: Path) -> None:
    assert read_interventions(file_of(tmp_path, exposure=[0.5, 0.5, 0.2, 0.8])).exposure_kind == "design"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([0, 86_400_000_000], pa.timestamp("us")), ["1970-01-01 00:00:00", "1970-01-02 00:00:00"]),
        (pa.array([-62_200_000_000_000, 0], pa.timestamp("ms")), ["-0002-12-17 14:13:20", "1970-01-01 00:00:00"]),
        (pa.array([0, 1], pa.date32()), ["1970-01-01", "1970-01-02"]),
        (pa.array([Decimal("1.50"), Decimal("2.25")]), ["1.50", "2.25"]),
        (pa.array([b"a", b"b"]), ["a", "b"]),
        (pa.array([0.5, float("nan")]), ["0.5", "nan"]),
    ],
)
def test_queries_of_a_foreign_file_are_texts_that_json_holds(tmp_path: Path, values: Any, expected: list[str]) -> None:
    twice = values.take(pa.array([0, 0, 1, 1]))
    interventions = read_interventions(file_of(tmp_path, query=twice, clicks=[2, 1, 1, 1], device=twice))
    assert interventions.query.tolist() == [expected[0]] * 2 + [expected[1]] * 2
    assert expected[0] in json.dumps(diagnose(interventions).to_dict(), allow_nan=False)
    assert json.dumps(plan_from_log(interventions).to_dict(), allow_nan=False)


def test_writing_and_reading_changes_nothing(tmp_path: Path) -> None:
    interventions = Interventions(
        unit=np.array([0, 0]),
        query=np.array(["it's <b>", "it's <b>"], dtype=object),
        position=np.array([1, 4]),
        exposure=np.array([0.25, 0.75]),
        clicks=np.array([0, 1]),
        impressions=np.array([0, 5]),
        contexts={"länge": np.array([1.5, np.nan]), "x": np.array([True, False])},
        only_clicked_pages=True,
        exposure_kind="design",
        unit_kind="query",
    )
    interventions.write(tmp_path / "out.parquet")
    again = read_interventions(tmp_path / "out.parquet")
    assert again.to_arrow().equals(interventions.to_arrow(), check_metadata=True)
    assert (again.exposure_kind, again.unit_kind) == ("design", "query")
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_rows_in_any_order_are_sorted(tmp_path: Path) -> None:
    backwards = {name: values[::-1] for name, values in COLUMNS.items()}
    assert (
        read_interventions(file_of(tmp_path, **backwards))
        .to_arrow()
        .equals(read_interventions(file_of(tmp_path)).to_arrow())
    )


def test_clicked_keeps_whole_units() -> None:
    interventions = Interventions(**{name: np.array(values) for name, values in COLUMNS.items() if name != "device"})
    assert interventions.clicked().position.tolist() == [1, 2]
    assert str(interventions.take(np.zeros(4, dtype=bool))) == "Interventions: none"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"exposure": [0.0, 1.0, 1.0, 1.0]}, "'exposure': 1 rows are not positive"),
        ({"exposure": [float("nan"), 1.0, 1.0, 1.0]}, "'exposure': 1 rows are not positive"),
        ({"exposure": ["a", "b", "c", "d"]}, "'exposure' holds"),
        ({"position": [0, 2, 1, 3]}, "'position': 1 rows are less than 1"),
        ({"position": [1.5, 2, 1, 3]}, "'position' holds float64"),
        ({"clicks": [4, 0, 0, 0]}, "more than the impressions"),
        ({"clicks": [None, 0, 0, 0]}, "'clicks': 1 rows are empty"),
        ({"unit": None}, "lacks the column unit of"),
        ({"device": [["a"], ["a", "b"], [], ["c"]]}, "'device' is of type list"),
        ({"query": [b"\xff"] * 4}, "'query' is of type binary"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_interventions(file_of(tmp_path, **changed))


IMPOSSIBLE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a row twice": ({"position": [2, 2, 1, 3]}, {}, "'position': 1 rows repeat a unit's position, such as unit 0"),
    "queries": ({"query": ["q", "r", "s", "s"]}, {}, "'query': 1 rows change the query inside a unit"),
    "contexts": ({"device": ["a", "b", "c", "c"]}, {}, "'device': 1 rows change the context inside a unit"),
    "an empty context": ({"device": ["a", None, "c", "c"]}, {}, "'device': 1 rows change the context"),
    "contexts that are said to be one": (
        {"device": ["a", "b", "c", "c"]}, {"unit_kind": "context"}, "say --unit query"
    ),
    "exposures above 1": ({"exposure": [3.5, 1.0, 2.0, 2.0]}, {}, "'exposure': 3 rows are above 1, such as unit 0"),
    "realised exposures": (
        {"exposure": [0.5, 1.0, 2.0, 2.0]}, {"exposure_kind": "realised"}, "'exposure': 1 rows are not the impressions"
    ),
    "infinite units": ({"unit": [0, 0, float("inf"), float("inf")]}, {}, "'unit' holds infinite or huge numbers"),
    "durations": ({"clicks": [datetime.timedelta(1)] * 4}, {}, "'clicks' holds timedelta64"),
    "huge clicks": ({"clicks": [1e300, 0, 0, 0]}, {}, "'clicks' holds infinite or huge numbers"),
    "unknown exposures": ({}, {"exposure_kind": "guessed"}, "exposure_kind 'guessed': expected realised or design"),
    "unknown units": ({}, {"unit_kind": "page"}, "unit_kind 'page': expected context or query"),
    "no kind at all": ({}, {"unit_kind": ["context"]}, "unit_kind"),
    "a context that is missing": ({}, {"context": ["device", "age"]}, "lacks the context column 'age'"),
    "a context that is no list": ({}, {"context": "device"}, "expected a list of columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_harvest_leaves_is_refused(tmp_path: Path, name: str) -> None:
    changed, metadata, message = IMPOSSIBLE[name]
    table = pq.read_table(file_of(tmp_path, **changed))
    about = {"clickharvest": json.dumps(metadata)} if metadata else None
    pq.write_table(table.replace_schema_metadata(about), tmp_path / "i.parquet")
    with pytest.raises(InputError, match=message):
        read_interventions(tmp_path / "i.parquet")


@pytest.mark.parametrize("written", ["{", "[]", "7", '"x"'])
def test_metadata_that_say_nothing_are_refused(tmp_path: Path, written: str) -> None:
    table = pq.read_table(file_of(tmp_path)).replace_schema_metadata({"clickharvest": written})
    pq.write_table(table, tmp_path / "i.parquet")
    with pytest.raises(InputError, match="metadata that are no JSON"):
        read_interventions(tmp_path / "i.parquet")


def test_units_of_queries_hold_several_contexts(tmp_path: Path) -> None:
    """As the query that `--emit-sql --unit query` prints leaves them: without our metadata."""
    several = file_of(tmp_path, position=[1, 1, 1, 3], device=["a", None, "c", "c"])
    assert read_interventions(several, unit="query").unit_kind == "query"
    doubled = file_of(tmp_path, position=[1, 1, 1, 3], device=["a", "a", "c", "c"])
    with pytest.raises(InputError, match="'position': 1 rows repeat a unit's position"):
        read_interventions(doubled, unit="query")


def test_other_files_are_no_interventions(tmp_path: Path) -> None:
    assert is_interventions(file_of(tmp_path))
    assert not is_interventions(file_of(tmp_path, unit=None))
    (tmp_path / "text.parquet").write_text("no")
    assert not is_interventions(tmp_path / "text.parquet")
    assert not is_interventions(tmp_path / "absent.parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_interventions(tmp_path / "text.parquet")
    with pytest.raises(InputError, match="no file"):
        read_interventions(tmp_path / "absent.parquet")


def test_queries_that_are_lists_are_refused(tmp_path: Path) -> None:
    rows = {"unit": [1, 1], "query": [[1, 2], [1, 2]], "position": [1, 2]}
    counts = {"exposure": [2.0, 2.0], "clicks": [1, 1], "impressions": [2, 2]}
    pq.write_table(pa.table(rows | counts), tmp_path / "i.parquet")
    with pytest.raises(InputError, match=r"column 'query' is of type list.*one plain value"):
        read_interventions(tmp_path / "i.parquet")


@pytest.mark.parametrize("told", [10**400, -1, "many"])
def test_a_footer_with_clicks_beyond_all_bounds_tells_of_none(tmp_path: Path, told: Any) -> None:
    """A share of them is told by the fit."""
    rows = {"unit": [1, 1], "query": ["q", "q"], "position": [1, 2]}
    counts = {"exposure": [2.0, 2.0], "clicks": [1, 1], "impressions": [2, 2]}
    footer = {"clickharvest": json.dumps({"thinned_from": told})}
    pq.write_table(pa.table(rows | counts).replace_schema_metadata(footer), tmp_path / "i.parquet")
    assert read_interventions(tmp_path / "i.parquet").thinned_from == 0
