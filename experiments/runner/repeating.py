"""Repeating: a sample of the kept runs is measured again, to see whether the code still gives their numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from math import isclose
from pathlib import Path
from statistics import median, median_low
from tempfile import TemporaryDirectory
from typing import Any

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.progress import Update, ignore
from experiments.families.corpora import find_corpus
from experiments.runner.experiment import Experiment
from experiments.runner.measuring import measure_missing
from experiments.runner.runs import REFUSED, WILD, Numbers, Result
from experiments.runner.store import Store

FILE = "repeated.json"
"""What the last repetition of each family came to, beside the results: `{family: {date, repeated, differing}}`."""
TOLERANCE = 1e-3
"""By how much a number may differ, relative to itself, and in any case: optimisers stop at about this."""
SENTENCES = (REFUSED, "warnings", "status")
"""Entries that hold words for people, which may change; whether they are there must not."""


def repeat_kept(
    experiments: Sequence[Experiment], store: Store, *, quick: bool, jobs: int, update: Update = ignore
) -> bool:
    """Repeat a sample of the kept runs of experiments in all worlds whose data are at hand; return whether any differs.

    Prints what differs, and notes it in `FILE` beside the results.
    """
    corpora: dict[str, Path | None] = {}
    kept: list[Result] = []
    for experiment in experiments:
        for world in store.worlds() if experiment.world is None else [experiment.world]:
            found = store.results(experiment.runs(experiment.plan(quick=quick, corpus=world)))
            if found and world not in corpora and experiment.world is None:
                try:
                    corpora[world] = find_corpus(world).path
                except InputError as error:
                    print(f"{world} is left out: {error}")
                    continue
            kept += found
    kept = list({result.run: result for result in kept}.values())
    file = store.folder / FILE
    note = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    differs = False
    for family in dict.fromkeys(result.run.family for result in kept):
        chosen = choose_sample([result for result in kept if result.run.family == family])
        differing = repeat(chosen, corpora, jobs=jobs, update=update)
        print(f"{family}: {len(chosen) - len(differing)} of {len(chosen)} runs came out as they are kept.", flush=True)
        for sentence in differing:
            print(f"  DIFFERS {sentence}", flush=True)
        note[family] = {"date": str(date.today()), "repeated": len(chosen), "differing": differing}
        differs |= bool(differing)
        with atomic_path(file) as partial:
            partial.write_text(json.dumps(note, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return differs


def repeat(
    chosen: Sequence[Result], sources: Mapping[str, Path | None], *, jobs: int = 1, update: Update = ignore
) -> list[str]:
    """Measure runs again, and return a sentence for each that comes out otherwise.

    Args:
        chosen: the runs with the numbers that are kept.
        sources: the files of the corpora, by world.
        jobs: number of processes.
        update: told of progress.
    """
    differing = []
    with TemporaryDirectory() as folder:
        fresh = Store(Path(folder))
        for world in dict.fromkeys(result.run.world for result in chosen):
            runs = [result.run for result in chosen if result.run.world == world]
            failures = measure_missing(runs, fresh, jobs=jobs, source=sources.get(world), update=update)
            differing += [f"{failure.run}: {failure.error}" for failure in failures]
        for result in chosen:
            again = fresh.find(result.run)
            if again is not None and (found := differences(result.numbers, again.numbers)):
                differing.append(f"{result.run}: {'; '.join(found[:3])}")
    return differing


def choose_sample(results: Sequence[Result]) -> list[Result]:
    """Return the results to repeat: of every family one of each model and one of each world, on logs of middle size.

    On the smallest logs many curves fit about as well, so that the optimiser's last step decides. Left out are fits
    that have run off, with numbers as large as no other of their model has.
    """
    peaks: dict[Any, list[float]] = {}
    sizes: dict[Any, list[float]] = {}
    for result in results:
        peaks.setdefault(_model(result), []).append(_peak(result))
        sizes.setdefault(_model(result), []).append(_size(result))
    middle = {model: median_low(own) for model, own in sizes.items()}
    taken: Counter[Any] = Counter()
    chosen = []
    for result in sorted(results, key=lambda result: abs(_size(result) - middle[_model(result)])):
        kinds = (_model(result), (result.run.family, "world", result.run.world))
        if _peak(result) <= WILD * median(peaks[kinds[0]]) and not all(taken[kind] for kind in kinds):
            chosen.append(result)
            taken.update(kinds)
    return chosen


def differences(kept: Numbers, found: Numbers) -> list[str]:
    """Return in what way numbers differ from those kept.

    Example:
        >>> differences({"error": 0.5, "curve": "power"}, {"error": 0.50001, "curve": "power"})
        []
        >>> differences({"error": 0.5, "by": [1.0, 2.0]}, {"error": 0.6, "by": [1.0]})
        ['by.1 is missing, was 2.0', 'error is 0.6, was 0.5']
    """
    before, after = dict(_entries(kept)), dict(_entries(found))
    sentences = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            sentences.append(f"{name} is missing, was {before[name]}")
        elif name not in before:
            sentences.append(f"{name} is new, {after[name]}")
        elif not _is_close(before[name], after[name]):
            sentences.append(f"{name} is {after[name]}, was {before[name]}")
    return sentences


def _model(result: Result) -> tuple[str, str, Any]:
    return result.run.family, "model", result.run["model"]


def _size(result: Result) -> float:
    """Return the numbers that tell how large a log is, added up."""
    return sum(value for value in result.run.log.values() if isinstance(value, int | float))


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


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)
