"""The engine of all checks: how clicks fall within strata, and how two answers to that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime, minimize
from scipy.special import logsumexp

from clickharvest.checks.conditional_logit import RIDGE, Estimate, at_least, clustered, fit_strata, inverse
from samples import logs

Array = NDArray[Any]
Sample = dict[str, Array]
THETA = np.array([0.4, -0.7])


def sample(seed: int = 0, *, queries: int = 30, theta: Array = THETA, rate: float = 0.1) -> Sample:
    """Return three strata of four cells for every query; clicks fall as exp(offset + x·θ)."""
    random = np.random.default_rng(seed)
    rows = queries * 12
    stratum, cell = np.arange(rows) // 4, np.arange(rows)
    x, offset = random.normal(size=(rows, len(theta))), random.normal(0, 0.3, rows)
    shown = random.integers(5, 60, rows)
    relevance = np.exp(random.normal(0, 0.5, rows // 4))[stratum]
    clicks = random.poisson(shown * rate * relevance * np.exp(offset + x @ theta))
    columns = {"stratum": stratum, "cell": cell, "shown": shown * 1.0, "offset": offset, "clicks": clicks * 1.0}
    return columns | {"x": x, "query": stratum // 3}


def fit(columns: Sample, **how: Any) -> Estimate:
    return fit_strata(**(columns | how))


def rows_of(columns: Sample, rows: Array) -> Sample:
    return {name: column[rows] for name, column in columns.items()}


def minus_log_likelihood(theta: Array, columns: Sample) -> float:
    """Return the conditional logit's, written down anew."""
    logits = np.log(columns["shown"]) + columns["offset"] + columns["x"] @ theta
    logits = logits.reshape(-1, 4)  # a row for every stratum
    return -float(columns["clicks"] @ (logits - logsumexp(logits, axis=1, keepdims=True)).ravel())


def two_cells(shown: tuple[float, float] = (100.0, 50.0), clicks: tuple[float, float] = (30.0, 5.0)) -> Sample:
    return {
        "stratum": np.zeros(2, dtype=np.int64),
        "cell": np.arange(2),
        "shown": np.array(shown),
        "offset": np.zeros(2),
        "clicks": np.array(clicks),
        "x": np.array([[0.0], [1.0]]),
        "query": np.zeros(2, dtype=np.int64),
    }


def test_two_cells_give_the_log_ratio_of_click_rates() -> None:
    found = fit(two_cells())
    assert found.theta[0] == pytest.approx(np.log((5 / 50) / (30 / 100)), abs=1e-6)
    assert 1 / found.information[0, 0] == pytest.approx(1 / 30 + 1 / 5, rel=1e-5)
    assert found.clicks == 35


def test_the_offset_is_taken_off() -> None:
    log_ratio = np.log((5 / 50) / (30 / 100))
    assert fit(two_cells(), offset=np.array([0.0, log_ratio])).theta[0] == pytest.approx(0, abs=1e-6)
    assert fit(two_cells(), offset=np.array([7.0, 7.0])).theta[0] == pytest.approx(log_ratio, abs=1e-6)


