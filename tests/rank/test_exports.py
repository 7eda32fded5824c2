"""Exported rankers, read by small interpreters of what each engine documents, score as the ranker itself does.

The interpreters follow the engines' own rules, in single precision where these do: which side equality goes to, what is
added to a threshold, what a missing value means.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.rank import BoostSettings, TrainedRanker, export_ranker, ranking_data, train_ranker
from clickharvest.rank.exports import EXPORTS
from clickharvest.rank.trees import Leaf, Split, Trees, trees_of

NAMES = ("price", "stars", "brand=acme", 'a "quoted" name')
BOOSTERS = ("lightgbm", "xgboost")
float32 = np.float32


def documents(seed: int = 0, n: int = 400) -> NDArray[np.float32]:
    """Features of several sizes, many of them equal: thresholds are met exactly."""
    random = np.random.default_rng(seed)
    columns = [
        np.round(random.normal(size=n), 1),
        random.integers(0, 6, n),
        random.integers(0, 2, n),
        1000 * np.round(random.random(n), 2),
    ]
    return np.column_stack(columns).astype(np.float32)


@cache
def trained(learner: str, missing: bool = False) -> TrainedRanker:
    if learner in BOOSTERS:
        pytest.importorskip(learner, reason="the boost extra is not installed")
    x = documents()
    if missing:
        x[::5, 0] = np.nan
    random = np.random.default_rng(1)
    liked = np.nan_to_num(x[:, 0]) + 0.5 * x[:, 1] - (x[:, 3] > 400) + random.gumbel(size=len(x))
    starts = np.arange(0, len(x) + 1, 5)
    clicked = liked.reshape(-1, 5).argmax(axis=1) + starts[:-1]
    data = ranking_data(x, starts, clicked, exposure=np.ones(len(x)))
    names = [name.replace('"', "") for name in NAMES] if learner == "xgboost" else NAMES
    return train_ranker(data, learner, names=names, settings=BoostSettings(rounds=12, leaves=8))


def written(ranker: TrainedRanker, to: str, tmp_path: Path) -> Any:
    export_ranker(ranker, to, tmp_path / "model", name="shop")
    return json.loads((tmp_path / "model").read_text(encoding="utf-8"))


def probes(ranker: TrainedRanker) -> NDArray[np.float32]:
    """Documents, among them some exactly at the thresholds of the ranker and next to them."""
    x = documents(seed=2, n=120)
    if ranker.kind == "linear":
        return x
    edges: list[tuple[int, np.float32]] = []
    nodes = list(trees_of(ranker).roots)
    for node in nodes:
        if isinstance(node, Split):
            # LightGBM takes numbers of 1e-35 for 0, which no engine does.
            near = (node.up_to, node.below, float32(node.threshold))
            edges += [(node.feature, edge) for edge in near if abs(edge) > 1e-30]
            nodes += [node.left, node.right]
    for row, (feature, edge) in enumerate(edges[: len(x)]):
        x[row, feature] = edge
    return x


def named(ranker: TrainedRanker, row: NDArray[np.float32]) -> dict[str, np.float32]:
    return dict(zip(ranker.features, row, strict=True))


def elasticsearch(model: Any, features: dict[str, np.float32]) -> float:
    """LTR plugin: `model/linear` sums products; `model/xgboost+json` goes to children[0] where threshold > value."""
    definition = json.loads(model["definition"])
    if model["type"] == "model/linear":
        return float(sum(float32(weight) * features[name] for name, weight in definition.items()))
    assert model["type"] == "model/xgboost+json"

    def value(node: Any) -> np.float32:
        while "leaf" not in node:
            assert {"nodeid", "depth", "split", "split_condition", "yes", "no", "children"} <= node.keys()
            first, second = node["children"]
            assert (first["nodeid"], second["nodeid"]) == (node["yes"], node["no"])
            assert node["missing"] in (node["yes"], node["no"])
            node = first if float32(node["split_condition"]) > features[node["split"]] else second
        return float32(node["leaf"])

    return float(sum((value(tree) for tree in definition), float32(0)))


def solr(model: Any, features: dict[str, np.float32]) -> float:
    """Solr LTR: texts become floats, a millionth is added to a threshold, and ≤ goes left."""
    assert {feature["name"] for feature in model["features"]} == set(features)
    kind = model["class"].removeprefix("org.apache.solr.ltr.model.")
    if kind == "LinearModel":
        return float(sum(float32(weight) * features[name] for name, weight in model["params"]["weights"].items()))
    assert kind == "MultipleAdditiveTreesModel"

    def value(node: Any) -> np.float32:
        if "value" in node:
            assert set(node) == {"value"}
            return float32(node["value"])
        threshold = float32(node["threshold"]) + float32(1e-6)
        return value(node["left"] if features[node["feature"]] <= threshold else node["right"])

    return float(sum(float32(tree["weight"]) * value(tree["root"]) for tree in model["params"]["trees"]))


def vespa(model: Any, features: dict[str, np.float32]) -> float:
    """Vespa's importers: < goes left in doubles, and !(x >= t) where a missing value shall go left too."""

    def goes_left(value: float, threshold: float, missing_left: bool) -> bool:
        return not value >= threshold if missing_left else value < threshold

    def xgboost_tree(node: Any) -> float:
        while "leaf" not in node:
            first, second = node["children"]
            if node["yes"] != first["nodeid"]:
                first, second = second, first
            left = goes_left(float(features[node["split"]]), node["split_condition"], node["missing"] == node["yes"])
            node = first if left else second
        return float(node["leaf"])

    def lightgbm_tree(node: Any) -> float:
        while "leaf_value" not in node:
            assert node["decision_type"] == "<="
            feature = model["feature_names"][node["split_feature"]]
            left = goes_left(float(features[feature]), float(node["threshold"]), node["default_left"])
            node = node["left_child" if left else "right_child"]
        return float(node["leaf_value"])

    if isinstance(model, list):
        return math.fsum(xgboost_tree(tree) for tree in model)
    assert model["objective"] == "regression"  # else Vespa might transform the scores
    assert model["pandas_categorical"] == []
    return math.fsum(lightgbm_tree(tree["tree_structure"]) for tree in model["tree_info"])


