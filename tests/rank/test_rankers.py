"""Ranker files: every learner in one format; what is damaged, foreign or new is refused; nothing runs."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import clickharvest
from clickharvest.errors import InputError
from clickharvest.rank import BoostSettings, FeatureColumns, TrainedRanker, load_ranker, ranking_data, train_ranker
from clickharvest.rank.reranking import rerank
from command_line import run

LEARNERS = ("linear", "svm", "lightgbm", "xgboost")
COLUMNS = FeatureColumns(("price", "brand"), {"brand": ("acme", "zeta")})


@cache
def trained(learner: str) -> TrainedRanker:
    if learner in ("lightgbm", "xgboost"):
        pytest.importorskip(learner, reason="the boost extra is not installed")
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3))
    starts = np.arange(0, 201, 5)
    clicked = x[:, 0].reshape(-1, 5).argmax(axis=1) + starts[:-1]
    data = ranking_data(x, starts, clicked, exposure=np.ones(200))
    given = {"C": 1.0, "clip": 0.1} if learner == "svm" else {}
    settings = BoostSettings(rounds=8, leaves=4)
    ranker = train_ranker(data, learner, names=COLUMNS.names, settings=settings, **given)
    info = {"judged": {"verdict": "Keep it.", "value": np.float64("nan")}, "data": {"clicks": np.int64(40)}}
    return TrainedRanker(ranker.learner, ranker.features, ranker.settings, ranker.model, COLUMNS, info)


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_comes_back_as_it_was(learner: str, tmp_path: Path) -> None:
    ranker = trained(learner)
    ranker.save(tmp_path / "ranker.json")
    again = clickharvest.load_ranker(tmp_path / "ranker.json")
    x = np.random.default_rng(1).normal(size=(50, 3))
    assert np.array_equal(again.predict(x), ranker.predict(x))
    assert (again.learner, again.features, again.settings, again.columns) == (
        learner, COLUMNS.names, ranker.settings, COLUMNS,
    )  # fmt: skip
    assert again.info == {"judged": {"verdict": "Keep it.", "value": None}, "data": {"clicks": 40}}
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "ranker.json").read_bytes()


def _changed(path: Path, **changes: object) -> None:
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"price": 9.0, "brand=acme": 0.0, "brand=zeta": 0.0}}, "is damaged"),
        ({"sha256": None}, "is damaged"),
        ({"format": 2}, "has the format 2, this version reads 1; upgrade"),
        ({"format": "x"}, "has the format x"),
        ({"what": "model"}, "is no ranker"),
    ],
)
def test_what_was_changed_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "ranker.json"
    trained("linear").save(path)
    _changed(path, **changes)
    with pytest.raises(InputError, match=message):
        load_ranker(path)


def test_what_is_no_ranker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        load_ranker(tmp_path / "none.json")
    for text in (b"\x80\x04\x95", b"not json", b"[1]", b'{"what": "ranker", "learner": "svm"}'):
        (tmp_path / "bad.json").write_bytes(text)
        with pytest.raises(InputError):
            load_ranker(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text('{"what": "ranker", "learner": "svm", "weights": {"a": 1.0}}')
    with pytest.raises(InputError, match="has the format None, this version reads 1; train again"):
        load_ranker(tmp_path / "bad.json")


BENT = {
    "lightgbm": [
        (".*", "tree\nnonsense"),
        ("leaf_value=", "leaf_values="),
        ("leaf_value=", "leaf_value=1 "),
        ("leaf_value=", "leaf_value=1\nleaf_value="),
        (r"leaf_value=\S+", "leaf_value=1e308"),
        (r"split_feature=\d+", "split_feature=99"),
        (r"left_child=-?\d+", "left_child=0"),
        (r"left_child=-?\d+", "left_child=9999"),
        (r"right_child=-?\d+", "right_child=-9999"),
        (r"num_leaves=\d+", "num_leaves=2147483648"),
        ("decision_type=2", "decision_type=1"),
        ("Tree=0", "ree=0"),
        (r"max_feature_idx=\d+", "max_feature_idx=77"),
        ("end of trees", ""),
        (r"\[num_gpu.*", ""),
    ],
    "xgboost": [
        (".*", '{"learner": 3}'),
        (".*", "[" * 100_000),
        (r'"left_children":\[\d+', '"left_children":[0'),
        (r'"left_children":\[\d+', '"left_children":[9999'),
        (r'"split_indices":\[\d+', '"split_indices":[99'),
        (r'"split_conditions":\[[^,]+', '"split_conditions":[1e308'),
        (r'"right_children":\[[^\]]+', '"right_children":[1'),
        (r'"num_nodes":"\d+"', '"num_nodes":"2"'),
        (r'"num_feature":"\d+"', '"num_feature":"1"'),
        (r'"feature_names":\[[^\]]+', '"feature_names":["x"'),
    ],
}
"""What LightGBM and XGBoost would not notice, or would end Python over."""


@pytest.mark.parametrize("learner", ["lightgbm", "xgboost"])
def test_trees_that_the_library_cannot_read(learner: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Written with a right digest, as whoever makes files by hand could."""
    from clickharvest.rank import rankers

    path = tmp_path / "ranker.json"
    trained(learner).save(path)
    told = json.loads(path.read_text())
    del told["sha256"]
    text = told["model"]["text"]
    for pattern, new in BENT[learner]:
        told["model"]["text"], count = re.subn(pattern, new, text, count=1, flags=re.DOTALL)
        assert count == 1, pattern
        path.write_text(json.dumps(told | {"sha256": rankers._digest(told)}))
        with pytest.raises(InputError, match=f"{learner} cannot read the ranker's trees"):
            load_ranker(path)


