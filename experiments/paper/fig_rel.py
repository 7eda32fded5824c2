"""fig-rel: what a relevance model that depends on context is worth to AllPairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.families.figures import line_chart
from experiments.families.models import (
    CPBM_CONSTANT,
    CPBM_NETWORK,
    HIDDEN_CONSTANT,
    HIDDEN_NETWORK,
)
from experiments.families.semi_synthetic import is_judged, make_runs
from experiments.runner.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runner.runs import Result, Results, Run


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
CLAIMING = "hidden layers of 12"
"""The arm whose claim it is: the code that made the paper's figure has hidden layers of 8 to 16."""
ZETAS = (0.0, 0.5, 1.0)
QUICK_ZETAS: tuple[float, ...] = (0.0, 1.0)
PAPER_MOST = 0.02
MILD = 0.05
"""A reduction of at most this much counts as mild."""
CAUSES = {
    "mq2007_part": "982 distinct queries are too few for networks with hidden layers. On the synthetic corpus cut to "
    "982 queries both claims fail too (slope +0.19 ± 0.15, up to +0.33); with 11,473 they hold. A few contexts make "
    "these means: by medians over contexts the reductions are -0.01, 0.00 and -0.02. Neither a bad optimum nor too few "
    "clicks is the cause: the best of five starts and ten times the clicks fail likewise (benchmarks/causes.py)"
}
"""Why the claims fail, by world."""


def runs(plan: Plan) -> list[Run]:
    """Return five sweeps at η=1 and each ζ, with a network and with constants for relevance; ten in quick plans."""
    if plan.quick:
        arms, zetas, sweeps = [replace(ARMS["one layer"], seeds=1)], QUICK_ZETAS, 10
    else:
        arms, zetas, sweeps = list(ARMS.values()), ZETAS, 5
    return [
        run
        for arm in arms
        for zeta in zetas
        for run in make_runs(plan, arm.models, seeds=arm.seeds, sweeps=sweeps, eta=1.0, zeta=zeta)
    ]


def reductions(results: Results, arm: Arm) -> Results:
    """Return the error without a context-dependent relevance model minus the error with one, run by run."""
    pairs = []
    for r in results.where(model=arm.network):
        other = results.where(model=arm.constant, zeta=r.run["zeta"], seed=r.run.seed).values("rel_error")
        own = r.numbers.get("rel_error")
        pairs.append(Result(r.run, {"reduction": other[0] - own if other and own is not None else None}))
    return Results(pairs)


def measured(results: Results) -> dict[str, Arm]:
    """Return the arms whose runs are there."""
    return {name: arm for name, arm in ARMS.items() if all(results.where(model=model) for model in arm.models)}


def claiming(results: Results) -> Arm | None:
    """Return the arm that the paper's claim is judged on: the authors' code has hidden layers; else what there is."""
    there = measured(results)
    return there.get(CLAIMING, next(iter(there.values()), None))


def summarise(results: Results) -> list[Row]:
    """Return one row per arm and ζ."""
    rows: list[Row] = []
    for name, arm in measured(results).items():
        reduced = reductions(results, arm)
        for zeta in results.settings("zeta"):
            own, here = results.where(zeta=zeta), reduced.where(zeta=zeta)
            n = len(here.values("reduction"))
            rows.append(
                {
                    "networks": name,
                    "zeta": zeta,
                    "RelError, g a network": own.where(model=arm.network).mean("rel_error"),
                    "RelError, g constant": own.where(model=arm.constant).mean("rel_error"),
                    "reduction": here.mean("reduction"),
                    "sd": here.sd("reduction"),
                    "standard error": here.sd("reduction") / n**0.5 if n else None,
                    "median": here.median("reduction"),
                    "runs": n,
                }
            )
    return rows


def headline(results: Results) -> list[Headline]:
    """Return the reductions of the arm that the claim is judged on; the paper gives the largest."""
    arm = claiming(results)
    if arm is None:
        return []
    reduced = reductions(results, arm)
    means = {zeta: reduced.where(zeta=zeta) for zeta in results.settings("zeta")}
    most = max(means, key=lambda zeta: means[zeta].mean("reduction"))
    lines = [("reduction, largest", PAPER_MOST, most), *((f"reduction, ζ = {z:g}", None, z) for z in means)]
    return [
        Headline(what, paper, means[z].mean("reduction"), runs=len(means[z]), ours_sd=means[z].sd("reduction"))
        for what, paper, z in lines
    ]


def checks(results: Results) -> list[Check]:
    """Return: the reduction grows with ζ, and is mild; in quick plans it is noise, and nothing is claimed."""
    arm = claiming(results)
    if arm is None or not is_judged(results):
        return []
    reduced = reductions(results, arm)
    zetas = results.settings("zeta")
    means = [reduced.where(zeta=zeta).mean("reduction") for zeta in zetas]
    told = ", ".join(f"{mean:+.4f}" for mean in means) + f" at ζ = {', '.join(f'{zeta:g}' for zeta in zetas)}"
    slope, error = _slope(reduced)
    which = next(name for name, one in ARMS.items() if one is arm)
    cause = CAUSES.get(results[0].run.world, "")
    return [
        Check(
            f"the reduction grows with ζ ({which})",
            slope > 2 * error,
            f"slope {slope:+.4f} ± {error:.4f} over ζ from 0 to 1: {told}",
            cause,
        ),
        Check(
            f"a context-dependent g brings a mild improvement at most ({which})",
            max(means) <= MILD,
            f"{told}; {MILD} is mild",
            cause,
        ),
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
    points = [
        {"model": arm.network, "zeta": zeta, "mean": own.mean("reduction"), "sd": own.sd("reduction")}
        for arm in measured(results).values()
        for zeta in results.settings("zeta")
        if (own := reductions(results, arm).where(zeta=zeta))
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
    by_model=True,
    notes=(
        "ClickShare has no relevance model, so it has no part in this figure. Whether the reduction grows is judged in "
        "full runs only: it is smaller than what two runs of a quick plan differ by.",
        "Two arms: the networks that the paper prints, of one sigmoid layer, over 20 runs; and networks with a hidden "
        "layer of 12, as the authors' code has them, over 6. The paper's claims are judged on the second, whose claims "
        "they are, and on the first as long as the second is not measured. No arm is picked by its figure: both are in "
        "every table that either matters to.",
    ),
)
