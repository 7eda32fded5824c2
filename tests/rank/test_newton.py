"""The parts of the solver on problems with known answers; `test_svm.py` has the optima."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clickharvest.rank.svm.newton import conjugate_gradients, search


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


def test_a_step_that_is_flat_but_no_lower_is_not_taken() -> None:
    """At t = 1 it is flat, and above the beginning: no convex function is, but rounding makes such places."""
    trial, tried = along(lambda t: 1.0 if t == 1.0 else -1.0, lambda t: 0.0)
    found, at_once = search(trial, 0.0, -3.0)
    assert tried[0] == 1.0
    assert found.smooth == -1.0
    assert not at_once


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
