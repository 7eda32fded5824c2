"""The family of the semi-synthetic runs: one log of the paper's protocol, one model, its errors on test contexts.

With p̂ and p relative to position 1, over test contexts x and positions k = 1 … K,

    rel_error         = mean |1 − p̂_k(x) / p_k(x)|
    rel_error_authors = mean |1 − p_k(x) / p̂_k(x)|, as the authors' code has it
    abs_log           = mean |log p̂_k(x) − log p_k(x)|.

The truth enters after the fit, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation import make_sample, supported_positions
from clickharvest.harvesting import Interventions
from clickharvest.model import ContextEncoder, Propensities
from clickharvest.simulate import Simulation, simulate_protocol
from experiments.authors_recipe import Looks, train_as_authors
from experiments.corpora import corpus_of
from experiments.experiment import SYNTHETIC, Plan
from experiments.models import AUTHORS, AUTHORS_ORACLE, BASELINES, fit_baseline, fit_interventions, fit_settings
from experiments.runs import Numbers, Results, Run

Array = NDArray[np.float64]

FAMILY = "semi_synthetic"
QUERIES, TEST_QUERIES = 11_473, 2_000
"""Queries of a full log on the synthetic corpus, and those to measure errors on; LETOR corpora give all they have."""
QUICK_QUERIES, QUICK_TEST_QUERIES = 2_000, 400
POSITIONS = 10
MOST_RANKERS = 3
"""Rankers of any log; corpora have queries to train as many, so that the logs of a seed share a corpus."""
JUDGED_FROM = 50_000
"""Training queries from which on claims about the paper's networks are judged. With fewer distinct queries their error
says more of overfitting, and of when training stopped, than of the claim."""


def protocol_log(plan: Plan, sweeps: float, *, eta: float = 0.5, **settings: Any) -> dict[str, Any]:
    """Return the `log` of a run of the paper's protocol, by default at η = .5 and ζ = 1.

    The number of training queries (per ranker) is what the paper reports: `sweeps` times 11,473, whatever the number of
    queries of the corpus; in quick plans `sweeps` times `QUICK_QUERIES`.
    """
    queries = QUICK_QUERIES if plan.quick else QUERIES
    log: dict[str, Any] = {"training_queries": round(sweeps * queries), "eta": eta, "zeta": 1.0, **settings}
    if plan.world == SYNTHETIC:
        log |= {"queries": queries, "test_queries": QUICK_TEST_QUERIES if plan.quick else TEST_QUERIES}
    return log


def make_runs(plan: Plan, models: Sequence[str], *, seeds: int, sweeps: float, **settings: Any) -> list[Run]:
    """Return the runs of models on logs of the protocol.

    Args:
        plan: the plan.
        models: names of models.
        seeds: number of seeds, each with rankers, contexts and clicks of its own, and if synthetic a corpus.
        sweeps: sweeps of the paper's log.
        settings: further arguments of `simulate_protocol`, where they are not its defaults.

    Example:
        >>> runs = make_runs(Plan(), ["PBM"], seeds=2, sweeps=5, eta=1.0)
        >>> len(runs), runs[1].seed, runs[1]["training_queries"], runs[1]["eta"]
        (2, 1, 57365, 1.0)
    """
    log = protocol_log(plan, sweeps, **settings)
    return [
        Run(FAMILY, plan.world, seed, log, fit_settings(model), plan.source)
        for seed in range(seeds)
        for model in models
    ]


def is_judged(results: Results) -> bool:
    """Return whether the largest log is large enough to judge claims about the paper's networks."""
    return bool(max(results.settings("training_queries")) >= JUDGED_FROM)


def measure(run: Run) -> Numbers:
    """Fit the run's model to its log, and compare it with the truth on test contexts."""
    simulation, model = simulate_run(run.unfitted), run.fit["model"]
    details: Numbers
    if model in (AUTHORS, AUTHORS_ORACLE):
        looks, positions = _authors(run.unfitted)
        estimate = np.full(simulation.test_examination.shape, np.nan)
        estimate[:, np.array(positions) - 1] = looks.oracle if model == AUTHORS_ORACLE else looks.last
        details = {"chosen": looks.chosen} if model == AUTHORS_ORACLE else {}
    else:
        if model in BASELINES:
            fit = fit_baseline(model, simulation)
        else:
            fit = fit_interventions(run.fit, _interventions(run.unfitted), run.seed)
        estimate = predict(fit, simulation, simulation.test_contexts)
        details = {"curve": " ".join(str(value) for value in fit.curve.spec.values())}
        details |= {name: fit.info[name] for name in ("penalty", "relevance") if name in fit.info}
    counts = {"queries": len(simulation.train), "clicks": int(simulation.clicks.sum())}
    return {**errors(estimate, simulation), **counts, **details}


def predict(fit: Propensities, simulation: Simulation, contexts: Array | None) -> Array:
    """Return the estimate at contexts and positions 1 … K, NaN where there is none."""
    columns = None if contexts is None else {name: contexts[:, j] for j, name in enumerate(simulation.context)}
    prediction = fit.predict(columns)
    estimate = np.full((len(prediction.propensity), simulation.shown.shape[2]), np.nan)
    estimate[:, np.array(prediction.positions) - 1] = prediction.propensity
    return estimate


def errors(estimate: Array, simulation: Simulation) -> Numbers:
    """Return the errors of an estimate, and those by position; null where positions have no estimate."""
    truth = simulation.test_examination
    ratio = estimate / (truth / truth[:, :1])
    numbers = errors_by_position(ratio)
    known = ratio[:, np.isfinite(ratio).all(axis=0)]
    means = {
        "rel_error": np.abs(1 - known).mean(),
        "rel_error_authors": np.abs(1 - 1 / known).mean(),
        "abs_log": np.abs(np.log(known)).mean(),
    }
    return {name: None if numbers["unsupported"] else float(value) for name, value in means.items()} | numbers


def errors_by_position(ratio: Array) -> Numbers:
    """Return the mean of |1 − ratio| at each position, null where there is no estimate, and these positions."""
    by_position = np.abs(1 - ratio).mean(axis=0)
    supported = np.isfinite(by_position)
    return {
        "by_position": [float(e) if ok else None for e, ok in zip(by_position, supported, strict=True)],
        "unsupported": [int(k) for k in np.flatnonzero(~supported) + 1],
    }


@lru_cache(maxsize=1)
def _authors(log: Run) -> tuple[Looks, tuple[int, ...]]:
    """Train the authors' networks on a log: both of their models are made of this."""
    simulation, interventions = simulate_run(log), _interventions(log)
    positions = supported_positions(interventions, 1)
    encoder = ContextEncoder.fit(interventions.contexts)
    raw = ContextEncoder(tuple(replace(part, mean=0.0, sd=1.0) for part in encoder.parts))
    sample = make_sample(interventions, positions, raw)
    truth = simulation.test_examination[:, np.array(positions) - 1]
    contexts = {name: simulation.test_contexts[:, j] for j, name in enumerate(simulation.context)}
    return train_as_authors(sample, raw.transform(contexts), truth / truth[:, :1], log.seed), positions


@lru_cache(maxsize=1)
def simulate_run(log: Run) -> Simulation:
    """Simulate the log of a run."""
    whole = {"queries": None, "test_queries": None}
    corpus = corpus_of(log, rankers=MOST_RANKERS)
    return simulate_protocol(**whole | dict(log.log), positions=POSITIONS, seed=log.seed, corpus=corpus)


@lru_cache(maxsize=1)
def _interventions(log: Run) -> Interventions:
    return simulate_run(log).interventions()
