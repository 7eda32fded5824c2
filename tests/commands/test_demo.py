"""`clickharvest demo`: one screen that ends on a better ranker, the files it keeps, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest.checks import budget_of
from clickharvest.commands import demo as module
from clickharvest.commands import tour
from clickharvest.model.loading import load_propensities
from clickharvest.rank.rankers import TrainedRanker, load_ranker
from command_line import Command

WIDTH, LINES = 80, 25


def test_the_demo_is_one_screen_and_ends_on_a_better_ranker(run: Command) -> None:
    code, out, err = run("demo -o kept")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert re.search(r"^usable: at most \d+ % off at any position \(in truth \d %\)$", out, re.MULTILINE)
    estimates, truth = (
        [re.findall(r"(\.\d+)(?: \(|\b)", re.sub(r"\(.*?\)", "(", line)) for line in lines if line.startswith(start)]
        for start in (("desktop", "phone"), "  truth")
    )
    assert [len(row) for row in estimates] == [len(row) for row in truth] == [4, 4]
    assert np.array(estimates, float) == pytest.approx(np.array(truth, float), rel=0.05)
    shown, raw, weighted = (int(line.split()[0]) for line in lines if re.match(r"  \d+ %  ", line))
    assert weighted > raw > shown
    assert "\nWeighting the clicks makes the best ranker (" in out
    assert lines[-2] == "next: clickharvest report kept/model.safetensors -o report.html"
    assert "clickharvest check YOUR.parquet --context device" in lines[-1]

    assert sorted(path.name for path in Path("kept").iterdir()) == sorted(module.FILES)
    assert run("report kept/model.safetensors -o report.html")[0] == 0
    model, ranker = load_propensities("kept/model.safetensors"), load_ranker("kept/ranker.json")
    budget = budget_of(model)
    assert budget is not None
    assert budget.word == "usable"
    assert pq.read_metadata("kept/clicks.parquet").num_rows == 10 * module.PAGES
    documents = pq.read_table("kept/documents.parquet")
    assert len(ranker.score(documents)) == documents.num_rows
    assert pq.read_table("kept/truth.parquet").num_rows == 20


def test_files_are_written_all_or_none(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "PAGES", 4_000)
    monkeypatch.setattr(TrainedRanker, "save", fail)
    code, out, err = run("demo -o kept")
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert not list(Path().iterdir())


def test_a_folder_of_others_is_refused_before_anything_is_simulated(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clickharvest.simulate.shop.simulate_shop", lambda **_: pytest.fail("simulated"))
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("words")
    assert run("demo -o mine") == (
        2,
        "",
        "Error: mine holds thesis.txt, which is not of the demo: name another folder with -o\n",
    )
    assert "does not exist; create it first" in run("demo -o no/where")[2]
    assert "is a file" in run("demo --long -o mine/thesis.txt")[2]


def test_the_long_demo_is_the_tour_and_writes_beside_other_files(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    toured: list[tuple[Path, int]] = []
    monkeypatch.setattr(tour, "tour", lambda _, folder, seed: toured.append((folder, seed)))
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("words")
    assert run("demo --long")[0] == run("demo --long -o mine --seed 3")[0] == 0
    assert toured == [(Path("demo"), 0), (Path("mine"), 3)]
