from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from clickharvest.estimation import CPBM, uncertainty
from clickharvest.estimation.uncertainty import (
    EXACT,
    SKETCHED,
    bootstrap,
    inverse_root,
    normal_draws,
    sandwich,
    sigma_points,
)
from samples import share_fit, simulated_interventions, simulated_sample


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


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_sigma_points_have_the_covariance_exactly(rank: int) -> None:
    root = np.random.default_rng(rank).normal(size=(7, rank))
    points = sigma_points(np.arange(7.0), root @ root.T)
    assert len(points) == 2 * rank
    assert points.mean(axis=0) == pytest.approx(np.arange(7.0))
    assert np.cov(points.T) == pytest.approx(root @ root.T)


def test_sigma_points_of_no_variance_and_of_many_directions() -> None:
    assert sigma_points(np.ones(3), np.zeros((3, 3))).tolist() == [[1.0] * 3] * 2
    variance = np.linspace(2, 0.01, 900)
    points = sigma_points(np.zeros(900), np.diag(variance))
    assert len(points) == 2 * (EXACT + SKETCHED)
    assert points.var(axis=0, ddof=1)[:EXACT] == pytest.approx(variance[:EXACT])
    assert points.var(axis=0, ddof=1)[EXACT:].mean() == pytest.approx(variance[EXACT:].mean(), rel=0.02)
    one = np.random.default_rng(0).normal(size=900)
    assert (points @ one).var(ddof=1) == pytest.approx(one @ (variance * one), rel=0.1)


def test_the_sandwich_by_hand() -> None:
    """H⁻¹ (Σ_q s_q s_qᵀ) H⁻¹ · Q / (Q − 1), with so few queries that the last factor is half as much again."""
    sample = simulated_sample(queries=3, shown=30)
    fit = share_fit(sample)
    flat = fit.solve(fit.starts(1, 0), np.ones((1, 3)), np.zeros(1), tolerance=1e-9).params[0]
    bread = np.linalg.inv(fit.information(flat))
    meat = sum(np.outer(score, score) for score in fit.scores(flat))
    assert sandwich(fit, flat, 0.0) == pytest.approx(bread @ meat @ bread * 3 / 2, rel=1e-6)


def test_the_penalty_of_the_fit_is_in_the_sandwich() -> None:
    sample = simulated_sample(queries=12, features=1, shown=30)
    fit = share_fit(sample, "linear")
    flat = fit.solve(fit.starts(1, 0), np.ones((1, 12)), np.array([5.0]), tolerance=1e-9).params[0]
    bread = np.linalg.inv(fit.information(flat) + 5.0 * np.diag(fit.ridge))
    meat = fit.scores(flat).T @ fit.scores(flat)
    assert sandwich(fit, flat, 5.0) == pytest.approx(bread @ meat @ bread * 12 / 11, rel=1e-6)


def test_bootstrap_refits_with_poisson_weights_on_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated_sample(queries=9, shown=30)
    fit = share_fit(sample)
    flat = fit.solve(fit.starts(1, 0), np.ones((1, 9)), np.zeros(1), tolerance=1e-9).params[0]
    monkeypatch.setattr(uncertainty, "AT_ONCE", 4)
    shares: list[float] = []
    found = bootstrap(fit, flat, 0.0, replicates=10, seed=3, update=lambda share, note="": shares.append(share))
    random = np.random.default_rng(3)
    weights = np.concatenate([random.poisson(1.0, (count, 9)) for count in (4, 4, 2)]).astype(float)
    alone = fit.solve(np.tile(flat, (10, 1)), weights, np.zeros(10), tolerance=1e-8).params
    assert found == pytest.approx(alone, abs=1e-3)
    assert len(np.unique(found, axis=0)) == 10
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_bootstraps_are_the_same_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = share_fit(simulated_sample(queries=9, shown=30))
    flat = fit.solve(fit.starts(1, 0), np.ones((1, 9)), np.zeros(1), tolerance=1e-9).params[0]
    monkeypatch.setattr(uncertainty, "AT_ONCE", 3)
    monkeypatch.setattr("clickharvest.estimation.loss.SMALL", 0)
    found = []
    for cores in (1, 4):
        monkeypatch.setattr("clickharvest.estimation.loss.cores", lambda cores=cores: cores)
        found.append(bootstrap(fit, flat, 0.0, replicates=20, seed=1))
    np.testing.assert_array_equal(*found)


def test_replicates_that_fail_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated_sample(queries=9, shown=30)
    fit = share_fit(sample)
    flat = fit.starts(1, 0)[0]
    inner = fit.solve

    def with_a_failure(*arguments: Any, **options: Any) -> Any:
        solution = inner(*arguments, **options)
        return replace(solution, value=np.where(np.arange(len(solution.value)) == 1, np.nan, solution.value))

    monkeypatch.setattr(fit, "solve", with_a_failure)
    assert len(bootstrap(fit, flat, 0.0, replicates=6)) == 5


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_flat_is_relative_to_the_largest_curvature(scale: float) -> None:
    root = inverse_root(scale * np.diag([1.0, 1e-8, 1e-10]))
    assert root @ root.T == pytest.approx(np.diag([1 / scale, 1e8 / scale, 0.0]))


def test_an_uneven_number_of_draws_starts_with_one_half_of_the_pairs() -> None:
    draws = normal_draws(np.array([1.0]), np.array([[4.0]]), replicates=5, seed=2)
    noise = np.random.default_rng(2).normal(size=(3, 1))
    assert np.abs(draws - 1.0) == pytest.approx(2 * np.abs(np.concatenate([noise, noise])[:5]))
    assert draws[0] - 1 == pytest.approx(-(draws[3] - 1))


@pytest.mark.parametrize("kind", ["sandwich", "bootstrap"])
@pytest.mark.parametrize(("penalty", "held"), [(0.01, True), (3_000.0, False)])
def test_intervals_that_do_not_count_shrinkage_are_withheld_where_there_is_much(
    kind: Literal["sandwich", "bootstrap"], penalty: float, held: bool
) -> None:
    interventions = simulated_interventions(400, seed=2, steepness={"desk": 0.5, "phone": 1.5})
    model = CPBM(curve="linear", penalty=penalty, intervals=kind, replicates=60).fit(interventions)
    found = model.predict({"device": ["desk", "phone"]})
    assert (found.supported[:, 1:] == held).all()
    assert (np.isfinite(found.upper[:, 1:]) == held).all()
