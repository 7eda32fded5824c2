"""Runs: settings that JSON can hold, the numbers that were measured, and the file that keeps both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import nan
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from clickharvest.errors import InputError
from clickharvest.files import atomic_path

Numbers = dict[str, Any]
"""What was measured: numbers, lists of numbers and words, as JSON holds them."""
REVISIONS = {"semi_synthetic": 1, "click_models": 1, "learning": 1, "arxiv": 1, "feature_groups": 1, "yandex": 1}
"""The families of runs: modules of this package with a function `measure`. A higher revision voids kept results."""
REFUSED = "refused"
"""The number of a run that an estimator refused: the reason."""
WILD = 10.0
"""A mean of more than this many medians is the mean of a few runs."""
FILE = "runs.jsonl"


@dataclass(frozen=True, eq=False)
class Run:
    """One log and what is fitted to it. Runs with equal settings are equal.

    Attributes:
        family: the module that measures it, one of `REVISIONS`.
        world: where the log comes from, such as `"synthetic"`, `"mq2007_part"` or `"arxiv"`; the folder of its results.
        seed: seed of all randomness.
        log: the settings of the log.
        fit: what is fitted to the log, and how.
        source: the file of the corpus, None where the world needs none; no part of the key.

    Example:
        >>> run = Run("semi_synthetic", "synthetic", 0, {"eta": 0.5, "traffic": (1, 1)}, {"model": "PBM"})
        >>> run == Run("semi_synthetic", "synthetic", 0, {"traffic": [1, 1], "eta": 0.5}, {"model": "PBM"})
        True
        >>> run["model"], run["eta"], run["seed"], run["zeta"]
        ('PBM', 0.5, 0, None)
    """

    family: str
    world: str
    seed: int
    log: Mapping[str, Any]
    fit: Mapping[str, Any] = field(default_factory=dict)
    source: Path | None = None

    @cached_property
    def key(self) -> str:
        """Family, revision and settings as JSON."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def unfitted(self) -> Run:
        """The log alone: equal for runs on the same log."""
        return replace(self, fit={})

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON holds it."""
        names = ("family", "world", "seed", "log", "fit")
        return {"revision": REVISIONS[self.family], **{name: getattr(self, name) for name in names}}

    def __getitem__(self, name: str) -> Any:
        """Return a setting of the log or the fit, None where it has no such; `seed` and `world` are settings too."""
        return {"seed": self.seed, "world": self.world, **self.log, **self.fit}.get(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        settings = {**self.log, "seed": self.seed, "model": self.fit.get("model")}
        return f"{self.world}: " + ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)


@dataclass(frozen=True)
class Result:
    """A run and its numbers."""

    run: Run
    numbers: Numbers


class Results(tuple[Result, ...]):
    """The results of an experiment's runs, in their order.

    Example:
        >>> runs = [Run("yandex", "w", seed, {}, {"model": "PBM"}) for seed in range(3)]
        >>> results = Results(Result(run, {"error": 0.1 * run.seed}) for run in runs)
        >>> results.where(model="PBM").values("error"), round(results.mean("error"), 3), round(results.sd("error"), 3)
        ([0.0, 0.1, 0.2], 0.1, 0.1)
        >>> Results(results[:1]).sd("error"), len(results.where(model="CPBM"))
        (nan, 0)
    """

    __slots__ = ()

    def where(self, **settings: Any) -> Results:
        """Return the results of the runs with these settings; a tuple matches a list."""
        wanted = {name: _hashable(value) for name, value in settings.items()}
        return Results(r for r in self if all(_hashable(r.run[name]) == value for name, value in wanted.items()))

    def values(self, name: str) -> list[float]:
        """Return one number of every run that has it; refused runs and null have none."""
        return [r.numbers[name] for r in self if r.numbers.get(name) is not None]

    def mean(self, name: str) -> float:
        """Return the mean over runs, NaN without any."""
        return fmean(values) if (values := self.values(name)) else nan

    def median(self, name: str) -> float:
        """Return the median over runs, NaN without any."""
        return median(values) if (values := self.values(name)) else nan

    def sd(self, name: str) -> float:
        """Return the standard deviation over runs (n − 1), NaN with fewer than two."""
        return stdev(values) if len(values := self.values(name)) > 1 else nan

    def is_wild(self, name: str) -> bool:
        """Return whether a few runs make the mean: it exceeds ten times the median."""
        return abs(self.mean(name)) > WILD * abs(self.median(name))

    def typical(self, name: str) -> float:
        """Return the mean over runs, or the median where the mean `is_wild`.

        Example:
            >>> errors = (0.1, 0.3, 0.2, 4e9)
            >>> results = [Result(Run("yandex", "w", seed, {}), {"error": e}) for seed, e in enumerate(errors)]
            >>> round(Results(results[:3]).typical("error"), 3), round(Results(results).typical("error"), 3)
            (0.2, 0.25)
        """
        return self.median(name) if self.is_wild(name) else self.mean(name)

    def settings(self, name: str) -> list[Any]:
        """Return the distinct values of a setting, in the order of the runs."""
        return list(dict.fromkeys(_hashable(r.run[name]) for r in self))

    @property
    def refused(self) -> Results:
        """The runs that an estimator refused."""
        return Results(r for r in self if REFUSED in r.numbers)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Store:
    """A folder of results, `folder/world/runs.jsonl`: one line of JSON per run.

    Several processes may add lines at once. A line that was cut off does not count; of the lines of one run the last
    counts.

    Example:
        >>> import tempfile
        >>> store, run = Store(Path(tempfile.mkdtemp())), Run("yandex", "w", 0, {"eta": 0.5})
        >>> store.save(Result(run, {"error": 0.1}))
        >>> store.missing([run]), store.results([run]).mean("error")
        ([], 0.1)
    """

    folder: Path

    def path(self, world: str) -> Path:
        """Return the file of a world."""
        return self.folder / world / FILE

    def worlds(self) -> list[str]:
        """Return the worlds that have a file."""
        return sorted(path.parent.name for path in self.folder.glob(f"*/{FILE}"))

    def load(self, world: str) -> dict[str, Result]:
        """Return the results of a world by key, without those of earlier revisions."""
        results = {}
        path = self.path(world)
        for line in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                kept = json.loads(line)
                revision = kept["run"].pop("revision")
                result = Result(Run(**kept["run"]), kept["numbers"])
            except (ValueError, KeyError, TypeError):
                continue
            if revision == REVISIONS.get(result.run.family):
                results[result.run.key] = result
        return results

    def save(self, result: Result) -> None:
        """Add a result.

        Raises:
            InputError: the file cannot be written.
            ValueError: a number is not finite.
        """
        line = f"\n{_line(result)}\n".encode()
        path = self.path(result.run.world)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                written = file.write(line)
        except OSError as error:
            raise InputError(f"cannot write results to {path.parent}: {error.strerror}; name another folder") from error
        if written < len(line):
            raise InputError(f"cannot write results to {path.parent}: the disk is full; make room or name another")

    def tidy(self, world: str) -> None:
        """Write the file of a world anew, sorted by key, so that equal results are equal bytes."""
        if results := self.load(world):
            with atomic_path(self.path(world)) as partial:
                partial.write_text("".join(f"{_line(results[key])}\n" for key in sorted(results)), encoding="utf-8")

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that have not been measured, each once."""
        runs = list(dict.fromkeys(runs))
        measured = {result.run for result in self.results(runs)}
        return [run for run in runs if run not in measured]

    def results(self, runs: Iterable[Run]) -> Results:
        """Return the results of those runs that have been measured, each once."""
        runs = list(dict.fromkeys(runs))
        kept = {key: result for world in {run.world for run in runs} for key, result in self.load(world).items()}
        return Results(Result(run, kept[run.key].numbers) for run in runs if run.key in kept)


def _line(result: Result) -> str:
    kept = {"run": result.run.to_dict(), "numbers": result.numbers}
    return json.dumps(kept, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
