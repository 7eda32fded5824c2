from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.slopes import Slopes
from clickharvest.estimation.starts import start_from_lines
from clickharvest.estimation.uncompiled import NUMBERS, Uncompiled, ridge_of
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
def test_slopes_are_those_of_jax(name: str) -> None:
    curve, random = curve_of(name), np.random.default_rng(3)
    like = curve.init(random)
    flat = flatten_params(like) + 0.1 * random.normal(size=len(flatten_params(like)))
    x, slope = random.normal(size=(7, 2)), random.normal(size=(7, 4))
    slopes = Slopes(curve)
    values = slopes.run(flat, np.asfortranarray(x))
    with jax.enable_x64(True):
        function = lambda theta: curve.log_examination(unflatten_params(theta, like), jnp.asarray(x), jnp)  # noqa: E731
        expected, back = jax.vjp(function, jnp.asarray(flat))
        np.testing.assert_allclose(values[-1], expected, rtol=1e-12)
        np.testing.assert_allclose(slopes.pull(values, slope), back(jnp.asarray(slope))[0], rtol=1e-9, atol=1e-12)
        jacobian = jax.jacfwd(function)(jnp.asarray(flat))
        np.testing.assert_allclose(slopes.push(values), jacobian, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["power", "mlp"])
@pytest.mark.parametrize("unit_kind", ["context", "query"])
def test_numpy_and_jax_have_the_same_loss(name: str, unit_kind: Any) -> None:
    sample = simulated_sample(queries=30, features=2)
    if unit_kind == "query":
        context = np.random.default_rng(2).integers(len(sample.x), size=len(sample.unit))
        sample = replace(sample, context=context, unit_kind=unit_kind)
    curve = make_curve(name, sample.positions, 1, sample.x.shape[1], **CURVES[name])
    fit = Fit(curve, ClickShare(sample), sample)
    assert isinstance(fit._engine, Uncompiled)
    random = np.random.default_rng(1)
    flat = fit.starts(2, 0) + 0.1 * random.normal(size=(2, fit._engine.size))
    weights, penalty = random.poisson(1.0, (2, fit.n_clusters)) * 1.0, np.array([0.0, 3.0])
    for one, two in zip(
        fit._engine.value_and_grad(flat, weights, penalty),
        fit.compiled.value_and_grad(flat, weights, penalty),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit.by_query(flat), fit.compiled.by_query(flat), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit.scores(flat[0]), fit.compiled.scores(flat[0]), rtol=1e-8, atol=1e-10)
    some = np.arange(3)
    np.testing.assert_allclose(
        fit.gradients(flat[0], some), fit.compiled.gradients(flat[0], some), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(fit.penalty_curvature(flat[0]), fit.compiled.penalty_curvature(flat[0]), atol=1e-12)


@pytest.mark.parametrize("anchor", [1, 2])
@pytest.mark.parametrize("name", ["constant", "linear"])
def test_gradients_side_by_side_are_those_one_by_one(name: str, anchor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("SIDE", "UNITS"):
        monkeypatch.setattr(f"clickharvest.estimation.line_batches.{size}", 7)
    sample = simulated_sample(queries=40, features=2)
    sample = sample.take((sample.unit % 2 == 0) | (sample.position != sample.unit % 3))  # units of two cells and three
    fit = Fit(make_curve(name, sample.positions, anchor, 2), ClickShare(sample), sample)
    random = np.random.default_rng(1)
    flat = fit.starts(17, 0) + 0.3 * random.normal(size=(17, fit._engine.size))
    weights, penalty = random.poisson(1.0, (17, fit.n_clusters)) * 1.0, random.uniform(0, 9, size=17)
    _, expected = fit._engine.value_and_grad(flat, weights, penalty)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(fit.grad(flat, weights, penalty), expected, rtol=2e-6, atol=2e-7)
    scores = [fit.scores(flat[0])]
    monkeypatch.setattr(fit._engine, "_lines", None)
    scores.append(fit.scores(flat[0]))
    assert np.abs(scores[1]).max() > 0.01
    np.testing.assert_allclose(*scores, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("unit_kind", ["context", "query"])
def test_queries_that_count_for_nothing_need_not_be_looked_at(
    name: str, unit_kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clickharvest.estimation.uncompiled.UNITS", 7)
    sample = simulated_sample(queries=40, features=2)
    sample = sample.take((sample.unit % 2 == 0) | (sample.position != sample.unit % 3))  # units of two cells and three
    if unit_kind == "query":
        context = np.random.default_rng(2).integers(len(sample.x), size=len(sample.unit))
        sample = replace(sample, context=context, unit_kind=unit_kind)
    fit = Fit(make_curve(name, sample.positions, 1, 2, **CURVES[name]), ClickShare(sample), sample)
    random = np.random.default_rng(1)
    kept = random.uniform(size=fit.n_clusters) < 0.6
    some = fit.among(kept)._some
    assert isinstance(fit._engine, Uncompiled)
    assert isinstance(some, Uncompiled)
    assert unit_kind == "query" or len(some.x) < len(fit.x)
    flat = fit.starts(2, 0) + 0.1 * random.normal(size=(2, fit._engine.size))
    weights, penalty = random.poisson(1.0, (2, fit.n_clusters)) * kept, np.array([0.0, 3.0])
    expected = fit._engine.value_and_grad(flat, weights, penalty)
    for own, whole in zip(some.value_and_grad(flat, weights, penalty), expected, strict=True):
        np.testing.assert_allclose(own, whole, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(fit.among(kept).by_query(flat), fit.by_query(flat) * kept, rtol=1e-12)
    np.testing.assert_array_equal(fit.among(kept).logits(flat[0]), fit.logits(flat[0]))


def test_the_information_of_some_units_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated_sample(queries=400, features=2)
    fit = Fit(make_curve("power", sample.positions, 1, 2), ClickShare(sample), sample)
    engine = fit._engine
    assert isinstance(engine, Uncompiled)
    flat = fit.starts(1, 0)[0]
    whole = engine.information(flat, rough=False)
    assert engine.information(flat) == pytest.approx(whole)
    monkeypatch.setattr("clickharvest.estimation.uncompiled.NUMBERS", NUMBERS // 2_000)
    rough = engine.information(flat)
    assert not np.array_equal(rough, whole)
    assert np.diag(rough) == pytest.approx(np.diag(whole), rel=0.5)
    assert engine.information(flat, rough=False) == pytest.approx(whole)


@pytest.mark.parametrize("name", ["constant", "power", "mlp"])
def test_information_by_pairs_of_cells_is_that_by_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = simulated_sample(queries=60, features=2)
    random = np.random.default_rng(5)
    sample = replace(sample, x=sample.x[:4], context=random.integers(4, size=60)[sample.unit])
    fit = Fit(make_curve(name, sample.positions, 1, 2, **CURVES[name]), ClickShare(sample), sample)
    assert isinstance(fit._engine, Uncompiled)
    flat = fit.starts(1, 0)[0] + 0.3 * random.normal(size=fit._engine.size)
    weights = random.poisson(1.0, sample.n_clusters) * 1.0
    by_cells = fit._engine.information(flat, weights)
    monkeypatch.setattr("clickharvest.estimation.uncompiled.FEW_CELLS", 0)
    by_rows = fit._engine.information(flat, weights)
    assert np.abs(by_rows).max() > 1
    np.testing.assert_allclose(by_cells, by_rows, atol=1e-10 * np.abs(by_rows).max())


def test_a_curve_that_numpy_cannot_follow_is_compiled() -> None:
    assert ridge_of(curve_of("odd")) is None
    sample = simulated_sample(queries=5, features=2)

    class Sorted(Odd):
        def log_examination(self, params: Any, x: Any, xp: Any = np) -> Any:
            return xp.sort(x @ params["A"], axis=-1)

    with pytest.raises(InputError, match=r"xp\.sort"):
        Slopes(Sorted(sample.positions, 1, 2))
    fit = Fit(Sorted(sample.positions, 1, 2), ClickShare(sample), sample)
    assert fit._engine is fit.compiled


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
