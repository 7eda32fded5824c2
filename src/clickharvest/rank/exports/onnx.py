"""ONNX: input `x`, float [n, F], the features in the order of the metadata's `features`; output `score`, float [n, 1].

A linear ranker is a product in double precision, trees are one `TreeEnsembleRegressor`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from clickharvest import __version__
from clickharvest.extras import require
from clickharvest.rank.exports import ranker_export
from clickharvest.rank.rankers import TrainedRanker
from clickharvest.rank.trees import Leaf, Split, Trees, trees_of

OPSETS = {"": 17, "ai.onnx.ml": 3}
IR_VERSION = 8
"""All of 2022, so that runtimes of the last years read the file."""


@ranker_export("onnx")
def write_onnx(ranker: TrainedRanker, name: str) -> bytes:
    """Return a model for any ONNX runtime."""
    onnx = require("onnx", "onnx", "export to ONNX")
    helper, double, single = onnx.helper, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
    constants = []
    if ranker.kind == "linear":
        constants = [onnx.numpy_helper.from_array(np.asarray(ranker.model, np.float64)[:, None], "weights")]
        nodes = [
            helper.make_node("Cast", ["x"], ["wide"], to=double),
            helper.make_node("MatMul", ["wide", "weights"], ["sum"]),
            helper.make_node("Cast", ["sum"], ["score"], to=single),
        ]
    else:
        attributes = _attributes(trees_of(ranker))
        nodes = [helper.make_node("TreeEnsembleRegressor", ["x"], ["score"], domain="ai.onnx.ml", **attributes)]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", single, ["n", len(ranker.features)])],
        [helper.make_tensor_value_info("score", single, ["n", 1])],
        constants,
    )
    model = helper.make_model(
        graph,
        producer_name="clickharvest",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in OPSETS.items()],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, {"features": json.dumps(ranker.features), "learner": ranker.learner})
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _attributes(trees: Trees) -> dict[str, Any]:
    """Return the nodes of all trees as the lists that `TreeEnsembleRegressor` takes."""
    nodes: dict[str, list[Any]] = {
        name: []
        for name in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
            "missing_value_tracks_true",
        )
    }  # fmt: skip
    target: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, root in enumerate(trees.roots):
        queue: list[Split | Leaf] = [root]
        for number, node in enumerate(queue):
            is_leaf = isinstance(node, Leaf)
            yes = 0 if is_leaf else len(queue)
            if isinstance(node, Split):
                queue += [node.left, node.right]
                fields: tuple[Any, ...] = (
                    node.feature,
                    float(node.up_to),
                    "BRANCH_LEQ",
                    yes,
                    yes + 1,
                    node.missing_left,
                )
            else:
                fields = (0, 0.0, "LEAF", 0, 0, False)
                for name, value in zip(target, (tree, number, 0, node.value), strict=True):
                    target[name].append(value)
            for name, value in zip(nodes, (tree, number, *fields), strict=True):
                nodes[name].append(int(value) if isinstance(value, bool) else value)
    named = {f"nodes_{name}": values for name, values in nodes.items()}
    named |= {f"target_{name}": values for name, values in target.items()}
    return named | {"n_targets": 1, "base_values": [trees.base], "aggregate_function": "SUM", "post_transform": "NONE"}
