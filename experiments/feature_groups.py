"""table-max, and its family: which groups of query features tell how far down users read, judged on unseen queries.

Queries are in three parts: training (80 %), validation and test (10 % each). What there is to choose is fitted to the
training part and chosen on the validation part; what was chosen is fitted to both, and so is the PBM. Their objectives
on the test part are sums over its queries, and

    gain = Σ_q (l_q − l_q of the PBM),    se of the gain = √(n · variance over the n test queries).

The objective of AllPairs also rewards what features tell of relevance; that of ClickShare is free of relevance, and
rewards what they tell of examination alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation import (
    AllPairs,
    ClickShare,
    Fit,
    RobustPairs,
    Sample,
    fit_robust_pairs,
    make_sample,
    supported_positions,
)
from clickharvest.model import ContextEncoder, flatten_params, make_curve
from clickharvest.model.curves import MLP
from clickharvest.simulate import GROUPS, QUERIES, SPLITS
from experiments.arxiv import WORLD, arxiv_log
from experiments.charts import interval_bars
from experiments.experiment import Check, Experiment, Headline, Plan, Row
from experiments.models import CLICKSHARE
from experiments.runs import Numbers, Results, Run

Array = NDArray[np.float64]

FAMILY = "feature_groups"
ALLPAIRS = "CPBM AllPairs, ridges"
"""The ridges and relevance models of the robust recipe, chosen by AllPairs on the validation part."""
NOTHING, ALL = "PBM", "all"
FEATURES: dict[str, tuple[str, ...]] = {NOTHING: (), **{group: (group,) for group in GROUPS}, ALL: GROUPS}
TRAIN, VALIDATION, TEST = range(len(SPLITS))
Z = 1.96
PAPER = {
    NOTHING: -13926.18,
    "category": -12622.96,
    "query_len": -12674.8,
    "ord_in_session": -13205.21,
    "results": -13241.28,
    "result_dist": -12901.94,
    ALL: -12306.52,
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    ALLPAIRS: {},
    CLICKSHARE: {
        "curves": [{"name": "power"}, {"name": "linear"}, {"name": "lowrank", "rank": 1}],
        "penalties": [10.0, 100.0, 1000.0],
        "tolerance": 1e-5,
    },
}
"""What the validation part chooses among, where that is not the estimator's own recipe."""
SHARE = {ALLPAIRS: 0.1, CLICKSHARE: 1.0}
"""Share of the pages that are fitted to; all test pages are judged on."""


def measure(run: Run) -> Numbers:
    """Choose on the validation part, fit to it and to the training part, and compare with the PBM on the test part."""
    sample, part = _sample(run)
    pairs = run["model"] == ALLPAIRS
    by_pbm = _pbm_pairs(sample, part) if pairs else _chosen_shares(run, sample, part, [{"name": "constant"}], [0.0])[0]
    details: Numbers
    if run["features"] == NOTHING:
        by_query, details = by_pbm, {"curve": "constant"}
    elif pairs:
        by_query, details = _chosen_pairs(sample, part)
    else:
        by_query, details = _chosen_shares(run, sample, part, run["curves"], run["penalties"])
    gains = by_query - by_pbm
    return {
        "objective": float(by_query.sum()),
        "gain": float(gains.sum()),
        "gain_se": float(gains.std() * len(gains) ** 0.5),
        **details,
    }


def _chosen_shares(
    run: Run, sample: Sample, part: NDArray[np.int64], shapes: list[dict[str, Any]], penalties: list[float]
) -> tuple[Array, Numbers]:
    """Return the ClickShare objective of every test query by the best of some curves and penalties, and which it is."""
    objective = ClickShare(sample)
    count, strengths = len(penalties), np.array(penalties)
    train, validation = (np.tile((part == one).astype(float), (count, 1)) for one in (TRAIN, VALIDATION))
    best, least = None, -np.inf
    for shape in shapes:
        curve = make_curve(positions=sample.positions, anchor=1, n_features=sample.x.shape[1], **shape)
        fit = Fit(curve, objective, sample)
        start = np.repeat(fit.starts(1, run.seed), count, axis=0)
        params = fit.solve(start, train, strengths, tolerance=run["tolerance"]).params
        objectives = fit.held_out(params, validation)
        one = int(np.nanargmax(objectives))
        if objectives[one] > least:
            best, least = (fit, params[one : one + 1], shape, penalties[one]), objectives[one]
    assert best is not None
    fit, start, shape, penalty = best
    known = (part != TEST).astype(float)[None]
    params = fit.solve(start, known, np.array([penalty]), tolerance=run["tolerance"]).params
    details = {
        "curve": " ".join(str(value) for value in shape.values()),
        "penalty": penalty,
        "validation": float(least),
    }
    return fit.by_query(params)[0][part == TEST], details


