"""fig-rel: what a relevance model that depends on context is worth to AllPairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clickharvest.experiments.families.figures import line_chart
from clickharvest.experiments.families.models import (
    CPBM_CONSTANT,
    CPBM_NETWORK,
    HIDDEN_CONSTANT,
    HIDDEN_NETWORK,
)
from clickharvest.experiments.families.semi_synthetic import is_judged, make_runs
from clickharvest.experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from clickharvest.experiments.runner.runs import Result, Results, Run


@dataclass(frozen=True)
class Arm:
    """An architecture of h and g: the models with a network and with constants for relevance, and seeds to run."""

    network: str
    constant: str
    seeds: int

    @property
    def models(self) -> tuple[str, str]:
        """Both models."""
        return self.network, self.constant


ARMS = {
    "one layer": Arm(CPBM_NETWORK, CPBM_CONSTANT, 20),
    "hidden layers of 12": Arm(HIDDEN_NETWORK, HIDDEN_CONSTANT, 6),
}
"""The networks that the paper prints, and those with a hidden layer."""
ZETAS = (0.0, 0.5, 1.0)
QUICK_ZETAS = (0.0, 1.0)
PAPER_MOST = 0.02
MILD = 0.05
"""A reduction of at most this much counts as mild."""


def runs(plan: Plan) -> list[Run]:
    """Return five sweeps (ten in quick plans) at η=1 and each ζ, with a network and with constants for relevance."""
    zetas, sweeps = (QUICK_ZETAS, 10) if plan.quick else (ZETAS, 5)
    return [
        run
        for arm in ARMS.values()
        for zeta in zetas
        for run in make_runs(plan, arm.models, seeds=1 if plan.quick else arm.seeds, sweeps=sweeps, eta=1.0, zeta=zeta)
    ]


def reductions(results: Results) -> Results:
    """Return the error without a context-dependent relevance model minus the error with one, run by run."""
    pairs = []
    for r in results.where(model=CPBM_NETWORK):
        other = results.where(model=CPBM_CONSTANT, zeta=r.run["zeta"], seed=r.run.seed).values("rel_error")
        own = r.numbers.get("rel_error")
        pairs.append(Result(r.run, {"reduction": other[0] - own if other and own is not None else None}))
    return Results(pairs)


def summarise(results: Results) -> list[Row]:
    """Return one row per ζ."""
    rows: list[Row] = []
    reduced = reductions(results)
    for zeta in results.settings("zeta"):
        own, here = results.where(zeta=zeta), reduced.where(zeta=zeta)
        n = len(here.values("reduction"))
        rows.append(
            {
                "zeta": zeta,
                "RelError, g a network": own.where(model=CPBM_NETWORK).mean("rel_error"),
                "RelError, g constant": own.where(model=CPBM_CONSTANT).mean("rel_error"),
                "reduction": here.mean("reduction"),
                "sd": here.sd("reduction"),
                "standard error": here.sd("reduction") / n**0.5 if n else None,
                "runs": n,
            }
        )
    return rows


def headline(results: Results) -> list[Headline]:
    """Return the reductions; the paper gives the largest."""
    reduced = reductions(results)
    means = {zeta: reduced.where(zeta=zeta) for zeta in results.settings("zeta")}
    most = max(means, key=lambda zeta: means[zeta].mean("reduction"))
    lines = [("reduction, largest", PAPER_MOST, most), *((f"reduction, ζ = {z:g}", None, z) for z in means)]
    return [
        Headline(what, paper, means[z].mean("reduction"), runs=len(means[z]), ours_sd=means[z].sd("reduction"))
        for what, paper, z in lines
    ]


def checks(results: Results) -> list[Check]:
    """Return: the reduction grows with ζ, and is mild; in quick plans it is noise, and nothing is claimed."""
    if not is_judged(results):
        return []
    reduced = reductions(results)
    zetas = results.settings("zeta")
    means = [reduced.where(zeta=zeta).mean("reduction") for zeta in zetas]
    told = ", ".join(f"{mean:+.4f}" for mean in means) + f" at ζ = {', '.join(f'{zeta:g}' for zeta in zetas)}"
    slope, error = _slope(reduced)
    return [
        Check(
            "the reduction grows with ζ",
            slope > 2 * error,
            f"slope {slope:+.4f} ± {error:.4f} over ζ from 0 to 1: {told}",
        ),
        Check("a context-dependent g brings a mild improvement at most", max(means) <= MILD, f"{told}; {MILD} is mild"),
    ]


def _slope(reduced: Results) -> tuple[float, float]:
    """Return the slope of the reduction in ζ over all runs, and its standard error by seed."""
    import numpy as np

    slopes = []
    for seed in reduced.settings("seed"):
        own = [r for r in reduced.where(seed=seed) if r.numbers["reduction"] is not None]
        slopes.append(np.polyfit([r.run["zeta"] for r in own], [r.numbers["reduction"] for r in own], 1)[0])
    return float(np.mean(slopes)), float(np.std(slopes, ddof=1) / len(slopes) ** 0.5)


def chart(results: Results) -> Any:
    """Return the reduction by ζ."""
    reduced = reductions(results)
    points = [
        {"model": CPBM_NETWORK, "zeta": zeta, "mean": own.mean("reduction"), "sd": own.sd("reduction")}
        for zeta in results.settings("zeta")
        if (own := reduced.where(zeta=zeta))
    ]
    return line_chart(points, x="zeta", x_title="ζ", y_title="reduction of RelError by a context-dependent g")


EXPERIMENT = Experiment(
    id="fig-rel",
    title="What a context-dependent relevance model is worth",
    claim="With 57,365 training queries and η=1, over 20 runs, a context-dependent g reduces the error of the CPBM the "
    "more, the larger ζ is, by .02 at most.",
    runs=runs,
    summarise=summarise,
    headline=headline,
    checks=checks,
    chart=chart,
    notes=(
        "ClickShare has no relevance model, so it has no part in this figure. Whether the reduction grows is judged in "
        "full runs only: it is smaller than what two runs of a quick plan differ by.",
        "The reduction exceeds the paper's. A guess, not tested: our contexts tell more of relevance than those of its "
        "corpus. At ζ=0 a network has nothing to find, and its noise costs a little.",
    ),
)
