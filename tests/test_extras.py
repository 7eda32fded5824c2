"""A package that is not installed: every use of it says which extra brings it, and the exit code is 2."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clickharvest import Propensities, export_onnx, plot_curves, read_log
from clickharvest.baselines import regression_em
from clickharvest.errors import ClickharvestError, EngineError
from clickharvest.logs import spark
from clickharvest.model.curves import make_curve
from clickharvest.rank.data import ranking_data
from clickharvest.rank.learners import train_ranker
from clickharvest.report.tracking import log_to_mlflow
from command_line import Command
from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def model() -> Propensities:
    return Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, (1, 2))


def rows() -> object:
    return ranking_data([[1.0], [0.0]], [0, 2], clicked=[0], propensity=[1.0])


def a_log() -> object:
    return read_log(pa.table({"query": ["q"] * 2, "doc": ["a", "b"], "position": [1, 2], "click": [1, 0]}))


USES: list[tuple[str, str, Callable[[], object]]] = [
    ("altair", "plots", lambda: plot_curves(model())),
    ("sklearn.ensemble", "rank", lambda: regression_em(a_log(), {})),
    ("lightgbm", "boost", lambda: train_ranker(rows(), "lightgbm")),
    ("xgboost", "boost", lambda: train_ranker(rows(), "xgboost")),
    ("onnx", "onnx", lambda: export_onnx(model(), Path("model.onnx"))),
    ("mlflow", "mlflow", lambda: log_to_mlflow(model(), Path("model.safetensors"))),
    ("pyspark.sql", "spark", lambda: spark.SparkEngine()),
]


@pytest.mark.parametrize(("package", "extra", "use"), USES, ids=[use[0] for use in USES])
def test_a_missing_package_is_named_with_its_extra(
    package: str, extra: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(spark, "check_java", lambda: None)
    with pytest.raises(ClickharvestError, match=rf"needs {package}: pip install 'clickharvest\[{extra}\]'$") as told:
        use()
    assert told.value.exit_code == 2
    assert isinstance(told.value, EngineError) == (extra == "spark")


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        ("rank log.csv features.csv --learner xgboost -o ranker.json", "xgboost", "boost"),
    ],
)
def test_commands_say_it_before_they_begin(
    words: str, package: str, extra: str, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert err.endswith(f"needs {package}: pip install 'clickharvest[{extra}]'\n")
    assert err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_extras_are_those_of_the_project() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {extra for _, extra, _ in USES} <= extras.keys()
    brought = {"sklearn.ensemble": "scikit-learn", "vl_convert": "vl-convert-python", "xgboost": "xgboost-cpu"}
    brought |= {"pyspark.sql": "pyspark", "mlflow": "mlflow-skinny"}
    for package, extra, _ in USES:
        assert any(line.startswith(brought.get(package, package)) for line in extras[extra]), package
    plain = " ".join(PROJECT["dependencies"])
    assert not [name for name in ("altair", "scikit-learn", "pandas", "vl-convert") if name in plain]
