"""The family of the sizes: queries and clicks of the arXiv-like log, by kind of query and part."""

from __future__ import annotations

from pathlib import Path

from clickharvest.simulate import PAPER_SIZES
from experiments.families.arxiv_log import KINDS, arxiv_log
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Run

FAMILY = "table_size"


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Count queries and clicks by kind and part."""
    simulation = arxiv_log(run)
    numbers: Numbers = {}
    for kind, part in PAPER_SIZES:
        own = simulation.pages(part) & (simulation.is_complex == KINDS[kind])
        numbers[f"{kind}_{part}_queries"] = int(own.sum())
        numbers[f"{kind}_{part}_clicks"] = int(simulation.clicks[own].sum())
    return numbers
