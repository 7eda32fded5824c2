from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from clickharvest.estimation.loss import Fit, flatten
from clickharvest.estimation.objectives.allpairs import AllPairs
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Status
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import make_curve
from samples import share_fit, simulated_sample

POSITIONS = (1, 2, 4)
LOG_P = np.log([1.0, 0.6, 0.3])
SLOPE = np.array([0.0, 0.4, -0.5])


def log_p(x: np.ndarray) -> np.ndarray:
    """Return the true log p_k(x) / p_1(x): b_k + W_k·x, or b_k without context."""
    return LOG_P + x.sum(axis=1, keepdims=True) * SLOPE


def simulated(queries: int, *, context: bool = False, seed: int = 0, shown: int = 4) -> Sample:
    """Return one unit per query, shown at all three positions, with a relevance of its own."""
    random = np.random.default_rng(seed)
    x = np.array([[-1.0], [1.0]]) if context else np.zeros((1, 0))
    unit = np.repeat(np.arange(queries), 3)
    position = np.tile(np.arange(3), queries)
    code = random.integers(len(x), size=queries)[unit]
    impressions = random.integers(1, 2 * shown, size=len(unit))
    p = np.exp(log_p(x) - 0.6)[code, position]
    relevance = random.uniform(0.05, 0.95, size=queries)[unit]
    clicks = random.binomial(impressions, p * relevance)
    return Sample(POSITIONS, x, unit, code, position, impressions * 1.0, clicks, impressions, unit, queries)


@cache
def small_fit(objective: str = "clickshare", curve: str = "linear", queries: int = 40) -> Fit:
    """Return a fit that several tests use."""
    sample = simulated(queries, context=True)
    prepared = ClickShare(sample) if objective == "clickshare" else AllPairs(sample)
    return Fit(make_curve(curve, POSITIONS, 1, 1), prepared, sample)


@pytest.mark.parametrize(
    ("objective", "curve"), [("clickshare", "constant"), ("clickshare", "linear"), ("allpairs", "constant")]
)
def test_the_truth_is_recovered_with_an_error_that_halves_with_four_times_the_data(objective: str, curve: str) -> None:
    """Sixteen samples of n queries and four of 4n, cut from one by query weights, in one batch."""
    n = 40
    sample = simulated(16 * n, context=curve == "linear")
    fit = Fit(
        make_curve(curve, POSITIONS, 1, sample.x.shape[1]),
        ClickShare(sample) if objective == "clickshare" else AllPairs(sample),
        sample,
    )
    weights = np.concatenate([np.kron(np.eye(16), np.ones(n)), np.kron(np.eye(4), np.ones(4 * n))])
    solution = fit.solve(np.repeat(fit.starts(1, 0), 20, axis=0), weights, np.zeros(20))
    assert set(solution.status) == {Status.converged}
    truth = log_p(sample.x)
    found = np.stack([fit.curve.relative(fit.params(flat)["curve"], sample.x) for flat in solution.params])
    errors = np.abs(found - truth).mean(axis=(1, 2))
    small, large = errors[:16].mean(), errors[16:].mean()
    assert small < 1.5 / np.sqrt(n)
    assert 0.2 < large / small < 0.8
    clicks = np.zeros_like(truth)
    np.add.at(clicks, (sample.context, sample.position), sample.clicks)
    standard_error = np.sqrt(1 / clicks + 1 / clicks[:, :1])
    assert (np.abs(found[16:].mean(axis=0) - truth) < 4 * standard_error).all()


