from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickharvest.errors import InputError
from clickharvest.estimation.slopes import Slopes
from clickharvest.model.curves import CURVES, Curve, Params, flatten_params, log_sigmoid, make_curve, unflatten_params

GAPS = (1, 2, 5, 9)
SHAPES: dict[str, dict[str, int]] = {
    "lowrank": {"rank": 2},
    "index": {"knots": 3},
    "mlp": {"width": 3},
    "recurrent": {"width": 3},
    "position": {"width": 3},
}


def curve_of(name: str, *, positions: tuple[int, ...] = GAPS, anchor: int = 1, d: int = 2) -> Curve:
    return make_curve(name, positions, anchor, d, **SHAPES.get(name, {}))


def random_params(curve: Curve, seed: int = 0) -> Params:
    random = np.random.default_rng(seed)
    return {name: value + random.normal(size=np.shape(value)) for name, value in curve.init(random).items()}


def contexts(n: int, d: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def dot(a: Any, b: Any) -> float:
    return float(sum(float(i) * float(j) for i, j in zip(a, b, strict=True)))


# The formulas of the docstrings, one context at a time, relative to the position given: the reference.


def constant_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    others = [j for j in curve.positions if j != curve.anchor]
    return 0.0 if k == curve.anchor else p["b"][others.index(k)]


def power_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    eta = math.log(1 + math.exp(20 * (p["a"][0] + dot(p["w"][:, 0], x)))) / 20
    return math.log((k / curve.anchor) ** -eta)


def linear_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    others = [j for j in curve.positions if j != curve.anchor]
    return 0.0 if k == curve.anchor else p["b"][others.index(k)] + dot(p["W"][:, others.index(k)], x)


def lowrank_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    others = [j for j in curve.positions if j != curve.anchor]
    if k == curve.anchor:
        return 0.0
    i = others.index(k)
    return p["b"][i] + dot(p["u"][:, 0], x) * p["V"][0, i] + dot(p["u"][:, 1], x) * p["V"][1, i]


def index_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    others = [j for j in curve.positions if j != curve.anchor]
    if k == curve.anchor:
        return 0.0
    i, t = others.index(k), dot(p["u"][:, 0], x)

    def bend(t: float, knot: float) -> float:
        return math.log(1 + math.exp(2 * (t - knot))) / 2

    bends = [bend(t, knot) - bend(0.0, knot) for knot in (-1.6, 0.0, 1.6)]
    return p["b"][i] + p["V"][0, i] * t + dot(p["V"][1:, i], bends)


def mlp_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    hidden = [sigmoid(p["a"][h] + dot(p["A"][:, h], x)) for h in range(len(p["a"]))] if "A" in p else x
    i = curve.positions.index(k)
    return math.log(sigmoid(p["c"][i] + dot(p["v"][:, i], hidden)))


def recurrent_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    reader, total = [0.0] * 3, 0.0
    for j in range(curve.positions.index(k)):
        reader = [math.tanh(dot(p["A"][:, h], x) + dot(p["B"][:, h], reader) + p["a"][h]) for h in range(3)]
        total += math.log(sigmoid(p["c"][j] + dot(p["v"][:, 0], reader)))
    return total


def position_formula(p: Params, x: Any, k: int, curve: Curve) -> float:
    i = curve.positions.index(k)
    hidden = [math.tanh(dot(p["A"][:, h], x) + p["phi"][i, h] + p["a"][h]) for h in range(3)]
    return p["c"][i] + dot(p["v"][:, 0], hidden)


FORMULAS = {
    "constant": constant_formula,
    "power": power_formula,
    "linear": linear_formula,
    "lowrank": lowrank_formula,
    "index": index_formula,
    "mlp": mlp_formula,
    "recurrent": recurrent_formula,
    "position": position_formula,
}
PENALISED = {
    "constant": "",
    "power": "w",
    "linear": "W",
    "lowrank": "u V",
    "index": "u V",
    "mlp": "A v",
    "recurrent": "A B v",
    "position": "A phi v",
}


def test_positions_may_stand_apart_from_a_power_law() -> None:
    law = curve_of("power", anchor=2)
    params = random_params(law)
    free, same = law.set_apart(params)  # type: ignore[attr-defined]
    np.testing.assert_allclose(free.relative(same, contexts(3, 2)), law.relative(params, contexts(3, 2)), atol=0)
    moved = free.relative(same | {"d": np.array([0.1, -0.2, 0.3])}, contexts(3, 2)) - law.relative(
        params, contexts(3, 2)
    )
    np.testing.assert_allclose(moved, np.tile([0.1, 0.0, -0.2, 0.3], (3, 1)), atol=1e-12)
    order = flatten_params(same | {"d": np.ones(3)})
    np.testing.assert_array_equal(order, np.insert(flatten_params(params), free.apart_at, np.ones(3)))
    assert law.spec == {"name": "power"}
    assert free.spec == {"name": "power", "apart": 1}
    assert free.shape == law.shape == {}
    assert make_curve(positions=GAPS, anchor=2, n_features=2, **free.spec) == free


def test_every_curve_has_a_formula_here() -> None:
    assert set(FORMULAS) == set(PENALISED) == set(CURVES)


@pytest.mark.parametrize("d", [0, 2])
@pytest.mark.parametrize("anchor", GAPS)
@pytest.mark.parametrize("name", CURVES)
def test_relative_has_one_column_per_position_and_is_zero_at_the_anchor(name: str, anchor: int, d: int) -> None:
    curve = curve_of(name, anchor=anchor, d=d)
    relative = curve.relative(random_params(curve), contexts(5, d))
    assert relative.shape == (5, len(GAPS))
    assert np.isfinite(relative).all()
    assert (relative[:, GAPS.index(anchor)] == 0).all()
    assert (np.delete(relative, GAPS.index(anchor), axis=1) != 0).all()


@pytest.mark.parametrize("anchor", [1, 5])
@pytest.mark.parametrize("name", CURVES)
def test_values_are_those_of_the_formula(name: str, anchor: int) -> None:
    curve = curve_of(name, anchor=anchor)
    params, x = random_params(curve, seed=3), contexts(3, 2)
    expected = [[FORMULAS[name](params, row, k, curve) for k in GAPS] for row in x]
    np.testing.assert_allclose(curve.log_examination(params, x), expected, rtol=1e-12, atol=1e-12)
    ratios = [[value - row[GAPS.index(anchor)] for value in row] for row in expected]
    np.testing.assert_allclose(curve.relative(params, x), ratios, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CURVES)
def test_penalty_is_half_the_squares_of_what_depends_on_context(name: str) -> None:
    params = random_params(curve_of(name))
    squares = [value**2 for part in PENALISED[name].split() for value in np.ravel(params[part])]
    assert curve_of(name).penalty(params) == pytest.approx(sum(squares) / 2, rel=1e-12)


@pytest.mark.parametrize("name", CURVES)
def test_without_its_penalised_part_a_curve_does_not_depend_on_context(name: str) -> None:
    curve = curve_of(name)
    params = random_params(curve)
    shapes_alone = {part: np.zeros_like(params[part]) for part in PENALISED[name].split() if part not in ("V", "phi")}
    relative = curve.relative(params | shapes_alone, contexts(3, 2))
    np.testing.assert_allclose(relative, relative[:1].repeat(3, axis=0), atol=1e-13)


@pytest.mark.parametrize("anchor", [1, 5])
@pytest.mark.parametrize("name", ["constant", "power", "linear", "lowrank"])
def test_an_average_context_starts_from_anchor_over_k(name: str, anchor: int) -> None:
    curve = curve_of(name, anchor=anchor)
    start = curve.relative(curve.init(np.random.default_rng(0)), np.zeros((1, 2)))
    np.testing.assert_allclose(np.exp(start[0]), [anchor / k for k in GAPS], rtol=1e-4)


numbers = st.floats(-3, 3)


@given(numbers, numbers, numbers, st.sampled_from(GAPS))
def test_power_never_rises_with_the_position(a: float, w: float, x: float, anchor: int) -> None:
    curve = curve_of("power", anchor=anchor, d=1)
    relative = curve.relative({"a": np.array([a]), "w": np.array([[w]])}, np.array([[x]]))
    assert (np.diff(relative) <= 0).all()


@given(st.integers(0, 1000), st.floats(0, 20))
@settings(max_examples=30)
def test_recurrent_falls_with_every_position(seed: int, scale: float) -> None:
    curve = curve_of("recurrent")
    params = {name: scale * value for name, value in random_params(curve, seed).items()}
    log_p = curve.log_examination(params, contexts(4, 2, seed))
    assert (log_p[:, 0] == 0).all()
    assert (np.diff(log_p) <= 0).all()


@pytest.mark.parametrize("name", ["mlp", "recurrent"])
def test_networks_with_sigmoids_are_probabilities(name: str) -> None:
    curve = curve_of(name)
    assert (curve.log_examination(random_params(curve), contexts(20, 2)) <= 0).all()


@pytest.mark.parametrize("name", CURVES)
def test_flat_parameters_round_trip(name: str) -> None:
    params = random_params(curve_of(name))
    flat = flatten_params(params)
    again = unflatten_params(flat, params)
    assert flat.shape == (sum(np.size(value) for value in params.values()),)
    assert set(again) == set(params)
    assert all((again[part] == params[part]).all() and again[part].shape == params[part].shape for part in params)


@pytest.mark.parametrize("name", CURVES)
def test_values_and_gradients_stay_finite_at_extreme_parameters(name: str) -> None:
    slopes, random = Slopes.of_curve(curve_of(name)), np.random.default_rng(0)
    corners = [np.full(slopes.size, 50.0), np.full(slopes.size, -50.0), 50.0 * random.choice([-1, 1], size=slopes.size)]
    for flat in corners:
        values = slopes.run(flat, contexts(4, 2))
        assert np.isfinite(values[-1]).all()
        assert np.isfinite(slopes.push(values)).all()
        assert np.isfinite(slopes.pull(values, contexts(4, len(GAPS)))).all()


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_rebuilt_from_its_spec(name: str) -> None:
    curve = curve_of(name, anchor=2)
    assert make_curve(positions=GAPS, anchor=2, n_features=2, **curve.spec) == curve


@pytest.mark.parametrize("z", [-800.0, -1.5, 0.0, 2.0, 800.0])
def test_log_sigmoid(z: float) -> None:
    expected = z if z < -100 else math.log(1 / (1 + math.exp(-z)))
    assert log_sigmoid(np.array(z)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "shape", "message"),
    [
        (("cubic", GAPS, 1, 2), {}, "no curve 'cubic'"),
        (("linear", GAPS, 3, 2), {}, "the anchor 3"),
        (("linear", (2, 1), 1, 2), {}, "ascending"),
        (("linear", (1, 1, 2), 1, 2), {}, "ascending"),
        (("linear", (0, 1), 1, 2), {}, "from 1"),
        (("linear", (), 1, 2), {}, "the anchor 1"),
        (("linear", GAPS, 1, 2), {"rank": 2}, "takes no rank"),
        (("lowrank", GAPS, 1, 2), {"width": 2}, "takes no width"),
        (("lowrank", GAPS, 1, 2), {"rank": 0}, "rank"),
        (("mlp", GAPS, 1, 2), {"width": -1}, "width"),
        (("recurrent", GAPS, 1, 2), {"width": 0}, "width"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[Any, ...], shape: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_curve(*arguments, **shape)


def test_a_network_without_hidden_layer_is_the_one_the_paper_prints() -> None:
    curve = make_curve("mlp", GAPS, 1, 2, width=0)
    params = random_params(curve)
    assert {name: value.shape for name, value in params.items()} == {"v": (2, 4), "c": (4,)}
    x = contexts(3, 2)
    expected = [[mlp_formula(params, row, k, curve) for k in GAPS] for row in x]
    assert curve.log_examination(params, x) == pytest.approx(np.array(expected))
    assert curve.penalty(params) == pytest.approx((params["v"] ** 2).sum() / 2)
