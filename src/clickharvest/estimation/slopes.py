"""Slopes: the derivatives of a formula of contexts, such as a curve, by its trace.

`model.trace` notes the array operations of a formula. Here each of them has two rules more: how a change of the result
is pulled back to what it was computed from (reverse, for gradients), and how changes of the parameters are pushed on
(forward, for the rows z of the information). So a formula is written once, without its derivatives.

Contexts are best given as columns in memory (Fortran's order), so that NumPy's loops are long ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.curves import Curve, Params, flatten_params, unflatten_params
from clickharvest.model.trace import ROWS, Program, Step, carry_out, trace_curve

Array = NDArray[np.float64]

CONTEXTS = 8_192
"""Contexts that are evaluated at once: what fits into a processor's cache is several times faster."""
OVERWRITING = ("add", "subtract", "negative", "multiply", "divide", "tanh", "exp")
"""Functions of each number whose slopes by one argument are not made of that argument."""
OVERWRITTEN = ("matmul", "add", "subtract", "negative", "multiply", "divide")
"""What makes new arrays, and is not needed for its own slopes; of quotients, where only the dividend changes."""


class Slopes:
    """The values of a formula of contexts, [m, columns], with its derivatives by a flat vector of parameters.

    Args:
        program: the formula as `trace_formula` has it.
        like: parameters of the shapes that it takes.

    Attributes:
        size: number n of parameters.
        columns: columns of the result.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> slopes = Slopes.of_curve(make_curve("linear", (1, 2), anchor=1, n_features=1))
        >>> values = slopes.run(np.array([0.5, -1.0]), np.array([[0.0], [3.0]]))
        >>> values[-1].tolist(), slopes.pull(values, np.array([[0.0, 1.0], [0.0, 1.0]])).tolist()
        ([[0.0, -1.0], [0.0, 0.5]], [3.0, 2.0])
    """

    def __init__(self, program: Program, like: Params) -> None:
        self._like = like
        self.size = sum(np.size(value) for value in like.values())
        self._steps = program.steps
        self.columns = int(program.steps[-1].shape[-1])
        active: list[bool] = []
        for step in self._steps:
            of = any(active[i] for i in step.of)
            active.append(step.op == "parameter" or (of and step.op != "full_like"))
        self._active = active
        self._over = [self._place_to_overwrite(step) for step in self._steps]

    @classmethod
    def of_curve(cls, curve: Curve) -> Slopes:
        """Return the slopes of log p_k(x) of a curve.

        Raises:
            InputError: the curve uses an array function that programs do not have.
        """
        return cls(trace_curve(curve, relative=False), curve.init(np.random.default_rng(0)))

    def _place_to_overwrite(self, step: Step) -> int | None:
        """Return which argument of a step its value may take the memory of: one that no derivative is made of."""
        if step.op not in OVERWRITING or sum(self._active[i] for i in step.of) != 1:
            return None
        place = next(place for place, i in enumerate(step.of) if self._active[i])
        made = self._steps[step.of[place]]
        last = step.op != "divide" or place == 0
        fresh = made.op in OVERWRITTEN and (made.op != "divide" or not self._active[made.of[1]])
        alone = sum(other.of.count(step.of[place]) for other in self._steps) == 1
        return place if last and fresh and alone and made.shape == step.shape else None

    def run(self, flat: Array, x: Array) -> list[Array]:
        """Return the values of all steps, the last one the result; those that nothing needs are overwritten."""
        params = unflatten_params(flat, self._like)
        values: list[Array] = []
        for step, over in zip(self._steps, self._over, strict=True):
            of = [values[i] for i in step.of]
            if over is not None:
                values.append(getattr(np, step.op)(*of, out=of[over]))
            elif step.op == "logaddexp":
                values.append(_log_of_sum(*of))
            elif step.op == "matmul" and of[0].ndim == of[1].ndim == 2:
                values.append((of[1].T @ of[0].T).T)
            else:
                values.append(carry_out(step, of, params, x))
        return values

    def values(self, flat: Array, pieces: list[Array]) -> Array:
        """Return the results of contexts in pieces, [m, columns]."""
        return joined([self.run(flat, x) for x in pieces])

    def pull_all(self, pieces: list[list[Array]], slope: Array) -> Array:
        """Return what `pull` does, of the values of several pieces, [n]."""
        ends = np.cumsum([len(values[-1]) for values in pieces])
        parts = zip(pieces, np.split(slope, ends[:-1]), strict=True)
        return sum((self.pull(values, np.asfortranarray(part)) for values, part in parts), np.zeros(self.size))

    def pull(self, values: list[Array], slope: Array) -> Array:
        """Return the gradient by the parameters, [n], of what has the slope [m, columns] by the result."""
        slopes: list[Any] = [None] * len(values)
        slopes[-1] = slope
        gradients = {name: np.zeros(np.shape(value)) for name, value in self._like.items()}
        for number in range(len(values) - 1, -1, -1):
            step, slope_here = self._steps[number], slopes[number]
            if slope_here is None:
                continue
            if step.op == "parameter":
                gradients[step.about["name"]] = slope_here
            for place, i in enumerate(step.of):
                if self._active[i]:
                    back = _pulled(step, place, [values[j] for j in step.of], values[number], slope_here)
                    back = _unspread(back, np.shape(values[i]))
                    slopes[i] = back if slopes[i] is None else slopes[i] + back
            slopes[number] = None
        return flatten_params(gradients)

    def push(self, values: list[Array]) -> Array:
        """Return how the result changes with each parameter, [m, columns, n]."""
        changes: list[Any] = []
        # Factors of each number, [m, columns], wait until changes, n times as many, are needed.
        factors: list[Any] = []
        for number, step in enumerate(self._steps):
            factor: Any = None
            if not self._active[number]:
                changes.append(None)
            elif step.op == "parameter":
                changes.append(self._units[step.about["name"]])
            else:
                of = [values[i] for i in step.of]
                active = [place for place, i in enumerate(step.of) if self._active[i]]
                only = changes[step.of[active[0]]]
                derivative = _factor(step.op, active[0], of, values[number]) if len(active) == 1 else None
                if derivative is not None and only.shape[:-1] == values[number].shape:
                    before = factors[step.of[active[0]]]
                    factor = derivative if before is None else before * derivative
                    changes.append(only)
                else:
                    scaled = [_scaled(changes[i], factors[i]) for i in step.of]
                    changes.append(_pushed(step, of, scaled, values[number]))
            factors.append(factor)
        return np.asarray(_scaled(changes[-1], factors[-1]))

    @cached_property
    def _units(self) -> Params:
        """How each parameter array changes with every parameter, [..., n]."""
        columns = [unflatten_params(unit, self._like) for unit in np.eye(self.size)]
        return {name: np.stack([unit_params[name] for unit_params in columns], axis=-1) for name in self._like}


