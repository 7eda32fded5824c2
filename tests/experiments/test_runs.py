"""Runs: lines that are whole or do not count, nothing measured twice, killed or not, and a sample measured again."""

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
from types import ModuleType
from typing import Any

import pytest

from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from experiments import Result, Results, Run, Store, arxiv, runs
from experiments.__main__ import main
from experiments.measuring import measure, measure_missing
from experiments.repeating import choose_sample, differences, repeat
from places import ROOT, SRC

Fake = Callable[[Callable[[Run], dict[str, Any]]], None]


@pytest.fixture(autouse=True)
def family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runs.REVISIONS, "fake", 1)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Make a function that which measures the family `fake`."""

    def make(function: Callable[[Run], dict[str, Any]]) -> None:
        module = ModuleType("experiments.fake")
        module.measure = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return make


def make_run(seed: int = 0, world: str = "w", **log: Any) -> Run:
    return Run("fake", world, seed, {"sizes": (1, 2), **log})


class TestRun:
    def test_equal_settings_are_equal_runs(self) -> None:
        run = Run("fake", "w", 0, {"a": 1, "b": (1, 2)}, {"model": "PBM"})
        assert run == Run("fake", "w", 0, {"b": [1, 2], "a": 1}, {"model": "PBM"}, source=Path("corpus.txt"))
        others = [Run("fake", "w", 1, run.log, run.fit), Run("fake", "v", 0, run.log, run.fit), run.unfitted]
        assert len({run, *others}) == 4

    def test_a_higher_revision_voids_what_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = Store(tmp_path)
        store.save(Result(make_run(), {"error": 0.5}))
        monkeypatch.setitem(runs.REVISIONS, "fake", 2)
        assert store.missing([make_run()]) == [make_run()]

    def test_refused_runs_have_no_values(self) -> None:
        results = Results(
            [Result(make_run(), numbers) for numbers in ({"error": 1.0}, {"refused": "no"}, {"error": None})]
        )
        assert results.values("error") == [1.0]
        assert len(results.refused) == 1


class TestStore:
    def test_a_line_that_was_cut_off_is_missing_and_harms_no_other(self, tmp_path: Path) -> None:
        store, some = Store(tmp_path), [make_run(seed) for seed in range(3)]
        store.save(Result(some[0], {"error": 0.5}))
        store.save(Result(some[1], {"error": 0.7}))
        path = store.path("w")
        path.write_bytes(path.read_bytes()[:-20])
        assert store.missing([*some, some[1]]) == some[1:]
        store.save(Result(some[2], {"error": 0.9}))
        store.tidy("w")
        assert [json.loads(line)["numbers"]["error"] for line in path.read_text().splitlines()] == [0.5, 0.9]

    def test_tidy_files_of_equal_results_are_equal(self, tmp_path: Path) -> None:
        stores = [Store(tmp_path / name) for name in ("there", "back")]
        results = [Result(make_run(seed), {"error": seed / 10}) for seed in range(9)]
        wrong = Result(make_run(4), {"error": 9.0})
        for store, order in zip(stores, (results, [wrong, *results[::-1]]), strict=True):
            for result in order:
                store.save(result)
            store.tidy("w")
        assert stores[0].path("w").read_bytes() == stores[1].path("w").read_bytes()
        assert stores[0].path("w").read_bytes().count(b"\n") == 9

    def test_nan_is_not_kept(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="JSON"):
            Store(tmp_path).save(Result(make_run(), {"error": float("nan")}))
        assert list(tmp_path.rglob("*.*")) == []

    def test_a_folder_that_cannot_be_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "w").touch()
        with pytest.raises(InputError, match="cannot write results to"):
            Store(tmp_path).save(Result(make_run(), {}))


class TestMeasuring:
    def test_finished_runs_are_not_repeated(self, tmp_path: Path, fake: Fake) -> None:
        seeds: list[int] = []
        fake(lambda run: {"seed": seeds.append(run.seed) or run.seed})  # type: ignore[func-returns-value]
        some = [make_run(seed) for seed in (0, 1, 1, 2)]
        assert measure_missing(some[:2], Store(tmp_path), jobs=1) == []
        assert measure_missing(some, Store(tmp_path), jobs=1) == []
        assert seeds == [0, 1, 2]

    def test_a_failure_is_told_and_the_others_are_kept(
        self, tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake(lambda run: {"half": 1 / run.seed})
        some = [make_run(seed) for seed in (0, 2)]
        assert measure_missing(some, Store(tmp_path), jobs=1) == some[:1]
        assert Store(tmp_path).results(some).values("half") == [0.5]
        assert f"FAIL {some[0]}: ZeroDivisionError: division by zero" in capsys.readouterr().err

    def test_refusals_and_warnings_are_results(self, fake: Fake) -> None:
        def warn(run: Run) -> dict[str, Any]:
            warnings.warn("not quite", HarvestWarning, stacklevel=1)
            if run.seed:
                raise NotIdentifiedError("nothing links position 2 to position 1")
            return {"error": 1.0}

        fake(warn)
        assert measure(make_run()) == {"error": 1.0, "warnings": ["not quite"]}
        assert measure(make_run(1))["refused"] == "nothing links position 2 to position 1"

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
from experiments import Check, Experiment, Headline, Run, runs


def measure(run):
    with Path(__file__).with_name("measured.txt").open("a") as file:
        file.write(f"{run.seed}\\n")
    time.sleep(0.1)
    return {"rel_error": float(np.random.default_rng(run.seed).random())}


module = ModuleType("experiments.tiny")
module.measure = measure
module.EXPERIMENTS = [
    Experiment(
        "tiny",
        runs=lambda plan: [Run("tiny", plan.world, seed, {}) for seed in range(24)],
        rows=lambda results: [{"seed": r.run.seed, "RelError": r.numbers["rel_error"]} for r in results],
        headlines=lambda results: [Headline.of("RelError", "rel_error", results, paper=0.5)],
        checks=lambda results: [Check("there are two dozen", len(results) == 24, f"{len(results)}")],
    )
]
sys.modules[module.__name__] = module
runs.REVISIONS["tiny"] = 1
experiments.MODULES = ("tiny",)
if __name__ == "__main__":
    from experiments.__main__ import main

    sys.exit(main(["tiny", "--results", sys.argv[1], "--jobs", sys.argv[2], "--seeds", "24"]))
"""