def _pbm_pairs(sample: Sample, part: NDArray[np.int64]) -> Array:
    """Return the AllPairs objective of every test query by the PBM."""
    constant = make_curve("constant", positions=sample.positions, anchor=1, n_features=sample.x.shape[1])
    fit = Fit(constant, AllPairs(sample), sample)
    params = fit.solve(fit.starts(1, 0), (part != TEST).astype(float)[None], np.zeros(1)).params
    by_query: Array = fit.by_query(params)[0][part == TEST]
    return by_query


def _chosen_pairs(sample: Sample, part: NDArray[np.int64]) -> tuple[Array, Numbers]:
    """Return the AllPairs objective of every test query by the robust recipe, before it may fall back on the PBM."""
    known, test = (sample.take(rows) for rows in (part[sample.cluster] != TEST, part[sample.cluster] == TEST))
    printed = MLP(sample.positions, 1, sample.x.shape[1], width=0)
    robust = fit_robust_pairs(printed, known, aside=(part == VALIDATION).astype(float)[None], gated=False)
    details = {"curve": "mlp 0", "penalty": robust.penalty, "relevance": robust.about["relevance"]}
    return _by_query(robust, test)[part == TEST], details


def _by_query(robust: RobustPairs, test: Sample) -> Array:
    """Return the AllPairs objective of every query of a test sample; g is ½ for pairs that the fit has not seen."""
    assert robust.fit is not None
    seen = robust.fit.objective
    objective = AllPairs(test, relevance=robust.about["relevance"])
    assert isinstance(seen, AllPairs)
    params, relevance = robust.fit.params(robust.flat), objective.init(np.random.default_rng(0))
    number_of = {pair: number for number, pair in enumerate(zip(*seen.pairs.tolist(), strict=True))}
    for number, pair in enumerate(zip(*objective.pairs.tolist(), strict=True)):
        for name, values in relevance.items():
            if pair in number_of:
                values[..., number] = params["objective"][name][..., number_of[pair]]
    flat = np.concatenate([flatten_params(params["curve"]), flatten_params(relevance)])
    by_query: Array = Fit(robust.fit.curve, objective, test).by_query(flat[None])[0]
    return by_query


def _sample(run: Run) -> tuple[Sample, NDArray[np.int64]]:
    """Return the A/B interventions as a sample clustered by query, and the part that each query is in."""
    features = FEATURES[run["features"]]
    simulation = arxiv_log(run)
    query, base = _base(run.unfitted)
    pages, page = np.unique(query, return_inverse=True)
    part = simulation.split[pages].astype(np.int64)
    if not features:
        return base, part
    columns = simulation.features(*features)
    known = simulation.pages("ab", "train")
    encoder = ContextEncoder.fit({name: values[known] for name, values in columns.items()})
    encoded = encoder.transform({name: values[pages] for name, values in columns.items()})
    x, code = np.unique(encoded, axis=0, return_inverse=True)
    return replace(base, x=x, context=code[page]), part


@lru_cache(maxsize=1)
def _base(log: Run) -> tuple[NDArray[np.int64], Sample]:
    """Return the query of every row, and the rows as a sample without context; positions as the training part has.

    Where a log has a share of the pages, so many of those that are fitted to are drawn, and all test pages stay.
    """
    simulation = arxiv_log(log)
    positions = supported_positions(simulation.interventions(split="train"), 1)
    interventions = simulation.interventions()
    drawn = np.random.default_rng([log.seed, 41]).random(len(simulation.split)) < (log["share"] or 1.0)
    interventions = interventions.take((drawn | (simulation.split == TEST))[interventions.query])
    sample = make_sample(interventions, positions)
    return np.unique(interventions.query)[sample.cluster], sample


