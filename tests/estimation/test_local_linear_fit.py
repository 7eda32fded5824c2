"""What a penalty from folds leaves unknown, and laws that have levelled off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.estimation import CPBM, ClickShare, Fit
from clickharvest.estimation.local_linear_fit import LOG_SPREAD, WEAK, linearise, mean_square
from clickharvest.estimation.sample import find_reach, make_samples
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import flatten_params, make_curve
from samples import logs


def log_of_slopes(seed: int, *, queries: int = 150, slopes: tuple[float, ...] = (0.5, -0.4)) -> Interventions:
    """Return documents at three of six positions; p_k = k^{−(1 + slopes·x)}."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(queries, len(slopes)))
    position = np.sort(random.permuted(np.tile(np.arange(1, 7), (3 * queries, 1)), axis=1)[:, :3], axis=1)
    unit = np.repeat(np.arange(len(position)), 3)
    steepness = np.maximum(1 + x @ np.array(slopes), 0.0)[unit // 3]
    impressions = 1 + random.poisson(6, len(unit))
    relevance = random.uniform(0.2, 0.8, len(position))[unit]
    clicks = random.binomial(impressions, relevance * position.ravel() ** -steepness)
    return Interventions(
        unit=unit, query=unit // 3, position=position.ravel(), exposure=impressions * 1.0, clicks=clicks,
        impressions=impressions, contexts={f"x{i}": column[unit // 3] for i, column in enumerate(x.T)},
    )  # fmt: skip


@pytest.mark.parametrize(("h", "clicks_say", "estimate"), [(50.0, 0.4, 0.1), (4.0, 0.1, 0.1)])
def test_what_is_unknown_of_one_parameter_is_averaged_over_its_variances(
    h: float, clicks_say: float, estimate: float
) -> None:
    """By hand: y² / (2 (h + 1/τ²)) − ½ log(h + 1/τ²) − log τ, and the prior 5 (log τ − τ)."""
    tau = np.exp(np.linspace(np.log(1e-3), np.log(10.0), 200_001))
    y, total = h * clicks_say, h + tau**-2.0
    weight = np.exp(y**2 / (2 * total) - np.log(total) / 2 - np.log(tau) + 5 * (np.log(tau) - tau))
    expected = np.average(1 / total + (y / total - estimate) ** 2, weights=weight)
    found = mean_square(np.array([[h]]), np.array([y]), np.eye(1), np.array([estimate]))
    assert found[0, 0] == pytest.approx(expected, rel=1e-3)


def test_parameters_that_are_not_penalised_are_as_known_as_clicks_say() -> None:
    """One of two is penalised: with any τ the other has a normal distribution, its mean and variance by elimination."""
    h, p = np.array([[5.0, 2.0], [2.0, 3.0]]), np.diag([0.0, 1.0])
    y, estimate = np.array([1.0, -2.0]), np.array([0.7, -0.3])
    found = mean_square(h, y, p, estimate)
    each, evidence = [], []
    for log_tau in LOG_SPREAD:
        inverse = np.linalg.inv(h + p * np.exp(-2 * log_tau))
        off = inverse @ y - estimate
        each.append(inverse + np.outer(off, off))
        held = np.linalg.slogdet(inverse)[1] / 2 - log_tau
        evidence.append(y @ inverse @ y / 2 + held + WEAK * (log_tau - np.exp(log_tau)))
    weight = np.exp(evidence) / np.exp(evidence).sum()
    np.testing.assert_allclose(found, np.tensordot(weight, each, 1), rtol=1e-9)


def test_without_a_penalty_nothing_is_shrunk() -> None:
    log = log_of_slopes(0, queries=30)
    sample, _ = make_samples(log, find_reach(log, 1), ContextEncoder.fit(log.contexts))
    fit = Fit(make_curve("power", sample.positions, 1, 2), ClickShare(sample), sample)
    model = CPBM(curve="power", penalty=0.0, intervals=None).fit(log).propensities_
    found = linearise(fit, sample, flatten_params(model.params), 0.0)
    assert (found.left == found.precision).all()


@pytest.mark.parametrize(("penalty", "times"), [(0.01, (1.0, 1.05)), (3_000.0, (100.0, 3_000.0))])
def test_a_penalty_counts_for_more_where_it_shrinks_what_is_there(penalty: float, times: tuple[float, float]) -> None:
    log = log_of_slopes(0, queries=600)
    encoder = ContextEncoder.fit(log.contexts)
    sample, _ = make_samples(log, find_reach(log, 1), encoder)
    fit = Fit(make_curve("power", sample.positions, 1, 2), ClickShare(sample), sample)
    model = CPBM(curve="power", penalty=penalty, intervals=None).fit(log).propensities_
    found = linearise(fit, sample, flatten_params(model.params), penalty)
    own = np.linalg.inv(found.information + found.precision)
    unknown = own @ (found.information + found.left) @ own
    ratio = np.diag(unknown)[1:] / np.diag(own)[1:]
    assert times[0] <= ratio.min()
    assert ratio.max() < times[1]


@logs(daily=6, nightly=30)
def test_intervals_of_a_heavy_penalty_reach_the_truth(logs: int) -> None:
    """Slopes are held at next to nothing: most intervals still hold them."""
    inside = []
    for seed in range(logs):
        model = CPBM(curve="power", penalty=300.0).fit(log_of_slopes(seed)).propensities_
        random = np.random.default_rng(1_000 + seed)
        x = random.normal(size=(50, 2))
        prediction = model.predict({"x0": x[:, 0], "x1": x[:, 1]})
        truth = -np.outer(np.maximum(1 + x @ np.array([0.5, -0.4]), 0.0), np.log(prediction.positions))[:, 1:]
        own = prediction.supported[:, 1:]
        with np.errstate(invalid="ignore"):
            covered = (np.log(prediction.lower[:, 1:]) <= truth) & (truth <= np.log(prediction.upper[:, 1:]))
        inside.append(covered[own].mean())
    assert np.mean(inside) > 0.85


def flat_log(seed: int) -> Interventions:
    """Two hundred units of 100 queries, each shown a hundred times at three of five positions, all examined alike."""
    random = np.random.default_rng(seed)
    position = np.sort([random.choice(5, 3, replace=False) + 1 for _ in range(200)], axis=1).ravel()
    unit, shown = np.repeat(np.arange(200), 3), np.full(600, 100)
    return Interventions(
        unit=unit, query=unit // 2, position=position, exposure=shown.astype(float), impressions=shown,
        clicks=random.binomial(shown, random.beta(2, 3, 200)[unit]),
        contexts={"age": np.repeat(random.normal(size=200), 3)},
    )  # fmt: skip


@logs(daily=3, nightly=12)
@pytest.mark.parametrize("intervals", ["clustered", "bootstrap", "sandwich"])
def test_a_flat_curve_is_neither_certain_nor_unknown(intervals: Any, logs: int) -> None:
    """24,000 clicks tell examination to a few per cent where it is flat, too."""
    options = {"curve": "power", "penalty": 1.0, "intervals": intervals, "replicates": 200}
    covered, half = [], []
    for seed in range(logs):
        log = flat_log(seed)
        context = {"age": [0.0]} if intervals == "clustered" else None
        found = CPBM(**options).fit(log if context else replace(log, contexts={})).predict(context)
        covered.append(found.lower[0, -1] <= 1 <= found.upper[0, -1])
        half.append(np.log(found.upper[0, -1] / found.lower[0, -1]) / 2)
    assert 0.01 < min(half) <= max(half) < 0.08
    assert np.mean(covered) > 0.8
