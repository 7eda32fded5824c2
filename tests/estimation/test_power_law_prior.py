"""Positions off the curve: weights by hand, known ones found, and what is in doubt counted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from clickharvest.estimation.pooling import pool
from clickharvest.estimation.power_law_prior import PowerLawPrior, expected_weights, off_law, weigh_positions
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Constant, Linear
from samples import logs

Array = NDArray[np.float64]


def log_with(log_p: Array, seed: int, *, queries: int = 100, displays: float = 15, x: Array | None = None) -> Sample:
    """Return four documents a query, each at three random positions; log examination is [K], or [queries, K]."""
    random = np.random.default_rng(seed)
    k, units = log_p.shape[-1], 4 * queries
    position = random.permuted(np.tile(np.arange(k), (units, 1)), axis=1)[:, :3].ravel()
    unit = np.repeat(np.arange(units), 3)
    shown = 1 + random.poisson(displays, len(unit))
    rate = 0.3 * random.uniform(0.2, 1, units)[unit] * np.exp(np.broadcast_to(log_p, (queries, k))[unit // 4, position])
    clicks = random.binomial(shown, np.minimum(rate, 1))
    contexts = np.zeros((1, 0)) if x is None else x
    context = np.zeros(len(unit), dtype=int) if x is None else unit // 4
    return Sample(
        tuple(range(1, k + 1)),
        contexts,
        unit,
        context,
        position,
        shown.astype(float),
        clicks,
        shown,
        unit // 4,
        queries,
    )


def law(k: int, odd: int, by: float) -> Array:
    """Return log examination of a power law, one position off by so much."""
    return np.asarray(-np.log(np.arange(1, k + 1)) + by * (np.arange(1, k + 1) == odd))


def test_a_deviation_that_is_known_has_the_weight_of_cauchys_law() -> None:
    """E[w | δ] = (ν + 1) / (ν + δ²/τ²) with ν = 1, by hand; 1 at most."""
    off, variance, known = np.array([0.5, 2.0, 5.0]), 0.25, 1e-7
    around = np.full(3, 1 / (1 / known + 1 / variance))
    weights = expected_weights(off * around / known, around, np.ones(3), np.array([variance]))
    assert weights == pytest.approx(np.minimum(1, 2 / (1 + off**2 / variance)), rel=1e-3)


def test_a_position_of_which_nothing_is_known_is_like_all_others() -> None:
    weights = expected_weights(np.zeros(1), np.array([0.25]), np.ones(1), np.array([0.25]))
    assert weights == pytest.approx([1.0], abs=0.01)


def test_positions_on_a_law_have_all_weight() -> None:
    log_k = np.append(np.log(np.arange(2, 9)), 0.0)
    information = 1e4 * np.eye(7)
    weights = weigh_positions(
        log_k,
        7,
        np.ones((1, 8)),
        np.array([0.04]),
        np.zeros(1),
        information[None],
        -1.3 * log_k[None, :-1] @ information,
    )
    assert weights == pytest.approx(np.ones((1, 8)))
    assert off_law(log_k, np.ones(8)) @ (-1.3 * log_k + 0.7) == pytest.approx(np.zeros(8), abs=1e-9)


@pytest.mark.parametrize("odd", [1, 4])
@pytest.mark.parametrize("anchor", [1, 6])
def test_a_position_off_the_curve_is_found_and_moves_no_other(odd: int, anchor: int) -> None:
    log_p = law(12, odd, -2.0)
    sample = log_with(log_p, 0, queries=1_000, displays=30)
    found = pool(Constant(sample.positions, anchor, 0), sample)
    assert isinstance(found.prior, PowerLawPrior)
    assert found.off_curve == {0: [odd]}
    assert np.delete(found.prior.weights[0], odd - 1).min() > 0.4
    truth = np.delete(log_p - log_p[anchor - 1], anchor - 1)
    assert np.abs(found.theta - truth).max() < 0.3


@logs(daily=8, nightly=30)
def test_positions_of_a_law_are_seldom_called_off_curve(logs: int) -> None:
    samples = [log_with(law(20, 1, 0.0), seed, displays=5) for seed in range(logs)]
    assert sum(bool(pool(Constant(sample.positions, 1, 0), sample).off_curve) for sample in samples) <= 2


def test_normal_deviations_would_miss_an_advertisement_of_few_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three logs: position 5 is examined a seventh as much as its law says, and normal deviations take it back."""
    log_p = law(10, 5, -2.0)

    def off() -> float:
        found = [pool(Constant(s.positions, 1, 0), s).theta[3] for s in (log_with(log_p, seed) for seed in range(3))]
        return float(np.mean(np.array(found) - log_p[4]))

    heavy = off()
    monkeypatch.setattr(PowerLawPrior, "loosened", lambda self, *_: self)
    assert 0 < heavy < 0.6 * off()


@pytest.mark.parametrize("odd", [1, 4])
@pytest.mark.parametrize("anchor", [1, 6])
def test_a_position_that_one_level_alone_passes_over_is_found_and_moves_nothing_else(odd: int, anchor: int) -> None:
    """Three levels; the first has an advertisement at a position, the others have none."""
    level = np.arange(900) % 3
    log_p = np.stack([law(10, odd, -2.0), law(10, odd, 0.0), law(10, odd, 0.0)])
    sample = log_with(log_p[level], 1, queries=900, displays=30, x=np.eye(3)[level])
    found = pool(Linear(sample.positions, anchor, 3), sample)
    assert found.off_curve == {1: [odd]}
    theta = found.theta.reshape(9, 4)
    fitted = np.insert(theta[:, :1] + theta[:, 1:], anchor - 1, 0, axis=0).T
    assert np.abs(fitted - log_p + log_p[:, [anchor - 1]]).max() < 0.35


@logs(daily=2, nightly=10)
def test_levels_that_differ_in_steepness_alone_are_not_called_off_curve(logs: int) -> None:
    level = np.arange(300) % 3
    log_p = np.outer([0.5, 1.0, 1.5], law(10, 1, 0.0))
    samples = [log_with(log_p[level], seed, queries=300, x=np.eye(3)[level]) for seed in range(logs)]
    assert not any(sum(pool(Linear(sample.positions, 1, 3), sample).off_curve) for sample in samples)
