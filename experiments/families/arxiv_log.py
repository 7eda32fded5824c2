"""The arXiv-like log that the experiments on it share."""

from __future__ import annotations

from functools import lru_cache

from clickharvest.simulate import QUERIES, ArxivSimulation, simulate_arxiv
from experiments.runner.experiment import Plan
from experiments.runner.runs import Run

WORLD = "arxiv"
KINDS = {"complex": True, "simple": False}
"""The kinds of queries, and whether they are complex."""


def log_settings(plan: Plan, quick_queries: int) -> dict[str, int]:
    """Return the `log` of a run: all of the paper's queries, or fewer in a quick plan."""
    return {"queries": quick_queries if plan.quick else QUERIES}


def arxiv_log(run: Run) -> ArxivSimulation:
    """Return the simulated log of a run; the last one is kept."""
    return _simulated(run.log["queries"], run.seed)


@lru_cache(maxsize=1)
def _simulated(queries: int, seed: int) -> ArxivSimulation:
    return simulate_arxiv(queries=queries, seed=seed)
