"""The family of the click models: the logs of the semi-synthetic runs, and what `fit --model` makes of them.

Where users trust what stands high, E[C] = α_k(x) r + β_k(x), and the truth has the slopes α_k(x) / α_1(x) and the click
rates c = E[C at position 1] of results that are relevant or not:

    slope_error = mean |1 − â_k(x) / (α_k(x) / α_1(x))|          over test contexts x and positions k = 1 … K
    corrected   = √ mean ((E[C_k] − b̂_k) / â_k − c)²             over the displays below position 1

An examination model has b̂ = 0 and its propensities for â, so that it is judged by the same numbers.

Where users browse, the truth of a display is p, the probability that its result was examined given the clicks above on
its page, relative to position 1 (`simulate.SimulatedUsers.examination_given`), and p̂ what `weigh` would give that row:

    impression_error = mean |1 − p̂ / p|           over the displays below position 1 with p > 0
    seen_error       = Σ |p̂ − p| / Σ p            over all of them: where p is 0, p̂ counts whole

The truth enters after the fit, here and nowhere else. Models are fitted and rows weighed as users do it: a table is
read, and `weigh` writes the propensity of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clickharvest.click_models import CLICK_MODELS, choose_click_model
from clickharvest.harvesting import Interventions
from clickharvest.logs import ClickLog, read_log
from clickharvest.simulate import Simulation
from experiments.experiment import Plan
from experiments.models import CLICKSHARE, fit_interventions, fit_settings
from experiments.runs import Numbers, Run
from experiments.semi_synthetic import errors_by_position, predict, protocol_log, simulate_run

Array = NDArray[np.float64]

FAMILY = "click_models"
EXAMINATION, AFFINE, BROWSING, READING, AUTO = "examination", "affine", "browsing", "reading", "auto"
PAGE_ORDER = [("page", "ascending"), ("position", "ascending")]


def make_runs(
    plan: Plan, models: Sequence[str], *, seeds: int, sweeps: float, context: bool, **settings: Any
) -> list[Run]:
    """Return the runs of click models, or `auto`, on logs of the protocol, with or without the context columns.

    Example:
        >>> (run,) = make_runs(Plan(), ["affine"], seeds=1, sweeps=1, context=False, clicks="trust")
        >>> run.family, run["clicks"], run["model"], run["context"]
        ('click_models', 'trust', 'affine', False)
    """
    log = protocol_log(plan, sweeps, **settings)
    return [
        Run(FAMILY, plan.world, seed, log, {"model": model, "context": context}, plan.source)
        for seed in range(seeds)
        for model in models
    ]


def measure(run: Run) -> Numbers:
    """Fit a click model to the run's log, and compare it with the truth."""
    simulation, model = simulate_run(run.unfitted), run.fit["model"]
    details: Numbers = {}
    if model == AUTO:
        choice = choose_click_model(_log(run, simulation), seed=run.seed)
        model = choice.model
        details = {"chosen": model, "why": list(choice.why)}
    errors = (_row_errors if simulation.click_model.browses else _line_errors)(run, simulation, model)
    return {**errors, "queries": len(simulation.train), "clicks": int(simulation.clicks.sum()), **details}


def _line_errors(run: Run, simulation: Simulation, model: str) -> Numbers:
    """Return the errors of slopes and of corrected clicks, where users trust what stands high.

    Models of pages have a propensity for every display, and no slopes.
    """
    rows = _rows(run.unfitted)
    curve, (query, k) = simulation.examination(simulation.train_contexts), (rows["query"], rows["position"] - 1)
    rates = [simulation.click_model.attraction(np.full(curve.shape[1], kind)) for kind in (False, True)]
    slopes: Array | None = None
    offset = np.zeros(len(k))
    if model == AFFINE:
        (slope, intercept), (slopes, _) = _affine(run, simulation)
        divisor, offset = slope[query, k], intercept[query, k]
    elif model == EXAMINATION:
        propensity, slopes = _examination(run, simulation)
        divisor = propensity[query, k]
    else:
        divisor = _propensities(run, simulation, model)
    relevant = simulation.train.relevant[rows["doc"]]
    clicked, right = (curve[query, at] * np.where(relevant, rates[1][at], rates[0][at]) for at in (k, 0 * k))
    wrong = (((clicked - offset) / divisor - right) ** 2)[k > 0]
    numbers: Numbers = {"corrected": float(np.sqrt(np.mean(wrong[np.isfinite(wrong)]))), "slope_error": None}
    if slopes is not None:
        steps = rates[1] - rates[0]
        truth = simulation.test_examination / simulation.test_examination[:, :1] * (steps / steps[0])
        numbers |= errors_by_position(slopes / truth)
        if not numbers["unsupported"]:
            numbers["slope_error"] = float(np.abs(1 - slopes / truth).mean(axis=0).mean())
    return numbers


