"""Trees of boosted rankers of either library, from which exports are written.

LightGBM goes left where x ≤ t, in double precision; XGBoost where x < t, in single precision. Engines hold features in
single precision and know one of the two, so a split has its threshold in both forms. For any single-precision x,

    x ≤ t   ⇔   x < next(t)      where next(t) is the least single-precision number above t
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.rank.rankers import TrainedRanker, library_text


@dataclass(frozen=True)
class Leaf:
    """The end of a path.

    Attributes:
        value: what the tree adds to the score.
    """

    value: float


@dataclass(frozen=True)
class Split:
    """A question about one feature.

    Attributes:
        feature: number of the feature.
        threshold: t.
        inclusive: whether x ≤ t goes left; else x < t does.
        missing_left: whether a missing value goes left.
        left: where the answer is yes.
        right: where it is no.

    Example:
        >>> split = Split(0, 0.1, True, False, Leaf(1.0), Leaf(2.0))
        >>> float(split.up_to), float(split.below)  # the two single-precision numbers around .1
        (0.09999999403953552, 0.10000000149011612)
    """

    feature: int
    threshold: float
    inclusive: bool
    missing_left: bool
    left: Split | Leaf
    right: Split | Leaf

    @property
    def up_to(self) -> np.float32:
        """The greatest single-precision number that goes left."""
        near = np.float32(self.threshold)
        # Compared in double precision: NumPy would round the threshold to the precision of the other.
        beyond = float(near) > self.threshold if self.inclusive else float(near) >= self.threshold
        return np.float32(np.nextafter(near, np.float32(-np.inf))) if beyond else near

    @property
    def below(self) -> np.float32:
        """The least single-precision number that goes right."""
        return np.float32(np.nextafter(self.up_to, np.float32(np.inf)))


@dataclass(frozen=True)
class Trees:
    """Trees whose values are added.

    Attributes:
        roots: the trees.
        base: what is added to the score of every document.
    """

    roots: tuple[Split | Leaf, ...]
    base: float


def trees_of(ranker: TrainedRanker) -> Trees:
    """Return the trees of a ranker.

    Raises:
        InputError: it is linear, or has splits by category.
    """
    if ranker.kind == "lightgbm":
        dumped = ranker.model.dump_model()
        return Trees(tuple(_of_lightgbm(tree["tree_structure"]) for tree in dumped["tree_info"]), 0.0)
    if ranker.kind == "xgboost":
        learner = json.loads(library_text(ranker))["learner"]
        base = float(learner["learner_model_param"]["base_score"].strip("[]").split(",")[0])
        trees = learner["gradient_booster"]["model"]["trees"]
        return Trees(tuple(_of_xgboost(tree, 0) for tree in trees), base)
    raise InputError(f"a ranker of {ranker.learner} has weights and no trees")


def _of_lightgbm(node: dict[str, Any]) -> Split | Leaf:
    if "leaf_value" in node:
        return Leaf(float(node["leaf_value"]))
    if node["decision_type"] != "<=":
        raise InputError("the ranker has splits by category: engines take splits by numbers alone; encode categories")
    threshold = float(node["threshold"])
    # Where training had no missing value, LightGBM reads a missing value as 0.
    missing_left = bool(node["default_left"]) if node["missing_type"] != "None" else threshold >= 0
    branches = (_of_lightgbm(node[side]) for side in ("left_child", "right_child"))
    return Split(int(node["split_feature"]), threshold, True, missing_left, *branches)


def _of_xgboost(tree: dict[str, Any], at: int) -> Split | Leaf:
    if tree["left_children"][at] < 0:
        return Leaf(float(tree["split_conditions"][at]))
    if tree["split_type"][at]:
        raise InputError("the ranker has splits by category: engines take splits by numbers alone; encode categories")
    branches = (_of_xgboost(tree, tree[side][at]) for side in ("left_children", "right_children"))
    threshold = float(np.float32(tree["split_conditions"][at]))
    return Split(int(tree["split_indices"][at]), threshold, False, bool(tree["default_left"][at]), *branches)