def test_the_variance_of_two_strata_of_two_queries_by_hand() -> None:
    """Two queries, opposite cells clicked: θ̂ = 0, scores ±c/4·…, and each query has half of the information."""
    one = two_cells((10.0, 10.0), (8.0, 4.0))
    other = two_cells((10.0, 10.0), (4.0, 8.0))
    both = {name: np.concatenate([one[name], other[name]]) for name in one}
    found = fit(both, stratum=np.repeat([0, 1], 2), cell=np.arange(4), query=np.repeat([0, 1], 2))
    assert found.theta[0] == pytest.approx(0, abs=1e-9)
    information = 12 / 4  # of each query: 12 clicks, half of them in each cell
    npt.assert_allclose(found.information[0, 0], 2 * information, rtol=1e-6)
    psi = 2 / (2 * information - 0.9 * information)  # 8 clicks where 6 were expected, times x less its mean of 1/2
    npt.assert_allclose(found.influences[0][:, 0], [-psi, psi], rtol=1e-6)
    npt.assert_allclose(found.covariance[0, 0], max(2 * psi**2, 1 / (2 * information)), rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_theta_is_the_maximum_of_the_conditional_logit(seed: int) -> None:
    columns = sample(seed)
    found = minimize(minus_log_likelihood, np.zeros(2), args=(columns,), method="BFGS", options={"gtol": 1e-7})
    npt.assert_allclose(fit(columns).theta, found.x, atol=1e-5)


def test_a_ridge_is_a_normal_prior() -> None:
    columns = sample()

    def penalised(theta: Array) -> float:
        return minus_log_likelihood(theta, columns) + 20 * theta @ theta / 2

    found = minimize(penalised, np.zeros(2), method="BFGS", options={"gtol": 1e-7})
    npt.assert_allclose(fit(columns, ridge=20.0).theta, found.x, atol=1e-5)
    assert np.linalg.norm(fit(columns, ridge=1e6).theta) < 1e-2


def test_information_is_the_curvature_of_the_likelihood() -> None:
    columns, found = sample(), fit(sample())
    score = approx_fprime(found.theta, minus_log_likelihood, 1e-6, columns)
    npt.assert_allclose(score, 0, atol=2e-2 * np.sqrt(np.diag(found.information)).min())

    def slope(theta: Array) -> Array:
        steps = 1e-4 * np.eye(2)
        ends = [(minus_log_likelihood(theta + h, columns), minus_log_likelihood(theta - h, columns)) for h in steps]
        return np.array([(above - below) / 2e-4 for above, below in ends])

    curvature = np.stack([(slope(found.theta + h) - slope(found.theta - h)) / 2e-3 for h in 1e-3 * np.eye(2)])
    npt.assert_allclose(found.information, curvature, rtol=1e-3, atol=1e-3 * curvature.max())


def test_scores_of_queries_sum_to_nothing() -> None:
    """Of many small queries, ψ is I⁻¹ s but for little, and Σ s = 0 at the maximum."""
    psi = fit(sample(queries=200)).influences[0]
    assert np.abs(psi.sum(axis=0)).max() < 0.1 * np.sqrt((psi**2).sum(axis=0)).min()


def renamed(codes: Array, random: np.random.Generator) -> Array:
    """Return other numbers for the same groups, some numbers being left out."""
    return random.permutation(2 * (int(codes.max()) + 1))[codes]


def same(one: Estimate, other: Estimate) -> None:
    npt.assert_allclose(other.theta, one.theta, atol=1e-9)
    npt.assert_allclose(other.information, one.information, rtol=1e-8)
    npt.assert_allclose(other.covariance, one.covariance, rtol=1e-7)
    assert other.clicks == pytest.approx(one.clicks)


@pytest.mark.parametrize("name", ["stratum", "cell", "query"])
def test_names_do_not_matter(name: str) -> None:
    columns = sample()
    same(fit(columns), fit(columns, **{name: renamed(columns[name], np.random.default_rng(1))}))


def test_the_order_of_rows_does_not_matter() -> None:
    columns = sample()
    order = np.random.default_rng(1).permutation(len(columns["cell"]))
    same(fit(columns), fit(rows_of(columns, order)))


def test_a_row_may_be_two_rows_of_one_cell() -> None:
    columns = sample()
    two = rows_of(columns, np.repeat(np.arange(len(columns["cell"])), 2))
    two["shown"] = two["shown"] * np.tile([0.3, 0.7], len(columns["cell"]))
    two["clicks"] = two["clicks"] * np.tile([1.0, 0.0], len(columns["cell"]))
    same(fit(columns), fit(two))


def test_displays_and_offsets_count_alike() -> None:
    """Twice the displays are an offset of log 2; ten times as many of a whole stratum are nothing."""
    columns = sample()
    factor = np.random.default_rng(2).uniform(0.5, 2, len(columns["cell"]))
    same(fit(columns, shown=columns["shown"] * factor), fit(columns, offset=columns["offset"] + np.log(factor)))
    same(fit(columns), fit(columns, shown=columns["shown"] * np.where(columns["stratum"] % 2, 10, 1)))


def test_an_offset_along_x_moves_theta_by_as_much() -> None:
    columns, by = sample(), np.array([0.3, 0.2])
    whole = fit(columns)
    rest = fit(columns, offset=columns["offset"] + columns["x"] @ by)
    npt.assert_allclose(rest.theta, whole.theta - by, atol=1e-6)
    npt.assert_allclose(rest.covariance, whole.covariance, rtol=1e-4)


def test_beside_the_truth_theta_is_nothing() -> None:
    z = []
    for seed in range(60):
        columns = sample(seed, theta=np.array([0.8]), queries=20)
        found = fit(columns, offset=columns["offset"] + columns["x"] @ [0.8])
        z.append(found.theta[0] / np.sqrt(found.covariance[0, 0]))
    assert abs(np.mean(z)) < 3.5 / np.sqrt(60)
    assert 0.7 < np.std(z) < 1.25


def test_strata_that_tell_nothing_change_nothing() -> None:
    columns = sample()
    silent = rows_of(columns, np.arange(12))
    for name, value in (("clicks", np.zeros(12)), ("x", np.repeat(silent["x"][:3], 4, axis=0))):
        more = silent | {name: value}
        for column in ("stratum", "cell", "query"):
            more[column] = more[column] + 10_000
        found = fit({own: np.concatenate([columns[own], more[own]]) for own in columns})
        npt.assert_allclose(found.theta, fit(columns).theta, atol=1e-9)
        npt.assert_allclose(found.covariance, fit(columns).covariance, rtol=1e-8)
        assert found.clicks == columns["clicks"].sum()


def test_without_any_information_theta_is_0_and_nearly_unbounded() -> None:
    columns = sample()
    for nothing in (rows_of(columns, np.zeros(0, dtype=np.int64)), columns | {"clicks": 0 * columns["clicks"]}):
        found = fit(nothing)
        npt.assert_array_equal(found.theta, 0)
        assert np.diag(found.covariance).min() > 1e6
        difference, covariance = fit(columns).minus(found)
        npt.assert_allclose(difference, fit(columns).theta)
        assert np.isfinite(covariance).all()


def test_a_cell_with_all_clicks_is_finite() -> None:
    found = fit(two_cells(clicks=(0.0, 20.0)))
    assert found.theta[0] > 5
    assert np.isfinite(found.covariance).all()
    assert found.covariance[0, 0] > 1


def test_influences_say_what_leaving_a_query_out_changes() -> None:
    columns = sample(queries=25, rate=0.3)
    whole = fit(columns)
    changes = np.stack([whole.theta - fit(rows_of(columns, columns["query"] != q)).theta for q in range(25)])
    error = np.abs(whole.influences[0] - changes).max(axis=0)
    assert (error < 0.15 * np.abs(changes).max(axis=0)).all()
    assert np.corrcoef(whole.influences[0].ravel(), changes.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("seed", range(5))
def test_the_variance_is_in_no_direction_below_that_of_independent_clicks(seed: int) -> None:
    found = fit(sample(seed, queries=3 + 2 * seed))
    more = np.linalg.eigvalsh(found.covariance - np.linalg.inv(found.information))
    assert more.min() > -1e-7 * np.abs(found.covariance).max()


def test_queries_that_differ_widen_the_variance() -> None:
    """Every query has a θ of its own: V grows beyond I⁻¹ as the variance of θ̂ over samples does."""
    found, thetas = [], []
    for seed in range(80):
        random = np.random.default_rng(seed)
        columns = sample(seed, theta=np.zeros(1), queries=40)
        own = random.normal(0, 0.6, 40)[columns["query"]] * columns["x"][:, 0]
        columns["clicks"] = random.poisson(columns["shown"] * 0.2 * np.exp(columns["offset"] + own)) * 1.0
        found.append(fit(columns))
        thetas.append(found[-1].theta[0])
    said = np.mean([one.covariance[0, 0] for one in found])
    assert said > 2 * np.mean([1 / one.information[0, 0] for one in found])
    assert said == pytest.approx(np.var(thetas), rel=0.5)


def test_viewers_whose_clicks_repeat_widen_the_variance() -> None:
    """Each display is logged twice, by the same viewer: there are half as many clicks as it seems."""
    random = np.random.default_rng(0)
    strata = 300
    stratum = np.repeat(np.arange(strata), 20)
    x = np.tile(np.repeat([0.0, 1.0], 10), strata)
    clicks = (random.random(len(x)) < 0.03 + 0.02 * x) * 1.0
    columns = {
        "stratum": stratum,
        "cell": stratum * 2 + x.astype(np.int64),
        "shown": np.ones(len(x)),
        "offset": np.zeros(len(x)),
        "clicks": clicks,
        "x": x[:, None],
        "query": stratum,
    }
    once = fit(columns, viewer=np.arange(len(x)))
    twice = fit(rows_of(columns, np.repeat(np.arange(len(x)), 2)), viewer=np.repeat(np.arange(len(x)), 2))
    npt.assert_allclose(twice.theta, once.theta, atol=1e-8)
    npt.assert_allclose(twice.information, 2 * once.information, rtol=1e-6)
    by_viewer = (twice.influences[1] ** 2).sum() * twice.information[0, 0]
    assert by_viewer == pytest.approx(2 * (once.influences[1] ** 2).sum() * once.information[0, 0], rel=1e-6)
    assert twice.covariance[0, 0] >= (twice.influences[1] ** 2).sum() * (1 - 1e-9)
    assert twice.covariance[0, 0] > 1.5 / twice.information[0, 0]


def test_rows_of_one_cell_may_have_several_viewers() -> None:
    columns = sample()
    viewer = np.arange(len(columns["cell"])) % 7
    two = rows_of(columns, np.repeat(np.arange(len(columns["cell"])), 2))
    two["shown"], two["clicks"] = two["shown"] / 2, two["clicks"] / 2
    same(fit(columns, viewer=viewer), fit(two, viewer=np.repeat(viewer, 2)))
    other = fit(two, viewer=np.stack([viewer, viewer + 7], axis=1).ravel())
    assert (other.influences[1] ** 2).sum() < (fit(columns, viewer=viewer).influences[1] ** 2).sum()


@logs(daily=50, nightly=150)
@pytest.mark.parametrize("with_viewers", [False, True])
def test_differences_of_overlapping_samples_have_the_variance_they_are_told_to_have(
    with_viewers: bool, logs: int
) -> None:
    """A third of the rows against all; the same with strata split into groups. Queries differ, so that both depend."""
    z: list[list[float]] = []
    for seed in range(logs):
        random = np.random.default_rng(seed)
        columns = sample(seed, queries=40, theta=np.zeros(1))
        own = random.normal(0, 0.3, 40)[columns["query"]] * columns["x"][:, 0]
        columns["clicks"] = random.poisson(columns["shown"] * 0.2 * np.exp(columns["offset"] + own)) * 1.0
        if with_viewers:
            columns["viewer"] = random.integers(200, size=len(own))
        part = random.random(len(own)) < 0.3
        group = random.integers(2, size=len(own))
        finer = columns | {"stratum": columns["stratum"] * 2 + group}
        z.append([])
        for nested in (rows_of(columns, np.flatnonzero(part)), finer):
            difference, covariance = fit(nested).minus(fit(columns))
            z[-1].append(difference[0] / np.sqrt(covariance[0, 0]))
    for column in np.array(z).T:
        assert abs(column.mean()) < 3.5 / np.sqrt(logs)
        assert 0.8 < column.std() < 1.25
        assert 0.9 <= np.mean(np.abs(column) < 1.96) <= 1


def test_an_estimate_does_not_differ_from_itself() -> None:
    found = fit(sample(), viewer=np.arange(360) % 9)
    difference, covariance = found.minus(found)
    npt.assert_array_equal(difference, 0)
    npt.assert_allclose(covariance, 0, atol=1e-12)


def test_differences_have_a_sign_and_no_order_of_samples_in_their_variance() -> None:
    columns = sample()
    whole, part = fit(columns), fit(rows_of(columns, np.flatnonzero(columns["query"] < 20)))
    there, back = part.minus(whole), whole.minus(part)
    npt.assert_allclose(there[0], -back[0])
    npt.assert_allclose(there[1], back[1])


def test_the_first_parameters_keep_their_variance() -> None:
    found = fit(sample(), viewer=np.arange(360) % 50)
    first = found.first(1)
    assert first.theta.tolist() == found.theta[:1].tolist()
    assert [psi.shape[1] for psi in first.influences] == [1, 1]
    difference, covariance = first.minus(fit(sample(), x=sample()["x"][:, :1], viewer=np.arange(360) % 50))
    assert difference.shape == (1,)
    assert covariance[0, 0] > 0


@pytest.mark.parametrize("seed", range(4))
def test_at_least_is_above_both(seed: int) -> None:
    random = np.random.default_rng(seed)
    one, other = (own.T @ own for own in random.normal(size=(2, 5, 3)))
    both = at_least(one, other)
    for least in (one, other):
        assert np.linalg.eigvalsh(both - least).min() > -1e-9
    npt.assert_allclose(at_least(one, one), one, atol=1e-9)
    npt.assert_allclose(at_least(2 * one, one), 2 * one, atol=1e-8)
    npt.assert_allclose(at_least(0 * one, other), other, atol=1e-9)


def test_the_inverse_is_large_where_there_is_no_information() -> None:
    information = np.diag([4.0, 0.0])
    npt.assert_allclose(inverse(information)[0, 0], 0.25, rtol=1e-6)
    assert inverse(information)[1, 1] > 0.1 / RIDGE
    random = np.random.default_rng(0).normal(size=(6, 3))
    npt.assert_allclose(inverse(random.T @ random) @ (random.T @ random), np.eye(3), atol=1e-6)


def test_clustered_sums_squares_of_clusters() -> None:
    psi = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    npt.assert_allclose(clustered([psi]), [[2, 1], [1, 5]])
    npt.assert_allclose(clustered([psi, 3 * psi]), 9 * psi.T @ psi, atol=1e-9)
    npt.assert_allclose(clustered([psi, psi / 3]), psi.T @ psi, atol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e-160, 1e-20])
def test_the_variance_by_viewer_counts_where_that_by_query_is_nothing(scale: float) -> None:
    psi = np.random.default_rng(0).normal(size=(6, 2))
    npt.assert_allclose(clustered([scale * psi[:3], psi]), psi.T @ psi, rtol=1e-6)


def test_one_query_with_viewers_has_a_finite_variance() -> None:
    """The score of the only query is 0 at the maximum; those of its viewers are not."""
    nothing = np.zeros(8, dtype=np.int64)
    clicks, x = np.array([4.0, 2, 2, 4, 4, 2, 2, 4]), np.tile([[0.0], [1.0]], (4, 1))
    shown = np.full(8, 10.0)
    found = fit_strata(nothing, np.arange(8), shown, 0 * shown, clicks, x, nothing, np.array([0, 0, 1, 1] * 2))
    assert np.isfinite(found.covariance).all()
    assert found.covariance[0, 0] >= (found.influences[1] ** 2).sum() * (1 - 1e-9)
