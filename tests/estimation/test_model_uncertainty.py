"""Covariances of curves that are not linear, and what intervals count for what a curve may miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from clickharvest.estimation.cells import cells_of
from clickharvest.estimation.local_linear_fit import linearise
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.model_uncertainty import (
    WAVES,
    _cross_information,
    misfit,
    missed_features,
    waves_along,
    widened,
)
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.pooling import curve_order, pool, with_penalty
from clickharvest.estimation.query_random_effects import clustered_covariance
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Constant, Linear, Power, make_curve


def simulated(
    seed: int,
    product: float = 0.0,
    queries: int = 150,
    k: int = 4,
    wave: float = 0.0,
    jump: float = 0.0,
    along: Sequence[float] = (1.0, 0.0),
) -> Sample:
    """Queries of four documents, each at two to four positions.

    Their steepness is 1 + product · x_0 x_1 + wave · sin(x_0) + jump · sign(along · x).
    """
    random = np.random.default_rng(seed)
    x = random.normal(size=(queries, len(along)))
    if wave:
        x[:, 0] = random.uniform(-np.pi, np.pi, queries)
    steepness = 1 + product * x[:, :1] * x[:, 1:2] + wave * np.sin(x[:, :1]) + jump * np.sign(x @ along)[:, None]
    reading = np.arange(1, k + 1) ** -steepness
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
    near = linearise(Fit(curve, ClickShare(sample), sample), sample, pooled.theta[order], 3.0)
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
    near = linearise(fit, sample, flat, 2.0)
    by_hand = []
    for step in 1e-5 * np.eye(len(flat)):
        ends = [fit.curve.relative(fit.params(flat + sign * step)["curve"], sample.x) for sign in (1, -1)]
        by_hand.append((ends[0] - ends[1]) / 2e-5)
    assert near.shares.gradients(np.arange(20)) == pytest.approx(np.moveaxis(by_hand, 0, -1), abs=1e-7)
    penalised = np.diag(near.precision) > 1
    assert 0 < penalised.sum() < len(flat)
    assert np.diag(near.precision)[penalised] == pytest.approx(2.01)


def test_a_wave_is_missed_by_lines() -> None:
    """Hours of a day: what a line leaves of a sine is (1 − 6/π²) of its mean square, and no parabola."""
    sample = simulated(4, wave=0.5, queries=400)
    curve = Linear(sample.positions, 1, 2)
    fit = pool(curve, sample)
    square = misfit(curve, sample, fit, clustered_covariance(fit))
    assert square is not None
    expected = 0.5 * np.log(4) * np.sqrt((1 - 6 / np.pi**2) / 2)
    assert np.sqrt(square[-1, -1]) == pytest.approx(expected, abs=0.08)


def test_without_contexts_nothing_is_missed() -> None:
    sample = replace(simulated(3), x=np.zeros((1, 0)), context=np.zeros_like(simulated(3).context))
    curve = Constant(sample.positions, 1, 0)
    fit = pool(curve, sample)
    assert misfit(curve, sample, fit, clustered_covariance(fit)) is None


@pytest.mark.parametrize("values", [3, 5, 24, 400])
def test_waves_are_apart_from_lines_and_from_each_other(values: int) -> None:
    column = np.random.default_rng(values).permutation(np.linspace(-1, 3, values).repeat(2)) ** 3
    waves = waves_along(column)
    assert len(waves) == min(WAVES, values - 2)
    assert waves.mean(axis=1) == pytest.approx(0, abs=1e-12)
    assert waves @ column == pytest.approx(0, abs=1e-6)
    gram = waves @ waves.T / len(column)
    assert gram[0, 0] == pytest.approx(1)
    assert gram == pytest.approx(np.diag(np.diag(gram)), abs=1e-6)
    assert np.all(np.diff(np.diag(gram)) < 0)


def test_waves_are_nearly_all_that_a_line_leaves_of_a_jump() -> None:
    x = np.random.default_rng(0).normal(size=500)
    line = np.stack([np.ones_like(x), x], axis=1)
    for at in (0.0, 0.7, 1.3):
        jump = (x > at).astype(float)
        left = jump - line @ np.linalg.lstsq(line, jump, rcond=None)[0]
        basis = waves_along(x).T
        rest = left - basis @ np.linalg.lstsq(basis, left, rcond=None)[0]
        assert rest @ rest < 0.3 * left @ left


def test_equal_but_for_rounding_is_equal_among_ranks() -> None:
    column = np.random.default_rng(0).integers(5, size=60).astype(float)
    noisy = column + np.random.default_rng(1).normal(0, 1e-13, 60)
    assert np.abs(waves_along(noisy)) == pytest.approx(np.abs(waves_along(column)), abs=1e-6)
    assert len(waves_along(np.full(60, 0.3))) == 0


@pytest.mark.parametrize("name", ["linear", "power"])
def test_clicks_never_tell_less_than_nothing_beyond_a_curve(name: str) -> None:
    """However unequal the queries are: what is left of the information on γ has no negative direction."""
    sample = simulated(3, queries=120)
    often = 1 + (np.random.default_rng(0).pareto(0.7, sample.n_clusters) * 5).astype(np.int64)
    sample = replace(sample, clicks=sample.clicks * often[sample.cluster])
    curve = make_curve(name, sample.positions, 1, 2)
    by_clicks = Fit(curve, ClickShare(sample), sample)
    fit = linearise(by_clicks, sample, by_clicks.starts(1, 0)[0], 1.0)
    missed = missed_features(curve, sample.x)
    assert missed is not None
    other = MultinomialLogit(cells_of(sample), missed, 1)
    cross = _cross_information(fit, other)
    whole = np.block([[fit.information, cross], [cross.T, other.information(fit.at)]])
    assert np.linalg.eigvalsh(whole).min() > -1e-9 * np.trace(whole)


@pytest.mark.parametrize("wave", [0.0, 0.5])
def test_a_wave_makes_intervals_wide_and_its_absence_does_not(wave: float) -> None:
    sample = simulated(2, wave=wave, queries=300)
    curve = Linear(sample.positions, 1, 2)
    fit = pool(curve, sample)
    known = clustered_covariance(fit)
    square = misfit(curve, sample, fit, known)
    assert square is not None
    assert square[0] == pytest.approx(0.0)
    covariance = widened(sample, fit, known.covariance, square)
    assert np.linalg.eigvalsh(covariance - known.covariance).min() > -1e-9
    row = fit.shares.gradients(np.zeros(1, dtype=np.int64))[0, -1]
    wider = np.sqrt(row @ covariance @ row) / np.sqrt(row @ known.covariance @ row)
    assert wider > 2 if wave else wider < 1.4


def test_features_that_curves_lack() -> None:
    random = np.random.default_rng(0)
    few, many, levels = (
        random.normal(size=(40, 3)),
        random.normal(size=(40, 12)),
        np.eye(3)[random.integers(3, size=40)],
    )
    found = [
        missed_features(kind((1, 2, 3), 1, x.shape[1]), x)
        for kind, x in ((Linear, few), (Power, few), (Linear, many), (Power, levels), (Linear, levels))
    ]
    # Seven waves of a number, and the numbers themselves beside a law; of twelve numbers four waves each.
    assert [None if one is None else one.shape[1] for one in found] == [21, 24, 48, 3, None]