@pytest.mark.parametrize("objective", ["clickshare", "allpairs"])
def test_scores_are_the_derivatives_of_each_query(objective: str) -> None:
    fit = small_fit(objective, "lowrank", queries=5)
    random = np.random.default_rng(0)
    start = fit.starts(1, 0)[0]
    point = start + 0.3 * random.normal(size=start.shape)
    steps = 1e-5 * np.eye(fit.size)
    scores = fit.scores(point)
    differences = (fit.by_query(point + steps) - fit.by_query(point - steps)) / 2e-5
    np.testing.assert_allclose(scores, differences.T, rtol=1e-6, atol=1e-7)
    alone = np.concatenate([np.eye(5), np.ones((1, 5))])
    slopes = -fit.scale * fit.value_and_grad(np.tile(point, (6, 1)), alone, np.zeros(6))[1]
    np.testing.assert_allclose(np.concatenate([scores, scores.sum(axis=0)[None]]), slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("context", [False, True])
def test_the_information_of_shares_is_the_curvature_where_logits_are_lines(context: bool) -> None:
    """In logits that are lines the second derivatives of shares do not depend on the clicks."""
    sample = simulated(5, context=context)
    fit = Fit(make_curve("linear", POSITIONS, 1, sample.x.shape[1]), ClickShare(sample), sample)
    point, ones = fit.starts(1, 0)[0] + 0.3, np.ones((fit.size, 5))
    steps, penalty = 1e-5 * np.eye(fit.size), np.full(fit.size, 0.7)
    above, below = (fit.value_and_grad(point + far, ones, penalty)[1] for far in (steps, -steps))
    curvature = fit.scale * (above - below) / 2e-5
    np.testing.assert_allclose(fit.information(point) + 0.7 * np.diag(fit.ridge), curvature, rtol=1e-6, atol=1e-7)


def test_adam_and_lbfgs_reach_one_optimum() -> None:
    fit = small_fit()
    start, ones, penalty = fit.starts(1, 0), np.ones((1, 40)), np.array([1.0])
    exact, adam = fit.solve(start, ones, penalty), fit.train(start, ones, None, penalty, epochs=1_000)
    assert (exact.status[0], adam.status[0]) == (Status.converged, Status.finished)
    np.testing.assert_allclose(adam.params, exact.params, atol=1e-3)
    np.testing.assert_allclose(adam.value, exact.value, rtol=1e-6)


def test_a_root_changes_the_path_and_not_the_optimum() -> None:
    fit = small_fit()
    start, weights, penalty = fit.starts(1, 0), np.ones((1, 40)), np.array([1.0])
    plain = fit.solve(start, weights, penalty, tolerance=1e-9)
    root = fit.root(plain.params[0], 1.0)
    rounded = fit.solve(start, weights, penalty, root=root, tolerance=1e-9)
    np.testing.assert_allclose(rounded.params, plain.params, atol=1e-6)
    np.testing.assert_allclose(rounded.value, plain.value, rtol=1e-9)
    assert rounded.iterations[0] < plain.iterations[0]


def test_early_stopping_keeps_what_is_best_on_the_queries_held_out() -> None:
    """A network of contexts that mean nothing does ever better on the queries it sees, and soon worse on others."""
    fit = share_fit(simulated_sample(queries=24, features=6, shown=15), "mlp")
    aside = np.arange(24)[None] % 3 == 0
    start, penalty = fit.starts(1, 0), np.array([0.01])
    stopped = fit.train(start, 1.0 - aside, 1.0 * aside, penalty)
    to_the_end = fit.train(start, 1.0 - aside, None, penalty)
    assert (stopped.status[0], to_the_end.status[0]) == (Status.stopped_early, Status.finished)
    assert stopped.iterations[0] < to_the_end.iterations[0] == 1_000
    early, late = (fit.held_out(s.params, 1.0 * aside)[0] / fit.scale for s in (stopped, to_the_end))
    assert early > late + 0.02
    assert stopped.value[0] > to_the_end.value[0]


def test_the_loss_is_the_penalised_log_likelihood_by_size() -> None:
    fit = small_fit("allpairs", "linear", queries=12)
    flat = fit.starts(1, 0)[0] + 0.1
    weights = np.random.default_rng(0).exponential(size=12)
    params = fit.params(flat)
    tamed = (params["curve"]["W"] ** 2).sum() / 2
    loss = fit.value_and_grad(flat[None], weights[None], np.array([3.0]))[0][0]
    likelihood = fit.held_out(flat[None], weights[None])[0]
    assert loss == pytest.approx((3.0 * tamed - likelihood) / fit.objective.size, rel=1e-12)


def test_what_is_held_out_is_the_sum_of_log_shares() -> None:
    queries = 73
    sample = simulated_sample(queries)
    fit = share_fit(sample)
    flat = np.log([0.5, 0.4])
    shares = np.exp(np.append(0.0, flat)) * sample.exposure.reshape(queries, 3)
    expected = (sample.clicks.reshape(queries, 3) * np.log(shares / shares.sum(axis=1, keepdims=True))).sum(axis=1)
    found = fit.held_out(np.tile(flat, (2, 1)), np.stack([np.ones(queries), np.arange(queries) == queries - 1]))
    np.testing.assert_allclose(found, [expected.sum(), expected[-1]], rtol=1e-12)


def test_parameter_vectors_round_trip_in_float64() -> None:
    fit = small_fit("allpairs", "lowrank", queries=5)
    flat = fit.starts(1, 0)[0] + 1e-12
    params = fit.params(flat)
    assert {name: value.dtype for name, value in params["curve"].items()} == dict.fromkeys("buV", np.dtype(np.float64))
    assert (flatten(params) == flat).all()


def test_starts_are_seeded_and_differ() -> None:
    fit = small_fit(curve="lowrank")
    first, again, other = fit.starts(2, 0), fit.starts(2, 0), fit.starts(2, 1)
    assert (first == again).all()
    assert (first[0] != first[1]).any()
    assert (first != other).any()
