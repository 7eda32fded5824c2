"""The paper, one module per table or figure, and what lies beyond it.

Each experiment is a module of this package with one name, `EXPERIMENT`, an `Experiment`:

    runs(plan) ──► measure(run, source) ──► results ──► summarise · headline · checks · chart

1. `runs(plan)` lists what is to be measured: frozen `Run`s, each a simulated log (`world`, `log`, `seed`) and what is
   fitted to it (`fit`), in values that JSON can hold. `plan.quick` asks for small ones.
2. A run names its `family`, a module of this package with a pure function `measure(run, source) -> Numbers` that
   returns JSON-able numbers; `source` is the file of the corpus, None where the world needs none. It may raise
   `NotIdentifiedError`: that too is a result, kept as `{"refused": sentence}`. It imports NumPy, SciPy, JAX and optax
   only, unless the experiment says `needs_engine`.
3. A measured run is kept in a `Store`, a small file each, under a key made of what was measured. So runs that two
   experiments have in common are measured once, and a killed run goes on where it was. Runs that differ in `fit` alone
   are measured one after the other in one process: a family may keep their log in a cache of size one.
4. `summarise(results)` returns the rows of the experiment's table, `headline(results)` its lines of the last table,
   `checks(results)` the paper's claims as `Check`s that can fail, `chart(results)` an Altair chart. Each gets
   `Results`, with `where`, `values`, `mean` and `sd`; refused runs have no values and are counted by `refused`.

A new experiment: a module `fig_new.py` with its `EXPERIMENT`, and its id `fig-new` in `ORDER`. Import Altair inside
`chart` only. `table_pbm` is the shortest example, `semi_synthetic` the family of the paper's protocol.

    python3 -m clickharvest.experiments table-pbm --jobs 4 --results results     # measures only, no engine needed
    clickharvest reproduce table-pbm                                             # measures, and tells

Example:
    >>> "table-pbm" in experiment_ids()
    True
    >>> load_experiment("table-pbm").title
    'PBM and CPBM with much data'
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from clickharvest.errors import InputError
from clickharvest.experiments.runner.experiment import Check, Experiment, Headline, Plan
from clickharvest.experiments.runner.runs import Numbers, Result, Results, Run

__all__ = [
    "Check",
    "Experiment",
    "Headline",
    "Numbers",
    "Plan",
    "Result",
    "Results",
    "Run",
    "experiment_ids",
    "load_experiment",
]

ORDER = (
    "table-pbm",
    "fig-data",
    "fig-ctx",
    "fig-rel",
    "fig-rank",
    "fig-learn",
    "table-size",
    "fig-complex",
    "fig-complexcpbm",
    "table-max",
    "beyond-traffic",
    "beyond-repetition",
    "beyond-relevance",
    "beyond-trust",
    "beyond-cascade",
    "real-log",
)
"""The ids of the experiments: the paper's two tables, then ours."""


def experiment_ids() -> tuple[str, ...]:
    """Return the ids of the experiments there are, in order."""
    return tuple(name for name in ORDER if find_spec(f"{__name__}.{_module(name)}") is not None)


def load_experiment(name: str) -> Experiment:
    """Return an experiment by its id.

    Raises:
        InputError: there is none of that id.
    """
    if name not in experiment_ids():
        raise InputError(f"no experiment {name!r}: expected some of {', '.join(experiment_ids())}")
    experiment: Experiment = import_module(f"{__name__}.{_module(name)}").EXPERIMENT
    return experiment


def _module(name: str) -> str:
    """Return the module of an experiment: `beyond-trust` is `beyond.trust`, `fig-data` is `paper.fig_data`."""
    if name.startswith("beyond-"):
        return name.replace("-", ".", 1)
    return f"{'beyond' if name == 'real-log' else 'paper'}.{name.replace('-', '_')}"
