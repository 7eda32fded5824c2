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
import pyarrow.parquet as pq
import pytest

from clickharvest.checks import CHECKS, TOLERANCE, Budget, Checked, Finding, check_fit
from clickharvest.estimation.uncertainty import sigma_points
from clickharvest.harvesting.collecting import harvest
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import CURVES, flatten_params, make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.planning.traffic import plan_from_log
from clickharvest.report.log_summary import summarise_log
from clickharvest.report.packing import MOST_BYTES, pack_model
from clickharvest.report.page import render_page, script_json, write_report
from clickharvest.report.sections import traffic_data
from clickharvest.simulate import simulate_ab_log
from clickharvest.words import FORMULA
from command_line import run

pytestmark = pytest.mark.usefixtures("one_duckdb")

NAMES = ["page", "search term", "ranker", "device", "sku", "rank", "clicked"]
ROLES = ("--query", "search term", "--doc", "sku", "--position", "rank", "--click", "clicked")
SECTIONS = ["budget", "curves", "segments", "traffic", "use", "settings"]


FORGED = Budget((2,), (np.inf,), (1.0,), {"a": (np.inf,)}, (1.0,), {"b": "c"}, 0.0, "").to_dict()


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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log with names of its own, a model of it without checks, and the report of both, made as a user would."""
    folder = tmp_path_factory.mktemp("report")
    pq.write_table(simulate_ab_log(pages=6_000, seed=2)[0].rename_columns(NAMES), folder / "my log.parquet")
    options = ("--context", "device", "--curve", "power", "--penalty", 1, "--no-checks")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("fit", "my log.parquet", *ROLES, *options, "-o", "model.safetensors") == 0
        assert run("report", "model.safetensors", "--log", "my log.parquet", *ROLES, "-o", "report.html") == 0
        yield folder


def checked_model(folder: Path, budget: Budget | None = None) -> tuple[Propensities, Checked]:
    """The model as fit keeps it, with a budget and one problem."""
    model = load_propensities(folder / "model.safetensors")
    k = model.curve.positions[1:]
    small = (0.18,) * len(k)
    budget = budget or Budget(k, small, small, {"noise": small, "time": (0.12,) * len(k)}, small, {"crowd": "user"})
    findings = (
        Finding("time", "warning", "Results change.", "swap results"),
        Finding("crowd", "untested", "Not tested."),
    )
    checked = Checked(findings, budget)
    return replace(model, info=dict(model.info) | checked.info()), checked


def simple_model(name: str, d: int, k: int, draws: int = 0, **shape: int) -> Propensities:
    random = np.random.default_rng(0)
    encoder = ContextEncoder.fit({f"feature {j}": random.normal(size=20) for j in range(d)}) if d else None
    curve = make_curve(name, tuple(range(1, k + 1)), 1, d, **shape)
    params = curve.init(random)
    flat = flatten_params(params)
    spread = flat + 0.1 * random.normal(size=(draws, len(flat))) if draws else None
    kind = "bootstrap" if draws else None
    return Propensities(curve, params, encoder, curve.positions, draws=spread, draws_kind=kind)


def test_the_page_leads_with_how_far_off_the_curve_can_be(folder: Path) -> None:
    html = (folder / "report.html").read_text()
    page = Page(html)
    assert page.ids == SECTIONS
    options = dict(zip(("query", "doc", "position", "click"), ROLES[1::2], strict=True))
    log = read_log(folder / "my log.parquet", **options, context=["device"])
    budget = check_fit(log, load_propensities(folder / "model.safetensors")).budget
    assert f'class="{budget.word.replace(" ", "-")}"' in html
    number = str(budget).partition(": ")[2]
    told = [budget.word, f"{number[0].upper()}{number[1:]}", "Sources of error", "noise", "Not tested", "What to do"]
    at = [page.text.index(part) for part in told]
    assert at == sorted(at)
    assert at[-1] < page.text.index("How examination falls")
    for name, needs in budget.untested.items():
        assert re.search(rf"{name}: assumed that .*?{needs}", page.text), name
    assert "It depends on device" in page.text


def test_all_checks_stand_behind_a_fold_one_line_each(folder: Path) -> None:
    html = (folder / "report.html").read_text()
    (fold,) = re.findall(r'<details id="checks">.*?</details>', html, re.DOTALL)
    assert len(re.findall('<li class="(?:ok|note|untested|warning|decisive)">', fold)) == len(CHECKS)
    for kind in CHECKS:
        assert f"<b>{kind}</b>" in fold
    assert f"All {len(CHECKS)} checks: " in fold


def test_the_plan_on_the_page_is_that_of_the_log(folder: Path) -> None:
    options = dict(zip(("query", "doc", "position", "click"), ROLES[1::2], strict=True))
    interventions = harvest(read_log(folder / "my log.parquet", **options, context=["device"]))
    plan = plan_from_log(interventions, width=TOLERANCE)
    page = Page((folder / "report.html").read_text())
    assert page.data["traffic"] == traffic_data(plan)
    assert plan.sentence in page.text


def test_json_has_the_budget_and_the_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, checked = checked_model(folder)
    model.save(folder / "checked.safetensors")
    assert run("report", "checked.safetensors", "-o", "checked.html", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["budget"] == checked.budget.to_dict()
    assert told["findings"] == [finding.to_dict() for finding in checked.findings]
    assert (told["file"], told["log"]) == ("checked.html", None)
    assert told["bytes"] == (folder / "checked.html").stat().st_size
    text = Page((folder / "checked.html").read_text()).text
    assert "At most 22 % off at any position." in text  # p / .82 is the farther end
    assert "Results change. Swap results." in text
    assert "crowd: assumed that those who click most read like others; a user column would test it (--user)." in text


def test_the_terminal_has_the_budget_and_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked_model(folder)[0].save(folder / "checked.safetensors")
    assert run("report", "checked.safetensors", "-o", "checked.html") == 0
    brief = capsys.readouterr().out
    assert brief.startswith("usable: at most 22 % off at any position\nnoise 18 %, time 12 %\n")
    assert "! Results change. Swap results." in brief
    assert "Not tested." not in brief
    assert run("report", "checked.safetensors", "-o", "checked.html", "--verbose") == 0
    assert "Not tested." in capsys.readouterr().out


def test_options_of_the_budget_reach_the_page(folder: Path) -> None:
    asked = ("--tolerance", "75%", "--positions", "2-3", "--fold", "6")
    assert run("report", "model.safetensors", "--log", "my log.parquet", *ROLES, *asked, "-o", "asked.html") == 0
    page = Page((folder / "asked.html").read_text())
    assert "the dashed line is the tolerance, 75 %" in page.text
    assert [d["k"] for d in page.data["budget"] if d["most"] is not None] == [1, 2, 3]
    assert "--tolerance 75% --positions 2-3 --fold 6 -o asked.html" in page.text


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


def test_equal_input_gives_equal_bytes(folder: Path) -> None:
    model, _ = checked_model(folder)
    for name in ("a.html", "b.html"):
        write_report(folder / name, model)
    assert (folder / "a.html").read_bytes() == (folder / "b.html").read_bytes()


def test_interventions_stand_in_for_the_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("harvest", "my log.parquet", *ROLES, "--context", "device", "-o", "interventions.parquet") == 0
    capsys.readouterr()
    out = ("-o", "interventions.html")
    assert run("report", "model.safetensors", "--log", "interventions.parquet", *out, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"time", "clicks above", "rows"} <= printed["budget"]["untested"].keys()
    assert "not the data that the model was fitted on" not in Page((folder / "interventions.html").read_text()).text


def test_another_log_is_called_another(folder: Path) -> None:
    other = read_log(simulate_ab_log(pages=2_000, seed=9)[0], context=["device"])
    model = load_propensities(folder / "model.safetensors")
    write_report(folder / "other.html", model, summarise_log(other, model))
    assert "is not the data that the model was fitted on" in Page((folder / "other.html").read_text()).text


def test_what_was_not_checked_says_how_to_check_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", "model.safetensors", "-o", "alone.html", "--title", "Q3 & Q4") == 0
    printed = capsys.readouterr().out
    assert "Nothing was checked" in printed
    assert "clickharvest report model.safetensors --log LOG" in printed
    html = (folder / "alone.html").read_text()
    page = Page(html)
    assert page.ids == [name for name in SECTIONS if name != "traffic"]
    assert page.text.count("clickharvest report model.safetensors --log LOG -o report.html") == 1
    assert 'class="not-checked"' in html
    assert "Q3 & Q4" in page.text
    assert "What to do" not in page.text
    capsys.readouterr()
    assert run("report", "model.safetensors", "-o", "alone.html", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["budget"], told["findings"]) == (None, [])


def test_what_comes_of_a_click_has_its_own_checks_and_no_budget(folder: Path) -> None:
    finding = Finding("outcome and position", "note", "Purchases fall with position.")
    info = {"outcome": "purchase", "findings": [finding.to_dict()]}
    model = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, (1, 2), info=info)
    write_report(folder / "bought.html", model)
    text = Page((folder / "bought.html").read_text()).text
    assert "checks are made for models of examination alone" in text
    assert "1 check: 1 note" in text
    assert "Purchases fall with position." in text
    assert "Sources of error" not in text


def test_a_pbm_has_one_curve(folder: Path) -> None:
    model = Propensities(make_curve("constant", (1, 2, 4), 1, 0), {"b": np.log([0.5, 0.2])}, None, (1, 2, 3, 4))
    write_report(folder / "pbm.html", model)
    page = Page((folder / "pbm.html").read_text())
    assert "All queries get this one curve" in page.text
    assert "No estimate at position 3" in page.text
    assert page.ids == ["budget", "use", "settings"]
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
    info: dict[str, Any] = dict.fromkeys(("estimator", "objective", "status", "data", "seed"), hostile)
    findings = (Finding(hostile, "warning", hostile, hostile), Finding("log", "decisive", hostile))
    info |= Checked(
        findings, Budget((2,), (0.1,), (0.1,), {hostile: (0.1,)}, (0.1,), {hostile: hostile}, 0.3, hostile)
    ).info()
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
    assert "-1.50000–dropped after 2 folds" in text
    assert "-1.250000.03000chosen" in text


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear", {}),
        pytest.param("lowrank", {"rank": 2}, marks=pytest.mark.nightly),
        pytest.param("mlp", {"width": 12}, marks=pytest.mark.nightly),
    ],
)
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


def test_draws_without_room_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_model(simple_model("linear", 300, 121, draws=60))
    assert packed["draws"] is None
    assert len(base64.b64decode(packed["params"])) == 8 * 120 * 301
    monkeypatch.setattr("clickharvest.report.packing.MOST_BYTES", 8 * 49)
    write_report(tmp_path / "wide.html", simple_model("linear", 1, 5, draws=60))
    assert "would make the page too large" in Page((tmp_path / "wide.html").read_text()).text


@pytest.mark.parametrize(
    "info",
    [
        {"budget": "no", "findings": "no"},
        {"budget": {"positions": [2]}},
        {"budget": FORGED, "findings": [1, {"kind": "a", "severity": "odd", "sentence": "b", "effect": "c"}]},
        {"budget": FORGED | {"up": [], "down": [None], "positions": [2, 2, 9]}},
        {"findings": [{"surprise": 1}], "selection": [1, {"curve": None}]},
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
