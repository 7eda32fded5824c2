"""table-pbm, fig-data, fig-ctx, fig-rel and fig-rank: how accurate the paper's models are on semi-synthetic logs."""

from __future__ import annotations

from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.charts import bar_chart, line_chart
from experiments.error_tables import error_chart, error_headline, error_rows, outperforms_or_matches, typical_errors
from experiments.experiment import Check, Experiment, Headline, Plan, Row
from experiments.models import (
    AUTHORS,
    AUTHORS_ORACLE,
    CLICKSHARE,
    CPBM,
    CPBM_CONSTANT,
    CPBM_NETWORK,
    HIDDEN_CONSTANT,
    HIDDEN_NETWORK,
    PBM,
    ROBUST,
)
from experiments.pages import spell
from experiments.runs import Result, Results, Run
from experiments.semi_synthetic import POSITIONS, is_judged, make_runs

MODELS = (PBM, ROBUST, CPBM, AUTHORS, AUTHORS_ORACLE, CLICKSHARE)
QUICK_MODELS = (PBM, ROBUST, CLICKSHARE)
ALL_MODELS = (PBM, ROBUST, CPBM, CPBM_NETWORK, HIDDEN_NETWORK, AUTHORS, AUTHORS_ORACLE, CLICKSHARE)
PAPER = {PBM: 0.478700, ROBUST: 0.169443, AUTHORS_ORACLE: 0.169443}
"""The paper's RelError in its table."""
BARS = {("synthetic", 5_736): 0.16, ("synthetic", 114_730): 0.07, ("mq2007_part", 114_730): 0.13}
"""Bars on the CPBM's error by world and training queries, set before it was measured on all seeds."""
LEAST_REDUCTION = 0.60
SWEEPS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10)
SAME = (PBM, ROBUST, AUTHORS, AUTHORS_ORACLE)
FLAT_FROM, FLAT = 5_000, 0.2
"""Training queries from which on the paper's error is flat, and which share of its whole fall may still be to come."""
ARMS = {"one layer": (CPBM_NETWORK, CPBM_CONSTANT), "hidden layers of 12": (HIDDEN_NETWORK, HIDDEN_CONSTANT)}
"""The networks that the paper prints, and those of the authors' code: relevance by a network, and by constants. The
paper's claim is judged on the last arm that was measured."""
PAPER_MOST = 0.02
MILD = 0.05
"""A reduction of at most this much counts as mild."""
CAUSES = {
    "mq2007_part": "982 distinct queries are too few for networks with hidden layers. On the synthetic corpus cut to "
    "982 queries both claims fail too (slope +0.19 ± 0.15, up to +0.33); with 11,473 they hold. A few contexts make "
    "these means: by medians over contexts the reductions are -0.01, 0.00 and -0.02. Neither a bad optimum nor too few "
    "clicks is the cause: the best of five starts and ten times the clicks fail likewise (benchmarks/causes.py)"
}
"""Why the claims of fig-rel fail, by world."""
LEAST_CORRELATION = 0.8


def bar_checks(results: Results) -> list[Check]:
    """Return whether the CPBM's error is at most the bars set for the sizes of results."""
    checks = []
    sizes = results.settings("training_queries")
    for size in sizes:
        bar = BARS.get((results[0].run.world, size))
        if bar is not None:
            error = results.where(model=ROBUST, training_queries=size).typical("rel_error")
            where = f" with {size:,} queries" if len(sizes) > 1 else ""
            checks.append(Check(f"the CPBM's error is at most {bar}{where}", error <= bar, f"{error:.4f}"))
    return checks


def table_runs(plan: Plan) -> list[Run]:
    """Return ten sweeps at η=.5 and ζ=1."""
    models, seeds = ((*QUICK_MODELS[:2], CPBM, CLICKSHARE), 1) if plan.quick else (ALL_MODELS, 6)
    return make_runs(plan, models, seeds=seeds, sweeps=10)


def table_headlines(results: Results) -> list[Headline]:
    """Return the errors, and by how much the CPBM reduces them."""
    pbm, cpbm, ours = (results.where(model=model).typical("rel_error") for model in (PBM, ROBUST, CLICKSHARE))
    return [
        error_headline("RelError, PBM", results, paper=PAPER[PBM], ours=PBM, clickshare="none"),
        error_headline("RelError, CPBM", results, paper=PAPER[ROBUST]),
        Headline("reduction by CPBM", 0.6460, 1 - cpbm / pbm, 1 - ours / pbm, len(results.settings("seed"))),
    ]