DOCUMENTS = pa.table(
    {
        "q": ["1", "1", "1", "2", "2"],
        "item": ["b", "a", "c", "007", "7"],
        "brand": ["acme", None, "zeta", "other", "acme"],
        "price": [1.0, 2.0, 1.0, 5.0, 3.0],
        "note": ["x"] * 5,
    }
)
RANKER = TrainedRanker("linear", COLUMNS.names, {}, np.array([1.0, 10.0, 1.0]), COLUMNS)
EXPECTED = [("1", "b", 11.0, 1), ("1", "a", 2.0, 2), ("1", "c", 2.0, 3), ("2", "7", 13.0, 1), ("2", "007", 5.0, 2)]


class TestRerank:
    @pytest.mark.parametrize("ending", ["parquet", "csv"])
    def test_files_of_any_kind(self, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        RANKER.save(tmp_path / "ranker.json")
        source, out = tmp_path / f"documents.{ending}", tmp_path / "ranked.parquet"
        pq.write_table(DOCUMENTS, source) if ending == "parquet" else pa.csv.write_csv(DOCUMENTS, source)
        keys = ("--query", "q", "--doc", "item")
        assert run("rerank", tmp_path / "ranker.json", source, *keys, "-o", out) == 0
        assert capsys.readouterr().out == f"Ranked 5 documents of 2 queries: {out}\n"
        found = pq.read_table(out)
        assert found.column_names == ["q", "item", "score", "rank"]
        assert [tuple(row.values()) for row in found.to_pylist()] == EXPECTED
        assert run("rerank", tmp_path / "ranker.json", source, *keys, "-o", out, "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"file": str(out), "documents": 5, "queries": 2}

    def test_many_batches_give_one_ranking(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from clickharvest.rank import reranking

        monkeypatch.setattr(reranking, "ROWS", 1_000)
        random = np.random.default_rng(0)
        table = pa.table(
            {"query": random.integers(0, 500, 9_000), "doc": np.arange(9_000), "price": random.normal(size=9_000)}
        )
        ranker = TrainedRanker("linear", ("price",), {}, np.array([-2.0]))
        rerank(ranker, table, tmp_path / "out.parquet")
        found = pq.read_table(tmp_path / "out.parquet").to_pandas()
        assert len(found) == 9_000
        assert (found.score == -2 * table["price"].to_numpy()[found.doc]).all()
        assert (found["rank"] == found.groupby("query").score.rank(ascending=False)).all()
        assert found["query"].is_monotonic_increasing

    def test_documents_alone_are_one_list(self, tmp_path: Path) -> None:
        table = DOCUMENTS.drop_columns(["q"])
        assert rerank(RANKER, table, tmp_path / "out.parquet", doc="item").queries is None
        assert pq.read_table(tmp_path / "out.parquet")["item"].to_pylist() == ["7", "b", "007", "a", "c"]

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (DOCUMENTS.drop_columns(["price"]), "lacks the column 'price'"),
            (DOCUMENTS.drop_columns(["price", "brand"]), "lacks the columns '"),
            (
                DOCUMENTS.set_column(3, "price", pa.array([1.0, np.inf, 1.0, 1.0, 1.0])),
                "column 'price' holds missing or infinite",
            ),
            (DOCUMENTS.rename_columns(["q", "item", "brand", "x", "price"]), "holds string: expected numbers"),
            (DOCUMENTS.rename_columns(["q", "item", "x", "price", "y"]), "lacks the column 'brand'"),
            (DOCUMENTS.rename_columns(["q", "item", "x", "brand", "price"]), "expects text"),
            (
                DOCUMENTS.set_column(3, "price", pa.array([1.0, None, 1.0, 1.0, 1.0])),
                "the table, column 'price' holds missing or infinite values, which this ranker does not take",
            ),
            (DOCUMENTS.slice(0, 0), "no rows"),
        ],
    )
    def test_other_documents_are_refused(self, table: pa.Table, message: str, tmp_path: Path) -> None:
        if "expects text" in message:
            table = table.set_column(4, "price", pa.array([1.0] * 5))
        with pytest.raises(InputError, match=message):
            rerank(RANKER, table, tmp_path / "out.parquet", query="q", doc="item")
        assert not (tmp_path / "out.parquet").exists()

    def test_one_column_for_two_roles_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="both in the column 'item'"):
            rerank(RANKER, DOCUMENTS, tmp_path / "out.parquet", query="item", doc="item")

    @pytest.mark.parametrize(
        ("options", "message"),
        [((), "nowhere to write"), (("-o", "x.csv"), "end in .parquet"), (("-o", "RANKER"), "end in .parquet")],
    )
    def test_bad_options(
        self, options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        RANKER.save(tmp_path / "ranker.json")
        pq.write_table(DOCUMENTS, tmp_path / "documents.parquet")
        given = [option.replace("RANKER", str(tmp_path / "ranker.json")) for option in options]
        assert run("rerank", tmp_path / "ranker.json", tmp_path / "documents.parquet", *given) == 2
        assert message in capsys.readouterr().err


def test_the_command_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RANKER.save(tmp_path / "ranker.json")
    out = tmp_path / "model.json"
    assert run("export", tmp_path / "ranker.json", "--to", "solr", "--name", "shop", "-o", out) == 0
    assert capsys.readouterr().out == f"Wrote a model for solr with 3 features: {out}\n"
    assert json.loads(out.read_text())["params"]["weights"] == {"price": 1.0, "brand=acme": 10.0, "brand=zeta": 1.0}
    assert run("export", tmp_path / "ranker.json", "--to", "solr") == 2
    assert "nowhere to write" in capsys.readouterr().err
    assert run("export", tmp_path / "ranker.json", "--to", "lucene", "-o", out) == 2
    assert "'lucene' is not one of" in capsys.readouterr().err
