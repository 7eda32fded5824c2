"""The command `compare`: scores on another log, differences without one, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest import CPBM, PBM, harvest, read_log
from clickharvest.baselines import click_rates
from clickharvest.estimation import compare_models
from clickharvest.model import Propensities, load_propensities
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.simulate import simulate_ab_log
from command_line import Command
from samples import fixed_curve


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two logs of the same truth, a model with and one without context of each."""
    folder = tmp_path_factory.mktemp("compare")
    for name, seed in (("old", 0), ("new", 1)):
        path = folder / f"{name}.parquet"
        pq.write_table(simulate_ab_log(pages=3000, queries=60, positions=5, seed=seed)[0], path)
        interventions = harvest(read_log(path, context=["device"]))
        cpbm = CPBM(curve="power", penalty=1.0).fit(interventions)
        cpbm.propensities_.save(folder / f"{name}.safetensors")
        pbm = PBM(intervals=None).fit(interventions)
        pbm.propensities_.save(folder / f"{name}_pbm.safetensors")
    return folder


def test_models_are_scored_on_another_log(run: Command, files: Path) -> None:
    models = f"{files}/old.safetensors {files}/old_pbm.safetensors"
    code, out, err = run(f"compare {models} --log {files}/new.parquet --json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    log = read_log(files / "new.parquet", context=["device"])
    counts = log.table.group_by("position").agg(c=log.table.clicks.sum(), n=log.table.impressions.sum())
    rows = log.engine.fetch(counts, task="").to_pylist()
    expected = compare_models(
        {name: load_propensities(files / name) for name in ("old.safetensors", "old_pbm.safetensors")},
        harvest(log),
        rates={int(row["position"]): (int(row["c"]), int(row["n"])) for row in rows},
    ).to_dict()
    assert told == json.loads(json.dumps(expected))
    found = {(gain["name"], gain["over"]): gain["found"] for gain in told["gains"]}
    assert found["old.safetensors", "click rates"] == found["old.safetensors", "1/k"] == "better"
    assert found["old_pbm.safetensors", "old.safetensors"] == "worse"


def test_click_rates_of_the_training_log(run: Command, files: Path) -> None:
    logs = f"--log {files}/new.parquet --baseline-log {files}/old.parquet"
    code, out, _ = run(f"compare {files}/old.safetensors {logs} --json")
    model = load_propensities(files / "old.safetensors")
    rates = click_rates(read_log(files / "old.parquet"))
    other = harvest(read_log(files / "new.parquet", context=["device"]))
    assert code == 0
    expected = compare_models({"old.safetensors": model, "rates": rates}, other).scores["rates"]
    assert json.loads(out)["scores"]["click rates"] == pytest.approx(expected)


def test_what_people_read_fits_a_terminal(run: Command, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = run(f"compare {files}/old.safetensors {files}/old_pbm.safetensors --log {files}/new.parquet")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "old.safetensors explains these clicks better than click rates and better than" in out
    code, out, err = run(f"compare {files}/old.safetensors {files}/new.safetensors")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "No difference beyond the intervals in 8 propensities" in out


def test_interventions_are_a_log_too(run: Command, files: Path) -> None:
    run(f"harvest {files}/new.parquet --context device -o own.parquet")
    code, out, _ = run(f"compare {files}/new.safetensors --log own.parquet --json")
    assert code == 0
    assert json.loads(out)["trained_on"] == ["new.safetensors"]
    code, _, err = run(f"compare {files}/new.safetensors --log {files}/old.parquet --baseline-log own.parquet")
    assert (code, err.count("\n")) == (2, 1)
    assert "holds interventions: click rates need the log" in err


def test_differences_as_json(run: Command, files: Path) -> None:
    fixed_curve({k: -0.1 * k for k in range(1, 6)}, sd=0.01).save("flat.safetensors")
    code, out, err = run(f"compare {files}/old.safetensors {files}/new.safetensors flat.safetensors --json")
    told = json.loads(out)
    assert (code, err, told["first"]) == (0, "", "old.safetensors")
    same, apart = told["differences"].values()
    assert (same["differ"], same["compared"], apart["differ"], apart["compared"]) == (0, 8, 8, 8)
    assert {cell["context"] for cell in same["cells"]} == set(same["contexts"])


def test_models_of_one_name_are_told_apart_by_their_folders(run: Command, files: Path) -> None:
    Path("old.safetensors").write_bytes((files / "new.safetensors").read_bytes())
    code, out, _ = run(f"compare {files}/old.safetensors old.safetensors --json")
    assert (code, json.loads(out)["first"]) == (0, f"{files}/old.safetensors")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("{old}", 2, "one model and nothing to compare it with"),
        ("{old} {old}", 2, "is named twice"),
        ("{old} {files}/new.safetensors --context device", 2, "options of a log go with --log"),
        ("{old} {files}/old_pbm.safetensors", 2, "has no intervals"),
        ("{old} third.safetensors", 2, "relative to position 1, the other to position 3"),
        ("{old} far.safetensors", 3, "nothing to compare: the models have estimates for positions 1-5 and 1, 9"),
        ("{old} far.safetensors --log {files}/new.parquet", 3, "nothing to score"),
        ("{old} --log bare.parquet", 2, "device"),
        ("{old} --log harvested.parquet", 2, "lack the context column device of old.safetensors"),
        ("{old} --log {files}/new.parquet --level 95", 2, "found 95.0; expected a number between 0 and 1"),
    ],
)
def test_what_cannot_be_compared_is_one_line(run: Command, files: Path, arguments: str, code: int, told: str) -> None:
    fixed_curve({1: 0.0, 3: -1.0}, anchor=3, sd=0.1).save("third.safetensors")
    fixed_curve({1: 0.0, 9: -1.0}, sd=0.1).save("far.safetensors")
    bare = pq.read_table(files / "new.parquet").drop(["device"])
    pq.write_table(bare, "bare.parquet")
    harvest(read_log(bare)).write("harvested.parquet")
    ended, out, err = run("compare " + arguments.format(old=files / "old.safetensors", files=files))
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert told in err


