"""Small samples with a known truth, for tests of what fits them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from clickharvest.estimation import ClickShare, Fit, Sample
from clickharvest.harvesting import Interventions
from clickharvest.model import Constant, Propensities
from clickharvest.model.curves import make_curve

POSITIONS = (1, 2, 4)
LOG_P = np.log([1.0, 0.6, 0.3])


def logs(daily: int, nightly: int) -> pytest.MarkDecorator:
    """Return the parameter `logs`: how many simulated logs a test draws every day, and in `make nightly`."""
    return pytest.mark.parametrize("logs", [daily, pytest.param(nightly, marks=pytest.mark.nightly)])


def simulated_sample(queries: int, *, features: int = 0, seed: int = 0, shown: int = 6) -> Sample:
    """Return one unit per query, shown at all three positions; contexts, where there are any, mean nothing."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(queries, features)) if features else np.zeros((1, 0))
    unit, position = np.repeat(np.arange(queries), 3), np.tile(np.arange(3), queries)
    context = unit if features else np.zeros_like(unit)
    impressions = random.integers(1, 2 * shown, size=len(unit))
    relevance = random.uniform(0.3, 0.95, size=queries)[unit]
    clicks = random.binomial(impressions, np.exp(LOG_P)[position] * relevance)
    return Sample(POSITIONS, x, unit, context, position, impressions * 1.0, clicks, impressions, unit, queries)


def share_fit(sample: Sample, curve: str = "constant") -> Fit:
    """Return a curve and the objective of click shares on a sample."""
    return Fit(make_curve(curve, POSITIONS, 1, sample.x.shape[1]), ClickShare(sample), sample)


def simulated_interventions(
    queries: int, *, seed: int, steepness: Mapping[str, float], positions: int = 4, shown: int = 12
) -> Interventions:
    """Return one unit per query, shown at two to all positions, p_k = k^{−steepness of its device}.

    Queries are drawn anew for every seed: their traffic, documents and the places where these were shown.
    """
    random = np.random.default_rng(seed)
    device = random.choice(list(steepness), size=queries)
    rows = []
    for query in range(queries):
        relevance, traffic = random.uniform(0.2, 0.9), random.gamma(1.0)
        for k in np.sort(random.choice(positions, random.integers(2, positions + 1), replace=False)) + 1:
            impressions = 1 + random.poisson(shown * traffic)
            rows.append(
                (query, k, impressions, random.binomial(impressions, relevance * k ** -steepness[device[query]]))
            )
    query, position, impressions, clicks = np.array(rows).T
    return Interventions(
        unit=query, query=query, position=position, exposure=impressions * 1.0, clicks=clicks, impressions=impressions,
        contexts={"device": device[query]},
    )  # fmt: skip


def fixed_curve(log_p: Mapping[int, float], *, anchor: int = 1, sd: float | None = None) -> Propensities:
    """Return a model without context, p_k as told; with draws whose standard deviation is `sd` at every position."""
    curve = Constant(tuple(log_p), anchor, 0)
    b = np.array([value - log_p[anchor] for k, value in log_p.items() if k != anchor])
    draws = None if sd is None else b + sd * np.array([[-1.0], [0.0], [1.0]])
    kind = None if sd is None else "sandwich"
    return Propensities(curve, {"b": b}, None, tuple(log_p), draws=draws, draws_kind=kind)  # type: ignore[arg-type]
