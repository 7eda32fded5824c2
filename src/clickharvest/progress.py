"""Progress of long work, reported by whoever does it; the command line draws it.

One protocol for everything: work opens a task and reports, where it can, the share that is done.

>>> def add_up(numbers, progress=silent):
...     total = 0
...     with progress("Adding") as update:
...         for done, number in enumerate(numbers, 1):
...             total += number
...             update(done / len(numbers))
...     return total
>>> add_up([1, 2, 3])
6
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Update(Protocol):
    """A function that takes the share of a task that is done, in [0, 1], and a note of a few words."""

    def __call__(self, share: float, note: str = "", /) -> None:
        """Report the share."""
        ...


class Progress(Protocol):
    """Shows tasks: `with progress("Bootstrap") as update: … update(0.5)`. Tasks may be nested.

    Work that cannot call `update` itself, such as a query inside an engine, gives a function `fraction` that another
    thread calls: it returns the share done, or None where that is unknown.
    """

    def __call__(self, task: str, fraction: Callable[[], float | None] | None = None) -> AbstractContextManager[Update]:
        """Return a context manager that shows `task` while its block runs."""
        ...


def ignore(share: float, note: str = "", /) -> None:
    """Ignore the share of a task that is done."""


def silent(task: str, fraction: Callable[[], float | None] | None = None) -> AbstractContextManager[Update]:
    """Show nothing: the default of everything that takes a progress."""
    return nullcontext(ignore)


def part_of(update: Update, begin: float, end: float) -> Update:
    """Return the update of a part of a task, which takes the whole from the share `begin` to `end`.

    Example:
        >>> part_of(lambda share, note="": print(share), 0.5, 1.0)(0.5)
        0.75
    """
    return lambda share, note="", /: update(begin + share * (end - begin), note)
