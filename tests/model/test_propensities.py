"""Models: intervals worked by hand, files that come back bit by bit or are refused, scoring with NumPy alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from clickharvest.commands.propensities import propensities as score_contexts
from clickharvest.commands.show import show
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import CURVES, flatten_params, make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import data_fingerprint
from clickharvest.model.storage import read_file, write_file
from clickharvest.positions.places import Places

LOG = {"device": ["phone", "desk", "phone", None], "age": [20, 40, 30, 30], "pays": [True, False, True, False]}
CONTEXTS = {"device": ["desk", "watch", "phone"], "age": [40, 25, 30], "pays": [True, None, False]}
Z = NormalDist().inv_cdf(0.975)


def free_model(**changes: Any) -> Propensities:
    """Two draws around log p = (0, log .5, log .2) at positions 1, 2, 4; position 3 and 7 have no link."""
    b = np.log([0.5, 0.2])
    given: dict[str, Any] = {
        "curve": make_curve("constant", (1, 2, 4), 1, 0),
        "params": {"b": b},
        "encoder": None,
        "shown": (1, 2, 3, 4, 7),
        "draws": b + np.array([[-0.1, 0.3], [0.1, 0.1]]),
        "draws_kind": "bootstrap",
        "info": {"objective": "clickshare", "units": 1234, "clicks": 99, "queries": 7, "status": "converged: yes"},
    }
    return Propensities(**given | changes)


def context_model(name: str = "linear", *, seed: int = 0, draws: int = 50, **shape: int) -> Propensities:
    encoder = ContextEncoder.fit(LOG)
    curve = make_curve(name, (2, 3, 5, 6), 3, len(encoder.feature_names), **shape)
    random = np.random.default_rng(seed)
    params = {key: value + 0.2 * random.normal(size=value.shape) for key, value in curve.init(random).items()}
    flat = flatten_params(params)
    around = flat + 0.1 * random.normal(size=(draws, len(flat)))
    return Propensities(curve, params, encoder, (2, 3, 4, 5, 6), around, "sandwich")


def test_pointwise_intervals_by_hand() -> None:
    prediction = free_model().predict(level=0.95)
    assert prediction.positions == (1, 2, 3, 4, 7)
    assert prediction.supported.tolist() == [[True, True, False, True, False]] * len(prediction.propensity)
    sd = np.array([0, 0.2 / np.sqrt(2), 0.2 / np.sqrt(2)])
    p = np.array([1, 0.5, 0.2])
    ours = prediction.supported[0]
    np.testing.assert_allclose(prediction.propensity[0, ours], p, rtol=1e-12)
    np.testing.assert_allclose(prediction.lower[0, ours], p * np.exp(-Z * sd), rtol=1e-6)
    np.testing.assert_allclose(prediction.upper[0, ours], p * np.exp(Z * sd), rtol=1e-6)
    assert (prediction.propensity[0, 0], prediction.lower[0, 0], prediction.upper[0, 0]) == (1, 1, 1)
    for values in (prediction.propensity, prediction.lower, prediction.upper):
        assert values.shape == (1, 5)
        assert np.isnan(values[0, ~ours]).all()


def test_simultaneous_intervals_by_hand() -> None:
    b = np.log([0.5, 0.2])
    model = free_model(draws=b + np.array([[-1, 0], [0, -1], [1, 1]]) / 10)
    prediction = model.predict(level=0.5, simultaneous=True)
    # Both positions have sd .1 and mean 0; the largest distances are 1, 1, 1 standard deviations in the three draws.
    np.testing.assert_allclose(prediction.upper[0, [1, 3]], [0.5 * np.exp(0.1), 0.2 * np.exp(0.1)], rtol=1e-6)
    assert prediction.lower[0, 0] == prediction.upper[0, 0] == 1
    many = context_model(draws=2000)
    pointwise, band = many.predict(CONTEXTS), many.predict(CONTEXTS, simultaneous=True)
    others = np.array([True, False, False, True, True])
    assert (band.upper[:, others] > pointwise.upper[:, others]).all()
    assert (band.lower[:, others] < pointwise.lower[:, others]).all()


def test_points_of_a_covariance_give_the_band_of_its_normal() -> None:
    """Two independent positions: the largest of two |normals| is below 1.9488 in 90 % of all cases."""
    points = np.log([0.5, 0.2]) + np.sqrt(1.5) * 0.1 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    prediction = free_model(draws=points, draws_kind="clustered").predict(level=0.9, simultaneous=True)
    z = np.log(prediction.upper / prediction.propensity)[0, [1, 3]] / 0.1
    np.testing.assert_allclose(z, 1.9488, rtol=0.03)


def test_simultaneous_bands_cover_all_positions_at_their_level() -> None:
    random = np.random.default_rng(1)
    curve = make_curve("constant", tuple(range(1, 9)), 1, 0)
    draws = random.normal(size=(4000, 7)) * np.arange(1, 8) / 10
    model = Propensities(curve, {"b": np.zeros(7)}, None, curve.positions, draws, "sandwich")
    band = model.predict(level=0.9, simultaneous=True)
    fresh = np.exp(random.normal(size=(4000, 7)) * np.arange(1, 8) / 10)
    inside = ((fresh >= band.lower[0, 1:]) & (fresh <= band.upper[0, 1:])).all(axis=1).mean()
    assert abs(inside - 0.9) < 0.02


@pytest.mark.parametrize("name", CURVES)
def test_chunks_and_repeated_contexts_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = context_model(name)
    rows = {key: values * 3 for key, values in CONTEXTS.items()}
    for simultaneous in (False, True):
        whole = model.predict(rows, simultaneous=simultaneous)
        with monkeypatch.context() as patch:
            patch.setattr("clickharvest.model.intervals.NUMBERS_AT_ONCE", 1)
            parts = model.predict(rows, simultaneous=simultaneous)
        one_by_one = [model.predict({k: v[i : i + 1] for k, v in rows.items()}) for i in range(9)]
        for field in ("propensity", "lower", "upper"):
            np.testing.assert_allclose(getattr(parts, field), getattr(whole, field), rtol=1e-12)
        if not simultaneous:
            np.testing.assert_allclose(np.concatenate([p.upper for p in one_by_one]), whole.upper, rtol=1e-12)
    expected = np.exp(model.curve.relative(model.params, model.encoder.transform(rows)))  # type: ignore[union-attr]
    np.testing.assert_allclose(whole.propensity[:, whole.supported[0]], expected, rtol=1e-12)


def test_without_draws_there_are_no_intervals() -> None:
    prediction = free_model(draws=None, draws_kind=None).predict()
    assert np.isnan(prediction.lower).all()
    assert np.isnan(prediction.upper).all()
    assert prediction.propensity[0, 1] == pytest.approx(0.5)


def test_arrow_has_one_row_per_context_and_position() -> None:
    model = context_model()
    for contexts in (CONTEXTS, pa.table(CONTEXTS), pl.DataFrame(CONTEXTS), pa.table(CONTEXTS).to_pandas()):
        prediction = model.predict(contexts)
        table = prediction.to_arrow(contexts)
        results = ["position", "propensity", "lower", "upper", "propensity_state"]
        assert table.column_names == ["device", "age", "pays", *results]
        assert table["device"].to_pylist() == [d for d in CONTEXTS["device"] for _ in range(5)]
        assert table["pays"].to_pylist()[5:10] == [None] * 5
        assert table["position"].to_pylist() == [2, 3, 4, 5, 6] * 3
        assert table["propensity_state"].to_pylist() == prediction.state.ravel().tolist()
        assert table["propensity"].to_pylist()[:3] == [*prediction.propensity[0, :2], None]
        assert (table["lower"].null_count, table["upper"].null_count) == (3, 3)
    results = ["position", "propensity", "lower", "upper", "propensity_state"]
    assert free_model().predict().to_arrow().column_names == results
    counted = free_model().predict({"user": [7, 8]}).to_arrow({"user": [7, 8]})
    assert counted["user"].to_pylist() == [7] * 5 + [8] * 5
    with pytest.raises(InputError, match="a column 'position'"):
        prediction.to_arrow({"position": [1, 2, 3]})
    with pytest.raises(InputError, match="2 rows, the prediction 3"):
        prediction.to_arrow({"device": ["a", "b"]})


def test_no_contexts_are_no_rows() -> None:
    model = context_model()
    nothing = pa.table(CONTEXTS).slice(0, 0)
    assert model.predict(nothing, simultaneous=True).to_arrow(nothing).num_rows == 0
    assert free_model().predict({"user": []}).propensity.shape == (0, 5)


@pytest.mark.parametrize("name", CURVES)
def test_a_file_comes_back_bit_by_bit(name: str, tmp_path: Path) -> None:
    model = replace(
        context_model(name), info={"seed": 3, "selection": [{"curve": "linear", "score": -np.inf}], "n": np.int64(2)}
    )
    model.save(tmp_path / "model.safetensors")
    loaded = load_propensities(tmp_path / "model.safetensors")
    assert (loaded.curve, loaded.encoder, loaded.shown) == (model.curve, model.encoder, model.shown)
    assert loaded.info == model.info == {"seed": 3, "selection": [{"curve": "linear", "score": None}], "n": 2}
    for field in ("propensity", "lower", "upper"):
        before, after = (getattr(m.predict(CONTEXTS, simultaneous=True), field) for m in (model, loaded))
        np.testing.assert_array_equal(before, after)
    for again in (model, loaded):
        again.save(tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


HOSTILE_HEADERS: dict[str, dict[str, Any]] = {
    "unknown curve": {"curve": {"name": "spline"}},
    "curve with a stranger": {"curve": {"name": "linear", "anchor": 2}},
    "curve without name": {"curve": {"rank": 2}},
    "curve is text": {"curve": "linear"},
    "giant curve": {"curve": {"name": "recurrent", "width": 10**12}},
    "half a rank": {"curve": {"name": "lowrank", "rank": 1.5}},
    "another curve": {"curve": {"name": "power"}},
    "text positions": {"positions": ["2", "3", "5", "6"]},
    "giant position": {"positions": [2, 3, 5, 10**400], "shown": [2, 3, 5, 10**400]},
    "no positions": {"positions": None},
    "fewer positions": {"positions": [2, 3, 5]},
    "position 0": {"positions": [0, 3, 5, 6], "shown": [0, 3, 5, 6]},
    "anchor elsewhere": {"anchor": 4},
    "features": {"n_features": 10**9},
    "no encoder": {"encoder": None},
    "encoder of nothing": {"encoder": {}},
    "shown too little": {"shown": [2, 3]},
    "shown unordered": {"shown": [6, 5, 4, 3, 2]},
    "draws of no kind": {"draws_kind": None},
    "draws of another kind": {"draws_kind": "guess"},
    "kind is a list": {"draws_kind": []},
    "info is a list": {"info": [1]},
    "provenance is text": {"provenance": "me"},
    "provenance of a stranger": {"provenance": {"author": "me"}},
}


@pytest.mark.parametrize("case", HOSTILE_HEADERS)
def test_a_hostile_header_is_one_line(case: str, tmp_path: Path) -> None:
    """Forged with a right digest, so that it is the header's own contents that are refused."""
    path = tmp_path / "model.safetensors"
    context_model().save(path)
    header, tensors = read_file(path)
    write_file(path, header | HOSTILE_HEADERS[case], tensors)
    refused(path, match="is damaged \\(|cannot be used")


