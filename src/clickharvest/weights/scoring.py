"""Scoring: the propensity of every row of a log, through its cells of context and position.

The engine counts the distinct cells of context and position, NumPy scores these, and the engine joins them back: no
row leaves it. A model without context has as many cells as positions. Contexts are told apart as far as the model does
(`kinds`), so that a straight curve has few cells. Continuous numbers of a curve that bends make about as many cells as
the log has rows, with about 200 bytes of memory a cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.harvesting.numbering import as_array, as_column
from clickharvest.logs.ibis_inside import table_in_memory
from clickharvest.model.budget import CANNOT_TELL, STATES
from clickharvest.model.prediction import nearest_trusted, nearest_trusted_places
from clickharvest.model.propensities import Propensities
from clickharvest.weights.kinds import Levels, Number, column_kinds
from clickharvest.words import count

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.logs.click_log import ClickLog

Trust = Literal["checked", "all"]
"""Whether propensities whose state is `cannot tell` are clipped, or used as they are."""
CELLS_AT_ONCE = 100_000
"""Cells scored at a time."""


def model_context(log: ClickLog, propensities: Propensities) -> tuple[str, ...]:
    """Return the model's context columns, all of which the log must have been read with."""
    context = propensities.context
    if missing := [name for name in context if name not in log.context]:
        raise InputError(
            f"the model depends on the context column {', '.join(map(repr, missing))}, the log was read with "
            f"{', '.join(map(repr, log.context)) or 'no context'}: read it with context={list(context)}"
        )
    return context


def model_places(log: ClickLog, propensities: Propensities) -> NDArray[np.int64] | None:
    """Return the model's number of each of the log's places, one beyond its table if unknown; None for lists.

    Raises:
        InputError: one knows places, the other a list, the columns of places differ, or no place is known to both.
    """
    places = propensities.places
    if places is None and log.places is None:
        return None
    if places is None or log.places is None:
        known = "positions of a list" if places is None else f"places ({', '.join(places.columns)})"
        how = "--position" if places is None else f"--place {','.join(places.columns)}"
        raise InputError(f"the model speaks of {known}, and the log was read otherwise: read it with {how}")
    numbers = np.array(places.numbers_of(log.places), dtype=np.int64)
    if (numbers > len(places)).all():
        raise InputError(
            f"none of the log's {count(len(log.places), 'place')} is one of the model's {len(places):,}: found "
            f"{log.places.spell([1])}, expected such as {places.spell([propensities.curve.anchor])}; is it the same "
            "page?"
        )
    return numbers


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of context and position of a log, counted inside its engine.

    Attributes:
        log: the log.
        context: the context columns that tell them apart.
        kinds: of these, where a model does not tell all values apart.
        values: expressions of what tells them apart: `position`, `context_0`, …
        table: one row a cell: these, `rows`, `clicks` and the sums of other counts.
    """

    log: ClickLog
    context: tuple[str, ...]
    kinds: Mapping[str, Levels | Number]
    values: Mapping[str, ir.Value]
    table: pa.Table

    def counts(self, name: str) -> NDArray[np.int64]:
        """Return a column of the table that has no gaps, [n]."""
        return as_array(self.table[name])

    @property
    def contexts(self) -> dict[str, Any]:
        """The contexts by their names: numbers without gaps as arrays, all else as Arrow has it."""
        import pyarrow as pa

        contexts: dict[str, Any] = {}
        for i, name in enumerate(self.context):
            column = self.table[f"context_{i}"]
            if name in self.kinds:
                contexts[name] = self.kinds[name].stand_ins(column)
            else:
                plain = pa.types.is_floating(column.type) and not column.null_count
                contexts[name] = as_array(column) if plain else column
        return contexts

    @property
    def numbers(self) -> dict[str, tuple[int, Number]]:
        """The contexts whose numbers follow a line within a cell, and the place of each among all."""
        kinds = [self.kinds.get(name) for name in self.context]
        return {self.context[i]: (i, kind) for i, kind in enumerate(kinds) if isinstance(kind, Number)}

    def join(self, results: Mapping[str, NDArray[Any]]) -> ir.Table:
        """Return the log's source with results of the cells as further columns."""
        import ibis
        import pyarrow as pa

        numbers = [f"context_{i}" for i, _ in self.numbers.values()]
        keys: dict[str, tuple[ir.Value, Any]] = {}
        for name, value in self.values.items():
            column = self.table[name]
            if name in numbers and len(set(as_array(column).tolist())) == 1:
                continue  # all rows are alike in it
            if column.null_count:
                # NULL does not survive every way into an engine, so whether a value is empty is a key of its own.
                keys[f"cell_{name}_is_empty"] = (value.isnull(), column.is_null())
                kind = value.type()
                filler: Any = "" if kind.is_string() else False if kind.is_boolean() else 0
                value, column = value.fill_null(ibis.literal(filler, kind)), column.fill_null(filler)
            keys[f"cell_{name}"] = (value, column)
        columns = {name: column for name, (_, column) in keys.items()}
        is_text = {name: column.dtype.kind == "U" for name, column in results.items()}
        columns |= {name: (pa.array if is_text[name] else as_column)(column) for name, column in results.items()}
        scored = table_in_memory(pa.table(columns))
        conditions = [value == scored[name] for name, (value, _) in keys.items()]
        return self.log.source.left_join(scored, conditions, rname="{name}_of_cell")

    def join_lines(self, scored: Scored, results: Mapping[str, NDArray[Any]]) -> tuple[ir.Table, ir.Value]:
        """Return what `join` does, and the propensity of every row, whose numbers follow their lines."""
        free = f"{max((name.lower() for name in self.log.source.columns), key=len)}_line"  # no column has this name
        start, lines = scored.log_propensity, dict[str, NDArray[np.float64]]()
        for i, number in self.numbers.values():
            lines[f"{free}_{i}"], shift = number.lines(self.table[f"context_{i}"], scored.column)
            start = start + shift
        joined = self.join({**results, free: start, **lines})
        log_p = joined[free]
        for name, (i, number) in self.numbers.items():
            step = number.step(self.log.columns[name], self.table[f"context_{i}"])
            log_p = log_p + joined[f"{free}_{i}"] * step
        return joined, log_p.exp()