def table_checks(results: Results) -> list[Check]:
    """Return the paper's claims on the CPBM, our bars on it, and ours on ClickShare."""
    pbm, cpbm, ours = (results.where(model=model).typical("rel_error") for model in (PBM, ROBUST, CLICKSHARE))
    numbers, paper = f"PBM {pbm:.4f}, CPBM {cpbm:.4f}, ClickShare {ours:.4f}", PAPER[ROBUST]
    checks = [
        Check("ClickShare has at most half of the PBM's error", ours <= pbm / 2, numbers),
        outperforms_or_matches("the CPBM outperforms or matches the PBM", ["all runs"], [cpbm], [pbm]),
    ]
    if not is_judged(results):
        return checks
    return [
        *checks,
        Check("the CPBM more than halves the error of the PBM", cpbm < pbm / 2, numbers),
        Check("the CPBM's error is at most the paper's", cpbm <= paper, f"{cpbm:.4f}, paper {paper:.4f}"),
        Check(
            "the CPBM's error is 60 % below the PBM's or more",
            cpbm <= (1 - LEAST_REDUCTION) * pbm,
            f"{100 * (1 - cpbm / pbm):.1f} % below, the paper 64.6 %",
        ),
        *bar_checks(results),
        Check("ClickShare has at most half of the CPBM's error", ours <= cpbm / 2, numbers),
    ]


def table_chart(results: Results) -> Any:
    """Return one bar per model."""
    points = [
        {"model": model, "mean": runs.mean("rel_error"), "sd": runs.sd("rel_error")}
        for model in ALL_MODELS
        if (runs := results.where(model=model))
    ]
    return bar_chart(points, y_title="RelError", paper=PAPER)


def data_runs(plan: Plan) -> list[Run]:
    """Return logs of a hundredth of a sweep to ten, at η=.5 and ζ=1; below one sweep also drawn as the paper does."""
    seeds, sweeps, models = (1, (2, 10), QUICK_MODELS) if plan.quick else (6, SWEEPS, MODELS)
    runs = [run for s in sweeps for run in make_runs(plan, models, seeds=seeds, sweeps=s)]
    few = [s for s in sweeps if s < 1]
    return runs + [run for s in few for run in make_runs(plan, SAME, seeds=seeds, sweeps=s, repetition="same")]


def data_rows(results: Results) -> list[Row]:
    """Return one row per size and model; rankers draw their queries each for itself, or all serve the same ones."""
    drawn = {"by ranker": results.where(repetition=None), "same queries": results.where(repetition="same")}
    return [{"drawn": how, **row} for how, part in drawn.items() for row in error_rows(part, by=("training_queries",))]


def data_headlines(results: Results) -> list[Headline]:
    """Return the errors at each size; the paper shows them in a figure, without numbers."""
    results = results.where(repetition=None)
    return [
        error_headline(f"RelError, {size:,} queries", results.where(training_queries=size))
        for size in results.settings("training_queries")
    ]


def data_checks(results: Results) -> list[Check]:
    """Return: CPBM no worse than PBM at every size and in no run wild, the error falls with data, and becomes flat."""
    same, results = results.where(repetition="same"), results.where(repetition=None)
    sizes = results.settings("training_queries")
    errors = typical_errors(results, "training_queries", MODELS)
    places = [f"{size:,}" for size in sizes]
    checks = [
        _below(errors[PBM], errors[CLICKSHARE], places, "ClickShare is below the PBM at every size"),
        *_falls(CLICKSHARE, errors[CLICKSHARE], places),
        outperforms_or_matches(
            "the CPBM outperforms or matches the PBM at every size", places, errors[ROBUST], errors[PBM]
        ),
        _below(errors[ROBUST], errors[CLICKSHARE], places, "ClickShare is below the CPBM at every size"),
        _no_wild_fit(results),
    ]
    if is_judged(results):
        checks += [*_falls(ROBUST, errors[ROBUST], places), *bar_checks(results)]
        checks += [check for model in (ROBUST, AUTHORS_ORACLE) for check in _flat(model, errors[model], sizes)]
    if same:
        places = [f"{size:,}" for size in same.settings("training_queries")]
        errors = typical_errors(same, "training_queries", (PBM, ROBUST))
        claim = "the CPBM outperforms or matches the PBM where all rankers serve the same queries"
        checks.append(outperforms_or_matches(claim, places, errors[ROBUST], errors[PBM]))
    return checks


