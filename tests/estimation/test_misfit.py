"""Covariances of curves that are not linear, and what intervals count for what a curve may miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.estimation.linear_shares import LinearShares
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.misfit import (
    MEAN,
    WAVES,
    Asked,
    _ask,
    _cross_information,
    misfit,
    missed_features,
    waves_along,
    widened,
)
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.pooling import curve_order, pool, with_penalty
from clickharvest.estimation.query_effects import clustered_covariance
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.smooth_shares import Smooth, smooth
from clickharvest.model.curves import Constant, Curve, Linear, flatten_params, make_curve, unflatten_params


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
        assert (square is None) == (kind is Constant and not product)
        square = np.zeros((4, 4)) if square is None else square
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
    """Its variances gain a little evidence in most logs: too little to count."""
    counted = 0
    for seed in range(8):
        sample = simulated(10 + seed)
        fit = pool(curve := Constant(sample.positions, 1, 2), sample)
        counted += misfit(curve, sample, fit, clustered_covariance(fit)) is not None
    assert counted <= 2


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


def test_waves_become_fewer_before_products_are_left_out() -> None:
    random = np.random.default_rng(0)
    few, some, many = (random.normal(size=(40, size)) for size in (3, 9, 12))
    found = [
        missed_features(curve((1, 2, 3), 1, x.shape[1]), x)
        for curve, x in ((Linear, few), (Constant, few), (Linear, some), (Linear, many), (Constant, many))
    ]
    counts = [(0 if one is None else np.sum(one.of >= 0), 0 if one is None else np.sum(one.of < 0)) for one in found]
    # Seven waves a number and 3 products, beside the numbers themselves; one and 36; four, and three beside themselves.
    assert counts == [(21, 3), (24, 3), (9, 36), (48, 0), (48, 0)]


def test_levels_have_no_waves_and_lines_know_all_of_them() -> None:
    random = np.random.default_rng(0)
    levels = np.eye(3)[random.integers(3, size=40)]
    assert missed_features(Linear((1, 2, 3), 1, 3), levels) is None
    alone = missed_features(Constant((1, 2, 3), 1, 3), levels)
    assert alone is not None
    assert alone.of.tolist() == [0, 1, 2]
    assert missed_features(Constant((1, 2, 3), 1, 3), levels, lines=True) is None
    mixed = missed_features(Constant((1, 2, 3), 1, 4), np.column_stack([levels, random.normal(size=40)]), lines=True)
    assert mixed is not None
    assert mixed.of.tolist() == [3] * (1 + WAVES) + [-1] * 3  # the number, its waves, its product with every level


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


def fitted(sample: Sample, name: str = "power", penalty: float = 1.0) -> tuple[Curve, Smooth]:
    curve = make_curve(name, sample.positions, 1, sample.x.shape[1])
    fit = Fit(curve, ClickShare(sample), sample)
    flat = fit.settle(fit.starts(1, 0), np.ones((1, sample.n_queries)), np.array([penalty])).params[0]
    return curve, smooth(fit, sample, flat, penalty)


@pytest.mark.parametrize(("along", "of"), [([1.0, 0, 0, 0, 0, 0], 0), ([0.5, 0.5, 0.5, 0.5, 0, 0], MEAN)])
def test_one_jump_is_seen_among_much_that_does_not_matter(
    along: list[float], of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along the first of six numbers, or along the mean of four: far more evident there than in all features."""
    gains: list[float] = []

    def ask(*args: Any, **options: Any) -> Asked:
        found = _ask(*args, **options)
        gains.append(found.gain)
        return found

    monkeypatch.setattr("clickharvest.estimation.misfit._ask", ask)
    sample = simulated(6, jump=0.4, queries=250, along=along)
    curve, fit = fitted(sample)
    square = misfit(curve, sample, fit, clustered_covariance(fit))
    assert square is not None
    left = 0.4 * np.log(4) * np.sqrt(1 - 2 / np.pi)
    assert np.sqrt(square[-1, -1]) == pytest.approx(left, rel=0.4)
    # All features, the mean, products, and the six numbers, as `sets` has them.
    assert len(gains) == 9
    alone = gains[1] if of == MEAN else gains[3 + of]
    assert alone == max(gains)
    assert alone > gains[0] + np.log(len(gains))
    plain = simulated(6, queries=250, along=along)
    curve, fit = fitted(plain)
    assert misfit(curve, plain, fit, clustered_covariance(fit)) is None


@pytest.mark.parametrize(
    ("evident", "gain", "counts"), [(1, 0.9, True), (1, 0.7, False), (3, 0.9, False), (3, 2.2, True)]
)
def test_the_mean_of_a_law_has_half_of_the_odds(
    evident: int, gain: float, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five sets the second is the mean's: log ½ + .9 is above .1; the others have an eighth each."""
    asked: list[Asked] = []

    def ask(*args: Any, **options: Any) -> Asked:
        found = _ask(*args, **options)
        told = gain if len(asked) == evident else 0.0
        asked.append(replace(found, gain=told, score=told + found.score - found.gain))
        return asked[-1]

    monkeypatch.setattr("clickharvest.estimation.misfit._ask", ask)
    sample = simulated(8, queries=60)
    curve, fit = fitted(sample)
    square = misfit(curve, sample, fit, clustered_covariance(fit))
    assert len(asked) == 5
    assert np.exp([one.score - one.gain for one in asked]) == pytest.approx([1 / 8, 1 / 2, 1 / 8, 1 / 8, 1 / 8])
    assert (square is not None) == counts


def test_the_mean_of_log_p_is_that_of_the_curve() -> None:
    sample = simulated(7, jump=0.4)
    curve, fit = fitted(sample)
    flat = fit.shares._flat
    like = curve.init(np.random.default_rng(0))
    log_p = curve.relative(unflatten_params(flat[: len(flatten_params(like))], like), sample.x)
    assert fit.mean_log_p == pytest.approx(log_p[:, 1:].mean(axis=1))
    linear = Linear(sample.positions, 1, 2)
    pooled = pool(linear, sample)
    params = unflatten_params(pooled.theta[curve_order(linear, pooled.shares)], linear.init(np.random.default_rng(0)))
    assert pooled.mean_log_p == pytest.approx(linear.relative(params, sample.x)[:, 1:].mean(axis=1))


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
    fit = smooth(by_clicks, sample, by_clicks.starts(1, 0)[0], 1.0)
    missed = missed_features(curve, sample.x)
    assert missed is not None
    other = LinearShares(replace(sample, x=missed.values), 1)
    cross = _cross_information(fit, other)
    whole = np.block([[fit.information, cross], [cross.T, other.information(fit.at)]])
    assert np.linalg.eigvalsh(whole).min() > -1e-9 * np.trace(whole)
