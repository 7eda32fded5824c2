"""The families of runs: a name, the function that measures such runs, and the fingerprint of the code it depends on.

A function joins where it is defined, `@family("semi_synthetic")`; an experiment imports the family of its runs, so
that whoever has loaded the experiment can measure them. Nothing here knows which families there are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clickharvest.errors import InputError
from clickharvest.experiments.runner.fingerprint import fingerprint
from clickharvest.experiments.runner.runs import Numbers, Result, Run

Measure = Callable[[Run, Path | None], Numbers]
"""Takes a run and the file of its corpus, None where the world needs none; returns what JSON can hold."""


@dataclass(frozen=True)
class Family:
    """How the runs of a family are measured, and whether that needs an engine."""

    measure: Measure
    engine: bool = False


FAMILIES: dict[str, Family] = {}
"""The families by the name that runs carry."""


def family(name: str, *, engine: bool = False) -> Callable[[Measure], Measure]:
    """Register the function below as the one that measures the runs of a family; say so if it needs an engine."""

    def register(measure: Measure) -> Measure:
        FAMILIES[name] = Family(measure, engine)
        return measure

    return register


def find_family(name: str) -> Family:
    """Return a family by its name.

    Raises:
        InputError: no family of that name has been loaded.
    """
    if name not in FAMILIES:
        raise InputError(f"no family {name!r}: expected one of {', '.join(FAMILIES)}; load an experiment that has it")
    return FAMILIES[name]


def code_of(name: str) -> str:
    """Return the fingerprint of the code that the runs of a family depend on, as it is now.

    Raises:
        InputError: the family is not loaded, or the source of its module cannot be read.
    """
    found = find_family(name)
    module = found.measure.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise InputError(f"no source of family {name!r}, whose module is {module}: define it in a file")
    return fingerprint(Path(file), engine=found.engine)


def is_current(result: Result) -> bool:
    """Return whether a result was measured, or is known to come out, with the code as it is now."""
    return result.code == code_of(result.run.family)
