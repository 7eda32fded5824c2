"""Evaluation of rankers: estimates from clicks by hand and against known truth, metrics against other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, ndcg_score

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.rank import (
    RankingData,
    off_policy,
    ranking_data,
    ranking_metrics,
    ranks,
)

Array = NDArray[np.float64]

SCORES = [0.5, 0.9, 0.1, 2.0, 1.0]
"""Ranks 2, 1, 3 in the first list, 1, 2 in the second."""


def clicked_data(**more: Any) -> RankingData:
    """Clicks at ranks 2 (p = .5), 3 (p = .25, twice) and 2 (p = 1)."""
    given: dict[str, Any] = {"clicks": [1, 2, 1], "impressions": [6, 4]}
    return ranking_data(np.zeros((5, 1)), [0, 3, 5], [0, 2, 4], [0.5, 0.25, 1.0], **given | more)


@pytest.mark.parametrize(
    ("metric", "total"),
    [
        ("relevant_rank", 2 * 2 + 8 * 3 + 1 * 2),
        ("dcg", 2 / np.log2(3) + 8 / np.log2(4) + 1 / np.log2(3)),
        ("dcg@2", 2 / np.log2(3) + 1 / np.log2(3)),
        ("precision@2", 2 / 2 + 1 / 2),
        ("precision@1", 0),
    ],
)
def test_estimates_by_hand(metric: str, total: float) -> None:
    assert_allclose(off_policy(clicked_data(), SCORES, metric).value, total / (2 + 8 + 1))
    assert_allclose(off_policy(clicked_data(), SCORES, metric, estimator="ips").value, total / 10)


def test_interval_by_hand() -> None:
    """Two queries with Σ w·rank = 28 and 2, Σ w = 10 and 1; t with one degree of freedom is 12.706."""
    found = off_policy(clicked_data(), SCORES)
    ratio = 30 / 11
    error = np.sqrt(2 / 1 * ((28 - ratio * 10) ** 2 + (2 - ratio * 1) ** 2)) / 11
    assert_allclose([found.value, found.std_error], [ratio, error])
    assert_allclose([found.lower, found.upper], [ratio - 12.7062 * error, ratio + 12.7062 * error], rtol=1e-5)
    assert found.queries == 2
    assert_allclose(found.effective_clicks, 11**2 / (2**2 + 2 * 4**2 + 1**2))
    assert "relevant_rank (SNIPS): 2.727 (95% interval" in str(found)


def test_the_interval_has_a_degree_of_freedom_less_than_queries() -> None:
    """Three queries: t with two degrees of freedom is 4.303 at 95 %, 2.920 at 90 %."""
    data = ranking_data(np.zeros((6, 1)), [0, 2, 4, 6], [0, 2, 5])
    for level, t in ((0.95, 4.3027), (0.9, 2.9200)):
        found = off_policy(data, [1.0, 0, 1, 0, 1, 0], level=level)
        assert_allclose([found.value, found.std_error], [4 / 3, np.sqrt(3 / 2 * (1 / 9 + 1 / 9 + 4 / 9)) / 3])
        assert_allclose(found.upper - found.value, t * found.std_error, rtol=1e-4)
        assert_allclose(found.value - found.lower, t * found.std_error, rtol=1e-4)


def test_equal_scores_are_ordered_by_the_seed_in_estimates_too() -> None:
    data = ranking_data(np.zeros((50, 1)), np.arange(6) * 10, np.arange(5) * 10)
    for seed in (0, 1):
        expected = ranks(np.zeros(50), data.starts, seed=seed)[data.clicked].mean()
        assert off_policy(data, np.zeros(50), seed=seed).value == pytest.approx(expected)
        against = off_policy(data, -np.arange(50.0), baseline=np.zeros(50), seed=seed)
        assert against.value == pytest.approx(1 - expected)
    assert off_policy(data, np.zeros(50), seed=0).value != off_policy(data, np.zeros(50), seed=1).value


def test_clipping() -> None:
    assert_allclose(off_policy(clicked_data(), SCORES, clip=0.5).value, (2 * 2 + 4 * 3 + 2) / (2 + 4 + 1))


def test_lists_of_one_query_are_one_cluster() -> None:
    found = off_policy(clicked_data(query=["a", "a"]), SCORES)
    assert found.queries == 1
    assert np.isinf(found.std_error)


def test_difference_to_a_baseline() -> None:
    other = [3.0, 2.0, 1.0, 1.0, 2.0]
    both = [off_policy(clicked_data(), scores).value for scores in (SCORES, other)]
    assert_allclose(off_policy(clicked_data(), SCORES, baseline=other).value, both[0] - both[1])
    same = off_policy(clicked_data(), SCORES, baseline=SCORES)
    assert (same.value, same.lower, same.upper) == (0, 0, 0)


def test_equal_scores_are_ordered_at_random() -> None:
    starts = np.arange(0, 4_001, 4)
    found = ranks(np.zeros(4_000), starts, seed=1).reshape(-1, 4)
    assert_allclose(np.sort(found, axis=1), np.tile([1, 2, 3, 4], (1_000, 1)))
    assert_allclose(found.mean(axis=0), 2.5, atol=0.2)
    assert_allclose(found, ranks(np.zeros(4_000), starts, seed=1).reshape(-1, 4))
    assert np.any(found != ranks(np.zeros(4_000), starts, seed=2).reshape(-1, 4))


class World:
    """Queries with known relevance and propensities, and a ranker to evaluate that did not make the log."""

    def __init__(self, queries: int = 150, size: int = 5, pages: int = 4, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.relevance = random.beta(1, 2, (queries, size))
        self.propensity = np.tile(np.arange(1, size + 1) ** -1.0, (queries, 1))
        self.scores = random.normal(size=queries * size) + self.relevance.ravel()
        self.starts = np.arange(queries + 1) * size
        self.pages = pages
        self.rank = ranks(self.scores, self.starts).reshape(queries, size)

    def log(self, random: np.random.Generator) -> RankingData:
        clicks = random.binomial(self.pages, self.propensity * self.relevance)
        row = np.flatnonzero(clicks)
        features = np.zeros((clicks.size, 1))
        shown = np.full(len(clicks), self.pages)
        p = self.propensity.ravel()[row]
        return ranking_data(features, self.starts, row, p, clicks=clicks.ravel()[row], impressions=shown)

    def truth(self, gain: Array) -> tuple[float, float]:
        """Return the metric of an average impression, and the gain of an average relevant document."""
        total = float((gain * self.relevance).sum())
        return total / len(self.relevance), total / float(self.relevance.sum())


@pytest.mark.parametrize("n_logs", [50, pytest.param(300, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("metric", ["relevant_rank", "dcg@3", "precision@2"])
def test_ips_is_unbiased_and_intervals_cover(metric: str, n_logs: int) -> None:
    """Over simulated logs of fixed queries; the intervals also allow for other queries, so they cover more often."""
    world = World()
    rank = world.rank
    gain = {"relevant_rank": rank, "dcg@3": (rank <= 3) / np.log2(1 + rank), "precision@2": (rank <= 2) / 2}[metric]
    ips, snips = world.truth(gain)
    random = np.random.default_rng(1)
    logs = [world.log(random) for _ in range(n_logs)]
    found = [off_policy(log, world.scores, metric, estimator="ips") for log in logs]
    values = np.array([each.value for each in found])
    assert abs(values.mean() - ips) < 4 * values.std() / np.sqrt(len(values))
    assert np.mean([each.lower <= ips <= each.upper for each in found]) > 0.92
    naive = np.array([off_policy(log, world.scores, metric, estimator="ips", clip=1.0).value for log in logs])
    assert abs(naive.mean() - ips) > 10 * naive.std() / np.sqrt(len(naive)), "without propensities it is biased"
    normalised = [off_policy(log, world.scores, metric) for log in logs]
    assert_allclose(np.mean([each.value for each in normalised]), snips, rtol=0.01)
    assert np.mean([each.lower <= snips <= each.upper for each in normalised]) > 0.92


def test_intervals_cover_where_queries_are_drawn_too() -> None:
    big = World(queries=40_000, seed=3)
    _, truth = big.truth(big.rank)
    random = np.random.default_rng(4)
    whole = big.log(random)
    size, part = 5, 100
    covered = []
    for k in range(400):
        first = k * part * size
        mine = (whole.clicked >= first) & (whole.clicked < first + part * size)
        data = ranking_data(
            np.zeros((part * size, 1)),
            np.arange(part + 1) * size,
            whole.clicked[mine] - first,
            whole.propensity[mine],
            clicks=whole.clicks[mine],
        )
        found = off_policy(data, big.scores[first : first + part * size])
        covered.append(found.lower <= truth <= found.upper)
    assert 0.91 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "ndcg@10"}, "expected relevant_rank, dcg"),
        ({"metric": "dcg@0"}, "no metric 'dcg@0'"),
        ({"metric": "precision"}, "no metric"),
        ({"estimator": "dm"}, "no estimator 'dm'"),
        ({"scores": [1.0]}, "one for each of 5"),
        ({"scores": [1.0, 2.0, np.nan, 1.0, 1.0]}, "scores hold 1 missing value"),
        ({"clip": -0.1}, "clip"),
        ({"level": 1.0}, "level"),
    ],
)
def test_what_cannot_be_estimated(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        off_policy(clicked_data(), **{"scores": SCORES} | arguments)


def test_ips_needs_impressions_and_all_need_clicks() -> None:
    with pytest.raises(InputError, match="needs the impressions"):
        off_policy(clicked_data(impressions=None), SCORES, estimator="ips")
    with pytest.raises(InputError, match="no impressions"):
        off_policy(clicked_data(impressions=[0, 0]), SCORES, estimator="ips")
    with pytest.raises(NotIdentifiedError, match="no click"):
        off_policy(ranking_data([[1.0]], [0, 1], []), [1.0])


def test_metrics_by_hand() -> None:
    """Order of the first query: grades 0 2 1; of the second: 1; the third has nothing relevant."""
    scores, grades, starts = [3.0, 1.0, 2.0, 0.0, 1.0, 0.0], [0, 1, 2, 1, 0, 0], [0, 3, 4, 6]
    found = ranking_metrics(scores, grades, starts, ["avg_rank", "ndcg", "ndcg@2", "map", "map@2"])
    ideal = 3 / np.log2(2) + 1 / np.log2(3)
    assert_allclose(found["avg_rank"], [2 + 3, 1, 0])
    assert_allclose(found["ndcg"], [(3 / np.log2(3) + 1 / np.log2(4)) / ideal, 1, np.nan])
    assert_allclose(found["ndcg@2"], [3 / np.log2(3) / ideal, 1, np.nan])
    assert_allclose(found["map"], [(1 / 2 + 2 / 3) / 2, 1, np.nan])
    assert_allclose(found["map@2"], [1 / 2 / 2, 1, np.nan])
    assert_allclose(ranking_metrics(scores, grades, starts, ["map"], threshold=2)["map"], [1 / 2, np.nan, np.nan])


def test_metrics_equal_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(random.integers(2, 12, 30))])
    scores, grades = random.normal(size=starts[-1]), random.integers(0, 5, starts[-1])
    found = ranking_metrics(scores, grades, starts, ["ndcg@5", "ndcg", "map"], threshold=3)
    for k in range(30):
        s, g = scores[starts[k] : starts[k + 1]], grades[starts[k] : starts[k + 1]]
        if g.any():
            assert_allclose(found["ndcg@5"][k], ndcg_score([2.0**g - 1], [s], k=5))
            assert_allclose(found["ndcg"][k], ndcg_score([2.0**g - 1], [s]))
        if (g >= 3).any():
            assert_allclose(found["map"][k], average_precision_score(g >= 3, s))
        else:
            assert np.isnan(found["map"][k])


def test_metrics_refuse() -> None:
    with pytest.raises(InputError, match="no metric 'mrr'"):
        ranking_metrics([1.0], [1], [0, 1], ["mrr"])
    with pytest.raises(InputError, match="no metric 'map@0'"):
        ranking_metrics([1.0], [1], [0, 1], ["map@0"])
    with pytest.raises(InputError, match="no metric 'ndcg@'"):
        ranking_metrics([1.0], [1], [0, 1], ["ndcg@"])
    with pytest.raises(InputError, match="0 or more"):
        ranking_metrics([1.0], [-1], [0, 1])


def test_documents_never_shown_are_told_and_bounded() -> None:
    """Rank 1 of two goes to a document that nobody saw: λ = 1 of 1 + 1 / log2(3)."""
    data = ranking_data(np.zeros((2, 1)), [0, 2], [1], [0.5], clicks=[4], impressions=[10], exposure=[0.0, 5.0])
    found = off_policy(data, [2.0, 1.0], "dcg", estimator="ips")
    second = 1 / np.log2(3)
    assert found.value == pytest.approx(second * 4 / 0.5 / 10)
    assert found.unseen == pytest.approx(1 / (1 + second))
    assert found.highest == pytest.approx(found.value + 1)
    assert "never shown" in str(found)


@pytest.mark.parametrize(("exposure", "message"), [([1.0, -1.0], "negative"), ([1.0, 0.0], "with exposure 0")])
def test_exposures_that_make_no_sense(exposure: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ranking_data(np.zeros((2, 1)), [0, 2], [1], impressions=[1], exposure=exposure)
