"""Progress: how long work tells that it is under way. Drawing it is the business of the command line.

One protocol for everything: whoever has work to do opens a task and tells, where it can, how much of it is done.

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
    """Is told the share of a task that is done, in [0, 1], and in a few words what it is at."""

    def __call__(self, share: float, note: str = "", /) -> None:
        """Take note of the share."""
        ...


class Progress(Protocol):
    """Shows tasks: `with progress("Bootstrap") as update: … update(0.5)`. Tasks may be nested.

    Work that cannot call `update` itself, such as a query inside an engine, gives a function `fraction` to be asked
    from another thread: it returns the share done, or None where that is unknown. A task of which no share is known is
    under way, and no more is claimed.
    """

    def __call__(self, task: str, fraction: Callable[[], float | None] | None = None) -> AbstractContextManager[Update]:
        """Return a context manager that shows `task` while its block runs."""
        ...


def ignore(share: float, note: str = "", /) -> None:
    """Take no note of the share of a task that is done."""


def silent(task: str, fraction: Callable[[], float | None] | None = None) -> AbstractContextManager[Update]:
    """Show nothing: the progress of everything that is not told otherwise."""
    return nullcontext(ignore)


def part_of(update: Update, begin: float, end: float) -> Update:
    """Return what tells of a part of a task, which takes it from the share `begin` to `end`.

    Example:
        >>> part_of(lambda share, note="": print(share), 0.5, 1.0)(0.5)
        0.75
    """
    return lambda share, note="", /: update(begin + share * (end - begin), note)
