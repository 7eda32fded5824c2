"""The models that experiments compare, each in one place. Every option is part of what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clickharvest.baselines import Cells, click_rates, em
from clickharvest.estimation import CPBM as ContextualModel
from clickharvest.estimation import PBM as PositionModel
from clickharvest.harvesting import Interventions
from clickharvest.model import Propensities
from clickharvest.simulate import Simulation

PBM, CPBM, CLICKSHARE, EM, CTR = "PBM", "CPBM AllPairs", "ClickShare", "EM", "CTR"
ROBUST = "CPBM AllPairs, robust"
CPBM_NETWORK, CPBM_CONSTANT = "CPBM AllPairs, network g", "CPBM AllPairs, constant g"
HIDDEN_NETWORK, HIDDEN_CONSTANT = "hidden layers of 12, network g", "hidden layers of 12, constant g"
AUTHORS, AUTHORS_ORACLE = "authors' recipe, last epoch", "authors' recipe, chosen by the truth"

_ALL_PAIRS: dict[str, Any] = {
    "objective": "allpairs",
    "curve": "mlp",
    "relevance": "auto",
    "width": 0,
    "penalty": 0.0,
    "optimiser": "adam",
    "early_stopping": False,
    "starts": 1,
}
"""The paper's estimator: AllPairs with the network it prints for examination, one sigmoid layer; no penalty, Adam on
the full batch, the last epoch counts. Its hyper-parameters are chosen by cross-validation, as the paper says without
saying which: here the model of relevance, of constants, the network that the paper prints, and free values."""

ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    PBM: ("PBM", {"objective": "allpairs"}),
    CPBM: ("CPBM", _ALL_PAIRS),
    CPBM_NETWORK: ("CPBM", _ALL_PAIRS | {"relevance": "mlp"}),
    CPBM_CONSTANT: ("CPBM", _ALL_PAIRS | {"relevance": "constant"}),
    HIDDEN_NETWORK: ("CPBM", _ALL_PAIRS | {"relevance": "mlp", "width": 12}),
    HIDDEN_CONSTANT: ("CPBM", _ALL_PAIRS | {"relevance": "constant", "width": 12}),
    ROBUST: ("CPBM", {"objective": "allpairs"}),
    CLICKSHARE: ("CPBM", {"curve": "auto"}),
}
"""Models that are fitted to interventions: estimator and options."""
BASELINES = {EM: em, CTR: click_rates}
"""Models that are fitted to the whole log."""


def fit_settings(model: str) -> dict[str, Any]:
    """Return the `fit` of a run, with all options of the model.

    Example:
        >>> fit_settings("PBM")
        {'model': 'PBM', 'estimator': 'PBM', 'options': {'objective': 'allpairs'}}
        >>> fit_settings("EM")
        {'model': 'EM'}
    """
    if model not in ESTIMATORS:
        return {"model": model}
    estimator, options = ESTIMATORS[model]
    return {"model": model, "estimator": estimator, "options": options}


def fit_interventions(fit: Mapping[str, Any], interventions: Interventions, seed: int) -> Propensities:
    """Fit one of `ESTIMATORS` by its settings, without intervals."""
    make: type[PositionModel | ContextualModel] = {"PBM": PositionModel, "CPBM": ContextualModel}[fit["estimator"]]
    return make(**fit["options"], intervals=None, seed=seed).fit(interventions).propensities_


def fit_baseline(model: str, simulation: Simulation) -> Propensities:
    """Fit one of `BASELINES` to all of a simulated log."""
    shown = (simulation.shown >= 0) & (simulation.served[:, :, None] > 0)
    _, _, place = np.nonzero(shown)
    positions = simulation.shown.shape[2]
    key, cell = np.unique(simulation.shown[shown] * positions + place, return_inverse=True)
    served = np.broadcast_to(simulation.served[:, :, None], shown.shape)[shown]
    docs, pair = np.unique(key // positions, return_inverse=True)
    cells = Cells(
        pair=pair,
        position=key % positions + 1,
        clicks=np.bincount(cell, simulation.clicks[shown]).astype(np.int64),
        impressions=np.bincount(cell, served).astype(np.int64),
        n_pairs=len(docs),
        shown=tuple(int(k) for k in np.unique(place + 1)),
    )
    return BASELINES[model](cells)
