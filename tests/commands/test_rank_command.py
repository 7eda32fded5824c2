"""The command `rank`, and its parts: reading clicks, splitting, training by name, comparing; what is refused."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs.reading import read_log
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.rank import RankingData, choosing, load_ranker, off_policy, ranking_data, trials
from clickharvest.rank.comparison import compare_rankers, split_lists, take_lists
from clickharvest.rank.learners import train_ranker
from clickharvest.rank.tables import read_clicks, read_grades
from clickharvest.rank.training import BoostSettings, click_labels
from command_line import run

QUERIES, DOCS = 120, 6
DEPTHS = 1.0 / np.arange(1, DOCS + 1)


def simulated(seed: int = 0) -> tuple[pa.Table, pa.Table, pa.Table]:
    """A log, features and grades: relevance follows feature `good`, the log is ordered by the useless `bad`."""
    random = np.random.default_rng(seed)
    good, bad = random.normal(size=(2, QUERIES, DOCS))
    relevant = good > 0.3
    log: dict[str, list[Any]] = {"q": [], "item": [], "rank": [], "click": []}
    for query in range(QUERIES):
        for _ in range(4):
            order = np.argsort(-bad[query] - random.normal(scale=0.7, size=DOCS))
            seen = random.random(DOCS) < DEPTHS
            log["q"] += [f"q{query}"] * DOCS
            log["item"] += [f"{query}-{doc}" for doc in order]
            log["rank"] += range(1, DOCS + 1)
            log["click"] += (seen & relevant[query][order]).astype(int).tolist()
    keys = {
        "q": [f"q{query}" for query in range(QUERIES) for _ in range(DOCS)],
        "item": [f"{query}-{doc}" for query in range(QUERIES) for doc in range(DOCS)],
    }
    features = pa.table(keys | {"good": good.ravel(), "bad": 1000 * bad.ravel(), "constant": np.ones(good.size)})
    return pa.table(log), features, pa.table(keys | {"grade": relevant.ravel().astype(int)})


SHOWN_ORDER = "all traffic, as shown"
ROLES = ("--query", "q", "--doc", "item", "--position", "rank")
QUICK = ("--C", 1, "--clip", 0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rank")
    log, features, grades = simulated()
    pq.write_table(log, folder / "log.parquet")
    pq.write_table(features, folder / "features.parquet")
    pa.csv.write_csv(log, folder / "log.csv")
    pa.csv.write_csv(features, folder / "features.csv")
    pq.write_table(grades, folder / "grades.parquet")
    position = tuple(range(1, DOCS + 1))
    model = Propensities(make_curve("constant", position, 1, 0), {"b": np.log(DEPTHS[1:])}, None, shown=position)
    model.save(folder / "model.safetensors")
    assert run("weigh", folder / "log.parquet", folder / "model.safetensors", *ROLES, "-o", folder / "w.parquet") == 0
    return folder


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def value(answer: dict[str, Any], metric: str, **which: str) -> dict[str, Any]:
    part = answer["estimates" if "ranker" in which else "differences"]
    (found,) = [e for e in part if e["metric"] == metric and all(e[name] == v for name, v in which.items())]
    return dict(found)


def test_a_better_ranker_from_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    files = (folder / "log.parquet", folder / "features.parquet", "--model", folder / "model.safetensors")
    out = folder / "ranker.json"
    assert run("rank", *files, *ROLES, "--judgements", folder / "grades.parquet", "-o", out, "--json") == 0
    answer = told(capsys)
    written = json.loads(out.read_text())
    assert (answer["file"], answer["learner"], answer["features"]) == (str(out), "svm", 3)
    assert (written["settings"]["C"], written["settings"]["clip"]) == (answer["C"], answer["clip"])
    assert list(written["weights"]) == ["good", "bad", "constant"]
    assert written["weights"]["good"] > 100 * abs(written["weights"]["bad"])
    gain = value(answer, "relevant_rank", to=SHOWN_ORDER)
    assert gain["value"] < gain["upper"] < 0
    assert value(answer, "dcg@10", to=SHOWN_ORDER)["lower"] > 0
    assert value(answer, "relevant_rank", to="naive clicks")["value"] < gain["value"] / -2
    judged = answer["judged"]["rankers"]
    assert judged["new ranker"]["ndcg@10"] > judged[SHOWN_ORDER]["ndcg@10"] + 0.1
    assert answer["test"]["queries"] + answer["train"]["queries"] == QUERIES


def test_what_was_shown_is_judged_page_by_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean over pages of what each position is worth, not the worth of a mean position that nobody saw."""
    capsys.readouterr()
    share = ("--test-share", 0.5, "--seed", 3)
    assert run("rank", folder / "w.parquet", folder / "features.parquet", *ROLES, *QUICK, *share,
               "-o", folder / "r.json", "--json") == 0  # fmt: skip
    answer = told(capsys)
    log = read_log(folder / "w.parquet", query="q", doc="item", position="rank")
    clicks = read_clicks(log, str(folder / "features.parquet"))
    worth: dict[str, list[float]] = {}
    for row in pq.read_table(folder / "log.parquet").to_pylist():
        worth.setdefault(row["item"], []).append(1 / np.log2(1 + row["rank"]))
    means = np.array([np.mean(worth[item]) for item in clicks.keys["doc"].to_pylist()])
    held = split_lists(clicks.data, 0.5, seed=3)
    test = take_lists(clicks.data, held)
    weights = test.weights()
    expected = (weights * means[np.repeat(held, np.diff(clicks.data.starts))][test.clicked]).sum() / weights.sum()
    assert value(answer, "dcg@10", ranker=SHOWN_ORDER)["value"] == pytest.approx(expected)
    assert answer["best_shown"] == SHOWN_ORDER
    assert SHOWN_ORDER in answer["verdict"]


