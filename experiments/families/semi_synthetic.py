"""The family of the semi-synthetic runs: one log of the paper's protocol, one model, its errors on test contexts.

With p̂ and p relative to position 1, over test contexts x and positions k = 1 … K,

    rel_error         = mean |1 − p̂_k(x) / p_k(x)|
    rel_error_authors = mean |1 − p_k(x) / p̂_k(x)|, as the authors' code has it
    abs_log           = mean |log p̂_k(x) − log p_k(x)|.

The truth enters after the fit, here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting import Interventions
from clickharvest.model import ContextEncoder, Propensities
from clickharvest.simulate import Simulation, simulate_protocol
from experiments.families.authors_recipe import Looks, train_as_authors
from experiments.families.corpora import WHOLE, CorpusSource, load_corpus
from experiments.families.models import (
    AUTHORS,
    AUTHORS_ORACLE,
    BASELINES,
    fit_baseline,
    fit_interventions,
    fit_settings,
)
from experiments.runner.experiment import SYNTHETIC, Plan
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Results, Run

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


def make_runs(plan: Plan, models: Sequence[str], *, seeds: int, sweeps: float, **settings: Any) -> list[Run]:
    """Return the runs of models on logs of the protocol.

    The number of training queries (per ranker) is what the paper tells: `sweeps` times 11,473, whatever the number of
    queries of the corpus; in quick plans `sweeps` times `QUICK_QUERIES`.

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
    queries = QUICK_QUERIES if plan.quick else QUERIES
    log: dict[str, Any] = {"training_queries": round(sweeps * queries), "eta": 0.5, "zeta": 1.0, **settings}
    if plan.world == SYNTHETIC:
        log |= {"queries": queries, "test_queries": QUICK_TEST_QUERIES if plan.quick else TEST_QUERIES}
    return [
        Run(FAMILY, plan.world, seed, log, fit_settings(model)) for seed in range(seeds) for model in models
    ]  # fmt: skip


def is_judged(results: Results) -> bool:
    """Return whether the largest log is large enough to judge claims about the paper's networks."""
    return bool(max(results.settings("training_queries")) >= JUDGED_FROM)


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Fit the run's model to its log, and compare with the truth on test contexts."""
    simulation = simulate_run(run.group, source)
    if run.fit["model"] in (AUTHORS, AUTHORS_ORACLE):
        return _measure_authors(run, simulation, source)
    if run.fit["model"] in BASELINES:
        found = fit_baseline(run.fit["model"], simulation)
    else:
        found = fit_interventions(run.fit, _interventions(run.group, source), run.seed)
    return {
        **errors(predicted(found, simulation), simulation),
        "queries": len(simulation.train),
        "clicks": int(simulation.clicks.sum()),
        "curve": " ".join(str(value) for value in found.curve.spec.values()),
        **{name: found.info[name] for name in ("penalty", "relevance") if name in found.info},
    }


def predicted(found: Propensities, simulation: Simulation) -> Array:
    """Return the estimate at test contexts and positions 1 … K, NaN where there is none."""
    contexts = {name: simulation.test_contexts[:, j] for j, name in enumerate(simulation.context)}
    prediction = found.predict(contexts)
    estimate = np.full(simulation.test_examination.shape, np.nan)
    estimate[:, np.array(prediction.positions) - 1] = prediction.propensity
    return estimate


def errors(estimate: Array, simulation: Simulation) -> Numbers:
    """Return the errors of an estimate, and those by position; null where positions have no estimate."""
    truth = simulation.test_examination
    ratio = estimate / (truth / truth[:, :1])
    by_position = np.abs(1 - ratio).mean(axis=0)
    supported = np.isfinite(by_position)
    known = ratio[:, supported]
    means = {
        "rel_error": np.abs(1 - known).mean(),
        "rel_error_authors": np.abs(1 - 1 / known).mean(),
        "abs_log": np.abs(np.log(known)).mean(),
    }
    return {
        **{name: float(value) if supported.all() else None for name, value in means.items()},
        "by_position": [float(e) if ok else None for e, ok in zip(by_position, supported, strict=True)],
        "unsupported": [int(k) for k in np.flatnonzero(~supported) + 1],
    }


def _measure_authors(run: Run, simulation: Simulation, source: Path | None) -> Numbers:
    looks, positions = _authors(run.group, source)
    oracle = run.fit["model"] == AUTHORS_ORACLE
    estimate = np.full(simulation.test_examination.shape, np.nan)
    estimate[:, np.array(positions) - 1] = looks.oracle if oracle else looks.last
    return {
        **errors(estimate, simulation),
        "queries": len(simulation.train),
        "clicks": int(simulation.clicks.sum()),
        **({"chosen": looks.chosen} if oracle else {}),
    }


@lru_cache(maxsize=1)
def _authors(group: str, source: Path | None) -> tuple[Looks, tuple[int, ...]]:
    """Train the authors' networks on the log of a group: both of its rows are made of this."""
    from clickharvest.estimation import make_sample, supported_positions

    simulation, interventions = simulate_run(group, source), _interventions(group, source)
    positions = supported_positions(interventions, 1)
    fitted = ContextEncoder.fit(interventions.contexts)
    raw = ContextEncoder(tuple(replace(part, mean=0.0, sd=1.0) for part in fitted.parts))
    sample = make_sample(interventions, positions, raw)
    truth = simulation.test_examination[:, np.array(positions) - 1]
    contexts = {name: simulation.test_contexts[:, j] for j, name in enumerate(simulation.context)}
    seed = int(json.loads(group)["seed"])
    return train_as_authors(sample, raw.transform(contexts), truth / truth[:, :1], seed), positions


@lru_cache(maxsize=1)
def simulate_run(group: str, source: Path | None) -> Simulation:
    """Simulate the log that the runs of a group share; `group` is that of `Run`."""
    shared = json.loads(group)
    log, seed = shared["log"], shared["seed"]
    corpus = load_corpus(CorpusSource(shared["world"], source), log, rankers=MOST_RANKERS, seed=seed)
    return simulate_protocol(**WHOLE | log, positions=POSITIONS, seed=seed, corpus=corpus)


@lru_cache(maxsize=1)
def _interventions(group: str, source: Path | None) -> Interventions:
    return simulate_run(group, source).interventions()
