"""Why claims of the paper fail in the reproduction: tests of the causes that its page names.

    .venv/bin/python benchmarks/causes.py relevance --data ../shared/data/mq2007_part.txt.gz    # 2 minutes, 16 cores
    .venv/bin/python benchmarks/causes.py learning --sweeps 5 50 --jobs 16                      # 10 minutes, 16 cores

`relevance` (fig-rel, networks with hidden layers of 12): the reduction of RelError by a context-dependent g, with one
thing changed at a time, and by figures that a few test contexts cannot make.

`learning` (fig-learn, LightGBM on the synthetic corpus): AvgRank with true propensities, tempered p^a: a = 1 are the
true ones, a = 0 clicks at face value. The effective sample size tells how unequal the weights 1 / p^a are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clickharvest.rank import ranking_metrics
from experiments import Plan, learning, semi_synthetic
from experiments.models import CPBM, HIDDEN_CONSTANT, HIDDEN_NETWORK, PBM, fit_interventions

Array = NDArray[np.float64]
Table = dict[str, list[Any]]

SEEDS, ZETAS, SWEEPS = 6, (0.0, 0.5, 1.0), 5
FEW = 982
"""Training queries that mq2007_part leaves for a log."""
VARIANTS: dict[str, dict[str, Any]] = {
    "as in fig-rel": {},
    "best of five starts": {"starts": 5},
    "ten times the clicks": {"sweeps": 10 * SWEEPS},
    "ridge of 10": {"penalty": 10.0},
    "ridge of 100": {"penalty": 100.0},
    "synthetic, 11,473 queries": {"world": "synthetic"},
    f"synthetic, {FEW} queries": {"world": "synthetic", "queries": FEW},
}
"""What is changed of fig-rel on mq2007_part."""
POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)
TRAINING_SEEDS = (1, 2)
"""Further seeds of LightGBM alone, on the same clicks and true propensities."""


def relevance_errors(task: tuple[str, float, int], data: Path) -> list[Array]:
    """Return |1 − p̂/p| of the constant and the network g, [contexts, K], on test contexts and on those of the log."""
    name, zeta, seed = task
    options = dict(VARIANTS[name])
    world, sweeps = options.pop("world", "mq2007_part"), options.pop("sweeps", SWEEPS)
    settings = {key: options.pop(key) for key in ("queries",) if key in options}
    errors = []
    for model in (HIDDEN_CONSTANT, HIDDEN_NETWORK):
        plan = Plan(world=world, source=None if world == "synthetic" else data)
        run = semi_synthetic.make_runs(plan, [model], seeds=seed + 1, sweeps=sweeps, eta=1.0, zeta=zeta)[-1]
        run = replace(run, log={**run.log, **settings})
        simulation = semi_synthetic.simulate_run(run.unfitted)
        fit = dict(run.fit) | {"options": run.fit["options"] | options}
        found = fit_interventions(fit, simulation.interventions(), seed)
        for contexts, truth in (
            (simulation.test_contexts, simulation.test_examination),
            (simulation.train_contexts, simulation.train_examination),
        ):
            columns = {name: contexts[:, j] for j, name in enumerate(simulation.context)}
            errors.append(np.abs(1 - found.predict(columns).propensity / (truth / truth[:, :1])))
    return errors


def relevance(data: Path, jobs: int) -> None:
    """Print the slope in ζ and the reductions by each variant and each way to average over contexts."""
    tasks = [(name, zeta, seed) for name in VARIANTS for zeta in ZETAS for seed in range(SEEDS)]
    found = dict(zip(tasks, run_all(partial(relevance_errors, data=data), tasks, jobs), strict=True))
    averages: dict[str, Callable[[Array], float]] = {
        "mean": lambda errors: float(errors.mean()),
        "without the worst 1 %": lambda errors: float(
            np.sort(errors.mean(axis=1))[: -max(1, len(errors) // 100)].mean()
        ),
        "median": lambda errors: float(np.median(errors.mean(axis=1))),
    }
    print(f"{'variant':26} {'contexts':10} {'average':22} {'slope':>7} {'± se':>6}  reduction at ζ = {ZETAS}; RelError")
    for name in VARIANTS:
        for where, first in (("test", 0), ("of the log", 1)):
            for how, average in averages.items():
                by_zeta = np.array(
                    [[[average(found[name, z, s][i]) for i in (first, first + 2)] for z in ZETAS] for s in range(SEEDS)]
                )
                reduction = by_zeta[..., 0] - by_zeta[..., 1]
                slopes = np.polyfit(ZETAS, reduction.T, 1)[0]
                means = ", ".join(f"{value:+.3f}" for value in reduction.mean(axis=0))
                levels = " / ".join(f"{value:.3f}" for value in by_zeta.mean(axis=(0, 1)))
                error = slopes.std(ddof=1) / SEEDS**0.5
                print(
                    f"{name:26} {where:10} {how:22} {slopes.mean():+7.3f} {error:6.3f}  {means}; {levels}", flush=True
                )


def learned(task: tuple[str, float, int, int, float]) -> tuple[float, float]:
    """Return AvgRank on test queries, and the effective share of the clicks, of one seed and one kind of weights."""
    model, power, seed, training_seed, sweeps = task
    run = learning.make_runs(Plan(), [model], learning.LIGHTGBM, seeds=seed + 1, sweeps=sweeps, eta=10.0)[-1]
    simulation = learning.simulate_run(run.unfitted)
    propensity = learning.propensities(run.unfitted, model) ** power
    scores, _ = learning._lightgbm(simulation, propensity, run.fit, seed + 100 * training_seed)
    test = simulation.test
    ranks = ranking_metrics(scores, test.grades, test.starts, ("avg_rank",), threshold=test.threshold)["avg_rank"]
    data = learning.click_data(simulation, propensity)
    weight = 1 / np.maximum(data.propensity, 1 / data.clicks.sum() ** 0.5)
    effective = (data.clicks * weight).sum() ** 2 / (data.clicks * weight**2).sum() / data.clicks.sum()
    return float(ranks.mean()), float(effective)


def learn(jobs: int, sweeps: Sequence[float]) -> None:
    """Print AvgRank and the effective share of the clicks by kind of weights, and differences to true propensities."""
    kinds = [(learning.TRUE, power, 0) for power in POWERS]
    kinds += [(learning.TRUE, 1.0, seed) for seed in TRAINING_SEEDS] + [(CPBM, 1.0, 0), (PBM, 1.0, 0)]
    tasks = [
        (model, power, seed, training_seed, amount)
        for amount in sweeps
        for model, power, training_seed in reversed(kinds)
        for seed in range(SEEDS)
    ]
    found = dict(zip(tasks, run_all(learned, tasks, jobs), strict=True))
    print("sweeps weights                             AvgRank difference   ± se its size effective clicks")
    for amount in sweeps:
        true = np.array([found[learning.TRUE, 1.0, seed, 0, amount][0] for seed in range(SEEDS)])
        for model, power, training_seed in kinds:
            own = np.array([found[model, power, seed, training_seed, amount] for seed in range(SEEDS)])
            gap = own[:, 0] - true
            what = model + f" ^ {power:g}" * (power != 1) + f", training seed {training_seed}" * (training_seed > 0)
            error = gap.std(ddof=1) / SEEDS**0.5
            (mean, effective), size = own.mean(axis=0), abs(gap).mean()
            print(f"{amount:6g} {what:34} {mean:8.3f} {gap.mean():+10.3f} {error:6.3f} {size:8.3f} {effective:16.1%}")


def run_all(function: Callable[[Any], Any], tasks: Sequence[Any], jobs: int) -> list[Any]:
    """Return what a function makes of every task, in processes."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, tasks))


def main() -> None:
    """Print the figures that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("relevance", "learning"))
    parser.add_argument("--data", type=Path, help="the corpus mq2007_part, for relevance")
    parser.add_argument("--sweeps", type=float, nargs="+", default=[SWEEPS], help="amounts of clicks, for learning")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    if options.what == "learning":
        learn(options.jobs, options.sweeps)
    elif options.data is None:
        parser.error("relevance needs --data mq2007_part.txt.gz")
    else:
        relevance(options.data, options.jobs)


if __name__ == "__main__":
    main()
