"""Model files: damage shows, wherever a bit flips; older files load with a note; equal models give equal bytes."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from clickharvest.errors import InputError, OlderFileWarning
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import FORMAT, digest
from places import ROOT

OLD = ROOT / "tests" / "model" / "data" / "model-format-1.safetensors"
"""Written by the last code before format 2: linear at positions 2, 3, 5, 6 of 2-6, four draws, contexts as below."""
CONTEXTS = {"device": ["desk", "phone"], "age": [40, 25], "pays": [True, None]}


def small_model() -> Propensities:
    encoder = ContextEncoder.fit({"gerät": ["ä", "b", "b"]})
    curve = make_curve("power", (1, 2), 1, 3)
    told = Provenance(
        {"clickharvest": "1.0"}, "CPBM", {"penalty": 0.1}, "cpu", "2026-01-31T12:00:00Z", ("fit", "é.csv")
    )
    return Propensities(
        curve,
        {"a": np.array([0.7]), "w": np.array([[0.1], [-0.2], [0.0]])},
        encoder,
        (1, 2, 3),
        np.arange(8, dtype=np.float32).reshape(2, 4),
        "bootstrap",
        {"log_likelihood": -1234.5678901234567, "seed": 3},
        told,
    )


def contents(model: Propensities) -> list[Any]:
    """All that a model is, comparable bit by bit."""
    arrays = {**model.params, "draws": model.draws}
    bits = {name: None if array is None else (array.dtype, array.tobytes()) for name, array in arrays.items()}
    return [model.curve, model.encoder, model.shown, model.draws_kind, model.info, model.provenance, bits]


def saved_text(path: Path) -> str:
    with safe_open(path, framework="numpy") as file:
        return str(file.metadata()["clickharvest"])


def refused(path: Path, match: str) -> None:
    with pytest.raises(InputError, match=match) as raised:
        load_propensities(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_flipped_bit_and_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    small_model().save(path)
    whole, expected = path.read_bytes(), contents(small_model())
    random = np.random.default_rng(0)
    changes = [(i, 1 << int(bit)) for i, bit in enumerate(random.integers(8, size=len(whole)))]
    changes += [(i, int(flip)) for i, flip in enumerate(random.integers(1, 256, size=len(whole)))]
    noticed = 0
    for place, flip in changes:
        damaged = bytearray(whole)
        damaged[place] ^= flip
        path.write_bytes(damaged)
        try:
            loaded = load_propensities(path)
        except InputError:
            noticed += 1
        else:  # white space for white space, or the like
            assert contents(loaded) == expected, (place, flip)
    assert noticed > 0.99 * len(changes)
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        refused(path, match="not those of its digest")


def test_bytes_gone_or_added_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    small_model().save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], whole + b"\0", whole + whole):
        path.write_bytes(damaged)
        refused(path, match="safetensors")


def test_the_digest_covers_names_types_shapes_and_bytes() -> None:
    header, b = {"anchor": 1, "info": {"x": 1, "y": 2}}, np.arange(4.0)
    own = digest(header, {"b": b, "c": b})
    assert digest({"info": {"y": 2, "x": 1}, "anchor": 1}, {"c": b, "b": b}) == own
    others = [
        (header | {"anchor": 2}, {"b": b, "c": b}),
        (header, {"b": b, "d": b}),
        (header, {"b": b}),
        (header, {"b": b, "c": b.reshape(2, 2)}),
        (header, {"b": b, "c": b.view(np.int64)}),
        (header, {"b": b, "c": np.nextafter(b, 9)}),
        (header, {"b": b[:2], "c": np.concatenate([b[2:], b])}),
    ]
    assert len({own, *(digest(*other) for other in others)}) == 1 + len(others)


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    path, again = tmp_path / "model.safetensors", tmp_path / "again.safetensors"
    small_model().save(path)
    for _ in range(5):
        loaded = load_propensities(path)
        assert str(loaded.provenance) == str(small_model().provenance)  # in the order of the constructor
        loaded.save(again)
        assert again.read_bytes() == path.read_bytes()
    later = replace(small_model(), provenance=replace(small_model().provenance, made="2027-01-31T12:00:00Z"))
    later.save(again)
    assert again.read_bytes() != path.read_bytes()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": FORMAT + 1}, "upgrade"),
        ({"format": 10**30}, "upgrade"),
        ({"format": 1}, "is damaged"),
        ({"format": 0}, "is damaged"),
        ({"format": -1, "sha256": None}, "is damaged"),
        ({"sha256": None}, "is damaged"),
        ({"sha256": "0" * 64}, "is damaged"),
        ({"sha256": []}, "is damaged"),
        ({"format": None}, "not that of a model"),
        ({"format": True}, "not that of a model"),
    ],
)
def test_another_format_or_digest_is_refused(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    small_model().save(path)
    header = {name: value for name, value in (json.loads(saved_text(path)) | changes).items() if value is not None}
    save_file(load_file(path), path, metadata={"clickharvest": json.dumps(header)})
    refused(path, match=match)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "1" * 5000, "[" * 100_000, '{"format": 1}', '{"format": 2, "a": ' + "[" * 100_000]
)
@pytest.mark.filterwarnings("ignore:.*older file")
def test_bad_json_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"params/b": np.zeros(2)}, path, metadata={"clickharvest": text})
    refused(path, match="damaged|not that of a model")


def test_a_header_too_deep_to_digest_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for depth in range(100, 20_000, 100):
        text = '{"format": 2, "a": ' + "[" * depth + "]" * depth + "}"
        save_file({"params/b": np.zeros(2)}, path, metadata={"clickharvest": text})
        refused(path, match="is damaged")


def test_a_file_of_the_first_format_loads_with_a_note(tmp_path: Path) -> None:
    with pytest.warns(OlderFileWarning, match=r"older file \(format 1\)") as warned:
        model = load_propensities(OLD)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert "\n" not in str(warned[0].message)
    assert model.provenance is None
    assert (model.curve.name, model.curve.positions, model.shown) == ("linear", (2, 3, 5, 6), (2, 3, 4, 5, 6))
    assert (model.info["units"], model.info["seed"], model.info["data"]) == (1234, 3, "0" * 64)
    assert model.draws is not None
    assert model.draws.shape == (4, 21)
    # Golden numbers of the code that wrote the file.
    expected = [
        [1.7623017793574463, 1.0, 0.7458226684339516, 0.44000032017260127],
        [1.8154120592247616, 1.0, 0.6292923841549479, 0.6307375004053841],
    ]
    found = model.predict(CONTEXTS)
    np.testing.assert_allclose(found.propensity[:, found.supported[0]], expected, rtol=1e-12)
    model.save(tmp_path / "new.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load_propensities(tmp_path / "new.safetensors")
    assert contents(again) == contents(model)


def test_a_power_law_of_an_older_format_is_said_to_differ(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for name, params in (("power", {"a": np.array([1.0]), "w": np.zeros((0, 1))}), ("constant", {"b": np.zeros(1)})):
        Propensities(make_curve(name, (1, 2), 1, 0), params, None, shown=(1, 2)).save(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load_propensities(path)
        header = json.loads(saved_text(path)) | {"format": 3}
        del header["sha256"]
        tensors = load_file(path)
        header["sha256"] = digest(header, tensors)
        save_file(tensors, path, metadata={"clickharvest": json.dumps(header)})
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            load_propensities(path)
        assert [str(one.message).split(": ", 1)[1][:6] for one in warned] == ["nearly"] * (name == "power")


@pytest.mark.filterwarnings("ignore:.*older file")
def test_of_a_first_file_what_can_be_checked_is(tmp_path: Path) -> None:
    """Without a digest, types, finiteness and the largest parameter are what is left."""
    path = tmp_path / "model.safetensors"
    tensors = load_file(OLD)
    for changed in (
        {"params/b": np.full(3, 1e7)},
        {"params/b": np.array([0, 0, np.inf])},
        {"params/b": np.zeros(3, np.float32)},
        {"draws": tensors["draws"].astype(np.float64)},
    ):
        save_file(tensors | changed, path, metadata={"clickharvest": saved_text(OLD)})
        refused(path, match="cannot be used")
