"""Measuring: what a store lacks, in several processes, each result kept once it is there."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.progress import Update, ignore
from experiments.runner.registry import Measure, find_family
from experiments.runner.runs import REFUSED, Numbers, Result, Run
from experiments.runner.store import Store

MOST_JOBS = 8
"""Processes at most, unless more are asked for: each holds a corpus in memory."""


@dataclass(frozen=True)
class Failure:
    """A run that raised an error, and what it said."""

    run: Run
    error: str


def default_jobs() -> int:
    """Return a sensible number of processes: one for each core this process may use, at most `MOST_JOBS`."""
    return min(MOST_JOBS, _cores())


def measure_missing(
    runs: Sequence[Run],
    store: Store,
    *,
    jobs: int,
    source: Path | None = None,
    update: Update = ignore,
) -> list[Failure]:
    """Measure the runs that a store lacks, and keep their numbers in it.

    Runs on the same log go to one process. Each process gets its share of the cores. One job measures in this
    process.

    Args:
        runs: what to measure; those in the store are left out.
        store: where results are kept.
        jobs: number of processes.
        source: the file of the corpus, None where the world needs none.
        update: told of progress, and of the run that was done last.

    Returns:
        The runs that failed; the others are in the store.
    """
    if jobs < 1:
        raise InputError(f"--jobs {jobs}: expected 1 or more")
    missing = store.missing(runs)
    failures = _measure(missing, store, jobs, source, update)
    store.tidy(run.world for run in missing)
    return failures


def _measure(missing: Sequence[Run], store: Store, jobs: int, source: Path | None, update: Update) -> list[Failure]:
    groups: dict[str, list[Run]] = {}
    for run in missing:
        groups.setdefault(run.group, []).append(run)
    how = {name: find_family(name) for name in {run.family for run in missing}}
    failures: list[Failure] = []
    done = 0

    def note(found: list[Failure], group: Sequence[Run]) -> None:
        nonlocal done
        failures.extend(found)
        done += len(group)
        update(done / len(missing), f"{done} of {len(missing)}, {group[-1]}")

    if jobs == 1 or len(groups) <= 1:
        for group in groups.values():
            note(measure_group(group, how[group[0].family], store, source), group)
        return failures
    _share_machine(min(jobs, len(groups)))
    with ProcessPoolExecutor(
        min(jobs, len(groups)), mp_context=get_context("spawn"), initializer=_follow, initargs=(os.getpid(),)
    ) as pool:
        work: dict[Future[list[Failure]], list[Run]] = {
            pool.submit(measure_group, group, how[group[0].family], store, source): group for group in groups.values()
        }
        try:
            for future in as_completed(work):
                error = future.exception()
                group = work[future]
                note(future.result() if error is None else [Failure(run, _told(error)) for run in group], group)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failures


def measure_group(group: Sequence[Run], measure: Measure, store: Store, source: Path | None) -> list[Failure]:
    """Measure runs of one family one after the other, and keep each as soon as it is there; return those that failed.

    Args:
        group: the runs.
        measure: the function of their family, which another process finds by its module and name.
        store: where results are kept.
        source: the file of the corpus.
    """
    failures = []
    for run in group:
        try:
            store.save(Result(run, measure_run(run, source, measure)))
        except InputError:
            raise
        except Exception as error:
            failures.append(Failure(run, _told(error)))
    return failures


def measure_run(run: Run, source: Path | None = None, measure: Measure | None = None) -> Numbers:
    """Measure a run, by default with its family; a refusal is a result, and fits that did not converge are told."""
    measure = measure or find_family(run.family)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers: Numbers = measure(run, source)
        except NotIdentifiedError as error:
            numbers = {REFUSED: str(error)}
    told = sorted({str(w.message) for w in caught if w.category.__module__.startswith("clickharvest")})
    return numbers | ({"warnings": told} if told else {})


def _follow(parent: int) -> None:
    """End this process soon after its parent, which may be killed without a chance to end it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _share_machine(jobs: int) -> None:
    """Set what child processes inherit: their share of the cores."""
    threads = str(max(1, _cores() // jobs))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = threads


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
