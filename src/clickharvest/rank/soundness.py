"""Checks of the trees of a ranker file: libraries follow a wrong child out of memory, which ends Python.

Our learners grow trees with numerical splits and one output. Anything else in a file is refused with `ValueError`
before a library reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

END = "end of trees"
BY_LEAF = {"leaf_value": float, "leaf_weight": float, "leaf_count": int}
BY_SPLIT = {
    "split_feature": int, "split_gain": float, "threshold": float, "decision_type": int, "left_child": int,
    "right_child": int, "internal_value": float, "internal_weight": float, "internal_count": int,
}  # fmt: skip
"""Fields of LightGBM's leaves and of its splits."""
BY_NODE = {
    "base_weights": float, "default_left": int, "left_children": int, "loss_changes": float, "parents": int,
    "right_children": int, "split_conditions": float, "split_indices": int, "split_type": int, "sum_hessian": float,
}  # fmt: skip
"""Fields of XGBoost's nodes, which are splits or leaves."""
DECISIONS = 0b1110
"""Bits of a decision of LightGBM: the least one marks a split by category, the others say where missing values go."""
CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")


def check_lightgbm(text: str, features: int) -> str:
    """Return LightGBM's text without the sizes of its trees, by which it would read beyond them.

    Raises:
        ValueError: these are no trees.
    """
    grown, end, rest = text.partition(f"\n{END}\n")
    head, *trees = grown.split("\nTree=")
    lines = [line for line in head.split("\n") if not line.startswith("tree_sizes=")]
    header = _fields(lines[1:])
    wanted = {"num_class": "1", "num_tree_per_iteration": "1", "max_feature_idx": str(features - 1)}
    _require(bool(end) and lines[:1] == ["tree"] and wanted.items() <= header.items())
    _require(all(len(header[name].split(" ")) == features for name in ("feature_names", "feature_infos")))
    _require("\nend of parameters\n" in rest)  # it would look for this end beyond the text
    for number, tree in enumerate(trees):
        first, *fields = tree.split("\n")
        _require(first == str(number) and tree.isascii())
        _check_lightgbm_tree(_fields(fields), features)
    return "\n".join([*lines, *(f"\nTree={tree}" for tree in trees)]) + f"{end}{rest}"


def _check_lightgbm_tree(fields: Mapping[str, str], features: int) -> None:
    leaves = int(fields["num_leaves"])
    _require(leaves >= 1 and fields["num_cat"] == "0" and fields.get("is_linear", "0") == "0")
    float(fields["shrinkage"])
    by_leaf = {name: _numbers(fields[name].split(), kind, leaves) for name, kind in BY_LEAF.items() if name in fields}
    by_split = {
        name: _numbers(fields[name].split(), kind, leaves - 1) for name, kind in BY_SPLIT.items() if name in fields
    }
    _check_size(by_leaf["leaf_value"])
    _require(bool((by_split["decision_type"] & ~DECISIONS == 0).all()) and not np.isnan(by_split["threshold"]).any())
    if leaves > 1:
        children = np.concatenate([by_split["left_child"], by_split["right_child"]])
        # Leaves are −1, −2, …: they come after the splits, so that one numbering has both.
        _check_tree(np.where(children < 0, leaves - 2 - children, children), 2 * leaves - 1)
        _check_features(by_split["split_feature"], features)


def check_xgboost(text: str, features: Sequence[str]) -> None:
    """Check XGBoost's JSON.

    Raises:
        ValueError: these are no trees.
        KeyError: something that a tree needs is missing.
    """
    learner = json.loads(text)["learner"]
    parameters, booster = learner["learner_model_param"], learner["gradient_booster"]
    _require(booster["name"] == "gbtree" and learner["feature_names"] == list(features))
    _require(str(parameters["num_feature"]) == str(len(features)) and str(parameters["num_class"]) == "0")
    _require(
        np.isfinite(float(str(parameters["base_score"]).strip("[]"))) and str(parameters.get("num_target", "1")) == "1"
    )
    model = booster["model"]
    trees = model["trees"]
    _require(isinstance(trees, list) and model["tree_info"] == [0] * len(trees))
    _require({"num_trees": str(len(trees)), "num_parallel_tree": "1"}.items() <= model["gbtree_model_param"].items())
    _require(model.get("iteration_indptr", [*range(len(trees) + 1)]) == [*range(len(trees) + 1)])
    _require(not any(model.get("cats", {}).values()))
    for number, tree in enumerate(trees):
        _require(tree["id"] == number and not any(tree[name] for name in CATEGORIES))
        _check_xgboost_tree(tree, len(features))


def _check_xgboost_tree(tree: Mapping[str, Any], features: int) -> None:
    nodes = len(tree["left_children"])
    parameters = tree["tree_param"]
    _require(str(parameters["num_nodes"]) == str(nodes) and str(parameters["num_feature"]) == str(features))
    _require(str(parameters["size_leaf_vector"]) in ("0", "1"))
    nodes_of = {name: _numbers(tree[name], kind, nodes) for name, kind in BY_NODE.items()}
    left, right = nodes_of["left_children"], nodes_of["right_children"]
    is_leaf = left == -1
    _require(nodes >= 1 and bool((is_leaf == (right == -1)).all()) and not nodes_of["split_type"].any())
    _check_size(nodes_of["split_conditions"])
    _check_tree(np.concatenate([left[~is_leaf], right[~is_leaf]]), nodes)
    _check_features(nodes_of["split_indices"][~is_leaf], features)


def _check_tree(children: NDArray[Any], nodes: int) -> None:
    """Require that children are nodes, each of one parent and none of them the root, so that no path has a circle."""
    _require(bool(((children > 0) & (children < nodes)).all()) and np.unique(children).size == children.size)


def _check_size(values: NDArray[Any]) -> None:
    """Require numbers that single precision holds, as engines do."""
    _require(bool((np.abs(values) <= np.finfo(np.float32).max).all()))


def _check_features(used: NDArray[Any], features: int) -> None:
    _require(bool(((used >= 0) & (used < features)).all()))


def _numbers(values: Any, kind: type, size: int) -> NDArray[Any]:
    """Return so many numbers; whole ones fit into 32 bits, as libraries take them."""
    _require(isinstance(values, list) and len(values) == size)
    _require(all("_" not in value for value in values if isinstance(value, str)))  # Python alone would read 1_000
    numbers = np.array([kind(value) for value in values], np.float64 if kind is float else np.int64)
    _require(kind is float or bool((np.abs(numbers) < 2**31).all()))
    return numbers


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """Return the fields of LightGBM's lines, each of which is there once."""
    pairs = [line.split("=", 1) for line in lines if line]
    fields = dict(pairs)
    _require(len(fields) == len(pairs))
    return fields


def _require(sound: bool | np.bool_) -> None:
    if not sound:
        raise ValueError("these are no trees")
