"""Shrinkage: coverage where the truth is known, what relevance can be, and what must not happen."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.judging import shrink


def simulated(queries: int, documents: int, displays: float, seed: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    query = np.repeat(np.arange(queries), documents)
    mean = 0.2 * random.gamma(3.0, 1 / 3.0, queries)
    relevance = np.minimum(random.gamma(2.0, mean[query] / 2.0), 0.95)
    shown = 1 + random.poisson(displays * random.lognormal(0, 0.7, queries)[query])
    p = 1 / random.integers(1, 6, len(query))
    return query, random.binomial(shown, p * relevance).astype(float), shown * p, relevance


@pytest.mark.parametrize(("queries", "displays"), [(300, 3.0), (300, 40.0), (25, 40.0), (300, 400.0)])
def test_intervals_cover(queries: int, displays: float) -> None:
    covered = []
    for seed in range(3):
        query, clicks, exposure, truth = simulated(queries, 10, displays, seed)
        found = shrink(query, clicks, exposure)
        lower, upper = found.interval(0.95)
        covered.append(np.mean((lower <= truth) & (truth <= upper)))
    assert np.mean(covered) >= 0.93


@pytest.mark.parametrize("displays", [1.0, 6.0, 60.0])
def test_it_is_closer_to_the_truth_than_click_rates(displays: float) -> None:
    query, clicks, exposure, truth = simulated(300, 10, displays, seed=3)
    found = shrink(query, clicks, exposure).relevance
    assert np.mean((found - truth) ** 2) < np.mean((np.minimum(clicks / exposure, 1) - truth) ** 2)


def test_nothing_that_was_never_clicked_stands_above_what_was() -> None:
    """The mean of a query is not that of its documents: those hardly seen are not lifted above those seen often."""
    random = np.random.default_rng(4)
    query = np.repeat(np.arange(200), 8)
    exposure = random.choice([0.01, 1.0, 1e4], len(query))
    clicks = random.poisson(random.choice([0.0, 1e-3, 0.5], len(query)) * exposure).astype(float)
    found = shrink(query, clicks, exposure)
    assert (found.relevance[clicks == 0] == 0).all()
    assert (found.relevance[clicks > 0] > 0).all()
    lower, upper = found.interval(0.9)
    assert (lower[clicks == 0] == 0).all()
    assert (upper > 0).all()


@pytest.mark.parametrize("clicks", [np.zeros(3), np.array([0.0, 0, 1]), np.array([1e6, 40.0, 1e6])])
@pytest.mark.parametrize("exposure", [np.array([1e-3, 5.0, 1e7]), np.array([1.0, 1e-9, 1.0])])
def test_relevance_is_a_probability(clicks: np.ndarray, exposure: np.ndarray) -> None:
    found = shrink(np.array([0, 0, 1]), clicks, exposure)
    lower, upper = found.interval(0.95)
    assert ((lower >= 0) & (lower <= found.relevance) & (found.relevance <= upper) & (upper <= 1)).all()
    wider, narrower = found.interval(0.99), found.interval(0.5)
    assert ((wider[0] <= narrower[0]) & (narrower[1] <= wider[1])).all()


def test_an_uncertain_exposure_makes_intervals_wider() -> None:
    query, clicks, exposure, _ = simulated(200, 10, 60, seed=4)
    often = clicks > 30
    sure, unsure = (
        shrink(query, clicks, exposure),
        shrink(query, clicks, exposure, dispersion=lambda r: 1 + exposure * r),
    )
    widths = [np.subtract(*found.interval(0.95)[::-1])[often] for found in (sure, unsure)]
    assert np.all(widths[1] > widths[0])
