"""What a penalty from folds leaves unknown, and laws that have levelled off."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.estimation import CPBM, ClickShare, Fit
from clickharvest.estimation.sample import find_reach, make_samples
from clickharvest.estimation.smooth_shares import FREE, expected_variance, smooth
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import flatten_params, make_curve


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


@pytest.mark.parametrize(("h", "estimate"), [(50.0, 0.4), (4.0, 0.1)])
def test_the_variance_of_one_parameter_is_averaged_by_its_evidence(h: float, estimate: float) -> None:
    """By hand: y² / (2 (h + 1/τ²)) − ½ log(h + 1/τ²) − log τ, and the weak prior log τ − τ."""
    tau = np.exp(np.linspace(np.log(1e-3), np.log(10.0), 200_001))
    total = h + tau**-2.0 + FREE
    evidence = (h * estimate) ** 2 / (2 * total) - np.log(total) / 2 - np.log(tau) + np.log(tau) - tau
    found = expected_variance(np.array([[h]]), np.array([h * estimate]), np.eye(1), FREE * np.eye(1))
    assert found == pytest.approx(np.average(tau**2, weights=np.exp(evidence)), rel=1e-3)


def test_nothing_penalised_has_no_variance() -> None:
    assert expected_variance(np.eye(2), np.ones(2), np.zeros((2, 2)), FREE * np.eye(2)) == 0.0


@pytest.mark.parametrize(("penalty", "times"), [(0.01, 1.0), (3_000.0, 100.0)])
def test_a_penalty_counts_for_more_where_it_shrinks_what_is_there(penalty: float, times: float) -> None:
    log = log_of_slopes(0, queries=600)
    encoder = ContextEncoder.fit(log.contexts)
    sample, _ = make_samples(log, find_reach(log, 1), encoder)
    fit = Fit(make_curve("power", sample.positions, 1, 2), ClickShare(sample), sample)
    model = CPBM(curve="power", penalty=penalty, intervals=None).fit(log).propensities_
    found = smooth(fit, sample, flatten_params(model.params), penalty)
    more = np.diag(found.left) - np.diag(found.precision)
    assert more.min() >= 0
    ratio = np.diag(found.left)[1:].max() / np.diag(found.precision)[1:].max()
    assert ratio == 1.0 if times == 1.0 else ratio > times


def test_intervals_of_a_heavy_penalty_reach_the_truth() -> None:
    """Thirty logs whose slopes are held at next to nothing: most intervals still hold them."""
    inside = []
    for seed in range(30):
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


def test_a_law_that_has_levelled_off_is_not_sure_of_it() -> None:
    """Twenty clicks, by chance more of them below: η is 0, and its interval is not."""
    unit, position = np.repeat(np.arange(8), 2), np.tile([1, 2], 8)
    clicks = np.where(position == 2, 2, np.tile([0, 1], 8)[unit % 2])
    log = Interventions(
        unit=unit, query=unit, position=position, exposure=np.full(16, 5.0), clicks=clicks,
        impressions=np.full(16, 5),
    )  # fmt: skip
    prediction = CPBM(curve="power").fit(log).predict()
    assert prediction.propensity[0, 1] > 0.97
    assert prediction.lower[0, 1] < 0.9
