"""L-BFGS and Adam for many problems of one shape at a time. They know nothing of clicks.

A *batch* is B problems whose parameters are the rows of an array [B, n]: folds × penalties, bootstrap replicates,
several starts. `minimise` (L-BFGS) is for smooth problems, concave or nearly; `descend` (Adam) for networks, with
early stopping on a held-out loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from clickharvest.progress import Update, ignore

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
ValueAndGrad = Callable[[Array, Rows], tuple[Array, Array]]
MEAN, SQUARE, SMALL = 0.9, 0.999, 1e-8
"""Adam's β₁, β₂ and ε."""


class Status(StrEnum):
    """How an optimisation ended."""

    converged = "converged: the gradient is as small as asked for"
    stalled = "stalled: no step improves the value any more, at the limit of floating-point numbers"
    finished = "finished: all the epochs asked for are done"
    stopped_early = "stopped early: the held-out value no longer improves"
    out_of_iterations = "ran out of iterations before it converged: allow more, or raise the penalty"
    not_finite = "failed: the value is not finite, the parameters have left the sensible range"

    @property
    def good(self) -> bool:
        """Whether the parameters can be used."""
        return self in (Status.converged, Status.stalled, Status.finished, Status.stopped_early)


@dataclass(frozen=True)
class Solution:
    """The result of a batch of B problems.

    Attributes:
        params: parameters, [B, n].
        value: values there, [B].
        iterations: iterations taken, [B].
        status: how each ended.
    """

    params: Array
    value: Array
    iterations: NDArray[np.int64]
    status: tuple[Status, ...]


def minimise(
    value_and_grad: ValueAndGrad,
    start: Array,
    *,
    tolerance: float = 1e-5,
    max_iterations: int = 500,
    memory: int = 10,
    update: Update = ignore,
) -> Solution:
    """Minimise each problem of a batch by L-BFGS with backtracking.

    Args:
        value_and_grad: (parameters of some problems [b, n], their numbers [b]) → values [b] and gradients [b, n]. Only
            problems still at work are evaluated. Values should be of order one.
        start: where to start, [B, n].
        tolerance: a problem has converged when its largest gradient component is below this.
        max_iterations: at most so many steps.
        memory: pairs of steps and gradient changes that shape the next step.
        update: called with the share of problems that are done.
    """
    params = np.array(start, dtype=np.float64)
    batch = len(params)
    value, grad = value_and_grad(params, np.arange(batch))
    steps: list[tuple[Array, Array, Array]] = []
    status: list[Status | None] = [None] * batch
    iterations = np.zeros(batch, dtype=np.int64)
    for taken in range(max_iterations + 1):
        finite = np.isfinite(value) & np.isfinite(grad).all(axis=1)
        flat = np.abs(grad).max(axis=1, initial=0.0) < tolerance
        for i in range(batch):
            if status[i] is None and (flat[i] or not finite[i]):
                status[i] = Status.converged if finite[i] else Status.not_finite
        active = np.flatnonzero([s is None for s in status])
        update(1 - len(active) / batch)
        if not len(active) or taken == max_iterations:
            break
        iterations[active] += 1
        history = [(step[active], change[active], curvature[active]) for step, change, curvature in steps]
        direction = -_two_loops(grad[active], history)
        slope = (direction * grad[active]).sum(axis=1)
        direction = np.where(slope[:, None] < 0, direction, -grad[active])
        if not steps:
            direction /= np.maximum(1.0, np.linalg.norm(direction, axis=1, keepdims=True))
        slope = (direction * grad[active]).sum(axis=1)
        moved, new_value, new_grad = params.copy(), value.copy(), grad.copy()
        moved_on = _backtrack(value_and_grad, moved, new_value, new_grad, direction, slope, active)
        for stuck in active[~moved_on]:
            status[stuck] = Status.stalled
        step, change = moved - params, new_grad - grad
        curvature = (step * change).sum(axis=1)
        steps = [*steps, (step, change, np.where(curvature > 1e-12, curvature, np.inf))][-memory:]
        params, value, grad = moved, new_value, new_grad
    ended = tuple(Status.out_of_iterations if s is None else s for s in status)
    return Solution(params, value, iterations, ended)


