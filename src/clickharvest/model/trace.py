"""Trace: the array operations of a curve as a program, so that its formula is written once.

A curve computes with whatever array functions it is given. `trace_curve` gives it functions that note every step, and
do none. The program is a list of these steps: gradients, ONNX and the report's page are made of it. NumPy alone.

What a curve may use, x [n, d] being the contexts, one in each row, and n unknown:

| | |
|---|---|
| operators | `+ - * / **`, unary `-`, `@` with a matrix or vector |
| functions of each number | `xp.` `abs, exp, expm1, log, log1p, sqrt, square, tanh, maximum, minimum, logaddexp` |
| along the last axis | `xp.sum, xp.max` (with `keepdims`), `xp.cumsum`, `xp.concatenate`; `axis=-1` |
| filled | `xp.zeros_like, xp.ones_like` |
| indices | `[…]` with numbers, slices of step 1, `...` and `None`; the rows of x stay together; `.T` of a matrix |

Constants, computed with NumPy from positions and shape, may stand anywhere. Anything else is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.curves import Curve, Params

Array = NDArray[np.float64]
Shape = tuple[int, ...]

ROWS = 1_000_003
"""Stands in shapes for the number of contexts: larger than any other side of an array, and prime."""
UNARY = ("abs", "exp", "expm1", "log", "log1p", "negative", "sqrt", "tanh")
BINARY = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "logaddexp")
ALONG = ("sum", "max", "cumsum")
OTHERS = ("square", "concatenate", "zeros_like", "ones_like")


@dataclass(frozen=True)
class Step:
    """One value of a program, and how it comes about.

    Attributes:
        op: `input`, `parameter`, `constant`, or the operation, called as in NumPy where NumPy has it.
        of: numbers of the steps it is computed from.
        shape: of the value, with `ROWS` for the number of contexts.
        about: what else the operation needs: the name of a parameter, the numbers of a constant, axes.
    """

    op: str
    of: tuple[int, ...]
    shape: Shape
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """What a curve computes, step by step; the last step is the result.

    Attributes:
        steps: the steps, each after those it is computed from.
    """

    steps: tuple[Step, ...]

    def run(self, params: Params, x: Array) -> Array:
        """Carry the program out with NumPy: x [n, d] → [n, K]."""
        values: list[Any] = []
        for step in self.steps:
            values.append(carry_out(step, [values[i] for i in step.of], params, x))
        return np.asarray(values[-1])

    def to_list(self) -> list[dict[str, Any]]:
        """Return the steps for one context at a time, as JSON holds them.

        A step is an object with `op`, `of`, `shape` and what the operation needs; the numbers of a constant are a flat
        list, `value`.
        """
        return [
            {"op": step.op, "of": list(step.of), "shape": [1 if side == ROWS else side for side in step.shape]}
            | {name: np.ravel(about).tolist() if name == "value" else about for name, about in step.about.items()}
            for step in self.steps
        ]


def trace_curve(curve: Curve, *, relative: bool = True) -> Program:
    """Return the program of `curve.relative`, log p_k(x) / p_anchor(x): parameters and x [n, d] → [n, K].

    Equal steps are there once, and steps that nothing needs are left out.

    Args:
        curve: the curve.
        relative: whether examination is relative to the anchor, or as `curve.log_examination` has it.

    Raises:
        InputError: the curve uses an array function that programs do not have.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("linear", (1, 2), anchor=1, n_features=1)
        >>> program = trace_curve(curve)
        >>> [step.op for step in program.steps]
        ['parameter', 'parameter', 'input', 'matmul', 'add', 'full_like', 'concatenate', 'slice', 'subtract']
        >>> program.run({"b": np.array([-1.0]), "W": np.array([[0.5]])}, np.array([[0.0], [3.0]])).tolist()
        [[0.0, -1.0], [0.0, 0.5]]
    """
    of = curve.relative if relative else curve.log_examination
    like = curve.init(np.random.default_rng(0))
    return trace_formula(f"the curve {curve.name!r}", of, like, curve.n_features, len(curve.positions))


def trace_formula(what: str, formula: Callable[..., Any], like: Params, n_features: int, columns: int) -> Program:
    """Return the program of a formula of (parameters, x [n, n_features], xp) → [n, columns].

    Args:
        what: what the formula is, for messages.
        formula: the formula.
        like: parameters of the shapes that it takes.
        n_features: features of a context.
        columns: columns of the result.
    """
    trace = Trace(what)
    params = {name: trace.note("parameter", (), np.shape(like[name]), name=name) for name in sorted(like)}
    result = formula(params, trace.note("input", (), (ROWS, n_features)), xp=trace)
    expected = (ROWS, columns)
    if not isinstance(result, Value) or result.shape != expected:
        returned = _spell(result.shape) if isinstance(result, Value) else type(result).__name__
        raise InputError(f"{trace.what} returns {returned}: expected {_spell(expected)}, a row for each context")
    return Program(_needed(trace.steps, result.number))


class Trace:
    """The array functions that a curve may use, and the steps noted so far."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.steps: list[Step] = []
        self._known: dict[Any, int] = {}

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name in UNARY:
            return lambda z: self._of_each(name, z)
        if name in BINARY:
            return lambda a, b: self._of_each(name, a, b)
        if name in ALONG:
            return lambda z, axis=None, keepdims=False: self._along(name, z, axis, keepdims)
        raise InputError(
            f"{self.what} uses xp.{name}, which a program does not have: expected operators, indices or one of "
            f"{', '.join((*UNARY, *BINARY, *ALONG, *OTHERS))}"
        )

    def square(self, z: Value) -> Value:
        """Note z²."""
        return z * z

    def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Value:
        """Note parts side by side, without empty ones."""
        values = [value for part in parts if (value := self._value(part)).shape[-1:] != (0,)]
        shapes = {value.shape[:-1] for value in values}
        if len(shapes) != 1 or axis not in (-1, len(values[0].shape) - 1):
            self._refuse(f"xp.concatenate of {' and '.join(_spell(value.shape) for value in values)} on axis {axis}")
        sides = sum(value.shape[-1] for value in values)
        return self.note("concatenate", values, (*values[0].shape[:-1], sides))

    def zeros_like(self, z: Value) -> Value:
        """Note as many zeros."""
        return self.note("full_like", [z], z.shape, fill=0.0)

    def ones_like(self, z: Value) -> Value:
        """Note as many ones."""
        return self.note("full_like", [z], z.shape, fill=1.0)

    def matmul(self, a: Any, b: Any) -> Value:
        """Note a @ b."""
        left, right = self._value(a), self._value(b)
        plain = len(left.shape) in (1, 2) and len(right.shape) in (1, 2) and ROWS not in right.shape
        if not plain or left.shape[-1] != right.shape[0]:
            self._refuse(f"{_spell(left.shape)} @ {_spell(right.shape)}")
        return self.note("matmul", [left, right], left.shape[:-1] + right.shape[1:])

    def note(self, op: str, of: Sequence[Value], shape: Shape, **about: Any) -> Value:
        """Note a step, unless an equal one is there already."""
        step = Step(op, tuple(value.number for value in of), shape, about)
        content = {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in about.items()}
        key = (op, step.of, shape, tuple(content.items()))
        if key not in self._known:
            self._known[key] = len(self.steps)
            self.steps.append(step)
        return Value(self, self._known[key], shape)

    def index(self, value: Value, index: Any) -> Value:
        """Note `value[index]`: what is cut off, then axes that vanish, then axes that come."""
        parts = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(part, int | np.integer | slice) or part is None or part is Ellipsis for part in parts):
            self._refuse(f"the index {index!r}")
        gap = len(value.shape) - sum(part is not None and part is not Ellipsis for part in parts)
        at = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
        whole = [*parts[:at], *[slice(None)] * gap, *parts[at + 1 :]]
        kept = [part for part in whole if part is not None]
        ranges = [self._range(part, size) for part, size in zip(kept, value.shape, strict=False)]
        if gap < 0 or None in ranges:
            self._refuse(f"the index {index!r} of {_spell(value.shape)}")
        cut = tuple((axis, *ends) for axis, ends in enumerate(ranges) if ends != (0, value.shape[axis]))
        if cut:
            sides = tuple(end - begin for begin, end in ranges)
            value = self.note("slice", [value], sides, ranges=cut)
        gone = tuple(axis for axis, part in enumerate(kept) if not isinstance(part, slice))
        if gone:
            sides = tuple(side for axis, side in enumerate(value.shape) if axis not in gone)
            value = self.note("squeeze", [value], sides, axes=gone)
        shown = [part for part in whole if part is None or isinstance(part, slice)]
        new = tuple(axis for axis, part in enumerate(shown) if part is None)
        if new:
            old = iter(value.shape)
            sides = tuple(1 if part is None else next(old) for part in shown)
            value = self.note("expand", [value], sides, axes=new)
        return value

    @staticmethod
    def _range(part: Any, size: int) -> Any:
        """Return where a part of an index begins and ends on an axis, None where it cannot be noted."""
        if isinstance(part, slice):
            begin, end, step = part.indices(size)
        else:
            begin, step = int(part) + (size if part < 0 else 0), 1
            end = begin + 1
        end = max(begin, end)
        whole = size != ROWS or (begin, end) == (0, ROWS)
        return (begin, end) if step == 1 and whole and begin >= 0 and end <= size else None

    def transpose(self, value: Value) -> Value:
        """Note a matrix with rows and columns exchanged."""
        if len(value.shape) != 2 or ROWS in value.shape:
            self._refuse(f"the transpose of {_spell(value.shape)}")
        return self.note("transpose", [value], value.shape[::-1])

    def _of_each(self, op: str, *of: Any) -> Value:
        values = [self._value(part) for part in of]
        try:
            shape = np.broadcast_shapes(*(value.shape for value in values))
        except ValueError:
            self._refuse(f"{op} of {' and '.join(_spell(value.shape) for value in values)}")
        return self.note(op, values, shape)

    def _along(self, op: str, z: Value, axis: int | None, keepdims: bool) -> Value:
        if axis not in (-1, len(z.shape) - 1) or z.shape[-1] == ROWS:
            self._refuse(f"xp.{op} of {_spell(z.shape)} along axis {axis}")
        if op == "cumsum":
            return self.note(op, [z], z.shape)
        kept = self.note(op, [z], (*z.shape[:-1], 1))
        return kept if keepdims else kept[..., 0]

    def _value(self, part: Any) -> Value:
        if isinstance(part, Value):
            return part
        constant = np.asarray(part, dtype=np.float64)
        if not np.isfinite(constant).all():
            self._refuse("a constant that is not finite")
        return self.note("constant", (), constant.shape, value=constant)

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(f"{self.what} uses {what}, which a program does not have: see clickharvest.model.trace")


