"""Relevance from corrected clicks: close to the truth, and in its interval as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.judging.corrected import Corrected, shrink_corrected

POSITIONS = 5
K = np.arange(1, POSITIONS + 1)


@pytest.mark.parametrize(("trust", "pages"), [(0.65, 60), (0.25, 300)])
def test_truth_is_covered_and_means_err_less_than_rates(trust: float, pages: int) -> None:
    random, queries, docs = np.random.default_rng(1), 300, 10
    relevance = random.beta(1, 2, (queries, docs))
    alpha, beta = K**-0.7 * (0.98 - trust / K), K**-0.7 * trust / K
    shown = np.zeros((queries, docs, POSITIONS), np.int64)
    for _ in range(3):
        order = np.argsort(-(relevance + random.normal(0, 0.25, relevance.shape)), axis=1)
        for k in range(POSITIONS):
            shown[np.arange(queries), order[:, k], k] += pages // 3
    clicks = random.binomial(shown, alpha * relevance[:, :, None] + beta)
    a, seen = alpha / alpha[0], shown.sum(axis=2) > 0
    b = beta - beta[0] * a
    query = np.broadcast_to(np.arange(queries)[:, None], seen.shape)[seen]
    sums = [(shown * own).sum(axis=2)[seen] for own in (1.0, a, b, a * a, a * b, b * b)]
    counts = Corrected(
        query, clicks.sum(axis=2)[seen].astype(float), *sums[:3], np.stack(sums[3:]), np.zeros(len(query))
    )
    truth = (alpha[0] * relevance + beta[0])[seen]
    found = shrink_corrected(counts, known=np.log(sums[1] / sums[0])[:, None])
    assert 0.91 < np.mean((found.lower <= truth) & (truth <= found.upper)) < 0.98
    assert np.mean((found.relevance - truth) ** 2) < 0.9 * np.mean((counts.rate - truth) ** 2)
    assert abs(np.mean(found.relevance - truth)) < 0.02
    unsure = Corrected(**(vars(counts) | {"unsure": np.full(len(query), 0.05)}))
    wider = shrink_corrected(unsure, known=np.log(sums[1] / sums[0])[:, None])
    assert np.mean(wider.upper - wider.lower) > np.mean(found.upper - found.lower)


def test_a_rate_of_clicks_is_not_below_zero() -> None:
    many = np.full(4, 1000.0)
    nothing = Corrected(
        np.zeros(4, np.int64),
        np.zeros(4),
        many,
        many,
        0.1 * many,
        np.stack([many, 0.1 * many, 0.01 * many]),
        np.zeros(4),
    )
    found = shrink_corrected(nothing)
    assert (found.relevance == 0).all()
    assert (found.lower == 0).all()
