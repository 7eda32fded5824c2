"""ONNX: every curve gives in onnxruntime what it gives in NumPy."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import CURVES, make_curve
from clickharvest.model.onnx import export_onnx
from clickharvest.model.propensities import Propensities
from clickharvest.positions.places import Places

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="the extra onnx is not installed")


def random_model(name: str, anchor: int, encoder: ContextEncoder | None, seed: int) -> Propensities:
    d = 0 if encoder is None else len(encoder.feature_names)
    curve = make_curve(name, (1, 2, 4, 7), anchor, d)
    random = np.random.default_rng(seed)
    params = {key: value + 0.3 * random.normal(size=value.shape) for key, value in curve.init(random).items()}
    return Propensities(curve, params, encoder, (1, 2, 3, 4, 7))


@pytest.mark.parametrize("anchor", [1, 4, 7])
@pytest.mark.parametrize("name", CURVES)
def test_onnxruntime_agrees_with_numpy(name: str, anchor: int, tmp_path: Path) -> None:
    encoder = ContextEncoder.fit({"device": ["phone", "desk", None], "age": [20, 40, 30]})
    x = np.random.default_rng(5).normal(size=(50, len(encoder.feature_names))).astype(np.float32)
    x[0] = 30.0
    for seed, (given, features) in enumerate([(encoder, x), (None, x[:, :0])]):
        model = random_model(name, anchor, given, seed)
        export_onnx(model, tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        found = session.run(["propensity"], {"x": features})[0]
        expected = model.predict_encoded(features)
        np.testing.assert_allclose(found, expected.propensity[:, expected.supported[0]], atol=1e-6, rtol=1e-6)
        assert (found[:, model.curve.anchor_index] == 1).all()


def test_metadata_names_positions_and_features(tmp_path: Path) -> None:
    encoder = ContextEncoder.fit({"device": ["phone", "desk"], "age": [20, 40]})
    model = random_model("linear", 2, encoder, 0)
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    assert about["positions"] == [1, 2, 4, 7]
    assert about["anchor"] == 2
    assert about["feature_names"] == list(encoder.feature_names)
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [("x", "tensor(float)", ["n", 4])]
    first = (tmp_path / "model.onnx").read_bytes()
    export_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == first


def test_without_onnx_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'clickharvest\[onnx\]'"):
        export_onnx(random_model("constant", 1, None, 0), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_tells_what_places_its_numbers_mean(tmp_path: Path) -> None:
    places = Places.of(("slot",), [(text,) for text in "abcdefg"])
    export_onnx(replace(random_model("linear", 1, None, 0), places=places), tmp_path / "model.onnx")
    metadata = onnxruntime.InferenceSession(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["places"]) == places.to_dict()
