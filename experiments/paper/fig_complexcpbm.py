"""fig-complexcpbm: the same two curves from one CPBM with one binary feature, harvested from A/B pages alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.families.arxiv_curves import ALL_PAIRS, SWAP_RATIO, curve_runs
from experiments.families.arxiv_log import KINDS, WORLD
from experiments.families.curve_tables import curve_chart, curve_of, curve_rows
from experiments.families.models import CLICKSHARE
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

GOLD = (SWAP_RATIO, "swap")
MODELS = ((ALL_PAIRS, "ab"), (CLICKSHARE, "ab"))
LEAST_AGREEING = 0.9
"""Share of positions at which two bands must overlap for curves to count as the same."""


def runs(plan: Plan) -> list[Run]:
    """Return the CPBMs, and the swap ratios to compare with."""
    return [*curve_runs(plan, "swap", [SWAP_RATIO]), *curve_runs(plan, "ab", [model for model, _ in MODELS])]


def summarise(results: Results) -> list[Row]:
    """Return one row per kind of query and position."""
    return curve_rows(results, (GOLD, *MODELS))


def headline(results: Results) -> list[Headline]:
    """Return how wide the bands are, in per cent of the swap's."""
    lines = []
    for kind in KINDS:
        base = results.where(model=SWAP_RATIO, part="swap").mean(f"{kind}_width")
        pairs, share = (results.where(model=m, part=part).mean(f"{kind}_width") for m, part in MODELS)
        lines.append(Headline(f"band width, % of the swap's, {kind}", None, 100 * pairs / base, 100 * share / base))
    return lines


def checks(results: Results) -> list[Check]:
    """Return the paper's claims: the same curves, with narrower bands."""
    found = []
    for model, part in MODELS:
        agree, told = [], []
        for kind in KINDS:
            gold, ours = curve_of(results, *GOLD, kind), curve_of(results, model, part, kind)
            agree.append((gold["lower"] <= ours["upper"]) & (ours["lower"] <= gold["upper"]))
            own, swap = (results.where(model=m, part=p).mean(f"{kind}_width") for m, p in ((model, part), GOLD))
            told.append((kind, own, swap))
        same = np.concatenate([overlap[1:] for overlap in agree])
        found += [
            Check(
                f"{model}: the curves are those of the swaps, bands overlap at {LEAST_AGREEING:.0%} of the positions",
                bool(same.mean() >= LEAST_AGREEING),
                f"they overlap at {same.sum()} of {len(same)} positions beyond the first",
            ),
            Check(
                f"{model}: bands are narrower than the swap's, for both kinds of queries",
                all(own < swap for _, own, swap in told),
                "; ".join(f"{kind} {own:.3f} against {swap:.3f}" for kind, own, swap in told),
            ),
        ]
    return found


def chart(results: Results) -> Any:
    """Return the curves with their bands, the swap's first."""
    return curve_chart(results, (GOLD, *MODELS))


EXPERIMENT = Experiment(
    id="fig-complexcpbm",
    title="Complex and simple queries, one CPBM from A/B pages",
    claim="One CPBM with one binary feature, from the A/B pages alone, closely matches the two curves from swaps and "
    "has much narrower bands.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    notes=(
        "AllPairs has the paper's networks of one sigmoid layer; with one binary feature nothing is left to choose. "
        "ClickShare has the linear curve without a penalty. Bands are from bootstraps by query, as for the swaps.",
        "Examination also differs between the queries of one kind, and swaps and rankers move different documents: "
        "both methods find means of it over slightly different queries.",
    ),
    world=WORLD,
)
