"""LightGBM's own text, for `lightgbm.Booster(model_file=…)`."""

from __future__ import annotations

from clickharvest.errors import InputError
from clickharvest.rank.exports import ranker_export
from clickharvest.rank.rankers import TrainedRanker, library_text


@ranker_export("lightgbm")
def write_lightgbm(ranker: TrainedRanker, name: str) -> bytes:
    """Return the text of a LightGBM model."""
    if ranker.kind != "lightgbm":
        raise InputError(f"the ranker was learned by {ranker.learner}: only those of lightgbm have LightGBM's text")
    return library_text(ranker).encode()
