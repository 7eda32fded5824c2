"""Preparing: turn the rows of a log into one row per document of one list.

- `block`: keep the rows of one block of the page, such as the results without the ads.
- `page_number`, `page_size`: positions that start again on every page of a list become places in the list,
  (page number − 1) · page size + position.
- `repeat`: a document that a page shows twice keeps its first place, and is clicked if any of its places was.
- places: the columns that tell where a result stood become the number of its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import ibis

from clickharvest.errors import InputError
from clickharvest.logs.click_log import RANDOM, find_column, number, require_column
from clickharvest.positions.places import MOST_PLACES, Places
from clickharvest.words import clean_text, count, spell_columns

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.engines import Engine

Repeat = Literal["first"]
SPELT = 6
"""Most values of a column that a message lists."""
NUMBER = "_clickharvest_place"
"""The column of the number of a row's place."""


@dataclass(frozen=True)
class Preparation:
    """The changes to the rows, see the module; none by default."""

    block: Mapping[str, str] = field(default_factory=dict)
    page_number: str | None = None
    page_size: int | None = None
    repeat: Repeat | None = None
    random: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.page_number is None) != (self.page_size is None):
            raise InputError(
                "places in the list need both the column of the page number and the size of a page: "
                "--page-number COLUMN --page-size N"
            )
        if self.page_size is not None and not 1 <= self.page_size <= 10_000:
            raise InputError(f"--page-size {self.page_size}: expected the results of a page, 1 to 10000")
        if self.repeat not in (None, "first"):
            raise InputError(f"--repeat {self.repeat}: expected first")

    @property
    def given(self) -> dict[str, Any]:
        """The options that are given, by name."""
        return {
            name: value if isinstance(value, str | int) else dict(value) for name, value in vars(self).items() if value
        }

    def apply(
        self, opened: ir.Table, roles: Mapping[str, str], context: Sequence[str], base: int, engine: Engine | None
    ) -> ir.Table:
        """Return the prepared rows, in the log's own columns.

        Args:
            opened: the log as it came.
            roles: its columns by role.
            context: its context columns.
            base: what its positions count from.
            engine: where to check blocks and page numbers; None checks nothing.

        Raises:
            InputError: a column is missing, no row is of the block, or page numbers or positions cannot be what they
                are said to be.
        """
        for name, value in self.block.items():
            column = require_column(opened.columns, name, "--block")
            kept = _has_value(opened, column, value, "--block")
            if engine is not None:
                _check_value(opened, kept, column, value, "--block", engine)
            opened = opened.filter(kept)
        for name, value in self.random.items():
            column = require_column(opened.columns, name, "--random")
            shuffled = _has_value(opened, column, value, "--random")
            if engine is not None:
                _check_value(opened, shuffled, column, value, "--random", engine)
            opened = opened.mutate(**{RANDOM: shuffled.fill_null(False)})
        if self.page_number is not None:
            opened = self._count_through(opened, roles, base, engine)
        return opened if self.repeat is None else _first_places(opened, roles, context)

    def _count_through(self, opened: ir.Table, roles: Mapping[str, str], base: int, engine: Engine | None) -> ir.Table:
        assert self.page_number is not None
        assert self.page_size is not None
        column = require_column(opened.columns, self.page_number, "--page-number")
        page, position_column = number(opened[column]), roles["position"]
        position = number(opened[position_column])
        if engine is not None:
            last = self.page_size - 1 + base
            bad_page = ~(page >= 1) | (page > 1_000_000) | (page % 1 != 0)
            counts = opened.agg(
                page=bad_page.fill_null(True).ifelse(1, 0).sum(), position=(position > last).ifelse(1, 0).sum()
            )
            broken = engine.fetch(counts, task="Checking the pages").to_pylist()[0]
            if broken["page"]:
                raise InputError(
                    f"column {column!r}: {broken['page']:,} rows are no page numbers; expected 1, 2, 3 …: "
                    "add 1 where the first page is 0"
                )
            if broken["position"]:
                raise InputError(
                    f"column {position_column!r}: {broken['position']:,} rows are beyond {last}, the end of a page by "
                    f"--page-size {self.page_size}: name the right size, or leave --page-number out if positions "
                    "count through"
                )
        shift = (page - 1) * self.page_size
        moved = {roles[role]: number(opened[roles[role]]) + shift for role in ("position", "original") if role in roles}
        return opened.mutate(**moved)


def _has_value(opened: ir.Table, column: str, value: str, option: str) -> ir.BooleanValue:
    values = opened[column]
    if values.type().is_numeric():
        try:
            return values == float(value)
        except ValueError:
            message = f"{option} {column}={value}: the column holds {values.type()}, expected a number"
            raise InputError(message) from None
    return _as_text(values) == (value.lower() if values.type().is_boolean() else value)


def _as_text(column: ir.Value) -> ir.Value:
    text = column.cast("string")
    return text.lower() if column.type().is_boolean() else text


