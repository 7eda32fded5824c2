"""Reading: from a source and the names of its columns to a checked click log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir

from clickharvest.errors import InputError
from clickharvest.logs.click_log import (
    COUNTS,
    OPTIONAL,
    OURS,
    REQUIRED,
    RESERVED,
    ROLES,
    ClickLog,
    find_column,
    identifier,
    is_plain,
    number,
)
from clickharvest.logs.engines import Engine
from clickharvest.logs.preparing import NUMBER, Preparation, Repeat, number_places, place_columns
from clickharvest.logs.sources import TEXT, file_format, open_source
from clickharvest.logs.tallies import counted_pages, find_tallies, refuse_on_tallies
from clickharvest.logs.validation import validate_log
from clickharvest.words import clean_text, spell_columns

NO_QUERY = f"{OURS}query"
"""The column of the single query of a log of lists that are shown for no query."""
DOCS, CLICKS = ("docs", "documents", "items", "results"), ("clicked", "clicks", "click")
"""Default names of columns of lists."""
SEPARATORS = ("|", ";", ",", " ")
"""Separators of a list that is written as text, in the order in which they are tried."""
SAMPLE = 200
"""Rows from which texts are recognised as lists."""


def read_log(
    source: Any,
    *,
    query: str = "query",
    doc: str = "doc",
    position: str | None = None,
    place: str | Sequence[str] = (),
    click: str | None = None,
    clicks: str | None = None,
    impressions: str | None = None,
    ranker: str | None = None,
    page: str | None = None,
    user: str | None = None,
    time: str | None = None,
    original: str | None = None,
    context: str | Sequence[str] | None = (),
    position_base: int = 1,
    block: Mapping[str, str] | None = None,
    page_number: str | None = None,
    page_size: int | None = None,
    repeat: Repeat | None = None,
    random: Mapping[str, str] | None = None,
    table: str | None = None,
    engine: Engine | None = None,
    validate: bool = True,
) -> ClickLog:
    """Read a click log and check it.

    Each keyword names the log's column for that role; by default it is the column with the name of the role,
    if there is one. Give either `click` or both `clicks` and `impressions`. An empty name says that the log has
    no such column, although one has the name of the role: `page=""` if `page` only numbers the pages of a query,
    `query=""` if lists are shown for no query, as a recommender's are; then cluster by documents or users.
    Upper and lower case do not matter where only one column can be meant. Rows may also be whole pages, with a list of
    documents in `docs` (or `documents`, `items`, `results`) and one of clicks in `clicked` (or `clicks`): see the
    format `pages`.

    Args:
        source: a path or a table, see `open_source`.
        query: column of the query.
        doc: column of the shown result.
        position: column of the position it was shown at (default: `position`).
        place: instead, the columns that make the place it was shown at, such as `("row", "column")`, `("page", "rank")`
            or `"slot"`, see `clickharvest.positions.places`; one column of numbers is a list, as `position`.
        click: column of 0/1 clicks, one row per impression.
        clicks: column of click counts, for aggregated rows.
        impressions: column of impression counts, for aggregated rows.
        ranker: column of the ranker or A/B arm.
        page: column of the result page, or columns that make one, such as `"session,query"`.
        user: column of the user, visitor or session; tests of the log count users, not pages, where there is one.
        time: column of the time of display, any type that sorts.
        original: column of the position before an explicit swap.
        context: columns that examination may depend on, or the name of one.
        position_base: 0 where the log counts positions from 0.
        block: keep the rows whose columns have these values, such as `{"block": "organic"}`.
        page_number: column that numbers the pages of a list from 1, where positions start again on each of them.
        page_size: results of such a page: positions become (page number − 1) · page size + position.
        repeat: `"first"` lets a document that a page shows twice keep its first place, clicked if either was.
        random: rows with this value are of pages in random order, such as `{"ranker": "random"}`: a harvest takes all
            results of a query there for one, which stood anywhere by chance alone.
        table: the table to read of a DuckDB file.
        engine: where to run; an embedded DuckDB by default.
        validate: check the rows (one pass, inside the engine).

    Raises:
        InputError: a column is missing or its rows cannot be what its role says.

    Example:
        >>> import pyarrow as pa
        >>> log = read_log(pa.table({"query": ["q", "q"], "doc": ["a", "a"], "rank": [1, 2], "click": [1, 0]}),
        ...                position="rank")
        >>> log.table.columns
        ('query', 'doc', 'position', 'clicks', 'impressions')
    """
    named = {
        "click": click, "clicks": clicks, "impressions": impressions,
        "ranker": ranker, "page": page, "user": user, "time": time, "original": original,
    }  # fmt: skip
    if position_base not in (0, 1):
        raise InputError(f"the position base is {position_base}: expected 1, or 0 where the top position is 0")
    place_names = (place,) if isinstance(place, str) and place else tuple(place)
    context = (context,) if isinstance(context, str) else tuple(context or ())
    wanted = {"query": query, "doc": doc} | {r: c for r, c in named.items() if c is not None}
    wanted |= {"position": position or "position"} if not place_names else {}
    if unnamed := [(role, column) for role, column in wanted.items() if not isinstance(column, str)]:
        raise InputError(f"the column of {unnamed[0][0]} is {unnamed[0][1]!r}: expected a name")
    preparation = Preparation(block or {}, page_number, page_size, repeat, random or {})
    tallies = find_tallies(source)
    if place_names:
        _check_places(place_names, position, wanted, preparation, position_base, bool(tallies))
    if tallies:
        based = {} if position_base == 1 else {"position_base": position_base}
        refuse_on_tallies(tallies, wanted | preparation.given | based, context)
    as_text = {*wanted.values(), *ROLES, *DOCS, *CLICKS, *place_names} - {wanted.get("time", "time")}
    opened, engine = open_source(source, engine, table=table, text=as_text - set(context))
    if not (place_names or tallies) and (lists := find_lists(opened, wanted, engine)) is not None:
        options = preparation.given | ({} if position_base == 1 else {"position_base": position_base})
        return read_lists(lists, wanted, engine, options | {"context": context})
    if not query:
        wanted["query"] = NO_QUERY
        opened = opened.mutate(**{NO_QUERY: ibis.literal("all")})
    if len(parts := [part.strip() for part in (page or "").split(",")]) > 1 and page not in opened.columns:
        opened = _joined(opened, str(page), parts)
    placed = place_columns(opened.columns, place_names, context)
    roles = resolve_roles(opened.columns, wanted, placed)
    if user is None and "user" in roles and not is_plain(opened[roles["user"]]):
        del roles["user"]  # a record of the user, not who it is
    context_columns = {name: find_column(opened.columns, name) for name in context}
    _check_context(opened.columns, context)
    _check_plain(opened, [*roles.values(), *placed, *context_columns.values()])
    opened = preparation.apply(
        opened, roles, list(context_columns.values()), position_base, engine if validate else None
    )
    places = None
    if placed:
        opened, places = number_places(opened, placed, engine)
        roles["position"] = NUMBER if places is not None else placed[0]
    log = ClickLog(
        source=opened,
        columns=_canonical(opened, roles, position_base)
        | {c: _context_value(opened[context_columns[c]]) for c in context},
        context=context,
        roles=roles,
        engine=engine,
        position_base=position_base,
        is_text=isinstance(source, str | Path) and file_format(str(source)) in TEXT,
        prepared=tallies[0].kept["prepared"] if tallies else preparation.given,
        tallies=len(tallies),
        places=places,
    )
    if not validate:
        return log
    facts = validate_log(log)
    return replace(log, facts=replace(facts, **counted_pages(tallies)) if tallies else facts)


def resolve_roles(columns: Sequence[str], wanted: dict[str, str], placed: Sequence[str] = ()) -> dict[str, str]:
    """Return the column of every role the log has.

    Args:
        columns: the log's columns.
        wanted: columns named by the user, by role; an empty name leaves an optional role out.
        placed: columns that make places, which have no other role unless it is named.

    Raises:
        InputError: a named column is missing, or the click columns are missing or contradict each other.
    """
    optional = [role for role in COUNTS + OPTIONAL if not (placed and role == "original")]
    there = {role: column for role in optional if (column := find_column(columns, role)) in columns}
    there = {role: column for role, column in there.items() if column not in placed}
    roles = there | {role: find_column(columns, column) for role, column in wanted.items()}
    if "click" in wanted:
        roles = {role: c for role, c in roles.items() if role not in ("clicks", "impressions") or role in wanted}
    elif {"clicks", "impressions"} & wanted.keys():
        roles.pop("click", None)
    roles = {role: column for role, column in roles.items() if column or role in REQUIRED}
    known_columns = f"found {spell_columns(columns)}"
    missing = {role: column for role, column in roles.items() if column not in columns}
    if missing:
        names = ", ".join(repr(column) for column in missing.values())
        options = " ".join(f"--{role} COLUMN" for role in missing)
        several = len(missing) > 1
        message = (
            f"missing column{'s' * several} {names}: {known_columns}; name the right one{'s' * several} with {options}"
        )
        if missing == {"query": "query"}:
            message += (
                "; or say --query '' where lists are shown for no query, as a recommender's, and --cluster doc or user"
            )
        raise InputError(message)
    has = [role for role in COUNTS if role in roles]
    if has == ["clicks"] or has == ["impressions"]:
        absent = "impressions" if has == ["clicks"] else "clicks"
        raise InputError(
            f"aggregated rows need both clicks and impressions: {absent} is missing, {known_columns}; "
            f"name it with --{absent} COLUMN, or pass one row per impression with --click COLUMN"
        )
    if not has:
        raise InputError(
            f"no click column: {known_columns}; name it with --click COLUMN (or --clicks and --impressions)"
        )
    if len(has) > 1 and "click" in has:
        raise InputError(f"both click and {has[1]} are there: name one of --click and --clicks/--impressions")
    return roles


def _joined(opened: ir.Table, name: str, parts: Sequence[str]) -> ir.Table:
    """Return the log with a column that joins the values of several columns."""
    joined_columns = [find_column(opened.columns, part) for part in parts]
    if missing := [column for column in joined_columns if column not in opened.columns]:
        raise InputError(f"--page {name}: no column {missing[0]!r}, found {spell_columns(opened.columns)}")
    texts = [opened[column].cast("string") for column in joined_columns]
    together = texts[0]
    for text in texts[1:]:
        together = together + " " + text
    return opened.mutate(**{name: together})


def _check_places(
    place_names: Sequence[str],
    position: str | None,
    wanted: Mapping[str, str],
    preparation: Preparation,
    base: int,
    tallied: bool,
) -> None:
    """Raise `InputError` for options that need positions in a list, which places do not have."""
    conflicting = {
        "--position": position,
        "--original": wanted.get("original"),
        "--page-number": preparation.page_number,
        "--repeat": preparation.repeat,
        "--position-base 0": base == 0,
        "a tally": tallied,
    }
    if given := [option for option, value in conflicting.items() if value]:
        raise InputError(
            f"--place {','.join(place_names)} does not go with {given[0]}: places are what the columns tell, in no "
            "order; name one of the two"
        )


def _check_context(columns: Sequence[str], context: Sequence[str]) -> None:
    missing = [column for column in context if find_column(columns, column) not in columns]
    if missing:
        raise InputError(f"missing context column {', '.join(map(repr, missing))}: found {spell_columns(columns)}")
    lower = [column.lower() for column in context]
    doubled = sorted({column for column in context if lower.count(column.lower()) > 1})
    if doubled:
        raise InputError(f"context column {' and '.join(map(repr, doubled))} is named twice: name it once")
    reserved = [column for column in context if column.lower() in RESERVED]
    if reserved:
        raise InputError(
            f"context column {', '.join(map(repr, reserved))} has a name that is reserved "
            f"({', '.join(sorted(RESERVED))}): rename it in the log"
        )


def _check_plain(opened: ir.Table, columns: Sequence[str]) -> None:
    for column in columns:
        if not is_plain(opened[column]):
            raise InputError(f"column {column!r} is of type {opened[column].type()}: expected one plain value per row")


def _canonical(opened: ir.Table, roles: dict[str, str], base: int) -> dict[str, ir.Value]:
    columns: dict[str, ir.Value] = {
        "query": identifier(opened[roles["query"]]),
        "doc": identifier(opened[roles["doc"]]),
        "position": _shifted(number(opened[roles["position"]]), base),
    }
    if "click" in roles:
        columns |= {"clicks": number(opened[roles["click"]], words=True), "impressions": ibis.literal(1, "int64")}
    else:
        columns |= {role: number(opened[roles[role]]) for role in ("clicks", "impressions")}
    columns |= {role: opened[roles[role]] for role in ("ranker", "page", "user", "time") if role in roles}
    if "original" in roles:
        columns["original"] = _shifted(number(opened[roles["original"]]), base)
    return columns


def _shifted(position: ir.Value, base: int) -> ir.Value:
    if base == 1:
        return position
    if not position.type().is_integer():
        return position + 1
    return position.cast("int64").clip(upper=2**62) + 1  # adding 1 must not overflow


def _context_value(column: ir.Value) -> ir.Value:
    kind = column.type()
    if kind.is_boolean() or kind.is_string():
        return column
    if kind.is_integer():
        return column.cast("int64")
    return column.cast("float64" if kind.is_numeric() else "string")


def find_lists(opened: ir.Table, wanted: Mapping[str, str], engine: Engine) -> tuple[ir.Table, str, str] | None:
    """Return the table and its columns of lists of documents and of clicks; None where it has none.

    Texts are lists where they are JSON, or have equally many separated parts in both columns.

    Args:
        opened: the log as it came.
        wanted: columns named by the user, by role.
        engine: where to read texts.
    """
    columns = opened.columns
    if find_column(columns, wanted.get("position", "position")) in columns:
        return None
    click_column = wanted.get("click") or wanted.get("clicks")
    named = [DOCS if wanted["doc"] == "doc" else (wanted["doc"],), (click_column,) if click_column else CLICKS]
    list_columns = [
        next((column for name in names if (column := find_column(columns, name)) in columns), "") for names in named
    ]
    if not all(list_columns):
        return None
    docs, clicks = list_columns
    kinds = opened.schema()
    if kinds[docs].is_array():
        return opened, docs, clicks
    if not (kinds[docs].is_string() and kinds[clicks].is_string()):
        return None
    head = engine.fetch(opened.select(docs=opened[docs], clicks=opened[clicks]).limit(SAMPLE), task="Looking at lists")
    rows = [(row["docs"], row["clicks"]) for row in head.to_pylist() if row["docs"] and row["clicks"]]
    if rows and all(one.lstrip().startswith("[") for one, _ in rows):
        return opened, docs, clicks
    for mark in SEPARATORS:
        parts = [(one.count(mark), other.count(mark)) for one, other in rows]
        if any(many for many, _ in parts) and all(one == other for one, other in parts):
            split = {name: opened[name].strip().split(mark) for name in (docs, clicks)}
            return opened.mutate(**split), docs, clicks
    return None


def read_lists(
    lists: tuple[ir.Table, str, str], wanted: Mapping[str, str], engine: Engine, options: Mapping[str, Any]
) -> ClickLog:
    """Return the log of rows that are pages, see the format `pages`."""
    exports = import_module("clickharvest.logs.exports")  # formats import this module
    opened, docs, clicks = lists
    kept = ("query", "page", "user", "time", "ranker")
    roles = {
        role: column_of_role
        for role, column in wanted.items()
        if role in kept and (column_of_role := find_column(opened.columns, column))
    }
    if "ranker" not in roles and (column_of_role := find_column(opened.columns, "ranker")) in opened.columns:
        roles["ranker"] = column_of_role
    if other := [role for role in wanted if role not in (*kept, "doc", "position", "click", "clicks")]:
        raise InputError(
            f"{other[0]} does not go with rows that are pages, of {clean_text(docs, 24)} and {clean_text(clicks, 24)}: "
            "leave it out"
        )
    log: ClickLog = exports.read_export(opened, "pages", doc=docs, click=clicks, engine=engine, **roles, **options)
    return replace(log, prepared={"lists": f"{docs} and {clicks}"})
