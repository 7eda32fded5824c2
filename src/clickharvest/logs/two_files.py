"""Two files: what was shown, and what was clicked.

Clicks that have a page are on that page's row of their document; others are on what their user was shown last, see
`clickharvest.logs.matching`. Either file may come from anywhere that a log may.
"""

from __future__ import annotations

import warnings
from typing import Any

import ibis.expr.types as ir

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog, find_column
from clickharvest.logs.engines import Engine
from clickharvest.logs.matching import WITHIN, match_clicks, spell_match, spell_torn
from clickharvest.logs.reading import read_log
from clickharvest.logs.sources import open_source, spell_columns

KEYS = ("page", "doc", "user", "time")
CLICKED = "_clickharvest_clicked"
LISTED = "_clickharvest_page"


def read_two_files(
    source: Any,
    clicks_from: Any,
    *,
    within: str = WITHIN,
    table: str | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> ClickLog:
    """Read a click log from what was shown and what was clicked.

    Args:
        source: what was shown, one row per result: `query`, `doc`, `position`, and `page`, or `user` and `time`.
        clicks_from: the clicks, one row each: `page` and `doc`, or `user`, `doc` and `time`, in columns called like
            those of `source` or like their roles.
        within: how long after a list was shown a click of its user may be on it, where clicks have no page.
        table: the table to read of a DuckDB file.
        engine: where to run; an embedded DuckDB by default.
        options: other options of `read_log`, such as the names of columns.

    Raises:
        InputError: a column is missing, or no click is on what was shown.

    Warns:
        HarvestWarning: clicks are on nothing that was shown; they are left out.

    Example:
        >>> import pyarrow as pa
        >>> shown = pa.table({"page": [1, 1], "query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2]})
        >>> log = read_two_files(shown, pa.table({"page": [1], "doc": ["b"]}))
        >>> log.engine.fetch(log.table.select("doc", "clicks").order_by("doc"), task="").to_pylist()
        [{'doc': 'a', 'clicks': 0}, {'doc': 'b', 'clicks': 1}]
    """
    for role in ("click", "clicks", "impressions"):
        if options.get(role) is not None:
            raise InputError(f"--{role} does not go with --clicks-from: the clicks come from the second file")
    names = {role: options.get(role) or role for role in KEYS}
    texts = [name for role, name in names.items() if role != "time"]
    opened, engine = open_source(source, engine, table=table, text=[*texts, options.get("query") or "query"])
    clicks, engine = open_source(clicks_from, engine, text=[*texts, *KEYS[:3]])
    mine = _columns(opened, names)
    theirs = _columns(clicks, {}) | _columns(clicks, names)
    shared = [role for role in KEYS if role in mine and role in theirs]
    if "doc" not in theirs or not ("page" in shared or {"user", "time"} <= set(shared)):
        raise InputError(
            f"clicks cannot be joined to what was shown: expected page and doc, or user, doc and time, in both; found "
            f"{spell_columns(opened.columns)} and, among the clicks, {spell_columns(clicks.columns)}"
        )
    by_page = "page" in shared
    shown = _with_page(opened, mine)
    keys = {role: shown[mine[role]] for role in shared}
    displays = shown.select(**(keys | {"page": shown[LISTED]}))
    used = [role for role in shared if by_page or role != "page"]
    match = match_clicks(displays, clicks.select(**{role: clicks[theirs[role]] for role in used}), within, engine)
    if match.lost == match.clicks:
        raise InputError(f"no click is on what was shown: {match.spell_reasons() or 'there is none'}")
    for note in filter(None, (spell_match(match), spell_torn(match))):
        warnings.warn(note, HarvestWarning, stacklevel=3)
    marked = match.clicked.select(its_page=match.clicked.page, its_doc=match.clicked.doc)
    joined = shown.left_join(
        marked,
        [shown[LISTED].cast("string") == marked.its_page, shown[mine["doc"]].cast("string") == marked.its_doc],
    )
    kept = {name: joined[name] for name in shown.columns if name != LISTED}
    table_of = joined.select(**kept, **{CLICKED: joined.its_page.notnull().ifelse(1, 0)})
    log = engine.materialise(table_of, task="Matching clicks")
    return read_log(log, click=CLICKED, engine=engine, **options)


def _columns(table: ir.Table, names: dict[str, str]) -> dict[str, str]:
    """Return the columns of the roles that a table has."""
    found = {role: find_column(table.columns, names.get(role, role)) for role in KEYS}
    return {role: column for role, column in found.items() if column in table.columns}


def _with_page(opened: ir.Table, roles: dict[str, str]) -> ir.Table:
    """Return a table with a column that tells pages apart: what a user was shown at one time, where it has none."""
    if "page" in roles:
        return opened.mutate(**{LISTED: opened[roles["page"]].cast("string")})
    user, time = (opened[roles[role]].cast("string") for role in ("user", "time"))
    return opened.mutate(**{LISTED: user + " " + time})
