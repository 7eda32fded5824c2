"""Judgments: counted in the engine as by hand, written as tools read them, from the command line, what is refused."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest import PBM, harvest
from clickharvest.click_models import AffineModel
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.judging import Judgments, judge, write_judgments
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from command_line import run
from places import SHARED_DATA
from samples import fixed_curve

YANDEX = SHARED_DATA / "yandex_sessions.parquet"
P = {1: 1.0, 2: 0.5, 3: 0.25}


def shown(queries: int = 30, pages: int = 100, seed: int = 0) -> tuple[pa.Table, dict[str, float]]:
    """Five documents a query, shuffled on every page, of which three are shown; and the truth."""
    random = np.random.default_rng(seed)
    truth = {f"q{q} d{d}": float(r) for q in range(queries) for d, r in enumerate(random.beta(1.5, 4, 5))}
    rows = []
    for q in range(queries):
        for _ in range(pages):
            for k, d in enumerate(random.permutation(5)[:3], 1):
                click = random.random() < P[k] * truth[f"q{q} d{d}"]
                rows.append({"query": f"q{q}", "doc": f"q{q} d{d}", "position": k, "click": int(click)})
    return pa.Table.from_pylist(rows), truth


@pytest.fixture(scope="module")
def judged() -> tuple[Judgments, pa.Table, dict[str, float]]:
    rows, truth = shown()
    return judge(read_log(rows), fixed_curve({k: np.log(p) for k, p in P.items()}, sd=0.02)), rows, truth


def test_counts_are_those_made_by_hand(judged: tuple[Judgments, pa.Table, dict[str, float]]) -> None:
    found, rows, _ = judged
    by_hand: dict[str, list[float]] = {}
    for row in rows.to_pylist():
        own = by_hand.setdefault(row["doc"], [0, 0, 0.0])
        own[0], own[1], own[2] = own[0] + row["click"], own[1] + 1, own[2] + P[row["position"]]
    for row in found.table.to_pylist():
        assert [row["clicks"], row["impressions"]] == by_hand[row["doc"]][:2]
        assert row["effective_impressions"] == pytest.approx(by_hand[row["doc"]][2])
        assert row["supported"] == 1.0
    assert found.table.num_rows == len(by_hand)


def test_the_order_of_rows_changes_nothing() -> None:
    """To the last bit: an engine may return groups in any order."""
    rows, _ = shown(queries=8, pages=20)
    model = fixed_curve({k: np.log(p) for k, p in P.items()}, sd=0.02)
    turned = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    assert judge(read_log(rows), model).table.equals(judge(read_log(turned), model).table)


def test_the_order_of_sums_changes_nothing() -> None:
    """Nor do the threads of an engine, which add in any order: .1 + .2 + .3 is not .3 + .2 + .1."""
    random = np.random.default_rng(2)
    p = {k: 0.1 * k for k in range(10, 0, -1)}
    model = fixed_curve({11 - k: np.log(value) for k, value in p.items()}, sd=0.02)
    shown = {"query": np.repeat(["q", "r"], 500), "doc": np.tile(["a", "b", "c", "d", "e"], 200)}
    rows = pa.table(shown | {"position": random.integers(1, 11, 1000), "click": random.integers(0, 2, 1000)})
    found = [judge(read_log(rows.take(random.permutation(1000))), model).table for _ in range(4)]
    assert all(table.equals(found[0]) for table in found)


def test_no_text_of_a_table_is_a_formula(tmp_path: Path) -> None:
    """A searcher may type one; tools that match texts get it as it is, in one cell."""
    harmless, formulas = (
        ["plain", "a=b", "a\r=1+1", "a\n=1+1"],
        ["=1+1", "-2", " +3", "\r=cmd()", "\t@x", "＝4", "\r\n-5"],
    )
    shown = {
        "query": harmless + formulas,
        "doc": harmless + formulas,
        "position": [1, 2] * 5 + [1],
        "click": [1, 0] * 5 + [1],
    }
    found = judge(read_log(pa.table(shown)), fixed_curve({1: 0.0, 2: -0.5}, sd=0.1), keep_unsure=True)
    for format, expected in (
        ("table", [*harmless, *(f"'{text}" for text in formulas)]),
        ("quepid", harmless + formulas),
    ):
        write_judgments(found, tmp_path / "all.csv", format=format)
        with (tmp_path / "all.csv").open(newline="") as file:
            cells = [row[:2] for row in csv.reader(file)][1:]
        assert sorted(cells) == sorted([text, text] for text in expected)
        # Programs take a bare carriage return outside of quotes for the end of a row.
        assert "\r" not in re.sub('"[^"]*"', "", (tmp_path / "all.csv").read_bytes().decode())


def test_what_is_left_out_is_told() -> None:
    model = AffineModel(1, (1, 2), np.array([1.0, 0.5]), np.array([0.0, -0.05]), None, (1, 2, 3))
    shown = {"query": ["q"] * 4, "doc": ["a", "b", "b", "c"], "position": [1, 2, 3, 3], "clicks": [40, 30, 20, 50]}
    log = read_log(pa.table(shown | {"impressions": [100] * 4}))
    with pytest.warns(HarvestWarning, match="no error bars"):
        found = judge(log, model)
    assert (found.table["doc"].to_pylist(), found.left_out, found.supported) == (["b", "a"], 1, 2 / 3)
    assert "33 % of the impressions" in str(found)
    assert str(found).endswith("Left out: 1 document, shown only where the model has no estimate.")
    with pytest.warns(HarvestWarning), pytest.raises(InputError, match="only where the model has no estimate"):
        judge(
            read_log(pa.table({"query": ["q"], "doc": ["c"], "position": [3], "clicks": [5], "impressions": [9]})),
            model,
        )


def test_the_truth_is_found(judged: tuple[Judgments, pa.Table, dict[str, float]]) -> None:
    found, _, truth = judged
    real = np.array([truth[doc] for doc in found.table["doc"].to_pylist()])
    estimate, lower, upper = (found.table[name].to_numpy() for name in ("relevance", "lower", "upper"))
    assert np.corrcoef(estimate, real)[0, 1] > 0.85
    assert np.mean((lower <= real) & (real <= upper)) > 0.9
    assert np.all((lower <= estimate) & (estimate <= upper))


def test_grades_are_by_the_cutoffs(judged: tuple[Judgments, pa.Table, dict[str, float]]) -> None:
    """In multiples of the query's mean, (1 + C) / (1 / m + E); m is that of all queries."""
    found, rows, _ = judged
    graded = found.table.to_pylist()
    mean = {}
    for query in {row["query"] for row in graded}:
        own = [row for row in graded if row["query"] == query]
        exposure = sum(row["effective_impressions"] for row in own)
        mean[query] = (1 + sum(row["clicks"] for row in own)) / (1 / found.mean + exposure)
    for row in graded:
        times = row["relevance"] / mean[row["query"]]
        assert row["grade"] in (None, (times >= 0.5) + (times >= 1) + (times >= 2))
    told = found.to_dict()
    assert sum(found.grades) == told["graded"] > 100
    assert told["graded"] + told["wide"] + told["hardly_examined"] == found.table.num_rows
    model = fixed_curve({k: np.log(p) for k, p in P.items()}, sd=0.02)
    kept = judge(read_log(rows), model, keep_unsure=True)
    assert sum(kept.grades) == kept.table.num_rows