def test_what_is_not_supported_is_no_number(run: Command) -> None:
    encoder = ContextEncoder.fit({"device": ["desk", "desk", "phone"]})
    b = np.log([0.5, 0.3])
    params = {"b": b, "W": np.zeros((3, 2))}
    draws = np.concatenate([np.zeros(6), b]) + np.outer([-1.0, 1.0], np.full(8, 0.05))
    for name, linked in (("one", (1, 2, 3)), ("two", (1, 2))):
        support = Support((ColumnSupport((linked, linked)),), (None, 50.0, 50.0))
        curve = make_curve("linear", (1, 2, 3), 1, 3)
        Propensities(curve, params, encoder, (1, 2, 3), draws, "sandwich", support=support).save(f"{name}.safetensors")
    code, out, err = run("compare one.safetensors two.safetensors")
    assert (code, err, "nan" in out) == (0, "", False)
    assert re.search(r"3 +- +not supported", out)


def test_estimators_of_one_log_fit_a_screen_and_a_picture(run: Command, files: Path) -> None:
    code, out, err = run(f"compare {files}/new.parquet --estimators all --chart curves.html")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:7]] == [
        "CTR",
        "PivotOne",
        "AdjacentChain",
        "AllPairs",
        "EM",
        "ClickShare",
    ]
    assert "Left out: regression-EM, which needs features of the documents" in out
    page = Path("curves.html").read_text()
    assert "ClickShare" in page
    assert 'src="http' not in page
    code, out, _ = run(f"compare {files}/new.parquet --estimators ctr,clickshare --chart curves.svg --json")
    told = json.loads(out)
    assert (code, told["chart"], list(told["estimators"])) == (0, "curves.svg", ["ctr", "clickshare"])
    estimate, lower, upper = told["estimators"]["clickshare"]["propensity"]["5"]
    assert lower < estimate < upper
    assert Path("curves.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("{new} --estimators nothing", 2, "no estimator 'nothing'"),
        ("{new} {new} --estimators all", 2, "takes one log as its argument"),
        ("{new} --estimators all --log {new}", 2, "takes one log as its argument"),
        ("{new} --chart curves.svg", 2, "go with --estimators"),
        ("{new} --estimators all --chart curves.pdf", 2, "a chart is HTML, SVG or PNG"),
        ("{new} --estimators all --chart {new}", 2, "a chart is HTML, SVG or PNG"),
        ("moved.parquet --estimators ctr,em", 3, "CTR needs the log itself"),
    ],
)
def test_estimators_that_cannot_be_compared_are_one_line(
    run: Command, files: Path, arguments: str, code: int, told: str
) -> None:
    harvest(read_log(files / "new.parquet")).write("moved.parquet")
    ended, out, err = run("compare " + arguments.format(new=files / "new.parquet"))
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert told in err
