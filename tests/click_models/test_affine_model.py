"""Affine models: what they say, their files, and what a forged file must not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from clickharvest import load_model
from clickharvest.click_models import AffineModel
from clickharvest.errors import InputError
from clickharvest.model import load_propensities
from clickharvest.model.storage import write_file

COVARIANCE = np.diag([0.0, 0.01, 0.5, 0.0, 0.001, 0.001])


def model(**changes: Any) -> AffineModel:
    own: dict[str, Any] = {
        "anchor": 1,
        "positions": (1, 2, 3),
        "slope": np.array([1.0, 0.5, 0.2]),
        "offset": np.array([0.0, -0.1, -0.05]),
        "covariance": COVARIANCE,
        "shown": (1, 2, 3, 7),
        "info": {"effective_queries": 1e6, "anchor_rate": 0.6, "units": 50, "clicks": 900},
    }
    return AffineModel(**own | changes)


def test_intervals_are_those_of_the_covariance() -> None:
    found = model().predict(level=0.95)
    assert found.slope_lower[1] == pytest.approx(0.5 * np.exp(-1.96 * 0.1 / 0.5), rel=1e-4)
    assert found.slope_upper[1] == pytest.approx(0.5 * np.exp(1.96 * 0.1 / 0.5), rel=1e-4)
    assert found.offset_upper[1] == pytest.approx(-0.1 + 1.96 * 0.001**0.5, rel=1e-4)
    assert found.supported.tolist() == [True, True, False, False]
    assert np.isnan(found.slope[3])


def test_corrected_clicks_have_the_anchors_scale_and_are_empty_where_nothing_is_known() -> None:
    corrected = model().correct([1, 0, 1, 1, 1, 1], [1, 2, 2, 3, 7, 9])
    assert corrected[:3].tolist() == pytest.approx([1.0, 0.1 / 0.5, 1.1 / 0.5])
    assert np.isnan(corrected[3:]).all()
    assert model().correct([30], [2], [100]).tolist() == pytest.approx([(30 + 100 * 0.1) / 0.5])


def test_the_floor_is_the_largest_lower_bound() -> None:
    variance = 0.1**2 / 0.5**4 * 0.01 + 0.001 / 0.5**2
    assert model().floor() == pytest.approx(0.1 / 0.5 - 1.6449 * variance**0.5, rel=1e-3)
    assert model(offset=np.array([0.0, 0.1, 0.05])).floor() == 0.0
    assert model(covariance=None).floor() is None


def test_the_test_of_offsets() -> None:
    test = model().offset_test()
    assert test is not None
    assert test[0] == pytest.approx(0.1 / 0.001**0.5)
    assert test[1] == pytest.approx(2 * 2 * student.sf(test[0], model().info["effective_queries"] - 1))
    assert model(covariance=None).offset_test() is None


def test_words(tmp_path: Path) -> None:
    text = str(model())
    assert max(map(len, text.splitlines())) <= 80
    assert "Offsets are needed (p = 0.00" in text
    assert "Cannot tell positions 3 and 7" in text or "Cannot tell positions 3, 7" in text
    told = model().describe()
    assert json.loads(json.dumps(told))["positions"][1]["slope"] == 0.5
    assert told["positions"][3]["slope"] is None


def test_a_file_gives_the_model_back_and_is_no_propensities(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model().save(path)
    loaded = load_model(path)
    assert isinstance(loaded, AffineModel)
    assert str(loaded) == str(model())
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    with pytest.raises(
        InputError, match="'affine', which is no examination propensities: use it with show, weigh or report"
    ):
        load_propensities(path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"anchor": 5}, "hold the anchor"),
        ({"anchor": "1"}, "expected an integer"),
        ({"positions": [1, 2]}, "shape"),
        ({"positions": [1, 3, 2]}, "ascend"),
        ({"info": {"clicks": "many"}}, "clicks"),
        ({"info": 3}, "info"),
        ({"provenance": 3}, "provenance"),
        ({"slope": np.array([2.0, 0.5, 0.2])}, "slope of the anchor"),
        ({"slope": np.array([1.0, np.nan, 0.2])}, "slope has the shape"),
        ({"covariance": -np.eye(6)}, "variance is negative"),
        ({"covariance": np.eye(2)}, "covariance has the shape"),
        ({"more": np.eye(2)}, "expected slope, offset, covariance"),
        ({"shown": list(range(1, 9_000))}, "more than 8,192 positions"),
    ],
)
def test_forged_files_are_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    header: dict[str, Any] = {
        "model": "affine", "anchor": 1, "positions": [1, 2, 3], "shown": [1, 2, 3], "info": {}, "provenance": None,
    }  # fmt: skip
    tensors: dict[str, Any] = {"slope": np.array([1.0, 0.5, 0.2]), "offset": np.zeros(3)}
    for name, value in changes.items():
        (tensors if isinstance(value, np.ndarray) else header)[name] = value
    write_file(tmp_path / "m.safetensors", header, tensors)
    with pytest.raises(InputError, match=told):
        load_model(tmp_path / "m.safetensors")


def test_clicks_whatever_the_result_are_told_only_where_offsets_are_needed() -> None:
    """Each bound by itself may be off by chance; with many queries the offsets of this model are far from 0."""
    assert model().floor() == pytest.approx(0.2 - 1.645 * np.sqrt(0.4**2 * 0.01 + 4 * 0.001), abs=1e-3)
    unsure = model(covariance=COVARIANCE * 50)
    assert unsure.offset_test()[1] > 0.05  # type: ignore[index]
    assert unsure.floor() == 0.0
    few = model(info={"effective_queries": 2.5, "anchor_rate": 0.6})
    assert few.floor() is None
    assert not [sentence for sentence in few.sentences() if "whatever" in sentence]


@pytest.mark.parametrize("queries", [1e299, -1.0, float("nan")])
def test_numbers_of_queries_beyond_all_bounds_are_refused(tmp_path: Path, queries: float) -> None:
    model(info={"effective_queries": queries}).save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"effective_queries .*expected a number from 0"):
        load_model(tmp_path / "m.safetensors")
