"""Small samples with a known truth, for tests of what fits them."""

from __future__ import annotations

import numpy as np

from clickharvest.estimation import ClickShare, Fit, Sample
from clickharvest.model.curves import make_curve

POSITIONS = (1, 2, 4)
LOG_P = np.log([1.0, 0.6, 0.3])


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
