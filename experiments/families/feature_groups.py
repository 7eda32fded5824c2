"""The family of the feature groups: curves with some query features, by the objective on unseen queries.

Queries are in three parts. What there is to choose is fitted to the training part and chosen on the validation part;
what was chosen is fitted to both, and so is the PBM. Their objectives on the test part are sums over its queries, and

    gain = Σ_q (l_q − l_q of the PBM),    se of the gain = √(n · variance over the n test queries).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model import ContextEncoder, flatten_params, make_curve
from clickharvest.simulate import GROUPS, SPLITS
from experiments.families.arxiv_log import arxiv_log
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Run

if TYPE_CHECKING:
    from clickharvest.estimation import RobustPairs, Sample

Array = NDArray[np.float64]

FAMILY = "table_max"
ALLPAIRS = "CPBM AllPairs, ridges"
"""The ridges and relevance models of the robust recipe, chosen by AllPairs on the validation part."""
NOTHING, ALL = "PBM", "all"
FEATURES: dict[str, tuple[str, ...]] = {NOTHING: (), **{group: (group,) for group in GROUPS}, ALL: GROUPS}
TRAIN, VALIDATION, TEST = range(len(SPLITS))


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Choose on the validation part, fit to it and to the training part, and compare with the PBM on the test part."""
    sample, part = _sample(run)
    pairs = run["model"] == ALLPAIRS
    by_pbm = _pbm_pairs(sample, part) if pairs else _chosen_shares(run, sample, part, [{"name": "constant"}], [0.0])[0]
    if run["features"] == NOTHING:
        found, told = by_pbm, {"curve": "constant"}
    elif pairs:
        found, told = _chosen_pairs(sample, part)
    else:
        found, told = _chosen_shares(run, sample, part, run["curves"], run["penalties"])
    gains = found - by_pbm
    return {
        "objective": float(found.sum()),
        "gain": float(gains.sum()),
        "gain_se": float(gains.std() * len(gains) ** 0.5),
        **told,
    }


def _chosen_shares(
    run: Run, sample: Sample, part: NDArray[np.int64], shapes: list[dict[str, Any]], penalties: list[float]
) -> tuple[Array, Numbers]:
    """Return the ClickShare objective of every test query by the best of some curves and penalties, and which it is."""
    from clickharvest.estimation import ClickShare, Fit

    objective = ClickShare(sample)
    count, strengths = len(penalties), np.array(penalties)
    train, validation = (np.tile((part == one).astype(float), (count, 1)) for one in (TRAIN, VALIDATION))
    best, least = None, -np.inf
    for shape in shapes:
        curve = make_curve(positions=sample.positions, anchor=1, n_features=sample.x.shape[1], **shape)
        fit = Fit(curve, objective, sample)
        start = np.repeat(fit.starts(1, run.seed), count, axis=0)
        found = fit.solve(start, train, strengths, tolerance=run["tolerance"]).params
        judged = fit.held_out(found, validation)
        one = int(np.nanargmax(judged))
        if judged[one] > least:
            best, least = (fit, found[one : one + 1], shape, penalties[one]), judged[one]
    assert best is not None
    fit, start, shape, penalty = best
    known = (part != TEST).astype(float)[None]
    last = fit.solve(start, known, np.array([penalty]), tolerance=run["tolerance"]).params
    told = {"curve": " ".join(str(value) for value in shape.values()), "penalty": penalty, "validation": float(least)}
    return fit.by_query(last)[0][part == TEST], told


def _pbm_pairs(sample: Sample, part: NDArray[np.int64]) -> Array:
    """Return the AllPairs objective of every test query by the PBM."""
    from clickharvest.estimation import AllPairs, Fit

    constant = make_curve("constant", positions=sample.positions, anchor=1, n_features=sample.x.shape[1])
    fit = Fit(constant, AllPairs(sample), sample)
    found = fit.solve(fit.starts(1, 0), (part != TEST).astype(float)[None], np.zeros(1)).params
    by_query: Array = fit.by_query(found)[0][part == TEST]
    return by_query


def _chosen_pairs(sample: Sample, part: NDArray[np.int64]) -> tuple[Array, Numbers]:
    """Return the AllPairs objective of every test query by the robust recipe, before it may fall back on the PBM."""
    from clickharvest.estimation import fit_robust_pairs
    from clickharvest.model.curves import MLP

    known, test = (sample.take(rows) for rows in (part[sample.cluster] != TEST, part[sample.cluster] == TEST))
    printed = MLP(sample.positions, 1, sample.x.shape[1], width=0)
    found = fit_robust_pairs(printed, known, aside=(part == VALIDATION).astype(float)[None], gated=False)
    by_query = _by_query(found, test)
    told = {"curve": "mlp 0", "penalty": found.penalty, "relevance": found.about["relevance"]}
    return by_query[part == TEST], told


def _by_query(found: RobustPairs, test: Sample) -> Array:
    """Return the AllPairs objective of every query of a test sample; g is ½ for pairs that the fit has not seen."""
    from clickharvest.estimation import AllPairs, Fit

    assert found.fit is not None
    seen = found.fit.objective
    objective = AllPairs(test, relevance=found.about["relevance"])
    assert isinstance(seen, AllPairs)
    params, own = found.fit.params(found.flat), objective.init(np.random.default_rng(0))
    number_of = {pair: number for number, pair in enumerate(zip(*seen.pairs.tolist(), strict=True))}
    for number, pair in enumerate(zip(*objective.pairs.tolist(), strict=True)):
        for name, values in own.items():
            if pair in number_of:
                values[..., number] = params["objective"][name][..., number_of[pair]]
    flat = np.concatenate([flatten_params(params["curve"]), flatten_params(own)])
    by_query: Array = Fit(found.fit.curve, objective, test).by_query(flat[None])[0]
    return by_query


def _sample(run: Run) -> tuple[Sample, NDArray[np.int64]]:
    """Return the A/B interventions as a sample clustered by query, and the part that each query is in."""
    features = FEATURES[run["features"]]
    simulation = arxiv_log(run)
    query, base = _base(run)
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
def _base(run: Run) -> tuple[NDArray[np.int64], Sample]:
    """Return the query of every row, and the rows as a sample without context; positions as the training part has.

    Where a run is of a share of the pages, so many of those that are fitted to are drawn, and all test pages stay.
    """
    from clickharvest.estimation import make_sample, supported_positions

    simulation = arxiv_log(run)
    positions = supported_positions(simulation.interventions(split="train"), 1)
    interventions = simulation.interventions()
    share = run["share"] or 1.0
    drawn = np.random.default_rng([run.seed, 41]).random(len(simulation.split)) < share
    interventions = interventions.take((drawn | (simulation.split == TEST))[interventions.query])
    sample = make_sample(interventions, positions)
    return np.unique(interventions.query)[sample.cluster], sample
