"""Click logs: an Ibis table plus the roles of its columns, checked inside the engine.

| role | what it holds |
|---|---|
| `query` | the query (or page type, user need …) a result was shown for |
| `doc` | the result: a document, product, video |
| `position` | where it was shown; 1 is the top. Or the number of its place, see `clickharvest.positions.places` |
| `click` | 1 or true if it was clicked: one row per impression |
| `clicks`, `impressions` | the same, counted: one row per group of impressions |
| `ranker` | which ranker or A/B arm made the page (optional) |
| `page` | which result page the row belongs to (optional) |
| `user` | who saw it: user, visitor or session; may be empty where unknown (optional) |
| `time` | when it was shown (optional) |
| `original` | where the ranker had put it before an explicit swap (optional, for swap experiments) |
| context | any columns that examination may depend on: device, query length, … |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from clickharvest.errors import InputError
from clickharvest.logs.engines import Engine, is_drawn
from clickharvest.logs.log_facts import LogFacts, lack_unclicked
from clickharvest.positions.places import Places
from clickharvest.words import count, spell_columns

REQUIRED = ("query", "doc", "position")
COUNTS = ("click", "clicks", "impressions")
OPTIONAL = ("ranker", "page", "user", "time", "original")
ROLES = REQUIRED + COUNTS + OPTIONAL
RESERVED = {"unit", "exposure", *ROLES} - {"user"}
"""Column names of a harvested table, which no context column may have."""
OURS = "_clickharvest_"
"""Prefix of the names of columns that are added to a log inside the engine."""
RANDOM = f"{OURS}random"
"""Column that reading adds: whether a row belongs to a page in random order."""
WORDS = {"true": 1.0, "yes": 1.0, "y": 1.0, "t": 1.0, "false": 0.0, "no": 0.0, "n": 0.0, "f": 0.0}
"""Words that count as a click or as none."""
DAY = 86_400
LONGEST = 1_000_000
"""Days that a log may cover; more means broken times."""


@dataclass(frozen=True, repr=False)
class ClickLog:
    """A click log with its columns under their role names.

    Attributes:
        source: the log as it came.
        columns: expressions on `source`: `query, doc, position, clicks, impressions`, the optional roles the
            log has, and the context columns under their own names. Positions start at 1.
        context: names of the context columns.
        roles: the log's own column name of each role.
        engine: where the log lives.
        position_base: what the log's own positions count from, 1 or 0.
        facts: counts from the checks; None where the rows were not checked.
        is_text: whether every query parses the rows anew, as from CSV.
        prepared: what was done to the rows first, see `clickharvest.logs.preparing`.
        tallies: number of tallies that the log is made of, 0 for a log of displays, see `clickharvest.logs.tallies`.
        share: share of the queries that `table` keeps, see `thinned`.
        likely: digests of some columns, and their names: `table` keeps the rows with these digests; None keeps all.
        places: what positions stand for, where they are numbers of places and not of a list.
    """

    source: ir.Table
    columns: dict[str, ir.Value]
    context: tuple[str, ...]
    roles: dict[str, str]
    engine: Engine
    position_base: int = 1
    facts: LogFacts | None = None
    is_text: bool = False
    prepared: Mapping[str, Any] = field(default_factory=dict)
    tallies: int = 0
    share: float = 1.0
    likely: tuple[ir.Value, tuple[str, ...]] | None = None
    places: Places | None = None

    def __repr__(self) -> str:
        """Return the counts and columns in one line, and no rows: they may be many, and private."""
        rows = "rows not checked"
        if self.facts is not None:
            rows = f"{count(self.facts.rows, 'row')}, {count(self.facts.clicks, 'click')}"
        roles = ", ".join(f"{role}={column!r}" for role, column in self.roles.items())
        return f"ClickLog({rows}; {roles}; context={self.context!r})"

    @cached_property
    def table(self) -> ir.Table:
        """The log as a table of `columns`, without counted rows that were never shown."""
        return self._rows(self.columns)

    def _rows(self, columns: Mapping[str, ir.Value]) -> ir.Table:
        shown = self.source if "click" in self.roles else self.source.filter(self.columns["impressions"] > 0)
        rows = shown.select(**columns)
        if self.likely is not None:
            digests, names = self.likely
            digest: Any = self.engine.digest([rows[name] for name in names])
            rows = rows.filter(digest.isin(digests))
        if self.share >= 1:
            return rows
        return rows.filter(is_drawn(rows.query, self.share))

    def thinned(self, share: float) -> ClickLog:
        """Return the log with this share of its queries, drawn by hash: all rows of a query or none."""
        return replace(self, share=share)

    def pooled(self, design: object = None) -> ClickLog:
        """Return the log to harvest: all results on pages in random order count as one result."""
        if RANDOM not in self.source.columns:
            return self
        if design is not None:
            raise InputError("pages in random order are a design of their own: leave out --random, or the other design")
        doc = self.source[RANDOM].ifelse("any result in random order", self.columns["doc"].cast("string"))
        return replace(self, columns=self.columns | {"doc": doc})

    def parsed(self, also: Sequence[str] = ()) -> ClickLog:
        """Return the log for several queries: text files are parsed once, and their rows kept inside the engine.

        Columns of the source without a role are kept where `also` names them.
        """
        if not self.is_text:
            return self
        others = {name: self.source[name] for name in also if name in self.source.columns}
        kept = self.engine.materialise(self._rows(others | self.columns), task="Reading")
        return replace(self, source=kept, columns={name: kept[name] for name in self.columns}, is_text=False)

    def with_plain_contexts(self) -> ClickLog:
        """Return the log with context columns called `_context_0`, …, so that a query on it may use any other name."""
        plain = {column: f"_context_{i}" for i, column in enumerate(self.context)}
        columns = {plain.get(name, name): value for name, value in self.columns.items()}
        return replace(self, columns=columns, context=tuple(plain.values()))

    def has(self, role: str) -> bool:
        """Whether the log has a column in this optional role."""
        return role in self.columns

    @property
    def only_clicked_pages(self) -> bool:
        """Whether nearly every page is clicked, so pages without a click must be missing."""
        facts = self.facts
        return facts is not None and lack_unclicked(facts.pages, facts.clicked_pages, facts.clicks)


def find_column(columns: Sequence[str], name: str) -> str:
    """Return the column of this name, or the only one that differs in upper and lower case alone.

    What matches nothing, or several columns, is returned as it is.

    Example:
        >>> find_column(["Query", "doc"], "query"), find_column(["Query", "QUERY"], "query")
        ('Query', 'query')
    """
    alike = [column for column in columns if column.lower() == name.lower()]
    return alike[0] if name not in columns and len(alike) == 1 else name


def identifier(column: ir.Value, like: dt.DataType | None = None) -> ir.Value:
    """Return a column of identifiers as integers where it, or the type `like`, holds integers, else as text.

    A value that must be an integer and is none becomes null: engines would round 1.5 to 2.
    """
    kind = column.type()
    if not (like or kind).is_integer():
        return column.cast("string")
    if kind.is_integer():
        return column if like is None else column.cast("int64")
    if kind.is_numeric():
        return (column % 1 == 0).ifelse(column, ibis.null(kind)).try_cast("int64")
    text = column.cast("string").strip().re_replace(r"\.0*$", "")
    return text.re_search(r"^[+-]?[0-9]+$").ifelse(text, ibis.null("string")).try_cast("int64")


def require_column(columns: Sequence[str], name: str, option: str) -> str:
    """Return the column that `find_column` finds, or raise `InputError` with the columns that there are."""
    column = find_column(columns, name)
    if column not in columns:
        raise InputError(f"{option} {name}: no such column, found {spell_columns(columns)}")
    return column


def same(left: ir.Table, right: ir.Table, keys: Sequence[str]) -> list[ir.BooleanValue]:
    """Return join conditions on equal keys, where an empty context equals an empty context."""
    plain = ("query", "doc", "position")
    return [left[key] == right[key] if key in plain else left[key].identical_to(right[key]) for key in keys]


def number(column: ir.Value, *, words: bool = False) -> ir.Value:
    """Return a column as a number: text is parsed, true/false count as 1/0, and other text becomes NaN.

    Args:
        column: numbers, text or true/false.
        words: whether yes/no and their like count as 1/0, too.
    """
    kind = column.type()
    if kind.is_boolean():
        return column.cast("int64")
    if kind.is_string():
        text = column.strip().lower()
        parsed = text.try_cast("float64").coalesce(float("nan"))
        known = [(text == word, value) for word, value in WORDS.items() if words or word in ("true", "false")]
        return ibis.cases((column.isnull(), ibis.null("float64")), *known, else_=parsed)
    if kind.is_numeric():
        return column.cast("float64") if kind.is_decimal() or kind.is_uint64() else column
    raise InputError(f"column {column.get_name()!r} is of type {kind}: expected numbers")


def is_plain(column: ir.Value) -> bool:
    """Return whether a column has one plain value per row, and no lists or records."""
    kind = column.type()
    return not (kind.is_nested() or kind.is_json())


def named_column(log: ClickLog, name: str, option: str, advice: str = "") -> ir.Value:
    """Return a column of a log by its role, or by its own name.

    Raises:
        InputError: there is no such column, or it holds lists or records.
    """
    if name not in log.columns and name not in log.source.columns:
        raise InputError(f"{option} {name}: no such column, found {spell_columns(log.source.columns)}{advice}")
    column = log.columns[name] if name in log.columns else log.source[name]
    if not is_plain(column):
        raise InputError(f"{option} {name}: the column is of type {column.type()}; expected one plain value per row")
    return column


def count_displays(rows: ir.Table, *, raw: bool) -> dict[str, ir.IntegerScalar]:
    """Return expressions for the clicks and impressions of rows.

    Raw rows are counted, not summed: DuckDB counts in 8 bytes and sums in 16.
    """
    if raw:
        return {"clicks": rows.count(where=rows.clicks == 1), "impressions": rows.count()}
    return {"clicks": rows.clicks.sum(), "impressions": rows.impressions.sum()}


def require_log(value: Any) -> None:
    """Raise `InputError` where something else is given for a click log.

    Example:
        >>> require_log({"query": ["q"]})
        Traceback (most recent call last):
        clickharvest.errors.InputError: expected a click log, found a dict: read it with read_log first
    """
    if not isinstance(value, ClickLog):
        raise InputError(f"expected a click log, found a {type(value).__name__}: read it with read_log first")


def days_of(log: ClickLog) -> float | None:
    """Return the days that a log covers, from the first to the last; None where it has no column of times."""
    if not log.has("time") or not (log.columns["time"].type().is_timestamp() or log.columns["time"].type().is_date()):
        return None
    import pyarrow as pa

    time = log.table.time
    row = log.engine.fetch(log.table.agg(first=time.min(), last=time.max()), task="Looking at times")
    if row["first"].null_count:
        return None
    # Python's own times have no years before 1 or after 9999.
    first, last = (row[name].cast(pa.timestamp("s"), safe=False).cast("int64")[0].as_py() for name in ("first", "last"))
    days: float = (last - first) / DAY
    if days > LONGEST:
        raise InputError(
            f"the times of the log are {days:,.0f} days apart: expected {LONGEST:,} at most; mend the times"
        )
    return days + 1 if pa.types.is_date(row["first"].type) else max(days, 1 / 24)
