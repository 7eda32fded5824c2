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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models import CLICK_MODELS, choose_click_model
from clickharvest.harvesting import Interventions
from clickharvest.simulate import Simulation
from experiments.families.models import CLICKSHARE, fit_interventions, fit_settings
from experiments.families.semi_synthetic import make_runs as make_plain_runs
from experiments.families.semi_synthetic import simulate_run
from experiments.runner.experiment import Plan
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Run

if TYPE_CHECKING:
    from clickharvest.logs import ClickLog

Array = NDArray[np.float64]
Rows = dict[str, NDArray[Any]]

FAMILY = "click_models"
EXAMINATION, AFFINE, BROWSING, READING, AUTO = "examination", "affine", "browsing", "reading", "auto"


def make_runs(
    plan: Plan, models: Sequence[str], *, seeds: int, sweeps: float, context: bool, **settings: Any
) -> list[Run]:
    """Return the runs of click models on logs of the protocol, the same as those of the semi-synthetic family.

    Args:
        plan: the plan.
        models: names of click models, or `auto`.
        seeds: number of seeds.
        sweeps: sweeps of the paper's log.
        context: whether fits are given the context columns.
        settings: further arguments of `simulate_protocol`.

    Example:
        >>> (run,) = make_runs(Plan(), ["affine"], seeds=1, sweeps=1, context=False, clicks="trust")
        >>> run.family, run["clicks"], run["model"], run["context"]
        ('click_models', 'trust', 'affine', False)
    """
    logs = make_plain_runs(plan, [CLICKSHARE], seeds=seeds, sweeps=sweeps, **settings)
    fits = [{"model": model, "context": context} for model in models]
    return [Run(FAMILY, one.world, one.seed, one.log, fit) for one in logs for fit in fits]


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Fit a click model to the run's log, and compare it with the truth."""
    simulation = simulate_run(run.group, source)
    model, why = run.fit["model"], None
    if model == AUTO:
        choice = choose_click_model(_log(run, source), seed=run.seed)
        model, why = choice.model, list(choice.why)
    judge = _row_errors if simulation.click_model.browses else _line_errors
    found = judge(run, source, model)
    told = {"chosen": model, "why": why} if why is not None else {}
    return {**found, "queries": len(simulation.train), "clicks": int(simulation.clicks.sum()), **told}


def _line_errors(run: Run, source: Path | None, model: str) -> Numbers:
    """Return the errors of slopes and of corrected clicks, where users trust what stands high.

    Models of pages have a propensity for every display, and no slopes.
    """
    simulation, rows = simulate_run(run.group, source), _rows(run.group, source, run.seed)
    curve, (query, k) = simulation.examination(simulation.train_contexts), (rows["query"], rows["position"] - 1)
    rates = [simulation.click_model.attraction(np.full(curve.shape[1], kind)) for kind in (False, True)]
    slopes: Array | None = None
    if model == AFFINE:
        (slope, intercept), (slopes, _) = _affine(run, simulation)
        divisor, offset = slope[query, k], intercept[query, k]
    elif model == EXAMINATION:
        here, slopes = _examination(run, simulation)
        divisor, offset = here[query, k], np.zeros(len(k))
    else:
        divisor, offset = _propensities(run, source, model), np.zeros(len(k))
    relevant = simulation.train.relevant[rows["doc"]]
    clicked, right = (curve[query, at] * np.where(relevant, rates[1][at], rates[0][at]) for at in (k, 0 * k))
    wrong = (((clicked - offset) / divisor - right) ** 2)[k > 0]
    found: Numbers = {"corrected": float(np.sqrt(np.mean(wrong[np.isfinite(wrong)])))}
    if slopes is None:
        return found | {"slope_error": None}
    steps = rates[1] - rates[0]
    truth = simulation.test_examination / simulation.test_examination[:, :1] * (steps / steps[0])
    by_position = np.abs(1 - slopes / truth).mean(axis=0)
    supported = np.isfinite(by_position)
    return found | {
        "slope_error": float(by_position.mean()) if supported.all() else None,
        "by_position": [float(e) if ok else None for e, ok in zip(by_position, supported, strict=True)],
        "unsupported": [int(k) for k in np.flatnonzero(~supported) + 1],
    }


