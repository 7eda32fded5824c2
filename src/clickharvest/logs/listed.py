"""Rows that are whole pages: a list of documents, and of clicks, in each; found out by the columns' names and types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from clickharvest.errors import InputError
from clickharvest.logs.click_log import find_column
from clickharvest.words import clean_text

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

DOCS, CLICKS = ("docs", "documents", "items", "results"), ("clicked", "clicks", "click")
"""Columns of lists are called like this, unless the user names others."""
SEPARATORS = ("|", ";", ",", " ")
"""What parts of a text are separated by, the first that fits."""
SAMPLE = 200
"""Rows that tell whether texts are lists."""


def find_lists(opened: ir.Table, wanted: Mapping[str, str], engine: Engine) -> tuple[ir.Table, str, str] | None:
    """Return the table with lists of documents and clicks in its columns, and their names; None where it has no such.

    Texts are lists where they have equally many separated parts in both columns, or are JSON.

    Args:
        opened: the log as it came.
        wanted: columns named by the user, by role.
        engine: where to look at texts.
    """
    columns = opened.columns
    if find_column(columns, wanted.get("position", "position")) in columns:
        return None
    asked = wanted.get("click") or wanted.get("clicks")
    named = [DOCS if wanted["doc"] == "doc" else (wanted["doc"],), (asked,) if asked else CLICKS]
    found = [next((own for name in names if (own := find_column(columns, name)) in columns), "") for names in named]
    if not all(found):
        return None
    docs, clicks = found
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
    """Return the log of rows that are pages; what else is asked for of the rows is refused by the format."""
    pages = import_module("clickharvest.logs.exports")  # by name, as formats are: they read logs themselves
    opened, docs, clicks = lists
    kept = ("query", "page", "user", "time", "ranker")
    roles = {
        role: own for role, column in wanted.items() if role in kept and (own := find_column(opened.columns, column))
    }
    if "ranker" not in roles and (own := find_column(opened.columns, "ranker")) in opened.columns:
        roles["ranker"] = own
    if other := [role for role in wanted if role not in (*kept, "doc", "position", "click", "clicks")]:
        raise InputError(
            f"{other[0]} does not go with rows that are pages, of {clean_text(docs, 24)} and {clean_text(clicks, 24)}: "
            "leave it out"
        )
    log: ClickLog = pages.read_export(opened, "pages", doc=docs, click=clicks, engine=engine, **roles, **options)
    return replace(log, prepared={"lists": f"{docs} and {clicks}"})
