"""`fit --model affine` as a user types it: from a log to corrected clicks, and what is refused in a line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import ndtri

from clickharvest.click_models import AffineModel, load_model
from clickharvest.click_models.affine import trust_within_queries
from clickharvest.harvesting import Interventions
from clickharvest.simulate import simulate_trust_log
from command_line import run
from samples import simulated_interventions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("affine")
    log, _ = simulate_trust_log(pages=12_000, queries=120, positions=4, docs=8)
    pq.write_table(log, folder / "log.parquet")
    assert run("fit", folder / "log.parquet", "--model", "affine", "-o", folder / "model.safetensors") == 0
    return folder


def test_from_log_to_corrected_clicks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", folder / "model.safetensors") == 0
    shown = capsys.readouterr().out
    assert "Affine clicks" in shown
    assert "Offsets are needed (p < 0.001)" in shown
    checks = load_model(folder / "model.safetensors").info["findings"]
    assert {"kind": "trust within queries", "severity": "ok"}.items() <= checks[0].items()
    assert f"Command: clickharvest fit {folder / 'log.parquet'} --model affine" in shown
    assert run("show", folder / "model.safetensors", "--json") == 0
    assert json.loads(capsys.readouterr().out)["model"] == "affine"

    out = folder / "weighed.parquet"
    assert run("weigh", folder / "log.parquet", folder / "model.safetensors", "-o", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    log, weighed = pq.read_table(folder / "log.parquet"), pq.read_table(out)
    assert weighed.column_names == [
        *log.column_names, "click_slope", "click_offset", "corrected_click", "correction_supported",
    ]  # fmt: skip
    assert weighed.num_rows == log.num_rows
    model = load_model(folder / "model.safetensors")
    assert isinstance(model, AffineModel)
    rows = {name: weighed[name].to_numpy() for name in ("clicks", "position", "impressions", "corrected_click")}
    expected = model.correct(rows["clicks"], rows["position"], rows["impressions"])
    assert np.allclose(rows["corrected_click"], expected)
    assert told["corrected"] == pytest.approx(rows["corrected_click"].sum())
    assert told["unsupported_positions"] == []


def test_the_page_tells_slopes_and_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, model = folder / "page.html", folder / "model.safetensors"
    assert run("report", model, "-o", page, "--title", "<b>trust</b>") == 0
    text = page.read_text()
    assert "&lt;b&gt;trust&lt;/b&gt;" in text
    assert "Offsets are needed (p &lt; 0.001)" in text
    assert f"{load_model(model).describe()['positions'][1]['slope']:.3f}" in text
    assert "trust within queries" in text
    assert run("report", model, "--log", folder / "log.parquet", "-o", page) == 2
    assert "says nothing of a log" in capsys.readouterr().err
    assert run("report", model, "--level", "1.5", "-o", page) == 2


def test_a_ranker_learns_from_corrected_clicks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, model, features = folder / "log.parquet", folder / "model.safetensors", folder / "features.parquet"
    shown = pq.read_table(log).group_by(["query", "doc"]).aggregate([])
    noise = np.random.default_rng(0).normal(size=(2, shown.num_rows))
    pq.write_table(
        pa.table({**dict(zip("ab", noise, strict=True)), "query": shown["query"], "doc": shown["doc"]}), features
    )
    ranker = folder / "ranker.json"
    fixed = ("--C", "1", "--clip", "0.05", "-o", ranker)
    assert run("rank", log, features, "--model", model, *fixed, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["corrected"]
    assert told["unsupported_clicks"] == 0
    assert not told["verdict"].startswith("Better")  # noise ranks no better
    weighed = folder / "for the ranker.parquet"
    assert run("weigh", log, model, "-o", weighed) == 0
    assert run("rank", weighed, features, *fixed) == 0
    assert "Clicks are corrected" in capsys.readouterr().out
    assert json.loads(ranker.read_text())["info"]["data"]["sha256"]
    assert run("labels", log, "--model", model, "-o", folder / "labels.parquet") == 0
    assert "shift" in pq.read_table(folder / "labels.parquet").column_names


def test_judgments_are_of_corrected_clicks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "judgments.parquet"
    assert run("judgments", folder / "log.parquet", folder / "model.safetensors", "-o", out) == 0
    assert "Judged" in capsys.readouterr().out
    judged = pq.read_table(out)
    model = load_model(folder / "model.safetensors")
    assert isinstance(model, AffineModel)
    rows = pq.read_table(folder / "log.parquet").to_pandas()
    rows["corrected"] = model.correct(rows["clicks"], rows["position"], rows["impressions"])
    rows["seen"] = np.interp(rows["position"], model.positions, model.slope) * rows["impressions"]
    rows["net"] = rows["corrected"] * rows["seen"] / rows["impressions"]
    sums = rows.groupby(["query", "doc"])[["net", "seen"]].sum()
    sums["raw"] = sums["net"] / sums["seen"]
    both = judged.to_pandas().join(sums, on=["query", "doc"])
    assert np.allclose(both["effective_impressions"], both["seen"])
    assert ((both["relevance"] >= 0) & (both["upper"] <= 1)).all()
    assert np.corrcoef(both["relevance"], both["raw"])[0, 1] > 0.8
    assert ((both["lower"] <= both["relevance"]) & (both["relevance"] <= both["upper"])).all()
    assert set(both["grade"]) >= {0, 1, 2}
    weighed = folder / "judged again.parquet"
    assert run("weigh", folder / "log.parquet", folder / "model.safetensors", "-o", weighed) == 0
    assert run("judgments", weighed, folder / "model.safetensors", "-o", folder / "again.parquet") == 0
    assert pq.read_table(folder / "again.parquet").equals(judged)


def test_single_displays_and_positions_without_an_estimate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = pa.table({"query": ["q"] * 3, "doc": ["a", "b", "c"], "position": [1, 2, 9], "click": [1, 0, 1]})
    pq.write_table(shown, folder / "few.parquet")
    out = folder / "few weighed.parquet"
    assert run("weigh", folder / "few.parquet", folder / "model.safetensors", "-o", out) == 0
    assert "Cannot tell position 9 (rows: 1, clicks: 1)" in capsys.readouterr().out
    rows = sorted(pq.read_table(out).to_pylist(), key=lambda row: row["position"])
    assert rows[0]["corrected_click"] == 1.0
    assert rows[1]["corrected_click"] == pytest.approx(-rows[1]["click_offset"] / rows[1]["click_slope"])
    assert [row["corrected_click"] for row in rows[2:]] == [None]
    assert [row["correction_supported"] for row in rows] == [True, True, False]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fit", "log.parquet", "--model", "affine", "--curve", "power"), "the model affine has no such option"),
        (("fit", "log.parquet", "--model", "affine", "--intervals", "bootstrap"), "those of the model affine are"),
        (
            ("fit", "log.parquet", "--model", "affine", "--cluster", "doc"),
            "error bars of the model affine are by query",
        ),
        (("weigh", "log.parquet", "model.safetensors", "--clip", "auto"), "corrects clicks"),
        (("weigh", "log.parquet", "model.safetensors", "--policy-aware"), "corrects clicks"),
        (("propensities", "model.safetensors"), "a model of affine has no examination propensities"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line(
    folder: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    endings = {"fit": "out.safetensors", "weigh": "out.parquet", "propensities": "out.parquet"}
    words = [folder / word if (folder / word).exists() else word for word in arguments]
    assert run(*words, "-o", tmp_path / endings[arguments[0]]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_queries_that_read_differently_are_not_taken_for_trust() -> None:
    """Steeper queries look like trust; the check that compares documents of one query is not, or seldom, taken in."""
    random = np.random.default_rng(2)
    queries, docs, k = 300, 6, np.arange(1, 4)
    unit = np.repeat(np.arange(queries * docs), 3)
    found = []
    for _ in range(6):
        relevance = random.uniform(0.1, 0.6, (queries, docs, 1)) * random.uniform(0.3, 1.6, (queries, 1, 1))
        steep = np.exp(random.normal(0, 0.5, (queries, 1, 1)))
        shown = np.full((queries, docs, 3), 40)
        clicks = random.binomial(shown, relevance * k**-steep)
        rows = Interventions(
            unit=unit, query=unit // docs, position=np.tile(k, queries * docs), exposure=shown.ravel().astype(float),
            clicks=clicks.ravel(), impressions=shown.ravel(),
        )  # fmt: skip
        found.append(trust_within_queries(rows))
    assert {check.kind for check in found} == {"trust within queries"}
    not_taken = [check for check in found if check.severity == "warning"]
    assert len(not_taken) >= 4
    assert all(check.advice == "prefer fit --model examination" for check in not_taken)


@pytest.mark.parametrize(
    ("value", "p_value", "told"),
    [(-0.16, 0.008, "fall more steeply (p = 0.008), the contrary of trust"), (-0.16, 0.4, "no sign of trust (p = 0.4")],
)
def test_the_contrary_of_trust_is_not_called_no_sign(
    value: float, p_value: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = abs(value / ndtri(p_value / 2))
    found = np.array([0.0, value]), np.array([0.0, error])
    monkeypatch.setattr("clickharvest.checks.relevance.effect_of_relevance", lambda *_, **__: found)
    check = trust_within_queries(simulated_interventions(5, seed=0, steepness={"x": 1.0}))
    assert (check.severity, told in check.sentence) == ("warning", True)
