from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions, is_interventions, read_interventions

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


def test_writing_and_reading_changes_nothing(tmp_path: Path) -> None:
    interventions = Interventions(
        unit=np.array([0, 0]),
        query=np.array(["it's <b>", "it's <b>"], dtype=object),
        position=np.array([1, 4]),
        exposure=np.array([0.25, 0.75]),
        clicks=np.array([0, 1]),
        impressions=np.array([0, 5]),
        contexts={"länge": np.array([1.5, np.nan]), "x": np.array([True, False])},
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
        ({"unit": None}, "lacks the columns unit"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_interventions(file_of(tmp_path, **changed))


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
