"""The clustered covariance: by hand, never below the model's own, and covering the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickharvest.estimation import cells as kernel
from clickharvest.estimation import query_random_effects
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.pooling import Pooled, pool
from clickharvest.estimation.query_random_effects import clustered_covariance
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Constant, Curve, Linear


def simulated(seed: int, queries: int, k: int = 4, features: int = 0, dominating: float = 0.0) -> Sample:
    """Queries of four documents, each at two to four positions; users of a query read by a factor of 0 to 2 apart."""
    random = np.random.default_rng(seed)
    reading = random.uniform(0, 2, (queries, k)) / np.arange(1, k + 1)
    row, slot = np.nonzero(np.arange(k) < (2 + np.arange(4 * queries) % 3)[:, None])
    position = random.permuted(np.tile(np.arange(k), (4 * queries, 1)), axis=1)[row, slot]
    query = row // 4
    often = np.full(queries, 15.0)
    often[0] += dominating * often.sum()
    shown = 1 + random.poisson(often[query])
    clicks = random.binomial(shown, 0.3 * random.uniform(0.1, 0.9, 4 * queries)[row] * reading[query, position])
    x = random.normal(size=(queries, features)) if features else np.zeros((1, 0))
    context = query if features else np.zeros_like(query)
    return Sample(tuple(range(1, k + 1)), x, row, context, position, shown.astype(float), clicks, shown, query, queries)


def curve_of(sample: Sample) -> Curve:
    features = sample.x.shape[1]
    return Linear(sample.positions, 1, features) if features else Constant(sample.positions, 1, 0)


def by_hand(fit: Pooled) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return Y, q and query and position of every pair of these that occurs, written out cell by cell."""
    shares: MultinomialLogit = fit.shares
    design = shares.design(np.arange(len(shares.unit))).toarray()
    effects: dict[tuple[int, int], np.ndarray] = {}
    own: dict[tuple[int, int], float] = {}
    for unit in range(len(shares.clicks_per_unit)):
        cells = np.flatnonzero(shares.unit == unit)
        mean = fit.at.share[cells] @ design[cells]
        for cell in cells:
            key = int(shares.cluster[cell]), int(shares.position[cell])
            expected = shares.clicks_of_unit[cell] * fit.at.share[cell]
            effects[key] = effects.get(key, 0.0) + expected * (design[cell] - mean)
            own[key] = own.get(key, 0.0) + expected * (1 - fit.at.share[cell])
    keys = sorted(effects)
    return np.array([effects[k] for k in keys]), np.array([own[k] for k in keys]), *np.array(keys).T


def steepness_by_hand(fit: Pooled, query: int) -> float:
    """Return lᵀQl of a query: N times the variance of log k by the shares of a unit, summed over its units."""
    shares, total = fit.shares, 0.0
    for unit in np.unique(shares.unit[shares.cluster == query]):
        cells = np.flatnonzero(shares.unit == unit)
        distance, share = np.log(1.0 + shares.position[cells]), fit.at.share[cells]
        total += shares.clicks_of_unit[cells[0]] * (share @ distance**2 - (share @ distance) ** 2)
    return total


