"""The LTR plugin of Elasticsearch: the body of `POST _ltr/_featureset/FEATURES/_createmodel`.

The features of the ranker must be in the feature set, under their names. A linear ranker becomes `model/linear`, trees
`model/xgboost+json`, whose splits go left where the feature is below `split_condition`, in single precision; trees of
LightGBM are written that way too.
"""

from __future__ import annotations

import json
from typing import Any

from clickharvest.rank.exports import ranker_export
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.trees import Leaf, Split, trees_of


@ranker_export("elasticsearch")
def write_elasticsearch(ranker: TrainedRanker, name: str) -> bytes:
    """Return the request that creates a model of the Elasticsearch LTR plugin."""
    if ranker.kind == "linear":
        kind = "model/linear"
        definition: Any = dict(zip(ranker.features, ranker.model.tolist(), strict=True))
    else:
        kind, definition = "model/xgboost+json", xgboost_dump(ranker)
    text = json.dumps(definition, ensure_ascii=False)
    body = {"model": {"name": name, "model": {"type": kind, "definition": text}}}
    return json.dumps(body, ensure_ascii=False, indent=1).encode() + b"\n"


def xgboost_dump(ranker: TrainedRanker) -> list[dict[str, Any]]:
    """Return trees as XGBoost's `dump_model(dump_format="json")` writes them, features by name."""
    trees = trees_of(ranker)
    roots = [*trees.roots, *([Leaf(trees.base)] if trees.base else [])]
    return [_numbered(root, ranker.features) for root in roots]


def _numbered(root: Split | Leaf, features: tuple[str, ...]) -> dict[str, Any]:
    """Return a tree with its nodes numbered level by level, as XGBoost does."""
    made: dict[str, Any] = {}
    level: list[tuple[Split | Leaf, dict[str, Any], int]] = [(root, made, 0)]
    made["nodeid"] = last = 0
    for node, entry, depth in level:
        if isinstance(node, Leaf):
            entry["leaf"] = node.value
            continue
        yes, no = last + 1, last + 2
        last = no
        entry |= {"depth": depth, "split": features[node.feature], "split_condition": float(node.below)}
        entry |= {"yes": yes, "no": no, "missing": yes if node.missing_left else no}
        entry["children"] = [{"nodeid": yes}, {"nodeid": no}]
        level += [
            (child, child_entry, depth + 1)
            for child, child_entry in zip((node.left, node.right), entry["children"], strict=True)
        ]
    return made
