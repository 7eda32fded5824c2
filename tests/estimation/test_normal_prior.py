"""Pooling of places towards their parents: the prior, its evidence, and what it does to estimates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.estimation import CPBM, PBM, Sample
from clickharvest.estimation.pooling import logit_of, make_prior, pool, with_penalty
from clickharvest.harvesting import Interventions
from clickharvest.model import Constant, Linear
from clickharvest.positions.places import Places

GRID = Places.of(("row", "column"), [(i, j) for i in (1, 2, 3) for j in (1, 2, 3, 4)])
LOG_P = np.array([-0.6 * np.log(i) - 0.3 * np.log(j) - 0.2 * (i == 3) for i, j in GRID.labels])  # type: ignore[arg-type]


def simulated(shown: int, *, seed: int = 0, places: Places = GRID, features: int = 0) -> Sample:
    """Return 150 units that stand at all places; features, where there are some, mean nothing."""
    random = np.random.default_rng(seed)
    unit = np.repeat(np.arange(150), len(places))
    position = np.tile(np.arange(len(places)), 150)
    impressions = np.full(len(unit), shown)
    clicks = random.binomial(impressions, random.uniform(0.2, 0.9, 150)[unit] * np.exp(LOG_P)[position])
    x = random.normal(size=(150, features)) if features else np.zeros((1, 0))
    context = unit if features else np.zeros_like(unit)
    return Sample(
        tuple(range(1, len(places) + 1)), x, unit, context, position, impressions * 1.0, clicks, impressions, unit,
        150, places=places,
    )  # fmt: skip


@pytest.mark.parametrize("features", [0, 2])
def test_the_precision_is_the_inverse_of_the_covariance_and_the_evidence_has_its_slope(features: int) -> None:
    sample = simulated(3, features=features)
    curve = Linear(sample.positions, 5, features) if features else Constant(sample.positions, 5, 0)
    found = pool(curve, sample)
    prior = make_prior(curve, sample, found.shares.width, found.shares.size)
    tau = np.linspace(0.2, 0.9, len(prior.names))
    scaled = prior._effects * prior._deviations(tau)
    assert np.linalg.inv(scaled @ scaled.T) == pytest.approx(prior.matrix(tau), rel=1e-6, abs=1e-8)
    linear = found.information @ found.theta + found.score
    for at in (np.log(tau), np.full(len(tau), np.log(1e-3))):
        value, slope = prior.evidence(at, found.information, linear)
        for j, step in enumerate(np.eye(len(tau)) * 1e-4):
            up, down = (prior.evidence(at + sign * step, found.information, linear)[0] for sign in (1, -1))
            assert (up - down) / 2e-4 == pytest.approx(slope[j], abs=1e-4 * max(1, abs(value) / 100))


def test_the_evidence_is_that_of_the_parameters() -> None:
    """½ yᵀ(H + Λ)⁻¹y + ½ log|Λ| − ½ log|H + Λ|, up to what does not depend on τ."""
    sample = simulated(3)
    curve = Constant(sample.positions, 1, 0)
    found = pool(curve, sample)
    shares = logit_of(curve, sample)
    prior = make_prior(curve, sample, shares.width, shares.size)
    h, y = found.information, found.information @ found.theta + found.score

    def direct(tau: np.ndarray) -> float:
        whole = prior.matrix(tau)
        logs = np.linalg.slogdet(whole)[1] - np.linalg.slogdet(h + whole)[1]
        return float(y @ np.linalg.solve(h + whole, y) + logs) / 2 + float(np.sum(np.log(tau) - tau))

    one, two = np.array([0.2, 0.3, 0.1]), np.array([0.5, 0.1, 0.4])
    own = [prior.evidence(np.log(tau), h, y)[0] for tau in (one, two)]
    assert own[0] - own[1] == pytest.approx(direct(one) - direct(two), rel=1e-6)


def test_no_place_is_special_because_it_is_the_anchor() -> None:
    sample = simulated(2)
    one, other = (pool(Constant(sample.positions, anchor, 0), sample) for anchor in (1, 7))
    first, second = np.insert(one.theta, 0, 0.0), np.insert(other.theta, 6, 0.0)
    assert first - first[6] == pytest.approx(second, abs=1e-5)
    assert one.spread == pytest.approx(other.spread, rel=1e-3)


def test_few_clicks_are_pooled_towards_rows_and_columns_and_many_are_not() -> None:
    few, many = [], []
    for seed in range(4):
        for shown, errors in ((1, few), (400, many)):
            sample = simulated(shown, seed=seed)
            curve = Constant(sample.positions, 1, 0)
            pooled, free = pool(curve, sample).theta, with_penalty(curve, sample, 0.0).theta
            errors.append([np.square(theta - LOG_P[1:]).mean() for theta in (pooled, free)])
    assert np.mean(few, axis=0)[0] < 0.7 * np.mean(few, axis=0)[1]
    assert np.sqrt(np.mean(many, axis=0)).max() < 0.01


@pytest.mark.parametrize("labels", [[(1, j) for j in range(1, 13)], [(i, 3) for i in range(12)]])
def test_one_row_or_one_column_is_a_curve_over_the_other(labels: list[tuple[int, int]]) -> None:
    sample = simulated(20, places=Places.of(("row", "column"), labels))
    found = pool(Constant(sample.positions, 1, 0), sample)
    assert found.spread is not None
    assert list(found.spread) == ["place"]
    assert np.abs(found.theta - LOG_P[1:]).max() < 0.2


def interventions() -> Interventions:
    sample = simulated(30)
    device = np.array(["a", "b"])[sample.unit % 2]
    return Interventions(
        unit=sample.unit, query=sample.unit // 3, position=sample.position + 1, exposure=sample.exposure,
        clicks=sample.clicks, impressions=sample.impressions, contexts={"device": device}, places=GRID,
    )  # fmt: skip


def test_curves_that_go_down_a_list_are_refused_and_not_tried() -> None:
    for curve in ("power", "recurrent"):
        with pytest.raises(InputError, match=rf"the curve '{curve}' goes down a list, and places \(row, column\) have"):
            CPBM(curve=curve).fit(interventions())
    model = CPBM(folds=2, starts=1).fit(interventions()).propensities_
    assert "power" not in {candidate["curve"]["name"] for candidate in model.info["selection"]}
    assert model.places == GRID


def test_a_linear_curve_over_places_has_parents_of_its_contexts() -> None:
    model = CPBM(curve="linear").fit(interventions()).propensities_
    assert "context by row" in model.info["pooled"]
    predicted = model.predict({"device": ["a", "b"]})
    assert np.abs(np.log(predicted.propensity) - LOG_P).max() < 0.25


def test_a_place_that_nothing_links_has_no_estimate() -> None:
    whole = interventions()
    apart = replace(whole, unit=np.where(whole.position == 12, whole.unit + 1_000, whole.unit))
    apart = apart.take(np.argsort(apart.unit, kind="stable"))
    model = PBM(anchor="1,1").fit(apart).propensities_
    assert model.unsupported == (12,)
    assert "No estimate at row 3, column 4: nothing links it to row 1, column 1." in str(model).replace("\n", " ")
    assert not model.predict().supported[0, 11]
