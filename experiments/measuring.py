"""Measuring: the runs that a store lacks, in several processes, each result kept once it is there."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from clickharvest.errors import InputError, NotIdentifiedError
from experiments.runs import REFUSED, Numbers, Result, Run, Store

MOST_JOBS = 8
"""Processes by default, at most: each holds a corpus in memory."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def say(text: str) -> None:
    """Print a line with the time on standard error."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_missing(runs: Sequence[Run], store: Store, *, jobs: int | None = None) -> list[Run]:
    """Measure the runs that a store lacks, keep their numbers in it, and return the runs that failed.

    Runs on the same log are measured one after the other by one process. Processes share the cores; one job measures
    in this process.
    """
    jobs = min(MOST_JOBS, cores()) if jobs is None else jobs
    if jobs < 1:
        raise InputError(f"--jobs {jobs}: expected 1 or more")
    missing = store.missing(runs)
    groups: dict[Run, list[Run]] = {}
    for run in missing:
        groups.setdefault(run.unfitted, []).append(run)
    work, jobs = list(groups.values()), min(jobs, len(groups))
    context = get_context("spawn")
    turn = context.Value("i", 0)
    if jobs <= 1:
        take_groups(work, store, turn)
    else:
        os.environ |= dict.fromkeys(THREADS, str(max(1, cores() // jobs)))  # inherited by the processes
        processes = [context.Process(target=take_groups, args=(work, store, turn, os.getpid())) for _ in range(jobs)]
        try:
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        finally:
            for process in processes:
                process.terminate()
    for world in {run.world for run in missing}:
        store.tidy(world)
    return store.missing(missing)


def take_groups(groups: Sequence[Sequence[Run]], store: Store, turn: Any, parent: int | None = None) -> None:
    """Measure groups of runs, always the next that no process has taken, until none is left or the parent is gone."""
    while True:
        with turn.get_lock():
            number, turn.value = turn.value, turn.value + 1
        if number >= len(groups):
            return
        for run in groups[number]:
            if parent not in (None, os.getppid()):
                return
            try:
                store.save(Result(run, measure(run)))
            except InputError as error:  # no corpus, no room: the other runs would fail likewise
                turn.value = len(groups)
                say(f"FAIL {run}: {error}")
                return
            except Exception as error:
                say(f"FAIL {run}: {type(error).__name__}: {error}")
        say(f"{number + 1} of {len(groups)} logs, {groups[number][-1]}")


def measure(run: Run) -> Numbers:
    """Return the numbers of a run and the warnings of its fits. A refusal is a result."""
    family = import_module(f"experiments.{run.family}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers: Numbers = family.measure(run)
        except NotIdentifiedError as error:
            numbers = {REFUSED: str(error)}
    messages = sorted({str(w.message) for w in caught if w.category.__module__.startswith("clickharvest")})
    return numbers | ({"warnings": messages} if messages else {})
