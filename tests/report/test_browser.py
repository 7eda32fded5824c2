"""The report in a real browser: the page's own curves against the model's, its controls, hostile names, downloads."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from chromium import Browser, Page, find_chromium
from clickharvest.checks import Budget, Checked, Finding
from clickharvest.harvesting.collecting import harvest
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import CURVES, flatten_params, make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import ColumnSupport, Support, value_names
from clickharvest.model.typical import typical_context
from clickharvest.planning.traffic import plan_from_log
from clickharvest.positions.places import Places
from clickharvest.report.log_summary import Clipping, LogSummary
from clickharvest.report.page import write_report
from clickharvest.simulate import simulate_ab_log

CONTEXTS: dict[str, list[Any]] = {
    "device": ["phone", "desk", "phone", "watch", None, "phone"],
    "age": [20.5, None, 30.0, 41.0, 55.0, 31.0],
    "pays": [True, False, False, None, True, False],
    "width": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
HOSTILE = {
    "script": "<script>document.title='hacked'</script>",
    "image": "<img src=x onerror=\"document.title='hacked'\">",
    "quotes": "\"double\" 'single' `back` \\u003cb\\u003e &lt;b&gt;",
    "emoji": "🦊👩‍👩‍👧‍👦 fox",
    "right to left": "עברית \u202eesrever\u202c و العربية",
    "long": "x" * 300,
    "formula": "=1+1",
    "lines": "one\u2028two\n\tthree</script>",
}
ALL = [(name, {}) for name in CURVES] + [("mlp", {"width": 0}), ("lowrank", {"rank": 3})]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        told = "Chromium is not installed: scripts/debian-packages installs it"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def random_model(name: str, anchor: int = 1, seed: int = 0, table: Any = None, **shape: int) -> Propensities:
    """A model of positions 1, 2, 4, 7, of which 3 was shown too, with draws around it."""
    encoder = ContextEncoder.fit(CONTEXTS if table is None else table)
    curve = make_curve(name, (1, 2, 4, 7), anchor, len(encoder.feature_names), **shape)
    random = np.random.default_rng(seed)
    params = {key: value + 0.3 * random.normal(size=np.shape(value)) for key, value in curve.init(random).items()}
    flat = flatten_params(params)
    draws = flat + 0.1 * random.normal(size=(80, len(flat)))
    return Propensities(curve, params, encoder, (1, 2, 3, 4, 7), draws=draws, draws_kind="bootstrap")


def show(browser: Browser, folder: Path, model: Propensities, summary: LogSummary | None = None, **view: Any) -> Page:
    write_report(folder / "report.html", model, summary)
    return browser.open((folder / "report.html").as_uri(), **view)


def choose(page: Page, column: str, value: Any) -> None:
    """Set a control as a reader would: a menu by its text, a slider by its share of the way."""
    found = page.run(
        f"""(() => {{
          const named = (c) => c.querySelector('bdi').title === {json.dumps(column)};
          const label = [...document.querySelectorAll('.control')].find(named);
          const input = label.querySelector('select, input[type=range]');
          if (input.tagName === 'SELECT') {{
            input.selectedIndex = [...input.options].findIndex(o => o.title === {json.dumps(value)});
            input.dispatchEvent(new Event('change'));
          }} else {{
            input.value = 1000 * {json.dumps(value)};
            input.dispatchEvent(new Event('input'));
          }}
          return input.tagName === 'SELECT' ? input.selectedIndex >= 0 : true;
        }})()"""
    )
    assert found, (column, value)
    page.settle()


def read_csv(page: Page, figure: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(page.run(f"clickharvest.csv({figure!r})"))))


def assert_equal(rows: list[dict[str, Any]], model: Propensities, contexts: dict[str, list[Any]]) -> None:
    """Rows of one curve hold what the model predicts; their bands, from rounded draws, to a thousandth of the width."""
    expected = model.predict(contexts)
    assert [int(row["position"]) for row in rows] == list(model.shown)
    for row, p, low, high, known in zip(
        rows, expected.propensity[0], expected.lower[0], expected.upper[0], expected.supported[0], strict=True
    ):
        if not known:
            assert row["propensity"] == row["lower"] == row["upper"] == ""
            continue
        assert float(row["propensity"]) == pytest.approx(p, rel=1e-9)
        for name, end in (("lower", low), ("upper", high)):
            assert float(row[name]) == pytest.approx(end, abs=1e-3 * (high - low) + 1e-12)


@pytest.mark.parametrize("anchor", [1, 4])
@pytest.mark.parametrize(("name", "shape"), ALL)
def test_the_page_computes_what_the_model_does(
    name: str, shape: dict[str, int], anchor: int, browser: Browser, tmp_path: Path
) -> None:
    model = random_model(name, anchor, seed=len(name), **shape)
    page = show(browser, tmp_path, model)
    choose(page, "device", "watch")
    choose(page, "age", 0.75)
    choose(page, "pays", "yes")
    choose(page, "width", 0.0)
    part = model.encoder.parts[1] if model.encoder else None
    assert part is not None
    chosen = {"device": ["watch"], "age": [part.mean + 1.25 * part.sd], "pays": [True]}
    chosen["width"] = [float(np.mean(CONTEXTS["width"]) - 2.5 * np.std(CONTEXTS["width"]))]
    rows = read_csv(page, "curves")
    assert_equal([row for row in rows if row["curve"] == "your context"], model, chosen)
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(size=(6, model.curve.n_features)), np.full((1, model.curve.n_features), 30.0)])
    found = page.run(f"{x.tolist()}.map(x => clickharvest.predict(x).filter(d => d.p !== null).map(d => d.p))")
    expected = model.predict_encoded(x)
    np.testing.assert_allclose(found, expected.propensity[:, expected.supported[0]], rtol=1e-9, atol=1e-300)
    assert page.complaints() == []
    page.close()


def test_missing_and_unseen_values_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    model = random_model("linear")
    page = show(browser, tmp_path, model)
    choose(page, "device", "missing")
    choose(page, "pays", "missing")
    page.run("document.querySelector('.control .missing input').click()")
    page.settle()
    mean = float(np.mean(CONTEXTS["width"]))
    rows = [row for row in read_csv(page, "curves") if row["curve"] == "your context"]
    assert_equal(rows, model, {"device": [None], "age": [None], "pays": [None], "width": [mean]})
    choose(page, "device", "other")
    rows = [row for row in read_csv(page, "curves") if row["curve"] == "your context"]
    assert_equal(rows, model, {"device": ["unheard of"], "age": [None], "pays": [None], "width": [mean]})
    page.close()


def test_the_page_starts_from_missing_values_where_they_are_typical(browser: Browser, tmp_path: Path) -> None:
    table: dict[str, list[Any]] = {
        "device": ["phone", None, None],
        "age": [20.5, None, None],
        "pays": [True, None, None],
    }
    model = random_model("linear", table=table)
    page = show(browser, tmp_path, model)
    nothing: dict[str, list[Any]] = {name: [None] for name in table}
    assert_equal(read_csv(page, "curves"), model, nothing)
    assert page.run("document.querySelector('.control .missing input').checked") is True
    choose(page, "device", "phone")
    rows = [row for row in read_csv(page, "curves") if row["curve"] == "your context"]
    assert_equal(rows, model, nothing | {"device": ["phone"]})
    choose(page, "pays", "yes")
    rows = [row for row in read_csv(page, "curves") if row["curve"] == "your context"]
    assert_equal(rows, model, nothing | {"device": ["phone"], "pays": [True]})
    assert page.complaints() == []
    page.close()


def test_sliders_change_the_picture_and_the_numbers_shown(browser: Browser, tmp_path: Path) -> None:
    model = random_model("linear")
    page = show(browser, tmp_path, model)
    line = "document.querySelector('#fig-curves path.line').getAttribute('d')"
    page.run("document.querySelector('#fig-curves details').open = true")
    cell = "document.querySelector('#fig-curves tbody tr:nth-child(2) td:nth-child(3)').textContent"
    before = page.run(line)
    page.settle()
    typical = float(page.run(cell))
    choose(page, "age", 0.9)
    assert page.run(line) != before
    assert page.run("document.querySelectorAll('#fig-curves path.line').length") == 2
    shown = float(page.run(cell))
    assert shown != typical
    exact = float(read_csv(page, "curves")[1]["propensity"])
    assert shown == pytest.approx(exact, abs=5e-4)
    page.run("document.querySelector('#controls > button').click()")
    page.settle()
    assert page.run(line) == before
    page.close()


@pytest.mark.parametrize("together", [True, False])
def test_segments_follow_their_menu(together: bool, browser: Browser, tmp_path: Path) -> None:
    """Where desks never come without paying, their segment is one of those who pay."""
    model = random_model("lowrank")
    assert model.encoder is not None
    columns = tuple(ColumnSupport(((1, 2, 4, 7),) * len(value_names(part))) for part in model.encoder.parts)
    desk = model.encoder.parts[0].levels.index("desk")
    apart = () if together else ((0, desk, 2, 0),)
    model = replace(model, draws_kind="clustered", support=Support(columns, (None, 80.0, 80.0, 80.0), apart))
    page = show(browser, tmp_path, model)
    page.run(
        """(() => { const menu = document.getElementById('segment');
        menu.selectedIndex = [...menu.options].findIndex(o => o.title === 'device');
        menu.dispatchEvent(new Event('change')); })()"""
    )
    choose(page, "pays", "no")
    rows = read_csv(page, "segments")
    assert list(dict.fromkeys(row["curve"] for row in rows)) == [
        f"queries with device {name}" for name in ("phone", "desk", "watch")
    ]
    own = {"device": ["desk"], "pays": [not together], "width": [3.5]}
    part = model.encoder.parts[1] if model.encoder else None
    assert part is not None
    assert_equal([row for row in rows if row["curve"] == "queries with device desk"], model, own | {"age": [part.mean]})
    page.close()


def supported_model() -> Propensities:
    """A linear model whose desks are not linked at 7, that saw no watch, ages 20 to 60, and knows 4 from two queries.

    The interval of position 7 is so wide that it tells nothing.
    """
    model = random_model("linear", table=CONTEXTS | {"device": ["phone", "desk", "phone", "phone", None, "phone"]})
    every = (1, 2, 4, 7)
    columns = (
        ColumnSupport((every, (1, 2, 4), every)),
        ColumnSupport((every, every), reach=(30.0, 40.0)),
        ColumnSupport((every, every, every)),
        ColumnSupport((every,), reach=(1.0, 6.0)),
    )
    assert model.draws is not None
    draws = model.draws.copy()
    draws[:, -1] *= 40 * (1 - 2 * (np.arange(len(draws)) % 2))  # b of position 7, the last of the parameters
    return replace(model, draws=draws, draws_kind="clustered", support=Support(columns, (None, 50.0, 2.2, 50.0)))


def test_what_is_not_supported_has_no_number_in_the_page(browser: Browser, tmp_path: Path) -> None:
    model = supported_model()
    assert model.encoder is not None
    page = show(browser, tmp_path, model)
    notes = "[...document.querySelectorAll('#fig-curves .notes span')].map(s => s.textContent)"
    seen = []
    low, high = page.run("clickharvest.data.columns[1].range")
    for device, share in (
        ("phone", 0.5),
        ("desk", 0.5),
        ("other", 0.5),
        ("missing", 0.5),
        ("phone", 0.0),
        ("phone", 1.0),
    ):
        choose(page, "device", device)
        choose(page, "age", share)
        choose(page, "pays", "missing")
        level = {"other": "never heard of", "missing": None}.get(device, device)
        age = low + (high - low) * share
        contexts = {"device": [level], "age": [age], "pays": [None], "width": [3.5]}
        rows = [row for row in read_csv(page, "curves") if row["curve"] == "your context"]
        expected = model.predict(contexts)
        for row, p, supported, note in zip(
            rows, expected.propensity[0], expected.supported[0], expected.notes()[0], strict=True
        ):
            number = float(row["propensity"] or "nan")
            assert number == pytest.approx(p if supported else np.nan, nan_ok=True), (device, share, row)
            assert row["note"] == ((note or "") if supported else f"not supported: {note}")
        seen.append(page.run(notes))
    wide = "Position 7: cannot tell: may be off by more than a factor of two."
    thin = "Position 4: rests on 2 queries."
    gap = "Position 3: not supported: nothing links this position to position 1."
    assert set(seen[0]) == {gap, wide, thin}
    desk = model.predict({"device": ["desk"], "age": [35.5], "pays": [None], "width": [3.5]})
    lost = f"Position 7: not supported: {desk.notes()[0, -1]}."
    assert set(seen[1]) == {gap, lost, thin}
    assert "Positions 1-2, 4, 7: not supported: device: a value that training never had." in seen[2]
    assert set(seen[3]) == set(seen[0])
    far = "Positions 1-2, 4, 7: not supported: age: far outside of what training had, 30 to 40."
    assert far in seen[4]
    assert far in seen[5]
    assert page.complaints() == []
    page.close()
    assert model.support is not None
    page = show(browser, tmp_path, replace(model, support=replace(model.support, apart=((0, 0, 2, 1), (0, 1, 1, 0)))))
    for device, pays, expected in (("phone", "yes", ["pays"]), ("phone", "no", []), ("desk", "no", ["age"])):
        choose(page, "device", device)
        choose(page, "age", 0.5)
        choose(page, "pays", pays)
        told = re.findall("device and (.*?): values that training never had together", " ".join(page.run(notes)))
        assert told == expected
    page.close()
    page = show(browser, tmp_path, replace(model, draws_kind="bootstrap"))
    assert "Position 4: not supported: rests on fewer than 50 queries, too few for bootstrap intervals." in page.run(
        notes
    )
    assert page.run("document.querySelector('#fig-curves .bad').textContent") == "3 ✗"
    page.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Propensities, LogSummary]:
    """A log whose queries, column names and levels are hostile, with positions 5 and 6 cut off."""
    table, _ = simulate_ab_log(pages=1_500, queries=40, docs=8, positions=6, seed=4)
    names = list(HOSTILE.values())
    query = [f"{name} {HOSTILE['script']}" for name in table["query"].to_pylist()]
    number = [int(name.split()[1]) for name in table["query"].to_pylist()]
    position, doc = table["position"].to_pylist(), table["doc"].to_pylist()
    columns = {
        "query": pa.array(query),
        "doc": pa.array([f"{d} low" if k > 4 else d for d, k in zip(doc, position, strict=True)]),
        "position": table["position"],
        "click": table["click"],
        **{name: pa.array([names[(n + i) % 8] for n in number]) for i, name in enumerate(names[:6])},
    }
    log = read_log(pa.table(columns), context=names[:6])
    interventions = harvest(log)
    encoder = ContextEncoder.fit(interventions.contexts)
    curve = make_curve("linear", (1, 2, 3, 4), 1, len(encoder.feature_names))
    params = {"b": -np.log([2.0, 3.0, 4.0]), "W": 0.1 * np.random.default_rng(0).normal(size=(curve.n_features, 3))}
    model = Propensities(curve, params, encoder, (1, 2, 3, 4, 5, 6))
    names = list(HOSTILE.values())
    findings = tuple(Finding(name, "warning", f"{name} is wrong.", f"mend {name}") for name in names)
    reach = ((0.5, 0.4, 0.9), (0.4, 0.3, 0.5))
    terms = dict.fromkeys(names, reach[0])
    budget = Budget((2, 3, 4), *reach, terms, reach[0], {names[0]: names[1]})
    summary = LogSummary(
        name=HOSTILE["script"],
        checked=Checked(findings, budget),
        same_data=False,
        compared=HOSTILE["image"],
        x=encoder.transform(interventions.contexts),
        clipping=Clipping(0.1, 9.0, 0.1, 10, 2),
        plan=plan_from_log(replace(interventions, contexts={" ".join(names[:6]): interventions.contexts[names[0]]})),
    )
    return model, summary


def test_hostile_names_are_shown_as_text(
    browser: Browser, tmp_path: Path, hostile: tuple[Propensities, LogSummary]
) -> None:
    page = show(browser, tmp_path, *hostile)
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for i in range(6):
        page.run(f"document.getElementById('segment').selectedIndex = {i}")
        page.run("document.getElementById('segment').dispatchEvent(new Event('change'))")
        page.settle()
    assert page.complaints() == []
    assert page.run("document.title") == "How far down do people look?"
    assert page.run("document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.happened("Page.javascriptDialogOpening") == []
    text = page.run("document.body.textContent")
    options = page.run("[...document.querySelectorAll('#controls option')].map(o => o.title)")
    titles = page.run("[...document.querySelectorAll('#controls bdi')].map(b => b.title)")
    problems = page.run("document.querySelector('#budget .advice').textContent")
    for name in list(HOSTILE.values())[:3]:
        assert name in problems
    for name in HOSTILE.values():
        assert name in options
    told = page.run("document.querySelector('#traffic .told').textContent")
    for name in list(HOSTILE.values())[:6]:
        assert name in text
        assert name in told
        assert name in titles
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.size(360, 800)
    page.settle()
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_downloads_stand_by_themselves(
    browser: Browser, tmp_path: Path, hostile: tuple[Propensities, LogSummary]
) -> None:
    page = show(browser, tmp_path, *hostile)
    figures = page.run("[...document.querySelectorAll('figure')].map(f => f.id.slice(4))")
    assert sorted(figures) == sorted(["budget", "curves", "segments", "importance", "traffic"])
    for figure in figures:
        picture = page.run(f"clickharvest.svg({figure!r})")
        root = ElementTree.fromstring(picture)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in picture
        start = "async b => [...new Uint8Array(await b.arrayBuffer())].slice(0, 2000)"
        image = bytes(page.run(f"clickharvest.png({figure!r}).then({start})"))
        assert image.startswith(b"\x89PNG")
        assert len(image) > 1_000
        assert len(read_csv(page, figure)) > 1
    importance = page.run("clickharvest.csv('importance')")
    assert all(cell.lstrip('"')[:1] not in "=+-@" for cell in importance.split("\r\n")[1:] if cell)
    assert page.complaints() == []
    page.close()


def test_a_save_button_gives_the_file(
    browser: Browser, tmp_path: Path, hostile: tuple[Propensities, LogSummary]
) -> None:
    page = show(browser, tmp_path, *hostile)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=True)
    page.run("document.querySelector('#fig-budget [data-save=csv]').click()")
    saved = tmp_path / "clickharvest-budget.csv"
    for _ in range(500):
        page.settle()
        if saved.exists():
            break
    rows = list(csv.DictReader(io.StringIO(saved.read_text(encoding="utf-8-sig"))))
    p = hostile[0].predict_encoded(typical_context(hostile[0])).propensity[0, :4]
    assert [float(row["propensity"]) for row in rows[:4]] == pytest.approx(p)
    assert [float(row["budget_to"]) for row in rows[:4]] == pytest.approx(p * [1, 1.5, 1.4, 1.9])
    assert [float(row["budget_from"]) for row in rows[:4]] == pytest.approx(p * [1, 0.6, 0.7, 0.5])
    assert [row["propensity"] for row in rows[4:]] == ["", ""]
    page.close()


def test_unlinked_positions_are_marked(
    browser: Browser, tmp_path: Path, hostile: tuple[Propensities, LogSummary]
) -> None:
    page = show(browser, tmp_path, *hostile)
    for figure in ("budget", "curves", "traffic"):
        marked = page.run(f"[...document.querySelectorAll('#fig-{figure} .bad')].map(t => t.textContent)")
        assert set(marked) == {"5 ✗", "6 ✗"}, figure
    page.close()


def test_light_and_dark_follow_the_reader(browser: Browser, tmp_path: Path) -> None:
    paper = "getComputedStyle(document.documentElement).getPropertyValue('--paper')"
    seen = []
    for dark in (False, True):
        page = show(browser, tmp_path, random_model("power"), dark=dark)
        seen.append([page.run(paper)])
        page.run("document.getElementById('theme').click()")
        seen[-1].append(page.run(paper))
        page.run("document.getElementById('theme').click()")
        assert page.run(paper) == seen[-1][0]
        page.close()
    assert seen[0] == seen[1][::-1]
    assert seen[0][0] != seen[0][1]


def test_complaints_are_noticed(browser: Browser, tmp_path: Path) -> None:
    """The tests above would fail on a page that errs or asks for something."""
    (tmp_path / "other.js").write_text("console.error('wrong')")
    page = "<!doctype html><html data-ready=true><link rel=icon href=data:,><script src=other.js></script></html>"
    (tmp_path / "bad.html").write_text(page)
    opened = browser.open((tmp_path / "bad.html").as_uri())
    assert any("wrong" in complaint for complaint in opened.complaints())
    assert any(complaint.endswith("other.js") for complaint in opened.complaints())
    opened.close()


@pytest.mark.parametrize("columns", [("row", "column"), ("<b>slot</b>",)])
def test_places_are_drawn_as_a_grid_or_as_points(columns: tuple[str, ...], browser: Browser, tmp_path: Path) -> None:
    labels = [(i, j) for i in (1, 2) for j in (1, 2, 3)]
    hostile = [(f"<img src=x onerror=alert({i})>",) for i in range(6)]
    places = Places.of(columns, labels if len(columns) == 2 else hostile)
    curve = make_curve("constant", (1, 2, 3, 4, 5), anchor=2, n_features=0)
    b = np.log([1.2, 0.8, 0.6, 0.4])
    draws = b + 0.1 * np.array([[-1.0], [0.0], [1.0]])
    model = Propensities(curve, {"b": b}, None, (1, 2, 3, 4, 5, 6), draws, "bootstrap", places=places)
    page = show(browser, tmp_path, model)
    rows = read_csv(page, "budget")
    assert [row["position"] for row in rows] == [places.name(k) for k in range(1, 7)]
    lines = page.run("document.querySelectorAll('#fig-budget path.line').length")
    if len(columns) == 2:
        assert [float(row["propensity"]) for row in read_csv(page, "places")[:2]] == pytest.approx([1.2, 1.0])
        assert page.run("document.querySelectorAll('#fig-places rect').length") == 6
        assert page.run("document.querySelector('#fig-places svg').textContent.includes('✗')")
        assert lines == 2  # a line for every row
    else:
        assert lines == 2 * 5  # of every slot its interval and its point
    told = page.run("document.getElementById('budget').innerText")
    assert "position" not in told.split("This command")[0]
    assert page.complaints() == []
    page.close()


def test_what_is_odd_is_told_beside_the_interval_in_the_contexts_that_have_it(browser: Browser, tmp_path: Path) -> None:
    """Position 2 is odd on desks, 4 in all contexts; that 4 rests on few queries is told first."""
    odd = {"odd": [4], "odd_in": {"device=desk": [2], "device=tv": [1]}}
    model = replace(supported_model(), info=odd)
    page = show(browser, tmp_path, model)
    for device, expected in (("desk", "does not follow the curve of the others"), ("phone", "")):
        choose(page, "device", device)
        choose(page, "age", 0.5)
        rows = {row["position"]: row["note"] for row in read_csv(page, "curves") if row["curve"] == "your context"}
        assert rows["2"] == expected
        assert rows["4"] == "rests on 2 queries"
    assert page.complaints() == []
    page.close()


def test_the_budget_is_drawn_outside_the_interval(browser: Browser, tmp_path: Path) -> None:
    """Two bands, the outer one lighter and wherever the budget reaches farther than chance."""
    b = np.log([0.5, 0.3])
    draws = b + 0.05 * np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    curve = make_curve("constant", (1, 2, 3), anchor=1, n_features=0)
    budget = Budget((2, 3), (0.3, 0.3), (0.3, 0.3), {"noise": (0.3, 0.3)}, (0.3, 0.3), {})
    model = Propensities(curve, {"b": b}, None, (1, 2, 3), draws, "bootstrap", info=Checked((), budget).info())
    page = show(browser, tmp_path, model)
    areas = "[...document.querySelectorAll('#fig-budget path')].filter(p => p.getAttribute('fill-opacity'))"
    outer, inner = page.run(
        f"{areas}.map(p => [Number(p.getAttribute('fill-opacity')), p.getBBox().height, p.getBBox().width])"
    )
    assert outer[0] < inner[0]
    assert outer[1] > inner[1]
    assert outer[2] == inner[2]
    legend = page.run("[...document.querySelectorAll('#fig-budget .legend')].map(t => t.textContent.slice(1, -1))")
    assert legend == ["curve", "95 % interval", "budget"]
    assert page.run("document.querySelectorAll('#budget .bars li').length") == 2
    assert page.complaints() == []
    page.close()


@pytest.mark.parametrize("dark", [False, True])
def test_the_first_section_fits_a_phone_and_paper(
    dark: bool, browser: Browser, tmp_path: Path, hostile: tuple[Propensities, LogSummary]
) -> None:
    page = show(browser, tmp_path, *hostile, width=360, height=800, dark=dark)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    opacity = "getComputedStyle(document.querySelector('#budget .bar')).backgroundColor"
    assert page.run(opacity) != page.run("getComputedStyle(document.querySelector('#budget')).backgroundColor")
    assert not page.run("document.getElementById('checks').open")
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("document.getElementById('checks').open")  # nobody opens a fold on paper
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") in ("rgba(0, 0, 0, 0)", "rgb(255, 255, 255)")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    page.close()
