"""Covariances of curves that are not linear, and what intervals count for what a curve may miss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickharvest.estimation.loss import Fit
from clickharvest.estimation.misfit import misfit, missed_features, widened
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.pooling import curve_order, pool, with_penalty
from clickharvest.estimation.query_effects import clustered_covariance
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.smooth_shares import smooth
from clickharvest.model.curves import Constant, Linear, make_curve


def simulated(seed: int, product: float = 0.0, queries: int = 150, k: int = 4) -> Sample:
    """Queries of four documents, each at two to four positions; steepness 1 + product · x_0 x_1."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(queries, 2))
    reading = np.arange(1, k + 1) ** -(1 + product * x[:, :1] * x[:, 1:])
    row, slot = np.nonzero(np.arange(k) < (2 + np.arange(4 * queries) % 3)[:, None])
    position = random.permuted(np.tile(np.arange(k), (4 * queries, 1)), axis=1)[row, slot]
    query = row // 4
    shown = 1 + random.poisson(30, len(row))
    rate = np.minimum(0.3 * random.uniform(0.1, 0.9, 4 * queries)[row] * reading[query, position], 1)
    clicks = random.binomial(shown, rate)
    return Sample(tuple(range(1, k + 1)), x, row, query, position, shown.astype(float), clicks, shown, query, queries)


def test_a_linear_curve_has_the_same_covariance_by_gradients() -> None:
    sample = simulated(0)
    curve = Linear(sample.positions, 1, 2)
    pooled = with_penalty(curve, sample, 3.0)
    order = curve_order(curve, pooled.shares)
    near = smooth(Fit(curve, ClickShare(sample), sample), sample, pooled.theta[order], 3.0)
    assert near.at.value == pytest.approx(pooled.at.value)
    assert near.information == pytest.approx(pooled.information[np.ix_(order, order)])
    assert near.score == pytest.approx(pooled.score[order], abs=1e-6)
    # Pooled with a given penalty, nothing is counted beyond it.
    found, expected = clustered_covariance(replace(near, left=near.precision)), clustered_covariance(pooled)
    assert found.variance == pytest.approx(expected.variance, abs=1e-4)
    assert found.covariance == pytest.approx(expected.covariance[np.ix_(order, order)], rel=1e-3, abs=1e-6)
    contexts = np.arange(3)
    assert near.shares.gradients(contexts) == pytest.approx(pooled.shares.gradients(contexts)[:, :, order])


@pytest.mark.parametrize("name", ["power", "lowrank", "mlp"])
def test_gradients_are_those_of_the_curve(name: str) -> None:
    sample = simulated(1, queries=20)
    fit = Fit(make_curve(name, sample.positions, 1, 2), ClickShare(sample), sample)
    flat = fit.starts(1, 3)[0]
    near = smooth(fit, sample, flat, 2.0)
    by_hand = []
    for step in 1e-5 * np.eye(len(flat)):
        ends = [fit.curve.relative(fit.params(flat + sign * step)["curve"], sample.x) for sign in (1, -1)]
        by_hand.append((ends[0] - ends[1]) / 2e-5)
    assert near.shares.gradients(np.arange(20)) == pytest.approx(np.moveaxis(by_hand, 0, -1), abs=1e-7)
    penalised = np.diag(near.precision) > 1
    assert 0 < penalised.sum() < len(flat)
    assert np.diag(near.precision)[penalised] == pytest.approx(2.01)


@pytest.mark.parametrize("kind", [Constant, Linear])
def test_an_interaction_makes_intervals_wide_and_its_absence_does_not(kind: type[Constant] | type[Linear]) -> None:
    widths = {}
    for product in (0.0, 0.5):
        sample = simulated(2, product)
        curve = kind(sample.positions, 1, 2)
        fit = pool(curve, sample)
        found = clustered_covariance(fit)
        square = misfit(curve, sample, fit, found)
        assert square is not None
        covariance = widened(sample, fit, found.covariance, square)
        assert np.linalg.eigvalsh(covariance - found.covariance).min() > -1e-9
        off_by = np.sqrt(np.diag(square))
        assert off_by[0] == 0
        rows = fit.shares.gradients(np.zeros(1, dtype=np.int64))[0]
        widths[product] = [np.sqrt(rows[-1] @ v @ rows[-1]) for v in (found.covariance, covariance)]
        missing = product * np.log(4)
        assert off_by[-1] == pytest.approx(missing, abs=0.12)
    assert widths[0.0][1] < 1.5 * widths[0.0][0]
    assert widths[0.5][1] > 3 * widths[0.5][0]


def test_chance_alone_is_no_misfit_of_a_curve_without_context() -> None:
    """Its variances gain a little evidence in most logs; as much is lost on others, so that it does not count."""
    counted = 0
    for seed in range(8):
        sample = simulated(10 + seed)
        fit = pool(curve := Constant(sample.positions, 1, 2), sample)
        square = misfit(curve, sample, fit, clustered_covariance(fit))
        assert square is not None
        counted += bool(square.any())
    assert counted <= 3


def test_without_contexts_nothing_is_missed() -> None:
    sample = replace(simulated(3), x=np.zeros((1, 0)), context=np.zeros_like(simulated(3).context))
    curve = Constant(sample.positions, 1, 0)
    fit = pool(curve, sample)
    assert misfit(curve, sample, fit, clustered_covariance(fit)) is None


def test_products_are_left_out_before_squares_and_levels_have_no_square() -> None:
    random = np.random.default_rng(0)
    few, many = random.normal(size=(40, 3)), random.normal(size=(40, 12))
    levels = np.eye(3)[random.integers(3, size=40)]
    sizes = [
        found.shape[1]
        for curve, x in ((Linear, few), (Constant, few), (Linear, many), (Constant, many))
        if (found := missed_features(curve((1, 2, 3), 1, x.shape[1]), x)) is not None
    ]
    assert sizes == [6, 9, 12, 24]
    assert missed_features(Linear((1, 2, 3), 1, 3), levels) is None
