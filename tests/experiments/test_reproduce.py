"""`python -m experiments` as one types it, the files it leaves, and the page in the repository."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments import Check, Result, Run, Store, load_experiments, measuring
from experiments.__main__ import main
from experiments.models import (
    AUTHORS,
    AUTHORS_ORACLE,
    CLICKSHARE,
    CPBM,
    CPBM_NETWORK,
    HIDDEN_NETWORK,
    PBM,
    ROBUST,
)
from experiments.outcomes import find_outcomes, judge
from experiments.pages import make_page, make_tables, spell
from places import ROOT


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def keep_results(folder: Path, errors: dict[str, float], *, quick: bool = True) -> list[Run]:
    """Keep made-up results of table-pbm (and so of fig-rank), so that nothing is left to measure."""
    experiment = load_experiments(["table-pbm"])[0]
    runs = list(experiment.runs(experiment.plan(quick=quick, world="synthetic")))
    store = Store(folder / "quick" if quick else folder)
    for one in runs:
        error = errors[one["model"]] * (1 + 0.01 * one.seed)
        numbers: dict[str, Any] = dict.fromkeys(("rel_error", "rel_error_authors", "abs_log"), error)
        numbers |= {"by_position": [error * k / 5 for k in range(10)], "clicks": 9, "curve": "<power>"}
        store.save(Result(one, numbers))
    return runs


def forget(folder: Path, lost: list[Run]) -> None:
    """Take runs out of the kept results."""
    store = Store(folder)
    results = [result for result in store.load("synthetic").values() if result.run not in lost]
    store.path("synthetic").unlink()
    for result in results:
        store.save(result)


OTHERS = dict.fromkeys((CPBM, CPBM_NETWORK, HIDDEN_NETWORK, AUTHORS, AUTHORS_ORACLE), 0.1)
GOOD = OTHERS | {PBM: 0.4, ROBUST: 0.06, CLICKSHARE: 0.02}
BAD = OTHERS | {PBM: 0.1, ROBUST: 0.2, CLICKSHARE: 0.4}


def test_ends_with_the_table_and_the_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_results(tmp_path, GOOD)
    assert run("table-pbm", "fig-rank", "--quick", "--results", tmp_path) == 0
    printed = capsys.readouterr().out
    for word in ("0.4787", "0.1694", "0.0600", "0.0200", "PASS", "The page:"):
        assert word in printed
    assert "FAIL" not in printed
    folder = tmp_path / "quick"
    assert {path.name for path in (folder / "synthetic").iterdir()} >= {"table-pbm.csv", "fig-rank.csv"}
    assert (folder / "fig-rank.svg").read_text().startswith("<svg")
    page = (folder / "reproduction.md").read_text()
    assert "(table-pbm.svg)" in page
    assert "| ClickShare has at most half of the PBM's error | pass |" in page
    assert "- **PASS** ClickShare has at most half of the PBM's error." in (folder / "README.md").read_text()


def test_a_claim_that_fails_is_exit_code_1_and_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_results(tmp_path, BAD)
    assert run("table-pbm", "--quick", "--results", tmp_path) == 1
    assert capsys.readouterr().out.count("\nFAIL ") == 2
    page = (tmp_path / "quick" / "reproduction.md").read_text()
    assert "| **synthetic 0 of 2** |" in page
    assert "- **FAIL**, synthetic: ClickShare has at most half of the PBM's error. PBM 0.1" in page


def test_full_results_bear_the_bars(tmp_path: Path) -> None:
    keep_results(tmp_path, GOOD, quick=False)
    outcome = judge(load_experiments(["table-pbm"])[0], Store(tmp_path))
    assert [check.verdict for check in outcome.checks] == ["PASS"] * 7
    line = outcome.headlines[1]
    assert (line.paper, line.runs) == (0.169443, 6)
    assert line.ours == pytest.approx(0.06 * 1.025)
    assert line.ours_sd == pytest.approx(0.06 * 0.0187, rel=0.01)


def test_one_seed_is_measured_unless_more_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(measuring, "take_groups", lambda groups, *rest: asked.extend(r.seed for g in groups for r in g))
    run("table-pbm", "--results", tmp_path, "--jobs", 1)
    assert asked == [0] * 8
    asked.clear()
    run("table-pbm", "--results", tmp_path, "--seeds", 2, "--jobs", 1)
    assert asked == [0] * 8 + [1] * 8


def test_further_seeds_are_told_where_all_are_there(tmp_path: Path) -> None:
    lost = [run for run in keep_results(tmp_path, GOOD, quick=False) if (run["model"], run.seed) == (ROBUST, 3)]
    forget(tmp_path, lost)

    def told(seeds: int | None) -> tuple[int, set[object]]:
        outcome = judge(load_experiments(["table-pbm"])[0], Store(tmp_path), seeds=seeds)
        return outcome.missing, {row["runs"] for row in outcome.rows}

    assert told(1) == told(3) == (0, {3})
    assert told(4) == told(None) == (1, set())


def test_without_a_run_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("table-pbm", "--quick", "--results", tmp_path, "--no-run") == 0
    assert "4 runs are missing" in capsys.readouterr().out
    assert not list(tmp_path.rglob("runs.jsonl"))


def test_a_mean_that_one_run_makes_gives_way_to_the_median(tmp_path: Path) -> None:
    runs = keep_results(tmp_path, GOOD, quick=False)
    store = Store(tmp_path)
    spoilt = next(r for r in store.results(runs) if (r.run["model"], r.run.seed) == (ROBUST, 5))
    store.save(replace(spoilt, numbers=spoilt.numbers | {"rel_error": 4e9}))
    outcome = judge(load_experiments(["table-pbm"])[0], store)
    rows = {row["model"]: row for row in outcome.rows}
    assert (rows[ROBUST]["RelError"], rows[ROBUST]["sd"]) == (None, None)
    assert rows[ROBUST]["median"] == pytest.approx(0.06 * 1.025)
    assert rows[PBM]["RelError"] == pytest.approx(0.4 * 1.025)
    line = outcome.headlines[1]
    assert line.what == "RelError, CPBM, median"
    assert line.ours == pytest.approx(0.06 * 1.025)
    assert line.clickshare == pytest.approx(0.02 * 1.025)
    assert [check.verdict for check in outcome.checks] == ["PASS"] * 7
    outcomes = find_outcomes([load_experiments(["table-pbm"])[0]], store, quick=False)
    page = make_page(outcomes, tmp_path, tmp_path / "page.md") + make_tables(outcomes, tmp_path)
    assert "4,000,000,000" not in page
    assert "e+0" not in page


def test_unfinished_experiments_are_told_not_judged(tmp_path: Path) -> None:
    forget(tmp_path, keep_results(tmp_path, GOOD, quick=False)[:1])
    outcome = judge(load_experiments(["table-pbm"])[0], Store(tmp_path))
    assert (outcome.missing, outcome.rows, outcome.checks) == (1, [], [])
    assert "Not finished: 1 of 48 runs are missing.\n" in make_page([outcome], tmp_path, tmp_path / "p.md")


def test_a_claim_that_fails_tells_its_cause_or_that_nobody_knows() -> None:
    assert Check("a", True, "b").reason == ""
    assert Check("a", False, "b").reason == "Cause unknown."
    assert Check("a", False, "b", "too little data").reason == "Cause: too little data."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fig-nothing"], "no experiment 'fig-nothing': expected some of table-pbm"),
        (["table-pbm", "--corpus", "nowhere.txt"], "no corpus nowhere.txt: expected synthetic"),
        (["table-pbm", "--jobs", "0"], "--jobs 0: expected 1 or more"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert run(*arguments, "--results", tmp_path) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_what_cannot_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("experiments.yandex.find_data", lambda _: None)
    assert run("real-log", "--results", tmp_path) == 2
    assert "real-log cannot run: there is no yandex_sessions.parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "told"), [("a|b", "a|b"), (0.5, "0.5000"), (1234567.0, "1,234,567"), (7, "7"), (4.1e9, "4.1e+09")]
)
def test_spelling(value: str | float, told: str) -> None:
    assert spell(value) == told


def test_pipes_do_not_end_the_cells_of_a_table() -> None:
    rows = ROOT.joinpath("results", "README.md").read_text(encoding="utf-8").splitlines()
    tables = [(head, rule) for head, rule in pairwise(rows) if head.startswith("| ") and "--" in rule]
    assert any("mean \\|difference\\|" in head for head, _ in tables)
    assert all(head.replace("\\|", "").count("|") == rule.count("|") for head, rule in tables)


def test_the_page_and_the_tables_are_what_the_results_make() -> None:
    results, page = ROOT / "results", ROOT / "docs" / "reproduction.md"
    outcomes = find_outcomes(load_experiments(), Store(results), quick=False, seeds=1)
    assert page.read_text(encoding="utf-8") == make_page(outcomes, results, page)
    assert (results / "README.md").read_text(encoding="utf-8") == make_tables(outcomes, results)


def test_every_failure_on_the_page_has_a_cause() -> None:
    assert "Cause unknown" not in ROOT.joinpath("docs", "reproduction.md").read_text(encoding="utf-8")
