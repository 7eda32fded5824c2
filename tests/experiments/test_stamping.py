"""Stamping stale runs: only what the code repeats, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clickharvest.errors import InputError
from clickharvest.experiments import Result, Run
from clickharvest.experiments.__main__ import main
from clickharvest.experiments.runner.registry import FAMILIES, Family, code_of, is_current
from clickharvest.experiments.runner.stamping import choose_sample, differences, stamp
from clickharvest.experiments.runner.store import Store

Measure = Callable[[Run], dict[str, Any]]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Let the families `steady` and `moved` repeat what is kept, and 1.1 times it; return the runs they measure."""
    seen: list[Run] = []

    def fake(factor: float) -> Family:
        def measure(run: Run, source: Path | None) -> dict[str, Any]:
            seen.append(run)
            return {"error": factor * error_of(run), "curve": "power"}

        return Family(measure)

    monkeypatch.setitem(FAMILIES, "steady", fake(1 + 1e-5))
    monkeypatch.setitem(FAMILIES, "moved", fake(1.1))
    return seen


def error_of(run: Run) -> float:
    return 0.1 * (1 + run.seed)


def keep(store: Store, family: str, *, worlds: Sequence[str] = ("w",), code: str = "older") -> list[Run]:
    """Keep runs of two models on logs of three sizes."""
    runs = [
        Run(family, world, seed, {"queries": queries}, {"model": model})
        for world in worlds
        for queries in (900, 100, 500)
        for seed, model in enumerate(("PBM", "CPBM"))
    ]
    for run in runs:
        store.save(Result(run, {"error": error_of(run), "curve": "power"}, code))
    return runs


def test_what_is_repeated_is_stamped_with_the_reason(tmp_path: Path, measured: list[Run]) -> None:
    store = Store(tmp_path)
    runs = keep(store, "steady", worlds=("v", "w"))
    (found,) = stamp(runs, store, "only moved", sources={})
    assert (found.stamped, found.repeated, found.differing) == (12, 3, ())
    asked = [(run.world, run["model"], run["queries"]) for run in measured]
    assert asked == [("v", "PBM", 100), ("v", "CPBM", 100), ("w", "PBM", 100)]
    for result in store.results(runs):
        assert is_current(result)
        assert result.stamped == "only moved (3 of 12 runs repeated, within 0.001)"
        assert result.numbers["error"] == error_of(result.run)
    assert list(stamp(runs, store, "once more", sources={})) == []


def test_a_family_that_comes_out_otherwise_is_not_stamped(tmp_path: Path, measured: list[Run]) -> None:
    store = Store(tmp_path)
    runs = keep(store, "moved") + keep(store, "steady")
    moved, steady = stamp(runs, store, "nothing changed", sources={}, sample=2)
    assert (moved.stamped, moved.repeated, len(moved.differing)) == (0, 4, 4)
    assert "error is 0.11" in moved.differing[0]
    assert steady.stamped == 6
    assert {(r.run.family, is_current(r), r.stamped is None) for r in store.results(runs)} == {
        ("moved", False, True),
        ("steady", True, False),
    }


def test_the_tolerance_is_the_users(tmp_path: Path, measured: list[Run]) -> None:
    store = Store(tmp_path)
    runs = keep(store, "moved")
    (found,) = stamp(runs, store, "a coarser optimiser", sources={}, tolerance=0.2)
    assert found.stamped == 6


def test_current_runs_are_left_alone(tmp_path: Path, measured: list[Run]) -> None:
    store = Store(tmp_path)
    runs = keep(store, "steady", code=code_of("steady"))
    assert list(stamp(runs, store, "why not", sources={})) == []
    assert measured == []


def test_runs_that_ran_off_are_no_sample() -> None:
    errors = {100: 4e9, 200: 4.0, 300: 0.4, 400: 0.5}
    results = [Result(Run("steady", "w", 0, {"queries": n}), {"error": e, "clicks": 10**9}) for n, e in errors.items()]
    assert choose_sample(results, 2) == results[1:3]


def test_words_for_people_may_change_but_not_come_or_go() -> None:
    kept = {"status": "converged", "curve": "power", "by": [0.1, None]}
    assert differences(kept, kept | {"status": "all is well"}, 1e-3) == []
    assert differences(kept, kept | {"curve": "linear"}, 1e-3) == ["curve is linear, was power"]
    assert differences(kept, kept | {"by": [0.1, 0.2]}, 1e-3) == ["by.1 is 0.2, was None"]
    assert differences(kept, kept | {"refused": "no"}, 1e-3) == ["refused is new, True"]


@pytest.mark.parametrize(("reason", "sample", "told"), [(" ", 1, "without a reason"), ("moved", 0, "--sample 0")])
def test_bad_requests(tmp_path: Path, reason: str, sample: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        stamp([], Store(tmp_path), reason, sources={}, sample=sample)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure = ["table-size", "--quick", "--jobs", "1", "--results", str(tmp_path)]
    assert main(measure) == 0
    assert main([*measure, "--stamp", "only moved"]) == 0
    assert capsys.readouterr().out == "No run is stale: there is nothing to stamp.\n"
    store = Store(tmp_path / "quick")
    (kept,) = store.load("arxiv").values()
    store.rewrite("arxiv", [Result(kept.run, kept.numbers, None)])
    assert main([*measure, "--stamp", "only moved"]) == 0
    assert capsys.readouterr().out == "table_size: 1 runs repeated, 1 stamped\n"
    (stamped,) = store.load("arxiv").values()
    assert (stamped.numbers, stamped.code) == (kept.numbers, kept.code)
    wrong = {name: value + 999 for name, value in kept.numbers.items()}
    store.rewrite("arxiv", [Result(kept.run, wrong, None)])
    assert main([*measure, "--stamp", "only moved"]) == 1
    assert "DIFFERS" in capsys.readouterr().out