def test_what_clicks_do_not_tell_has_no_grade(tmp_path: Path) -> None:
    """Three documents were seen often; one was shown once on top, one where hardly anybody looks."""
    rows = {"query": ["q"] * 5, "doc": list("abcde"), "position": [1, 1, 1, 1, 2]}
    rows |= {"clicks": [200, 100, 0, 0, 0], "impressions": [1000, 1000, 1000, 1, 100]}
    model = fixed_curve({1: 0.0, 2: np.log(0.001)}, sd=0.1)
    found = judge(read_log(pa.table(rows)), model)
    assert dict(zip(*found.table.select(["doc", "grade"]).to_pydict().values(), strict=True)) == {
        "a": 2, "b": 1, "c": 0, "d": None, "e": None,
    }  # fmt: skip
    assert (found.hardly_examined, found.wide) == (1, 1)
    assert "Not graded: 1 with less than one effective impression, 1 whose clicks leave more than two grades" in str(
        found
    )
    write_judgments(found, tmp_path / "judged.qrels")
    assert (tmp_path / "judged.qrels").read_text() == "q 0 a 2\nq 0 b 1\nq 0 c 0\n"
    write_judgments(judge(read_log(pa.table(rows)), model, keep_unsure=True), tmp_path / "judged.qrels")
    assert (tmp_path / "judged.qrels").read_text().endswith("q 0 c 0\nq 0 d 0\nq 0 e 0\n")


