from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.estimation import cells
from clickharvest.estimation.loss import Fit, ridge_of
from clickharvest.estimation.objectives.allpairs import AllPairs
from clickharvest.estimation.objectives.base import Objective
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import start_from_lines
from clickharvest.estimation.slopes import Slopes
from clickharvest.model.curves import Curve, flatten_params, make_curve, unflatten_params
from samples import simulated_sample

POSITIONS = (1, 2, 3, 5)
CURVES: dict[str, dict[str, int]] = {
    "constant": {},
    "power": {},
    "linear": {},
    "lowrank": {"rank": 2},
    "index": {"knots": 2},
    "mlp": {"width": 3},
    "recurrent": {"width": 2},
    "position": {"width": 2},
}

OBJECTIVES: dict[str, Callable[[Sample], Objective]] = {
    "clickshare": ClickShare,
    "allpairs": AllPairs,
    "allpairs-mlp": lambda sample: AllPairs(sample, relevance="mlp", width=2),
    "allpairs-squares": lambda sample: AllPairs(sample, relevance="squares"),
    "allpairs-free": lambda sample: AllPairs(sample, relevance="free"),
}


class Odd(Curve):
    """Every operation that a program has, for whatever it is worth."""

    def init(self, random: np.random.Generator) -> Any:
        return {"A": random.normal(size=(self.n_features, 4)), "b": random.normal(size=4), "c": np.array([0.3])}

    def log_examination(self, params: Any, x: Any, xp: Any = np) -> Any:
        z = x @ params["A"] + params["b"]
        steps = [
            xp.abs(z) - xp.exp(-z) / (1.0 + z * z),
            xp.expm1(z / 9) + xp.log(1.5 + z**2),
            xp.log1p(z * z) * xp.sqrt(z * z + 1.0),
            xp.maximum(z, 0.1) + xp.minimum(z, -0.2) + xp.logaddexp(z, params["c"]),
            xp.cumsum(z, axis=-1) + xp.max(z, axis=-1, keepdims=True) - xp.sum(z, axis=-1)[:, None],
            (params["A"].T @ params["A"])[0] + xp.power(2.0, z / 5) + (x @ params["A"][:, 0])[..., None],
        ]
        return xp.concatenate([sum(steps[1:], steps[0])[:, :2], xp.tanh(z)[:, 2:]], axis=-1)

    def penalty(self, params: Any, xp: Any = np) -> Any:
        return xp.sum(xp.abs(params["A"]))


Odd.name = "odd"  # after the class: as a field of its own it would join the list of curves


def curve_of(name: str) -> Curve:
    return Odd(POSITIONS, 1, 2) if name == "odd" else make_curve(name, POSITIONS, 1, 2, **CURVES[name])


