"""Where a model comes from: recorded when it is made, kept in its file, told by `show` and by the report."""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest import CPBM, PBM, __version__, harvest, read_log
from clickharvest.baselines import click_rates, pivot_one
from clickharvest.errors import InputError
from clickharvest.model.curves import make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance, record_provenance
from clickharvest.model.summary import describe_model, origin
from clickharvest.progress import silent
from clickharvest.report.page import write_report
from clickharvest.simulate import simulate_ab_log
from command_line import run

WHOLE = Provenance(
    versions={"clickharvest": "1.0", "numpy": "2.4"},
    estimator="CPBM",
    parameters={"kinds": {"age": "numeric"}, "penalty": "auto", "width": None},
    made="2026-01-31T12:00:00Z",
    command=("fit", "my log.csv", "-o", "m.safetensors"),
)


def model_of(provenance: Provenance | None, **info: Any) -> Propensities:
    curve = make_curve("constant", (1, 2), 1, 0)
    return Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), info=info, provenance=provenance)


def test_what_is_recorded_here_and_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    found = record_provenance("PBM", {"seed": np.int64(3), "costs": (1, np.inf), "kinds": None, "other": print})
    assert found.made == "2026-01-01T00:00:00Z"
    assert found.parameters == {"seed": 3, "costs": [1, "inf"], "kinds": None, "other": "builtin_function_or_method"}
    assert found.command is None
    assert found.versions["clickharvest"] == __version__
    assert found.versions["python"] == platform.python_version()
    assert found.versions["numpy"] == version("numpy")
    assert found.versions["duckdb"] == version("duckdb")
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    now = record_provenance("PBM")
    assert now.parameters is None
    assert now.made is not None
    assert "2026-01-01T00:00:00Z" != now.made > "2025"


@pytest.mark.parametrize("epoch", ["", "soon", "1e9", "9" * 30])
def test_a_malformed_epoch_is_one_line(epoch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH is"):
        record_provenance("PBM")


def test_libraries_that_were_not_loaded_are_not_told() -> None:
    code = "from clickharvest.model.provenance import record_provenance; print(*record_provenance('x').versions)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["clickharvest", "python", "numpy"]


def test_it_comes_back_from_its_dict_and_from_a_file(tmp_path: Path) -> None:
    for told in (WHOLE, Provenance({}), None):
        model = model_of(told)
        model.save(tmp_path / "m.safetensors")
        assert load_propensities(tmp_path / "m.safetensors").provenance == told
    assert Provenance.from_dict(json.loads(json.dumps(WHOLE.to_dict()))) == WHOLE


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": None},
        {"versions": ["numpy"]},
        {"versions": {"numpy": 2}},
        {"estimator": 1},
        {"parameters": [1]},
        {"parameters": "all"},
        {"made": "yesterday"},
        {"made": "2026-01-31"},
        {"made": "2026-01-31T12:00:00+02:00"},
        {"made": 1},
        {"command": "fit; rm -rf ~"},
        {"command": [1]},
        {"command": [["fit"]]},
        {"author": "me"},
    ],
)
def test_a_malformed_part_is_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="provenance") as raised:
        Provenance.from_dict(WHOLE.to_dict() | changes)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("saved", [None, "me", [], {}, {"versions": {}}])
def test_anything_else_is_one_line(saved: Any) -> None:
    with pytest.raises(InputError, match="expected versions, estimator"):
        Provenance.from_dict(saved)


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("s3://key:secret@bucket/log.parquet", "s3://…@bucket/log.parquet"),
        ("https://shop.example/log.csv?sig=secret&expires=1", "https://shop.example/log.csv?…"),
        ("https://shop.example/log.csv", "https://shop.example/log.csv"),
        ("s3://bucket/part-?.parquet", "s3://bucket/part-?.parquet"),
        ("my=log?a=b@c.csv", "my=log?a=b@c.csv"),
    ],
)
def test_secrets_in_addresses_are_not_kept(word: str, kept: str) -> None:
    assert Provenance({}).with_command(["fit", word]).command == ("fit", kept)


def test_a_command_is_one_call_whatever_its_words() -> None:
    words = ("fit", "a; rm -rf ~", "$(evil)", "b\nevil", "-o", "m.safetensors")
    told = replace(WHOLE, command=words).command_line
    assert told is not None
    assert shlex.split(told) == ["clickharvest", *words]
    assert ";" not in list(shlex.shlex(told, posix=False, punctuation_chars=True))