def test_rows_are_sorted_by_query_and_relevance(judged: tuple[Judgments, pa.Table, dict[str, float]]) -> None:
    rows = judged[0].table.to_pylist()
    keys = [(row["query"], -row["relevance"], row["doc"]) for row in rows]
    assert keys == sorted(keys)


def test_counted_rows_tell_the_same() -> None:
    rows, _ = shown(queries=8, pages=10)
    model = fixed_curve({k: np.log(p) for k, p in P.items()}, sd=0.02)
    cells = rows.group_by(["query", "doc", "position"]).aggregate([("click", "sum"), ("click", "count")])
    counted = cells.rename_columns(["query", "doc", "position", "clicks", "impressions"])
    one, two = (judge(read_log(table, engine=DuckDBEngine()), model).table for table in (rows, counted))
    assert one.drop(["relevance", "lower", "upper"]).equals(two.drop(["relevance", "lower", "upper"]))
    np.testing.assert_allclose(one["relevance"].to_numpy(), two["relevance"].to_numpy(), rtol=1e-6)


def test_contexts_divide_examination() -> None:
    """On the phone position 2 is hardly looked at: a click there tells of more relevance."""
    table = {
        "query": ["q"] * 4,
        "doc": list("aabb"),
        "position": [2, 1] * 2,
        "device": ["desk", "desk", "phone", "phone"],
    }
    table |= {"clicks": [50, 0, 50, 0], "impressions": [500, 1, 500, 1]}
    encoder = ContextEncoder.fit({"device": np.array(["desk", "phone"])})
    curve = make_curve("linear", (1, 2), 1, len(encoder.feature_names))
    effect = encoder.transform({"device": np.array(["desk", "phone"])})
    w, *_ = np.linalg.lstsq(np.c_[effect, np.ones(2)], np.log([0.8, 0.2]), rcond=None)
    model = Propensities(curve, {"W": w[:-1, None], "b": w[-1:]}, encoder, (1, 2))
    log = read_log(pa.table(table), context=["device"])
    with pytest.warns(HarvestWarning, match="no error bars"):
        found = {row["doc"]: row for row in judge(log, model).table.to_pylist()}
    assert found["a"]["effective_impressions"] == pytest.approx(401)
    assert found["b"]["effective_impressions"] == pytest.approx(101)
    assert found["b"]["relevance"] > 2 * found["a"]["relevance"]


def test_positions_without_an_estimate_are_told() -> None:
    model = fixed_curve({1: 0.0, 2: np.log(0.5)}, sd=0.05)
    log = read_log(pa.table({"query": ["q"] * 3, "doc": ["a", "b", "b"], "position": [1, 2, 9], "click": [1, 0, 1]}))
    found = judge(log, model)
    assert {row["doc"]: row["supported"] for row in found.table.to_pylist()} == {"a": 1.0, "b": 0.5}
    assert "33 % of the impressions have a propensity that the model cannot tell" in str(found)


@pytest.mark.skipif(not YANDEX.exists(), reason="the log of Yandex is not there")
def test_a_real_log_grades_nothing_good_that_nobody_clicked() -> None:
    log = read_log(YANDEX)
    found = judge(log, PBM().fit(harvest(log)).propensities_)
    rows = found.table.to_pylist()
    good = [row for row in rows if row["grade"] is not None and row["grade"] >= 2]
    assert len(good) > 50
    assert all(row["clicks"] > 0 for row in good)
    assert all(0 <= row["lower"] <= row["relevance"] <= row["upper"] <= 1 for row in rows)
    assert found.hardly_examined > 100


