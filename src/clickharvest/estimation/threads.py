"""How many threads fits run on."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import Any, TypeVar, cast

from threadpoolctl import threadpool_limits

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item")
Found = TypeVar("Found")


def on_one_thread(function: Function) -> Function:
    """Let linear algebra run on one thread while a function runs.

    Matrices of a fit are small. More threads gain nothing on them, and wait for each other by spinning: of 16 cores a
    fit took ten times the CPU time it needed.
    """

    @wraps(function)
    def on_one(*arguments: Any, **options: Any) -> Any:
        with threadpool_limits(limits=1, user_api="blas"):
            return function(*arguments, **options)

    return cast(Function, on_one)


def in_threads(function: Callable[[Item], Found], items: Iterable[Item], workers: int) -> Iterator[Found]:
    """Yield what a function finds of each item, in their order; NumPy lets several cores work on them at a time.

    The function must not depend on other items, so that the number of threads (`workers`) changes nothing. Items are
    asked for, in this thread, as they are needed.
    """
    if workers < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Found]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
