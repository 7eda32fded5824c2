from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from clickharvest.errors import InputError
from clickharvest.rank import BoostSettings, PropensitySVMRankCV, RankingData, ranking_data, train_ranker
from clickharvest.rank.learners import LEARNERS
from clickharvest.rank.training import click_labels

QUICK = BoostSettings(rounds=8, leaves=4)


def simulated(seed: int = 0, lists: int = 60, size: int = 5) -> RankingData:
    """Lists with one click each, mostly on the document with the highest first feature."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(lists * size, 3))
    starts = np.arange(lists + 1) * size
    clicked = (2 * x[:, 0] + random.gumbel(size=len(x))).reshape(lists, size).argmax(axis=1) + starts[:-1]
    return ranking_data(x, starts, clicked, random.choice([1.0, 0.5, 0.1], lists), exposure=np.ones(len(x)))


def test_one_click_has_a_label_of_one_whatever_its_propensity() -> None:
    labels, clip = click_labels(ranking_data([[0.0], [1.0]], [0, 2], clicked=[1], propensity=[0.2]))
    assert labels.tolist() == pytest.approx([0.0, 1.0])
    assert clip == 1.0


def test_no_clicks_have_no_labels() -> None:
    assert click_labels(ranking_data([[0.0], [1.0]], [0, 2], clicked=[1], clicks=[0]))[0].tolist() == [0.0, 0.0]


def test_the_clip_vanishes_as_clicks_grow_in_number() -> None:
    data = ranking_data(np.zeros((4, 1)), [0, 4], clicked=[0, 1, 2], propensity=[1.0, 0.5, 0.05], clicks=[7, 8, 1])
    labels, clip = click_labels(data)
    assert clip == 0.25
    assert labels == pytest.approx(np.array([7.0, 16.0, 4.0, 0.0]) * 16 / 27)
    assert click_labels(replace(data, clicks=100 * data.clicks))[1] == pytest.approx(0.025)


@pytest.mark.parametrize(("learner", "loss"), [(name, loss) for name in LEARNERS for loss in LEARNERS[name].losses])
def test_every_learner_and_loss_learns_what_matters(learner: str, loss: str) -> None:
    if learner in ("lightgbm", "xgboost"):
        pytest.importorskip(learner, reason="the boost extra is not installed")
    data = simulated()
    ranker = train_ranker(data, learner, loss=loss, settings=QUICK)
    assert ranker.settings["loss"] == loss
    assert ranker.features == ("f1", "f2", "f3")
    scores = ranker.predict(data.features)
    assert np.corrcoef(scores, np.asarray(data.features.matrix)[:, 0])[0, 1] > 0.7


@pytest.mark.parametrize("learner", ["lightgbm", "xgboost"])
def test_boosters_stop_when_held_out_clicks_no_longer_gain(learner: str) -> None:
    """Features that mean nothing are of no use to lists held out: few of the 300 trees are grown."""
    pytest.importorskip(learner, reason="the boost extra is not installed")
    random = np.random.default_rng(0)
    data = ranking_data(random.normal(size=(200, 2)), np.arange(41) * 5, np.arange(40) * 5 + random.integers(0, 5, 40))
    booster = train_ranker(data, learner).model
    grown = booster.best_iteration if learner == "lightgbm" else booster.num_boosted_rounds()
    assert 0 < grown < 60


def test_lightgbm_says_that_no_feature_divides_the_documents() -> None:
    pytest.importorskip("lightgbm", reason="the boost extra is not installed")
    same = ranking_data(np.ones((100, 1)), np.arange(0, 101, 5), np.arange(0, 100, 5), np.ones(20))
    with pytest.raises(InputError, match="no feature divides the 80 documents"):
        train_ranker(same, "lightgbm", loss="lambda", settings=QUICK)


def test_lightgbm_gets_names_it_takes() -> None:
    pytest.importorskip("lightgbm", reason="the boost extra is not installed")
    data = simulated()
    for given, taken in (
        (["a b", "c.d", "e-f_g"], ["a_b", "c.d", "e-f_g"]),
        (["a b", "a,b", "c"], ["a_b_1", "a_b_2", "c_3"]),
    ):
        assert train_ranker(data, "lightgbm", names=given, settings=QUICK).model.feature_name() == taken


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learner": "linear", "loss": "pairwise"}, "no loss 'pairwise' of linear: expected one of softmax, poisson"),
        ({"learner": "lightgbm", "loss": "softmax", "clip": 0.1}, "softmax does not"),
        ({"learner": "linear", "C": 1.0}, "goes with the learner svm"),
        ({"learner": "forest"}, "no learner 'forest'"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_ranker(simulated(), **options)


def test_offsets_need_exposures() -> None:
    data = replace(simulated(), exposure=None)
    with pytest.raises(InputError, match="needs the exposure"):
        train_ranker(data, "linear")
    hidden = replace(data, exposure=np.zeros(data.features.shape[0]))
    with pytest.raises(InputError, match="exposure 0"):
        train_ranker(hidden, "linear")


def test_the_svm_file_has_a_line_for_every_weight(tmp_path: Path) -> None:
    ranker = train_ranker(simulated(), names=["prix €", "b", "c"], C=1.0, clip=0.1)
    ranker.save(tmp_path / "ranker.json")
    text = (tmp_path / "ranker.json").read_text(encoding="utf-8")
    written = json.loads(text)
    assert written["settings"] == {"loss": "hinge", "C": 1.0, "clip": 0.1}
    assert (written["what"], written["learner"], written["features"]) == ("ranker", "svm", ["prix €", "b", "c"])
    assert list(written["weights"].values()) == ranker.model.tolist()
    assert sum(line.strip().startswith(('"prix €":', '"b":', '"c":')) for line in text.splitlines()) == 3


def test_constant_and_sparse_features_are_not_scaled() -> None:
    data = simulated()
    dense = np.asarray(data.features.matrix)
    constant = np.column_stack([dense, np.full(len(dense), 7.0)])
    ranker = train_ranker(ranking_data(constant, data.starts, data.clicked, data.propensity), C=1.0, clip=0.1)
    assert ranker.model[3] == pytest.approx(0.0, abs=1e-9)
    stretched = dense * [1.0, 10.0, 0.1]
    scaled, as_they_are = (
        train_ranker(ranking_data(x, data.starts, data.clicked, data.propensity), C=1.0, clip=0.1).model
        for x in (stretched, csr_array(stretched))
    )
    assert np.abs(scaled * [1.0, 10.0, 0.1]) == pytest.approx(np.abs(ranker.model[:3]), abs=0.02)
    assert abs(as_they_are[2]) < abs(scaled[2])


def test_a_ranker_knows_its_features() -> None:
    ranker = train_ranker(simulated(), C=1.0, clip=0.1)
    assert ranker.predict(np.eye(3)) == pytest.approx(ranker.model)
    with pytest.raises(InputError, match="documents have 2 features: the ranker knows 3"):
        ranker.predict(np.eye(2))


def test_c_and_clip_are_chosen_where_they_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[PropensitySVMRankCV] = []

    def kept(self: PropensitySVMRankCV, data: RankingData) -> PropensitySVMRankCV:
        searches.append(self)
        return original(self, data)

    original = PropensitySVMRankCV.fit
    monkeypatch.setattr(PropensitySVMRankCV, "fit", kept)
    ranker = train_ranker(simulated(), seed=3)
    (search,) = searches
    assert {one.C for one in search.candidates_} == {0.1, 1.0, 10.0, 100.0}
    assert {one.clip for one in search.candidates_} == {0.01, 0.03, 0.1, 0.3}
    assert (search.folds, search.seed) == (3, 3)
    assert ranker.settings == {"loss": "hinge", "C": search.C_, "clip": search.clip_}


def test_more_costs_are_tried_by_the_search_itself() -> None:
    search = PropensitySVMRankCV(folds=2, clips=[0.1]).fit(simulated(lists=10))
    assert [one.C for one in search.candidates_] == [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]
