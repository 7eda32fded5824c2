from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from clickharvest.estimation import optimise
from clickharvest.estimation.optimise import Solution, Status, ValueAndGrad, descend, minimise

ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
CURVATURE = ROTATION @ np.diag([1e-2, 0.1, 1.0, 10.0]) @ ROTATION.T
CENTRE = np.array([1.0, -2.0, 0.5, 3.0])
FEATURES = np.random.default_rng(1).normal(size=(60, 3))
LABELS = np.where(FEATURES @ [1.0, -1.0, 0.5] + np.random.default_rng(2).logistic(size=60) > 0, 1.0, -1.0)


def quadratic(p: np.ndarray, rows: Any = None) -> Any:
    slope = (p - CENTRE) @ CURVATURE
    return ((p - CENTRE) * slope).sum(axis=1) / 2, slope


def rosenbrock(p: np.ndarray, rows: Any = None) -> Any:
    x, bend = p[:, 0], p[:, 1] - p[:, 0] ** 2
    return (1 - x) ** 2 + 100 * bend**2, np.stack([-2 * (1 - x) - 400 * x * bend, 200 * bend], axis=1)


def logistic(p: np.ndarray, rows: Any = None) -> Any:
    z = -LABELS * (p @ FEATURES.T)
    slope = -(LABELS / (1 + np.exp(-z))) @ FEATURES / len(LABELS)
    return np.logaddexp(0.0, z).mean(axis=1) + 0.01 * (p**2).sum(axis=1), slope + 0.02 * p


PROBLEMS: dict[str, tuple[ValueAndGrad, np.ndarray]] = {
    "quadratic": (quadratic, np.zeros(4)),
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0])),
    "logistic": (logistic, np.zeros(3)),
}


def answer(name: str) -> np.ndarray:
    function, start = PROBLEMS[name]
    if name == "logistic":
        return np.asarray(minimize(lambda p: float(function(p[None], None)[0][0]), start, tol=1e-12).x)
    return {"quadratic": CENTRE, "rosenbrock": np.ones(2)}[name]


def by_lbfgs(function: Any, start: np.ndarray) -> Solution:
    return minimise(function, start, tolerance=1e-7)


def by_adam(function: Any, start: np.ndarray) -> Solution:
    return descend(lambda p: function(p)[1], lambda p: function(p)[0], start, epochs=8_000, every=1_000)


@pytest.mark.parametrize(
    ("solver", "status", "atol"), [(by_lbfgs, Status.converged, 1e-4), (by_adam, Status.finished, 2e-2)]
)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_solver_finds_every_known_answer(name: str, solver: Any, status: Status, atol: float) -> None:
    function, start = PROBLEMS[name]
    expected = answer(name)
    solution = solver(function, np.stack([start, start + 0.5]))
    assert solution.status == (status, status)
    assert all(s.good for s in solution.status)
    np.testing.assert_allclose(solution.params, [expected, expected], atol=atol)
    np.testing.assert_allclose(solution.value, function(expected[None], None)[0].repeat(2), atol=atol)


def test_problems_solved_together_equal_those_solved_one_by_one() -> None:
    function, start = PROBLEMS["rosenbrock"]
    starts = start + np.random.default_rng(0).normal(size=(5, 2))

    together, alone = minimise(function, starts), [minimise(function, starts[i : i + 1]) for i in range(5)]
    assert len(set(together.iterations)) > 1
    np.testing.assert_array_equal(together.iterations, [a.iterations[0] for a in alone])
    np.testing.assert_allclose(together.params, np.concatenate([a.params for a in alone]), rtol=1e-9)
    assert together.status == tuple(a.status[0] for a in alone)


def bowl(p: np.ndarray, rows: np.ndarray) -> Any:
    return (p**2).sum(axis=1), 2 * p


def not_a_number(p: np.ndarray, rows: np.ndarray) -> Any:
    return np.full(len(p), np.nan), p


def wrong_gradient(p: np.ndarray, rows: np.ndarray) -> Any:
    return (p**2).sum(axis=1), -2 * p


def steep_valley(p: np.ndarray, rows: np.ndarray) -> Any:
    return (p**2 * [1, 1e4]).sum(axis=1), 2 * p * [1, 1e4]


@pytest.mark.parametrize(
    ("function", "status", "good"),
    [
        (bowl, Status.converged, True),
        (steep_valley, Status.out_of_iterations, False),
        (not_a_number, Status.not_finite, False),
        (wrong_gradient, Status.stalled, True),
    ],
)
def test_status_says_how_it_ended(function: Any, status: Status, good: bool) -> None:
    solution = minimise(function, np.array([[0.5, 0.3]]), max_iterations=2)
    assert solution.status == (status,)
    assert status.good is good
    assert solution.iterations[0] <= 2


