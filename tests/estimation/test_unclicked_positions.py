"""Positions without a click are seen, though nothing is told of them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from clickharvest.estimation import CPBM, PBM, ClickShare, Fit
from clickharvest.estimation.pooling import pool
from clickharvest.estimation.sample import Reach, find_reach, make_sample, make_samples
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.curves import Constant, Power
from samples import logs

POSITIONS = 60


def sparse_log(seed: int, *, queries: int = 250, shown: float = 6.0) -> Interventions:
    """Return documents at three of sixty positions, p_k = 1 / k: most positions have a click or none."""
    random = np.random.default_rng(seed)
    position = np.sort(random.permuted(np.tile(np.arange(1, POSITIONS + 1), (3 * queries, 1)), axis=1)[:, :3], axis=1)
    unit = np.repeat(np.arange(len(position)), 3)
    impressions = 1 + random.poisson(shown, len(unit))
    relevance = random.uniform(0.1, 0.6, len(position))[unit]
    clicks = random.binomial(impressions, relevance / position.ravel())
    return Interventions(
        unit=unit, query=unit // 3, position=position.ravel(), exposure=impressions * 1.0, clicks=clicks,
        impressions=impressions, contexts={"x": random.normal(size=queries)[unit // 3]},
    )  # fmt: skip


def test_tied_positions_need_a_clicked_unit_and_no_click() -> None:
    """3 was shown with what was clicked at 2, 4 with what was clicked nowhere, 5 and 6 apart from all others."""
    interventions = Interventions(
        unit=np.repeat(np.arange(4), 2), query=np.repeat(np.arange(4), 2), position=np.array([1, 2, 2, 3, 1, 4, 5, 6]),
        exposure=np.ones(8), clicks=np.array([1, 1, 1, 0, 0, 0, 1, 1]), impressions=np.ones(8, dtype=np.int64),
    )  # fmt: skip
    assert find_reach(interventions, 1) == Reach(linked=(1, 2), tied=(1, 2, 3))


@pytest.mark.parametrize("clusters", [False, True])
def test_a_sample_at_fewer_positions_is_that_of_these_positions(clusters: bool) -> None:
    log = sparse_log(1)
    if clusters:
        log = Interventions(
            **{name: getattr(log, name) for name in ("unit", "query", "position", "exposure", "clicks", "impressions")},
            cluster=log.query // 2, cluster_kind="campaign",
        )  # fmt: skip
    reach = find_reach(log, 1)
    assert set(reach.linked) < set(reach.tied)
    sample, seen = make_samples(log, reach)
    alone = make_sample(log, reach.linked)
    assert (sample.positions, seen.positions) == reach
    for name in ("unit", "position", "exposure", "clicks", "impressions"):
        np.testing.assert_array_equal(getattr(sample, name), getattr(alone, name))
    together = np.stack([sample.cluster, alone.cluster])
    assert len(np.unique(together, axis=1).T) == len(np.unique(sample.cluster)) == len(np.unique(alone.cluster))


@logs(daily=6, nightly=30)
def test_a_steepness_is_not_read_off_the_positions_that_were_clicked(logs: int) -> None:
    """What clicked positions alone say is far too flat, what all say is right on average."""
    seen, clicked, inside = [], [], []
    for seed in range(logs):
        log = sparse_log(seed, shown=2.0)
        prediction = PBM().fit(log).predict()
        linked = find_reach(log, 1).linked
        told = np.isin(prediction.positions, linked[1:])
        truth = -np.log(np.array(prediction.positions)[told])
        seen.append(np.mean(np.log(prediction.propensity[0, told]) - truth))
        alone = pool(Constant(linked, 1, 0), make_sample(log, linked))
        clicked.append(np.mean(alone.theta - truth))
        own = prediction.supported[0, told]
        lower, upper = (np.log(bound[0, told][own]) for bound in (prediction.lower, prediction.upper))
        inside.append(np.mean((lower <= truth[own]) & (truth[own] <= upper)))
    assert np.mean(clicked) > 0.3
    assert abs(np.mean(seen)) < 0.15
    assert np.mean(inside) > 0.93


@logs(daily=2, nightly=10)
@pytest.mark.parametrize("intervals", ["clustered", "bootstrap"])
def test_a_power_law_sees_positions_without_clicks(intervals: Literal["clustered", "bootstrap"], logs: int) -> None:
    """The law is as steep as the truth; clicked positions alone are flatter in each log."""
    steepness, clicked = [], []
    for seed in range(logs):
        log = sparse_log(seed)
        model = CPBM(curve="power", penalty=1e6, intervals=intervals, replicates=20).fit(log).propensities_
        assert model.draws is not None
        assert float(model.draws[:, 0].mean()) == pytest.approx(float(model.params["a"][0]), abs=0.06)
        steepness.append(float(model.params["a"][0]))
        sample = make_sample(log, find_reach(log, 1).linked)
        alone = Fit(Power(sample.positions, 1, 0), ClickShare(sample), sample)
        found = alone.settle(alone.starts(1, 0), np.ones((1, sample.n_clusters)), np.zeros(1))
        clicked.append(float(found.params[0, 0]))
    assert np.mean(steepness) == pytest.approx(1, abs=0.05)
    assert (np.array(steepness) > np.array(clicked) + 0.01).all()


def test_auto_judges_all_curves_by_the_same_clicks() -> None:
    """Held-out scores are of clicked positions: seen positions would add the clicks that others did not get."""
    log = sparse_log(3, queries=300)
    model = CPBM(folds=3).fit(log).propensities_
    assert model.curve.positions == find_reach(log, 1).linked
    best = {one["curve"]["name"]: one["score"] for one in model.info["selection"] if one["folds"] is None}
    assert best["linear"] == pytest.approx(best["power"], abs=0.01)
    assert len(model.info["clustered"]["effective_queries"]) == len(model.curve.positions)


def test_a_position_that_no_clicked_unit_saw_changes_nothing() -> None:
    log = sparse_log(7)
    more = Interventions(
        **{name: np.append(getattr(log, name), extra) for name, extra in (
            ("unit", [10**6, 10**6]), ("query", [10**6, 10**6]), ("position", [POSITIONS + 1, POSITIONS + 2]),
            ("exposure", [5.0, 5.0]), ("clicks", [0, 0]), ("impressions", [5, 5]))},
    )  # fmt: skip
    one, other = PBM().fit(log).predict(), PBM().fit(more).predict()
    np.testing.assert_allclose(one.propensity, other.propensity[:, : len(one.positions)])
    np.testing.assert_allclose(one.lower, other.lower[:, : len(one.positions)])