def _below(high: list[float], low: list[float], places: list[str], claim: str) -> Check:
    """Compare two models where both have an error, and say where either has none."""
    known = [i for i in range(len(places)) if not isnan(high[i]) and not isnan(low[i])]
    above = [f"{places[i]} ({spell(low[i])} against {spell(high[i])})" for i in known if low[i] >= high[i]]
    sentence = f"not at {', '.join(above)}" if above else f"at {len(known)} of {len(places)} sizes"
    sentence += "" if len(known) == len(places) else "; no error at the others"
    return Check(claim, bool(known) and not above, sentence)


def _falls(model: str, errors: list[float], places: list[str]) -> list[Check]:
    """Return the check, none where there are not two sizes to compare."""
    first = next((i for i, error in enumerate(errors) if not isnan(error)), len(errors) - 1)
    if first == len(errors) - 1:
        return []
    sentence = f"from {spell(errors[first])} at {places[first]} to {errors[-1]:.4f} at {places[-1]}"
    return [Check(f"the error of {model} falls as data grow", errors[-1] < errors[first], sentence)]


def _no_wild_fit(results: Results) -> Check:
    """Return the check that no CPBM is off by more than 1 where the PBM of the same log is not."""
    wild = []
    for r in results.where(model=ROBUST):
        size, error = r.run["training_queries"], r.numbers.get("rel_error")
        pbm = results.where(model=PBM, training_queries=size, seed=r.run.seed).values("rel_error")
        if error is not None and pbm and error > 1 > pbm[0]:
            wild.append(f"{size:,}, seed {r.run.seed}: {spell(error)} against {spell(pbm[0])}")
    sentence = "; ".join(wild) or f"{len(results.where(model=ROBUST).values('rel_error'))} fits"
    return Check("no CPBM has an error above 1 where the PBM's is below", not wild, sentence)


def _flat(model: str, errors: list[float], sizes: list[int]) -> list[Check]:
    """Return the check, none where the sizes that it rests on have no error."""
    known = [i for i, error in enumerate(errors) if not isnan(error)]
    start = next(i for i, size in enumerate(sizes) if size >= FLAT_FROM)
    if start not in known[1:-1] or isnan(errors[-1]):
        return []
    first = known[0]
    whole, left = errors[first] - errors[-1], errors[start] - errors[-1]
    check = Check(
        f"the error of {model} is flat from about 5,700 training queries",
        left <= FLAT * whole,
        f"{spell(errors[first])} at {sizes[first]:,}, {errors[start]:.4f} at {sizes[start]:,}, {errors[-1]:.4f} at "
        f"{sizes[-1]:,}: {100 * left / whole:.0f} % of its fall is still to come; flat means at most {FLAT:.0%}",
    )
    return [check]


def context_runs(plan: Plan) -> list[Run]:
    """Return five sweeps at each η, ten in quick plans, where the log of η=.5 is that of the other experiments."""
    if plan.quick:
        return [run for eta in (0.5, 1.0) for run in make_runs(plan, QUICK_MODELS, seeds=1, sweeps=10, eta=eta)]
    return [run for eta in (0.0, 0.25, 0.5, 0.75, 1.0) for run in make_runs(plan, MODELS, seeds=6, sweeps=5, eta=eta)]


def context_headlines(results: Results) -> list[Headline]:
    """Return the errors at each η; the paper shows them in a figure, without numbers."""
    return [error_headline(f"RelError, η = {eta:g}", results.where(eta=eta)) for eta in results.settings("eta")]


def context_checks(results: Results) -> list[Check]:
    """Return: CPBM and ClickShare at most PBM at every η, and the PBM's error grows with η."""
    places = [f"η = {eta:g}" for eta in results.settings("eta")]
    errors = typical_errors(results, "eta", MODELS)
    return [
        *(
            outperforms_or_matches(
                f"{name} outperforms or matches the PBM at every η", places, errors[model], errors[PBM]
            )
            for name, model in (("the CPBM", ROBUST), ("ClickShare", CLICKSHARE))
        ),
        Check(
            "the PBM's error grows with η",
            all(a < b for a, b in pairwise(errors[PBM])),
            ", ".join(f"{error:.4f}" for error in errors[PBM]),
        ),
    ]


