"""Simulators: what they return has the promised shapes, shares and click rates, and the same seed gives it again."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import COLUMNS
from clickharvest.simulate import (
    EXAMINATIONS,
    Corpus,
    Examination,
    Simulation,
    simulate_protocol,
    synthetic_corpus,
)
from clickharvest.simulate.corpus import SHARED_QUERIES, svm_rank, top, train_rankers, training_queries
from clickharvest.simulate.examination import CONTEXT_FEATURES, ContextFeatures

SMALL = {"queries": 300, "test_queries": 200}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return synthetic_corpus(1000, features=64, seed=3)


@pytest.fixture(scope="module")
def simulation(corpus: Corpus) -> Simulation:
    return simulate_protocol(sweeps=40, corpus=corpus, **SMALL)


@pytest.fixture(scope="module")
def uneven(corpus: Corpus) -> Simulation:
    """Three rankers of which the smallest serves only some of the queries."""
    return simulate_protocol(sweeps=2, traffic=(80, 15, 5), corpus=corpus, **SMALL)


class TestCorpus:
    def test_shapes_and_ranges(self, corpus: Corpus) -> None:
        assert corpus.features.dtype == np.float32
        assert corpus.features.shape == (corpus.starts[-1], 64)
        assert corpus.features.min() >= 0
        assert corpus.features.max() <= 1
        assert set(np.unique(corpus.grades)) == {0, 1, 2, 3, 4}
        assert corpus.sizes.min() == 20
        assert corpus.sizes.max() == 40

    def test_features_are_uniform_and_correlated(self, corpus: Corpus) -> None:
        assert np.allclose(corpus.features.mean(axis=0), 1 / 2, atol=0.02)
        assert np.allclose(corpus.features.std(axis=0), np.sqrt(1 / 12), atol=0.02)
        correlations = np.corrcoef(corpus.features[::5].T)[np.triu_indices(64, 1)]
        independent = 1 / np.sqrt(len(corpus.features[::5]))
        assert correlations.std() > 3 * independent

    def test_queries_differ_in_their_number_of_relevant_documents(self, corpus: Corpus) -> None:
        share = np.add.reduceat(corpus.relevant, corpus.starts[:-1], dtype=np.int64) / corpus.sizes
        binomial = share.mean() * (1 - share.mean()) * (1 / corpus.sizes).mean()
        assert share.var() > 1.5 * binomial

    def test_same_seed_same_corpus(self, corpus: Corpus) -> None:
        assert_array_equal(corpus.features, synthetic_corpus(1000, features=64, seed=3).features)
        assert not np.array_equal(synthetic_corpus(20, seed=0).grades, synthetic_corpus(20, seed=1).grades)

    def test_take_keeps_documents_with_their_queries(self, corpus: Corpus) -> None:
        taken = corpus.take(np.array([7, 2]))
        for new, old in enumerate([7, 2]):
            rows = slice(corpus.starts[old], corpus.starts[old + 1])
            assert_array_equal(taken.features[taken.query == new], corpus.features[rows])
            assert_array_equal(taken.grades[taken.query == new], corpus.grades[rows])

    def test_with_relevant_drops_queries_without(self, corpus: Corpus) -> None:
        kept = corpus.with_relevant()
        assert 0.8 * len(corpus) < len(kept) < len(corpus)
        assert set(kept.query[kept.relevant]) == set(range(len(kept)))

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(InputError, match="no corpus of 0 queries"):
            synthetic_corpus(0)


class TestRankers:
    def test_a_ranker_beats_chance_on_other_queries(self, corpus: Corpus) -> None:
        train, test = corpus.take(np.arange(114)), corpus.take(np.arange(114, 400))
        shown = top(test, svm_rank(train), 10)
        assert test.relevant[shown].mean() > 1.4 * test.relevant.mean()

    def test_svm_is_at_the_minimum_of_its_loss(self, corpus: Corpus) -> None:
        sample = corpus.take(np.arange(10))
        pairs = [
            (sample.features[i] - sample.features[j]).astype(float)
            for i in range(len(sample.grades))
            for j in np.flatnonzero((sample.query == sample.query[i]) & (sample.grades < sample.grades[i]))
        ]

        def loss(w: np.ndarray) -> float:
            return w @ w / 2 + 30 * np.mean(np.maximum(0, 1 - np.array(pairs) @ w) ** 2)

        w = svm_rank(sample, cost=30)
        random = np.random.default_rng(0)
        assert all(loss(w) < loss(w + 0.01 * random.normal(size=w.size)) for _ in range(20))

    def test_rankers_differ_but_agree_on_much(self, corpus: Corpus) -> None:
        weights = train_rankers(corpus.take(np.arange(training_queries(2))), 2)
        assert weights.shape == (2, 64)
        assert 0.3 < np.corrcoef(weights)[0, 1] < 0.95

    def test_training_queries_are_shared_and_own(self) -> None:
        assert training_queries(2) == SHARED_QUERIES + 2 * 92 == 206

    def test_top_sorts_each_query_and_pads_short_ones(self, corpus: Corpus) -> None:
        w = np.linspace(-1, 1, 64)
        shown = top(corpus, w, 30)
        for query in (0, 1, len(corpus) - 1):
            docs = np.arange(corpus.starts[query], corpus.starts[query + 1])
            best = docs[np.argsort(-(corpus.features[docs] @ w))][:30]
            assert_array_equal(shown[query, : len(best)], best)
            assert (shown[query, len(best) :] == -1).all()


class TestContexts:
    @pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
    def test_zeta_splits_the_features(self, corpus: Corpus, zeta: float) -> None:
        corpus = corpus.with_relevant()
        tied = round(10 * zeta)
        features = ContextFeatures.draw(corpus, zeta, np.random.default_rng(5))
        once, again = (features.of(corpus, np.random.default_rng(seed)) for seed in (1, 2))
        assert once.shape == (len(corpus), CONTEXT_FEATURES)
        assert_array_equal((once == again).all(axis=0), np.arange(10) < tied)
        query = 4
        docs = np.flatnonzero((corpus.query == query) & corpus.relevant)
        assert np.allclose(once[query, :tied], (2 * corpus.features[docs][:, features.chosen] - 1).mean(axis=0))
        assert np.allclose(once.std(axis=0), 0.34, atol=0.05)

    def test_chosen_features_matter_to_relevance(self) -> None:
        random = np.random.default_rng(0)
        features = random.random((4000, 50), np.float32)
        grades = np.where(features[:, :30].sum(axis=1) > 15, 4, 0).astype(np.int8)
        draw = ContextFeatures.draw(Corpus(features, grades, np.arange(0, 4001, 20)), 1.0, random)
        assert len(set(draw.chosen)) == 10
        assert draw.chosen.max() < 30

    def test_zeta_beyond_one_is_refused(self, corpus: Corpus) -> None:
        with pytest.raises(InputError, match="zeta is 2"):
            ContextFeatures.draw(corpus, 2, np.random.default_rng(0))


@pytest.mark.parametrize("name", EXAMINATIONS)
class TestExamination:
    def test_is_a_probability_and_one_at_the_top(self, name: str) -> None:
        p = EXAMINATIONS[name](np.linspace(-8, 8, 101), 12)
        assert p.shape == (101, 12)
        assert (p[:, 0] == 1).all()
        assert p.min() > 0
        assert p.max() <= 1

    def test_depends_on_context_by_eta(self, name: str) -> None:
        contexts = np.random.default_rng(0).normal(0, 0.35, (50, 10))
        flat, bent = (
            Examination.draw(name, 10, features=10, eta=eta, random=np.random.default_rng(1))(contexts)
            for eta in (0.0, 0.5)
        )
        assert (flat == flat[0]).all()
        assert bent[:, 1:].std(axis=0).max() > 0.05

    def test_weights_are_centred_and_within_two_eta(self, name: str) -> None:
        weights = Examination.draw(name, 10, features=10, eta=0.5, random=np.random.default_rng(2)).weights
        assert weights.sum() == pytest.approx(0)
        assert 0 < np.abs(weights).max() < 1


def test_bump_rises_at_the_end() -> None:
    p = EXAMINATIONS["bump"](np.zeros(1), 10)[0]
    assert p[9] > p[8] > p[7]
    assert (np.diff(p[:7]) < 0).all()


def test_unknown_examination_is_refused() -> None:
    with pytest.raises(InputError, match="no examination 'wave': expected one of power, fold, bump"):
        Examination("wave", np.zeros(10), 10)


class TestProtocol:
    def test_shapes(self, simulation: Simulation) -> None:
        names = ["query", "doc", "ranker", "position", "clicks", "impressions", *simulation.context]
        assert simulation.log.column_names == names
        assert simulation.log.num_rows == simulation.rankings.num_rows == 2 * 300 * 10
        assert simulation.rankings.column_names == names[:4]
        assert simulation.context == tuple(f"x{j}" for j in range(1, 11))
        assert simulation.test_contexts.shape == (200, 10)
        assert simulation.test_examination.shape == (200, 10)
        assert (simulation.test_examination[:, 0] == 1).all()

    def test_parts_have_no_query_in_common(self, simulation: Simulation) -> None:
        train, test = ({row.tobytes() for row in part.features} for part in (simulation.train, simulation.test))
        assert len(train) == len(simulation.train.features)
        assert not train & test

    def test_same_seed_same_log(self, corpus: Corpus, uneven: Simulation) -> None:
        again = simulate_protocol(sweeps=2, traffic=(80, 15, 5), corpus=corpus, **SMALL)
        assert again.log.equals(uneven.log)
        assert_array_equal(again.test_contexts, uneven.test_contexts)

    def test_other_seed_other_log(self, corpus: Corpus, uneven: Simulation) -> None:
        other = simulate_protocol(sweeps=2, traffic=(80, 15, 5), corpus=corpus, seed=1, **SMALL)
        assert not other.log.equals(uneven.log)
        assert not np.array_equal(other.examination.weights, uneven.examination.weights)

    def test_only_clicks_change_with_the_amount_of_data(self, corpus: Corpus, simulation: Simulation) -> None:
        less = simulate_protocol(sweeps=0.1, corpus=corpus, **SMALL)
        assert_array_equal(less.shown, simulation.shown)
        assert_array_equal(less.test_examination, simulation.test_examination)

    @pytest.mark.parametrize("sweeps", [0.1, 1, 2.5])
    def test_sweeps_count_the_queries_of_each_ranker(self, corpus: Corpus, sweeps: float) -> None:
        served = simulate_protocol(sweeps=sweeps, corpus=corpus, **SMALL).served
        assert_array_equal(served.sum(axis=1), [300 * sweeps] * 2)
        assert np.ptp(served) <= 1

    @pytest.mark.parametrize("relevant", [True, False])
    def test_click_rates_are_examination_times_relevance(self, simulation: Simulation, relevant: bool) -> None:
        s = simulation
        p = s.examination(s.train_contexts) * np.where(s.train.relevant[s.shown], 1.0, 0.1)
        of_kind = s.train.relevant[s.shown] == relevant
        trials = np.broadcast_to(s.served[:, :, None], p.shape) * of_kind
        expected = (trials * p).sum(axis=(0, 1))
        deviation = np.sqrt((trials * p * (1 - p)).sum(axis=(0, 1)))
        clicks = (s.clicks * of_kind).sum(axis=(0, 1))
        assert (np.abs(clicks - expected) <= 4 * deviation).all()
        assert (clicks[1:] > 0).all()

    def test_context_free_curve_is_as_wrong_as_in_the_paper(self, simulation: Simulation) -> None:
        """The weights w are drawn anew, as one draw of them moves the error by a quarter."""
        random = np.random.default_rng(0)
        errors = []
        for _ in range(50):
            p = Examination.draw("power", 10, features=10, eta=0.5, random=random)(simulation.test_contexts)
            errors.append(np.abs(1 - p.mean(axis=0) / p).mean())
        assert 0.40 < np.mean(errors) < 0.50

    def test_rows_agree_with_the_arrays(self, uneven: Simulation) -> None:
        log = uneven.log.to_pydict()
        assert uneven.log.num_rows == 10 * np.count_nonzero(uneven.served)
        assert min(log["impressions"]) > 0
        for row in (0, 999, uneven.log.num_rows - 1):
            cell = int(log["ranker"][row][1:]) - 1, log["query"][row], log["position"][row] - 1
            assert log["doc"][row] == uneven.shown[cell]
            assert log["clicks"][row] == uneven.clicks[cell]
            assert uneven.train.query[log["doc"][row]] == log["query"][row]
            assert log["x3"][row] == uneven.train_contexts[cell[1], 2]

    def test_too_small_a_corpus_says_how_many_queries_it_has(self, corpus: Corpus) -> None:
        with pytest.raises(InputError, match=r"the corpus has 9\d\d queries .* 2,706 are needed"):
            simulate_protocol(sweeps=1, queries=500, corpus=corpus)

    @pytest.mark.parametrize("wrong", [{"sweeps": 0}, {"traffic": (1,)}, {"traffic": (1, 0)}, {"noise": 2}])
    def test_nonsense_is_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(InputError, match="expected sweeps > 0"):
            simulate_protocol(**({"sweeps": 1} | wrong))  # type: ignore[arg-type]


class TestHarvest:
    def test_direct_way_equals_the_pipeline(self, uneven: Simulation) -> None:
        direct, piped = uneven.interventions(), uneven.harvest()
        for name in COLUMNS:
            last_digit = 2e-16 if name == "exposure" else 0  # engines add shares up in their own order
            assert_allclose(getattr(direct, name), getattr(piped, name), rtol=last_digit, err_msg=name)
            assert getattr(direct, name).dtype == getattr(piped, name).dtype
        for name in uneven.context:
            assert_array_equal(direct.contexts[name], piped.contexts[name])
        assert direct.metadata == piped.metadata

    def test_queries_never_served_are_left_out_of_both(self, corpus: Corpus) -> None:
        simulation = simulate_protocol(sweeps=0.1, corpus=corpus, **SMALL)
        direct, piped = simulation.interventions(), simulation.harvest()
        assert_array_equal(direct.unit, piped.unit)
        assert_array_equal(direct.clicks, piped.clicks)
        assert set(direct.query) <= set(np.flatnonzero(simulation.served.sum(axis=0)))

    def test_short_pages(self) -> None:
        """Queries with fewer documents than positions show what they have."""
        simulation = simulate_protocol(sweeps=1, corpus=synthetic_corpus(1200, docs=(5, 12)), **SMALL)
        assert simulation.log.num_rows == 2 * np.minimum(simulation.train.sizes, 10).sum()
        direct, piped = simulation.interventions(), simulation.harvest()
        assert_array_equal(direct.position, piped.position)
        assert_array_equal(direct.clicks, piped.clicks)

    def test_exposures_are_the_design_ones(self, uneven: Simulation) -> None:
        assert uneven.traffic == pytest.approx({"f1": 0.8, "f2": 0.15, "f3": 0.05})
        found = uneven.interventions()
        total = np.bincount(found.unit, weights=found.exposure)
        assert total.max() <= 1 + 1e-12
        assert {round(e, 6) for e in found.exposure} == {0.05, 0.15, 0.2, 0.8, 0.85, 0.95}
        assert uneven.served.mean(axis=1) == pytest.approx(6 * np.array([0.8, 0.15, 0.05]), abs=0.01)

    def test_counts_are_those_of_intervened_documents(self, simulation: Simulation) -> None:
        found = simulation.interventions()
        one, other = ({doc: k for page in pages for k, doc in enumerate(page)} for pages in simulation.shown)
        moved = {doc for doc in one.keys() & other.keys() if one[doc] != other[doc]}
        assert found.n_units == len(moved)
        assert found.clicks.sum() == simulation.clicks[np.isin(simulation.shown, list(moved))].sum()
        assert (found.impressions == 40).all()

    @pytest.mark.parametrize("name", ["simulation", "uneven"])
    def test_click_shares_of_units_follow_the_truth(self, name: str, request: pytest.FixtureRequest) -> None:
        """E[C_k] of a unit is its clicks times e_k p_k / Σ_j e_j p_j, whatever its relevance."""
        simulation: Simulation = request.getfixturevalue(name)
        found = simulation.interventions()
        p = simulation.examination(simulation.train_contexts)[found.query, found.position - 1] * found.exposure
        share = p / np.bincount(found.unit, weights=p)[found.unit]
        clicks = np.bincount(found.unit, weights=found.clicks)[found.unit]
        surplus = np.bincount(found.position, weights=found.clicks - clicks * share)[1:]
        deviation = np.sqrt(np.bincount(found.position, weights=clicks * share * (1 - share))[1:])
        assert (np.abs(surplus) <= 4 * deviation).all()
