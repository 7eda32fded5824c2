"""Progress: how long work tells that it is under way. Drawing it is the business of the command line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Monitor(Protocol):
    """Shows that work is under way: `with monitor("Harvesting", fraction): …`, `fraction()` in [0, 1] or None."""

    def __call__(self, task: str, fraction: Callable[[], float | None]) -> AbstractContextManager[None]:
        """Return a context manager that shows `task` while its block runs."""
        ...


def silent(task: str, fraction: Callable[[], float | None]) -> AbstractContextManager[None]:
    """Return a monitor that shows nothing."""
    return nullcontext()
