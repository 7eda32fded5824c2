"""The report's page: what it says, what it holds, and what it must never hold."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.baselines import pivot_one
from clickharvest.errors import InputError
from clickharvest.estimation.uncertainty import sigma_points
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import CURVES, flatten_params, make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.planning.scaling import plan_from_log
from clickharvest.report.evidence import CLIPS, Evidence, clipping_table, gather_evidence
from clickharvest.report.packing import MOST_BYTES, pack_model
from clickharvest.report.page import render_page, script_json, write_report
from clickharvest.report.traffic import traffic_data
from clickharvest.simulate import simulate_ab_log
from clickharvest.words import FORMULA
from command_line import run

NAMES = ["page", "search term", "ranker", "device", "sku", "rank", "clicked"]
ROLES = ("--query", "search term", "--doc", "sku", "--position", "rank", "--click", "clicked")
WITHOUT_LOG = ["verdict", "answer", "curves", "segments", "checks", "log-tells", "sensitivity", "use", "settings"]
SECTIONS = [*WITHOUT_LOG[:6], "traffic", *WITHOUT_LOG[6:]]


class Page(HTMLParser):
    """What a reader's browser would make of the page: its text, its scripts, its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.attributes: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {f"{tag} {name}": value or "" for name, value in attrs}
        self.ids += [value for name, value in attrs if name == "id" and tag == "section" and value]

    def handle_data(self, data: str) -> None:
        within = self.scripts if self.tags and self.tags[-1] == "script" and data.strip() else self.texts
        within.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts[0]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Evidence]]:
    """A log with column names of its own, a model of it, and the report of both, made as a user would.

    Also what the report read from the log.
    """
    folder = tmp_path_factory.mktemp("report")
    seen: list[Evidence] = []

    def gather(*arguments: Any, **options: Any) -> Evidence:
        seen.append(gather_evidence(*arguments, **options))
        return seen[-1]

    pq.write_table(simulate_ab_log(pages=6_000, seed=2)[0].rename_columns(NAMES), folder / "my log.parquet")
    options = ("--context", "device", "--curve", "power", "--penalty", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("fit", "my log.parquet", *ROLES, *options, "-o", "model.safetensors") == 0
        with pytest.MonkeyPatch.context() as watch:
            watch.setattr("clickharvest.report.evidence.gather_evidence", gather)
            assert run("report", "model.safetensors", "--log", "my log.parquet", *ROLES, "-o", "report.html") == 0
        yield folder, seen[0]


@pytest.fixture(scope="module")
def folder(made: tuple[Path, Evidence]) -> Path:
    return made[0]


@pytest.fixture(scope="module")
def evidence(made: tuple[Path, Evidence]) -> Evidence:
    return made[1]


@pytest.fixture
def quick_pbm(monkeypatch: pytest.MonkeyPatch) -> None:
    """PivotOne in place of the PBM that the report compares with, for tests of something else: it needs no compiler."""

    class Quick:
        def __init__(self, anchor: int, **_: object) -> None:
            self.anchor = anchor

        def fit(self, interventions: Interventions) -> Quick:
            self.propensities_ = pivot_one(interventions, anchor=self.anchor)
            return self

    monkeypatch.setattr("clickharvest.report.evidence.PBM", Quick)


def simple_model(name: str, d: int, k: int, draws: int = 0, **shape: int) -> Propensities:
    random = np.random.default_rng(0)
    encoder = ContextEncoder.fit({f"feature {j}": random.normal(size=20) for j in range(d)}) if d else None
    curve = make_curve(name, tuple(range(1, k + 1)), 1, d, **shape)
    params = curve.init(random)
    flat = flatten_params(params)
    spread = flat + 0.1 * random.normal(size=(draws, len(flat))) if draws else None
    kind = "bootstrap" if draws else None
    return Propensities(curve, params, encoder, curve.positions, draws=spread, draws_kind=kind)


def test_sections_stand_in_their_order(folder: Path) -> None:
    page = Page((folder / "report.html").read_text())
    assert page.ids == SECTIONS
    answer = re.findall(r'<section id="answer".*?</section>', (folder / "report.html").read_text(), re.DOTALL)[0]
    assert answer.count("<p>") == 2
    assert page.text.index("With care".lower()) < page.text.index("How likely a result") < page.text.index("How examin")
    for told in ("What to do:", "It depends on device", "linked to position 1", "Transitivity", "Effective clicks"):
        assert told.lower() in page.text.lower(), told


def test_numbers_of_the_page_are_those_of_the_log(folder: Path, evidence: Evidence) -> None:
    page = Page((folder / "report.html").read_text())
    assert page.data["diagnosis"]["pairs"] == [
        {
            "position": pair.position,
            "other": pair.other,
            "units": pair.units,
            "clicks": pair.clicks,
            "other_clicks": pair.other_clicks,
            "effective_clicks": pytest.approx(pair.effective_clicks),
            "information": pytest.approx(pair.information),
        }
        for pair in evidence.diagnosis.pairs
    ]
    cpbm, pbm, rates = page.data["comparison"]
    assert evidence.pbm is not None
    expected = evidence.pbm.predict()
    for name in ("lower", "upper"):
        np.testing.assert_allclose([point[name] for point in pbm["points"]], getattr(expected, name)[0])
    shown = evidence.diagnosis.shown
    ctr = np.array([row.clicks / row.impressions for row in shown])
    np.testing.assert_allclose([point["p"] for point in rates["points"]], ctr / ctr[0])
    table = pq.read_table(folder / "my log.parquet")
    assert f"{table.num_rows:,} impressions" in page.text
    model = load_propensities(folder / "model.safetensors")
    ends = model.predict({"device": ["desktop", "mobile"]}).propensity
    np.testing.assert_allclose([point["upper"] for point in cpbm["points"]], ends[0])
    np.testing.assert_allclose([point["lower"] for point in cpbm["points"]], ends[1])


def test_spread_and_plan_are_those_of_the_interventions(folder: Path, evidence: Evidence) -> None:
    roles = dict(zip(("query", "doc", "position", "click"), ROLES[1::2], strict=True))
    interventions = harvest(read_log(folder / "my log.parquet", **roles, context=["device"]))
    page = Page((folder / "report.html").read_text())
    assert page.data["traffic"] == traffic_data(plan_from_log(interventions))
    assert plan_from_log(interventions).sentence in page.text
    p = load_propensities(folder / "model.safetensors").predict(interventions.contexts).propensity
    mean = np.average(p, axis=0, weights=interventions.impressions)
    np.testing.assert_allclose(evidence.spread[1], mean)


def test_clicks_and_weights_are_those_of_the_whole_log(folder: Path, evidence: Evidence) -> None:
    table = pq.read_table(folder / "my log.parquet").to_pandas()
    clicked = table[table.clicked == 1]
    p = load_propensities(folder / "model.safetensors").predict({"device": ["desktop", "mobile"]}).propensity
    own = p[(clicked.device == "mobile").astype(int), clicked["rank"] - 1]
    assert evidence.clicks == len(own)
    assert evidence.left_out == 0
    for row in evidence.clipping:
        weight = 1 / np.maximum(own, row.clip)
        assert row.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
        assert row.clipped == pytest.approx((own < row.clip).mean())
        assert row.largest == pytest.approx(weight.max())
    assert evidence.chosen is not None
    assert evidence.chosen.clip == pytest.approx(1 / np.sqrt(len(own)))


def test_without_clicks_there_is_no_table_of_clipping() -> None:
    assert clipping_table(np.array([0.5]), np.array([0])) == ()
    assert len(clipping_table(np.array([0.5]), np.array([1]))) == len(CLIPS)


def bare(path: Path) -> bytes:
    """A model's file without time and command, which differ."""
    replace(load_propensities(path), provenance=None).save(path.with_name("bare.safetensors"))
    return path.with_name("bare.safetensors").read_bytes()


def test_the_fit_command_on_the_page_makes_the_same_model(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    command = next(line for line in Page(page).texts[-200:] if line.startswith("clickharvest fit")).splitlines()[0]
    model = bare(folder / "model.safetensors")
    words = shlex.split(command)[1:]
    words[-1] = "again.safetensors"
    assert words[1] == "my log.parquet"
    assert run(*words) == 0
    assert bare(folder / "again.safetensors") == model


def test_the_page_tells_the_models_origin_not_its_own(folder: Path) -> None:
    told = Provenance({"clickharvest": "0.0.7", "numpy": "0.1"}, "CPBM", {"seed": 3}, "2020-02-03T04:05:06Z")
    model = replace(load_propensities(folder / "model.safetensors"), provenance=told)
    write_report(folder / "origin.html", model)
    text = Page((folder / "origin.html").read_text()).text
    for part in ("clickharvest 0.0.7, numpy 0.1", "CPBM(seed=3)", "2020-02-03 04:05:06 UTC"):
        assert part in text
    assert version("numpy") not in text
    assert "does not tell a command that made it" in text
    write_report(folder / "origin.html", replace(model, provenance=None))
    text = Page((folder / "origin.html").read_text()).text
    assert "The model does not tell where it comes from" in text
    assert version("numpy") not in text


def test_equal_input_gives_equal_bytes(folder: Path, evidence: Evidence) -> None:
    model = load_propensities(folder / "model.safetensors")
    for name in ("a.html", "b.html"):
        write_report(folder / name, model, evidence)
    assert (folder / "a.html").read_bytes() == (folder / "b.html").read_bytes()


@pytest.mark.usefixtures("quick_pbm")
def test_interventions_stand_in_for_the_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("harvest", "my log.parquet", *ROLES, "--context", "device", "-o", "interventions.parquet") == 0
    capsys.readouterr()
    out = ("-o", "interventions.html")
    assert run("report", "model.safetensors", "--log", "interventions.parquet", *out, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    page = Page((folder / "interventions.html").read_text())
    assert printed["bytes"] == (folder / "interventions.html").stat().st_size
    assert [series["name"].split(",")[0] for series in page.data["comparison"]] == ["CPBM", "PBM"]
    assert "only interventions were given here" in page.text
    assert "not the data the model was fitted on" not in page.text


@pytest.mark.usefixtures("quick_pbm")
def test_another_log_is_called_another(folder: Path) -> None:
    table = simulate_ab_log(pages=2_000, seed=9)[0]
    model = load_propensities(folder / "model.safetensors")
    other = gather_evidence(read_log(table, context=["device"]), model)
    write_report(folder / "other.html", model, other)
    text = Page((folder / "other.html").read_text()).text
    assert "The log given here is not the data that the model was fitted on" in text
    assert other.same_data is False


def test_without_a_log_the_page_says_how_to_fill_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", "model.safetensors", "-o", "alone.html", "--title", "Q3 & Q4") == 0
    assert "add --log" in capsys.readouterr().out
    page = Page((folder / "alone.html").read_text())
    assert page.ids == WITHOUT_LOG
    assert page.text.count("clickharvest report model.safetensors --log clicks.parquet -o report.html") == 3
    assert page.data["diagnosis"] is None
    assert "Q3 & Q4" in page.text
    assert "Transitivity".lower() in page.text  # the checks that fit kept in the model


def test_a_pbm_has_one_curve(folder: Path) -> None:
    model = Propensities(make_curve("constant", (1, 2, 4), 1, 0), {"b": np.log([0.5, 0.2])}, None, (1, 2, 3, 4))
    write_report(folder / "pbm.html", model)
    page = Page((folder / "pbm.html").read_text())
    assert "All queries get this one curve" in page.text
    assert "No estimate at position 3" in page.text
    assert 'id="controls"' not in (folder / "pbm.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model.safetensors",), "name a file with -o"),
        (("model.safetensors", "-o", "report.pdf"), "should end in .html"),
        (("none.safetensors", "-o", "none.html"), "no file none.safetensors"),
        (("model.safetensors", "-o", "none.html", "--level", "2"), "between 0 and 1"),
        (("model.safetensors", "-o", "none.html", "--log", "my log.parquet"), "query"),
        (("model.safetensors", "-o", "none.html", "--log", "absent.parquet"), "absent.parquet"),
        (("model.safetensors", "-o", "absent/none.html"), "does not exist"),
    ],
)
def test_bad_options_are_one_line_and_leave_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert run("report", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (folder / "none.html").exists()


def test_a_log_read_without_the_models_columns_is_refused(folder: Path) -> None:
    log = read_log(simulate_ab_log(pages=200)[0])
    with pytest.raises(InputError, match="depends on the context columns device"):
        gather_evidence(log, load_propensities(folder / "model.safetensors"))


def test_the_page_asks_for_nothing_and_runs_its_own_script_alone(folder: Path) -> None:
    html = (folder / "report.html").read_text()
    page = Page(html)
    assert set(re.findall(r"https?://[^\s\"'<>]+", html)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<[^>]*\s(?:src|on\w+)\s*=", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL))
    policy = page.attributes["meta content"] if "default-src" in page.attributes["meta content"] else html
    hashed = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{hashed}'" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "&amp;", "\u2028\u2029", "\x00\ud800"])
def test_json_cannot_leave_its_script(text: str) -> None:
    written = script_json({text: [text]})
    assert not re.search("[<>&\u2028\u2029\x00]", written)
    assert json.loads(written) == {text: [text]}


def test_the_page_and_files_of_csv_guard_against_the_same_formulas() -> None:
    assert f"/^(?:{FORMULA})/" in files("clickharvest.report").joinpath("assets", "page.js").read_text(encoding="utf-8")


def test_every_string_is_escaped(folder: Path) -> None:
    hostile = "\"'><img src=x onerror=alert(1)></script><b>"
    encoder = ContextEncoder.fit({hostile: [f"{hostile}1", f"{hostile}2"]})
    curve = make_curve("power", (1, 2), 1, 3)
    info = dict.fromkeys(("estimator", "objective", "status", "data", "seed"), hostile)
    info["checks"] = [{"name": hostile, "status": "warning", "sentence": hostile}]
    info["selection"] = [{"curve": {"name": hostile}, "penalty": 1, "score": hostile, "chosen": True}]
    model = Propensities(curve, {"a": np.ones(1), "w": np.ones((3, 1))}, encoder, (1, 2), info=info)
    size = write_report(folder / "h.html", model, name=hostile, title=hostile, commands={"report": hostile})
    html = (folder / "h.html").read_text()
    assert size == len(html.encode())
    assert "<img" not in html
    assert Page(html).tags.count("script") == 2
    assert Page(html).text.count(hostile) >= 8
    assert Page(html).data["columns"][0]["name"] == hostile


def test_curves_that_were_left_have_no_standard_error_on_the_page(folder: Path) -> None:
    left = {"curve": {"name": "mlp"}, "penalty": 1.0, "score": -1.5, "se": 0.0, "chosen": False, "folds": 2}
    whole = {"curve": {"name": "linear"}, "penalty": 2.0, "score": -1.25, "se": 0.03, "chosen": True, "folds": None}
    write_report(folder / "s.html", replace(simple_model("linear", 1, 3), info={"selection": [left, whole]}))
    text = " ".join(Page((folder / "s.html").read_text()).text.split())
    assert "-1.50000–left after 2 folds" in text
    assert "-1.250000.03000chosen" in text


@pytest.mark.parametrize(("name", "shape"), [("linear", {}), ("lowrank", {"rank": 2}), ("mlp", {"width": 12})])
def test_large_models_stay_below_three_megabytes(name: str, shape: dict[str, int], tmp_path: Path) -> None:
    model = simple_model(name, 70, 21, draws=1_000, **shape)
    assert write_report(tmp_path / "large.html", model) < 3_000_000


@pytest.mark.parametrize(("size", "bits", "count"), [(20, 16, 1000), (1_000, 8, 1000), (3_000, 8, MOST_BYTES // 3_000)])
def test_packed_draws_keep_their_spread(size: int, bits: int, count: int) -> None:
    model = simple_model("constant", 0, size + 1, draws=1_000)
    packed = pack_model(model)["draws"]
    assert (packed["bits"], packed["count"], packed["of"]) == (bits, count, 1_000)
    low, step = (np.frombuffer(base64.b64decode(packed[key]), "<f8") for key in ("low", "step"))
    steps = np.frombuffer(base64.b64decode(packed["steps"]), f"<u{bits // 8}").reshape(count, size)
    assert model.draws is not None
    np.testing.assert_allclose((low + step * steps).std(axis=0), model.draws[:count].std(axis=0), rtol=3e-3)


def test_draws_without_room_are_left_out(tmp_path: Path) -> None:
    model = simple_model("linear", 300, 121, draws=60)
    packed = pack_model(model)
    assert packed["draws"] is None
    write_report(tmp_path / "wide.html", model)
    assert "have no room in a page" in Page((tmp_path / "wide.html").read_text()).text
    assert len(base64.b64decode(packed["params"])) == 8 * 120 * 301


@pytest.mark.parametrize(
    "info",
    [
        {"checks": "no"},
        {"checks": [{"name": "a", "status": "odd", "sentence": "b"}]},
        {"checks": [{"name": "a", "status": "ok", "sentence": "b", "p_value": "c"}]},
        {"checks": [{"surprise": 1}], "selection": [1, {"curve": None}]},
        {"selection": {"curve": 1}, "penalty": "much", "units": "many", "objective": "clickshare"},
    ],
)
def test_a_forged_model_still_has_a_page(info: dict[str, Any], tmp_path: Path) -> None:
    model = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.zeros(1)}, None, (1, 2), info=info)
    assert write_report(tmp_path / "forged.html", model) > 10_000


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_has_a_page(name: str) -> None:
    packed = pack_model(simple_model(name, 3, 5))
    assert sorted(packed["layout"]) == sorted(simple_model(name, 3, 5).params)
    script = files("clickharvest.report").joinpath("assets", "program.js").read_text(encoding="utf-8")
    for step in packed["program"]:
        assert re.search(rf'case "{step["op"]}":|^  {step["op"]}[(:]', script, re.MULTILINE), step["op"]


@pytest.mark.usefixtures("quick_pbm")
def test_pyarrow_contexts_with_nulls_are_counted(tmp_path: Path) -> None:
    table, _ = simulate_ab_log(pages=1_500, seed=1)
    device = [None if name == "mobile" else name for name in table["device"].to_pylist()]
    log = read_log(table.set_column(table.column_names.index("device"), "device", pa.array(device)), context=["device"])
    encoder = ContextEncoder.fit({"device": device})
    curve = make_curve("power", tuple(range(1, 11)), 1, 3)
    model = Propensities(curve, {"a": np.ones(1), "w": np.array([[0.0], [0.0], [0.5]])}, encoder, curve.positions)
    found = gather_evidence(log, model)
    assert found.clicks == sum(table["click"].to_pylist())
    assert found.same_data is None
    write_report(tmp_path / "nulls.html", model, found)
    labels = [choice["label"] for choice in Page((tmp_path / "nulls.html").read_text()).data["columns"][0]["choices"]]
    assert labels == ["desktop", "other", "missing"]


def test_the_renderer_misses_no_value() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        render_page({}, {})


@pytest.mark.parametrize(("size", "bits"), [(40, 16), (1_200, 8)])
def test_points_of_a_covariance_are_packed_whole(size: int, bits: int) -> None:
    root = np.random.default_rng(0).normal(size=(size, 60)) * np.geomspace(1, 0.01, 60)
    points = sigma_points(np.zeros(size), root @ root.T)
    points = np.concatenate([points] * (1 if bits == 16 else 12))
    curve = make_curve("constant", tuple(range(1, size + 2)), 1, 0)
    model = Propensities(curve, {"b": np.zeros(size)}, None, curve.positions, points, "clustered")
    page = pack_model(model)
    packed = page["draws"]
    assert (packed["bits"], packed["count"]) == (bits, len(points))
    low, step = (np.frombuffer(base64.b64decode(packed[key]), "<f8") for key in ("low", "step"))
    steps = np.frombuffer(base64.b64decode(packed["steps"]), f"<u{bits // 8}").reshape(len(points), size)
    margin = page["z"] * (low + step * steps).std(axis=0, ddof=1)
    assert margin == pytest.approx(1.959964 * points.std(axis=0, ddof=1), rel=0.01)
