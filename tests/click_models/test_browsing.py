"""The browsing model from the command line: from a log to a model, its table and weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.click_models import load_model
from clickharvest.click_models.browsing.fitted import BrowsingPropensities
from clickharvest.errors import InputError
from clickharvest.model.storage import read_file, write_file
from clickharvest.simulate import simulate_protocol
from command_line import run


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of users who browse."""
    path = tmp_path_factory.mktemp("browsing") / "log.parquet"
    simulation = simulate_protocol(sweeps=6, queries=250, test_queries=2, positions=5, clicks="ubm", eta=0, seed=1)
    pq.write_table(simulation.rows(truth=True), path)
    return path


@pytest.fixture(scope="module")
def model(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    assert run("fit", log, "--model", "browsing", "-o", path) == 0
    return path


def test_show_tells_states_and_what_a_click_above_does(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", model) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Right below a click, a result is looked at" in told
    assert "position none at 1 at 2 at 3 at 4" in told
    assert "Command: clickharvest fit" in told
    assert run("show", model, "--json") == 0
    described = json.loads(capsys.readouterr().out)
    assert described["model"] == "browsing"
    assert [(row["position"], row["last_click"]) for row in described["typical_context"]][:3] == [
        (1, 0),
        (2, 0),
        (2, 1),
    ]
    assert described["findings"][0]["kind"] == "browsing"


def test_rankers_are_trained_on_weights_by_state(
    log: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = pq.read_table(log).group_by("doc").aggregate([])
    noise = np.random.default_rng(0).normal(size=shown.num_rows)
    pq.write_table(pa.table({"doc": shown["doc"], "noise": noise}), tmp_path / "features.parquet")
    how = (tmp_path / "features.parquet", "--C", "1", "--clip", "0.1", "-o", tmp_path / "ranker.json")
    assert run("rank", log, *how, "--model", model) == 2
    error = capsys.readouterr().err
    assert "is a model of browsing" in error
    assert "rank and labels take the weighed log alone" in error
    assert error.count("\n") == 1
    assert run("weigh", log, model, "-o", tmp_path / "weighed.parquet") == 0
    weighed = pq.read_table(tmp_path / "weighed.parquet").to_pydict()
    at = {(position, p) for position, p in zip(weighed["position"], weighed["propensity"], strict=True)}
    assert len(at) > len(set(weighed["position"]))  # a position has propensities by state
    assert run("rank", tmp_path / "weighed.parquet", *how, "--json") == 0
    seen = sum(p for p in weighed["propensity"])
    assert run("labels", tmp_path / "weighed.parquet", "-o", tmp_path / "labels.parquet") == 0
    assert sum(pq.read_table(tmp_path / "labels.parquet")["exposure"].to_pylist()) == pytest.approx(seen)


def test_propensities_have_a_row_for_every_state(model: Path, tmp_path: Path) -> None:
    assert run("propensities", model, "-o", tmp_path / "states.parquet") == 0
    states = pq.read_table(tmp_path / "states.parquet").to_pylist()
    assert len(states) == 15
    assert list(states[0]) == ["position", "last_click", "propensity", "lower", "upper", "propensity_state"]
    assert all(0 <= row["last_click"] < row["position"] for row in states)


def test_every_impression_has_the_propensity_of_its_own_state(log: Path, model: Path, tmp_path: Path) -> None:
    assert run("weigh", log, model, "-o", tmp_path / "weighed.parquet") == 0
    rows, own = pq.read_table(tmp_path / "weighed.parquet"), pq.read_table(log)
    assert rows.column_names == [*own.column_names, "propensity", "ips_weight", "propensity_state"]
    assert rows.num_rows == own.num_rows
    frame = rows.sort_by([("page", "ascending"), ("position", "ascending")])
    rank, clicked = frame["position"].to_numpy().reshape(-1, 5), frame["click"].to_numpy().reshape(-1, 5)
    last = np.maximum.accumulate(np.where(clicked, rank, 0), axis=1)
    last = np.concatenate([np.zeros((len(rank), 1), int), last[:, :-1]], axis=1)
    fitted = load_model(model)
    assert isinstance(fitted, BrowsingPropensities)
    expected = fitted.propensity_of(rank.ravel(), last.ravel())
    np.testing.assert_allclose(frame["propensity"].to_numpy(), expected, rtol=1e-9)
    error = np.abs(np.log(frame["propensity"].to_numpy() / frame["examination"].to_numpy()))
    assert error.mean() < 0.15
    assert np.mean(np.abs(np.log(frame["examination"].to_numpy()) + np.log(rank.ravel()))) > 2 * error.mean()


def test_positions_below_those_of_the_model_are_told_apart(
    log: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pq.read_table(log).slice(0, 5)
    deep = rows.set_column(rows.column_names.index("position"), "position", pa.array([1, 2, 3, 4, 8]))
    pq.write_table(deep, tmp_path / "deep.parquet")
    assert run("weigh", tmp_path / "deep.parquet", model, "-o", tmp_path / "weighed.parquet", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["untold_rows"] == 1
    assert pq.read_table(tmp_path / "weighed.parquet")["propensity_state"].to_pylist().count("cannot tell") == 1


def test_what_cannot_be_is_refused_in_a_line(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("-o", tmp_path / "m.safetensors")
    assert run("harvest", log, "-o", tmp_path / "i.parquet") == 0
    assert run("fit", tmp_path / "i.parquet", "--model", "browsing", *out) == 2
    assert "--model browsing needs the log itself" in capsys.readouterr().err
    assert run("fit", log, "--model", "browsing", "--page", "", *out) == 2
    assert "name the column with --page COLUMN" in capsys.readouterr().err
    assert run("fit", log, "--model", "browsing", "--curve", "power", *out) == 2
    assert "--curve: the model browsing has no such option" in capsys.readouterr().err
    assert run("fit", log, "--model", "browsing", "--intervals", "bootstrap", *out) == 2
    assert "no intervals 'bootstrap' of a browsing model" in capsys.readouterr().err
    rows = pq.read_table(log)
    pq.write_table(rows.select(["query", "doc", "position", "ranker"]).group_by(rows.column_names[:4]).aggregate([]),
                   tmp_path / "r.parquet")  # fmt: skip
    design = ("--rankings", tmp_path / "r.parquet", "--traffic", "f1=1,f2=1")
    assert run("fit", log, "--model", "browsing", *design, *out) == 2
    assert "browsing states come about by clicks, not by design" in capsys.readouterr().err
    clicks = np.add.reduceat(rows["click"].to_numpy(), np.arange(0, rows.num_rows, 5))
    pq.write_table(rows.filter(np.repeat(clicks > 0, 5)), tmp_path / "clicked.parquet")
    assert run("fit", tmp_path / "clicked.parquet", "--model", "browsing", *out) == 3
    assert "as where pages without one are missing" in capsys.readouterr().err


def test_low_positions_can_be_left_out(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    assert run("fit", log, "--model", "browsing", "--max-position", 3, "--intervals", "none", "-o", path) == 0
    fitted = load_model(path)
    assert isinstance(fitted, BrowsingPropensities)
    assert fitted.ranks == 3


def test_a_file_with_other_states_is_refused(model: Path, tmp_path: Path) -> None:
    header, tensors = read_file(model)
    header.pop("sha256", None)
    write_file(tmp_path / "bad.safetensors", header | {"anchor": 3}, tensors)
    with pytest.raises(InputError, match="anchor of a browsing model is a state without a click above"):
        load_model(tmp_path / "bad.safetensors")
    write_file(tmp_path / "worse.safetensors", {k: v for k, v in header.items() if k != "places"}, tensors)
    with pytest.raises(InputError, match="speaks of all states of its ranks"):
        load_model(tmp_path / "worse.safetensors")


@pytest.mark.parametrize("unlinked", ["12", {"1": 2}, ["1"], [10**400], [0], [True]])
def test_unlinked_states_are_states_of_the_model(unlinked: Any, model: Path, tmp_path: Path) -> None:
    header, tensors = read_file(model)
    write_file(tmp_path / "bad.safetensors", header | {"leaning": unlinked}, tensors)
    with pytest.raises(InputError, match="unlinked"):
        load_model(tmp_path / "bad.safetensors")
