"""Outcomes on the command line: check, fit, show, report and weigh, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest import load_propensities, read_log, weigh
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.simulate import add_purchases, simulate_ab_log
from command_line import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs with and without dependence, and models of clicks and of purchases."""
    place = tmp_path_factory.mktemp("purchases")
    shown = simulate_ab_log(pages=4_000)[0]
    for name, steepness in (("falls", 0.6), ("same", 0.0)):
        pq.write_table(add_purchases(shown, steepness=steepness), place / f"{name}.parquet")
    assert run("fit", place / "falls.parquet", "-o", place / "clicks.safetensors") == 0
    assert run("fit", place / "falls.parquet", "--outcome", "purchase", "-o", place / "after.safetensors") == 0
    return place


def test_check_tells_whether_buying_depends_on_the_position(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for name in ("falls", "same"):
        assert run("check", folder / f"{name}.parquet", "--outcome", "purchase", "--json") == 0
        findings = json.loads(capsys.readouterr().out)["findings"]
        found[name] = {own["kind"]: own for own in findings}
    assert found["falls"]["outcome"]["p"] < 0.001
    assert found["same"]["outcome"]["p"] > 0.01
    assert "clicks led to purchase" in found["same"]["outcomes"]["sentence"]


def test_nothing_linked_after_the_click_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = simulate_ab_log(pages=600)[0]
    click, position = (shown[name].to_numpy() for name in ("click", "position"))
    lonely = shown.append_column("sold", pa.array((click & (position == 1) & (np.arange(len(click)) % 3 == 0)) * 1))
    pq.write_table(lonely, tmp_path / "log.parquet")
    for more in (("check",), ("fit", "-o", str(tmp_path / "m.safetensors"))):
        command, *rest = more
        assert run(command, tmp_path / "log.parquet", "--outcome", "sold", *rest) == 3
        told = capsys.readouterr()
        words = " ".join((told.out + told.err).split())
        assert "sold after a click cannot be compared with that at position 1" in words
    assert not (tmp_path / "m.safetensors").exists()


def test_the_model_says_what_it_is(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", folder / "after.safetensors") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("purchase after a click, by position: curve constant")
    assert "These are not propensities of examination" in shown
    out = tmp_path / "report.html"
    assert run("report", folder / "after.safetensors", "--log", folder / "falls.parquet", "-o", out) == 0
    page = out.read_text()
    assert "Report on what comes of a click" in page
    assert "--outcome purchase --after-click after.safetensors" in page
    assert "Examination report" not in page


def test_weights_make_purchases_as_if_all_positions_were_alike() -> None:
    """One document at random positions: weighed purchases by display are the same everywhere, up to chance."""
    random, n = np.random.default_rng(1), 60_000
    k = random.integers(1, 6, n)
    p, s = k**-0.8, k**-0.5
    click = random.random(n) < 0.8 * p
    bought = click & (random.random(n) < 0.9 * s)
    log = read_log(pa.table({"query": ["q"] * n, "doc": ["d"] * n, "position": k, "click": click, "bought": bought}))
    clicks, after = (
        Propensities(make_curve("constant", (1, 2, 3, 4, 5), 1, 0), {"b": -power * np.log([2, 3, 4, 5])}, None,
                     (1, 2, 3, 4, 5), info=info)
        for power, info in ((0.8, {}), (0.5, {"outcome": "bought"}))
    )  # fmt: skip
    rates = {}
    for name, curve in (("both", after), ("clicks alone", "same")):
        weights = weigh(log, clicks, outcome="bought", after_click=curve)  # type: ignore[arg-type]
        table = log.engine.fetch(weights.table, task="Weighing").to_pandas()
        weighed = table.assign(own=table["bought"] * table["outcome_weight"])
        rates[name] = weighed.groupby("position")["own"].mean().to_numpy()
        np.testing.assert_allclose(table["ips_weight"], table["position"] ** 0.8)
        assert weights.report.to_dict()["outcome"]["outcomes"] == bought.sum()
    np.testing.assert_allclose(rates["both"], 0.72, rtol=0.1)
    np.testing.assert_allclose(rates["clicks alone"], 0.72 * np.arange(1, 6) ** -0.5, rtol=0.1)


@pytest.mark.filterwarnings("default::clickharvest.errors.HarvestWarning")
def test_weigh_takes_both_models_and_warns_of_what_is_said_wrongly(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, common = tmp_path / "w.parquet", (folder / "clicks.safetensors", "--outcome", "purchase", "--clip", "auto")
    after = folder / "after.safetensors"
    assert run("weigh", folder / "falls.parquet", *common, "--after-click", after, "-o", out) == 0
    assert "outcomes (purchase) by clicks and what comes of them" in " ".join(capsys.readouterr().out.split())
    own = pq.read_table(out).to_pandas()
    p, s = (load_propensities(folder / name).predict().clipped()[0] for name in ("clicks.safetensors", after))
    np.testing.assert_allclose(own["outcome_propensity"], (p * s)[own["position"] - 1])
    clip = 1 / np.sqrt(own["purchase"].sum())
    np.testing.assert_allclose(own["outcome_weight"], 1 / np.maximum(own["outcome_propensity"], clip))
    assert run("weigh", folder / "same.parquet", *common, "--after-click", "same", "-o", out) == 0
    assert not capsys.readouterr().err
    assert run("weigh", folder / "falls.parquet", *common, "--after-click", "same", "-o", out) == 0
    assert "Warning: --after-click same: After a click on the same result, purchase" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["weigh", "{}/falls.parquet", "{}/clicks.safetensors", "--outcome", "purchase"], "--after-click MODEL"),
        (["weigh", "{}/falls.parquet", "{}/clicks.safetensors", "--after-click", "same"], "--outcome COLUMN"),
        (["weigh", "{}/falls.parquet", "{}/after.safetensors"], "not what is examined"),
        (["weigh", "{}/falls.parquet", "{}/clicks.safetensors", "--outcome", "purchase", "--after-click",
          "{}/clicks.safetensors"], "is one of examination"),
        (["weigh", "{}/falls.parquet", "{}/clicks.safetensors", "--outcome", "purchase", "--after-click", "same",
          "--policy-aware"], "leave out --outcome or --policy-aware"),
        (["fit", "{}/falls.parquet", "--outcome", "nothing"], "no such column"),
        (["fit", "{}/falls.parquet", "--outcome", "purchase", "--swap", "3"], "not by a design"),
        (["judgments", "{}/falls.parquet", "{}/after.safetensors"], "not what is examined"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_exit_2(
    arguments: list[str], told: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = {"weigh": "w.parquet", "fit": "m.safetensors", "judgments": "j.csv"}[arguments[0]]
    assert run(*(word.replace("{}", str(folder)) for word in arguments), "-o", tmp_path / out) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.startswith("Error: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_interventions_have_no_outcomes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harvested = tmp_path / "i.parquet"
    assert run("harvest", folder / "falls.parquet", "-o", harvested) == 0
    assert run("check", harvested, "--outcome", "purchase") == 2
    assert "holds interventions, which have no outcomes" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::clickharvest.errors.HarvestWarning")
def test_a_model_of_another_outcome_is_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = pq.read_table(folder / "falls.parquet")
    names = ["refund" if name == "purchase" else name for name in log.column_names]
    pq.write_table(log.rename_columns(names), tmp_path / "log.parquet")
    words = ("weigh", tmp_path / "log.parquet", folder / "clicks.safetensors", "--outcome", "refund")
    assert run(*words, "--after-click", folder / "after.safetensors", "-o", tmp_path / "w.parquet") == 0
    assert "--outcome refund: the model after the click is of purchase" in capsys.readouterr().err


def test_models_of_clicks_and_of_purchases_are_not_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clicks, after = folder / "clicks.safetensors", folder / "after.safetensors"
    assert run("compare", clicks, after) == 2
    assert (
        "different things, clicks.safetensors of examination, after.safetensors of purchase" in capsys.readouterr().err
    )
    assert run("compare", after, "--log", folder / "falls.parquet") == 2
    assert "not what is examined" in capsys.readouterr().err
