"""table-pbm: how much more accurate the CPBM is than the PBM when there is much data."""

from __future__ import annotations

from math import isnan
from typing import Any

from experiments.families.error_tables import error_headline, error_rows, outperforms_or_matches
from experiments.families.figures import bar_chart
from experiments.families.models import (
    AUTHORS,
    AUTHORS_ORACLE,
    CLICKSHARE,
    CPBM,
    CPBM_NETWORK,
    HIDDEN_NETWORK,
    PBM,
    ROBUST,
)
from experiments.families.semi_synthetic import is_judged, make_runs
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Results, Run

PAPER = {PBM: 0.478700, ROBUST: 0.169443, AUTHORS_ORACLE: 0.169443}
LEAST_REDUCTION = 0.60
BARS = {"synthetic": 0.07, "mq2007_part": 0.13}
"""Bars on the CPBM's error, set before it was measured on all seeds."""
MODELS = (PBM, ROBUST, CPBM, CPBM_NETWORK, HIDDEN_NETWORK, AUTHORS, AUTHORS_ORACLE, CLICKSHARE)
QUICK_MODELS = (PBM, ROBUST, CPBM, CLICKSHARE)


def runs(plan: Plan) -> list[Run]:
    """Return ten sweeps at η=.5 and ζ=1."""
    seeds, models = (1, QUICK_MODELS) if plan.quick else (6, MODELS)
    return make_runs(plan, models, seeds=seeds, sweeps=10)


def summarise(results: Results) -> list[Row]:
    """Return one row per model."""
    return error_rows(results, paper=PAPER)


def headline(results: Results) -> list[Headline]:
    """Return the errors, and by how much the CPBM reduces them."""
    by_model = {model: results.where(model=model).typical("rel_error") for model in MODELS}
    reduction = {model: 1 - by_model[model] / by_model[PBM] for model in (ROBUST, CLICKSHARE)}
    return [
        error_headline("RelError, PBM", results, paper=PAPER[PBM], ours=PBM, clickshare=None),
        error_headline("RelError, CPBM", results, paper=PAPER[ROBUST]),
        Headline("reduction by CPBM", 0.6460, reduction[ROBUST], reduction[CLICKSHARE], len(results.settings("seed"))),
    ]


def checks(results: Results) -> list[Check]:
    """Return the paper's claims on the CPBM, our bars on it, and ours on ClickShare; of models whose runs are there."""
    pbm, cpbm, ours = (results.where(model=model).typical("rel_error") for model in (PBM, ROBUST, CLICKSHARE))
    found = f"PBM {pbm:.4f}, CPBM {cpbm:.4f}, ClickShare {ours:.4f}"
    judged = [Check("ClickShare has at most half of the PBM's error", ours <= pbm / 2, found)]
    if isnan(cpbm):
        return judged
    judged.append(outperforms_or_matches("the CPBM outperforms or matches the PBM", ["all runs"], [cpbm], [pbm]))
    if not is_judged(results):
        return judged
    bar = BARS.get(results[0].run.world)
    reached = [] if bar is None else [Check(f"the CPBM's error is at most {bar}", cpbm <= bar, f"{cpbm:.4f}")]
    paper = PAPER[ROBUST]
    return [
        *judged,
        Check("the CPBM more than halves the error of the PBM", cpbm < pbm / 2, found),
        Check("the CPBM's error is at most the paper's", cpbm <= paper, f"{cpbm:.4f}, paper {paper:.4f}"),
        Check(
            "the CPBM's error is 60 % below the PBM's or more",
            cpbm <= (1 - LEAST_REDUCTION) * pbm,
            f"{100 * (1 - cpbm / pbm):.1f} % below, the paper 64.6 %",
        ),
        *reached,
        Check("ClickShare has at most half of the CPBM's error", ours <= cpbm / 2, found),
    ]


def chart(results: Results) -> Any:
    """Return one bar per model."""
    points = [
        {"model": model, "mean": own.mean("rel_error"), "sd": own.sd("rel_error")}
        for model in MODELS
        if (own := results.where(model=model))
    ]
    return bar_chart(points, y_title="RelError", paper=PAPER)


EXPERIMENT = Experiment(
    id="table-pbm",
    title="PBM and CPBM with much data",
    claim="With 113,590 training queries and η=.5 the RelError of the PBM is .478700 and that of the CPBM .169443, "
    "64.60 % less.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    by_model=True,
    notes=(
        "The paper's table has 113,590 training queries, its figures 114,730 (ten sweeps of 11,473): we run the "
        "latter, so that the table and the figures share their fits.",
        '*CPBM AllPairs, robust* is what `CPBM(objective="allpairs")` does: examination is the network that the paper '
        "prints, one sigmoid layer; ridges on context weights and the model of relevance, or the PBM, are chosen on "
        "queries kept aside. Its rule was found on seeds 0 and 1, after seeing their errors; seeds 2 to 5 confirm it. "
        "The paper's claims about the CPBM are judged on this row.",
        "*CPBM AllPairs* is the same network without a penalty, with g chosen on queries kept aside among constants, a "
        "network and free values; in *network g* that is a network of one layer, and in *hidden layers of 12* both "
        "networks have a hidden layer.",
        "The last two rows of AllPairs are the recipe of the authors' code, written anew from its facts: hidden layers "
        "of 8 to 16, raw contexts, weights from truncated normals of sd .1, Adam at .03, 1,000 full-batch epochs. "
        "*Last epoch* is width 12 as it is after training. *Chosen by the truth* takes the width, epoch and g of the "
        "least error against the true propensities, as that code does: an oracle that no user has. The paper's number "
        "is such a one.",
    ),
)