def test_relevant_rank_means_the_same_by_clicks_and_by_judgements(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean rank of a relevant document: estimated from clicks, and counted where every document is judged."""
    capsys.readouterr()
    assert run("rank", folder / "w.parquet", folder / "features.parquet", *ROLES, *QUICK, "--test-share", 0.5,
               "--judgements", folder / "grades.parquet", "-o", folder / "r.json", "--json") == 0  # fmt: skip
    answer = told(capsys)
    clicks = read_clicks(read_log(folder / "w.parquet", query="q", doc="item", position="rank"),
                         str(folder / "features.parquet"))  # fmt: skip
    held = split_lists(clicks.data, 0.5, seed=0)
    of_documents = np.repeat(held, np.diff(clicks.data.starts))
    relevant = np.flatnonzero(read_grades(clicks, str(folder / "grades.parquet"))[of_documents])
    test = take_lists(clicks.data, held)
    seen = ranking_data(test.features.matrix, test.starts, relevant, np.ones(len(relevant)))
    ranker = json.loads((folder / "r.json").read_text())["weights"]
    scores = test.features.matrix @ np.array([ranker[name] for name in clicks.features])
    counted = answer["judged"]["rankers"]["new ranker"]["relevant_rank"]
    assert counted == pytest.approx(off_policy(seen, scores, "relevant_rank").value)
    estimate = value(answer, "relevant_rank", ranker="new ranker")
    assert estimate["lower"] < counted < estimate["upper"]
    assert "avg_rank" not in json.dumps(answer)


def test_csv_and_a_weighted_log_give_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    answers = []
    for files in (
        (folder / "log.csv", folder / "features.csv", "--model", folder / "model.safetensors"),
        (folder / "w.parquet", folder / "features.parquet"),
    ):
        assert run("rank", *files, *ROLES, *QUICK, "-o", folder / "same.json", "--json") == 0
        answers.append(told(capsys))
    one, other = (value(answer, "relevant_rank", ranker="new ranker") for answer in answers)
    assert one["value"] == pytest.approx(other["value"])
    assert one["std_error"] == pytest.approx(other["std_error"])


@pytest.mark.parametrize(("learner", "ending"), [("lightgbm", ".txt"), ("xgboost", ".json")])
def test_boosters(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, learner: str, ending: str
) -> None:
    library = pytest.importorskip(learner, reason="the boost extra is not installed")
    monkeypatch.setattr(trials, "train_ranker", partial(train_ranker, settings=BoostSettings(rounds=20)))
    out = folder / f"{learner}{ending}"
    assert run("rank", folder / "w.parquet", folder / "features.parquet", *ROLES, "--learner", learner, "-o", out) == 0
    printed = capsys.readouterr().out
    assert f"Trained {learner} with 3 features on " in printed
    assert f"Saved: {out}" in printed
    features = pq.read_table(folder / "features.parquet").drop_columns(["q", "item"])
    x = np.stack([features[name].to_numpy() for name in features.column_names], axis=1)
    if learner == "lightgbm":  # .txt is the library's own
        scores = library.Booster(model_file=str(out)).predict(x)
    else:
        scores = load_ranker(out).score(features)
    assert np.corrcoef(scores, x[:, 0])[0, 1] > 0.5


def test_auto_tries_learners_and_judges_on_all_queries(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm", reason="the boost extra is not installed")
    monkeypatch.setattr(choosing, "SMALL", BoostSettings(rounds=12, rate=0.2, leaves=4))
    options = ("--learner", "auto", "--judgements", folder / "grades.parquet", *ROLES)
    files = (folder / "w.parquet", folder / "features.parquet", "-o", folder / "auto.json")
    assert run("rank", *files, *options, "--json") == 0
    answer = told(capsys)
    assert answer["train"] == answer["test"]
    names = {one["candidate"] for one in answer["tried"]}
    assert names == {"blend", "linear softmax", "svm hinge", "lightgbm softmax", SHOWN_ORDER}
    assert sum(one["chosen"] for one in answer["tried"]) == 1
    assert answer["verdict"].startswith(f"Better: the new ranker beats what was shown ({SHOWN_ORDER})")
    judged = answer["judged"]["rankers"]
    assert judged["new ranker"]["ndcg@10"] > judged[SHOWN_ORDER]["ndcg@10"] + 0.1
    ranker = load_ranker(folder / "auto.json")
    assert ranker.features == ("good", "bad", "constant")
    assert run("rank", *files, *options) == 0
    printed = capsys.readouterr().out
    assert "tried, best first" in printed
    assert "by rankers that had not seen the query" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_printed_answer_fits_80_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = (folder / "w.parquet", folder / "features.parquet", *ROLES, "--judgements", folder / "grades.parquet")
    assert run("rank", *files, *QUICK, "-o", folder / "r.json") == 0
    printed = capsys.readouterr().out
    assert "minus best shown" in printed
    assert f"Better: the new ranker beats what was shown ({SHOWN_ORDER}), dcg@10 +" in " ".join(printed.split())
    assert printed.count("\n") <= 25
    assert "judged queries" in printed
    assert all(len(line) <= 80 for line in printed.splitlines() if str(folder) not in line)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name a file with -o ranker.json"),
        (("-o", "r.txt"), "should end in .json"),
        (("-o", "r.model", "--learner", "lightgbm"), "should end in .json or .txt"),
        (("-o", "r.txt", "--learner", "lightgbm", "--C", "3"), "goes with --learner svm"),
        (("-o", "r.json", "--C", "much"), "--C much: expected a number from 1e-09 to 1e+09, or auto"),
        (("-o", "r.json", "--clip", "0"), "--clip 0: expected"),
        (("-o", "r.json", "--learner", "auto", "--clip", "0.1"), "--learner auto chooses the clip"),
        (("-o", "r.json", "--level", "95"), "between 0 and 1"),
        (("-o", "r.json", "--test-share", "0.999"), "two queries or more on either side"),
        (("-o", "r.json", "--features", "good,best"), "lacks the column 'best'"),
        (("-o", "r.json", "--judgements", "FOLDER/features.parquet"), "lacks the column 'grade'"),
        (("-o", "r.json", "--model", "FOLDER/model.safetensors"), "has a column 'propensity' already"),
    ],
)
def test_bad_options_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    capsys.readouterr()
    given = [option.replace("FOLDER", str(folder)) for option in options]
    given += [] if "--C" in given or "lightgbm" in given else ["--C", "1"]
    given += [] if "--clip" in given else ["--clip", "0.1"]
    assert run("rank", folder / "w.parquet", folder / "features.parquet", *ROLES, *given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("r.json").exists()


def test_a_log_without_propensities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rank", folder / "log.parquet", folder / "features.parquet", *ROLES, "-o", "r.json") == 2
    assert "name a model with --model" in capsys.readouterr().err


def test_a_missing_library_is_told(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert run("rank", folder / "w.parquet", folder / "features.parquet", *ROLES,
               "--learner", "lightgbm", "-o", folder / "no.txt") == 2  # fmt: skip
    assert "pip install 'clickharvest[boost]'" in capsys.readouterr().err
    assert not (folder / "no.txt").exists()


SHOWN = {"query": [1, 1, 2, 2], "doc": [7, 8, 7, 9], "position": [0, 1, 0, 1], "propensity": [1.0, 0.5, 1.0, 0.5]}
FEATURES = pa.table({"query": [1, 1, 1, 2, 2], "doc": [7, 8, 9, 7, 9], "stars": [1.0, 2.0, 3.0, 4.0, 5.0]})


class TestClicks:
    def test_counted_rows_positions_from_0_and_documents_never_shown(self) -> None:
        counts = {"clicks": [3, 0, 1, 2], "impressions": [9, 9, 4, 4]}
        clicks = read_clicks(read_log(pa.table(SHOWN | counts), position_base=0), FEATURES)
        assert clicks.data.clicks.tolist() == [3, 1, 2]
        assert clicks.data.propensity.tolist() == [1, 1, 0.5]
        assert clicks.data.clicked.tolist() == [0, 2, 3]
        assert clicks.data.features.matrix[:, 0].tolist() == [1, 2, 4, 5]
        (shown,) = clicks.arms.values()
        assert shown.position.tolist() == [1, 2, 1, 2]
        assert shown.share.tolist() == [1, 1, 1, 1]
        assert clicks.data.exposure is not None
        assert clicks.data.exposure.tolist() == [9, 4.5, 4, 2]

    def test_arms_that_show_different_documents(self) -> None:
        """Query 1: arm a showed 7 on nine pages, b showed 8 on one; both first. ρ is .9 and .1, whatever p."""
        log = {
            "query": [1, 1], "doc": [7, 8], "position": [1, 1], "propensity": [1.0, 1.0], "ranker": ["a", "b"],
            "clicks": [3, 1], "impressions": [9, 1],
        }  # fmt: skip
        clicks = read_clicks(read_log(pa.table(log)), FEATURES)
        assert clicks.data.propensity == pytest.approx([0.9, 0.1])
        assert clicks.data.impressions is not None
        assert clicks.data.impressions.tolist() == [10]
        a, b = (off_policy(clicks.data, clicks.arms[name], "precision@1", estimator="ips").value for name in "ab")
        assert (a, b) == pytest.approx((3 / 9, 1 / 1))

    def test_pages_are_counted_where_there_is_a_page_column(self) -> None:
        """Three pages, one of which does not show position 1."""
        log = {
            "query": [1] * 4, "doc": [7, 8, 7, 8], "position": [1, 2, 1, 2], "propensity": [1.0, 0.5, 1.0, 0.5],
            "page": [1, 1, 2, 3], "click": [1, 0, 0, 1],
        }  # fmt: skip
        data = read_clicks(read_log(pa.table(log)), FEATURES).data
        assert data.impressions is not None
        assert data.impressions.tolist() == [3]
        assert data.propensity == pytest.approx([2 / 3, 1 / 3])

    def test_an_arm_is_judged_on_the_queries_that_it_served(self) -> None:
        log = {
            "query": [1, 1, 2], "doc": [7, 8, 7], "position": [1, 2, 1], "propensity": [1.0, 0.5, 1.0],
            "ranker": ["a", "a", "b"], "click": [1, 0, 1],
        }  # fmt: skip
        clicks = read_clicks(read_log(pa.table(log)), FEATURES)
        assert clicks.arms["a"].served.tolist() == [True, False]
        found = off_policy(clicks.data, clicks.arms["a"], "precision@1", estimator="ips")
        assert (found.value, found.queries) == (1.0, 1)

    def test_no_click(self) -> None:
        with pytest.raises(NotIdentifiedError, match="no click"):
            read_clicks(read_log(pa.table(SHOWN | {"click": [0] * 4}), position_base=0, validate=False), FEATURES)

    def test_a_click_on_an_unknown_document(self) -> None:
        log = read_log(pa.table(SHOWN | {"click": [1, 1, 0, 0]}), position_base=0)
        with pytest.raises(InputError, match="not in the table of documents"):
            read_clicks(log, FEATURES.filter(pa.compute.not_equal(FEATURES["doc"], 8)))

    def test_grades(self) -> None:
        clicks = read_clicks(read_log(pa.table(SHOWN | {"click": [1, 0, 0, 1]}), position_base=0), FEATURES)
        grades = {"query": [1, 2], "doc": [8, 7], "grade": [2, 1]}
        assert read_grades(clicks, pa.table(grades)).tolist() == [0, 2, 1, 0]
        with pytest.raises(InputError, match="twice"):
            read_grades(clicks, pa.table({"query": [1, 1], "doc": [9, 9], "grade": [2, 1]}))
        with pytest.raises(InputError, match="expected numbers"):
            read_grades(clicks, pa.table(grades | {"grade": ["good", "bad"]}))


def random_data(seed: int = 0) -> RankingData:
    random = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(random.integers(1, 6, 40))])
    x = random.normal(size=(starts[-1], 3))
    clicked = np.sort(random.integers(0, starts[-1], 80))
    query = np.sort(random.integers(0, 25, 40))
    return ranking_data(x, starts, clicked, random.uniform(0.05, 1, 80), clicks=random.integers(1, 4, 80), query=query)


class TestComparison:
    @pytest.mark.parametrize("metric", ["relevant_rank", "dcg@3", "precision@2"])
    def test_estimates_are_those_of_off_policy(self, metric: str) -> None:
        data = random_data()
        one, other = np.random.default_rng(1).normal(size=(2, data.features.shape[0]))
        (found,) = compare_rankers(data, {"a": one, "b": other}, metrics=(metric,), clip=0.2, level=0.9, seed=4)
        alone = off_policy(data, one, metric, clip=0.2, level=0.9, seed=4)
        paired = off_policy(data, one, metric, baseline=other, clip=0.2, level=0.9, seed=4)
        for ours, theirs in ((found.estimates["a"], alone), (found.differences["b"], paired)):
            for name in ("value", "std_error", "lower", "upper", "effective_clicks", "queries"):
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name))

    def test_splits_keep_queries_whole(self) -> None:
        data = random_data()
        held = split_lists(data, 0.3, seed=1)
        assert not set(data.query[held]) & set(data.query[~held])
        assert held.any()
        assert np.array_equal(held, split_lists(data, 0.3, seed=1))
        assert not np.array_equal(held, split_lists(data, 0.3, seed=2))

    def test_parts_make_the_whole(self) -> None:
        data = random_data()
        held = split_lists(data, 0.3)
        total = 0.0
        for lists in (held, ~held):
            part, records = take_lists(data, lists), lists[data.clicked_list]
            assert np.array_equal(part.features.matrix[part.clicked], data.features.matrix[data.clicked[records]])
            assert np.array_equal(part.propensity, data.propensity[records])
            assert len(part) == lists.sum()
            total += part.clicks.sum()
        assert total == data.clicks.sum()


class TestTraining:
    def test_svm_weights_are_those_of_the_features_as_they_came(self) -> None:
        data = random_data()
        scale = np.array([1.0, 1e4, 1e-3])
        other = ranking_data(
            data.features.matrix * scale,
            data.starts,
            data.clicked,
            data.propensity,
            clicks=data.clicks,
            query=data.query,
        )
        one, two = (train_ranker(d, C=1.0, clip=0.1) for d in (data, other))
        assert two.model * scale == pytest.approx(one.model, rel=1e-2, abs=1e-3)

    def test_labels_sum_to_the_clicks(self) -> None:
        data = random_data()
        labels, clip = click_labels(data, 0.3)
        assert labels.sum() == pytest.approx(data.clicks.sum())
        assert clip == 0.3
        ratio = labels[data.clicked[0]] / np.bincount(data.clicked, data.weights(0.3))[data.clicked[0]]
        assert labels == pytest.approx(ratio * np.bincount(data.clicked, data.weights(0.3), len(labels)))

    @pytest.mark.parametrize("learner", ["lightgbm", "xgboost"])
    def test_boosters_repeat_and_take_any_name(self, learner: str, tmp_path: Path) -> None:
        pytest.importorskip(learner, reason="the boost extra is not installed")
        names = ["a b", 'c"{}', "prix €"] if learner == "lightgbm" else ["a b", "c", "prix €"]
        data = random_data()
        rankers = [train_ranker(data, learner, names=names, settings=BoostSettings(rounds=5)) for _ in range(2)]
        scores = [ranker.predict(data.features) for ranker in rankers]
        assert np.array_equal(*scores)
        rankers[0].save(tmp_path / "ranker")
        assert (tmp_path / "ranker").stat().st_size > 0
        with pytest.raises(InputError, match="the ranker knows 3"):
            rankers[0].predict(np.ones((2, 4)))

    def test_refusals(self) -> None:
        with pytest.raises(InputError, match="expected one of lightgbm, linear, svm, xgboost"):
            train_ranker(random_data(), "magic")
        with pytest.raises(InputError, match="goes with the learner svm"):
            train_ranker(random_data(), "xgboost", C=1.0)
