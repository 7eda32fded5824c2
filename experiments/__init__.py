"""The paper, one module per table or figure, and what lies beyond it.

Each experiment is a module of `paper` or `beyond` with one name, `EXPERIMENT`, an `Experiment`:

    runs(plan) ──► measure(run, source) ──► results ──► summarise · headline · checks · chart

1. `runs(plan)` lists what is to be measured: frozen `Run`s, each a simulated log (`world`, `log`, `seed`) and what is
   fitted to it (`fit`), in values that JSON can hold. `plan.quick` asks for small ones.
2. A run names its family, in `families` a function `measure(run, source) -> Numbers` under the decorator
   `@family(name)`, which returns JSON-able numbers; `source` is the file of the corpus, None where the world needs
   none. It may raise `NotIdentifiedError`: that too is a result, kept as `{"refused": sentence}`.
3. A measured run is a line of `runs.jsonl` in the folder of its world, under a key made of what was measured. So runs
   that two experiments have in common are measured once, and a killed run goes on where it was. Runs that differ in
   `fit` alone are measured one after the other in one process: a family may keep their log in a cache of size one.
   What is kept is not measured again, also after the code has changed; `--repeat` tells whether a sample of it still
   comes out.
4. `summarise(results)` returns the rows of the experiment's table, `headline(results)` its lines of the last table,
   `checks(results)` the paper's claims as `Check`s that can fail, `chart(results)` an Altair chart. Each gets
   `Results`, with `where`, `values`, `mean`, `median` and `sd`; refused runs have no values and are counted by
   `refused`.

A new experiment: a module `fig_new.py` in `paper` with its `EXPERIMENT`, and its id with that module in `EXPERIMENTS`.
Import Altair inside `chart` only. `table_pbm` is the shortest example, `semi_synthetic` the family of the paper's
protocol. Experiments use what the rooms offer to everybody, nothing from inside them.

    python -m experiments table-pbm                                # measures what is missing, and writes the page
    python -m experiments --no-run --page docs/reproduction.md     # writes the page of what is kept
    python -m experiments --repeat                                 # measures a sample of it again

Example:
    >>> "table-pbm" in experiment_ids()
    True
    >>> load_experiment("table-pbm").title
    'PBM and CPBM with much data'
"""

from __future__ import annotations

from importlib import import_module

from clickharvest.errors import InputError
from experiments.runner.experiment import Check, Experiment, Headline, Plan
from experiments.runner.runs import Numbers, Result, Results, Run

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
    "load_experiments",
]

EXPERIMENTS = {
    "table-pbm": "paper.table_pbm",
    "fig-data": "paper.fig_data",
    "fig-ctx": "paper.fig_ctx",
    "fig-rel": "paper.fig_rel",
    "fig-rank": "paper.fig_rank",
    "fig-learn": "paper.fig_learn",
    "table-size": "paper.table_size",
    "fig-complex": "paper.fig_complex",
    "fig-complexcpbm": "paper.fig_complexcpbm",
    "table-max": "paper.table_max",
    "beyond-traffic": "beyond.traffic",
    "beyond-repetition": "beyond.repetition",
    "beyond-relevance": "beyond.relevance",
    "beyond-trust": "beyond.trust",
    "beyond-cascade": "beyond.cascade",
    "real-log": "beyond.real_log",
}
"""The ids of the experiments, in order, with their modules, imported when used: the paper's two tables, then ours."""


def experiment_ids() -> tuple[str, ...]:
    """Return the ids of the experiments there are, in order."""
    return tuple(EXPERIMENTS)


def load_experiment(name: str) -> Experiment:
    """Return an experiment by its id.

    Raises:
        InputError: there is none of that id.
    """
    if name not in EXPERIMENTS:
        raise InputError(f"no experiment {name!r}: expected some of {', '.join(EXPERIMENTS)}")
    experiment: Experiment = import_module(f"{__name__}.{EXPERIMENTS[name]}").EXPERIMENT
    return experiment


def load_experiments() -> list[Experiment]:
    """Return all experiments, in order; the families of their runs are then registered."""
    return [load_experiment(name) for name in EXPERIMENTS]
