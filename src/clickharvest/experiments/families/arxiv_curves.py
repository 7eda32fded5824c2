"""The family of the arXiv curves: examination of complex and of simple queries, with 95 % bands by query.

From the swap experiment every kind of query has a PBM of its own; from the A/B pages one CPBM has the kind as its only
feature. The true curve is the mean of p_k(x) over the queries of a kind; it enters beside the estimate, nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.experiments.families.arxiv_log import KINDS, arxiv_log, log_settings
from clickharvest.experiments.runner.experiment import Plan, Row
from clickharvest.experiments.runner.runs import Numbers, Results, Run
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.prediction import Prediction

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
    from clickharvest.estimation import estimators
    from clickharvest.experiments.families.arxiv_bands import all_pairs_bands, swap_ratio_bands

    replicates, seed = run["replicates"], run.seed
    if run["part"] == "ab":
        if run["model"] == ALL_PAIRS:
            found = all_pairs_bands(interventions, width=0, replicates=replicates, seed=seed)
        else:
            model = estimators.CPBM(curve="linear", penalty=0.0, replicates=replicates, seed=seed)
            found = model.fit(interventions.clicked()).propensities_
        return {kind: found.predict({"complex": [int(is_complex)]}) for kind, is_complex in KINDS.items()}
    predictions = {}
    for kind, is_complex in KINDS.items():
        own = interventions.take(interventions.contexts["complex"] == is_complex).clicked()
        if run["model"] == SWAP_RATIO:
            predictions[kind] = swap_ratio_bands(own, replicates=replicates, seed=seed).predict()
        else:
            predictions[kind] = estimators.PBM(replicates=replicates, seed=seed).fit(own).predict()
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


def curve_of(results: Results, model: str, part: str, kind: str) -> dict[str, NDArray[np.float64]]:
    """Return the arrays `CURVE` [K] that a run measured, NaN where there is no estimate."""
    found = results.where(model=model, part=part)
    numbers = found[0].numbers if found else {}
    return {name: np.array(numbers.get(f"{kind}_{name}", [None]), np.float64) for name in CURVE}


def curve_rows(results: Results, models: Sequence[tuple[str, str]]) -> list[Row]:
    """Return one row per kind of query and position, with estimate and band of each (model, part)."""
    rows = []
    for kind in KINDS:
        curves = {(model, part): curve_of(results, model, part, kind) for model, part in models}
        truth = next(iter(curves.values()))["truth"]
        for k in range(len(truth)):
            row: Row = {"queries": kind, "position": k + 1, "truth": float(truth[k])}
            for (model, part), curve in curves.items():
                row[f"{model} ({part})"] = float(curve["propensity"][k])
                row[f"{model} ({part}) band"] = f"{curve['lower'][k]:.3f}–{curve['upper'][k]:.3f}"
            rows.append(row)
    return rows


def curve_chart(results: Results, models: Sequence[tuple[str, str]]) -> Any:
    """Return the curves with their bands, one panel per model, the truth as a dashed line."""
    import altair as alt

    points: list[dict[str, Any]] = []
    for model, part in models:
        for kind in KINDS:
            curve = curve_of(results, model, part, kind)
            for k in range(len(curve["truth"])):
                values = {name: None if np.isnan(curve[name][k]) else float(curve[name][k]) for name in CURVE}
                points.append({"model": f"{model} ({part})", "queries": kind, "position": k + 1, **values})
    base = alt.Chart(alt.InlineData(points)).encode(
        x=alt.X("position:Q", title="position", scale=alt.Scale(domain=[1, max(p["position"] for p in points)])),
        color=alt.Color("queries:N", title="queries"),
    )
    band = base.mark_area(opacity=0.25).encode(y=alt.Y("lower:Q", title="examination"), y2="upper:Q")
    line = base.mark_line(point=True).encode(y="propensity:Q")
    truth = base.mark_line(strokeDash=[4, 3], opacity=0.7).encode(y="truth:Q")
    return (band + line + truth).properties(width=280, height=220).facet(column=alt.Column("model:N", title=None))
