"""XGBoost's `lambdarank_unbiased`, with the ranking options of its demonstration of click data.

The position bias t+ of clicked documents, relative to position 1, stands in the configuration of the trained model.
XGBoost takes the place of a row within its query for the position, so rows are in the order shown. The option
`lambdarank_bias_norm` p makes t+ the estimated ratio to the power 1 / (1 + p): 1 in the demonstration, 0 for the ratio
itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import xgboost as xgb
from exchange import FEATURES, measure, read_sessions

NORMS = {"norm1": 1.0, "norm0": 0.0}


def estimate(folder: Path, model: str, seed: int) -> np.ndarray:
    """Return the position bias of clicked documents."""
    log = read_sessions(folder)
    pages, positions = log.doc.shape
    ranker = xgb.XGBRanker(
        tree_method="hist",
        objective="rank:ndcg",
        lambdarank_unbiased=True,
        lambdarank_bias_norm=NORMS[model],
        lambdarank_num_pair_per_sample=12,
        lambdarank_pair_method="topk",
        random_state=seed,
    )
    ranker.fit(
        np.load(folder / FEATURES)[log.doc.ravel()], log.click.ravel(), qid=np.repeat(np.arange(pages), positions)
    )
    objective = json.loads(ranker.get_booster().save_config())["learner"]["objective"]
    bias = np.array(objective["ti+"], float)[:positions]
    return bias[None] / bias[0]


if __name__ == "__main__":
    measure(estimate, ["xgboost-cpu"])