@pytest.mark.parametrize("name", [*CURVES, "odd"])
def test_slopes_are_those_of_finite_differences(name: str) -> None:
    curve, random = curve_of(name), np.random.default_rng(3)
    like = curve.init(random)
    flat = flatten_params(like) + 0.1 * random.normal(size=len(flatten_params(like)))
    x, slope = random.normal(size=(7, 2)), random.normal(size=(7, 4))
    slopes = Slopes.of_curve(curve)
    values = slopes.run(flat, np.asfortranarray(x))
    result, pulled, jacobian = values[-1], slopes.pull(values, slope), slopes.push(values)

    def log_p(theta: np.ndarray) -> Any:
        return curve.log_examination(unflatten_params(theta, like), x)

    np.testing.assert_allclose(result, log_p(flat), rtol=1e-12)
    steps = 1e-5 * np.eye(len(flat))
    differences = np.stack([(log_p(flat + step) - log_p(flat - step)) / 2e-5 for step in steps], axis=-1)
    np.testing.assert_allclose(jacobian, differences, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(pulled, np.einsum("mk,mkn->n", slope, jacobian), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("anchor", [1, 2])
@pytest.mark.parametrize("name", ["constant", "linear"])
def test_gradients_side_by_side_are_those_one_by_one(name: str, anchor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("SIDE", "UNITS"):
        monkeypatch.setattr(f"clickharvest.estimation.batched_linear_gradients.{size}", 7)
    sample = simulated_sample(queries=40, features=2)
    sample = sample.take((sample.unit % 2 == 0) | (sample.position != sample.unit % 3))  # units of two cells and three
    fit = Fit(make_curve(name, sample.positions, anchor, 2), ClickShare(sample), sample)
    random = np.random.default_rng(1)
    flat = fit.starts(17, 0) + 0.3 * random.normal(size=(17, fit.size))
    weights, penalty = random.poisson(1.0, (17, fit.n_clusters)) * 1.0, random.uniform(0, 9, size=17)
    _, expected = fit.value_and_grad(flat, weights, penalty)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(fit.grad(flat, weights, penalty), expected, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("objective", ["clickshare", "clickshare-rows", "allpairs", "allpairs-mlp", "allpairs-free"])
def test_queries_that_count_for_nothing_need_not_be_looked_at(
    name: str, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "CACHED", 7)
    monkeypatch.setattr(cells, "LARGE", 3)  # units of three cells share blocks with other sizes
    sample = simulated_sample(queries=40, features=2)
    sample = sample.take((sample.unit % 2 == 0) | (sample.position != sample.unit % 3))  # units of two cells and three
    if objective == "clickshare-rows":
        context = np.random.default_rng(2).integers(len(sample.x), size=len(sample.unit))
        sample = replace(sample, context=context, unit_kind="query")
    objectives = OBJECTIVES | {"clickshare-rows": ClickShare}
    fit = Fit(make_curve(name, sample.positions, 1, 2, **CURVES[name]), objectives[objective](sample), sample)
    random = np.random.default_rng(1)
    kept = random.uniform(size=fit.n_clusters) < 0.6
    some = fit.among(kept)
    flat = fit.starts(2, 0) + 0.1 * random.normal(size=(2, fit.size))
    weights, penalty = random.poisson(1.0, (2, fit.n_clusters)) * kept, np.array([0.0, 3.0])
    expected = fit.value_and_grad(flat, weights, penalty)
    for own, whole in zip(some.value_and_grad(flat, weights, penalty), expected, strict=True):
        np.testing.assert_allclose(own, whole, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(some.by_query(flat), fit.by_query(flat) * kept, rtol=1e-12)
    np.testing.assert_array_equal(some.logits(flat[0]), fit.logits(flat[0]))
    whole = fit.information(flat[0], weights[0])
    np.testing.assert_allclose(some.information(flat[0], weights[0]), whole, atol=1e-11 * np.abs(whole).max())


@pytest.mark.parametrize("objective", ["clickshare", "allpairs-squares", "allpairs-free"])
def test_contexts_looked_at_in_parts_give_the_same_numbers(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated_sample(queries=40, features=2)
    fit = Fit(make_curve("mlp", sample.positions, 1, 2, width=3), OBJECTIVES[objective](sample), sample)
    flat, weights, penalty = fit.starts(2, 0), np.random.default_rng(0).poisson(1.0, (2, 40)) * 1.0, np.ones(2)
    whole = [*fit.value_and_grad(flat, weights, penalty), fit.by_query(flat), fit.scores(flat[0])]
    for name, size in (("slopes.CONTEXTS", 7), ("loss.CELLS", 60), ("loss.NUMBERS", 200)):
        monkeypatch.setattr(f"clickharvest.estimation.{name}", size)
    fit = Fit(fit.curve, fit.objective, sample)
    parts = [*fit.value_and_grad(flat, weights, penalty), fit.by_query(flat), fit.scores(flat[0])]
    for own, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_information_of_some_units_stands_for_all(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated_sample(queries=400, features=2)
    fit = Fit(make_curve("power", sample.positions, 1, 2), OBJECTIVES[objective](sample), sample)
    flat = fit.starts(1, 0)[0]
    whole = fit.information(flat)
    assert fit.information(flat, rough=True) == pytest.approx(whole)
    monkeypatch.setattr(cells, "ROUGH", 400 * fit.size)
    rough_numbers = 50 * fit.size * (3 + fit.objective.columns)
    monkeypatch.setattr("clickharvest.estimation.objectives.allpairs.NUMBERS", rough_numbers)
    rough = fit.information(flat, rough=True)
    assert not np.array_equal(rough, whole)
    assert np.diag(rough) == pytest.approx(np.diag(whole), rel=0.5)
    np.testing.assert_allclose(fit.information(flat), whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_a_curve_that_cannot_be_traced_is_refused_by_name() -> None:
    class Sorted(Odd):
        def log_examination(self, params: Any, x: Any, xp: Any = np) -> Any:
            return xp.sort(x @ params["A"], axis=-1)

    with pytest.raises(InputError, match=r"xp\.sort"):
        Slopes.of_curve(Sorted(POSITIONS, 1, 2))


def test_a_penalty_that_is_no_sum_of_squares_is_refused() -> None:
    curve = curve_of("odd")
    with pytest.raises(InputError, match="sum of squares"):
        ridge_of(curve.penalty, curve.init(np.random.default_rng(0)))


def test_starts_from_lines_are_nearly_these_lines() -> None:
    random = np.random.default_rng(0)
    base, slopes = np.array([-0.7, -1.1, -1.6]), np.outer([0.2, 0.1], [-0.5, -0.9, -1.2])
    x = random.normal(size=(50, 2))
    expected = base + x @ slopes
    for name, far in (("lowrank", 1e-12), ("index", 1e-12), ("mlp", 0.15)):
        curve = curve_of(name)
        flat = start_from_lines(curve, base, slopes, 0)
        assert flat is not None
        found = curve.relative(unflatten_params(flat, curve.init(random)), x)[:, 1:]
        assert np.abs(found - expected).max() < far
    assert start_from_lines(curve_of("power"), base, slopes, 0) is None