def relevance_runs(plan: Plan) -> list[Run]:
    """Return five sweeps at η=1 and each ζ, with a network and with constants for relevance; ten in quick plans."""
    if plan.quick:
        arms, zetas, sweeps = [("one layer", 1)], [0.0, 1.0], 10
    else:
        arms, zetas, sweeps = [("one layer", 20), ("hidden layers of 12", 6)], [0.0, 0.5, 1.0], 5
    return [
        run
        for arm, seeds in arms
        for zeta in zetas
        for run in make_runs(plan, ARMS[arm], seeds=seeds, sweeps=sweeps, eta=1.0, zeta=zeta)
    ]


def reductions(results: Results) -> dict[str, Results]:
    """Return by arm, run by run, the error without a context-dependent relevance model minus the error with one."""
    arms = {}
    for arm, (network, constant) in ARMS.items():
        pairs = []
        for r in results.where(model=network):
            other = results.where(model=constant, zeta=r.run["zeta"], seed=r.run.seed).values("rel_error")
            error = r.numbers.get("rel_error")
            pairs.append(Result(r.run, {"reduction": other[0] - error if other and error is not None else None}))
        if pairs:
            arms[arm] = Results(pairs)
    return arms


def relevance_rows(results: Results) -> list[Row]:
    """Return one row per arm and ζ."""
    rows: list[Row] = []
    for arm, reduced in reductions(results).items():
        for zeta in results.settings("zeta"):
            here = reduced.where(zeta=zeta)
            network, constant = (results.where(zeta=zeta, model=model).mean("rel_error") for model in ARMS[arm])
            n = len(here.values("reduction"))
            rows.append(
                {
                    "networks": arm,
                    "zeta": zeta,
                    "RelError, g a network": network,
                    "RelError, g constant": constant,
                    "reduction": here.mean("reduction"),
                    "sd": here.sd("reduction"),
                    "standard error": here.sd("reduction") / n**0.5 if n else None,
                    "median": here.median("reduction"),
                    "runs": n,
                }
            )
    return rows


def relevance_headlines(results: Results) -> list[Headline]:
    """Return the reductions of the arm that the claim is judged on; the paper gives the largest."""
    reduced = list(reductions(results).values())[-1]
    by_zeta = {zeta: reduced.where(zeta=zeta) for zeta in results.settings("zeta")}
    most = max(by_zeta.values(), key=lambda part: part.mean("reduction"))
    return [
        Headline.of("reduction, largest", "reduction", most, paper=PAPER_MOST),
        *(Headline.of(f"reduction, ζ = {zeta:g}", "reduction", part) for zeta, part in by_zeta.items()),
    ]


def relevance_checks(results: Results) -> list[Check]:
    """Return: the reduction grows with ζ, and is mild; in quick plans it is noise, and nothing is claimed."""
    if not is_judged(results):
        return []
    arm, reduced = list(reductions(results).items())[-1]
    zetas = results.settings("zeta")
    means = [reduced.where(zeta=zeta).mean("reduction") for zeta in zetas]
    numbers = ", ".join(f"{mean:+.4f}" for mean in means) + f" at ζ = {', '.join(f'{zeta:g}' for zeta in zetas)}"
    slopes = []
    for seed in reduced.settings("seed"):
        pairs = [(r.run["zeta"], r.numbers["reduction"]) for r in reduced.where(seed=seed)]
        points = np.array([pair for pair in pairs if pair[1] is not None])
        slopes.append(np.polyfit(points[:, 0], points[:, 1], 1)[0])
    slope, error = float(np.mean(slopes)), float(np.std(slopes, ddof=1) / len(slopes) ** 0.5)
    cause = CAUSES.get(results[0].run.world, "")
    return [
        Check(
            f"the reduction grows with ζ ({arm})",
            slope > 2 * error,
            f"slope {slope:+.4f} ± {error:.4f} over ζ from 0 to 1: {numbers}",
            cause,
        ),
        Check(
            f"a context-dependent g brings a mild improvement at most ({arm})",
            max(means) <= MILD,
            f"{numbers}; {MILD} is mild",
            cause,
        ),
    ]