def count_cells(
    log: ClickLog, context: tuple[str, ...] = (), propensities: Propensities | None = None, **counts: ir.Value
) -> Cells:
    """Count the rows and clicks of every cell, and the sums of other counts, inside the engine.

    Args:
        log: the log.
        context: columns that tell cells apart, beside the position.
        propensities: a model, if its `kinds` of contexts are to be told apart and no more.
        counts: what else to sum.
    """
    kinds = {} if propensities is None else column_kinds(propensities, log.columns)
    values = {"position": log.columns["position"].cast("int64")}
    levels: dict[str, tuple[ir.Value, Levels]] = {}
    for i, name in enumerate(context):
        value, kind = log.columns[name], kinds.get(name)
        values[f"context_{i}"] = _without_nan(value) if kind is None else kind.key(value)
        if isinstance(kind, Levels):
            levels[f"context_{i}"] = value, kind
    # Levels are first counted as they are: there are few of them to look at then.
    as_they_are = values | {name: value for name, (value, _) in levels.items()}
    rows = log.source.select(**as_they_are, clicks=log.columns["clicks"], **counts)
    cells = rows.group_by(*values).agg(rows=rows.count(), **{name: rows[name].sum() for name in ("clicks", *counts)})
    if levels:
        cells = cells.mutate(**{name: kind.key(cells[name]) for name, (_, kind) in levels.items()})
    sums = {name: cells[name].sum().cast("int64") for name in ("rows", "clicks", *counts)}
    cells = cells.group_by(*values).agg(**sums)
    counted = log.engine.fetch(cells, task="Counting contexts")
    if counted["position"].null_count:
        raise InputError(f"column {log.roles['position']!r} is empty in some rows: fill them in or leave the rows out")
    return Cells(log, context, kinds, values, counted)


def _without_nan(value: ir.Value) -> ir.Value:
    """Return a context in which NaN is as empty as NULL."""
    import ibis

    return value.isnan().ifelse(ibis.null(value.type()), value) if value.type().is_floating() else value


