"""The four estimators of ultr-bias-toolkit, called as its README does; none of them knows contexts."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from exchange import ROWS, measure
from ultr_bias_toolkit.bias.intervention_harvesting import AdjacentChainEstimator, AllPairsEstimator, PivotEstimator
from ultr_bias_toolkit.bias.naive import NaiveCtrEstimator

ESTIMATORS = {
    "ctr": NaiveCtrEstimator,
    "pivot": lambda: PivotEstimator(pivot_rank=1),
    "chain": AdjacentChainEstimator,
    "allpairs": AllPairsEstimator,
}


def estimate(folder: Path, model: str, seed: int) -> np.ndarray:
    """Return the curve of one estimator."""
    torch.manual_seed(seed)
    rows = pd.read_parquet(folder / ROWS, columns=["query", "doc", "position", "click"])
    rows = rows.rename(columns={"query": "query_id", "doc": "doc_id"})
    curve = ESTIMATORS[model]()(rows).sort_values("position").examination.to_numpy()
    return curve[None] / curve[0]


if __name__ == "__main__":
    logging.disable()
    measure(estimate, ["ultr-bias-toolkit", "torch", "pandas"])
