"""Features as they come: numbers, text, maps, missing values; keyed by query and document, or by document alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import issparse

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs.reading import read_log
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.rank import BoostSettings, FeatureColumns, load_ranker, ranking_data, read_clicks, train_ranker
from clickharvest.rank import documents as reading
from command_line import run

SHOWN: dict[str, Any] = {
    "query": ["1", "1", "2", "2"], "doc": ["a", "b", "a", "c"], "position": [1, 2, 1, 2], "click": [1, 0, 0, 1],
    "propensity": [1.0, 0.5, 1.0, 0.5],
}  # fmt: skip
KEYS = {"query": ["2", "1", "2", "1"], "doc": ["c", "a", "a", "b"]}


def clicks_with(documents: dict[str, Any], **options: Any) -> Any:
    return read_clicks(read_log(pa.table(SHOWN)), pa.table(documents), **options)


def test_single_precision_is_kept_and_double_is_not_lost() -> None:
    exact = 1 + 1e-12
    x, n = pa.array([3, 1, 2, 4], pa.float32()), pa.array([3, 1, 2, 4], pa.int16())
    single = clicks_with(KEYS | {"x": x, "n": n, "b": [True, False, True, False]})
    assert single.data.features.matrix.dtype == np.float32
    assert single.data.features.matrix.tolist() == [[1, 1, 0], [4, 4, 0], [2, 2, 1], [3, 3, 1]]
    double = clicks_with(KEYS | {"x": x, "y": [exact] * 4})
    assert double.data.features.matrix.dtype == np.float64
    assert double.data.features.matrix[0, 1] == exact


def test_features_of_documents_for_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS", 1)
    clicks = clicks_with({"doc": ["c", "b", "a", "z"], "x": [3.0, 2.0, 1.0, 9.0]})
    assert clicks.keys.to_pydict() == {"query": ["1", "1", "2", "2"], "doc": ["a", "b", "a", "c"]}
    assert clicks.data.features.matrix.ravel().tolist() == [1, 2, 1, 3]
    with pytest.raises(InputError, match=r"some document twice \('a' 2 times\): expected one row"):
        clicks_with({"doc": ["a", "a", "b", "c"], "x": [1.0] * 4})


def test_whole_numbers_of_any_size_are_the_same_names() -> None:
    shown = SHOWN | {
        "query": pa.array([1, 1, 2, 2], pa.int32()),
        "doc": pa.array([1, 2, 1, 3], pa.int16()),
        "page": [1, 1, 2, 2],
    }
    documents = pa.table({"query": pa.array([1, 1, 2, 2], pa.uint8()), "doc": [1, 2, 1, 3], "x": [1.0, 2.0, 3.0, 4.0]})
    for page in (None, "page"):
        clicks = read_clicks(read_log(pa.table(shown), page=page), documents)
        assert clicks.data.features.matrix.ravel().tolist() == [1, 2, 3, 4]


def test_text_is_one_feature_for_each_value() -> None:
    clicks = clicks_with(KEYS | {"brand": ["zeta", "acme", None, "acme"], "x": [1.0, 2.0, 3.0, 4.0]})
    assert clicks.features == ["brand=acme", "brand=zeta", "x"]
    assert clicks.data.features.matrix.tolist() == [[1, 0, 2], [1, 0, 4], [0, 0, 3], [0, 1, 1]]
    assert FeatureColumns.from_dict(json.loads(json.dumps(clicks.columns.to_dict()))) == clicks.columns


def test_of_many_values_the_most_frequent_count() -> None:
    n = 300
    shown = {"query": ["q"] * n, "doc": np.arange(n), "position": np.arange(1, n + 1), "click": [1] * n,
             "propensity": [1.0] * n}  # fmt: skip
    log = read_log(pa.table(shown))
    often = [f"v{i % 50}" if i < 200 else f"rare{i}" for i in range(n)]
    found = read_clicks(log, pa.table({"doc": np.arange(n), "brand": often})).features
    assert len(found) == 100
    assert {f"brand=v{i}" for i in range(50)} <= set(found)
    with pytest.raises(InputError, match="has so many values that the 100 most frequent are not half of them"):
        read_clicks(log, pa.table({"doc": np.arange(n), "title": [f"t{i}" for i in range(n)]}))


def test_maps_are_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS", 2)
    words = pa.array([[("cheap", 2.0)], [("red", 1.0), ("cheap", 3.0)], [], None], pa.map_(pa.string(), pa.float64()))
    clicks = clicks_with(KEYS | {"words": words, "x": [1.0, 2.0, 3.0, 4.0]})
    assert clicks.features == ["words:cheap", "words:red", "x"]
    assert issparse(clicks.data.features.matrix)
    assert clicks.data.features.matrix.toarray().tolist() == [[3, 1, 2], [0, 0, 4], [0, 0, 3], [2, 0, 1]]
    other = pa.array([[("new", 7.0), ("red", 5.0)]], pa.map_(pa.string(), pa.float64()))
    assert clicks.columns.encode(pa.table({"words": other, "x": [0.0]})).toarray().tolist() == [[0, 5, 0]]


@pytest.mark.parametrize("learner", ["lightgbm", "xgboost"])
def test_trees_take_missing_values_and_linear_rankers_do_not(learner: str) -> None:
    pytest.importorskip(learner, reason="the boost extra is not installed")
    clicks = clicks_with(KEYS | {"x": [1.0, None, 3.0, 4.0]})
    assert np.isnan(clicks.data.features.matrix.ravel()).tolist() == [True, False, False, False]
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 2))
    starts = np.arange(0, 401, 4)
    clicked = x[:, 0].reshape(-1, 4).argmax(axis=1) + starts[:-1]
    known = x[:, 0].copy()
    x[x[:, 0] < -0.5, 0] = np.nan  # missing says that it is low
    data = ranking_data(x, starts, clicked, exposure=np.ones(400))
    ranker = train_ranker(data, learner, settings=BoostSettings(rounds=20, leaves=4))
    scores = ranker.predict(data.features)
    assert scores[np.isnan(x[:, 0])].mean() < scores[known > 0.5].mean() - 0.5
    for linear in ("linear", "svm"):
        with pytest.raises(InputError, match="missing values, which only trees take"):
            train_ranker(data, linear)


LACKING = {"query": ["1", "1", "2"], "doc": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}


class TestMissing:
    def test_a_click_on_a_document_without_features(self) -> None:
        with pytest.raises(InputError, match=r"1 clicked document is not in the table of documents.*--missing drop"):
            clicks_with(LACKING)
        clicks = clicks_with(LACKING, missing="drop")
        assert (clicks.unknown, clicks.data.clicks.sum()) == (1, 1)
        assert clicks.keys["doc"].to_pylist() == ["a", "b", "a"]
        with pytest.raises(InputError, match="expected 'error' or 'drop'"):
            clicks_with(LACKING, missing="fill")

    def test_no_document_has_features(self) -> None:
        with pytest.raises(NotIdentifiedError, match="are the names of documents the same"):
            clicks_with({"doc": ["x", "y"], "f": [1.0, 2.0]}, missing="drop")


def test_unsupported_clicks_are_told() -> None:
    """The model has an estimate for position 1 alone: the click at position 2 borrows it."""
    log = read_log(pa.table({name: SHOWN[name] for name in ("query", "doc", "position", "click")}))
    model = Propensities(make_curve("constant", (1, 3), 1, 0), {"b": np.log([0.5])}, None, shown=(1, 2, 3))
    documents = pa.table({"doc": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    assert read_clicks(log, documents, model).unsupported == 0.5
    assert clicks_with(KEYS | {"x": [1.0] * 4}).unsupported is None
    told = pa.table(SHOWN | {"propensity_state": ["usable", "usable", "usable", "cannot tell"]})
    assert read_clicks(read_log(told), documents).unsupported == 0.5


def test_the_effective_sample_size() -> None:
    """Both clicks are policy-aware: 1 and .5 of one page each, w = 1 and 2: (1 + 2)² / (1 + 4)."""
    assert clicks_with(KEYS | {"x": [1.0] * 4}).effective == pytest.approx(9 / 5)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 60 queries; the good brand is liked, and half of the documents lack a price."""
    folder = tmp_path_factory.mktemp("shop")
    random = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {"query": [], "doc": [], "position": [], "click": [], "propensity": []}
    brands = random.choice(["good", "bad"], 200)
    for query in range(60):
        for position, doc in enumerate(random.choice(200, 6, replace=False), 1):
            rows["query"].append(f"q{query}")
            rows["doc"].append(f"d{doc}")
            rows["position"].append(position)
            rows["propensity"].append(1 / position)
            rows["click"].append(int(random.random() < (0.9 if brands[doc] == "good" else 0.1) / position))
    pq.write_table(pa.table(rows), folder / "log.parquet")
    price = [None if i % 2 else float(i) for i in range(190)]
    documents = {"doc": [f"d{i}" for i in range(190)], "brand": brands[:190], "price": pa.array(price, pa.float32())}
    pq.write_table(pa.table(documents), folder / "documents.parquet")
    return folder


def test_a_shop_with_brands_from_the_command_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm", reason="the boost extra is not installed")
    files = (shop / "log.parquet", shop / "documents.parquet", "--learner", "lightgbm", "-o", shop / "ranker.json")
    assert run("rank", *files) == 2
    assert "--missing drop" in capsys.readouterr().err
    assert run("rank", *files, "--missing", "drop") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Effective sample size:" in printed
    assert "were dropped, on documents without features" in printed
    ranker = load_ranker(shop / "ranker.json")
    assert ranker.features == ("brand=bad", "brand=good", "price")
    assert ranker.info["data"]["dropped_clicks"] > 0
    assert ranker.info["judged"]["verdict"]
    assert ranker.info["provenance"]["command"][0] == "rank"
    assert len(ranker.info["data"]["sha256"]) == 64
    good, bad = ranker.score(pa.table({"brand": ["good", "bad"], "price": pa.array([4.0, 4.0], pa.float32())}))
    assert good > bad