def test_a_header_without_any_one_key_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    context_model().save(path)
    whole, tensors = read_file(path)
    assert len(whole) == 10
    for key in whole.keys() - {"format"}:
        write_file(path, {name: value for name, value in whole.items() if name != key}, tensors)
        refused(path, match=f"KeyError: '{key}'")


def test_hostile_tensors_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    context_model().save(path)
    header, tensors = read_file(path)
    for changed, match in (
        ({"params/b": None}, "expected {"),
        ({"draws": None}, "draws are of the kind"),
        ({"params/b": np.zeros(2)}, "expected {"),
        ({"params/b": np.full(3, np.nan)}, "not finite"),
        ({"params/b": np.full(3, -2e6)}, "reach 2e\\+06; expected 1e\\+06 at most"),
        ({"params/b": np.zeros(3, np.float32)}, "'params/b' holds float32; expected float64"),
        ({"params/b": np.zeros(3, np.int64)}, "holds int64"),
        ({"params/stranger": np.zeros(1)}, "expected {"),
        ({"stranger\x1b": np.zeros(1)}, "a tensor 'stranger\\?'"),
        ({"draws": tensors["draws"].astype(np.float64)}, "'draws' holds float64; expected float32"),
        ({"draws": tensors["draws"][:, 1:]}, "draws are"),
        ({"draws": tensors["draws"][:1]}, "draws are"),
        ({"draws": np.full_like(tensors["draws"], np.inf)}, "expected finite numbers"),
        ({"draws": np.full_like(tensors["draws"], np.nan)}, "expected finite numbers"),
        ({"draws": np.float32(1)}, "draws are"),
        ({"draws": np.zeros((10_001, tensors["draws"].shape[1]), np.float32)}, "\\[2 to 10,000,"),
    ):
        kept = {name: np.ascontiguousarray(v) for name, v in (tensors | changed).items() if v is not None}
        write_file(path, header, kept)
        refused(path, match=match)


