"""A bar on a terminal for long work, silence everywhere else."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from clickharvest.commands.progress import DRAWING, PATIENCE, bar_on
from clickharvest.logs.engines import DuckDBEngine


def is_drawing() -> bool:
    return any(thread.name == DRAWING for thread in threading.enumerate())


def test_a_bar_appears_on_a_terminal_once_patience_is_over() -> None:
    screen, asked = io.StringIO(), threading.Event()

    def fraction() -> float:
        asked.set()
        return 0.5

    monitor = bar_on(Console(force_terminal=True, file=screen, width=80), patience=0.0)
    with monitor("Harvesting", fraction):
        assert asked.wait(10)
        assert is_drawing()
    assert "Harvesting" in screen.getvalue()


def test_quick_work_shows_nothing() -> None:
    screen = io.StringIO()
    with bar_on(Console(force_terminal=True, file=screen), patience=60)("Harvesting", lambda: None):
        pass
    assert screen.getvalue() == ""


def test_nothing_is_drawn_where_output_is_piped() -> None:
    screen = io.StringIO()
    with bar_on(Console(file=screen), patience=0.0)("Harvesting", lambda: 0.5):
        assert not is_drawing()
    assert screen.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_errors_pass_through(terminal: bool) -> None:
    monitor = bar_on(Console(force_terminal=terminal, file=io.StringIO()), patience=0.0)
    with pytest.raises(ZeroDivisionError), monitor("Dividing", lambda: None):
        _ = 1 / 0
    assert not is_drawing()


def test_an_engine_can_be_asked_how_far_it_is() -> None:
    assert PATIENCE == 2.0
    assert DuckDBEngine().progress() is None
