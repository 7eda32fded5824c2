"""Vespa: a file for the folder `models` of an application, `lightgbm("model.json")` or `xgboost("model.json")`.

Features must have the names of rank features or functions of the schema. Vespa goes left where a feature is below the
threshold, LightGBM also where it is equal: thresholds are moved to the next number. Vespa reads an objective to know
whether it transforms scores, and boosters of our objectives have none: regression transforms nothing.
"""

from __future__ import annotations

import json
import math
from typing import Any

from clickharvest.errors import InputError
from clickharvest.rank.exports import ranker_export
from clickharvest.rank.exports.elasticsearch import xgboost_dump
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.trees import Leaf, Split, trees_of


@ranker_export("vespa")
def write_vespa(ranker: TrainedRanker, name: str) -> bytes:
    """Return the JSON that Vespa imports: LightGBM's dump_model, or XGBoost's."""
    if ranker.kind == "linear":
        raise InputError(
            "Vespa imports trees and ONNX: export a linear ranker to onnx, or write its weights as a ranking expression"
        )
    dump: Any = xgboost_dump(ranker) if ranker.kind == "xgboost" else _lightgbm_dump(ranker, name)
    return json.dumps(dump, ensure_ascii=False, indent=1).encode() + b"\n"


def _lightgbm_dump(ranker: TrainedRanker, name: str) -> dict[str, Any]:
    trees = trees_of(ranker)
    return {
        "name": name,
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "objective": "regression",
        "feature_names": list(ranker.features),
        "tree_info": [{"tree_index": i, "tree_structure": _node(root)} for i, root in enumerate(trees.roots)],
        "pandas_categorical": [],
    }


def _node(node: Split | Leaf) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"leaf_value": node.value}
    return {
        "split_feature": node.feature,
        "threshold": math.nextafter(node.threshold, math.inf),
        "decision_type": "<=",
        "default_left": node.missing_left,
        "missing_type": "NaN",
        "left_child": _node(node.left),
        "right_child": _node(node.right),
    }