def _check_value(opened: ir.Table, kept: ir.BooleanValue, column: str, value: str, option: str, engine: Engine) -> None:
    """Raise `InputError` with the most frequent values of the column if no row has this value."""
    if engine.fetch(opened.filter(kept).select(column).limit(1), task="Looking for rows").num_rows:
        return
    values = opened.group_by(value=opened[column]).agg(rows=opened.count())
    first = values.order_by(ibis.desc("rows"), "value").limit(SPELT + 1)
    frequent = engine.fetch(first.mutate(text=_as_text(first.value)), task="Looking for rows").to_pylist()
    if frequent:
        texts = ["nothing" if one["text"] is None else clean_text(one["text"]) for one in frequent[:SPELT]]
        names = [f"{text} ({count(one['rows'], 'row')})" for text, one in zip(texts, frequent, strict=False)]
        more = " and others" * (len(frequent) > SPELT)
        raise InputError(f"{option} {column}={value}: no row has this value; found {', '.join(names)}{more}")


def _first_places(opened: ir.Table, roles: Mapping[str, str], context: Sequence[str]) -> ir.Table:
    if "page" not in roles or "click" not in roles:
        raise InputError(
            "--repeat first needs pages of one row per impression: name their column with --page, and that of clicks "
            "with --click"
        )
    page, doc, click = (opened[roles[role]] for role in ("page", "doc", "click"))
    order = [number(opened[roles["position"]]), *(opened[column] for column in context)]
    # Reserved names, which no column of the log has.
    place, clicked = "_clickharvest_place", "_clickharvest_click"
    numbered = opened.mutate(
        **{
            place: ibis.row_number().over(group_by=[page, doc], order_by=order),
            clicked: number(click, words=True).max().over(group_by=[page, doc]),
        }
    )
    first = numbered.filter(numbered[place] == 0)
    return first.mutate(**{roles["click"]: first[clicked]}).drop(place, clicked)


def place_columns(columns: Sequence[str], names: Sequence[str], context: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the log that make places.

    Raises:
        InputError: one is missing, named twice or a context column, too.
    """
    placed = tuple(find_column(columns, name) for name in names)
    if missing := [name for name in placed if name not in columns]:
        raise InputError(f"--place {','.join(names)}: no column {missing[0]!r}, found {spell_columns(columns)}")
    if len(set(placed)) < len(placed):
        raise InputError(f"--place {','.join(names)}: a column is named twice; name it once")
    if both := [name for name in placed if name in {find_column(columns, column) for column in context}]:
        raise InputError(f"column {both[0]!r} is named by --place and --context: it is one of the two; name it once")
    return placed


def number_places(opened: ir.Table, columns: Sequence[str], engine: Engine) -> tuple[ir.Table, Places | None]:
    """Return the rows with the number of their place, and the table of places.

    One column of numbers is a list: its numbers are the positions, and there is no table.

    Args:
        opened: the log.
        columns: its columns that make places.
        engine: where it lives.

    Raises:
        InputError: rows have no place, or there are too many places.
    """
    plain = {f"_place_{i}": _comparable(opened[column]) for i, column in enumerate(columns)}
    rows = opened.select(**plain)
    counted = rows.group_by(*plain).agg(_rows=rows.count()).limit(MOST_PLACES + 1)
    counted_places = engine.fetch(counted, task="Looking at places")
    if counted_places.num_rows > MOST_PLACES:
        raise InputError(
            f"--place {','.join(columns)} makes more than {MOST_PLACES:,} places: expected where results stand, not an "
            "identifier; name fewer or coarser columns"
        )
    if not counted_places.num_rows:
        raise InputError("the log is empty: expected at least one row (of the block, where --block names one)")
    labels = list(zip(*(counted_places[name].to_pylist() for name in plain), strict=True))
    for i, column in enumerate(columns):
        empty = sum(
            n for n, label in zip(counted_places["_rows"].to_pylist(), labels, strict=True) if _is_empty(label[i])
        )
        if empty:
            raise InputError(
                f"column {column!r}: {empty:,} rows are empty, and do not tell their place; fill them in or leave "
                "those rows out"
            )
    places = Places.of(columns, labels)
    if len(columns) == 1 and places.is_numeric(0):
        return opened, None
    numbers = ibis.memtable(counted_places.select(list(plain)).append_column(NUMBER, [_place_numbers(labels, places)]))
    joined = opened.left_join(numbers, [value == numbers[name] for name, value in plain.items()])
    return joined.select(*(opened[name] for name in opened.columns), numbers[NUMBER]), places


def _place_numbers(labels: list[tuple[Any, ...]], places: Places) -> list[int]:
    """Return the number of the place of each label; texts may be numbers."""
    number = {label: k for k, label in enumerate(places.labels, 1)}
    numeric = [places.is_numeric(i) for i in range(len(places.columns))]
    return [
        number[
            tuple(
                float(v) if is_number and isinstance(v, str) else v for v, is_number in zip(label, numeric, strict=True)
            )
        ]
        for label in labels  # 1 and 1.0 are one key; a float would not hold the last digits of a long number
    ]


def _comparable(column: ir.Value) -> ir.Value:
    """Return a column as integers, floats or texts."""
    kind = column.type()
    if kind.is_integer():
        return column.cast("int64")
    return column.cast("float64") if kind.is_numeric() and not kind.is_boolean() else column.cast("string")


def _is_empty(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())