def test_formats(judged: tuple[Judgments, pa.Table, dict[str, float]], tmp_path: Path) -> None:
    found = judged[0]
    rows = found.table.to_pylist()
    graded = [row for row in rows if row["grade"] is not None]
    assert write_judgments(found, tmp_path / "all.csv") == "table"
    assert [row["doc"] for row in csv.DictReader((tmp_path / "all.csv").read_text().splitlines())] == [
        row["doc"] for row in rows
    ]
    assert write_judgments(found, tmp_path / "all.parquet") == "table"
    assert pq.read_table(tmp_path / "all.parquet").equals(found.table)
    assert json.loads(pq.read_schema(tmp_path / "all.parquet").metadata[b"clickharvest"])["grades"] == list(
        found.grades
    )
    write_judgments(found, tmp_path / "ratings.csv", format="quepid")
    quepid = list(csv.DictReader((tmp_path / "ratings.csv").read_text().splitlines()))
    assert quepid[0] == {"query": "q0", "docid": graded[0]["doc"], "rating": str(graded[0]["grade"])}
    assert write_judgments(found, tmp_path / "judged.qrels") == "qrels"
    line = (tmp_path / "judged.qrels").read_text().splitlines()[0]
    assert line == f"q0 0 {graded[0]['doc'].replace(' ', '_')} {graded[0]['grade']}"
    assert write_judgments(found, tmp_path / "judged.json", rating="relevance", name="clicks") == "opensearch"
    body = json.loads((tmp_path / "judged.json").read_text())
    assert (body["name"], body["type"], len(body["judgmentRatings"])) == ("clicks", "IMPORT_JUDGMENT", 30)
    first = body["judgmentRatings"][0]["ratings"][0]
    assert first == {"docId": graded[0]["doc"], "rating": f"{graded[0]['relevance']:.3f}"}


def test_what_is_refused(judged: tuple[Judgments, pa.Table, dict[str, float]], tmp_path: Path) -> None:
    found, rows, _ = judged
    log, model = read_log(rows.slice(0, 10)), fixed_curve({1: 0.0, 2: -0.5}, sd=0.1)
    with pytest.raises(InputError, match="read it with read_log first"):
        judge(rows, model)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ascend"):
        judge(log, model, cutoffs=(1.0, 0.5))
    with pytest.raises(InputError, match="between 0 and 1"):
        judge(log, model, level=1.0)
    with pytest.raises(InputError, match="no format"):
        write_judgments(found, tmp_path / "judged.xlsx")
    with pytest.raises(InputError, match="quepid is text"):
        write_judgments(found, tmp_path / "judged.parquet", format="quepid")
    with pytest.raises(InputError, match="whole numbers"):
        write_judgments(found, tmp_path / "judged.qrels", rating="relevance")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = shown(queries=6, pages=10)
    pq.write_table(rows, tmp_path / "log.parquet")
    fixed_curve({k: np.log(p) for k, p in P.items()}, sd=0.02).save(tmp_path / "m.safetensors")
    words = ["judgments", tmp_path / "log.parquet", tmp_path / "m.safetensors"]
    assert run(*words, "-o", tmp_path / "j.csv", "--cutoffs", "0.05,0.2", "--scale", "rate", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["judgments"], told["cutoffs"], len(told["grades"])) == (30, [0.05, 0.2], 3)
    for spelling in ("--to", "--as"):  # the older one
        assert run(*words, "-o", tmp_path / "j.txt", spelling, "qrels") == 0
    assert capsys.readouterr().out.count("(qrels)") == 2
    assert run(*words) == 2
    assert "nowhere to write" in capsys.readouterr().err
    assert run(*words, "-o", tmp_path / "log.parquet") == 2
    assert "write to another file" in capsys.readouterr().err
