"""Bars on a terminal for long work, silence everywhere else; and everybody tells of work in the same way."""

from __future__ import annotations

import copy
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from rich.console import Console

from clickharvest import CPBM, PBM, harvest, read_log
from clickharvest.commands.progress import DRAWING, PATIENCE, bars_on
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.progress import Update, part_of, silent
from clickharvest.rank.data import ranking_data
from clickharvest.rank.learners import train_ranker
from clickharvest.rank.training import BoostSettings
from clickharvest.simulate import simulate_ab_log


def is_drawing() -> bool:
    return any(thread.name == DRAWING for thread in threading.enumerate())


def wait_for(screen: io.StringIO, *words: str) -> None:
    """Wait until a screen shows words."""
    until = time.monotonic() + 20
    while not all(word in screen.getvalue() for word in words):
        assert time.monotonic() < until, screen.getvalue()
        time.sleep(0.02)


def test_a_bar_appears_on_a_terminal_once_patience_is_over_and_moves() -> None:
    screen, far = io.StringIO(), [0.25]
    progress = bars_on(Console(force_terminal=True, file=screen, width=80), patience=0.0)
    with progress("Harvesting", lambda: far[0]):
        wait_for(screen, "Harvesting")
        assert is_drawing()
        before = screen.getvalue()
        far[0] = 0.75
        time.sleep(0.5)
        assert screen.getvalue() != before
    assert not is_drawing()


def test_tasks_are_nested_and_tell_what_they_are_at() -> None:
    screen = io.StringIO()
    progress = bars_on(Console(force_terminal=True, file=screen, width=80), patience=0.0)
    with progress("Training"):
        with progress("Cross-validation") as update:
            update(0.5, "fold 3")
            wait_for(screen, "Training", "Cross-validation", "fold 3")
        assert is_drawing()
    assert not is_drawing()


def test_quick_work_shows_nothing() -> None:
    screen = io.StringIO()
    progress = bars_on(Console(force_terminal=True, file=screen), patience=60)
    with progress("Harvesting"), progress("Reading") as update:
        update(0.5)
    assert screen.getvalue() == ""
    assert PATIENCE == 2.0


def test_nothing_is_drawn_where_output_is_piped() -> None:
    screen = io.StringIO()
    with bars_on(Console(file=screen), patience=0.0)("Harvesting") as update:
        update(0.5)
        assert not is_drawing()
    assert screen.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_errors_pass_through(terminal: bool) -> None:
    progress = bars_on(Console(force_terminal=terminal, file=io.StringIO()), patience=0.0)
    with pytest.raises(ZeroDivisionError), progress("Dividing"):
        _ = 1 / 0
    assert not is_drawing()


def test_what_draws_can_be_a_parameter_that_is_copied() -> None:
    progress = bars_on(Console(force_terminal=True, file=io.StringIO()))
    assert copy.deepcopy(PBM(progress=progress).get_params())["progress"] is progress


def test_an_engine_can_be_asked_how_far_it_is() -> None:
    assert DuckDBEngine().fraction() is None


def test_parts_tell_of_the_whole() -> None:
    told: list[float] = []
    part = part_of(lambda share, note="": told.append(share), 0.5, 0.75)
    part(0.0)
    part(1.0)
    assert told == [0.5, 0.75]


class Watch:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.shares: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, task: str, fraction: object = None) -> Iterator[Update]:
        told = self.shares.setdefault(task, [])
        yield lambda share, note="", /: told.append(share)


def assert_moves(shares: list[float], *, to_the_end: bool = True) -> None:
    assert len(set(shares)) > 2
    assert shares == sorted(shares)
    assert min(shares) >= 0
    assert max(shares) == pytest.approx(1) if to_the_end else max(shares) <= 1


def test_estimators_and_engines_speak_the_same_protocol() -> None:
    watch = Watch()
    table, _ = simulate_ab_log(pages=2_000, queries=30)
    engine = DuckDBEngine(progress=watch)
    interventions = harvest(read_log(table, context=["device"], engine=engine))
    assert "Harvesting" in watch.shares
    CPBM(curve="power", intervals="bootstrap", replicates=20, progress=watch).fit(interventions)
    assert_moves(watch.shares["Cross-validation"])
    assert_moves(watch.shares["Bootstrap"])
    assert watch.shares["Fitting"] == []
    CPBM(curve="power", penalty=1.0, optimiser="adam", intervals=None, progress=watch).fit(interventions)
    assert_moves(watch.shares["Training"], to_the_end=False)


def lists() -> dict[str, object]:
    random = np.random.default_rng(0)
    starts = np.arange(0, 241, 6)
    clicked = np.sort(random.integers(0, 240, 100))
    return {"features": random.normal(size=(240, 3)), "starts": starts, "clicked": clicked, "propensity": np.ones(100)}


@pytest.mark.parametrize("learner", ["lightgbm", "xgboost"])
def test_trees_are_counted(learner: str) -> None:
    pytest.importorskip(learner, reason="the boost extra is not installed")
    watch = Watch()
    train_ranker(ranking_data(**lists()), learner, settings=BoostSettings(rounds=6, patience=6), progress=watch)
    assert watch.shares["Growing trees"] == pytest.approx([k / 6 for k in range(1, 7)])


def test_candidates_of_the_svm_are_counted() -> None:
    watch = Watch()
    train_ranker(ranking_data(**lists()), clip=0.1, progress=watch)
    assert_moves(watch.shares["Cross-validation"])


def test_silence_takes_every_call() -> None:
    with silent("Harvesting", lambda: 0.5) as update:
        update(0.5, "a note")