@dataclass(frozen=True, eq=False)
class Scored:
    """The propensities of n cells.

    Attributes:
        log_propensity: log p of its own position, or of the one it is clipped to, [n].
        column: that position, by its index among the curve's, [n].
        clipped: whether it is not its own, [n].
        codes: index of the state of its own position in `model.budget.STATES`, [n].
        log_sd: standard deviation of the logarithm, 0 where the model tells none, [n].
    """

    log_propensity: NDArray[np.float64]
    column: NDArray[np.int64]
    clipped: NDArray[np.bool_]
    codes: NDArray[np.int8]
    log_sd: NDArray[np.float64]

    @cached_property
    def propensity(self) -> NDArray[np.float64]:
        """p of its own position, or of the one it is clipped to, [n]."""
        return np.exp(self.log_propensity)

    @property
    def state(self) -> NDArray[np.str_]:
        """The state of its own position, in words, [n]."""
        state: NDArray[np.str_] = np.array(STATES)[self.codes]
        return state

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether the state of its own position is not `cannot tell`, [n]."""
        supported: NDArray[np.bool_] = self.codes < STATES.index(CANNOT_TELL)
        return supported


def score_cells(cells: Cells, propensities: Propensities, *, trust: Trust = "checked") -> Scored:
    """Return the propensity of every cell.

    A position whose state in a context is `cannot tell` has the propensity of `nearest_trusted`, a place that of
    `nearest_trusted_places`.

    Args:
        cells: the cells.
        propensities: the model.
        trust: `"checked"`, or `"all"` to clip only where there is no number.
    """
    if trust not in get_args(Trust):
        raise InputError(f"trust is {trust!r}: expected {' or '.join(map(repr, get_args(Trust)))}")
    curve, encoder, place, contexts = propensities.curve, propensities.encoder, cells.counts("position"), cells.contexts
    known = np.array(curve.positions)
    of_curve = np.isin(propensities.shown, known)
    numbers = model_places(cells.log, propensities)
    position = place if numbers is None else numbers[place - 1]
    above = np.maximum(np.searchsorted(known, position, side="right") - 1, 0)
    is_known = known[above] == position
    own_log_p, log_sd = np.empty((2, len(position)))
    column, codes = np.empty(len(position), dtype=np.int64), np.full(len(position), 2, dtype=np.int8)
    for begin in range(0, len(position), CELLS_AT_ONCE):
        part = slice(begin, begin + CELLS_AT_ONCE)
        x, lacking = np.zeros((len(position[part]), 0)), None
        if encoder is not None:
            x, lacking = encoder.encode({name: values[part] for name, values in contexts.items()})
        log_p = curve.relative(propensities.params, x)
        shown, sd = propensities.state_codes(x, lacking)
        states = shown[:, of_curve]
        trusted = np.ones_like(states, dtype=bool) if trust == "all" else states < STATES.index(CANNOT_TELL)
        rows = np.arange(len(x))
        if propensities.places is None or cells.log.places is None:
            column[part] = nearest_trusted(trusted, curve.anchor_index)[rows, above[part]]
        else:
            column[part] = nearest_trusted_places(
                trusted, curve.anchor_index, log_p, curve.positions, propensities.places, cells.log.places, place[part]
            )
        codes[part] = np.where(is_known[part], states[rows, above[part]], codes[part])
        own_log_p[part] = log_p[rows, column[part]]
        log_sd[part] = sd[rows, column[part]]
    return Scored(own_log_p, column, known[column] != position, codes, log_sd)


def own_columns(log: ClickLog) -> dict[str, ir.Value]:
    """Return the log's columns as they are; only positions and clicks that a text file gave as text become numbers."""
    from clickharvest.logs.click_log import number

    columns = {name: log.source[name] for name in log.source.columns}
    for role in ("position", "original", "click", "clicks", "impressions"):
        name = log.roles.get(role)
        if name is not None and columns[name].type().is_string():
            columns[name] = number(columns[name], words=role == "click").cast("int64")
    return columns
