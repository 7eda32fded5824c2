"""XGBoost's own JSON, for `xgboost.Booster(model_file=…)`."""

from __future__ import annotations

from clickharvest.errors import InputError
from clickharvest.rank.exports import ranker_export
from clickharvest.rank.rankers import TrainedRanker, library_text


@ranker_export("xgboost")
def write_xgboost(ranker: TrainedRanker, name: str) -> bytes:
    """Return the JSON of an XGBoost model."""
    if ranker.kind != "xgboost":
        raise InputError(f"the ranker was learned by {ranker.learner}: only those of xgboost have XGBoost's JSON")
    return library_text(ranker).encode()
