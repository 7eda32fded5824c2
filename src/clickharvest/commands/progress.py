"""Progress on a terminal: bars for work that takes more than two seconds, nothing where output is piped.

A bar shows the share that its task reports; where a task reports none, the bar pulses. The time runs beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from clickharvest.progress import Progress, Update, ignore
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from rich.console import Console

DRAWING = "clickharvest progress"
PATIENCE = 2.0
"""Seconds of work before a bar appears."""
EVERY = 0.1
"""Seconds between two looks at how far the tasks are."""
LONGEST = 30
"""Letters of a task's note that are shown."""


@dataclass(eq=False)
class _Job:
    """A task at work: where it stands, and when to show it."""

    task: str
    fraction: Callable[[], float | None] | None
    due: float
    known_share: float | None = None
    note: str = ""

    def update(self, share: float, note: str = "", /) -> None:
        self.known_share, self.note = share, note

    def share(self) -> float | None:
        return self.known_share if self.fraction is None else self.fraction()


def show_progress(task: str, fraction: Callable[[], float | None] | None = None) -> AbstractContextManager[Update]:
    """Show a task on standard error, if that is a terminal: the progress of every command."""
    return _on_standard_error()(task, fraction)


@cache
def _on_standard_error() -> Progress:
    from rich.console import Console

    return bars_on(Console(stderr=True))


def bars_on(console: Console, *, patience: float = PATIENCE) -> Progress:
    """Return a progress that draws on a console, or stays silent where the console is no terminal."""
    jobs: list[_Job] = []

    @contextmanager
    def progress(task: str, fraction: Callable[[], float | None] | None = None) -> Iterator[Update]:
        if not console.is_terminal:
            yield ignore
            return
        job = _Job(task, fraction, time.monotonic() + patience)
        with ExitStack() as stack:
            if not jobs:
                stack.enter_context(_drawing(console, jobs, patience))
            jobs.append(job)
            stack.callback(jobs.remove, job)
            yield job.update

    return progress


@contextmanager
def _drawing(console: Console, jobs: list[_Job], patience: float) -> Iterator[None]:
    """Draw jobs, from another thread, while the block runs."""
    finished = threading.Event()
    thread = threading.Thread(target=_draw, args=(console, jobs, finished, patience), name=DRAWING, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _draw(console: Console, jobs: list[_Job], finished: threading.Event, patience: float) -> None:
    if finished.wait(patience):
        return
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    shown: dict[_Job, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Bars(*columns, console=console, transient=True) as bars:
        while not finished.wait(EVERY):
            due = [job for job in jobs.copy() if time.monotonic() >= job.due]
            for job in shown.keys() - due:
                bars.remove_task(shown.pop(job))
            for job in due:
                if job not in shown:
                    shown[job] = bars.add_task(job.task, total=None, note="")
                if (share := job.share()) is not None:
                    bars.update(shown[job], total=1.0, completed=share, note=clean_text(job.note, LONGEST))
