from __future__ import annotations

import numpy as np
import pytest

from clickharvest.estimation.uncertainty import inverse_root, normal_draws


def test_inverse_root_of_a_full_matrix() -> None:
    hessian = np.array([[2.0, 0.5], [0.5, 1.0]])
    root = inverse_root(hessian)
    assert root @ root.T == pytest.approx(np.linalg.inv(hessian))


def test_inverse_root_leaves_flat_directions_alone() -> None:
    flat = np.array([1.0, -1.0]) / np.sqrt(2)
    root = inverse_root(np.ones((2, 2)))
    assert flat @ root == pytest.approx([0.0, 0.0])


def test_normal_draws_have_the_covariance_asked_for() -> None:
    covariance = np.array([[0.04, 0.01], [0.01, 0.02]])
    draws = normal_draws(np.array([1.0, 2.0]), covariance, replicates=4_000, seed=1)
    assert draws.mean(axis=0) == pytest.approx([1.0, 2.0], abs=1e-12)
    assert np.cov(draws.T) == pytest.approx(covariance, rel=0.15)
    assert len(normal_draws(np.zeros(2), covariance, replicates=7)) == 7
