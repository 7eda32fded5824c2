"""The protocol beyond the paper: click models that break it, heavy tails, deployments, single rows, small corpora."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from clickharvest.errors import InputError
from clickharvest.simulate import (
    BROWSING_MODELS,
    USER_KINDS,
    Corpus,
    Examination,
    SimulatedUsers,
    Simulation,
    read_letor,
    simulate_protocol,
    synthetic_corpus,
)
from clickharvest.simulate.users import deal_clicks
from places import SHARED_DATA

GOLDEN_SERVED = [[2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 3], [2, 2, 3, 2, 2, 3, 2, 2, 2, 3, 3, 2]]
GOLDEN_WEIGHTS = [0.00049, -0.053354, -0.269208]
CURVE = np.array([[1, 0.8, 0.5, 0.4], [1, 0.5, 0.6, 0.1]])
RELEVANT = np.array([[[1, 0, 1, 0], [0, 1, 0, 1]], [[0, 0, 1, 1], [1, 1, 0, 0]]], bool)
"""Of two rankers, two queries and four positions."""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return synthetic_corpus(800, docs=(6, 14), features=24, seed=5)


def small(corpus: Corpus, **more: Any) -> Simulation:
    return simulate_protocol(**{"queries": 200, "test_queries": 60, "corpus": corpus, "sweeps": 3} | more)


@pytest.fixture(scope="module")
def even(corpus: Corpus) -> Simulation:
    return small(corpus)


@pytest.fixture(scope="module")
def cascade(corpus: Corpus) -> Simulation:
    return small(corpus, clicks="cascade", examination="bump", sweeps=40)


def rates(model: str, times: int = 40_000) -> np.ndarray:
    served = np.full((2, 2), times)
    shown = np.ones((2, 2, 4), bool)
    clicks, _ = SimulatedUsers(model, 0.1).draw(served, shown, RELEVANT, CURVE, np.random.default_rng(3))
    return clicks / times


class TestClickModels:
    """Rates of 40,000 displays are within .0125 of their expectation, five standard deviations."""

    def test_pbm(self) -> None:
        assert_allclose(rates("pbm"), CURVE * np.where(RELEVANT, 1, 0.1), atol=0.0125)

    def test_trust(self) -> None:
        k = np.arange(1, 5)
        expected = CURVE * np.where(RELEVANT, 0.9 + 0.1 / k, 0.1 + 0.55 / k)
        assert_allclose(rates("trust"), expected, atol=0.0125)

    def test_trust_breaks_the_ratio_of_positions(self) -> None:
        """Under any position-based model, relevant and irrelevant results lose the same share of clicks with k."""
        found = {model: rates(model) for model in ("pbm", "trust")}
        relevant, irrelevant = (
            {model: found[model][i, 0, k] for model in found} for (i, k) in ((0, 2), (1, 1))
        )  # positions 3 and 2 of the first query
        top = {model: (found[model][0, 0, 0], found[model][1, 0, 0]) for model in found}
        assert relevant["pbm"] / top["pbm"][0] == pytest.approx(0.5, abs=0.02)
        assert irrelevant["pbm"] / top["pbm"][1] == pytest.approx(0.8, abs=0.1)
        assert irrelevant["trust"] / top["trust"][1] < 0.6 * irrelevant["pbm"] / top["pbm"][1]
        assert relevant["trust"] / top["trust"][0] > 0.9 * relevant["pbm"] / top["pbm"][0]

    def test_cascade(self) -> None:
        """By hand: half of those who click on a relevant result leave, and reading never skips a position."""
        depth = np.array([[1, 0.8, 0.5, 0.4], [1, 0.5, 0.5, 0.1]])
        above = np.array([[[0, 1, 1, 2], [0, 0, 1, 1]], [[0, 0, 0, 1], [0, 1, 2, 2]]])
        assert_allclose(rates("cascade"), depth * 0.5**above * np.where(RELEVANT, 1, 0.1), atol=0.0125)

    def test_cascade_depends_on_the_results_above(self) -> None:
        """The same relevant result at position 3 of the first query, behind another relevant one or not."""
        found = rates("cascade")
        assert found[0, 0, 2] == pytest.approx(0.25, abs=0.0125)
        assert found[1, 0, 2] == pytest.approx(0.5, abs=0.0125)

    def test_clicks_of_a_cascade_are_those_of_its_displays(self) -> None:
        served = np.array([[5, 0], [2, 7]])
        shown = np.ones((2, 2, 4), bool)
        shown[1, 1, 2:] = False
        counts, clicked = SimulatedUsers("cascade", 0.5).draw(served, shown, RELEVANT, CURVE, np.random.default_rng(0))
        assert clicked is not None
        assert clicked.shape == (14, 4)
        pages = np.split(clicked, np.cumsum(served.ravel())[:-1])
        assert_array_equal(counts.reshape(4, 4), [page.sum(axis=0) for page in pages])
        assert counts[1, 1, 2:].sum() == 0

    @pytest.mark.parametrize("model", BROWSING_MODELS)
    def test_examination_given_the_clicks_above_predicts_clicks(self, model: str) -> None:
        """Among displays with the same clicks above, a result is clicked as often as it is examined and attracts."""
        way, n = SimulatedUsers(model, 0.3), 40_000
        relevant = np.tile(RELEVANT[0, :1], (1, 1, 1))
        _, clicked = way.draw(np.array([[n]]), np.ones((1, 1, 4), bool), relevant, CURVE[:1], np.random.default_rng(5))
        assert clicked is not None
        pages = np.broadcast_to(relevant[0], clicked.shape)
        p = way.examination_given(np.broadcast_to(CURVE[0], clicked.shape), pages, clicked) * way.attraction(pages)
        for k in range(1, 4):
            above = clicked[:, :k] @ 2 ** np.arange(k)
            for pattern in np.unique(above):
                own = above == pattern
                assert np.ptp(p[own, k]) < 1e-12
                margin = 4 * np.sqrt(max(p[own, k][0] * (1 - p[own, k][0]), 1e-6) / own.sum())
                assert clicked[own, k].mean() == pytest.approx(p[own, k][0], abs=margin)

    @pytest.mark.parametrize("model", USER_KINDS)
    def test_examination_times_attraction_is_the_click_rate(self, model: str) -> None:
        way = SimulatedUsers(model, 0.1)
        assert_allclose(rates(model), way.examination(CURVE, RELEVANT) * way.attraction(RELEVANT), atol=0.0125)

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(InputError, match="no click model 'ccm': expected one of pbm, trust, cascade"):
            SimulatedUsers("ccm", 0.1)
        with pytest.raises(InputError, match="noise is 2"):
            SimulatedUsers("pbm", 2)

    def test_dealing_keeps_counts_and_is_fair(self) -> None:
        served, clicks = np.array([4, 0, 3]), np.array([[1, 4], [0, 0], [0, 2]])
        random = np.random.default_rng(1)
        dealt = np.stack([deal_clicks(served, clicks, random) for _ in range(2000)])
        assert_array_equal(dealt[:, :4].sum(axis=1), np.tile([1, 4], (2000, 1)))
        assert_array_equal(dealt[:, 4:].sum(axis=1), np.tile([0, 2], (2000, 1)))
        assert_allclose(dealt[:, :, 0].mean(axis=0)[:4], 1 / 4, atol=0.05)
        assert_allclose(dealt[:, 4:, 1].mean(axis=0), 2 / 3, atol=0.05)


class TestExamination:
    def test_flat_from(self) -> None:
        contexts = np.random.default_rng(0).normal(size=(5, 3))
        weights = np.array([0.5, -0.2, -0.3])
        flat = Examination("power", weights, 10, flat_from=4)(contexts)
        assert_array_equal(flat[:, :4], Examination("power", weights, 4)(contexts))
        assert (flat[:, 4:] == flat[:, 3:4]).all()
        assert_array_equal(
            Examination("fold", weights, 5, flat_from=9)(contexts), Examination("fold", weights, 5)(contexts)
        )
        with pytest.raises(InputError, match="flat_from is 0"):
            Examination("power", weights, 10, flat_from=0)

    def test_plateau_and_grid_are_no_power_curves(self) -> None:
        contexts = np.zeros((1, 1))
        plateau, grid = (Examination(name, np.ones(1), 8)(contexts)[0] for name in ("plateau", "grid"))
        assert (plateau[:3] == 1).all()
        assert plateau[3] < 1
        assert_allclose(grid[1::2] / grid[::2], 1 / (1 + np.exp(-1)))
        assert_allclose(grid[::2], [1, 1 / 2, 1 / 3, 1 / 4])
        bent = Examination("grid", np.ones(1), 8)(np.full((1, 1), 2.0))[0]
        assert bent[2] > bent[1]


class TestProtocol:
    def test_defaults_draw_what_they_always_drew(self, corpus: Corpus) -> None:
        """Written down when there were only defaults: other options must not move their random numbers."""
        simulation = small(corpus, sweeps=2.3)
        assert simulation.served[:, :12].tolist() == GOLDEN_SERVED
        assert simulation.examination.weights[:3].round(6).tolist() == GOLDEN_WEIGHTS

    def test_only_clicks_change_with_the_click_model(self, corpus: Corpus, even: Simulation) -> None:
        trust = small(corpus, clicks="trust")
        for name in ("shown", "served", "train_contexts", "test_examination"):
            assert_array_equal(getattr(trust, name), getattr(even, name))
        assert trust.clicks.sum() > even.clicks.sum()
        assert_array_equal(even.train_examination, even.examination(even.train_contexts))

    def test_truth_of_a_cascade_is_the_share_of_displays_that_reach_a_position(self, cascade: Simulation) -> None:
        s = cascade
        curve = np.minimum.accumulate(s.examination(s.test_contexts), axis=1)
        for query in (0, 7, 59):
            expected = np.zeros(10)
            for weights, share in zip(s.weights, s.traffic.values(), strict=True):
                docs = np.arange(s.test.starts[query], s.test.starts[query + 1])
                docs = docs[np.argsort(-(s.test.features[docs] @ weights.astype(np.float32)))]
                left = 1.0
                for k in range(10):
                    expected[k] += share * curve[query, k] * left
                    left *= 0.5 if k < len(docs) and s.test.relevant[docs[k]] else 1.0
            assert_allclose(s.test_examination[query], expected)

    def test_clicks_of_a_cascade_follow_its_truth(self, cascade: Simulation) -> None:
        """Equal traffic, so that the mean over rankers is what clicks on equally attractive results follow."""
        s = cascade
        shown = s.shown >= 0
        relevant = s.train.relevant[s.shown] & shown
        examined = s.click_model.examination(s.examination(s.train_contexts), relevant)
        assert_allclose(examined.mean(axis=0), s.train_examination)
        expected = s.served[:, :, None] * examined * np.where(relevant, 1, 0.1) * shown
        clicks, mean = s.clicks.sum(axis=(0, 1)), expected.sum(axis=(0, 1))
        assert (np.abs(clicks - mean) <= 4 * np.sqrt(mean)).all()
        assert (s.train_examination[:, 4] < 0.8 * s.examination(s.train_contexts)[:, 4]).mean() > 0.5

    def test_zipf_keeps_the_traffic_and_repeats_few_queries(self, corpus: Corpus, even: Simulation) -> None:
        zipf = small(corpus, repetition="zipf", traffic=(3, 1))
        assert zipf.served.sum(axis=1).tolist() == [900, 300]
        assert zipf.served.sum() == even.served.sum()
        by_query = np.sort(zipf.served.sum(axis=0))[::-1]
        assert 0.1 < by_query[0] / by_query.sum() < 0.25
        assert by_query[0] > 10 * by_query.mean()
        busiest = np.argsort(-zipf.served, axis=1)[:, 0]
        assert busiest[0] == busiest[1]
        assert_array_equal(zipf.shown, even.shown)

    def test_consecutive_deployments_have_a_time(self, corpus: Corpus, even: Simulation) -> None:
        later = small(corpus, deployment="consecutive")
        assert "time" not in even.log.column_names
        assert_array_equal(later.clicks, even.clicks)
        log = later.log.to_pydict()
        assert {(ranker, time) for ranker, time in zip(log["ranker"], log["time"], strict=True)} == {
            ("f1", 1), ("f2", 2)
        }  # fmt: skip
        rows = later.rows().to_pydict()
        assert rows["ranker"] == sorted(rows["ranker"])
        assert even.rows()["ranker"].to_pylist() != sorted(rows["ranker"])

    @pytest.mark.parametrize("which", ["even", "cascade"])
    def test_rows_add_up_to_the_log(self, which: str, request: pytest.FixtureRequest) -> None:
        simulation: Simulation = request.getfixturevalue(which)
        rows, log = simulation.rows(), simulation.log
        keys = ["ranker", "query", "position", "doc", *simulation.context]
        added = rows.group_by(keys).aggregate([("click", "sum"), ("click", "count"), ("page", "count_distinct")])
        order = [(key, "ascending") for key in keys[:3]]
        added, log = added.sort_by(order), log.sort_by(order)
        assert added.select(keys).equals(log.select(keys))
        assert added["click_sum"].to_pylist() == log["clicks"].to_pylist()
        assert added["click_count"].to_pylist() == added["page_count_distinct"].to_pylist()
        assert added["click_count"].to_pylist() == log["impressions"].to_pylist()
        page, time = rows["page"].to_numpy(), rows["time"].to_numpy()
        assert (np.diff(page) >= 0).all()
        assert (np.diff(time) >= 0).all()
        assert page.max() == simulation.served.sum() - 1
        assert rows.equals(simulation.rows())
        assert not rows.equals(simulation.rows(seed=1))

    def test_rows_go_through_the_pipeline(self, even: Simulation) -> None:
        from clickharvest import harvest, read_log
        from clickharvest.harvesting.designs import Rankings

        found = harvest(read_log(even.rows(), context=even.context), design=Rankings(even.rankings, even.traffic))
        assert_array_equal(found.clicks, even.interventions().clicks)

    def test_training_queries_set_the_sweeps(self, corpus: Corpus) -> None:
        served = small(corpus, sweeps=None, training_queries=1_000, traffic=(3, 1)).served
        assert served.sum(axis=1).tolist() == [1_500, 500]

    def test_all_queries_of_a_small_corpus(self, corpus: Corpus) -> None:
        usable = len(corpus.queries_with_relevant()) - 206
        simulation = small(corpus, queries=None, test_queries=None)
        assert len(simulation.test) == usable // 5
        assert len(simulation.train) == usable - usable // 5
        assert len(small(corpus, queries=None, test_queries=11).train) == usable - 11

    def test_rankings_beyond_the_page(self, even: Simulation) -> None:
        ranked = even.rank(even.train)
        assert ranked.shape == (2, 200, even.train.sizes.max())
        assert_array_equal(ranked[:, :, :10], even.shown)
        for query in (0, 100):
            docs = range(even.train.starts[query], even.train.starts[query + 1])
            assert sorted(ranked[1, query][ranked[1, query] >= 0]) == list(docs)

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ({"clicks": "ccm"}, "no click model 'ccm': expected one of pbm, trust, cascade"),
            ({"examination": "wave"}, "no examination 'wave': expected one of power, fold, bump, plateau, grid"),
            ({"repetition": "often"}, "no repetition 'often': expected one of even, zipf, same"),
            ({"deployment": "canary"}, "no deployment 'canary': expected one of ab, consecutive"),
            ({"sweeps": None}, "expected either sweeps"),
            ({"training_queries": 5}, "expected either sweeps"),
            ({"sweeps": None, "training_queries": -5}, "expected sweeps > 0"),
            ({"queries": 0}, "expected sweeps > 0"),
            ({"test_queries": -1}, "expected sweeps > 0"),
            ({"traffic": (1, float("inf"))}, "expected sweeps > 0"),
            ({"flat_from": 0}, "flat_from is 0"),
            ({"queries": 5_000}, r"the corpus has \d+ queries with a relevant document, 5,266 are needed"),
        ],
    )
    def test_nonsense_is_refused(self, corpus: Corpus, wrong: dict[str, Any], told: str) -> None:
        with pytest.raises(InputError, match=told):
            small(corpus, **wrong)

    def test_a_corpus_too_small_for_the_rankers(self) -> None:
        with pytest.raises(InputError, match=r"207 are needed"):
            small(synthetic_corpus(60, features=12), queries=None, test_queries=None)


def test_mq2008_makes_a_log() -> None:
    path = SHARED_DATA / "mq2008.txt.gz"
    if not path.exists():
        pytest.skip("the corpus mq2008.txt.gz is not on this machine")
    simulation = simulate_protocol(training_queries=5_000, queries=None, test_queries=None, corpus=read_letor(path))
    assert (len(simulation.train), len(simulation.test)) == (287, 71)
    assert simulation.served.sum(axis=1).tolist() == [5_000, 5_000]
    assert simulation.train.sizes.min() < 10
    assert np.isfinite(simulation.train_contexts).all()
    found = simulation.interventions()
    assert set(found.position) == set(range(1, 11))
    assert found.clicks.sum() > 1_000