def test_problems_of_a_batch_end_on_their_own() -> None:
    def mixed(p: np.ndarray, rows: np.ndarray) -> Any:
        value, grad = (p**2).sum(axis=1), 2 * p
        return np.where(rows == 1, np.nan, value), np.where(rows[:, None] == 2, -grad, grad)

    solution = minimise(mixed, np.full((3, 2), 0.4))
    assert solution.status == (Status.converged, Status.not_finite, Status.stalled)
    np.testing.assert_allclose(solution.params, [[0, 0], [0.4, 0.4], [0.4, 0.4]], atol=1e-5)


def test_a_step_into_nan_is_shortened() -> None:
    def with_cliff(p: np.ndarray, rows: np.ndarray) -> Any:
        inside = (p > 0).all(axis=1)
        safe = np.maximum(p, 1e-9)
        value = np.where(inside, (10 * safe - np.log(safe)).sum(axis=1), np.nan)
        return value, np.where(inside[:, None], 10 - 1 / safe, np.nan)

    solution = minimise(with_cliff, np.array([[0.5]]))
    assert solution.status == (Status.converged,)
    assert solution.params[0, 0] == pytest.approx(0.1, rel=1e-5)


def test_steps_too_small_for_the_value_to_tell_are_taken() -> None:
    """Beside 1e9 the bowl's last digits are lost, and the gradient alone says where its bottom is."""
    solution = minimise(lambda p, rows: (1e9 + (p**2).sum(axis=1), 2 * p), np.array([[1e-4]]))
    assert solution.status == (Status.converged,)
    assert abs(solution.params[0, 0]) < 1e-5


def test_values_never_rise() -> None:
    values = []
    for iterations in range(0, 40, 4):
        solution = minimise(rosenbrock, np.array([[-1.2, 1.0]]), max_iterations=iterations)
        values.append(solution.value[0])
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("memory", [1, 3])
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    held = []

    def watched(grad: Any, steps: Any, *, inner: Any = optimise._two_loops) -> Any:
        held.append(len(steps))
        return inner(grad, steps)

    monkeypatch.setattr(optimise, "_two_loops", watched)
    minimise(steep_valley, np.array([[3.0, 1.0]]), memory=memory, max_iterations=8)
    assert max(held) == memory


def test_converged_on_the_last_iteration_is_converged() -> None:
    solution = minimise(bowl, np.array([[0.5]]), max_iterations=500)
    again = minimise(bowl, np.array([[0.5]]), max_iterations=int(solution.iterations[0]))
    assert again.status == (Status.converged,)


def test_ticks_end_at_one() -> None:
    shares: list[float] = []
    minimise(bowl, np.array([[0.5, 0.3], [4.0, 1.0]]), update=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def far_from(centre: float) -> Any:
    return lambda p: ((p - centre) ** 2).sum(axis=1)


def slope_to_three(p: np.ndarray) -> np.ndarray:
    return 2 * (p - 3)


def test_early_stopping_keeps_the_best_held_out_parameters() -> None:
    """The loss is lowest at 3, the held-out loss at 1 on the way there."""
    shares: list[float] = []
    solution = descend(
        slope_to_three,
        far_from(3),
        np.array([[0.0], [-0.3]]),
        held_out=far_from(1),
        every=2,
        patience=20,
        update=shares.append,
    )
    assert solution.status == (Status.stopped_early,) * 2
    np.testing.assert_allclose(solution.params, [[1.0], [1.0]], atol=0.06)
    np.testing.assert_allclose(solution.value, ((solution.params - 3) ** 2)[:, 0])
    assert shares[-1] < 0.2


def test_early_stopping_ends_with_all_epochs_where_the_held_out_loss_keeps_falling() -> None:
    start = np.array([[0.0]])
    solution = descend(slope_to_three, far_from(3), start, held_out=far_from(3), epochs=40, every=20)
    assert solution.status == (Status.finished,)
    assert solution.iterations.tolist() == [40]


def test_adam_says_when_values_are_not_finite() -> None:
    solution = descend(lambda p: p * np.nan, lambda p: p[:, 0] * np.nan, np.array([[-1.0]]), epochs=20)
    assert solution.status == (Status.not_finite,)
    assert solution.params.tolist() == [[-1.0]]