def _operator(op: str, swapped: bool = False) -> Callable[[Value, Any], Value]:
    """Return the method of `Value` that notes an operation with another operand, which stands first if `swapped`."""

    def note(value: Value, other: Any) -> Value:
        operation: Callable[[Any, Any], Value] = getattr(value.trace, op)
        return operation(other, value) if swapped else operation(value, other)

    return note


class Value:
    """An array that will be there when the program runs; arithmetic on it notes steps."""

    __array_ufunc__ = None  # so that NumPy leaves `array + value` to the value

    def __init__(self, trace: Trace, number: int, shape: Shape) -> None:
        self.trace, self.number, self.shape = trace, number, shape

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", swapped=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", swapped=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", swapped=True)
    __matmul__, __rmatmul__ = _operator("matmul"), _operator("matmul", swapped=True)
    __pow__ = _operator("power")

    def __neg__(self) -> Value:
        return self.trace.negative(self)

    def __getitem__(self, index: Any) -> Value:
        return self.trace.index(self, index)

    @property
    def T(self) -> Value:
        """The matrix with rows and columns exchanged."""
        return self.trace.transpose(self)


def carry_out(step: Step, of: list[Array], params: Params, x: Array) -> Any:
    """Return a step's value, of the values it is computed from."""
    if step.op in (*UNARY, *BINARY, "matmul"):
        return getattr(np, step.op)(*of)
    if step.op in ("sum", "max"):
        return getattr(np, step.op)(of[0], axis=-1, keepdims=True)
    if step.op == "slice":
        index = [slice(None)] * of[0].ndim
        for axis, begin, end in step.about["ranges"]:
            index[axis] = slice(begin, end)
        return of[0][tuple(index)]
    others: dict[str, Callable[[], Any]] = {
        "input": lambda: x,
        "parameter": lambda: params[step.about["name"]],
        "constant": lambda: step.about["value"],
        "cumsum": lambda: np.cumsum(of[0], axis=-1),
        "concatenate": lambda: np.concatenate(of, axis=-1),
        "full_like": lambda: np.full_like(of[0], step.about["fill"]),
        "squeeze": lambda: np.squeeze(of[0], step.about["axes"]),
        "expand": lambda: np.expand_dims(of[0], step.about["axes"]),
        "transpose": lambda: of[0].T,
    }
    return others[step.op]()


def _needed(steps: Sequence[Step], result: int) -> tuple[Step, ...]:
    """Return the steps that a result is computed from, numbered anew."""
    needed = {result}
    for number in range(result, -1, -1):
        if number in needed:
            needed.update(steps[number].of)
    anew = {number: place for place, number in enumerate(sorted(needed))}
    return tuple(replace(steps[number], of=tuple(anew[i] for i in steps[number].of)) for number in sorted(needed))


def _spell(shape: Shape) -> str:
    return f"[{', '.join('n' if side == ROWS else str(side) for side in shape)}]"
