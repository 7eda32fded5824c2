"""The family of the arXiv curves: examination of complex and of simple queries, with 95 % bands by query.

From the swap experiment every kind of query has a PBM of its own; from the A/B pages one CPBM has the kind as its only
feature. The true curve is the mean of p_k(x) over the queries of a kind; it enters beside the estimate, nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting import Interventions
from clickharvest.model import Prediction
from experiments.families.arxiv_log import KINDS, arxiv_log, log_settings
from experiments.runner.experiment import Plan
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Run

FAMILY = "arxiv_curves"
SWAP_RATIO, ALL_PAIRS = "swap ratio", "AllPairs"
QUICK_QUERIES = 60_000
REPLICATES, QUICK_REPLICATES = 1_000, 50
CURVE = ("propensity", "lower", "upper", "truth")


def curve_runs(plan: Plan, part: str, models: Sequence[str]) -> list[Run]:
    """Return runs of models on a part of the log, `"swap"` or `"ab"`."""
    replicates = QUICK_REPLICATES if plan.quick else REPLICATES
    log = log_settings(plan, QUICK_QUERIES)
    return [
        Run(FAMILY, plan.world, 0, log, {"model": model, "part": part, "replicates": replicates}) for model in models
    ]


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Return the curve of each kind of query with its band, and the mean width of the band over positions."""
    simulation = arxiv_log(run)
    interventions = simulation.interventions(part=run["part"], features=["complex"])
    numbers: Numbers = {}
    for kind, is_complex in KINDS.items():
        own = interventions.contexts["complex"] == is_complex
        numbers[f"{kind}_clicks"] = int(interventions.clicks[own].sum())
    for kind, prediction in _predictions(run, interventions).items():
        curve = _on_page(prediction, simulation.positions) | {"truth": simulation.curve(is_complex=KINDS[kind])}
        numbers |= {f"{kind}_{name}": _listed(curve[name]) for name in CURVE}
        numbers[f"{kind}_width"] = float(np.nanmean((curve["upper"] - curve["lower"])[1:]))
    return numbers


def _predictions(run: Run, interventions: Interventions) -> dict[str, Prediction]:
    """Return a prediction of one row for each kind of query."""
    from clickharvest.estimation import CPBM, PBM
    from experiments.families.arxiv_bands import all_pairs_bands, swap_ratio_bands

    replicates, seed = run["replicates"], run.seed
    if run["part"] == "ab":
        if run["model"] == ALL_PAIRS:
            found = all_pairs_bands(interventions, width=0, replicates=replicates, seed=seed)
        else:
            model = CPBM(curve="linear", penalty=0.0, intervals="bootstrap", replicates=replicates, seed=seed)
            found = model.fit(interventions.clicked()).propensities_
        return {kind: found.predict({"complex": [int(is_complex)]}) for kind, is_complex in KINDS.items()}
    predictions = {}
    for kind, is_complex in KINDS.items():
        own = interventions.take(interventions.contexts["complex"] == is_complex).clicked()
        if run["model"] == SWAP_RATIO:
            predictions[kind] = swap_ratio_bands(own, replicates=replicates, seed=seed).predict()
        else:
            predictions[kind] = PBM(intervals="bootstrap", replicates=replicates, seed=seed).fit(own).predict()
    return predictions


def _on_page(prediction: Prediction, positions: int) -> dict[str, NDArray[np.float64]]:
    """Return the curve and its band at every position of a page, NaN where there is no estimate."""
    curve = {}
    for name in ("propensity", "lower", "upper"):
        curve[name] = np.full(positions, np.nan)
        curve[name][np.array(prediction.positions) - 1] = getattr(prediction, name)[0]
    return curve


def _listed(values: NDArray[np.float64]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
