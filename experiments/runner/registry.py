"""The families of runs: a name, and the function that measures such runs.

A function joins where it is defined, `@family("semi_synthetic")`; an experiment imports the family of its runs, so
that whoever has loaded the experiment can measure them. Nothing here knows which families there are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clickharvest.errors import InputError
from experiments.runner.runs import Numbers, Run

Measure = Callable[[Run, Path | None], Numbers]
"""Takes a run and the file of its corpus, None where the world needs none; returns what JSON can hold."""

FAMILIES: dict[str, Measure] = {}
"""The functions by the name that runs carry."""


def family(name: str) -> Callable[[Measure], Measure]:
    """Register the function below as the one that measures the runs of a family."""

    def register(measure: Measure) -> Measure:
        FAMILIES[name] = measure
        return measure

    return register


def find_family(name: str) -> Measure:
    """Return the function of a family.

    Raises:
        InputError: no family of that name has been loaded.
    """
    if name not in FAMILIES:
        raise InputError(f"no family {name!r}: expected one of {', '.join(FAMILIES)}; load an experiment that has it")
    return FAMILIES[name]
