"""AllPairs that chooses ridges, relevance or the PBM by queries kept aside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.estimation import CPBM, PBM
from clickharvest.estimation.robust_pairs import Judged, choose
from clickharvest.simulate import simulate_protocol
from samples import simulated_interventions

STEEP = {"desktop": 0.3, "mobile": 1.6}


def judged(relevance: str, shares: Any, pairs: float = 0.0) -> Judged:
    return Judged(relevance, 1.0, 1.0, pairs, np.asarray(shares, dtype=np.float64))


@pytest.fixture(scope="module")
def fitted() -> CPBM:
    interventions = simulated_interventions(300, seed=1, steepness=STEEP)
    with pytest.warns(HarvestWarning, match="the clicks chose curve, penalty or relevance"):
        return CPBM(objective="allpairs").fit(interventions)


class TestChoice:
    def test_what_is_not_ahead_of_the_pbm_by_a_standard_error_is_out(self) -> None:
        assert choose([judged("constant", [1.0, -0.9, 0.1])]) is None
        assert choose([judged("constant", [-1.0, -1.1, -0.9])]) is None

    def test_the_simplest_of_those_that_match_the_best(self) -> None:
        plain, rich = judged("constant", [1.0, 1.2, 0.8, 1.0]), judged("free", [1.5, 0.9, 0.5, 1.2])
        assert choose([rich, plain]) is plain
        assert choose([judged("free", [3.0, 3.2, 2.8, 3.0]), plain]) is not plain

    def test_all_pairs_chooses_among_equals(self) -> None:
        heavy, light = judged("constant", [1.0, 1.2, 0.8], -9.0), judged("constant", [0.9, 1.3, 0.7], -5.0)
        assert choose([heavy, light]) is light


class TestEstimator:
    def test_context_is_found_where_it_matters(self, fitted: CPBM) -> None:
        assert fitted.propensities_.curve.spec == {"name": "mlp", "width": 0}
        found = fitted.predict({"device": list(STEEP)}).propensity
        truth = np.arange(1, 5) ** -np.array(list(STEEP.values()))[:, None]
        assert np.abs(found / truth - 1).mean() < 0.15

    def test_the_choice_is_told(self, fitted: CPBM) -> None:
        info = fitted.propensities_.info
        assert info["relevance"] in ("constant", "squares", "free")
        assert set(info["relevance_held_out"]) == {"pbm", "constant", "squares", "free"}
        assert info["relevance_held_out"][info["relevance"]] > 0
        assert "converged" in info["status"]

    def test_the_pbm_stays_where_context_does_nothing(self) -> None:
        interventions = simulated_interventions(300, seed=6, steepness=dict.fromkeys(STEEP, 1.0))
        found = CPBM(objective="allpairs", intervals=None).fit(interventions)
        plain = PBM(objective="allpairs", intervals=None).fit(interventions)
        assert found.propensities_.curve.name == "constant"
        expected = np.tile(plain.predict().propensity, (2, 1))
        np.testing.assert_allclose(found.predict({"device": list(STEEP)}).propensity, expected, rtol=1e-3)

    def test_context_that_is_believed_by_chance_does_no_harm(self) -> None:
        interventions = simulated_interventions(300, seed=5, steepness=dict.fromkeys(STEEP, 1.0))
        found = CPBM(objective="allpairs", intervals=None).fit(interventions)
        plain = PBM(objective="allpairs", intervals=None).fit(interventions)
        assert found.propensities_.curve.name == "mlp"
        np.testing.assert_allclose(
            found.predict({"device": list(STEEP)}).propensity, np.tile(plain.predict().propensity, (2, 1)), rtol=0.05
        )

    def test_few_queries_do_not_make_it_wild(self) -> None:
        """Without a penalty the same network is off by orders of magnitude."""
        simulation = simulate_protocol(training_queries=80, queries=80, test_queries=50, positions=6, seed=2)
        interventions = simulation.interventions()
        contexts = {name: simulation.test_contexts[:, j] for j, name in enumerate(simulation.context)}

        def error(model: CPBM) -> float:
            found = model.fit(interventions).predict(contexts)
            truth = simulation.test_examination[:, np.array(found.positions) - 1]
            return float(np.abs(1 - found.propensity / truth * truth[:, :1]).mean())

        assert error(CPBM(objective="allpairs", intervals=None)) < 1.5
        named = CPBM(objective="allpairs", curve="mlp", width=0, penalty=0.0, starts=1, intervals=None)
        assert error(named) > 3

    def test_two_queries_are_fitted_though_a_fold_may_have_none(self) -> None:
        few = simulated_interventions(2, seed=0, steepness=STEEP, shown=2)
        found = CPBM(objective="allpairs", intervals=None).fit(few).propensities_
        assert np.isfinite(found.predict({"device": ["desktop"]}).propensity[0]).any()

    def test_there_are_no_intervals_as_the_data_chose(self, fitted: CPBM) -> None:
        assert fitted.propensities_.draws_kind is None
        assert not fitted.predict({"device": list(STEEP)}).supported[:, 1:].any()

    def test_a_bootstrap_that_is_asked_for_is_not_supported(self) -> None:
        interventions = simulated_interventions(150, seed=1, steepness=STEEP)
        chosen = CPBM(objective="allpairs", curve="linear", penalty=1.0, intervals="bootstrap", replicates=5)
        model = chosen.fit(interventions)
        prediction = model.predict({"device": list(STEEP)})
        assert model.propensities_.draws_kind == "bootstrap"
        assert np.isfinite(prediction.propensity).all()
        assert prediction.supported.tolist() == [[True, False, False, False]] * 2
        assert np.isnan(prediction.lower[:, 1:]).all()
        with pytest.raises(InputError, match="clustered intervals are for the objective clickshare"):
            CPBM(objective="allpairs", intervals="clustered").fit(interventions)

    @pytest.mark.parametrize(
        ("named", "relevance"), [({"curve": "linear"}, "constant"), ({"curve": "linear", "relevance": "free"}, "free")]
    )
    def test_named_settings_are_what_they_were(self, named: dict[str, Any], relevance: str) -> None:
        interventions = simulated_interventions(100, seed=1, steepness=STEEP)
        model = CPBM(objective="allpairs", penalty=1.0, intervals=None, **named).fit(interventions)
        assert model.propensities_.info["relevance"] == relevance
        assert "relevance_held_out" not in model.propensities_.info

    @pytest.mark.parametrize(("relevance", "chosen"), [("auto", True), ("constant", None)])
    def test_a_relevance_that_the_data_chose_is_a_choice(self, relevance: str, chosen: bool | None) -> None:
        interventions = simulated_interventions(100, seed=1, steepness=STEEP)
        model = CPBM(
            objective="allpairs", curve="linear", penalty=1.0, relevance=relevance, intervals="bootstrap", replicates=3
        ).fit(interventions)
        assert model.propensities_.info.get("by_folds") is chosen

    def test_one_query_cannot_be_kept_aside(self) -> None:
        interventions = simulated_interventions(1, seed=1, steepness=STEEP, shown=400)
        with pytest.raises(InputError, match="all clicks are of one query: name curve, relevance and penalty"):
            CPBM(objective="allpairs", intervals=None).fit(interventions)


def test_all_rankers_serve_the_same_queries() -> None:
    few = simulate_protocol(sweeps=0.3, queries=100, test_queries=10, repetition="same")
    assert few.served.sum(axis=1).tolist() == [30, 30]
    assert (few.served[0] == few.served[1]).all()
    apart = simulate_protocol(sweeps=0.3, queries=100, test_queries=10)
    assert (apart.served[0] != apart.served[1]).any()
