"""Model files: damage shows, wherever a bit flips; other formats are refused; equal models give equal bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import FORMAT, digest, read_file, write_file


def small_model() -> Propensities:
    encoder = ContextEncoder.fit({"gerät": ["ä", "b", "b"]})
    curve = make_curve("power", (1, 2), 1, 3)
    told = Provenance({"clickharvest": "1.0"}, "CPBM", {"penalty": 0.1}, "2026-01-31T12:00:00Z", ("fit", "é.csv"))
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
    bits, bytes_ = 1 << random.integers(8, size=len(whole)), random.integers(1, 256, size=len(whole))
    changes = [(i, int(bits[i] if i % 3 else bytes_[i])) for i in range(0, len(whole), 2)]
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
    for place in range(start, len(whole), 5):
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
        ({"format": FORMAT + 1}, f"has the format {FORMAT + 1}, this version reads {FORMAT}; upgrade"),
        ({"format": 10**30}, "upgrade"),
        ({"format": FORMAT - 1}, f"has the format {FORMAT - 1}, this version reads {FORMAT}; fit again"),
        ({"format": -1, "sha256": None}, "fit again"),
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
    "text", ["", "{", "[]", "null", "1" * 5000, "[" * 100_000, '{"format": 5}', '{"format": 5, "a": ' + "[" * 100_000]
)
def test_bad_json_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"params/b": np.zeros(2)}, path, metadata={"clickharvest": text})
    refused(path, match="damaged|not that of a model")


def test_a_header_too_deep_to_digest_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for depth in range(100, 20_000, 100):
        text = f'{{"format": {FORMAT}, "a": ' + "[" * depth + "]" * depth + "}"
        save_file({"params/b": np.zeros(2)}, path, metadata={"clickharvest": text})
        refused(path, match="is damaged")


def test_numbers_behind_a_right_digest_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    small_model().save(path)
    header, tensors = read_file(path)
    for changed in (
        {"params/a": np.full(1, 1e7)},
        {"params/a": np.full(1, np.inf)},
        {"params/a": np.zeros(1, np.float32)},
        {"draws": tensors["draws"].astype(np.float64)},
    ):
        write_file(path, header, tensors | changed)
        refused(path, match="cannot be used")
