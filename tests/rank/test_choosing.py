"""Blends, and the choice among learners by clicks alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.rank import (
    BoostSettings,
    RankingData,
    ShownRanking,
    TrainedRanker,
    at_face_value,
    choose_ranker,
    choosing,
    load_ranker,
    off_policy,
    ranking_data,
    train_ranker,
)
from clickharvest.rank.choosing import BLEND, blend, installed_learners, spread
from clickharvest.rank.exports import export_ranker

QUICK = BoostSettings(rounds=10, leaves=4, patience=3)


def simulated(lists: int = 60, size: int = 6, pages: float = 40.0, seed: int = 0, noise: float = 0.0) -> RankingData:
    """Documents whose relevance follows their first feature, and what it does not tell; some hardly examined."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(lists * size, 3))
    relevance = 0.2 * np.exp(0.8 * x[:, 0] + noise * random.normal(size=len(x)))
    exposure = pages * random.choice([1.0, 0.3, 0.02], len(x))
    clicks = random.poisson(exposure * relevance)
    some = np.flatnonzero(clicks)
    starts = np.arange(lists + 1) * size
    shown = np.full(lists, pages)
    return ranking_data(
        x, starts, some, exposure[some] / pages, clicks=clicks[some], impressions=shown, exposure=exposure
    )


def as_shown(data: RankingData, scores: Any) -> ShownRanking:
    """The ranking by some scores, shown on every page."""
    order = np.lexsort((-np.asarray(scores), np.repeat(np.arange(len(data)), np.diff(data.starts))))
    place = np.concatenate([np.arange(1.0, size + 1) for size in np.diff(data.starts)])
    return ShownRanking(order, place, np.ones(len(order)), np.ones(len(data), np.bool_))


def linear(*weights: float) -> TrainedRanker:
    return TrainedRanker("linear", ("a", "b", "c"), {"loss": "softmax"}, np.array(weights))


class TestBlends:
    def test_every_part_counts_alike_whatever_its_scale(self) -> None:
        data = simulated()
        x = np.asarray(data.features.matrix)
        both = blend([linear(1, 0, 0), linear(0, 100, 0)], data)
        by_hand = sum(own / spread(own, data) for own in (x[:, 0], 100 * x[:, 1])) / 2
        assert both.predict(data.features) == pytest.approx(by_hand)

    def test_a_file_holds_every_part(self, tmp_path: Path) -> None:
        lightgbm = pytest.importorskip("lightgbm", reason="the boost extra is not installed")
        data = simulated()
        trees = train_ranker(data, "lightgbm", loss="softmax", names=("a", "b", "c"), settings=QUICK)
        both = blend([linear(1, 0, 0), trees], data)
        both.save(tmp_path / "ranker.json")
        again = load_ranker(tmp_path / "ranker.json")
        assert again.learner == again.kind == BLEND
        assert again.predict(data.features) == pytest.approx(both.predict(data.features))
        assert isinstance(again.model[1].ranker.model, lightgbm.Booster)

    def test_no_engine_takes_one(self, tmp_path: Path) -> None:
        both = blend([linear(1, 0, 0), linear(0, 1, 0)], simulated())
        with pytest.raises(InputError, match=r"\(linear softmax, linear softmax\) has no form in solr"):
            export_ranker(both, "solr", tmp_path / "model.json")


class TestChoice:
    def test_at_face_value_every_document_was_seen_on_every_page(self) -> None:
        data = simulated()
        naive = train_ranker(at_face_value(data), "linear").predict(data.features)
        assert not np.allclose(naive, train_ranker(data, "linear").predict(data.features))

    def test_the_gain_is_that_of_scores_by_models_that_had_not_seen_the_query(self) -> None:
        data = simulated()
        good = as_shown(data, data.features.matrix[:, 0])
        choice = choose_ranker(data, ["linear"], shown={"good": good})
        assert choice.shown == "good"
        assert choice.gain is not None
        best = off_policy(
            data, choice.scores[choice.best], "dcg@10", baseline=as_shown(data, data.features.matrix[:, 0])
        )
        assert choice.gain.value == best.value

    def test_what_was_shown_is_kept_where_nothing_beats_it(self) -> None:
        data = simulated(noise=1.0)
        clicks = data.clicks_by_document / np.maximum(data.exposure if data.exposure is not None else 1.0, 1e-9)
        oracle, useless = as_shown(data, clicks), as_shown(data, data.features.matrix[:, 1])
        assert choose_ranker(data, ["linear"], shown={"oracle": oracle, "useless": useless}).keep_shown
        assert choose_ranker(data, ["linear"], shown={"oracle": oracle}).shown == "oracle"
        assert not choose_ranker(data, ["linear"], shown={"useless": useless}).keep_shown

    def test_the_blend_is_chosen_unless_another_leads_clearly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("lightgbm", reason="the boost extra is not installed")
        monkeypatch.setattr(choosing, "LEADS", np.inf)
        data = simulated()
        choice = choose_ranker(data, ["linear", "lightgbm"], settings=QUICK, names=("a", "b", "c"))
        assert choice.best == choice.ranker.kind == BLEND
        assert [part.ranker.learner for part in choice.ranker.model] == ["linear", "lightgbm"]
        assert choice.ranker.features == ("a", "b", "c")
        monkeypatch.setattr(choosing, "LEADS", -np.inf)
        choice = choose_ranker(data, ["linear", "lightgbm"], settings=QUICK)
        singles = ["linear softmax", "lightgbm softmax"]
        assert choice.best == max(singles, key=lambda name: choice.estimates[name].value)

    def test_the_choice_is_trained_on_all_queries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []

        def spy(data: RankingData, *arguments: Any, **options: Any) -> TrainedRanker:
            sizes.append(len(data))
            return train_ranker(data, *arguments, **options)

        monkeypatch.setattr(choosing, "train_ranker", spy)
        choose_ranker(simulated(), ["linear"])
        assert sizes == [45] * 8 + [60]

    def test_its_rival_is_the_same_ranker_at_face_value(self) -> None:
        data = simulated(pages=400.0)
        choice = choose_ranker(data, ["linear"])
        plain = choose_ranker(at_face_value(data), ["linear"])
        assert choice.naive == pytest.approx(
            plain.scores["linear softmax"] / spread(plain.scores["linear softmax"], data)
        )

    def test_too_few_queries(self) -> None:
        with pytest.raises(InputError, match="10 queries with a click are too few to choose a ranker by"):
            choose_ranker(simulated(lists=10), ["linear"])

    def test_learners_are_those_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choosing, "find_spec", lambda name: name == "xgboost")
        assert installed_learners() == ["linear", "svm", "xgboost"]
        assert installed_learners(complete=False) == ["xgboost"]
        monkeypatch.setattr(choosing, "find_spec", lambda name: False)
        assert installed_learners() == ["linear", "svm"]
        with pytest.raises(InputError, match="only trees take"):
            installed_learners(complete=False)