def relevance_chart(results: Results) -> Any:
    """Return the reduction by ζ."""
    points = [
        {"model": ARMS[arm][0], "zeta": zeta, "mean": part.mean("reduction"), "sd": part.sd("reduction")}
        for arm, reduced in reductions(results).items()
        for zeta in results.settings("zeta")
        if (part := reduced.where(zeta=zeta))
    ]
    return line_chart(points, x="zeta", x_title="ζ", y_title="reduction of RelError by a context-dependent g")


def errors_at(results: Results, model: str, k: int) -> Results:
    """Return the error of every run at a position."""
    by_run = [(r.run, r.numbers.get("by_position", [])) for r in results.where(model=model)]
    return Results(Result(run, {"rel_error": errors[k - 1]}) for run, errors in by_run if errors)


def rank_rows(results: Results) -> list[Row]:
    """Return one row per position, with every model's error and standard deviation."""
    rows: list[Row] = []
    for k in range(1, POSITIONS + 1):
        row: Row = {"position": k}
        for model in QUICK_MODELS:
            here = errors_at(results, model, k)
            row |= {model: here.mean("rel_error"), f"{model} sd": here.sd("rel_error")}
        rows.append(row | {"runs": len(errors_at(results, ROBUST, k).values("rel_error"))})
    return rows


def rank_headlines(results: Results) -> list[Headline]:
    """Return the errors at positions 2, 5 and 10; the paper shows them in a figure, without numbers."""
    lines = []
    for k in (2, 5, 10):
        ours, clickshare = (errors_at(results, model, k) for model in (ROBUST, CLICKSHARE))
        lines.append(Headline.of(f"RelError at position {k}", "rel_error", ours, clickshare))
    return lines


def rank_checks(results: Results) -> list[Check]:
    """Return: the error grows with the position, for the CPBM and for ClickShare."""
    checks = []
    for model in (ROBUST, CLICKSHARE) if is_judged(results) else (CLICKSHARE,):
        errors = [errors_at(results, model, k).mean("rel_error") for k in range(2, POSITIONS + 1)]
        correlation = float(spearmanr(range(len(errors)), errors).statistic)
        top, bottom = sum(errors[:3]) / 3, sum(errors[-3:]) / 3
        checks.append(
            Check(
                f"the error of {model} grows with the position",
                correlation >= LEAST_CORRELATION and bottom > top,
                f"rank correlation {correlation:.2f} (at least {LEAST_CORRELATION}); mean {top:.4f} at positions 2-4, "
                f"{bottom:.4f} at 8-10",
            )
        )
    return checks


def rank_chart(results: Results) -> Any:
    """Return RelError by position."""
    points = [
        {"model": model, "position": k, "mean": here.mean("rel_error"), "sd": here.sd("rel_error")}
        for model in QUICK_MODELS
        for k in range(1, POSITIONS + 1)
        for here in [errors_at(results, model, k)]
    ]
    return line_chart(points, x="position", x_title="position", y_title="RelError")


EXPERIMENTS = [
    Experiment(
        id="table-pbm",
        runs=table_runs,
        rows=lambda results: error_rows(results, paper=PAPER),
        headlines=table_headlines,
        checks=table_checks,
        chart=table_chart,
    ),
    Experiment(
        id="fig-data",
        runs=data_runs,
        rows=data_rows,
        headlines=data_headlines,
        checks=data_checks,
        chart=lambda results: error_chart(
            results.where(repetition=None), "training_queries", "training queries", log_x=True, top=1.0
        ),
    ),
    Experiment(
        id="fig-ctx",
        runs=context_runs,
        rows=lambda results: error_rows(results, by=("eta",)),
        headlines=context_headlines,
        checks=context_checks,
        chart=lambda results: error_chart(results, "eta", "η"),
    ),
    Experiment(
        id="fig-rel",
        runs=relevance_runs,
        rows=relevance_rows,
        headlines=relevance_headlines,
        checks=relevance_checks,
        chart=relevance_chart,
    ),
    Experiment(
        id="fig-rank",
        runs=lambda plan: make_runs(plan, QUICK_MODELS, seeds=1 if plan.quick else 6, sweeps=10),
        rows=rank_rows,
        headlines=rank_headlines,
        checks=rank_checks,
        chart=rank_chart,
    ),
]
