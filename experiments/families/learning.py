"""The family of the learning runs: one log of the paper's protocol, propensities, a ranker, its AvgRank.

Both rankers of the protocol show all documents of a query, and examination stays as it is from position 21 on. The
propensities of positions 1 to 21 are estimated from the interventions there, those beyond are p_21. A ranker learns
from the clicks weighted by 1 / p, and is judged on test queries by their true relevance,

    AvgRank = mean over test queries of Σ_d rank(d) · rel(d).

Relevance and true propensities enter there and in the run that is given them, nowhere else: hyper-parameters are
chosen by the SNIPS rank of held-out clicks, weighted by the run's own propensities.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model import Propensities
from clickharvest.rank import PropensitySVMRank, PropensitySVMRankCV, RankingData, ranking_data, ranking_metrics
from clickharvest.simulate import Simulation, simulate_protocol
from experiments.families.corpora import WHOLE, CorpusSource, load_corpus
from experiments.families.models import fit_interventions, fit_settings
from experiments.families.semi_synthetic import QUERIES, QUICK_QUERIES, QUICK_TEST_QUERIES, TEST_QUERIES
from experiments.runner.experiment import SYNTHETIC, Plan
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Run

FAMILY = "learning"
NAIVE, TRUE = "naive clicks", "true propensities"
SVM, LIGHTGBM = "svm", "lightgbm"
LAST = 21
"""The last position with a propensity of its own."""
LEAST = 1e-9
"""Estimates below it, which may be 0 in floating point, count as this; every clip is far above."""
LEARNERS: dict[str, dict[str, Any]] = {
    SVM: {
        "costs": [0.1, 1.0, 10.0, 100.0],
        "clips": [0.01, 0.03, 0.1, 0.3],
        "folds": 3,
        "search_queries": 6_000,
        "tol": 1e-4,
    },
    LIGHTGBM: {"rounds": 100, "leaves": 15, "rate": 0.3, "patience": 10, "held_out": 0.2},
}
"""How each learner learns: SVM-Rank with C and clip by cross-validation on a sample of the queries; LightGBM with
our pairwise objective, stopped early on a fifth of the queries, and a clip of 1 / √clicks."""
QUICK = {"costs": [1.0, 10.0], "clips": [0.03, 0.3], "folds": 2, "tol": 1e-3}
"""How SVM-Rank learns in quick plans."""


def make_runs(
    plan: Plan, models: Sequence[str], *, learners: Sequence[str], seeds: int, sweeps: float, eta: float
) -> list[Run]:
    """Return the runs of learners with propensities from models; learners of one model follow each other.

    Example:
        >>> runs = make_runs(Plan(), ["PBM", TRUE], learners=[SVM], seeds=2, sweeps=5, eta=10.0)
        >>> len(runs), runs[1]["model"], runs[1]["learner"], runs[1]["training_queries"]
        (4, 'true propensities', 'svm', 57365)
    """
    queries = QUICK_QUERIES if plan.quick else QUERIES
    log: dict[str, Any] = {"training_queries": round(sweeps * queries), "eta": eta, "zeta": 1.0, "flat_from": LAST}
    if plan.world == SYNTHETIC:
        log |= {"queries": queries, "test_queries": QUICK_TEST_QUERIES if plan.quick else TEST_QUERIES}
    hasty = QUICK if plan.quick else {}
    return [
        Run(FAMILY, plan.world, seed, log, _estimate(model) | {"learner": learner, **LEARNERS[learner], **hasty})
        for seed in range(seeds)
        for model in models
        for learner in learners
    ]


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Learn a ranker from the run's clicks and propensities, and return its AvgRank on test queries."""
    simulation = simulate_run(run.group, source)
    propensity = _propensities(run.group, json.dumps(_estimate(run.fit["model"])), source)
    learn = {SVM: _svm, LIGHTGBM: _lightgbm}[run.fit["learner"]]
    scores, chosen = learn(simulation, propensity, run.fit, run.seed)
    test = simulation.test
    found = ranking_metrics(scores, test.grades, test.starts, ("avg_rank",), threshold=test.threshold)["avg_rank"]
    return {
        "avg_rank": float(found.mean()),
        "queries": len(simulation.train),
        "test_queries": len(test),
        "clicks": int(simulation.clicks.sum()),
        "chosen": chosen,
    }


