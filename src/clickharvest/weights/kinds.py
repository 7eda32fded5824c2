"""Kinds: of all values that a context column may hold, only those that a model tells apart.

A category knows its levels: whatever else a log holds counts as one value. A number of a *straight* curve, one whose
log p_k(x) is a straight line in every feature, is of one of a few kinds: in one of `PARTS` parts of its reach, each
taken to be as uncertain as its outer end; far outside; missing. Within a kind an engine follows the line by itself:

    log p_k(x) = log p_k(r) + Σ_j s_jk (v_j − r_j)      v_j the numbers of a row, r_j fixed ones, s_jk the slopes

So a log has no more cells of context and position than the model can tell apart, even if every page has a number of
its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.harvesting.numbering import as_array
from clickharvest.model.contexts import LARGEST, ContextColumn
from clickharvest.model.curves import Curve, Params
from clickharvest.model.trace import trace_curve

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.model.propensities import Propensities

PARTS = 32
"""Parts of a number's reach, in each of which it is trusted or not; half of the parts hold the numbers of training."""
MISSING, FAR, INFINITE, WITHIN = range(4)
"""The kinds of a number; from `WITHIN` on, of the parts of its reach."""
LINEAR = ("negative", "multiply", "divide", "matmul", "slice", "squeeze", "expand", "sum", "cumsum")
"""Steps of a curve that keep a straight line straight where all but one of their inputs are fixed."""


