"""Shrinkage: against the posterior in closed form, coverage where the truth is known, and what must not happen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gamma

from clickharvest.judging.shrinkage import Prior, _Counts, _mixture, _shrunk, shrink


def simulated(queries: int, documents: int, displays: float, seed: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    query = np.repeat(np.arange(queries), documents)
    mean = 0.2 * random.gamma(3.0, 1 / 3.0, queries)
    relevance = np.minimum(random.gamma(2.0, mean[query] / 2.0), 0.95)
    shown = 1 + random.poisson(displays * random.lognormal(0, 0.7, queries)[query])
    p = 1 / random.integers(1, 6, len(query))
    clicks = random.binomial(shown, p * relevance)
    return query, clicks.astype(float), shown * p, shown * p * p, relevance


def test_a_query_whose_mean_is_known_has_the_posterior_of_the_textbook() -> None:
    """With b huge, m_q is m: the posterior is Gamma(a + C, a / m + E)."""
    counts = _Counts(np.zeros(3, int), np.array([0.0, 4.0, 40.0]), np.array([1.0, 20.0, 90.0]), np.zeros((3, 0)))
    prior = Prior(0.3, 2.0, 1e6)
    posterior = gamma(2.0 + counts.clicks, scale=1 / (2.0 / 0.3 + counts.exposure))
    mixture = _mixture(counts, prior)
    np.testing.assert_allclose(mixture.mean, posterior.mean(), rtol=1e-3)
    for level in (0.025, 0.5, 0.975):
        np.testing.assert_allclose(mixture.quantile(level), posterior.ppf(level), rtol=5e-3)


def test_the_prior_is_found() -> None:
    query, clicks, exposure, squares, _ = simulated(800, 10, 60, seed=1)
    prior = shrink(query, clicks, exposure, squares=squares).prior
    assert prior.mean == pytest.approx(0.2, rel=0.1)
    assert prior.within == pytest.approx(2.0, rel=0.2)
    assert prior.between == pytest.approx(3.0, rel=0.25)


@pytest.mark.parametrize(("queries", "displays"), [(300, 3.0), (300, 40.0), (25, 40.0)])
def test_intervals_cover(queries: int, displays: float) -> None:
    covered = []
    for seed in range(3):
        query, clicks, exposure, squares, truth = simulated(queries, 10, displays, seed)
        found = shrink(query, clicks, exposure, squares=squares)
        covered.append(np.mean((found.lower <= truth) & (truth <= found.upper)))
    assert 0.93 <= np.mean(covered) <= 0.985


def test_shrinkage_is_closer_to_the_truth_than_click_rates() -> None:
    query, clicks, exposure, _, truth = simulated(300, 10, 6.0, seed=3)
    found = shrink(query, clicks, exposure)
    assert np.mean((found.relevance - truth) ** 2) < 0.6 * np.mean((clicks / exposure - truth) ** 2)


def test_an_uncertain_exposure_makes_intervals_wider_and_draws_closer() -> None:
    query, clicks, exposure, squares, _ = simulated(200, 10, 60, seed=4)
    sure = shrink(query, clicks, exposure, squares=squares)
    unsure = shrink(query, clicks, exposure, squares=squares, variance=np.full(len(query), 0.3))
    often = clicks > 30
    assert np.all((unsure.upper - unsure.lower)[often] > (sure.upper - sure.lower)[often])
    assert unsure.relevance[often].std() < sure.relevance[often].std()


def test_what_was_never_clicked_may_be_worth_nothing() -> None:
    found = shrink(np.zeros(4, int), np.array([0.0, 5, 9, 2]), np.array([50.0, 40, 50, 30]))
    assert found.lower[0] == 0 < found.upper[0]
    assert np.all(found.lower[1:] > 0)


def test_what_rankers_knew_is_learned() -> None:
    """Where relevance follows the height of documents, those that were hardly seen get what their like have."""
    random = np.random.default_rng(5)
    query = np.repeat(np.arange(300), 10)
    height = random.normal(size=len(query))
    truth = np.minimum(0.1 * np.exp(0.8 * height) * random.gamma(8.0, 1 / 8.0, len(query)), 1.0)
    exposure = random.choice([1.0, 30.0], len(query))
    clicks = random.poisson(exposure * truth).astype(float)
    blind, sighted = shrink(query, clicks, exposure), shrink(query, clicks, exposure, known=height[:, None])
    assert sighted.prior.slopes[0] == pytest.approx(0.8, abs=0.1)
    hardly = exposure == 1
    assert np.corrcoef(sighted.relevance[hardly], truth[hardly])[0, 1] > 0.8
    assert np.corrcoef(blind.relevance[hardly], truth[hardly])[0, 1] < 0.6


@pytest.mark.parametrize("clicks", [np.zeros(3), np.array([0.0, 0, 1]), np.array([1e6, 1e6, 1e6])])
def test_extremes_stay_finite_and_ordered(clicks: np.ndarray) -> None:
    found = shrink(np.array([0, 0, 1]), clicks, np.array([1e-3, 5.0, 1e7]), variance=np.full(3, 0.1))
    for values in (found.relevance, found.lower, found.upper):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    assert np.all(found.lower <= found.upper)


def test_wider_at_a_higher_level() -> None:
    counts = _Counts(np.zeros(2, int), np.array([3.0, 8.0]), np.array([20.0, 20.0]), np.zeros((2, 0)))
    narrow, wide = (_shrunk(counts, Prior(0.2, 2.0, 3.0), level) for level in (0.5, 0.99))
    assert np.all(wide.lower < narrow.lower)
    assert np.all(narrow.upper < wide.upper)