def columns_of(x: Array) -> list[Array]:
    """Return contexts in pieces, with columns together in memory; where there is none, a piece without rows."""
    return [np.asfortranarray(x[some]) for some in runs(len(x), CONTEXTS)] or [x]


def joined(pieces: list[list[Array]]) -> Array:
    """Return the results of a formula, [m, columns], of the values of its steps for some contexts at a time."""
    return (
        pieces[0][-1] if len(pieces) == 1 else np.concatenate([np.ascontiguousarray(values[-1]) for values in pieces])
    )


def runs(length: int, size: int) -> Iterator[slice]:
    """Return slices of at most some size: of 5 by 3 from 0 to 3, and from 3 to 5."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))


def softplus(z: Array) -> Array:
    """Return log(1 + e^z); faster than NumPy's `logaddexp`."""
    result: Array = np.abs(z)
    np.negative(result, out=result)
    np.exp(result, out=result)
    result += 1.0
    np.log(result, out=result)
    result += np.maximum(z, 0.0)
    return result


def _log_of_sum(a: Array, b: Array) -> Array:
    """Return log(e^a + e^b)."""
    if b.ndim == 0 and b == 0.0:
        return softplus(a)
    return b + softplus(a - b)


def _scaled(change: Any, factor: Any) -> Any:
    """Return changes [..., n] times a factor of each number, [...], where both are there."""
    return change if change is None or factor is None else change * np.asarray(factor)[..., None]


def _factor(op: str, place: int, of: list[Array], value: Array) -> Any:
    """Return the derivative of a function of each number by one of its arguments."""
    a = of[0]
    b = of[1] if len(of) > 1 else a
    match op, place:
        case ("add", _) | ("subtract", 0):
            return 1.0
        case ("subtract", 1) | ("negative", 0):
            return -1.0
        case "multiply", _:
            return of[1 - place]
        case "divide", 0:
            return 1.0 / b
        case "divide", 1:
            return -value / b
        case "power", 0:
            return b * a ** (b - 1.0)
        case "power", 1:
            return np.where(a > 0, value * np.log(a), 0.0)
        case "maximum", 0:
            return a >= b
        case "maximum", 1:
            return a < b
        case "minimum", 0:
            return a <= b
        case "minimum", 1:
            return a > b
        case "logaddexp", _:
            return np.exp(of[place] - value)
        case "abs", _:
            return np.sign(a)
        case "exp", _:
            return value
        case "expm1", _:
            return value + 1.0
        case "log", _:
            return 1.0 / a
        case "log1p", _:
            return 1.0 / (1.0 + a)
        case "sqrt", _:
            return 0.5 / value
        case "tanh", _:
            return 1.0 - value * value
    return None