def test_files_of_another_kind_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    refused(path, match="no file")
    refused(tmp_path, match="no file")
    context_model().save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"x", b"PAR1" * 100, whole[:-1], whole[:100], whole[8:], b"\xff" * 8 + whole[8:]):
        path.write_bytes(damaged)
        refused(path, match="safetensors")
    save_file({"weight": np.zeros(3)}, path)
    refused(path, match="no model of clickharvest")


def refused(path: Path, match: str | None = None) -> None:
    with pytest.raises(InputError, match=match) as raised:
        load_propensities(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nonsense_is_refused(tmp_path: Path) -> None:
    model = free_model()
    for level in (0.0, 1.0, 95.0, -1.0, np.nan):
        with pytest.raises(InputError, match="level"):
            model.predict(level=level)
    assert np.isfinite(model.predict(level=1 - 1e-16).upper[0, 1])
    for x in (np.zeros((2, 1)), np.zeros(3), np.zeros((2, 0, 1))):
        with pytest.raises(InputError, match="expected finite numbers"):
            model.predict_encoded(x)
    with pytest.raises(InputError, match="no columns"):
        model.predict({})
    with pytest.raises(InputError, match="device, age, pays"):
        context_model().predict()
    with pytest.raises(InputError, match="expected what JSON can hold"):
        free_model(info={"model": object()})
    with pytest.raises(InputError, match="does not exist"):
        model.save(tmp_path / "nowhere" / "model.safetensors")


def test_scoring_needs_neither_scipy_nor_an_engine(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    context_model("mlp", width=3).save(path)
    script = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"ibis", "duckdb", "pandas", "pyarrow", "scipy", "sklearn", "onnx"}:
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from clickharvest.model.loading import load_propensities
model = load_propensities(sys.argv[1])
print(model.predict({"device": ["desk"], "age": [40], "pays": [True]}).upper.tolist())
"""
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    expected = context_model("mlp", width=3).predict({"device": ["desk"], "age": [40], "pays": [True]}).upper
    np.testing.assert_array_equal(np.array(json.loads(run.stdout.replace("nan", "NaN"))), expected)


def interventions(**changes: Any) -> Interventions:
    given: dict[str, Any] = {
        "unit": np.array([0, 0, 1, 1]),
        "query": np.array(["q", "q", "r", "r"], dtype=object),
        "position": np.array([1, 2, 1, 2]),
        "exposure": np.array([3.0, 1.0, 2.0, 2.0]),
        "clicks": np.array([2, 0, 1, 1]),
        "impressions": np.array([3, 1, 2, 2]),
        "contexts": {"age": np.array([1.0, 1.0, np.nan, np.nan]), "device": np.array(["a", "a", None, None], object)},
    }
    return Interventions(**given | changes)


def test_the_fingerprint_sees_values_not_order_or_numbers() -> None:
    print_ = data_fingerprint(interventions())
    assert len(print_) == 64
    assert data_fingerprint(interventions().take(np.array([3, 0, 2, 1]))) == print_
    assert data_fingerprint(interventions(unit=np.array([9, 9, 4, 4]))) == print_
    changed = [
        interventions(unit=np.array([0, 1, 0, 1])),
        interventions(clicks=np.array([2, 0, 1, 2])),
        interventions(query=np.array(["q", "q", "s", "s"], dtype=object)),
        interventions(exposure_kind="design"),
        interventions(contexts={}),
        interventions(contexts={"age": np.array([1.0, 2.0, 3.0, 4.0])}),
        interventions().take(np.array([0, 1])),
        interventions().take(np.array([], dtype=np.intp)),
    ]
    assert len({print_, *map(data_fingerprint, changed)}) == 1 + len(changed)


def test_the_summary_tells_what_there_is() -> None:
    text = str(free_model())
    for told in ("curve constant", "objective clickshare", "1,234 units, 99 clicks, 7 queries", "converged: yes"):
        assert told in text
    assert "No estimate at positions 3, 7" in text
    assert "bootstrap, 2 draws" in text
    assert "0.5000  0.3790 to 0.6597" in text
    selection = [
        {"curve": {"name": "linear"}, "penalty": 10.0, "score": -1.25, "se": 0.01, "chosen": False},
        {"curve": {"name": "lowrank", "rank": 2}, "penalty": 1.0, "score": -1.125, "se": 0.01, "chosen": True},
        {"curve": {"name": "lowrank", "rank": 2}, "penalty": 5.0, "score": None, "se": None, "chosen": False},
    ]
    selection[0] |= {"folds": None}
    selection.append({"curve": "mlp", "penalty": 2.0, "score": -1.5, "se": 0.0, "chosen": False, "folds": 1})
    text = str(replace(context_model("lowrank", rank=2), info={"selection": selection}))
    assert "* lowrank 2        1  -1.12500  0.01000\n" in text
    assert "  linear          10  -1.25000  0.01000\n" in text
    assert "  mlp              2  -1.50000        -  dropped after 1 fold\n" in text
    for told in ("curve lowrank (rank 2)", "device = phone, age = 30", "device = desk", "age = 37.07", "pays = yes"):
        assert told in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    for values, min_count, told in (([None, None], 1, "device is missing"), (["a", "b"], 2, "device = other")):
        nowhere = ContextEncoder.fit({"device": values}, kinds={"device": "categorical"}, min_count=min_count)
        curve = make_curve("power", (1, 2), 1, len(nowhere.feature_names))
        assert told in str(Propensities(curve, curve.init(np.random.default_rng(0)), nowhere, (1, 2)))


def test_the_summary_of_hostile_names_stays_narrow_and_plain() -> None:
    names = ["\x1b[31m" + "x" * 300, "b\nc", *(f"c{i}" for i in range(30))]
    encoder = ContextEncoder.fit({name: ["\x1b[2J" + "y" * 99, f"z\n{name}"] for name in names})
    curve = make_curve("linear", tuple(range(1, 61)), 1, len(encoder.feature_names))
    params = {"b": np.full(59, 900.0), "W": np.ones((len(encoder.feature_names), 59))}
    text = str(Propensities(curve, params, encoder, (*curve.positions, 99), info={"status": "a\nb" * 500}))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert len(text.splitlines()) < 90


def test_command_writes_parquet_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, contexts = tmp_path / "model.safetensors", tmp_path / "contexts.csv"
    context_model().save(model)
    contexts.write_text("user,device,age,pays\n007,desk,40,true\n008,phone,,false\n")
    score_contexts(model, str(contexts), tmp_path / "out.parquet", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["contexts"], told["unsupported"], told["anchor"]) == (10, 2, [4], 3)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names[:4] == ["user", "device", "age", "pays"]
    expected = context_model().predict({"device": ["desk", "phone"], "age": [40, None], "pays": [True, False]})
    np.testing.assert_array_equal(table["lower"].to_numpy(), expected.lower.ravel())
    score_contexts(model, str(contexts), tmp_path / "out.csv", level=0.5, simultaneous=True)
    assert "10 rows, 2 contexts" in capsys.readouterr().out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 11


def test_command_prints_rows_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free, model, contexts = tmp_path / "free.safetensors", tmp_path / "model.safetensors", tmp_path / "c.parquet"
    free_model(draws=None, draws_kind=None).save(free)
    context_model().save(model)
    pq.write_table(pa.table({k: v * 10 for k, v in CONTEXTS.items()}), contexts)
    score_contexts(free)
    out = capsys.readouterr().out
    assert "No estimate at positions 3, 7" in out
    assert "No intervals" in out
    score_contexts(model, str(contexts))
    assert "… 130 more rows" in capsys.readouterr().out
    score_contexts(model, str(contexts), as_json=True)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 150
    assert rows[2]["propensity"] is None
    show(model)
    assert "curve linear" in capsys.readouterr().out
    show(model, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["context"] == {"device": "categorical", "age": "numeric", "pays": "boolean"}
    assert told["typical_context"][1] == {
        "position": 3, "propensity": 1, "lower": 1, "upper": 1,
        "state": "usable", "queries": None, "note": None,
    }  # fmt: skip
    assert told["support"] is None


def test_no_rows_are_told_and_no_cautions_about_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, contexts = tmp_path / "model.safetensors", tmp_path / "contexts.csv"
    fitted = context_model()
    fitted.save(model)
    contexts.write_text("device,age,pays\n")
    for output, told in ((tmp_path / "p.csv", ["0 rows", "has no rows: there was nothing"]), (None, ["has no rows"])):
        score_contexts(model, str(contexts), output)
        told_lines = capsys.readouterr().out
        assert all(words in told_lines for words in told)
        assert "No intervals" not in told_lines
        assert "No estimate" not in told_lines
    contexts.write_text("device,age,pays\ndesk,40,true\n")
    score_contexts(model, str(contexts), tmp_path / "p.csv")
    assert "No estimate" in capsys.readouterr().out


def test_command_refuses_in_one_line(tmp_path: Path) -> None:
    model, contexts = tmp_path / "model.safetensors", tmp_path / "contexts.csv"
    context_model().save(model)
    contexts.write_text("device,age\ndesk,40\n")
    with pytest.raises(InputError, match="columns device, age, pays after it"):
        score_contexts(model)
    with pytest.raises(InputError, match="lacks the context column pays of"):
        score_contexts(model, str(contexts))
    with pytest.raises(InputError, match=r"should end in \.parquet or \.csv"):
        score_contexts(model, str(contexts), tmp_path / "out.xlsx")
    contexts.write_text("device,age,pays,position\ndesk,40,true,1\n")
    with pytest.raises(InputError, match="rename it"):
        score_contexts(model, str(contexts), tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_places_survive_a_file_and_forged_ones_are_refused(tmp_path: Path) -> None:
    places = Places.of(("shelf", "cell"), [("new", j) for j in range(1, 8)])
    model, path = free_model(places=places), tmp_path / "model.safetensors"
    model.save(path)
    assert load_propensities(path).places == places
    table = model.predict().to_arrow()
    assert table.column_names == ["position", "shelf", "cell", "propensity", "lower", "upper", "propensity_state"]
    assert table["cell"].to_pylist() == [1, 2, 3, 4, 7]
    assert "No estimate at shelf new, cell 3 and shelf new, cell 7" in " ".join(str(model).split()).replace(";", " and")
    with pytest.raises(InputError, match="the contexts have a column 'cell'"):
        model.predict().to_arrow({"cell": [1]})
    header, tensors = read_file(path)
    told = places.to_dict()
    forged = [told | {"labels": told["labels"][:4]}, told | {"labels": [[1, 2]] * 7}, {"columns": [1]}, [], "places"]
    for wrong in forged:
        write_file(path, header | {"places": wrong}, tensors)
        with pytest.raises(InputError, match="cannot be used"):
            load_propensities(path)


def test_the_same_rows_at_other_places_are_other_data() -> None:
    rows = Interventions(
        unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]), exposure=np.ones(2),
        clicks=np.array([1, 0]), impressions=np.ones(2, dtype=int),
    )  # fmt: skip
    some = [None, *(Places.of(("slot",), [("a",), (text,)]) for text in "bc")]
    assert len({data_fingerprint(replace(rows, places=places)) for places in some}) == 3