def click_data(simulation: Simulation, propensity: NDArray[np.float64], queries: int | None = None) -> RankingData:
    """Return the lists of the first queries with all their documents, and the clicks of all displays.

    Args:
        simulation: the log.
        propensity: of every query and position, [n, K].
        queries: how many queries, whose order is random; all by default.
    """
    end = len(simulation.train) if queries is None else min(queries, len(simulation.train))
    ranker, query, place = np.nonzero(simulation.clicks[:, :end])
    starts = simulation.train.starts[: end + 1]
    return ranking_data(
        simulation.train.features[: starts[-1]],
        starts,
        simulation.shown[ranker, query, place],
        np.maximum(propensity[query, place], LEAST),
        clicks=simulation.clicks[ranker, query, place],
    )


def spread(found: Propensities, simulation: Simulation) -> NDArray[np.float64]:
    """Return the estimate for every training query and position, [n, K].

    A position without an estimate, of its own or because it is beyond 21, has that of the last one above.
    """
    contexts = {name: simulation.train_contexts[:, j] for j, name in enumerate(simulation.context)}
    prediction = found.predict(contexts)
    estimate = np.full((len(simulation.train), LAST), np.nan)
    estimate[:, np.array(prediction.positions) - 1] = prediction.propensity
    known = np.where(np.isfinite(estimate[0]), np.arange(LAST), 0)
    last = np.minimum(np.arange(simulation.shown.shape[2]), LAST - 1)
    return np.asarray(estimate[:, np.maximum.accumulate(known)[last]])


@lru_cache(maxsize=1)
def simulate_run(group: str, source: Path | None) -> Simulation:
    """Simulate the log that the runs of a group share; `group` is that of `Run`."""
    shared = json.loads(group)
    log, seed = shared["log"], shared["seed"]
    corpus = load_corpus(CorpusSource(shared["world"], source), log, rankers=2, seed=seed)
    return simulate_protocol(**WHOLE | log, positions=int(corpus.sizes.max()), seed=seed, corpus=corpus)


def _svm(
    simulation: Simulation, propensity: NDArray[np.float64], fit: Mapping[str, Any], seed: int
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Return the test scores of Propensity SVM-Rank, and the C and clip that cross-validation chose."""
    clips = fit["clips"][:1] if fit["model"] == NAIVE else fit["clips"]  # no propensity of 1 is ever clipped
    search = PropensitySVMRankCV(costs=fit["costs"], clips=clips, folds=fit["folds"], tol=fit["tol"], seed=seed)
    search.fit(click_data(simulation, propensity, fit["search_queries"]))
    ranker = PropensitySVMRank(C=search.C_, clip=search.clip_, tol=fit["tol"])
    ranker.fit(click_data(simulation, propensity))
    return ranker.predict(simulation.test.features), {"C": search.C_, "clip": search.clip_}


def _lightgbm(
    simulation: Simulation, propensity: NDArray[np.float64], fit: Mapping[str, Any], seed: int
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Return the test scores of LightGBM with our objective, and the clip and number of trees."""
    from clickharvest.rank import BoostSettings, train_ranker

    settings = BoostSettings(**{name: fit[name] for name in LEARNERS[LIGHTGBM]}, seed=seed)
    ranker = train_ranker(click_data(simulation, propensity), LIGHTGBM, settings=settings, seed=seed)
    chosen = {"clip": ranker.settings["clip"], "trees": ranker.model.best_iteration}
    return ranker.predict(simulation.test.features), chosen


def _estimate(model: str) -> dict[str, Any]:
    return {"model": model} if model in (NAIVE, TRUE) else fit_settings(model)


@lru_cache(maxsize=1)
def _propensities(group: str, estimate: str, source: Path | None) -> NDArray[np.float64]:
    """Return the propensities that a run learns with, [n, K]."""
    simulation, fit = simulate_run(group, source), json.loads(estimate)
    if fit["model"] == TRUE:
        return simulation.train_examination
    if fit["model"] == NAIVE:
        return np.ones(simulation.train_examination.shape)
    first = replace(simulation, shown=simulation.shown[:, :, :LAST], clicks=simulation.clicks[:, :, :LAST])
    return spread(fit_interventions(fit, first.interventions(), json.loads(group)["seed"]), simulation)
