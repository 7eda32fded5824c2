"""Stamping: runs that other code has measured, but that the code as it is now repeats, take its fingerprint.

A sample of every family is measured again, those runs that take least time. Where all of them come out as they are
kept, the runs of the family are stamped, with the reason and with what was repeated; where one does not, none is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from clickharvest.errors import InputError
from clickharvest.experiments.runner.measuring import measure_missing
from clickharvest.experiments.runner.registry import code_of, is_current
from clickharvest.experiments.runner.runs import REFUSED, WILD, Numbers, Result, Run
from clickharvest.experiments.runner.store import Store
from clickharvest.progress import Update, ignore

TOLERANCE = 1e-3
"""By how much a number may differ, relative to itself, and in any case: optimisers stop at about this."""
SENTENCES = (REFUSED, "warnings", "status")
"""Entries that hold words for people, which may change; whether they are there must not."""


@dataclass(frozen=True)
class Stamping:
    """What became of the stale runs of one family.

    Attributes:
        family: its name.
        stamped: number of runs that were stamped; none where something differs.
        repeated: number of runs that were measured again.
        differing: runs that came out otherwise, and how.
    """

    family: str
    stamped: int
    repeated: int
    differing: tuple[str, ...]


def stamp(
    runs: Sequence[Run],
    store: Store,
    reason: str,
    *,
    sources: Mapping[str, Path | None],
    sample: int = 1,
    tolerance: float = TOLERANCE,
    jobs: int = 1,
    update: Update = ignore,
) -> Iterator[Stamping]:
    """Stamp the stale ones of some runs, family by family, if a sample of them comes out as it is kept.

    Each family is done when its `Stamping` is asked for.

    Args:
        runs: the runs; those that are missing or current are left alone.
        store: where results are kept.
        reason: why numbers should not have changed.
        sources: the files of the corpora, by world.
        sample: runs of a family to measure again, of every model and of every world.
        tolerance: by how much a number may differ, relative to itself; small numbers by as much.
        jobs: number of processes.
        update: told of progress.

    Raises:
        InputError: there is no reason, or no sample.
    """
    if not reason.strip():
        raise InputError("--stamp without a reason: say why the numbers have not changed")
    if sample < 1:
        raise InputError(f"--sample {sample}: expected 1 or more")
    stale: dict[str, list[Result]] = {}
    for result in store.results(runs):
        if not is_current(result):
            stale.setdefault(result.run.family, []).append(result)

    def settle(family: str, own: Sequence[Result]) -> Stamping:
        chosen = choose_sample(own, sample)
        differing = tuple(_repeat(chosen, sources, tolerance, jobs, update))
        if differing:
            return Stamping(family, 0, len(chosen), differing)
        why = f"{reason} ({len(chosen)} of {len(own)} runs repeated, within {tolerance:g})"
        _keep([replace(result, code=code_of(family), stamped=why) for result in own], store)
        return Stamping(family, len(own), len(chosen), ())

    return (settle(family, own) for family, own in stale.items())


def choose_sample(results: Sequence[Result], count: int) -> list[Result]:
    """Return the results to repeat, so many of every model and of every world, of the smallest logs.

    Left out are fits that have run off to where rounding decides, with numbers as large as no other of their model has.
    """
    peaks: dict[Any, list[float]] = {}
    for result in results:
        peaks.setdefault(result.run["model"], []).append(_peak(result))
    taken: Counter[tuple[str, Any]] = Counter()
    chosen = []
    for result in sorted(results, key=_size):
        model = result.run["model"]
        kinds = (("model", model), ("world", result.run.world))
        if _peak(result) <= WILD * median(peaks[model]) and any(taken[kind] < count for kind in kinds):
            chosen.append(result)
            taken.update(kinds)
    return chosen


def differences(kept: Numbers, found: Numbers, tolerance: float) -> list[str]:
    """Return in what way numbers differ from those kept.

    Example:
        >>> differences({"error": 0.5, "curve": "power"}, {"error": 0.50001, "curve": "power"}, 1e-3)
        []
        >>> differences({"error": 0.5, "by": [1.0, 2.0]}, {"error": 0.6, "by": [1.0]}, 1e-3)
        ['by.1 is missing, was 2.0', 'error is 0.6, was 0.5']
    """
    before, after = dict(_entries(kept)), dict(_entries(found))
    told = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            told.append(f"{name} is missing, was {before[name]}")
        elif name not in before:
            told.append(f"{name} is new, {after[name]}")
        elif not _is_close(before[name], after[name], tolerance):
            told.append(f"{name} is {after[name]}, was {before[name]}")
    return told


def _repeat(
    chosen: Sequence[Result], sources: Mapping[str, Path | None], tolerance: float, jobs: int, update: Update
) -> Iterator[str]:
    """Measure runs again, and yield a sentence for each that comes out otherwise."""
    with TemporaryDirectory() as folder:
        fresh = Store(Path(folder))
        for world in dict.fromkeys(result.run.world for result in chosen):
            runs = [result.run for result in chosen if result.run.world == world]
            failures = measure_missing(runs, fresh, jobs=jobs, source=sources.get(world), update=update)
            yield from (f"{failure.run}: {failure.error}" for failure in failures)
        for result in chosen:
            again = fresh.find(result.run)
            if again is not None and (told := differences(result.numbers, again.numbers, tolerance)):
                yield f"{result.run}: {'; '.join(told[:3])}"


def _keep(results: Sequence[Result], store: Store) -> None:
    for world in dict.fromkeys(result.run.world for result in results):
        own = [result for result in results if result.run.world == world]
        store.rewrite(world, [*store.load(world).values(), *own])


def _size(result: Result) -> tuple[float, float]:
    """Return what the time of a run grows with: the numbers of its log, then those of its fit."""
    parts = (result.run.log, result.run.fit)
    log, fit = (sum(v for v in part.values() if isinstance(v, int | float)) for part in parts)
    return log, fit


def _peak(result: Result) -> float:
    return max((abs(value) for _, value in _entries(result.numbers) if isinstance(value, float)), default=0.0)


def _entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the single values in numbers by name, `chosen.clip` or `curves.EM.3`; of sentences that they are there."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from [(key, True)] if key in SENTENCES else _entries(entry, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _entries(entry, f"{name}.{i}")
    else:
        yield name, value


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    return bool(one == other)
