"""fig-learn, and its family: one log of the paper's protocol, propensities, a ranker, its AvgRank.

Both rankers of the protocol show all documents of a query, and examination stays as it is from position 21 on. The
propensities of positions 1 to 21 are estimated from the interventions there, those beyond are p_21. A ranker learns
from the clicks weighted by 1 / p, and is judged on test queries by their true relevance,

    AvgRank = mean over test queries of Σ_d rank(d) · rel(d).

Relevance and true propensities enter there and in the run that is given them, nowhere else: hyper-parameters are
chosen by the SNIPS rank of held-out clicks, weighted by the run's own propensities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp, wilcoxon

from clickharvest.model import Propensities
from clickharvest.rank import (
    BoostSettings,
    PropensitySVMRank,
    PropensitySVMRankCV,
    RankingData,
    ranking_data,
    ranking_metrics,
    train_ranker,
)
from clickharvest.simulate import Simulation, simulate_protocol
from experiments.charts import bar_chart, line_chart
from experiments.corpora import corpus_of
from experiments.experiment import Check, Experiment, Headline, Plan, Row
from experiments.models import CLICKSHARE, CPBM, PBM, fit_interventions, fit_settings
from experiments.runs import Numbers, Result, Results, Run
from experiments.semi_synthetic import protocol_log

Array = NDArray[np.float64]

FAMILY = "learning"
NAIVE, TRUE = "naive clicks", "true propensities"
MODELS = (NAIVE, PBM, CPBM, CLICKSHARE, TRUE)
SVM, LIGHTGBM = "svm", "lightgbm"
TITLES = {SVM: "SVM-Rank", LIGHTGBM: "LightGBM"}
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
LEVEL = 0.05
"""The p-value below which a difference is no tie."""
CAUSES = {
    ("synthetic", LIGHTGBM): "trees do not learn best from true propensities, whose weights leave 2.8 % of the clicks "
    "effective. From their square roots AvgRank is lower by 1.79 ± 0.20; both models lower it as well, the CPBM by "
    "more, which counts as distance. With ten times the clicks the CPBM ranks better than true propensities by 0.59, "
    "the PBM worse by 0.59. Part is noise: another seed of LightGBM alone moves AvgRank by 0.20 ± 0.36 "
    "(benchmarks/causes.py)"
}
"""Why claims on the CPBM fail, by world and learner."""


def make_runs(plan: Plan, models: Sequence[str], learner: str, *, seeds: int, sweeps: float, eta: float) -> list[Run]:
    """Return the runs of a learner with propensities from models.

    Example:
        >>> runs = make_runs(Plan(), ["PBM", TRUE], SVM, seeds=2, sweeps=5, eta=10.0)
        >>> len(runs), runs[1]["model"], runs[1]["learner"], runs[1]["training_queries"]
        (4, 'true propensities', 'svm', 57365)
    """
    log = protocol_log(plan, sweeps, eta=eta, flat_from=LAST)
    settings = {"learner": learner, **LEARNERS[learner], **(QUICK if plan.quick else {})}
    return [
        Run(FAMILY, plan.world, seed, log, fit_settings(model) | settings, plan.source)
        for seed in range(seeds)
        for model in models
    ]


def measure(run: Run) -> Numbers:
    """Learn a ranker from the run's clicks and propensities, and return its AvgRank on test queries."""
    simulation = simulate_run(run.unfitted)
    propensity = propensities(run.unfitted, run.fit["model"])
    learn = {SVM: _svm, LIGHTGBM: _lightgbm}[run.fit["learner"]]
    scores, chosen = learn(simulation, propensity, run.fit, run.seed)
    test = simulation.test
    ranks = ranking_metrics(scores, test.grades, test.starts, ("avg_rank",), threshold=test.threshold)["avg_rank"]
    return {
        "avg_rank": float(ranks.mean()),
        "queries": len(simulation.train),
        "test_queries": len(test),
        "clicks": int(simulation.clicks.sum()),
        "chosen": chosen,
    }


@lru_cache(maxsize=1)
def simulate_run(log: Run) -> Simulation:
    """Simulate the log of a run."""
    corpus = corpus_of(log, rankers=2)
    whole = {"queries": None, "test_queries": None}
    return simulate_protocol(**whole | dict(log.log), positions=int(corpus.sizes.max()), seed=log.seed, corpus=corpus)


@lru_cache(maxsize=len(MODELS))
def propensities(log: Run, model: str) -> Array:
    """Return the propensities of a model for a log, [n, K]."""
    simulation = simulate_run(log)
    if model == TRUE:
        return simulation.train_examination
    if model == NAIVE:
        return np.ones(simulation.train_examination.shape)
    first = replace(simulation, shown=simulation.shown[:, :, :LAST], clicks=simulation.clicks[:, :, :LAST])
    return spread(fit_interventions(fit_settings(model), first.interventions(), log.seed), simulation)