@pytest.mark.parametrize("features", [0, 2])
def test_the_covariance_by_hand(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated(4, 30, features=features)
    fit = pool(curve_of(sample), sample)
    found = clustered_covariance(fit)
    y, own, query, position = by_hand(fit)
    inverse = np.linalg.inv(fit.information + fit.precision)
    kept = 1 - np.minimum(np.einsum("ri,ij,rj->r", y, inverse, y) / own, 0.9)
    meat = found.overdispersion * fit.information + found.variance * (y / kept[:, None]).T @ y
    for one in np.unique(query):
        steep = np.log(1.0 + position[query == one]) @ y[query == one]
        told = steep @ inverse @ steep / steepness_by_hand(fit, one)
        meat += found.steepness * np.outer(steep, steep) / (1 - min(told, 0.9))
    assert found.covariance == pytest.approx(inverse @ (meat + fit.precision) @ inverse)
    for k in range(4):
        at = own[position == k]
        assert found.effective_queries[k] == pytest.approx(at.sum() ** 2 / (at**2).sum())
    assert found.variance > 0
    assert found.steepness > 0
    monkeypatch.setattr(kernel, "NUMBERS", 1)
    assert clustered_covariance(fit).covariance == pytest.approx(found.covariance)


@pytest.mark.parametrize("seed", range(4))
def test_never_narrower_than_the_models_own(seed: int) -> None:
    sample = simulated(seed, 2 + 5 * seed)
    fit = pool(curve_of(sample), sample)
    own = np.linalg.inv(fit.information + fit.precision)
    found = clustered_covariance(fit)
    assert found.overdispersion >= 1
    assert np.linalg.eigvalsh(found.covariance - own).min() > -1e-8


def test_names_of_queries_do_not_matter() -> None:
    sample = simulated(1, 15)
    renamed = replace(sample, cluster=np.random.default_rng(0).permutation(15)[sample.cluster])
    found, again = (clustered_covariance(pool(curve_of(s), s)).covariance for s in (sample, renamed))
    assert again == pytest.approx(found)


def test_unlike_queries_have_variance_and_shuffled_ones_none() -> None:
    sample = simulated(2, 600)
    names = np.random.default_rng(0).integers(600, size=sample.n_units)
    shuffled = replace(sample, cluster=names[sample.unit])
    unlike, alike = (clustered_covariance(pool(curve_of(s), s)) for s in (sample, shuffled))
    assert unlike.variance > 0.1
    assert alike.variance < unlike.variance / 2
    assert np.trace(unlike.covariance) > 1.1 * np.trace(alike.covariance)


def test_queries_that_differ_in_steepness_are_told_from_those_that_differ_at_single_positions() -> None:
    random = np.random.default_rng(5)
    sample = simulated(2, 600)
    steepness = 1 + random.normal(0, 0.5, 600)[sample.cluster]
    clicks = random.binomial(sample.impressions, 0.3 * (1.0 + sample.position) ** -steepness)
    steep = replace(sample, clicks=clicks)
    found = clustered_covariance(pool(curve_of(steep), steep))
    assert found.steepness == pytest.approx(0.25, rel=0.4)
    assert found.variance < 0.05
    other = clustered_covariance(pool(curve_of(sample), sample))
    assert other.variance > 0.1
    assert other.steepness < 0.1


def test_clicks_in_pairs_are_overdispersed_twice() -> None:
    sample = simulated(2, 600)
    pairs = np.random.default_rng(0).binomial(sample.impressions, 0.2 / (1 + sample.position))
    doubled = replace(sample, clicks=2 * pairs, exposure=2.0 * sample.impressions)
    found = clustered_covariance(pool(curve_of(doubled), doubled))
    assert found.overdispersion == pytest.approx(2, rel=0.15)
    assert found.variance < 0.05


def test_a_query_that_dominates_makes_intervals_wide() -> None:
    even, uneven = (simulated(3, 60, dominating=share) for share in (0.0, 1.0))
    widths = [np.sqrt(np.diag(clustered_covariance(pool(curve_of(s), s)).covariance)).mean() for s in (even, uneven)]
    assert uneven.clicks.sum() > even.clicks.sum()
    assert widths[1] > 1.3 * widths[0]
    effective = clustered_covariance(pool(curve_of(uneven), uneven)).effective_queries
    assert effective.max() < 15


@pytest.mark.parametrize(("queries", "dominating"), [(8, 0.0), (60, 0.0), (60, 0.5)])
def test_intervals_cover_the_truth(queries: int, dominating: float) -> None:
    covered = []
    for seed in range(20):
        sample = simulated(100 + seed, queries, dominating=dominating)
        fit = pool(curve_of(sample), sample)
        sd = np.sqrt(np.diag(clustered_covariance(fit).covariance))
        covered.append(np.abs(fit.theta + np.log(np.arange(2, 5))) < 1.96 * sd)
    assert 0.8 < np.mean(covered) <= 1


@pytest.mark.parametrize("seed", [18, 43, 57, 68])
def test_variances_do_not_hang_on_the_number_of_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few queries may send whole steps to and fro between two answers."""
    random = np.random.default_rng(seed)
    n = random.integers(3, 7)
    residual = random.normal(size=n) * np.exp(random.normal(size=n) * 1.5)
    own = np.exp(random.normal(size=n))
    squares, along = own**2 * np.exp(random.normal(size=n)), random.normal(size=n) * own
    told = [query_random_effects.Contrasts(residual, own, squares, along, random.uniform(0.2, 1, n), None)]
    even = query_random_effects._variances(told, 1.0)
    monkeypatch.setattr(query_random_effects, "STEPS", query_random_effects.STEPS + 1)
    np.testing.assert_allclose(query_random_effects._variances(told, 1.0), even, rtol=1e-6)
    monkeypatch.setattr(query_random_effects, "WHOLE_STEPS", 100)
    whole = [query_random_effects._variances(told, 1.0)]
    monkeypatch.setattr(query_random_effects, "STEPS", query_random_effects.STEPS + 1)
    whole.append(query_random_effects._variances(told, 1.0))
    assert not np.allclose(*whole, rtol=1e-3), "this case does not go to and fro"