def _two_loops(grad: Array, steps: list[tuple[Array, Array, Array]]) -> Array:
    """Return the approximate inverse Hessian times the gradient, row by row (Nocedal's recursion)."""
    q = grad.copy()
    shares = []
    for step, change, curvature in reversed(steps):
        share = (step * q).sum(axis=1) / curvature
        q -= share[:, None] * change
        shares.append(share)
    if steps:
        _, change, curvature = steps[-1]
        scale = np.where(np.isfinite(curvature), curvature, 1.0) / np.maximum((change**2).sum(axis=1), 1e-300)
        q *= np.where(np.isfinite(curvature), scale, 1.0)[:, None]
    for (step, change, curvature), share in zip(steps, reversed(shares), strict=True):
        q += (share - (change * q).sum(axis=1) / curvature)[:, None] * step
    return q


def _backtrack(
    value_and_grad: ValueAndGrad,
    params: Array,
    value: Array,
    grad: Array,
    direction: Array,
    slope: Array,
    active: Rows,
) -> NDArray[np.bool_]:
    """Move the active problems along their directions, halving a step until its value falls enough (Armijo).

    Changes `params`, `value` and `grad` in place where a step was found, and returns where, [active].
    """
    done = np.zeros(len(active), dtype=np.bool_)
    length = 1.0
    for _ in range(30):
        waiting = np.flatnonzero(~done)
        rows = active[waiting]
        tried = params[rows] + length * direction[waiting]
        new_value, new_grad = value_and_grad(tried, rows)
        enough = new_value <= value[rows] + 1e-4 * length * slope[waiting] + 1e-14 * np.abs(value[rows])
        enough &= np.isfinite(new_value)
        moved = rows[enough]
        params[moved], value[moved], grad[moved] = tried[enough], new_value[enough], new_grad[enough]
        done[waiting[enough]] = True
        if done.all():
            break
        length /= 2
    return done


def descend(
    grad: Callable[[Array], Array],
    loss: Callable[[Array], Array],
    start: Array,
    *,
    held_out: Callable[[Array], Array] | None = None,
    rate: float = 0.03,
    epochs: int = 1_000,
    patience: int = 100,
    every: int = 20,
    update: Update = ignore,
) -> Solution:
    """Minimise each problem of a batch by Adam, keeping the parameters with the best held-out loss.

    Args:
        grad: gradients of the loss, [B, n] → [B, n].
        loss: the loss of each problem, [B, n] → [B].
        start: where to start, [B, n].
        held_out: the loss of the part kept aside, [B, n] → [B]; None runs all epochs and keeps the last parameters.
        rate: Adam's learning rate.
        epochs: at most so many full-batch steps.
        patience: stop when no problem has improved for so many.
        every: steps between two looks at the held-out loss.
        update: called with the share of the epochs that is done.

    Example:
        >>> solution = descend(lambda p: 2 * (p - 3), lambda p: ((p - 3) ** 2).sum(axis=1), np.zeros((1, 1)))
        >>> solution.params.round(3).tolist(), solution.status[0].name
        ([[3.0]], 'finished')
    """
    params = np.array(start, dtype=np.float64)
    mean, square = np.zeros_like(params), np.zeros_like(params)
    best, best_value, best_loss = params.copy(), np.full(len(params), np.inf), np.full(len(params), np.inf)
    seen = np.zeros(len(params), dtype=np.int64)
    done = 0
    while done < epochs and (held_out is None or done - seen.max() < patience or not done):
        for step in range(done + 1, done + every + 1):
            slope = grad(params)
            mean += (1 - MEAN) * (slope - mean)
            square += (1 - SQUARE) * (slope * slope - square)
            params -= rate * (mean / (1 - MEAN**step)) / (np.sqrt(square / (1 - SQUARE**step)) + SMALL)
        done += every
        value = loss(params)
        judged = value if held_out is None else held_out(params)
        better = np.isfinite(judged) if held_out is None else judged < best_value
        best[better], best_value[better], best_loss[better] = params[better], judged[better], value[better]
        seen[better] = done
        update(min(1.0, done / epochs))
    early = held_out is not None and done < epochs
    status = [
        Status.not_finite if not np.isfinite(v) else Status.stopped_early if early else Status.finished
        for v in best_value
    ]
    return Solution(best, best_loss, seen, tuple(status))
