"""`fit`, `show` and `propensities` as a user types them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clickharvest.model.loading import load_propensities
from clickharvest.simulate import simulate_ab_log
from command_line import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    pq.write_table(simulate_ab_log(pages=6_000, seed=2)[0], folder / "clicks.parquet")
    return folder


def test_from_log_to_propensities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = folder / "model.safetensors", folder / "propensities.parquet"
    options = ("--context", "device", "--curve", "power", "--penalty", 1, "--bootstrap", 50)
    assert run("fit", folder / "clicks.parquet", *options, "-o", model) == 0
    printed = capsys.readouterr().out
    assert "examination relative to position 1, 95 % interval" in printed
    assert "not tested: " in printed
    assert max(len(line) for line in printed.splitlines() if "clickharvest" not in line) <= 80
    assert len(printed.splitlines()) <= 25

    (folder / "contexts.csv").write_text("device,shop\ndesktop,a\nmobile,b\n")
    assert run("propensities", model, folder / "contexts.csv", "-o", out) == 0
    table = pq.read_table(out)
    assert table.column_names == ["device", "shop", "position", "propensity", "lower", "upper", "propensity_state"]
    assert table.num_rows == 2 * 10
    truth = np.concatenate([np.arange(1, 11.0) ** -0.7, np.arange(1, 11.0) ** -1.4])
    assert np.abs(np.log(table["propensity"].to_numpy() / truth)).max() < 0.3

    capsys.readouterr()
    assert run("show", model, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["curve"]["name"] == "power"
    assert shown["budget"]["word"] in ("usable", "with care")
    assert {finding["kind"] for finding in shown["findings"]} >= {"relevance", "clicks above", "rows"}


def test_interventions_give_the_same_model_as_their_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harvested = folder / "interventions.parquet"
    assert run("harvest", folder / "clicks.parquet", "-o", harvested) == 0
    models = []
    for source in ("clicks.parquet", "interventions.parquet"):
        capsys.readouterr()
        model = folder / f"{source}.safetensors"
        assert run("fit", folder / source, "--intervals", "sandwich", "--no-checks", "-o", model, "--json") == 0
        replace(load_propensities(model), provenance=None).save(folder / "bare.safetensors")  # two commands, two times
        models.append((folder / "bare.safetensors").read_bytes())
        assert json.loads(capsys.readouterr().out)["file"] == str(model)
    assert models[0] == models[1]


def test_unlinked_positions_exit_3_or_stay_without_a_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pq.read_table(folder / "clicks.parquet")
    low = pc.binary_join_element_wise(table["doc"], "low", " ")
    doc = pc.if_else(pc.greater(table["position"], 5), low, table["doc"])
    cut = table.set_column(table.column_names.index("doc"), "doc", doc)
    pq.write_table(cut, folder / "cut.parquet")
    model, out = folder / "cut.safetensors", folder / "cut_propensities.parquet"
    assert run("fit", folder / "cut.parquet", "-o", model) == 0
    assert run("propensities", model, "-o", out) == 0
    rows = pq.read_table(out).to_pylist()
    assert [row["propensity_state"] == "cannot tell" for row in rows] == [False] * 5 + [True] * 5
    assert {row["propensity"] for row in rows[5:]} == {None}
    capsys.readouterr()
    assert run("fit", folder / "cut.parquet", "--anchor", 99, "-o", folder / "none.safetensors") == 3
    assert "linked" in capsys.readouterr().err
    assert not (folder / "none.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name a file with -o"),
        (("-o", "model.pkl"), "should end in .safetensors"),
        (("-o", "m.safetensors", "--curve", "linear"), "needs --context"),
        (("-o", "m.safetensors", "--bootstrap", "1"), "from 2 to 10,000"),
        (("-o", "m.safetensors", "--context", "device", "--penalty", "-1"), "from 0 to"),
        (("-o", "m.safetensors", "--curve", "spline"), "spline"),
        (("-o", "m.safetensors", "--instrument", "ranker", "--swap", "3"), "does not go with"),
        (("-o", "m.safetensors", "--instrument", "ranker", "--model", "browsing"), "--model browsing"),
    ],
)
def test_bad_options_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert run("fit", folder / "clicks.parquet", *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_rankers_are_instruments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "arms.safetensors"
    words = ("fit", folder / "clicks.parquet", "--context", "device", "--instrument", "ranker", "--json", "-o", model)
    assert run(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert "instrument" in {finding["kind"] for finding in told["findings"]}
    assert load_propensities(model).info["instrument"] == "ranker"
    harvested = folder / "harvested.parquet"
    assert run("harvest", folder / "clicks.parquet", "-o", harvested) == 0
    assert run("fit", harvested, "--instrument", "ranker", "-o", model) == 2
    assert "does not go with a file of interventions" in capsys.readouterr().err


def test_replicates_of_no_bootstrap_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("fit", folder / "clicks.parquet", "-o", folder / "replicates.safetensors", "--bootstrap", 20)
    told = "Warning: --bootstrap 20 has no effect, the intervals are clustered: ask for --intervals bootstrap\n"
    assert (run(*words), capsys.readouterr().err) == (0, told)
    assert (run(*words, "--intervals", "bootstrap"), capsys.readouterr().err) == (0, "")
    assert run(*words, "--intervals", "none") == 0
    assert "has no effect, there are no intervals" in capsys.readouterr().err
