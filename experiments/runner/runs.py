"""Runs: what is measured, told in values that JSON can hold, and the numbers that come out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import nan
from statistics import fmean, median, stdev
from typing import Any

Numbers = dict[str, Any]
"""What was measured: numbers, lists of numbers and words, as JSON holds them."""

REFUSED = "refused"
"""The entry of a run that an estimator refused, with the reason."""

WILD = 10.0
"""A mean of more than this many medians is that of a few runs."""


@dataclass(frozen=True, eq=False)
class Run:
    """One log and what is fitted to it. Runs of equal content are equal.

    Attributes:
        family: the name under which the function that measures it is registered.
        world: where the log comes from, such as `"synthetic"`, `"mq2007_part"` or `"arxiv"`; the folder of its results.
        seed: seed of all randomness.
        log: the settings of the log.
        fit: what is fitted to it, and how.

    Example:
        >>> one = Run("semi_synthetic", "synthetic", 0, {"eta": 0.5, "traffic": (1, 1)}, {"model": "PBM"})
        >>> one == Run("semi_synthetic", "synthetic", 0, {"traffic": [1, 1], "eta": 0.5}, {"model": "PBM"})
        True
        >>> one.key
        'semi_synthetic-24faf23b0f3df07d'
        >>> one["model"], one["eta"], one["seed"]
        ('PBM', 0.5, 0)
    """

    family: str
    world: str
    seed: int
    log: Mapping[str, Any]
    fit: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """What tells a run apart."""
        digest = hashlib.sha256(_canonical(self.to_dict()).encode()).hexdigest()
        return f"{self.family}-{digest[:16]}"

    @cached_property
    def group(self) -> str:
        """What runs on the same log have in common."""
        return _canonical(self.to_dict() | {"fit": None})

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON holds it."""
        return {"family": self.family, "world": self.world, "seed": self.seed, "log": self.log, "fit": self.fit}

    def __getitem__(self, name: str) -> Any:
        """Return a setting of the log or the fit, None where it has no such; `seed` and `world` are settings too."""
        return {"seed": self.seed, "world": self.world, **self.log, **self.fit}.get(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        shown = {**self.log, "seed": self.seed, "model": self.fit.get("model")}
        told = ", ".join(f"{name} {value}" for name, value in shown.items() if value is not None)
        return f"{self.world}: {told}"


@dataclass(frozen=True)
class Result:
    """A run and its numbers.

    Attributes:
        run: what was measured.
        numbers: what came out.
    """

    run: Run
    numbers: Numbers


class Results(tuple[Result, ...]):
    """The results of an experiment's runs, in their order.

    Example:
        >>> runs = [Run("f", "w", seed, {}, {"model": "PBM"}) for seed in range(3)]
        >>> results = Results(Result(run, {"error": 0.1 * run.seed}) for run in runs)
        >>> results.where(model="PBM").values("error"), round(results.mean("error"), 3), round(results.sd("error"), 3)
        ([0.0, 0.1, 0.2], 0.1, 0.1)
        >>> Results(results[:1]).sd("error"), len(results.where(model="CPBM"))
        (nan, 0)
    """

    __slots__ = ()

    def where(self, **wanted: Any) -> Results:
        """Return the results of the runs with these settings; a tuple matches a list."""
        asked = {name: _plain(value) for name, value in wanted.items()}
        kept = (r for r in self if all(_plain(r.run[name]) == value for name, value in asked.items()))
        return Results(kept)

    def values(self, name: str) -> list[float]:
        """Return one number of every run that has it; refused runs and null have none."""
        return [r.numbers[name] for r in self if r.numbers.get(name) is not None]

    def mean(self, name: str) -> float:
        """Return the mean over runs, NaN without any."""
        values = self.values(name)
        return fmean(values) if values else nan

    def median(self, name: str) -> float:
        """Return the median over runs, NaN without any."""
        values = self.values(name)
        return median(values) if values else nan

    def is_wild(self, name: str) -> bool:
        """Return whether a few runs make the mean, which then says nothing: it exceeds ten times the median."""
        return abs(self.mean(name)) > WILD * abs(self.median(name))

    def typical(self, name: str) -> float:
        """Return the mean over runs, or the median where the mean `is_wild`.

        Example:
            >>> errors = [Result(Run("f", "w", seed, {}), {"error": e}) for seed, e in enumerate((0.1, 0.3, 0.2))]
            >>> spoilt = Result(Run("f", "w", 3, {}), {"error": 4e9})
            >>> round(Results(errors).typical("error"), 3), round(Results([*errors, spoilt]).typical("error"), 3)
            (0.2, 0.25)
        """
        return self.median(name) if self.is_wild(name) else self.mean(name)

    def sd(self, name: str) -> float:
        """Return the standard deviation over runs (n − 1), NaN with fewer than two."""
        values = self.values(name)
        return stdev(values) if len(values) > 1 else nan

    def settings(self, name: str) -> list[Any]:
        """Return the distinct values of a setting, in the order of the runs."""
        return list(dict.fromkeys(_hashable(r.run[name]) for r in self))

    @property
    def refused(self) -> Results:
        """The runs that an estimator refused."""
        return Results(r for r in self if REFUSED in r.numbers)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