def test_show_tells_all_of_it() -> None:
    told = origin(model_of(WHOLE, data="ab" * 32)).splitlines()
    assert told == [
        f"Data (SHA-256): {'ab' * 32}",
        "Made: 2026-01-31 12:00:00 UTC",
        "Made with: clickharvest 1.0, numpy 2.4",
        "Made by: CPBM(kinds={'age': 'numeric'}, penalty='auto', width=None)",
        "Command: clickharvest fit 'my log.csv' -o m.safetensors",
    ]
    assert describe_model(model_of(WHOLE))["provenance"] == WHOLE.to_dict()
    assert describe_model(model_of(None))["provenance"] is None
    assert "does not tell where it comes from" in " ".join(origin(model_of(None)).split())


def test_hostile_provenance_cannot_steer_a_terminal() -> None:
    bad = "\x1b[2J\n\u202e" + "x" * 300
    hostile = Provenance({bad: bad}, bad, {bad: bad}, command=("fit", bad * 100))
    told = origin(model_of(hostile, data=bad))
    assert told.isprintable() or set(told) - {"\n"} == {c for c in told if c.isprintable()}
    assert len(told) < 8_000
    assert sum(line.startswith("Command") for line in told.splitlines()) == 1


def test_a_page_of_hostile_provenance_is_escaped(tmp_path: Path) -> None:
    bad = "\"'><img src=x onerror=alert(1)></script><b>"
    hostile = Provenance({bad: bad}, bad, {bad: bad}, command=("fit", bad))
    write_report(tmp_path / "h.html", model_of(hostile))
    html = (tmp_path / "h.html").read_text()
    assert "<img" not in html
    assert "onerror=alert(1)&gt;" in html


def test_estimators_record_their_parameters() -> None:
    interventions = harvest(read_log(simulate_ab_log(pages=300)[0], context=["device"]))
    model = CPBM(curve="power", penalty=1.0, intervals=None, progress=silent).fit(interventions)
    told = model.propensities_.provenance
    assert told is not None
    expected = {name: value for name, value in model.get_params().items() if name not in ("progress", "start")}
    assert (told.estimator, told.parameters) == ("CPBM", expected)
    assert {"clickharvest", "python", "numpy", "duckdb", "ibis"} <= told.versions.keys()
    assert PBM(**dict(PBM(seed=3, intervals=None).fit(interventions).propensities_.provenance.parameters)).seed == 3  # type: ignore[union-attr, arg-type]


def test_baselines_tell_what_made_them() -> None:
    log = read_log(simulate_ab_log(pages=300)[0])
    for made, name in ((click_rates(log), "click_rates"), (pivot_one(harvest(log)), "pivot_one")):
        assert made.provenance is not None
        assert made.provenance.estimator == name
        assert made.provenance.versions["clickharvest"] == __version__


def test_the_command_line_keeps_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the time given, the same command makes the same bytes; without the command, any name of the file does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    pq.write_table(simulate_ab_log(pages=500)[0], "my log.parquet")
    words = ("fit", "my log.parquet", "--intervals", "none", "-o", "m.safetensors")
    assert run(*words) == 0
    first = Path("m.safetensors").read_bytes()
    model = load_propensities("m.safetensors")
    assert model.provenance is not None
    assert model.provenance.command == words
    capsys.readouterr()
    assert run("show", "m.safetensors") == 0
    shown = capsys.readouterr().out
    command = next(line for line in shown.splitlines() if line.startswith("Command: ")).removeprefix("Command: ")
    assert "Made: 1970-01-01 00:00:00 UTC" in shown
    assert f"Data (SHA-256): {model.info['data']}" in shown
    assert "PBM(objective='clickshare'" in shown
    assert run(*shlex.split(command)[1:]) == 0
    assert Path("m.safetensors").read_bytes() == first
    assert run(*words[:-1], "other.safetensors") == 0
    other = load_propensities("other.safetensors")
    assert other.provenance == replace(model.provenance, command=(*words[:-1], "other.safetensors"))
    for one, name in ((model, "a.safetensors"), (other, "b.safetensors")):
        replace(one, provenance=None).save(name)
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
