"""The family of the feature groups: curves with some query features, by the objective on unseen queries.

Models are fitted to the training part of the A/B pages, hyper-parameters chosen on the validation part, and the
objective is that of the test part, summed over its queries.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.experiments.families.arxiv_log import arxiv_log
from clickharvest.experiments.families.models import CPBM
from clickharvest.experiments.runner.registry import family
from clickharvest.experiments.runner.runs import Numbers, Run
from clickharvest.model import ContextEncoder, make_curve
from clickharvest.simulate import GROUPS, SPLITS

FAMILY = "table_max"
NOTHING, ALL = "PBM", "all"
FEATURES: dict[str, tuple[str, ...]] = {NOTHING: (), **{group: (group,) for group in GROUPS}, ALL: GROUPS}
WIDTH = 8
"""Hidden units of the networks."""


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Fit the candidates to the training part, take the best on the validation part, and try it on the test part."""
    from clickharvest.estimation import AllPairs, ClickShare, Fit

    features = FEATURES[run["features"]]
    sample = _sample(run, features)
    d = sample.x.shape[1]
    train, validation, test = np.eye(len(SPLITS))
    if run["model"] == CPBM:
        objective: Any = AllPairs(sample, relevance="mlp" if features else "constant", width=WIDTH)
    else:
        objective = ClickShare(sample)
    best: Numbers = {"validation": -np.inf}
    for shape in run["curves"] if features else [{"name": "constant"}]:
        fit = Fit(make_curve(positions=sample.positions, anchor=1, n_features=d, **shape), objective, sample)
        penalties = np.array(run["penalties"] if features else [0.0])
        fit.part = count = len(penalties)
        start = np.repeat(fit.starts(1, run.seed), count, axis=0)
        found = fit.solve(start, np.tile(train, (count, 1)), penalties, tolerance=run["tolerance"])
        judged = fit.held_out(found.params, np.tile(validation, (count, 1)))
        one = int(np.nanargmax(judged))
        if judged[one] > best["validation"]:
            best = {
                "validation": float(judged[one]),
                "objective": float(fit.held_out(found.params[one : one + 1], test[None])[0]),
                "curve": " ".join(str(value) for value in shape.values()),
                "penalty": float(penalties[one]),
                "status": str(found.status[one]),
            }
    return best


def _sample(run: Run, features: tuple[str, ...]) -> Any:
    """Return the A/B interventions as a sample whose three clusters are the parts of the split."""
    simulation = arxiv_log(run)
    query, base = _base(run)
    clusters = simulation.split[query].astype(np.int64)
    if not features:
        return replace(base, cluster=clusters, n_clusters=len(SPLITS))
    columns = simulation.features(*features)
    known = simulation.pages("ab", "train")
    encoder = ContextEncoder.fit({name: values[known] for name, values in columns.items()})
    pages, page = np.unique(query, return_inverse=True)
    encoded = encoder.transform({name: values[pages] for name, values in columns.items()})
    x, code = np.unique(encoded, axis=0, return_inverse=True)
    return replace(base, x=x, context=code[page], cluster=clusters, n_clusters=len(SPLITS))


@lru_cache(maxsize=1)
def _base(run: Run) -> tuple[NDArray[np.int64], Any]:
    """Return the query of every row, and the rows as a sample without context; positions as the training part has."""
    from clickharvest.estimation import make_sample, supported_positions

    simulation = arxiv_log(run)
    positions = supported_positions(simulation.interventions(split="train"), 1)
    interventions = simulation.interventions()
    sample = make_sample(interventions, positions)
    return np.unique(interventions.query)[sample.cluster], sample