def _affine(run: Run, simulation: Simulation) -> list[tuple[Array, Array]]:
    """Return slopes and offsets at the contexts of the log and at test contexts, NaN where not supported, [·, K]."""
    model = CLICK_MODELS[AFFINE]().fit(_interventions(run, simulation))
    curves, k = [], simulation.shown.shape[2]
    for contexts in (simulation.train_contexts, simulation.test_contexts):
        columns = {name: np.repeat(contexts[:, j], k) for j, name in enumerate(simulation.context)}
        lines = model.lines(np.tile(np.arange(1, k + 1), len(contexts)), columns)
        slope, offset = (np.where(lines.supported, line, np.nan) for line in (lines.slope, lines.offset))
        curves.append((slope.reshape(-1, k), offset.reshape(-1, k)))
    return curves


def _row_errors(run: Run, simulation: Simulation, model: str) -> Numbers:
    """Return the errors of the propensities of displays, where users browse."""
    rows = _rows(run.unfitted)
    top = rows["position"] == 1
    truth = rows["examination"] / rows["examination"][top][rows["page"]]
    estimate = _propensities(run, simulation, model)
    used = ~top & np.isfinite(estimate)
    p, estimate = truth[used], estimate[used]
    examined = p > 0
    return {
        "impression_error": float(np.abs(1 - estimate[examined] / p[examined]).mean()),
        "seen_error": float(np.abs(estimate - p).sum() / p.sum()),
        "never_seen": float(np.mean(~examined)),
        "without_estimate": int(np.count_nonzero(~top) - np.count_nonzero(used)),
    }


def _propensities(run: Run, simulation: Simulation, model: str) -> Array:
    """Return the propensity of every row; of models of pages the one that `weigh` gives it."""
    if model in (EXAMINATION, AFFINE):
        by_query = _examination(run, simulation)[0] if model == EXAMINATION else _affine(run, simulation)[0][0]
        rows = _rows(run.unfitted)
        propensity: Array = by_query[rows["query"], rows["position"] - 1]
        return propensity
    log, kind = _log(run, simulation), CLICK_MODELS[model]
    click_model = kind(intervals=None, seed=run.seed)
    fit = click_model.fit(click_model.harvest(log))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weighted.parquet"
        kind.weigh(log, fit, path, clip=None, normalise=False, policy_aware=False)
        weighted = pq.read_table(path, columns=["page", "position", "propensity"])
    return np.asarray(weighted.sort_by(PAGE_ORDER)["propensity"].to_numpy())


def _examination(run: Run, simulation: Simulation) -> tuple[Array, Array]:
    """Return the propensities of ClickShare at the contexts of the log, [n, K], and at test contexts, [m, K]."""
    with_context = run.fit["context"]
    settings = fit_settings(CLICKSHARE) if with_context else {"estimator": "PBM", "options": {}}
    fit = fit_interventions(settings, _interventions(run, simulation), run.seed)
    if with_context:
        at_log, at_test = (predict(fit, simulation, x) for x in (simulation.train_contexts, simulation.test_contexts))
        return at_log, at_test
    curve = predict(fit, simulation, None)
    return curve.repeat(len(simulation.train_contexts), axis=0), curve.repeat(len(simulation.test_contexts), axis=0)


def _interventions(run: Run, simulation: Simulation) -> Interventions:
    """Return the interventions by position, with contexts if the fit is given them."""
    rows = simulation.interventions()
    return rows if run.fit["context"] else replace(rows, contexts={})


def _log(run: Run, simulation: Simulation) -> ClickLog:
    """Return the log of single displays, with contexts if the fit is given them."""
    return read_log(simulation.rows(seed=run.seed), context=simulation.context if run.fit["context"] else None)


@lru_cache(maxsize=1)
def _rows(log: Run) -> dict[str, NDArray[Any]]:
    """Return the columns of the rows with how likely each was examined, page by page from the top."""
    rows = simulate_run(log).rows(seed=log.seed, truth=True).sort_by(PAGE_ORDER)
    return {name: rows[name].to_numpy() for name in ("query", "doc", "position", "page", "examination")}
