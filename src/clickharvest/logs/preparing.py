"""Preparing: what must be done to a log's rows before they can be one row per document of one list.

- `block`: keep the rows of one block of the page, such as the results without the ads.
- `page_number`, `page_size`: positions that start again on every page of a list become places in the list,
  (page number − 1) · page size + position.
- `repeat`: a document that a page shows twice keeps its first place, and is clicked if any of its places was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import ibis

from clickharvest.errors import InputError
from clickharvest.logs.click_log import RANDOM, find_column, number
from clickharvest.logs.sources import spell_columns
from clickharvest.words import clean_text, count

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.engines import Engine

Repeat = Literal["first"]
SPELT = 6
"""Values of a column that a message lists."""


@dataclass(frozen=True)
class Preparation:
    """What to do to the rows, see the module; nothing by default."""

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
    def asked(self) -> dict[str, Any]:
        """What is asked for, by name."""
        words = ("block", "random")
        return {name: dict(value) if name in words else value for name, value in vars(self).items() if value}

    def apply(
        self, opened: ir.Table, roles: Mapping[str, str], context: Sequence[str], base: int, engine: Engine | None
    ) -> ir.Table:
        """Return the rows as they are wanted, in the log's own columns.

        Args:
            opened: the log as it came.
            roles: its columns by role.
            context: its context columns.
            base: what its positions count from.
            engine: where to check blocks and page numbers; None leaves that out.

        Raises:
            InputError: a column is missing, no row is of the block, or page numbers or positions cannot be what they
                are said to be.
        """
        for name, value in self.block.items():
            column = _column(opened, name, "--block")
            kept = _has_value(opened, column, value, "--block")
            if engine is not None:
                _check_value(opened, kept, column, value, "--block", engine)
            opened = opened.filter(kept)
        for name, value in self.random.items():
            column = _column(opened, name, "--random")
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
        column = _column(opened, self.page_number, "--page-number")
        page, own = number(opened[column]), roles["position"]
        position = number(opened[own])
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
                    f"column {own!r}: {broken['position']:,} rows are beyond {last}, the end of a page by --page-size "
                    f"{self.page_size}: name the right size, or leave --page-number out if positions count through"
                )
        shift = (page - 1) * self.page_size
        moved = {roles[role]: number(opened[roles[role]]) + shift for role in ("position", "original") if role in roles}
        return opened.mutate(**moved)


def _column(opened: ir.Table, name: str, option: str) -> str:
    column = find_column(opened.columns, name)
    if column not in opened.columns:
        raise InputError(f"{option} {name}: no such column, found {spell_columns(opened.columns)}")
    return column


def _has_value(opened: ir.Table, column: str, value: str, option: str) -> ir.BooleanValue:
    found = opened[column]
    if found.type().is_numeric():
        try:
            return found == float(value)
        except ValueError:
            told = f"{option} {column}={value}: the column holds {found.type()}, expected a number"
            raise InputError(told) from None
    return _as_text(found) == (value.lower() if found.type().is_boolean() else value)


def _as_text(column: ir.Value) -> ir.Value:
    text = column.cast("string")
    return text.lower() if column.type().is_boolean() else text


def _check_value(opened: ir.Table, kept: ir.BooleanValue, column: str, value: str, option: str, engine: Engine) -> None:
    """Raise `InputError` with the values that the column has, the most frequent first, if no row has this one."""
    if engine.fetch(opened.filter(kept).select(column).limit(1), task="Looking for rows").num_rows:
        return
    values = opened.group_by(value=opened[column]).agg(rows=opened.count())
    first = values.order_by(ibis.desc("rows"), "value").limit(SPELT + 1)
    found = engine.fetch(first.mutate(text=_as_text(first.value)), task="Looking for rows").to_pylist()
    if found:
        texts = ["nothing" if one["text"] is None else clean_text(one["text"]) for one in found[:SPELT]]
        names = [f"{text} ({count(one['rows'], 'row')})" for text, one in zip(texts, found, strict=False)]
        more = " and others" * (len(found) > SPELT)
        raise InputError(f"{option} {column}={value}: no row has this value; found {', '.join(names)}{more}")


def _first_places(opened: ir.Table, roles: Mapping[str, str], context: Sequence[str]) -> ir.Table:
    if "page" not in roles or "click" not in roles:
        raise InputError(
            "--repeat first needs pages of one row per impression: name their column with --page, and that of clicks "
            "with --click"
        )
    page, doc, click = (opened[roles[role]] for role in ("page", "doc", "click"))
    order = [number(opened[roles["position"]]), *(opened[column] for column in context)]
    # Names of its own, whatever the log's columns are called.
    place, clicked = "_clickharvest_place", "_clickharvest_click"
    numbered = opened.mutate(
        **{
            place: ibis.row_number().over(group_by=[page, doc], order_by=order),
            clicked: number(click, words=True).max().over(group_by=[page, doc]),
        }
    )
    first = numbered.filter(numbered[place] == 0)
    return first.mutate(**{roles["click"]: first[clicked]}).drop(place, clicked)
