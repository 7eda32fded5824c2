"""Losses with an offset: gradients by finite differences, and a truth that arms with different documents hide."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.rank import ranking_data
from clickharvest.rank.offsets import OffsetObjective, PoissonObjective, SoftmaxObjective, fit_offset, log_offset

OBJECTIVES = [SoftmaxObjective(), PoissonObjective()]
STARTS = np.array([0, 3, 3, 4, 9])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_derivatives_are_those_of_the_loss(objective: OffsetObjective) -> None:
    random = np.random.default_rng(0)
    scores, clicks = random.normal(size=9), random.integers(0, 4, 9).astype(float)
    slope, curvature = objective.gradients(scores, clicks, STARTS)
    for d, step in enumerate(1e-4 * np.eye(9)):
        up, at, down = (objective.loss(scores + move, clicks, STARTS) for move in (step, 0, -step))
        assert slope[d] == pytest.approx((up - down) / 2e-4, abs=1e-6)
        assert curvature[d] == pytest.approx((up - 2 * at + down) / 1e-8, abs=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sizes_must_fit(objective: OffsetObjective) -> None:
    with pytest.raises(InputError, match="scores have shape"):
        objective.gradients([0.0], [1.0, 0.0], [0, 2])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("queries", "tolerance"), [(300, 0.15), (3_000, 0.05)])
def test_the_truth_is_found_whatever_was_shown_how_often(
    objective: OffsetObjective, queries: int, tolerance: float
) -> None:
    """Relevance is e^{w x}; what has a large second feature is shown a tenth as often, and lower."""
    random = np.random.default_rng(1)
    size, truth = 8, np.array([0.6, -0.4])
    x = random.normal(size=(queries * size, 2)) * 0.7
    exposure = np.where(x[:, 1] > 0, 3.0, 30.0) * random.uniform(0.2, 1.0, len(x))
    clicks = random.poisson(exposure * 0.1 * np.exp(x @ truth))
    clicked = np.flatnonzero(clicks)
    data = ranking_data(
        x, np.arange(queries + 1) * size, clicked, clicks=clicks[clicked], impressions=np.full(queries, 30.0),
        exposure=exposure,
    )  # fmt: skip
    assert fit_offset(data, objective, penalty=0.1)[0] == pytest.approx(truth, abs=tolerance)


def test_offsets_make_the_mean_right() -> None:
    data = ranking_data(np.zeros((3, 1)), [0, 3], [1], clicks=[6], impressions=[9], exposure=[9.0, 6.0, 3.0])
    assert np.exp(log_offset(data)).sum() == pytest.approx(6)