def test_killed_runs_go_on_and_end_with_the_same_bytes(tmp_path: Path) -> None:
    script, measured, kept = tmp_path / "killed.py", tmp_path / "measured.txt", Store(tmp_path / "killed")
    script.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": f"{SRC}:{ROOT}"}

    def lines() -> int:
        return kept.path("synthetic").read_bytes().count(b"numbers") if kept.path("synthetic").exists() else 0

    def start(folder: str, jobs: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), str(tmp_path / folder), str(jobs)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    process = start("killed", 2)
    while lines() < 2 and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    time.sleep(0.5)  # its workers end before their next run
    before = measured.read_text().split()
    assert 2 <= len(before) < 24
    assert lines() == len(before)
    with kept.path("synthetic").open("a") as file:
        file.write('\n{"run": {"family": "tiny", "wor')  # as a process leaves it that is killed while it writes
    assert start("killed", 2).wait() == 0
    assert Counter(measured.read_text().split()) == dict.fromkeys(map(str, range(24)), 1)
    assert start("whole", 1).wait() == 0
    for name in ("synthetic/runs.jsonl", "synthetic/tiny.csv", "README.md", "reproduction.md"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


class TestRepeating:
    @staticmethod
    def results() -> list[Result]:
        return [
            Result(Run("fake", world, 0, {"queries": queries}, {"model": model}), {"error": queries / 1000})
            for world in ("v", "w")
            for queries in (900, 100, 500)
            for model in ("PBM", "CPBM")
        ]

    def test_the_sample_has_every_model_and_world_on_logs_of_middle_size(self) -> None:
        chosen = [(r.run.world, r.run["model"], r.run["queries"]) for r in choose_sample(self.results())]
        assert chosen == [("v", "PBM", 500), ("v", "CPBM", 500), ("w", "PBM", 500)]

    def test_fits_that_diverged_are_no_sample(self) -> None:
        errors = {100: 0.3, 200: 4e9, 300: 0.4}
        kept = [Result(Run("fake", "w", 0, {"queries": n}), {"error": e}) for n, e in errors.items()]
        assert choose_sample(kept) == kept[:1]

    @pytest.mark.parametrize(("factor", "differing"), [(1 + 1e-5, 0), (1.1, 12)])
    def test_what_comes_out_differently_is_told(self, fake: Fake, factor: float, differing: int) -> None:
        fake(lambda run: {"error": factor * run["queries"] / 1000})
        assert len(repeat(self.results())) == differing

    def test_words_for_people_may_change_but_not_come_or_go(self) -> None:
        kept = {"status": "converged", "curve": "power", "by": [0.1, None]}
        assert differences(kept, kept | {"status": "all is well"}) == []
        assert differences(kept, kept | {"curve": "linear"}) == ["curve is linear, was power"]
        assert differences(kept, kept | {"by": [0.1, 0.2]}) == ["by.1 is 0.2, was None"]
        assert differences(kept, kept | {"refused": "no"}) == ["refused is new, True"]

    def test_from_the_command_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(arxiv, "QUERIES", 3_000)
        measure = ["table-size", "--quick", "--jobs", "1", "--results", str(tmp_path)]
        assert main(measure) == 1  # the log is smaller than the paper's
        capsys.readouterr()
        assert main([*measure, "--repeat"]) == 0
        assert capsys.readouterr().out == "arxiv: 1 of 1 runs came out as they are kept.\n"
        store = Store(tmp_path / "quick")
        (kept,) = store.load("arxiv").values()
        store.save(Result(kept.run, {name: value + 999 for name, value in kept.numbers.items()}))
        assert main([*measure, "--repeat"]) == 1
        assert "DIFFERS arxiv: queries" in capsys.readouterr().out
        (note,) = json.loads((tmp_path / "quick" / "repeated.json").read_text()).values()
        assert (note["repeated"], len(note["differing"])) == (1, 1)
