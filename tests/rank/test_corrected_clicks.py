"""Corrected clicks of an affine model, (C − b) / a, where rankers are judged and trained."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from clickharvest import read_log
from clickharvest.click_models import AffineModel
from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation import PBM
from clickharvest.harvesting import Interventions
from clickharvest.rank import (
    BoostSettings,
    RankingData,
    at_face_value,
    choose_ranker,
    off_policy,
    ranking_data,
    read_clicks,
    relevance_labels,
    split_lists,
    take_lists,
    train_ranker,
)
from clickharvest.rank.training import click_labels

Array = NDArray[np.float64]

QUERIES, DOCS, POSITIONS = 200, 8, 4
K = np.arange(1, POSITIONS + 1)
SEEN, RELEVANT, TRUSTED = K**-0.7, 0.98 - (K - 1) / 100, 0.65 / K
ALPHA, BETA = SEEN * (RELEVANT - TRUSTED), SEEN * TRUSTED
SLOPE, OFFSET = ALPHA / ALPHA[0], BETA - BETA[0] * ALPHA / ALPHA[0]
WORLD = np.random.default_rng(1)
RELEVANCE = WORLD.beta(1, 2, (QUERIES, DOCS))
ORDER = np.argsort(-(RELEVANCE + WORLD.normal(0, 0.3, (3, QUERIES, DOCS))), axis=2)[:, :, :POSITIONS]
PAGES = 60


def displays() -> NDArray[np.int64]:
    """How often three rankers showed every document at every position, [queries, docs, positions]."""
    shown = np.zeros((QUERIES, DOCS, POSITIONS), np.int64)
    for order in ORDER:
        for k in range(POSITIONS):
            shown[np.arange(QUERIES), order[:, k], k] += PAGES
    return shown


SHOWN = displays()


def clicked(seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).binomial(SHOWN, ALPHA * RELEVANCE[:, :, None] + BETA)


def make(clicks: NDArray[np.int64], slope: Array, offset: Array | None) -> RankingData:
    """Ranking data of all documents that were shown; without offsets, of the examination model."""
    seen = SHOWN.sum(axis=2) > 0
    exposure, total = (SHOWN * slope).sum(axis=2)[seen], clicks.sum(axis=2)[seen]
    features = np.column_stack([RELEVANCE[seen], WORLD.permutation(RELEVANCE[seen])])
    starts, pages = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]), np.full(QUERIES, 3.0 * PAGES)
    shift = None if offset is None else (SHOWN * offset).sum(axis=2)[seen]
    return ranking_data(
        features, starts, np.arange(len(total)), exposure / (3 * PAGES), clicks=total, impressions=pages,
        exposure=exposure, shift=shift,
    )  # fmt: skip


@cache
def examination(seed: int) -> Array:
    """The curve of an examination model of the log of a seed."""
    query, doc, k = np.nonzero(SHOWN)
    clicks = clicked(seed)
    fitted = PBM(intervals=None).fit(
        Interventions(
            unit=query * DOCS + doc, query=query, position=k + 1, exposure=SHOWN[query, doc, k].astype(float),
            clicks=clicks[query, doc, k], impressions=SHOWN[query, doc, k],
        )
    )  # fmt: skip
    return fitted.predict().propensity[0]


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make(clicked(0), SLOPE, OFFSET)


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_differences_of_rankers_are_unbiased_and_those_of_the_examination_model_are_not(estimator: str) -> None:
    seen = SHOWN.sum(axis=2) > 0
    rate = (ALPHA[0] * RELEVANCE + BETA[0])[seen]
    good, bad = RELEVANCE[seen], SHOWN[:, :, 0][seen] + 1e-3 * RELEVANCE[seen]
    errors: dict[str, list[float]] = {"affine": [], "examination": []}
    for seed in range(12):
        clicks = clicked(seed)
        for name, own in (
            ("affine", make(clicks, SLOPE, OFFSET)),
            ("examination", make(clicks, examination(seed), None)),
        ):
            truth = replace(own, clicks=rate * 3 * PAGES, propensity=np.ones(len(rate)), shift=None)
            asked = {"baseline": bad, "estimator": estimator} | (
                {"relevance": np.full(len(rate), 0.5)} if estimator == "dr" else {}
            )
            right = off_policy(truth, good, "dcg@2", baseline=bad, estimator="snips" if estimator == "snips" else "ips")
            errors[name].append(off_policy(own, good, "dcg@2", **asked).value - right.value)  # type: ignore[arg-type]
    off = {name: abs(np.mean(own)) / (np.std(own, ddof=1) / np.sqrt(len(own))) for name, own in errors.items()}
    assert off["affine"] < 2
    assert off["examination"] > 4


def test_weights_and_labels_are_of_clicks_less_their_shift(data: RankingData) -> None:
    assert data.shift is not None
    assert np.allclose(data.weights(), (data.clicks - data.shift) / data.propensity)
    labels, _ = click_labels(data)
    assert (np.minimum.reduceat(labels, data.starts[:-1]) == 0).all()
    assert labels.sum() == pytest.approx(data.clicks.sum())
    rate = np.corrcoef(labels, data.weights())[0, 1]
    assert rate > 0.5
    assert at_face_value(data).shift is None
    assert np.array_equal(at_face_value(data).weights(), data.clicks)


def test_parts_keep_their_shifts_and_queries_without_a_click_judge_too(data: RankingData) -> None:
    quiet = replace(data, clicks=np.where(data.clicked_list % 2, data.clicks, 0.0))
    held = split_lists(quiet, 0.5)
    assert 0 < held[::2].sum() < len(held[::2])  # every other query has no click
    assert not split_lists(replace(quiet, shift=None), 0.5)[::2].any()
    part = take_lists(data, held)
    assert part.shift is not None
    assert data.shift is not None
    assert np.array_equal(part.shift, data.shift[held[data.clicked_list]])
    assert part.fingerprint != replace(part, shift=part.shift + 1).fingerprint


def test_corrected_clicks_that_sum_to_nothing_judge_nothing() -> None:
    few = ranking_data([[0.0], [1.0]], [0, 2], [0, 1], [1.0, 0.5], clicks=[1, 0], impressions=[9], shift=[1.0, 0.5])
    with pytest.raises(NotIdentifiedError, match="corrected clicks sum to -1"):
        off_policy(few, [1.0, 0.0])
    assert off_policy(few, [1.0, 0.0], "dcg", estimator="ips").value == pytest.approx(-1 / np.log2(3) / 9)


@pytest.mark.parametrize(("learner", "loss"), [("svm", "hinge"), ("lightgbm", "lambda"), ("xgboost", "pairwise")])
def test_learners_of_pairs_take_corrected_clicks(data: RankingData, learner: str, loss: str) -> None:
    if learner != "svm":
        pytest.importorskip(learner, reason="the boost extra is not installed")
    fixed = {"C": 1.0, "clip": 0.05} if learner == "svm" else {}
    ranker = train_ranker(data, learner, loss=loss, settings=BoostSettings(rounds=15, leaves=4), **fixed)
    scores = ranker.predict(data.features)
    assert np.corrcoef(scores, np.asarray(data.features.matrix)[:, 0])[0, 1] > 0.8


def test_likelihoods_of_counts_are_refused_by_name_and_left_out_of_the_choice(data: RankingData) -> None:
    with pytest.raises(InputError, match="softmax is a likelihood of counts"):
        train_ranker(data, "linear")
    with pytest.raises(InputError, match="no loss of it takes corrected clicks"):
        choose_ranker(data, ["linear"])
    part = take_lists(data, np.arange(len(data)) < 30)
    choice = choose_ranker(part, ["linear", "svm"])
    assert list(choice.scores) == ["svm hinge"]


def affine() -> AffineModel:
    return AffineModel(1, (1, 2), np.array([1.0, 0.5]), np.array([0.0, -0.05]), None, (1, 2, 3))


def small_log() -> pa.Table:
    """Two documents, and one that was shown only at position 3, where the model has no estimate."""
    return pa.table(
        {
            "query": ["q"] * 5,
            "doc": ["a", "b", "a", "b", "c"],
            "position": [1, 2, 2, 3, 3],
            "clicks": [4, 3, 1, 2, 5],
            "impressions": [10, 10, 10, 10, 10],
        }
    )


def test_a_log_gives_corrected_labels_and_data_with_or_without_the_model() -> None:
    with (
        pytest.warns(HarvestWarning, match="1 document shown only where the model has no estimate"),
        pytest.warns(HarvestWarning, match="47 % of the clicks .* they are left out"),
    ):
        labels = relevance_labels(read_log(small_log()), affine())
    told = {row["doc"]: row for row in labels.to_pylist()}
    assert list(told) == ["a", "b"]
    assert told["a"]["exposure"] == pytest.approx(10 + 5)
    assert told["a"]["shift"] == pytest.approx(-0.5)
    assert told["a"]["relevance"] == pytest.approx(5.5 / 15)
    assert (told["b"]["clicks"], told["b"]["exposure"]) == (3, 5)  # what was shown at position 3 does not count
    assert told["b"]["relevance"] == pytest.approx(3.5 / 5)
    assert told["b"]["lower"] < 0.7 < told["b"]["upper"]
    features = pa.table({"doc": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    clicks = read_clicks(read_log(small_log()), features, affine())
    assert clicks.keys["doc"].to_pylist() == ["a", "b"]
    assert clicks.data.weights() == pytest.approx([20 * 5.5 / 15, 20 * 3.5 / 5])
    assert clicks.unsupported == pytest.approx(7 / 15)
    weighed = small_log()
    for name, at in (("click_slope", [1.0, 0.5, 0.5, None, None]), ("click_offset", [0, -0.05, -0.05, None, None])):
        weighed = weighed.append_column(name, pa.array(at, pa.float64()))
    again = read_clicks(read_log(weighed), features)
    assert again.data.weights() == pytest.approx(clicks.data.weights())
    assert again.unsupported is None