@dataclass(frozen=True)
class Gain:
    """By how much a group beats the PBM on test queries, mean over logs, and its standard error over queries."""

    mean: float
    error: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval."""
        return self.mean - Z * self.error, self.mean + Z * self.error

    def __str__(self) -> str:
        low, high = self.bounds
        return f"{self.mean:+.1f} ({low:+.1f} to {high:+.1f})"


def runs(plan: Plan) -> list[Run]:
    """Return every group by itself and all together; in a quick plan only the latter, with one curve of ClickShare."""
    models, seeds, groups = ([CLICKSHARE], 1, [NOTHING, ALL]) if plan.quick else (list(OBJECTIVES), 3, list(FEATURES))
    quick = {"curves": OBJECTIVES[CLICKSHARE]["curves"][:1]} if plan.quick else {}
    return [
        Run(
            FAMILY,
            WORLD,
            seed,
            {"queries": QUERIES, "share": SHARE[model]},
            {"model": model, "features": name, **OBJECTIVES[model], **quick},
        )
        for model in models
        for seed in range(seeds)
        for name in groups
    ]


def gains(results: Results, model: str) -> dict[str, Gain]:
    """Return the gain of each group: logs have queries of their own, so the variances of their gains add up."""
    groups = {}
    for name in results.settings("features"):
        logs = results.where(model=model, features=name)
        if name != NOTHING and (errors := logs.values("gain_se")):
            groups[name] = Gain(logs.mean("gain"), sum(e**2 for e in errors) ** 0.5 / len(errors))
    return groups


def rows(results: Results) -> list[Row]:
    """Return one row per group."""
    table = []
    for name in results.settings("features"):
        row: Row = {"features": name, "paper": PAPER[name], "paper's gain": PAPER[name] - PAPER[NOTHING]}
        for model in OBJECTIVES:
            logs = results.where(model=model, features=name)
            gain = gains(results, model).get(name)
            low, high = (None, None) if gain is None else gain.bounds
            row |= {
                model: logs.mean("objective") if logs else None,
                f"{model}, gain": None if gain is None else gain.mean,
                f"{model}, from": low,
                f"{model}, to": high,
            }
        table.append(row | {"logs": len(results.where(model=CLICKSHARE, features=name))})
    return table


def headlines(results: Results) -> list[Headline]:
    """Return the gain over the PBM in per cent of its objective, of every group."""
    lines = []
    for name in (name for name in results.settings("features") if name != NOTHING):
        percent = dict.fromkeys(OBJECTIVES, nan)
        for model in results.settings("model"):
            base = results.where(model=model, features=NOTHING).mean("objective")
            percent[model] = 100 * gains(results, model)[name].mean / abs(base)
        paper = 100 * (PAPER[name] - PAPER[NOTHING]) / abs(PAPER[NOTHING])
        logs = len(results.where(model=CLICKSHARE, features=name))
        lines.append(Headline(f"gain on PBM, {name}, %", paper, percent[ALLPAIRS], percent[CLICKSHARE], logs))
    return lines


def checks(results: Results) -> list[Check]:
    """Return the paper's claims, for its objective and for ours; of a quick run that of all groups together."""
    claims = []
    for model in results.settings("model"):
        groups = gains(results, model)
        sentence = ", ".join(f"{name} {gain}" for name, gain in groups.items())
        if set(groups) == {ALL}:
            claims.append(Check(f"{model}: all groups together beat the PBM", groups[ALL].mean > 0, sentence))
            continue
        behind = [name for name, gain in groups.items() if gain.mean <= 0]
        cause = ""
        if behind and all(groups[name].bounds[1] > 0 for name in behind):
            cause = f"the 95 % interval of {', '.join(behind)} contains 0: these clicks cannot tell its gain from none"
        best = max(groups, key=lambda name: groups[name].mean)
        claims += [
            Check(f"{model}: every feature group beats the PBM", not behind, sentence, cause),
            Check(f"{model}: all groups together are best", best == ALL, sentence),
        ]
    return claims


def chart(results: Results) -> Any:
    """Return the gains as bars, one panel per objective."""
    points = [
        {"features": name, "objective": model, "gain": gain.mean, "low": gain.bounds[0], "high": gain.bounds[1]}
        for model in OBJECTIVES
        for name, gain in gains(results, model).items()
    ]
    return interval_bars(points, order=list(FEATURES), title="test objective minus the PBM's, with 95 % intervals")


EXPERIMENTS = [
    Experiment(
        id="table-max",
        runs=runs,
        rows=rows,
        headlines=headlines,
        checks=checks,
        chart=chart,
        world=WORLD,
    )
]