@dataclass(frozen=True)
class Levels:
    """The values of a category: its levels as the log has them, one for all others, and none.

    Attributes:
        known: the levels.
        other: a value that is none of them.
    """

    known: tuple[Any, ...]
    other: Any

    def key(self, value: ir.Value) -> ir.Value:
        """Return the level, or the one value that stands for all others; none stays none."""
        import ibis

        known = value.isin(self.known) if self.known else ibis.literal(False)
        return (value.isnull() | known).ifelse(value, ibis.literal(self.other, value.type()))

    def stand_ins(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the value that a model is given for each of these levels: the level itself."""
        return keys


@dataclass(frozen=True, eq=False)
class Number:
    """A number of a straight curve.

    Attributes:
        part: its column.
        slope: s_k, how much a unit of it adds to log p_k, [K].
        reach: from where to where it is supported; None where this is not known.
    """

    part: ContextColumn
    slope: NDArray[np.float64]
    reach: tuple[float, float] | None

    @property
    def middle(self) -> float:
        """The number r that lines go from."""
        return self.part.mean if self.reach is None else (self.reach[0] + self.reach[1]) / 2

    def key(self, value: ir.Value) -> ir.Value:
        """Return the kind of every row's number."""
        import ibis

        v = value.cast("float64")
        far, within = ibis.literal(False), ibis.literal(WITHIN, "int64")
        if self.reach is not None:
            low, high = self.reach
            number = self.part.mean + self.part.sd * ((v - self.part.mean) / self.part.sd)  # rounded as encoders do
            far = (number < low) | (number > high)
            if high > low:
                part = ((number - low) * (PARTS / (high - low))).floor()
                within = WITHIN + ibis.least(ibis.greatest(part, 0.0), PARTS - 1.0).cast("int64")
        kinds = [(_is_missing(value), MISSING), (v.abs() > LARGEST, INFINITE), (far, FAR)]
        return ibis.cases(*((is_kind, ibis.literal(kind, "int64")) for is_kind, kind in kinds), else_=within)

    def stand_ins(self, keys: pa.ChunkedArray) -> NDArray[np.float64]:
        """Return a number of each kind, of a part its outer end; an infinite one, for the model to refuse."""
        low, high = self.reach or (self.middle, self.middle)
        ends = np.linspace(low, high, PARTS + 1)[np.arange(PARTS) + (np.arange(PARTS) >= PARTS // 2)]
        ends = self.middle + (ends - self.middle) * (1 - 1e-9)  # rounding must not bring the last one beyond the reach
        numbers: NDArray[np.float64] = np.array([np.nan, high + (high - low), np.inf, *ends])[as_array(keys)]
        return numbers

    def lines(self, keys: pa.ChunkedArray, column: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the slopes of cells, and how far log p at r is from that of the cell's stand-in, [cells] each.

        Args:
            keys: kinds of the cells.
            column: index of the curve's position that each cell is scored as.
        """
        is_number = as_array(keys) != MISSING
        slope = np.where(is_number, self.slope[column], 0.0)
        return slope, slope * np.where(is_number, self.middle - self.stand_ins(keys), 0.0)

    def step(self, value: ir.Value, keys: pa.ChunkedArray) -> ir.Value:
        """Return v − r of every row, 0 where there is no number; the keys are those of all cells."""
        step = value.cast("float64") - self.middle
        return _is_missing(value).ifelse(0.0, step) if (as_array(keys) == MISSING).any() else step


def column_kinds(propensities: Propensities, values: Mapping[str, ir.Value]) -> dict[str, Levels | Number]:
    """Return the kinds of a log's context columns, by name; other columns are told apart value by value.

    Args:
        propensities: the model.
        values: the log's context columns.
    """
    kinds: dict[str, Levels | Number] = {}
    encoder, support = propensities.encoder, propensities.support
    if encoder is None:
        return kinds
    numeric = [p for p in encoder.parts if p.kind == "numeric" and values[p.name].type().is_numeric()]
    lines = slopes(propensities.curve, propensities.params) if numeric else None
    first = 0
    for i, part in enumerate(encoder.parts):
        kind = values[part.name].type()
        if part.kind == "categorical" and kind.is_string():
            other = next(text for n in itertools.count() if (text := "other" + "…" * n) not in part.levels)
            kinds[part.name] = Levels(part.levels, other)
        elif part.kind == "categorical" and kind.is_integer() and not any(map(_is_rounded, part.levels)):
            codes = tuple(int(level) for level in part.levels if _is_integer(level))
            kinds[part.name] = Levels(codes, next(n for n in itertools.count() if n not in codes))
        elif part in numeric and lines is not None:
            reach = None if support is None else support.columns[i].ends(part.sd)
            kinds[part.name] = Number(part, lines[first] / part.sd, reach)
        first += len(part.features)
    return kinds


def slopes(curve: Curve, params: Params) -> NDArray[np.float64] | None:
    """Return how much a unit of each feature adds to log p_k(x) / p_anchor(x), [d, K]; None where a curve bends.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> slopes(make_curve("linear", (1, 2), 1, 1), {"b": np.array([-1.0]), "W": np.array([[0.5]])})
        array([[0. , 0.5]])
        >>> mlp = make_curve("mlp", (1, 2), 1, 1, width=2)
        >>> slopes(mlp, mlp.init(np.random.default_rng(0))) is None
        True
    """
    if not _is_straight(curve):
        return None
    units = np.eye(curve.n_features)
    return np.asarray(curve.relative(params, units) - curve.relative(params, np.zeros((1, curve.n_features))))


def _is_straight(curve: Curve) -> bool:
    """Return whether log p_k(x) is a straight line in every feature, as far as the steps of the curve show."""
    try:
        program = trace_curve(curve)
    except InputError:  # a curve of the user's own, of functions that cannot be traced
        return False
    grows: list[bool] = []  # whether a step's value depends on x
    for step in program.steps:
        of = [grows[i] for i in step.of]
        is_linear = step.op in LINEAR and sum(of) == 1 and (of[0] or step.op == "multiply")
        if any(of) and not is_linear and step.op not in ("add", "subtract", "concatenate", "full_like"):
            return False
        grows.append(step.op == "input" or (any(of) and step.op != "full_like"))
    return True


def _is_missing(value: ir.Value) -> ir.Value:
    return value.isnull() | value.isnan() if value.type().is_floating() else value.isnull()


def _is_integer(level: str) -> bool:
    try:
        return str(int(level)) == level
    except ValueError:
        return False


def _is_rounded(level: str) -> bool:
    """Return whether several integers may be this level: those of columns with gaps become floats."""
    return _is_integer(level) and abs(int(level)) >= 2**53