def _pulled(step: Step, place: int, of: list[Array], value: Array, slope: Array) -> Array:
    """Return the slope by one of a step's arguments, of the result's shape where that is broadcast."""
    if (factor := _factor(step.op, place, of, value)) is not None:
        return slope if isinstance(factor, float) and factor == 1.0 else np.asarray(slope * factor)
    a = of[0]
    match step.op:
        case "matmul":
            return _pulled_product(place, a, of[1], slope)
        case "sum":
            return np.broadcast_to(slope, a.shape)
        case "max":
            top = a == value
            return np.asarray(slope * top / top.sum(axis=-1, keepdims=True))
        case "cumsum":
            return np.asarray(np.cumsum(slope[..., ::-1], axis=-1)[..., ::-1])
        case "slice":
            whole = np.zeros_like(a)
            whole[_index(step, a.ndim)] = slope
            return whole
        case "squeeze":
            return np.expand_dims(slope, step.about["axes"])
        case "expand":
            return np.squeeze(slope, step.about["axes"])
        case "transpose":
            return slope.T
        case "concatenate":
            begin = sum(part.shape[-1] for part in of[:place])
            return slope[..., begin : begin + of[place].shape[-1]]
    raise AssertionError(f"no trace holds {step.op}")


def _pulled_product(place: int, a: Array, b: Array, slope: Array) -> Array:
    if place == 0:
        if b.ndim == 1:
            return np.multiply.outer(slope, b)
        return (b @ slope.T).T
    if a.ndim == 1:
        return np.multiply.outer(a, slope)
    return a.T @ slope


def _unspread(slope: Array, shape: tuple[int, ...]) -> Array:
    """Return a slope summed over the axes along which an argument was broadcast."""
    if slope.shape == shape:
        return slope
    slope = np.broadcast_to(slope, np.broadcast_shapes(slope.shape, shape))
    slope = slope.sum(axis=tuple(range(slope.ndim - len(shape))))
    axes = tuple(axis for axis, side in enumerate(shape) if side == 1 and slope.shape[axis] != 1)
    return slope.sum(axis=axes, keepdims=True) if axes else slope


def _pushed(step: Step, of: list[Array], changes: list[Any], value: Array) -> Array:
    """Return the changes [..., n] of a step's result, those of its arguments given, None where nothing changes."""
    change = changes[0]
    match step.op:
        case "matmul":
            return _pushed_product(of[0], of[1], changes[0], changes[1])
        case "sum":
            return np.asarray(change.sum(axis=-2, keepdims=True))
        case "max":
            top = of[0] == value
            return np.asarray((change * (top / top.sum(axis=-1, keepdims=True))[..., None]).sum(axis=-2, keepdims=True))
        case "cumsum":
            return np.cumsum(change, axis=-2)
        case "slice":
            return np.asarray(change[_index(step, of[0].ndim)])
        case "squeeze":
            return np.asarray(np.squeeze(change, step.about["axes"]))
        case "expand":
            return np.expand_dims(change, step.about["axes"])
        case "transpose":
            return np.swapaxes(change, 0, 1)
        case "concatenate":
            size = next(part_change.shape[-1] for part_change in changes if part_change is not None)
            parts = [
                np.zeros((*part.shape, size)) if part_change is None else part_change
                for part, part_change in zip(of, changes, strict=True)
            ]
            return np.concatenate(parts, axis=-2)
    total: Any = None
    for place, part_change in enumerate(changes):
        if part_change is not None:
            aligned = part_change.reshape(*[1] * (value.ndim + 1 - part_change.ndim), *part_change.shape)
            factor = np.asarray(_factor(step.op, place, of, value))
            part = aligned if factor.ndim == 0 and factor == 1.0 else aligned * factor[..., None]
            total = part if total is None else total + part
    return np.broadcast_to(total, (*value.shape, total.shape[-1]))


def _pushed_product(a: Array, b: Array, of_a: Any, of_b: Any) -> Array:
    total: Any = None
    if of_a is not None:
        product = np.swapaxes(of_a, -1, -2) @ b
        total = product if b.ndim == 1 else np.swapaxes(product, -1, -2)
    if of_b is not None:
        # One product of matrices for all parameters.
        whole = a @ of_b.reshape(len(of_b), math.prod(of_b.shape[1:]))
        whole = whole.reshape(*a.shape[:-1], *of_b.shape[1:])
        total = whole if total is None else total + whole
    return np.asarray(total)


def _index(step: Step, ndim: int) -> tuple[slice, ...]:
    """Return the index of what a slice keeps; contexts are never cut."""
    index = [slice(None)] * ndim
    for axis, begin, end in step.about["ranges"]:
        if end != ROWS:
            index[axis] = slice(begin, end)
    return tuple(index)
