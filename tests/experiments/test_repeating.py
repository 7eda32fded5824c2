"""Repeating kept runs: a sample is measured again, and what comes out otherwise is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import Result, Run
from experiments.__main__ import main
from experiments.runner.registry import FAMILIES
from experiments.runner.repeating import choose_sample, differences, repeat
from experiments.runner.store import Store


def results() -> list[Result]:
    return [
        Result(Run("steady", world, 0, {"queries": queries}, {"model": model}), {"error": queries / 1000})
        for world in ("v", "w")
        for queries in (900, 100, 500)
        for model in ("PBM", "CPBM")
    ]


def test_the_sample_has_every_model_and_world_on_logs_of_middle_size() -> None:
    chosen = choose_sample(results())
    assert [(r.run.world, r.run["model"], r.run["queries"]) for r in chosen] == [
        ("v", "PBM", 500), ("v", "CPBM", 500), ("w", "PBM", 500)
    ]  # fmt: skip


def test_runs_that_ran_off_are_no_sample() -> None:
    errors = {100: 0.3, 200: 4e9, 300: 0.4}
    kept = [Result(Run("steady", "w", 0, {"queries": n}), {"error": e}) for n, e in errors.items()]
    assert choose_sample(kept) == kept[:1]


@pytest.mark.parametrize(("factor", "differing"), [(1 + 1e-5, 0), (1.1, 12)])
def test_what_comes_out_otherwise_is_told(monkeypatch: pytest.MonkeyPatch, factor: float, differing: int) -> None:
    def measure(run: Run, source: Path | None) -> dict[str, Any]:
        return {"error": factor * run["queries"] / 1000}

    monkeypatch.setitem(FAMILIES, "steady", measure)
    assert len(repeat(results(), {})) == differing


def test_words_for_people_may_change_but_not_come_or_go() -> None:
    kept = {"status": "converged", "curve": "power", "by": [0.1, None]}
    assert differences(kept, kept | {"status": "all is well"}) == []
    assert differences(kept, kept | {"curve": "linear"}) == ["curve is linear, was power"]
    assert differences(kept, kept | {"by": [0.1, 0.2]}) == ["by.1 is 0.2, was None"]
    assert differences(kept, kept | {"refused": "no"}) == ["refused is new, True"]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure = ["table-size", "--quick", "--jobs", "1", "--results", str(tmp_path)]
    assert main(measure) == 0
    capsys.readouterr()
    assert main([*measure, "--repeat"]) == 0
    assert capsys.readouterr().out == "table_size: 1 of 1 runs came out as they are kept.\n"
    store = Store(tmp_path / "quick")
    (kept,) = store.load("arxiv").values()
    store.rewrite("arxiv", [Result(kept.run, {name: value + 999 for name, value in kept.numbers.items()})])
    assert main([*measure, "--repeat"]) == 1
    assert "DIFFERS arxiv: queries" in capsys.readouterr().out
    (note,) = json.loads((tmp_path / "quick" / "repeated.json").read_text()).values()
    assert (note["repeated"], len(note["differing"])) == (1, 1)
