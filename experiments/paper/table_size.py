"""table-size: queries and clicks of the arXiv-like log beside the paper's."""

from __future__ import annotations

from clickharvest.simulate import PAPER_SIZES, QUERIES
from experiments.families.arxiv_log import WORLD, log_settings
from experiments.families.log_sizes import FAMILY
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

QUICK_QUERIES, SEEDS = QUERIES, 6
TOLERANCE = 0.05
"""How far the number of clicks may be from the paper's, as a share of it."""


def runs(plan: Plan) -> list[Run]:
    """Return logs of full size, they take seconds."""
    log = log_settings(plan, QUICK_QUERIES)
    return [Run(FAMILY, plan.world, seed, log) for seed in range(1 if plan.quick else SEEDS)]


def summarise(results: Results) -> list[Row]:
    """Return one row per kind of query and part."""
    return [
        {
            "queries": kind,
            "part": part,
            "paper's queries": queries,
            "ours": round(results.mean(f"{kind}_{part}_queries")),
            "paper's clicks": clicks,
            "our clicks": results.mean(f"{kind}_{part}_clicks"),
            "sd": results.sd(f"{kind}_{part}_clicks"),
        }
        for (kind, part), (queries, clicks) in PAPER_SIZES.items()
    ]


def headline(results: Results) -> list[Headline]:
    """Return the clicks of each kind and part."""
    return [
        Headline(
            f"clicks, {kind}, {part}",
            clicks,
            results.mean(f"{kind}_{part}_clicks"),
            runs=len(results),
            ours_sd=results.sd(f"{kind}_{part}_clicks"),
        )
        for (kind, part), (_, clicks) in PAPER_SIZES.items()
    ]


def checks(results: Results) -> list[Check]:
    """Return whether the log has the paper's sizes: queries exactly, clicks closely."""
    exact, furthest = True, 0.0
    for (kind, part), (queries, clicks) in PAPER_SIZES.items():
        exact &= set(results.values(f"{kind}_{part}_queries")) == {queries}
        away = [abs(found / clicks - 1) for found in results.values(f"{kind}_{part}_clicks")]
        furthest = max([furthest, *away])
    return [
        Check("queries of every kind and part are the paper's", exact, f"in {len(results)} logs"),
        Check(
            f"clicks are within {TOLERANCE:.0%} of the paper's",
            furthest <= TOLERANCE,
            f"at most {100 * furthest:.1f} % away",
        ),
    ]


EXPERIMENT = Experiment(
    id="table-size",
    title="Size of the arXiv-like log",
    claim="Complex queries: 24,460 with 32,108 clicks under swaps, 27,072 with 41,638 clicks in the A/B test; simple "
    "queries: 36,659 with 15,296 clicks, 50,443 with 22,915 clicks.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    notes=("The paper's log is private. Ours is simulated to these sizes: queries exactly, clicks in expectation.",),
    world=WORLD,
)
