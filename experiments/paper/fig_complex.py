"""fig-complex: examination of complex and of simple queries, two PBMs from the swap experiment."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.families.arxiv_curves import SWAP_RATIO, curve_runs
from experiments.families.arxiv_log import WORLD
from experiments.families.curve_tables import curve_chart, curve_of, curve_rows
from experiments.families.models import CLICKSHARE
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

MODELS = ((SWAP_RATIO, "swap"), (CLICKSHARE, "swap"))


def runs(plan: Plan) -> list[Run]:
    """Return the ratios of the paper, and ClickShare on the same swaps."""
    return curve_runs(plan, "swap", [model for model, _ in MODELS])


def summarise(results: Results) -> list[Row]:
    """Return one row per kind of query and position."""
    return curve_rows(results, MODELS)


def headline(results: Results) -> list[Headline]:
    """Return the mean examination below position 1 of both kinds."""
    lines = []
    for kind in ("complex", "simple"):
        ratio, share = (float(curve_of(results, *model, kind)["propensity"][1:].mean()) for model in MODELS)
        lines.append(Headline(f"mean p_k/p_1 beyond rank 1, {kind}", None, ratio, share))
    return lines


def checks(results: Results) -> list[Check]:
    """Return the paper's claims: the curves differ, and simple queries are read further down."""
    found = []
    for model, part in MODELS:
        simple, complex_ = (curve_of(results, model, part, kind) for kind in ("simple", "complex"))
        above = simple["propensity"][1:] > complex_["propensity"][1:]
        apart = simple["lower"][1:] > complex_["upper"][1:]
        crossed = int(np.sum(simple["upper"][1:] < complex_["lower"][1:]))
        found += [
            Check(
                f"{model}: simple queries are read further down",
                bool(above.all()),
                f"simple above complex at {above.sum()} of {len(above)} positions beyond the first",
            ),
            Check(
                f"{model}: the curves differ, their 95 % bands do not overlap at half of the positions or more",
                int(apart.sum()) >= len(apart) / 2 and crossed == 0,
                f"bands apart at {apart.sum()} of {len(apart)} positions, the other way round at {crossed}",
            ),
        ]
    return found


def chart(results: Results) -> Any:
    """Return the curves with their bands."""
    return curve_chart(results, MODELS)


EXPERIMENT = Experiment(
    id="fig-complex",
    title="Complex and simple queries, two PBMs from swaps",
    claim="Two PBMs, of complex and of simple queries, from swap interventions, with 95 % bands of 1,000 bootstrap "
    "samples: the curves are substantially different, users go further down on simple queries.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    notes=(
        "The log is simulated (`simulate_arxiv`) with the paper's design and sizes; that simple queries are read "
        "further down is built into it, so the check tells whether the swaps show it. The paper prints no numbers of "
        "these curves.",
        "A swap of a page with m results leaves it as it is when the rank drawn is beyond m; exposures account for it.",
    ),
    world=WORLD,
)