def spread(fit: Propensities, simulation: Simulation) -> Array:
    """Return the estimate for every training query and position, [n, K].

    A position without an estimate, of its own or because it is beyond 21, has that of the last one above.
    """
    contexts = {name: simulation.train_contexts[:, j] for j, name in enumerate(simulation.context)}
    prediction = fit.predict(contexts)
    estimate = np.full((len(simulation.train), LAST), np.nan)
    estimate[:, np.array(prediction.positions) - 1] = prediction.propensity
    known = np.where(np.isfinite(estimate[0]), np.arange(LAST), 0)
    last = np.minimum(np.arange(simulation.shown.shape[2]), LAST - 1)
    return np.asarray(estimate[:, np.maximum.accumulate(known)[last]])


def click_data(simulation: Simulation, propensity: Array, queries: int | None = None) -> RankingData:
    """Return the lists of the first queries (whose order is random) with all their documents, and their clicks.

    Args:
        simulation: the log.
        propensity: of every query and position, [n, K].
        queries: how many queries; all by default.
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


def _svm(simulation: Simulation, propensity: Array, fit: Mapping[str, Any], seed: int) -> tuple[Array, Numbers]:
    """Return the test scores of Propensity SVM-Rank, and the C and clip that cross-validation chose."""
    clips = fit["clips"][:1] if fit["model"] == NAIVE else fit["clips"]  # no propensity of 1 is ever clipped
    search = PropensitySVMRankCV(costs=fit["costs"], clips=clips, folds=fit["folds"], tol=fit["tol"], seed=seed)
    search.fit(click_data(simulation, propensity, fit["search_queries"]))
    ranker = PropensitySVMRank(C=search.C_, clip=search.clip_, tol=fit["tol"])
    ranker.fit(click_data(simulation, propensity))
    return ranker.predict(simulation.test.features), {"C": search.C_, "clip": search.clip_}


def _lightgbm(simulation: Simulation, propensity: Array, fit: Mapping[str, Any], seed: int) -> tuple[Array, Numbers]:
    """Return the test scores of LightGBM with our objective, and the clip and number of trees."""
    settings = BoostSettings(**{name: fit[name] for name in LEARNERS[LIGHTGBM]}, seed=seed)
    ranker = train_ranker(click_data(simulation, propensity), LIGHTGBM, settings=settings, seed=seed)
    chosen = {"clip": ranker.settings["clip"], "trees": ranker.model.best_iteration}
    return ranker.predict(simulation.test.features), chosen


def runs(plan: Plan) -> list[Run]:
    """Return one, two and five sweeps at η=10 and ζ=1; LightGBM with most data in full runs, where it is installed."""
    if plan.quick:
        return make_runs(plan, MODELS, SVM, seeds=1, sweeps=5, eta=10.0)
    sizes = [(SVM, 1), (SVM, 2), (SVM, 5), *([(LIGHTGBM, 5)] if find_spec("lightgbm") else [])]
    return [run for learner, s in sizes for run in make_runs(plan, MODELS, learner, seeds=6, sweeps=s, eta=10.0)]


def differences(results: Results) -> Results:
    """Return AvgRank minus that with true propensities on the same log, run by run, and its absolute value."""
    gaps = []
    for r in results:
        log = {name: r.run[name] for name in ("learner", "training_queries", "seed")}
        best = results.where(model=TRUE, **log).values("avg_rank")
        rank = r.numbers.get("avg_rank")
        gap = rank - best[0] if rank is not None and best else None
        gaps.append(Result(r.run, {"difference": gap, "size": None if gap is None else abs(gap)}))
    return Results(gaps)


def cells(results: Results) -> list[dict[str, Any]]:
    """Return the learners and sizes of results."""
    pairs = dict.fromkeys((r.run["learner"], r.run["training_queries"]) for r in results)
    return [{"learner": learner, "training_queries": size} for learner, size in pairs]


def rows(results: Results) -> list[Row]:
    """Return one row per learner, size and propensities."""
    gaps = differences(results)
    table: list[Row] = []
    for cell in cells(results):
        for model in results.settings("model"):
            ranks, gap = results.where(model=model, **cell), gaps.where(model=model, **cell)
            table.append(
                {
                    "learner": TITLES[cell["learner"]],
                    "training queries": cell["training_queries"],
                    "propensities": model,
                    "AvgRank": ranks.mean("avg_rank"),
                    "difference": gap.mean("difference"),
                    "sd": gap.sd("difference"),
                    "mean |difference|": gap.mean("size"),
                    "p against PBM": paired_test(gap, gaps.where(model=PBM, **cell)),
                    "p against CPBM": paired_test(gap, gaps.where(model=CPBM, **cell)),
                    "runs": len(gap.values("difference")),
                    "clicks": round(ranks.mean("clicks")) if ranks.values("clicks") else None,
                }
            )
    return table


def paired_test(one: Results, other: Results, *, ranks: bool = False) -> float | None:
    """Return the two-sided p-value of a paired test on |difference|, over the seeds that both have.

    Args:
        one: some of `differences`.
        other: those to compare with.
        ranks: Wilcoxon's signed-rank test, which one extreme run cannot sway, instead of the t-test.

    Example:
        >>> def results(model, values):
        ...     runs = [Run(FAMILY, "w", seed, {}, {"model": model}) for seed in range(len(values))]
        ...     return Results(Result(run, {"size": v}) for run, v in zip(runs, values))
        >>> one, other = results("a", [1.0, 2.0, 3.0]), results("b", [0.0, 1.5, 2.5])
        >>> round(paired_test(one, other), 3), paired_test(one, other, ranks=True)
        (0.057, 0.25)
        >>> paired_test(results("a", [1.0]), results("b", [0.5])) is None
        True
    """
    sizes = [{r.run.seed: r.numbers["size"] for r in part if r.numbers["size"] is not None} for part in (one, other)]
    gaps = [sizes[0][seed] - sizes[1][seed] for seed in sizes[0] if seed in sizes[1]]
    if len(gaps) < 2 or len(set(gaps)) == 1:
        return None
    return float((wilcoxon(gaps) if ranks else ttest_1samp(gaps, 0.0)).pvalue)


def headlines(results: Results) -> list[Headline]:
    """Return the differences at each size; the paper shows them in a figure, without numbers."""
    lines = []
    for cell in cells(results):
        pairs, shares = (differences(results.where(**cell)).where(model=model) for model in (CPBM, CLICKSHARE))
        what = f"AvgRank − that with true propensities, {TITLES[cell['learner']]}, {cell['training_queries']:,} queries"
        lines.append(Headline.of(what, "difference", pairs, shares))
    return lines


def checks(results: Results) -> list[Check]:
    """Return: at the largest size the CPBM is closer to true propensities than the PBM, ClickShare than the CPBM.

    The last is judged over several runs only: both are so close that one run shows noise.
    """
    gaps = differences(results).where(training_queries=max(results.settings("training_queries")))
    pairs = [(CPBM, PBM), (CLICKSHARE, PBM), (CLICKSHARE, CPBM), (CLICKSHARE, NAIVE)]
    if len(results.settings("seed")) == 1:
        pairs.remove((CLICKSHARE, CPBM))
    learners = results.settings("learner")
    return [_closer(gaps.where(learner=learner), near, far, learner) for learner in learners for near, far in pairs]


def _closer(gaps: Results, near: str, far: str, learner: str) -> Check:
    """Compare the mean |difference| of two models; ClickShare need only match the CPBM.

    To match is not to be further away by a difference that a paired t-test finds at `LEVEL`.
    """
    parts = {model: gaps.where(model=model) for model in (near, far)}
    numbers = ", ".join(
        f"{model} {part.mean('size'):.3f} (difference {part.mean('difference'):+.3f})" for model, part in parts.items()
    )
    p, by_ranks = (paired_test(parts[near], parts[far], ranks=ranks) for ranks in (False, True))
    may_match = (near, far) == (CLICKSHARE, CPBM)
    passed = parts[near].mean("size") < parts[far].mean("size") or (may_match and p is not None and p >= LEVEL)
    comparison = (
        "at least as close to true propensities as with" if may_match else "closer to true propensities than with"
    )
    test = "" if p is None else f"; paired t-test p = {p:.2g}, Wilcoxon's p = {by_ranks:.2g}"
    runs = min(len(part.values("size")) for part in parts.values())
    return Check(
        f"{TITLES[learner]} with {near} is {comparison} {far}",
        passed,
        f"mean |difference| in AvgRank over {runs} runs: {numbers}{test}",
        CAUSES.get((gaps[0].run.world, learner), "") if (near, far) == (CPBM, PBM) else "",
    )


def chart(results: Results) -> Any:
    """Return the difference by the number of training queries, one line per propensities; bars where it is one."""
    import altair as alt

    gaps = differences(results)
    charts = []
    for learner in results.settings("learner"):
        points = [
            {"model": model, "size": size, "mean": part.mean("difference"), "sd": part.sd("difference")}
            for size in results.settings("training_queries")
            for model in MODELS
            if model != TRUE
            and (part := gaps.where(learner=learner, training_queries=size, model=model)).values("difference")
        ]
        title = f"AvgRank − AvgRank with true propensities, {TITLES[learner]}"
        if len({point["size"] for point in points}) > 1:
            charts.append(line_chart(points, x="size", x_title="training queries", y_title=title))
        else:
            charts.append(bar_chart(points, y_title=title))
    return alt.vconcat(*charts).resolve_scale(color="independent") if len(charts) > 1 else charts[0]


EXPERIMENTS = [
    Experiment(
        id="fig-learn",
        runs=runs,
        rows=rows,
        headlines=headlines,
        checks=checks,
        chart=chart,
    )
]
