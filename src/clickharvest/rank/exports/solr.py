"""Solr's LTR module: what goes into the model store, a `LinearModel` or a `MultipleAdditiveTreesModel`.

The features of the ranker must be in the feature store, under their names. Trees go left where the feature is at most
the threshold, in single precision. Solr adds a millionth to thresholds, which is subtracted here.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from clickharvest.rank.exports import ranker_export
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.trees import Leaf, Split, trees_of

SLACK = np.float32(1e-6)
"""The number that Solr adds to every threshold."""


@ranker_export("solr")
def write_solr(ranker: TrainedRanker, name: str) -> bytes:
    """Return a model of Solr's LTR model store."""
    params: dict[str, Any]
    if ranker.kind == "linear":
        kind, params = "LinearModel", {"weights": dict(zip(ranker.features, ranker.model.tolist(), strict=True))}
    else:
        trees = trees_of(ranker)
        roots = [*trees.roots, *([Leaf(trees.base)] if trees.base else [])]
        kind = "MultipleAdditiveTreesModel"
        params = {"trees": [{"weight": "1", "root": _node(root, ranker.features)} for root in roots]}
    features = [{"name": feature} for feature in ranker.features]
    model = {"class": f"org.apache.solr.ltr.model.{kind}", "name": name, "features": features, "params": params}
    return json.dumps(model, ensure_ascii=False, indent=1).encode() + b"\n"


def without_slack(threshold: np.float32) -> np.float32:
    """Return the greatest single-precision number that Solr makes the threshold of, or a lower one.

    A threshold just below 0, which separates 0 from negative numbers, must not become 0. Solr cannot distinguish
    thresholds closer to 0 than about 1e-13.

    Example:
        >>> [float(without_slack(np.float32(t)) + SLACK) for t in (0.5, 7.75, 1234.5, 0.0)]
        [0.5, 7.75, 1234.5, 0.0]
        >>> bool(without_slack(np.float32(-1e-35)) + SLACK < 0)
        True
    """
    below = np.nextafter(threshold - SLACK, np.float32(np.inf))
    while below + SLACK > threshold:
        below = np.nextafter(below, np.float32(-np.inf))
    return np.float32(below)


def _node(node: Split | Leaf, features: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"value": repr(node.value)}
    return {
        "feature": features[node.feature],
        "threshold": repr(float(without_slack(node.up_to))),
        "left": _node(node.left, features),
        "right": _node(node.right, features),
    }
