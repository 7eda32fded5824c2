"""Repeating: a sample of the kept runs is measured again, to see whether the code still gives their numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from math import isclose
from pathlib import Path
from statistics import median, median_low
from tempfile import TemporaryDirectory
from typing import Any

from clickharvest.files import atomic_path
from experiments.measuring import measure_missing
from experiments.runs import REFUSED, WILD, Numbers, Result, Store

FILE = "repeated.json"
"""The last repetition of each family, beside the results: `{family: {date, repeated, differing}}`."""
TOLERANCE = 1e-3
"""By how much a number may differ, relative to itself or absolutely: optimisers stop at about this."""
SENTENCES = (REFUSED, "warnings", "status")
"""Numbers that are words for people, which may change; whether they are there must not."""


def repeat_kept(results: Sequence[Result], folder: Path, *, jobs: int | None = None) -> bool:
    """Repeat a sample of every family of results; return whether any run came out differently.

    Prints the differences, and notes them in `FILE` in the folder of results.
    """
    notes = json.loads((folder / FILE).read_text(encoding="utf-8")) if (folder / FILE).exists() else {}
    differs = False
    for family in dict.fromkeys(result.run.family for result in results):
        sample = choose_sample([result for result in results if result.run.family == family])
        differing = repeat(sample, jobs=jobs)
        print(f"{family}: {len(sample) - len(differing)} of {len(sample)} runs came out as they are kept.", flush=True)
        for sentence in differing:
            print(f"  DIFFERS {sentence}", flush=True)
        notes[family] = {"date": str(date.today()), "repeated": len(sample), "differing": differing}
        differs |= bool(differing)
        with atomic_path(folder / FILE) as partial:
            partial.write_text(json.dumps(notes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return differs


def repeat(sample: Sequence[Result], *, jobs: int | None = 1) -> list[str]:
    """Measure runs again, and return a sentence for each that fails or comes out differently."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        differing = [f"{run}: failed" for run in measure_missing([result.run for result in sample], store, jobs=jobs)]
        repeated = {result.run: result.numbers for result in store.results(result.run for result in sample)}
    pairs = [(result.run, differences(result.numbers, repeated.get(result.run, result.numbers))) for result in sample]
    return differing + [f"{run}: {'; '.join(sentences[:3])}" for run, sentences in pairs if sentences]


def choose_sample(results: Sequence[Result]) -> list[Result]:
    """Return one result of each model and one of each world, on logs of middle size.

    On the smallest logs many curves fit about as well, so that the optimiser's last step decides. Fits that diverged,
    with numbers as large as no other of their model has, are left out.
    """
    by_model: dict[Any, list[Result]] = {}
    for result in results:
        by_model.setdefault(result.run["model"], []).append(result)
    peaks = {model: median(map(_peak, group)) for model, group in by_model.items()}
    middle = {model: median_low(map(_size, group)) for model, group in by_model.items()}
    taken: Counter[Any] = Counter()
    sample = []
    for result in sorted(results, key=lambda result: abs(_size(result) - middle[result.run["model"]])):
        kinds = (("model", result.run["model"]), ("world", result.run.world))
        if _peak(result) <= WILD * peaks[result.run["model"]] and not all(taken[kind] for kind in kinds):
            sample.append(result)
            taken.update(kinds)
    return sample


def differences(kept: Numbers, repeated: Numbers) -> list[str]:
    """Return in what way numbers differ from those kept.

    Example:
        >>> differences({"error": 0.5, "curve": "power"}, {"error": 0.50001, "curve": "power"})
        []
        >>> differences({"error": 0.5, "by": [1.0, 2.0]}, {"error": 0.6, "by": [1.0]})
        ['by.1 is missing, was 2.0', 'error is 0.6, was 0.5']
    """
    before, after = dict(_entries(kept)), dict(_entries(repeated))
    sentences = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            sentences.append(f"{name} is missing, was {before[name]}")
        elif name not in before:
            sentences.append(f"{name} is new, {after[name]}")
        elif not _is_close(before[name], after[name]):
            sentences.append(f"{name} is {after[name]}, was {before[name]}")
    return sentences


def _size(result: Result) -> float:
    """Return the settings that say how large a log is, added up."""
    return sum(value for value in result.run.log.values() if isinstance(value, int | float))


def _peak(result: Result) -> float:
    return max((abs(value) for _, value in _entries(result.numbers) if isinstance(value, float)), default=0.0)


def _entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield single values by name, `chosen.clip` or `curves.EM.3`; of sentences only that they are there."""
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
