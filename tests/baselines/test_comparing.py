"""Estimators side by side: honest held-out scores, intervals that hold, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t as student

from clickharvest.baselines import ESTIMATORS, compare_estimators, pivot_one
from clickharvest.baselines.comparing import Estimator, EstimatorInput
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting import Interventions, harvest
from clickharvest.logs import ClickLog, read_log
from clickharvest.model import Propensities
from clickharvest.simulate import simulate_ab_log
from samples import simulated_interventions


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return read_log(simulate_ab_log(pages=8_000, queries=400, positions=6, seed=1)[0])


@pytest.fixture
def seen() -> Iterator[list[Interventions]]:
    """An estimator of one's own that tells what it was given."""
    given: list[Interventions] = []

    def estimate(evidence: EstimatorInput) -> Propensities:
        given.append(evidence.interventions)
        return pivot_one(evidence.interventions)

    ESTIMATORS.add("own", Estimator("own", estimate))
    yield given
    del ESTIMATORS.things["own"]  # type: ignore[attr-defined]


def test_click_rates_differ_from_what_moved_results_say_and_explain_their_clicks_worse(log: ClickLog) -> None:
    found = compare_estimators(log)
    assert found.left_out == {"regression-EM": "needs features of the documents"}
    assert found.best in ("clickshare", "allpairs")
    assert found.estimates["ctr"].differs_at
    assert found.estimates["ctr"].held_out < found.estimates["clickshare"].held_out  # type: ignore[operator]
    assert found.estimates["allpairs"].differs_at == found.estimates["clickshare"].differs_at == ()
    assert {gain.over: gain.found for gain in found.gains}["ctr"] == "better"
    assert "CTR" in found.findings[0]
    assert "results that moved" in found.findings[1]


def test_a_query_is_scored_by_fits_that_have_not_seen_it(seen: list[Interventions]) -> None:
    interventions = simulated_interventions(90, seed=2, steepness={"a": 1.0})
    found = compare_estimators(interventions, estimators=["own"], folds=5)
    whole, *without = ({*own.query.tolist()} for own in seen)
    aside = [whole - own for own in without]
    assert len(aside) == 5
    assert sum(map(len, aside)) == len(whole) == len(set.union(*aside))
    assert found.estimates["own"].label == "own"


def test_intervals_are_those_of_the_jackknife(seen: list[Interventions]) -> None:
    interventions = simulated_interventions(60, seed=0, steepness={"a": 1.0})
    interventions = Interventions(**vars(interventions) | {"contexts": {}})
    found = compare_estimators(interventions, estimators=["own"], folds=5).estimates["own"].propensity
    whole, *without = (dict(zip(m.curve.positions[1:], m.params["b"], strict=True)) for m in map(pivot_one, seen))
    left_out = [interventions.clicks[~np.isin(interventions.query, part.query)].sum() for part in seen[1:]]
    assert sum(left_out) == interventions.clicks.sum()
    many = np.sum(left_out) ** 2 / np.square(left_out).sum()
    for k, log_p in whole.items():
        curves = np.array([one[k] for one in without])
        margin = student.ppf(0.975, many - 1) * np.sqrt(4 / 5 * np.square(curves - curves.mean()).sum())
        assert found[k] == pytest.approx((np.exp(log_p), np.exp(log_p - margin), np.exp(log_p + margin)))


@pytest.mark.nightly
def test_intervals_hold_and_estimators_of_the_same_thing_seldom_differ() -> None:
    estimators, covered, differing = ("pivotone", "adjacentchain", "allpairs"), [], 0
    for seed in range(25):
        interventions = simulated_interventions(60, seed=seed, steepness={"a": 1.0})
        interventions = Interventions(**vars(interventions) | {"contexts": {}})
        found = compare_estimators(interventions, estimators=estimators)
        differing += any(own.differs_at for own in found.estimates.values())
        for own in found.estimates.values():
            covered += [low < 1 / k < high for k, (_, low, high) in own.propensity.items() if k > 1 and low and high]
    assert 0.9 < np.mean(covered) < 0.995
    assert differing <= 4


def test_interventions_have_no_click_rates() -> None:
    interventions = simulated_interventions(200, seed=3, steepness={"a": 0.5, "b": 1.5})
    found = compare_estimators(interventions, folds=3)
    assert found.left_out == dict.fromkeys(("CTR", "EM", "regression-EM"), "needs the log itself")
    assert set(found.estimates) == {"pivotone", "adjacentchain", "allpairs", "clickshare"}
    with pytest.raises(NotIdentifiedError, match="no estimator has an estimate: CTR needs the log itself"):
        compare_estimators(interventions, estimators=["ctr"])


def test_features_of_documents_bring_regression_em() -> None:
    log = read_log(simulate_ab_log(pages=300, queries=20, positions=3, seed=2)[0])
    pairs = log.engine.fetch(log.table.select("query", "doc").distinct(), task="").to_pydict()
    features = pa.table(pairs | {"x": np.arange(len(pairs["doc"])) % 7})
    found = compare_estimators(log, estimators=["ctr", "regression-em"], features=features, folds=2)
    assert found.left_out == {}
    assert found.estimates["regression-em"].held_out is not None


def test_one_query_has_estimates_and_nothing_that_needs_another() -> None:
    one = simulated_interventions(1, seed=4, steepness={"a": 1.0}, shown=2_000)
    found = compare_estimators(one, estimators=["allpairs", "pivotone"])
    assert found.best is None
    assert found.to_dict()["estimators"]["pivotone"]["held_out"] is None
    assert all(low is None for own in found.estimates.values() for _, low, _ in own.propensity.values())
    assert "log more queries" in found.findings[0]


def test_what_cannot_be_compared_is_refused(log: ClickLog) -> None:
    with pytest.raises(InputError, match="no estimator 'nothing': expected one of ctr, pivotone"):
        compare_estimators(log, estimators=["nothing"])
    with pytest.raises(InputError, match="by query, and the log has clicks clustered by doc"):
        compare_estimators(harvest(log, cluster="doc"))
