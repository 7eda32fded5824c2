"""Keeping and measuring runs: lines that are whole or do not count, nothing measured twice, killed or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from experiments import Result, Run
from experiments.runner.measuring import measure_missing, measure_run
from experiments.runner.registry import FAMILIES, family, find_family
from experiments.runner.store import Store
from places import ROOT, SRC

Fake = Callable[[Callable[[Run], dict[str, Any]]], None]


def make_run(seed: int = 0, world: str = "w") -> Run:
    return Run("fake", world, seed, {"sizes": (1, 2)})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Make a function that which measures the family `fake`."""

    def make(measure: Callable[[Run], dict[str, Any]]) -> None:
        monkeypatch.setitem(FAMILIES, "fake", lambda run, source: measure(run))

    return make


class TestRegistry:
    def test_a_function_joins_where_it_is_defined(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("experiments.runner.registry.FAMILIES", own := dict(FAMILIES))

        @family("mine")
        def measure(run: Run, source: Path | None) -> dict[str, Any]:
            return {"seed": run.seed}

        assert own["mine"] is measure
        assert measure_run(Run("mine", "w", 7, {})) == {"seed": 7}

    def test_unknown(self) -> None:
        with pytest.raises(InputError, match="no family 'nobody': expected one of"):
            find_family("nobody")


class TestStore:
    def test_a_line_that_was_cut_off_is_missing_and_harms_no_other(self, tmp_path: Path) -> None:
        store, runs = Store(tmp_path), [make_run(seed) for seed in range(3)]
        store.save(Result(runs[0], {"error": 0.5}))
        store.save(Result(runs[1], {"error": 0.7}))
        path = store.path("w")
        path.write_bytes(path.read_bytes()[:-20])
        assert store.missing([*runs, runs[1]]) == runs[1:]
        store.save(Result(runs[2], {"error": 0.9}))
        assert store.missing(runs) == runs[1:2]
        store.tidy(["w"])
        assert [json.loads(line)["numbers"]["error"] for line in path.read_text().splitlines()] in (
            [0.5, 0.9],
            [0.9, 0.5],
        )

    def test_the_last_line_of_a_run_counts(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        for error in (0.5, 0.7):
            store.save(Result(make_run(), {"error": error}))
        assert store.find(make_run()) == Result(make_run(), {"error": 0.7})

    def test_tidy_files_of_equal_results_are_equal(self, tmp_path: Path) -> None:
        stores = [Store(tmp_path / name) for name in ("there", "back")]
        results = [Result(make_run(seed), {"error": seed / 10}) for seed in range(9)]
        for store, order in zip(stores, (results, [*results[::-1], results[4]]), strict=True):
            for result in order:
                store.save(result)
            store.tidy(["w", "w", "no such world"])
        assert stores[0].path("w").read_bytes() == stores[1].path("w").read_bytes()
        assert stores[0].path("w").read_bytes().count(b"\n") == 9

    def test_worlds_are_kept_apart(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.save(Result(make_run(world="v"), {"error": 0.5}))
        assert store.find(make_run(world="w")) is None
        assert store.worlds() == ["v"]

    def test_nan_is_not_kept(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="JSON"):
            Store(tmp_path).save(Result(make_run(), {"error": float("nan")}))
        assert list(tmp_path.rglob("*.*")) == []

    def test_a_folder_that_cannot_be_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "w").touch()
        with pytest.raises(InputError, match="cannot write results to"):
            Store(tmp_path).save(Result(make_run(), {}))

    def test_several_processes_add_lines_at_once(self, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from experiments import Result, Run\n"
            "from experiments.runner.store import Store\n"
            "store, first = Store(Path(sys.argv[1])), int(sys.argv[2])\n"
            "for seed in range(first, first + 200):\n"
            "    store.save(Result(Run('f', 'w', seed, {}), {'noise': [0.1] * 500}))\n"
        )
        commands = [[sys.executable, "-c", code, str(tmp_path), str(first)] for first in (0, 200)]
        processes = [subprocess.Popen(command, env=environment()) for command in commands]
        assert [process.wait() for process in processes] == [0, 0]
        assert Store(tmp_path).missing([Run("f", "w", seed, {}) for seed in range(400)]) == []


class TestMeasuring:
    def test_finished_runs_are_not_repeated(self, tmp_path: Path, fake: Fake) -> None:
        seen: list[int] = []
        fake(lambda run: seen.append(run.seed) or {"seed": run.seed})  # type: ignore[func-returns-value]
        runs = [make_run(seed) for seed in (0, 1, 1, 2)]
        told: list[tuple[float, str]] = []
        assert measure_missing(runs[:2], Store(tmp_path), jobs=1) == []
        update = lambda share, note="": told.append((share, note))  # noqa: E731
        assert measure_missing(runs, Store(tmp_path), jobs=1, update=update) == []
        assert seen == [0, 1, 2]
        assert told == [(1.0, f"1 of 1, {runs[-1]}")]

    def test_a_failure_is_told_and_the_others_are_kept(self, tmp_path: Path, fake: Fake) -> None:
        fake(lambda run: {"half": 1 / run.seed})
        runs = [make_run(seed) for seed in (0, 2)]
        failures = measure_missing(runs, Store(tmp_path), jobs=1)
        assert [(f.run.seed, f.error) for f in failures] == [(0, "ZeroDivisionError: division by zero")]
        assert Store(tmp_path).missing(runs) == runs[:1]

    def test_a_refusal_is_a_result(self, fake: Fake) -> None:
        def refuse(run: Run) -> dict[str, Any]:
            raise NotIdentifiedError("nothing links position 2 to position 1")

        fake(refuse)
        assert measure_run(make_run()) == {"refused": "nothing links position 2 to position 1"}

    def test_warnings_are_kept(self, fake: Fake) -> None:
        def warn(run: Run) -> dict[str, Any]:
            warnings.warn("not quite", HarvestWarning, stacklevel=1)
            return {"error": 1.0}

        fake(warn)
        assert measure_run(make_run()) == {"error": 1.0, "warnings": ["not quite"]}

    def test_no_jobs(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="--jobs 0"):
            measure_missing([], Store(tmp_path), jobs=0)


KILLED = """
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np

import experiments
from experiments.__main__ import main
from experiments import Check, Experiment, Headline, Run
from experiments.runner.registry import family


@family("tiny")
def measure(run, source):
    with Path(__file__).with_name("measured.txt").open("a") as file:
        file.write(f"{run.seed}\\n")
    time.sleep(0.2)
    return {"rel_error": float(np.random.default_rng(run.seed).random())}


module = ModuleType("experiments.tiny")
module.EXPERIMENT = Experiment(
    id="tiny", title="Tiny", claim="None.",
    runs=lambda plan: [Run("tiny", plan.world, seed, {}) for seed in range(24)],
    summarise=lambda results: [{"seed": r.run.seed, "RelError": r.numbers["rel_error"]} for r in results],
    headline=lambda results: [Headline("RelError", 0.5, results.mean("rel_error"), runs=len(results))],
    checks=lambda results: [Check("there are two dozen", len(results) == 24, f"{len(results)}")],
)
sys.modules[module.__name__] = module
experiments.EXPERIMENTS = {"tiny": "tiny"}
if __name__ == "__main__":
    main(["tiny", "--results", sys.argv[1], "--jobs", sys.argv[2], "--seeds", "24"])
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{SRC}:{ROOT}"}


def test_killed_runs_go_on_and_end_with_the_same_bytes(tmp_path: Path) -> None:
    script, measured, kept = tmp_path / "killed.py", tmp_path / "measured.txt", Store(tmp_path / "killed")
    script.write_text(KILLED)

    def command(folder: str, jobs: int) -> list[str]:
        return [sys.executable, str(script), str(tmp_path / folder), str(jobs)]

    process = subprocess.Popen(command("killed", 2), env=environment(), stdout=subprocess.DEVNULL)
    while len(kept.load("synthetic")) < 2 and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    time.sleep(1.5)  # its workers end within a second
    before = [result.run.seed for result in kept.load("synthetic").values()]
    assert 2 <= len(before) < 24
    assert not (tmp_path / "killed" / "synthetic" / "tiny.csv").exists()
    with kept.path("synthetic").open("a") as file:
        file.write('\n{"run": {"family": "tiny", "wor')  # as a process leaves it that is killed while it writes
    subprocess.run(command("killed", 2), env=environment(), check=True, stdout=subprocess.DEVNULL)
    times = Counter(int(seed) for seed in measured.read_text().split())
    assert set(times) == set(range(24))
    assert all(times[seed] == 1 for seed in before)
    subprocess.run(command("whole", 1), env=environment(), check=True, stdout=subprocess.DEVNULL)
    for name in ("synthetic/runs.jsonl", "synthetic/tiny.csv", "README.md", "reproduction.md"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
