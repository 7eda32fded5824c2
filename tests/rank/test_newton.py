"""The parts of the solver on problems with known answers; `test_svm.py` has the optima."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clickharvest.rank.features import Features
from clickharvest.rank.svm.hinge import Contests
from clickharvest.rank.svm.newton import _Smoothed, conjugate_gradients, minimise_hinge, search


def along(
    value: Callable[[float], float], slope: Callable[[float], float]
) -> tuple[Callable[[float], Any], list[float]]:
    """Return a line to search, and the list of places that were tried."""
    tried: list[float] = []

    def trial(t: float) -> tuple[Any, float]:
        tried.append(t)
        return SimpleNamespace(smooth=value(t), t=t), slope(t)

    return trial, tried


@pytest.mark.parametrize("least", [0.2, 0.7, 1.0, 1.2, 2.9, 7.3, 40.0])
def test_a_parabola_is_searched_by_doubling_and_one_line_through_slopes(least: float) -> None:
    trial, tried = along(lambda t: (t - least) ** 2, lambda t: 2 * (t - least))
    found, at_once = search(trial, least**2, -2 * least)
    assert abs(2 * (found.t - least)) <= 2 * least / 3
    assert found.smooth <= least**2
    assert at_once == (found.t == 1.0) == (3 / 4 <= least <= 3 / 2)
    doublings = [2.0**i for i in range(12) if 2.0 ** (i - 1) < least * 2 / 3 or i == 0]
    assert tried[: len(doublings)] == doublings[: len(tried)]
    assert len(tried) <= len(doublings) + 2


def test_a_valley_between_two_steps_is_found_by_a_line_through_their_slopes() -> None:
    """Down by 3 until 2.5, then up ever faster: 1, 2 and 4 are tried, and 2.5 is a quarter of the way from 2 to 4."""
    trial, tried = along(
        lambda t: -3 * t if t < 2.5 else -7.5 + 3 * (t - 2.5) ** 2, lambda t: -3 if t < 2.5 else 6 * t - 15
    )
    found, at_once = search(trial, 0.0, -3.0)
    assert tried == [1.0, 2.0, 4.0, 2.5]
    assert (found.t, at_once) == (2.5, False)


def test_a_step_that_is_flat_but_no_lower_is_not_taken() -> None:
    """At t = 1 it is flat, and above the beginning: no convex function is, but rounding makes such places."""
    trial, tried = along(lambda t: 1.0 if t == 1.0 else -1.0, lambda t: 0.0)
    found, at_once = search(trial, 0.0, -3.0)
    assert tried[0] == 1.0
    assert found.smooth == -1.0
    assert not at_once


def two_documents() -> tuple[Features, Contests]:
    """F(w) = ½ w² + .3 max(0, 1 − w)."""
    one = np.array([0, 1])
    pairs = Contests(2, np.array([0]), np.array([0.3]), one, np.array([1]), one, winners_in_pool=False)
    return Features.of([[1.0], [0.0]]), pairs


def test_no_more_steps_are_taken_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []

    def slopes(contests: Contests, scores: np.ndarray, width: float) -> Any:
        reads.append(width)
        return original(contests, scores, width)

    original = Contests.slopes
    monkeypatch.setattr(Contests, "slopes", slopes)
    nowhere = minimise_hinge(*two_documents(), max_steps=0)
    assert len(reads) == 1
    assert (nowhere.w.tolist(), nowhere.steps, nowhere.converged) == ([0.0], 0, False)
    assert nowhere.objective == pytest.approx(0.3)
    least = 0.3**2 / 2 + 0.3 * 0.7
    for steps in range(6):
        found = minimise_hinge(*two_documents(), tol=1e-12, max_steps=steps)
        assert found.steps <= steps
        assert found.objective == pytest.approx(0.5 * found.w[0] ** 2 + 0.3 * max(0.0, 1 - found.w[0]))
        assert found.objective - found.gap <= least + 1e-12 <= found.objective + 2e-12


def test_points_hold_the_objective_exact_and_smoothed() -> None:
    features, contests = two_documents()
    point = _Smoothed(features, contests).at(np.array([0.4]), width=1.0)
    assert point.exact == pytest.approx(0.5 * 0.4**2 + 0.3 * 0.6)
    assert point.smooth == pytest.approx(0.5 * 0.4**2 + 0.3 * 0.6**2 / 2)


def test_conjugate_gradients_solve_to_the_accuracy_asked_for() -> None:
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=(30, 30)))[0]
    matrix = basis @ np.diag(np.linspace(1, 200, 30)) @ basis.T
    right = random.normal(size=30)
    products: list[int] = []
    for accuracy in (0.5, 1e-2, 1e-8):
        count = 0

        def product(v: np.ndarray) -> np.ndarray:
            nonlocal count
            count += 1
            return matrix @ v

        found = conjugate_gradients(product, right, accuracy)
        assert np.linalg.norm(right - matrix @ found) <= accuracy * np.linalg.norm(right) * (1 + 1e-9)
        products.append(count)
    assert 0 < products[0] < products[1] < products[2] <= 31
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), atol=1e-7)
