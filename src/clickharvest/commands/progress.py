"""Progress on a terminal: a bar for work that takes more than two seconds, nothing where output is piped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from clickharvest.progress import Monitor

DRAWING = "clickharvest progress"
PATIENCE = 2.0
"""Seconds of work before a bar appears."""


def bar_on(console: Console, *, patience: float = PATIENCE) -> Monitor:
    """Return a monitor that draws on a console, or one that stays silent where the console is no terminal."""

    @contextmanager
    def monitor(task: str, fraction: Callable[[], float | None]) -> Iterator[None]:
        if not console.is_terminal:
            yield
            return
        finished = threading.Event()
        drawing = threading.Thread(
            target=_draw, args=(console, task, fraction, finished, patience), name=DRAWING, daemon=True
        )
        drawing.start()
        try:
            yield
        finally:
            finished.set()
            drawing.join()

    return monitor


def _draw(
    console: Console,
    task: str,
    fraction: Callable[[], float | None],
    finished: threading.Event,
    patience: float,
) -> None:
    if finished.wait(patience):
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        job = progress.add_task(task, total=None)
        while not finished.wait(0.1):
            done = fraction()
            if done is not None:
                progress.update(job, total=1.0, completed=done)