def _affine(run: Run, simulation: Simulation) -> list[tuple[Array, Array]]:
    """Return slopes and offsets at the contexts of the log and at test contexts, NaN where not supported, [·, K]."""
    model = CLICK_MODELS[AFFINE]().fit(_positions(run, simulation))
    found, k = [], simulation.shown.shape[2]
    for contexts in (simulation.train_contexts, simulation.test_contexts):
        own = {name: np.repeat(contexts[:, j], k) for j, name in enumerate(simulation.context)}
        lines = model.lines(np.tile(np.arange(1, k + 1), len(contexts)), own)
        slope, offset = (np.where(lines.supported, line, np.nan) for line in (lines.slope, lines.offset))
        found.append((slope.reshape(-1, k), offset.reshape(-1, k)))
    return found


def _row_errors(run: Run, source: Path | None, model: str) -> Numbers:
    """Return the errors of the propensities of displays, where users browse."""
    rows = _rows(run.group, source, run.seed)
    top = rows["position"] == 1
    truth = rows["examination"] / rows["examination"][top][rows["page"]]
    estimate = _propensities(run, source, model)
    used = ~top & np.isfinite(estimate)
    p, found = truth[used], estimate[used]
    there = p > 0
    return {
        "impression_error": float(np.abs(1 - found[there] / p[there]).mean()),
        "seen_error": float(np.abs(found - p).sum() / p.sum()),
        "never_seen": float(np.mean(~there)),
        "without_estimate": int(np.count_nonzero(~top) - np.count_nonzero(used)),
    }


def _propensities(run: Run, source: Path | None, model: str) -> Array:
    """Return the propensity of every row; of models of pages the one that `weigh` gives it."""
    simulation, rows = simulate_run(run.group, source), _rows(run.group, source, run.seed)
    if model in (EXAMINATION, AFFINE):
        by_query = _examination(run, simulation)[0] if model == EXAMINATION else _affine(run, simulation)[0][0]
        known: Array = by_query[rows["query"], rows["position"] - 1]
        return known
    import pyarrow.parquet as pq

    log, kind = _log(run, source), CLICK_MODELS[model]
    one = kind(intervals=None, seed=run.seed)
    fitted = one.fit(one.harvest(log))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weighted.parquet"
        kind.weigh(log, fitted, path, clip=None, normalise=False, policy_aware=False)
        weighed = pq.read_table(path, columns=["page", "position", "propensity"])
    found: Array = weighed.sort_by([("page", "ascending"), ("position", "ascending")])["propensity"].to_numpy()
    return found


def _examination(run: Run, simulation: Simulation) -> tuple[Array, Array]:
    """Return the propensities of ClickShare at the contexts of the log, [n, K], and at test contexts, [m, K]."""
    settings = fit_settings(CLICKSHARE) if run.fit["context"] else {"estimator": "PBM", "options": {}}
    fitted = fit_interventions(settings, _positions(run, simulation), run.seed)
    found = []
    for contexts in (simulation.train_contexts, simulation.test_contexts):
        own = {name: contexts[:, j] for j, name in enumerate(simulation.context)}
        prediction = fitted.predict(own if run.fit["context"] else None)
        estimate = np.full((len(contexts), simulation.shown.shape[2]), np.nan)
        estimate[:, np.array(prediction.positions) - 1] = prediction.propensity
        found.append(estimate)
    return found[0], found[1]


def _positions(run: Run, simulation: Simulation) -> Interventions:
    """Return the interventions by position, with contexts if the fit is given them."""
    rows = simulation.interventions()
    return rows if run.fit["context"] else replace(rows, contexts={})


def _log(run: Run, source: Path | None) -> ClickLog:
    """Return the log of single displays, with contexts if the fit is given them."""
    from clickharvest.logs import read_log

    simulation = simulate_run(run.group, source)
    return read_log(simulation.rows(seed=run.seed), context=simulation.context if run.fit["context"] else None)


@lru_cache(maxsize=1)
def _rows(group: str, source: Path | None, seed: int) -> Rows:
    """Return the columns of the rows with how likely each was examined, page by page from the top."""
    rows = simulate_run(group, source).rows(seed=seed, truth=True)
    rows = rows.sort_by([("page", "ascending"), ("position", "ascending")])
    return {name: rows[name].to_numpy() for name in ("query", "doc", "position", "page", "examination")}
