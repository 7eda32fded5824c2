"""The paper, one experiment per table or figure, and what lies beyond it.

    runs(plan) ──► measure(run) ──► results ──► rows · headlines · checks · chart

1. `runs(plan)` lists what is to be measured: frozen `Run`s, each a simulated log (`world`, `log`, `seed`) and what is
   fitted to it (`fit`), in values that JSON can hold. `plan.quick` asks for small ones.
2. A run names its family, a module of this package with a function `measure(run)` that returns JSON-able numbers. It
   may raise `NotIdentifiedError`: that too is a result, kept as `{"refused": sentence}`.
3. A measured run is a line of `runs.jsonl` in the folder of its world. Its key is its settings and the revision of its
   family (`REVISIONS`), so that runs which two experiments share are measured once, a killed run goes on where it was,
   and a higher revision voids what is kept. Runs that differ in `fit` alone are measured one after the other in one
   process: a family may keep their log in a cache of size one.
4. `rows(results)` returns the experiment's table, `headlines(results)` its numbers beside the paper's,
   `checks(results)` the claims as `Check`s that can fail, and `chart(results)` an Altair chart. Each gets `Results`,
   with `where`, `values`, `mean`, `median` and `sd`; refused runs have no values.

A new experiment is an `Experiment` in the list `EXPERIMENTS` of a module, with a section in `texts.md`; a new module is
named in `MODULES`.
Import Altair inside `chart` only. `table-pbm` in `accuracy` is the shortest example, `semi_synthetic` the family of the
paper's protocol. Experiments use what the rooms of the package offer to everybody, nothing from inside them.

    python -m experiments table-pbm                                # measures what is missing, and writes the page
    python -m experiments --no-run --page docs/reproduction.md     # writes the page of what is kept
    python -m experiments --repeat                                 # measures a sample of it again

Example:
    >>> load_experiments(["table-pbm"])[0].text[0]
    'PBM and CPBM with much data'
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from clickharvest.errors import InputError
from experiments.experiment import Check, Experiment, Headline, Plan
from experiments.runs import Numbers, Result, Results, Run, Store

__all__ = [
    "Check",
    "Experiment",
    "Headline",
    "Numbers",
    "Plan",
    "Result",
    "Results",
    "Run",
    "Store",
    "load_experiments",
]

MODULES = ("accuracy", "learning", "arxiv", "feature_groups", "beyond", "yandex")
"""The modules with experiments, in the order of the page."""


def load_experiments(ids: Sequence[str] = ()) -> list[Experiment]:
    """Return experiments by their ids, by default all, in the order of the page.

    Raises:
        InputError: there is no experiment of some id.
    """
    modules = [import_module(f"experiments.{name}") for name in MODULES]
    experiments = {experiment.id: experiment for module in modules for experiment in module.EXPERIMENTS}
    for name in ids:
        if name not in experiments:
            raise InputError(f"no experiment {name!r}: expected some of {', '.join(experiments)}")
    return [experiments[name] for name in dict.fromkeys(ids or experiments)]
