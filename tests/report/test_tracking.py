"""MLflow keeps what a fit was: parameters, figures, the budget, the model file and its report."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickharvest.checks import Budget, Checked
from clickharvest.errors import InputError
from clickharvest.estimation.estimators import PBM
from clickharvest.harvesting.collecting import harvest
from clickharvest.logs.reading import read_log
from clickharvest.model.propensities import Propensities
from clickharvest.report.tracking import log_to_mlflow, run_metrics, run_tags
from clickharvest.simulate import simulate_ab_log


@pytest.fixture(scope="module")
def model() -> Propensities:
    log, _ = simulate_ab_log(pages=1_000)
    return PBM(intervals="sandwich", replicates=50).fit(harvest(read_log(log))).propensities_


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    return mlflow


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_run_holds_parameters_figures_model_and_report(model: Propensities, tmp_path: Path, mlflow: Any) -> None:
    path = tmp_path / "model.safetensors"
    budget = Budget((2,), (0.2,), (0.1,), {"noise": (0.2,)}, (0.2,), {})
    model = replace(model, info=dict(model.info) | Checked((), budget).info())
    model.save(path)
    client = mlflow.MlflowClient()
    run_id = log_to_mlflow(model, path)
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["curve"] == "constant"
    assert run.data.params["objective"] == "clickshare"
    assert run.data.metrics["clicks"] == model.info["clicks"]
    assert run.data.metrics["log_likelihood"] == pytest.approx(model.info["log_likelihood"])
    assert run.data.metrics["budget_off"] == run.data.metrics["budget_noise"] == 0.2
    assert run.data.tags["budget"] == "usable"
    assert {file.path for file in client.list_artifacts(run_id)} == {"model.safetensors", "report.html"}


def test_the_budget_is_metrics_and_a_tag(model: Propensities) -> None:
    budget = Budget((2, 3), (0.2, 0.5), (0.1, 0.1), {"clicks above": (0.1, 0.4), "noise": (0.2, np.inf)}, (1, 1), {})
    checked = replace(model, info={"clicks": np.int64(3)} | Checked((), budget).info())
    assert run_metrics(checked) == {"clicks": 3.0, "budget_off": 0.5, "budget_clicks_above": 0.4}
    assert run_tags(checked) == {"budget": "with care"}
    unchecked = replace(model, info={"clicks": 3})
    assert run_metrics(unchecked) == {"clicks": 3.0}
    assert run_tags(unchecked) == {}


def test_without_mlflow_one_line_says_what_to_install(
    model: Propensities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"pip install 'clickharvest\[mlflow\]'"):
        log_to_mlflow(model, tmp_path / "model.safetensors")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_fit_names_the_run(tmp_path: Path, mlflow: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import pyarrow.parquet as pq

    from clickharvest.commands import app as cli

    pq.write_table(simulate_ab_log(pages=500)[0], tmp_path / "log.parquet")
    words = (
        f"clickharvest fit {tmp_path}/log.parquet --intervals none --log-to mlflow --json -o {tmp_path}/m.safetensors"
    )
    monkeypatch.setattr(sys, "argv", words.split())
    assert cli._run() == 0
    run_id = json.loads(capsys.readouterr().out)["mlflow_run"]
    assert mlflow.get_run(run_id).data.params["estimator"] == "PBM"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_refusal_says_where_the_model_is(
    model: Propensities, tmp_path: Path, mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://at-all")
    with pytest.raises(InputError, match=r"MLflow refused the run, while the model is saved in .*m\.safetensors"):
        log_to_mlflow(model, tmp_path / "m.safetensors")