@pytest.mark.parametrize("to", ["elasticsearch", "opensearch"])
@pytest.mark.parametrize("learner", ["linear", "svm", *BOOSTERS])
def test_the_ltr_plugins_score_the_same(to: str, learner: str, tmp_path: Path) -> None:
    ranker = trained(learner)
    body = written(ranker, to, tmp_path)
    assert body["model"]["name"] == "shop"
    x = probes(ranker)
    found = [elasticsearch(body["model"]["model"], named(ranker, row)) for row in x]
    assert found == pytest.approx(ranker.predict(x).tolist(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("learner", ["linear", *BOOSTERS])
def test_solr_scores_the_same(learner: str, tmp_path: Path) -> None:
    ranker = trained(learner)
    model = written(ranker, "solr", tmp_path)
    assert model["name"] == "shop"
    x = probes(ranker)
    found = [solr(model, named(ranker, row)) for row in x]
    assert found == pytest.approx(ranker.predict(x).tolist(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("learner", BOOSTERS)
@pytest.mark.parametrize("missing", [False, True])
def test_vespa_scores_the_same(learner: str, missing: bool, tmp_path: Path) -> None:
    ranker = trained(learner, missing)
    model = written(ranker, "vespa", tmp_path)
    x = probes(ranker)
    x[::3, 0] = np.nan
    found = [vespa(model, named(ranker, row)) for row in x]
    assert found == pytest.approx(ranker.predict(x).tolist(), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("learner", "missing"),
    [("linear", False), *((learner, missing) for learner in BOOSTERS for missing in (False, True))],
)
def test_onnx_scores_the_same(learner: str, missing: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the onnx extra is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    ranker = trained(learner, missing)
    export_ranker(ranker, "onnx", tmp_path / "ranker.onnx")
    session = runtime.InferenceSession(tmp_path / "ranker.onnx")
    x = probes(ranker)
    if missing:
        x[::3, 0] = np.nan
    (found,) = session.run(None, {"x": x})
    assert found.shape == (len(x), 1)
    assert found[:, 0] == pytest.approx(ranker.predict(x), rel=1e-5, abs=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["features"]) == list(ranker.features)


@pytest.mark.parametrize("learner", BOOSTERS)
def test_the_libraries_read_their_own(learner: str, tmp_path: Path) -> None:
    library = pytest.importorskip(learner, reason=f"{learner} is not installed: pip install -e '.[dev]'")
    ranker = trained(learner)
    export_ranker(ranker, learner, tmp_path / f"model.{'txt' if learner == 'lightgbm' else 'json'}")
    booster = library.Booster(model_file=str(next(tmp_path.iterdir())))
    x = probes(ranker)
    given = x if learner == "lightgbm" else library.DMatrix(x, feature_names=list(ranker.features))
    assert np.array_equal(np.asarray(booster.predict(given), float), ranker.predict(x))
    other = "xgboost" if learner == "lightgbm" else "lightgbm"
    with pytest.raises(InputError, match=f"learned by {learner}"):
        export_ranker(ranker, other, tmp_path / "no")


@pytest.mark.parametrize("learner", BOOSTERS)
def test_trees_are_those_of_the_library(learner: str) -> None:
    """Among them exact thresholds: the least change of a threshold would be seen."""
    ranker = trained(learner)

    def value(node: Split | Leaf, row: NDArray[np.float32]) -> float:
        while isinstance(node, Split):
            node = node.left if row[node.feature] <= node.up_to else node.right
        return node.value

    x = probes(ranker)
    trees = trees_of(ranker)
    found = [trees.base + sum(value(root, row) for root in trees.roots) for row in x]
    assert found == pytest.approx(ranker.predict(x).tolist(), rel=1e-5, abs=1e-6)


def test_a_base_score_is_a_tree_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from clickharvest.rank.exports import elasticsearch as plugin
    from clickharvest.rank.exports import solr as own_solr

    ranker = trained("xgboost")
    trees = Trees((Leaf(1.5),), 0.25)
    for module in (plugin, own_solr):
        monkeypatch.setattr(module, "trees_of", lambda _: trees)
    x = named(ranker, probes(ranker)[0])
    assert elasticsearch(written(ranker, "elasticsearch", tmp_path)["model"]["model"], x) == 1.75
    assert solr(written(ranker, "solr", tmp_path), x) == 1.75


def test_what_is_refused(tmp_path: Path) -> None:
    linear = trained("linear")
    with pytest.raises(InputError, match="Vespa imports trees and ONNX"):
        export_ranker(linear, "vespa", tmp_path / "no")
    with pytest.raises(InputError, match=f"no export 'lucene': expected one of {', '.join(EXPORTS)}"):
        export_ranker(linear, "lucene", tmp_path / "no")
    with pytest.raises(InputError, match="has no name"):
        export_ranker(linear, "solr", tmp_path / "no", name="")
    with pytest.raises(InputError, match="weights and no trees"):
        trees_of(linear)
    assert not list(tmp_path.iterdir())
