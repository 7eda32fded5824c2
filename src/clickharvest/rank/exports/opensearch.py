"""The LTR plugin of OpenSearch, which takes what that of Elasticsearch takes."""

from __future__ import annotations

from clickharvest.rank.exports import ranker_export
from clickharvest.rank.exports.elasticsearch import write_elasticsearch
from clickharvest.rank.rankers import TrainedRanker


@ranker_export("opensearch")
def write_opensearch(ranker: TrainedRanker, name: str) -> bytes:
    """Return the request that creates a model of the OpenSearch LTR plugin."""
    return write_elasticsearch(ranker, name)
