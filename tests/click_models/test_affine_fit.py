"""Affine clicks: slopes and offsets against a known truth, their score against differences, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest import PBM, harvest, read_log
from clickharvest.click_models import Affine, AffineLevels, AffineModel
from clickharvest.click_models.affine.estimating import Mixture, count_units
from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from clickharvest.harvesting import Interventions
from clickharvest.simulate import AffineTruth, simulate_trust_log


def of_counts(clicks: np.ndarray, shown: np.ndarray, queries: int) -> Interventions:
    unit, k = np.nonzero(shown)
    return Interventions(
        unit=unit, query=unit % queries, position=k + 1, exposure=shown[unit, k].astype(float),
        clicks=clicks[unit, k].astype(int), impressions=shown[unit, k].astype(int),
    )  # fmt: skip


def fitted(interventions: Interventions, **options: Any) -> AffineModel:
    model = Affine(**options).fit(interventions)
    assert isinstance(model, AffineModel)
    return model


@pytest.fixture(scope="module")
def trusting() -> tuple[Interventions, AffineTruth]:
    log, truth = simulate_trust_log(pages=20_000, queries=150, positions=4, docs=8)
    return harvest(read_log(log)), truth


def test_slopes_and_offsets_are_found(trusting: tuple[Interventions, AffineTruth]) -> None:
    interventions, truth = trusting
    model = fitted(interventions)
    found = model.predict()
    assert found.supported.all()
    assert (found.slope_lower <= truth.slope).all()
    assert (truth.slope <= found.slope_upper).all()
    assert (found.offset_lower <= truth.offset).all()
    assert (truth.offset <= found.offset_upper).all()
    assert np.abs(found.slope / truth.slope - 1).max() < 0.25
    assert np.abs(found.offset - truth.offset).max() < 0.15
    test, floor = model.offset_test(), model.floor()
    assert test is not None
    assert test[1] < 1e-3
    assert floor is not None
    assert 0.3 < floor <= truth.floor
    # What the correction is for: the examination model takes half of the clicks at the top for relevance.
    rows = interventions
    rate = truth.slope[rows.position - 1] * 0.7 + truth.offset[rows.position - 1]
    corrected = model.correct(rate, rows.position)
    examined = rate / PBM(intervals=None).fit(rows).predict().propensity[0][rows.position - 1]
    assert np.abs(corrected - 0.7).mean() < 0.2 * np.abs(examined - 0.7).mean()


def test_without_trust_slopes_are_propensities_and_offsets_are_not_needed() -> None:
    log, truth = simulate_trust_log(pages=20_000, queries=150, positions=4, docs=8, trust=0.0, seed=1)
    assert np.abs(truth.offset).max() == 0
    interventions = harvest(read_log(log))
    model = fitted(interventions)
    test = model.offset_test()
    assert test is not None
    assert test[1] > 0.05
    found = model.predict()
    assert (found.offset_lower <= 0).all()
    assert (found.offset_upper >= 0).all()
    propensity = PBM(intervals=None).fit(interventions).predict().propensity[0]
    assert np.abs(found.slope / propensity - 1).max() < 0.15
    assert model.floor() == 0 or model.floor() < 0.02  # type: ignore[operator]
    assert "No sign that offsets are needed" in str(model)


def test_another_anchor_describes_the_same_lines(trusting: tuple[Interventions, AffineTruth]) -> None:
    one, two = (fitted(trusting[0], anchor=k, intervals=None) for k in (1, 2))
    assert np.allclose(two.slope, one.slope / one.slope[1], rtol=0.02)
    assert np.allclose(two.offset, one.offset - two.slope * one.offset[1], atol=0.02)


def test_neither_order_nor_names_matter(trusting: tuple[Interventions, AffineTruth]) -> None:
    rows = trusting[0]
    names = {unit: i for i, unit in enumerate(np.random.default_rng(0).permutation(np.unique(rows.unit)).tolist())}
    renamed = replace(rows, unit=np.array([names[unit] for unit in rows.unit.tolist()]))
    shuffled = renamed.take(np.argsort(renamed.unit, kind="stable"))
    first, second = (fitted(one, intervals=None) for one in (rows, shuffled))
    assert np.allclose(first.slope, second.slope, rtol=1e-6)
    assert np.allclose(first.offset, second.offset, atol=1e-6)


def test_the_score_is_the_derivative_of_the_likelihood(trusting: tuple[Interventions, AffineTruth]) -> None:
    counts = count_units(trusting[0].take(slice(0, 400)), (1, 2, 3, 4))
    mixture = Mixture(counts, 1)
    theta = mixture.start(np.ones(4))
    mixture._refine(theta)
    theta = theta + 0.1 * np.random.default_rng(0).normal(size=len(theta))
    mixture.centre = theta  # the penalty's own derivative is 0 there
    gradient = mixture._gradient(theta)
    for i in range(len(theta)):
        step = np.zeros(len(theta))
        step[i] = 1e-5
        slope = (mixture._evaluate(theta + step)[0] - mixture._evaluate(theta - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-3)


def test_units_without_a_click_count() -> None:
    shown = np.full((4, 2), 5)
    counts = count_units(of_counts(np.array([[1, 0], [0, 0], [0, 0], [3, 2]]), shown, 2), (1, 2))
    assert counts.clicks.tolist() == [[1, 0], [0, 0], [0, 0], [3, 2]]
    assert counts.rates().tolist() == [0.2, 0.1]
    assert counts.query.tolist() == [0, 1, 0, 1]


def test_slopes_of_positions_with_few_clicks_are_not_drawn_to_one() -> None:
    """Thirty positions, 560 clicks, and no trust: slopes are 1 / k. They were 1.7 times too large."""
    errors, covered = [], []
    for seed in range(4):
        random, shape = np.random.default_rng(seed), (600, 30)
        shown = np.where(np.argsort(random.random(shape)) < 3, 1 + random.poisson(20, shape), 0)
        relevance = random.beta(1, 8, (600, 1))
        truth = 1 / np.arange(1, 31)
        found = fitted(of_counts(random.binomial(shown, relevance * truth), shown, 150)).predict()
        told = found.supported & (np.array(found.positions) > 1)
        truth = truth[np.array(found.positions) - 1][told]
        errors += np.log(found.slope[told] / truth).tolist()
        covered += ((found.slope_lower[told] < truth) & (truth < found.slope_upper[told])).tolist()
    assert len(errors) > 10
    assert abs(np.mean(errors)) < 0.3
    assert np.mean(covered) > 0.9


def test_a_single_click_is_no_proof_of_trust() -> None:
    """A click in 6,000 displays at 4: the score there is 0, and saw no variance (p was 10⁻⁴ and 10⁻¹⁵)."""
    for seed in (0, 2):
        random, shown = np.random.default_rng(seed), np.tile([40, 40, 40, 20], (300, 1))
        clicks = random.binomial(shown, random.beta(1, 3, (300, 1)) * [1, 0.5, 0.3, 0])
        clicks[np.argmax(clicks[:, 0]), 3] = 1
        test = fitted(of_counts(clicks, shown, 100)).offset_test()
        assert test is not None
        assert test[1] > 0.2


def test_alike_units_are_refused() -> None:
    random = np.random.default_rng(3)
    shown = np.full((400, 3), 50)
    clicks = random.binomial(shown, [0.5, 0.3, 0.2])
    with pytest.raises(NotIdentifiedError, match="relevance does not vary enough: the 400 units") as refused:
        Affine().fit(of_counts(clicks, shown, 80))
    assert refused.value.exit_code == 3
    assert "\n" not in str(refused.value)


def test_one_query_is_refused() -> None:
    random = np.random.default_rng(3)
    shown = np.full((40, 2), 500)
    clicks = random.binomial(shown, random.uniform(0.1, 0.9, (40, 1)) * [1.0, 0.5])
    with pytest.raises(NotIdentifiedError, match="does not vary enough"):
        Affine().fit(of_counts(clicks, shown, 1))


def test_a_position_where_all_are_alike_cannot_be_the_anchor() -> None:
    """Only what differs at the anchor tells slopes relative to it; relative to another position they are known."""
    random = np.random.default_rng(0)
    relevance = random.uniform(0.1, 0.9, (300, 1))
    shown = np.full((300, 3), 200)
    clicks = random.binomial(shown, np.concatenate([np.full((300, 1), 0.5), 0.8 * relevance, 0.4 * relevance], axis=1))
    with pytest.raises(NotIdentifiedError, match="shown at position 1 does not differ enough in relevance"):
        Affine(anchor=1).fit(of_counts(clicks, shown, 100))
    model = fitted(of_counts(clicks, shown, 100), anchor=2)
    assert model.slope[2] == pytest.approx(0.5, rel=0.05)
    assert model.predict().supported.tolist() == [False, True, True]


def test_what_it_does_not_know_is_refused(trusting: tuple[Interventions, AffineTruth]) -> None:
    rows = trusting[0]
    with_context = replace(rows, contexts={"device": np.full(len(rows), "phone")})
    levels = Affine().fit(with_context)
    assert isinstance(levels, AffineLevels)
    assert levels.levels == (("phone",),)
    by_user = replace(rows, cluster=np.zeros(len(rows), int), cluster_kind="user")
    with pytest.raises(InputError, match="clustered by user"):
        Affine().fit(by_user)
    with pytest.warns(HarvestWarning, match="pages without a click"):
        Affine(intervals=None).fit(replace(rows, only_clicked_pages=True))
