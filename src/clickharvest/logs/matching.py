"""Matching: find the display that each click was on.

A click that names its page is on that page's row of its document. Another click is on the latest display of its
document to its user, at most a window earlier; displays in the click's list go before others. Clicks without a display
are counted by reason.

    shown(page, doc, user, list, time)  +  clicks(page, doc, user, list, time)  ──►  clicked(page, doc)

`read_two_files` reads a log whose clicks are in a file of their own; exports of events match clicks in the same way.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.types as ir

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog, find_column
from clickharvest.logs.engines import Engine
from clickharvest.logs.reading import read_log
from clickharvest.logs.sources import open_source
from clickharvest.words import count, spell_columns

WITHIN = "30min"
"""The longest time from a display to a click on it, where the click names no page."""
UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400,
         "days": 86400}  # fmt: skip
NO_PAGE, NOT_THERE = "on a page that is not there", "on a document that its page did not show"
ZONE = r"[0-9]([zZ]|[+-][0-9][0-9](:?[0-9][0-9])?)$"
"""End of a time with an offset from UTC."""
COLUMNS = {"page": "string", "doc": "string", "user": "string", "list": "string"}
"""Columns, beside the time, that both tables are matched by; a table may lack some."""
KEYS = ("page", "doc", "user", "time")
CLICKED = "_clickharvest_clicked"
LISTED = "_clickharvest_page"


def parse_window(text: str) -> float:
    """Return a length of time in seconds.

    Example:
        >>> parse_window("30min"), parse_window("1.5 h"), parse_window("45s")
        (1800.0, 5400.0, 45.0)
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())
    seconds = float(parts[1]) * UNITS.get(parts[2], 0) if parts else 0.0
    if not 0 < seconds <= 366 * 86400:
        raise InputError(f"--within {text}: expected a length of time such as 30min, 45s, 2h or 1d")
    return seconds


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def epoch_us(stamp) -> int:  # type: ignore[no-untyped-def, empty-body]
    """DuckDB's microseconds since 1970 of a timestamp, with a zone or without."""


@dataclass(frozen=True)
class Match:
    """The displays that clicks were on.

    Attributes:
        clicked: the clicked pages and documents, as columns `page` and `doc`, each pair once.
        clicks: clicks; one that was sent twice counts once.
        reasons: number of clicks without a display, by reason.
        torn: clicks that fit several pages equally well, and went to the page that sorts first.
    """

    clicked: ir.Table
    clicks: int
    reasons: dict[str, int]
    torn: int

    @property
    def lost(self) -> int:
        """Clicks without a display."""
        return sum(self.reasons.values())

    def spell_reasons(self) -> str:
        """Return the reasons for clicks without a display, the most frequent first."""
        ordered = sorted(((rows, why) for why, rows in self.reasons.items() if rows), reverse=True)
        return ", ".join(f"{rows:,} {why}" for rows, why in ordered)


def match_clicks(shown: ir.Table, clicks: ir.Table, within: str, engine: Engine) -> Match:
    """Find the display that each click was on; see the module.

    Args:
        shown: the displays, one row per page and document, with any of `COLUMNS` and `time`.
        clicks: the clicks, likewise.
        within: the window, such as `"30min"`.
        engine: where both live.
    """
    window = parse_window(within)
    fine = engine.backend.name == "duckdb"
    shown, clicks = (_complete(table, fine) for table in (shown, clicks))
    clicks = engine.materialise(clicks.distinct(), task="Matching clicks")
    named = clicks.filter(clicks.page.notnull() & clicks.doc.notnull())
    by_page = named.semi_join(shown, ["page", "doc"]).select("page", "doc").distinct()
    loose = clicks.filter(clicks.page.isnull() & clicks.doc.notnull() & clicks.user.notnull() & clicks.time.notnull())
    best = engine.materialise(_latest(shown, loose, window), task="Matching clicks")
    chosen = best.select("page", "doc").distinct()
    clicked = engine.materialise(by_page.union(chosen, distinct=True), task="Matching clicks")
    counts = _counts(shown, clicks, named, loose, best)
    tables = [table.mutate(what=ibis.literal(what)) for what, table in counts.items()]
    rows = engine.fetch(ibis.union(*tables), task="Matching clicks").to_pylist()
    counted = {row["what"]: int(row["n"]) for row in rows}
    counted[NO_PAGE] -= counted[NOT_THERE]
    total, torn = (counted.pop(what) for what in ("clicks", "torn"))
    return Match(clicked, total, counted, torn)


def _complete(table: ir.Table, fine: bool) -> ir.Table:
    """Return a table with all of `COLUMNS` and the time; missing ones are empty."""
    columns = {
        name: table[name].cast(kind) if name in table.columns else ibis.null(kind) for name, kind in COLUMNS.items()
    }
    time = micros(table.time, fine) if "time" in table.columns else ibis.null("int64")
    return table.select(**columns, time=time)


def micros(column: ir.Value, fine: bool) -> ir.Value:
    """Return times as microseconds since 1970: numbers are seconds, milli-, micro- or nanoseconds; texts are read.

    Fractions of a second are kept only where `fine`: not every engine has them.
    """
    kind = column.type()
    if kind.is_numeric():
        number = column.cast("float64")
        scaled = ibis.cases(
            (number >= 1e17, number / 1e3), (number >= 1e14, number), (number >= 1e11, number * 1e3), else_=number * 1e6
        )
        return scaled.cast("int64")
    if not fine:
        stamp = column.cast("timestamp") if kind.is_timestamp() else column.cast("string").try_cast("timestamp")
        return stamp.epoch_seconds().cast("int64") * 1_000_000
    if kind.is_timestamp():
        return epoch_us(column)
    # Casting to a timestamp without a zone, DuckDB ignores the offset.
    text = column.cast("string").strip()
    zoned, plain = (epoch_us(text.try_cast(of)) for of in ("timestamp('UTC')", "timestamp"))
    return text.re_search(ZONE).ifelse(zoned, plain)


def _latest(shown: ir.Table, clicks: ir.Table, window: float) -> ir.Table:
    """Return each click's page: `ways` is how many pages fit it equally well."""
    right = shown.select(**{f"its_{name}": shown[name] for name in shown.columns})
    pairs = clicks.inner_join(
        right,
        [
            clicks.user == right.its_user,
            clicks.doc == right.its_doc,
            right.its_time <= clicks.time,
            clicks.time - right.its_time <= round(window * 1_000_000),
            clicks.list.isnull() | right.its_list.isnull() | (clicks.list == right.its_list),
        ],
    )
    own_list = (pairs.list == pairs.its_list).fill_null(False).cast("int8")
    key = [pairs.user, pairs.doc, pairs.list, pairs.time]
    place = ibis.rank().over(ibis.window(group_by=key, order_by=[own_list.desc(), pairs.its_time.desc()]))
    first = pairs.mutate(place=place).filter(lambda t: t.place == 0)
    return first.group_by("user", "doc", "list", "time").agg(page=first.its_page.min(), ways=first.its_page.nunique())


def _counts(shown: ir.Table, clicks: ir.Table, named: ir.Table, loose: ir.Table, best: ir.Table) -> dict[str, ir.Table]:
    """Return tables with one count `n` each: all clicks, those torn between pages, and the reasons for the others."""
    nowhere = named.anti_join(shown, ["page", "doc"])
    stray = nowhere.semi_join(shown.select("page").distinct(), "page")
    seen = shown.filter(shown.user.notnull()).group_by("user", "doc").agg(first=shown.time.min())
    marked = best.select("user", "doc", "time", found=ibis.literal(1), listed=best.list)
    same = [loose[name] == marked[name] for name in ("user", "doc", "time")]
    kept = loose.left_join(marked, [*same, loose.list.identical_to(marked.listed)])
    lost = kept.filter(kept.found.isnull()).select("user", "doc", "time")
    judged = lost.left_join(seen, ["user", "doc"])
    unknown = clicks.page.isnull() & clicks.doc.notnull() & (clicks.user.isnull() | clicks.time.isnull())
    return {
        "clicks": clicks.agg(n=clicks.count()),
        "torn": best.agg(n=best.count(where=best.ways > 1)),
        "without a document": clicks.agg(n=clicks.count(where=clicks.doc.isnull())),
        NO_PAGE: nowhere.agg(n=nowhere.count()),
        NOT_THERE: stray.agg(n=stray.count()),
        "without a page, and without user or time": clicks.agg(n=clicks.count(where=unknown)),
        "on a document that its user was not shown": judged.agg(n=judged.count(where=judged["first"].isnull())),
        "before it was shown": judged.agg(n=judged.count(where=judged["first"] > judged.time)),
        "too late, or on another list": judged.agg(n=judged.count(where=judged["first"] <= judged.time)),
    }


def spell_match(match: Match) -> str | None:
    """Return a sentence on clicks without a display, None where there are none."""
    if not match.lost:
        return None
    verb = "matches" if match.clicks == 1 else "match"
    sentence = f"{match.lost:,} of {count(match.clicks, 'click')} {verb} nothing of what was shown and are left out"
    return f"{sentence}: {match.spell_reasons()}"


def spell_torn(match: Match) -> str | None:
    """Return a sentence on clicks that fit several pages, None where there are none."""
    if not match.torn:
        return None
    return f"{count(match.torn, 'click fits', 'clicks fit')} several pages equally well: one of them has got each"


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
    """Return the columns of `KEYS` that a table has, by role."""
    columns = {role: find_column(table.columns, names.get(role, role)) for role in KEYS}
    return {role: column for role, column in columns.items() if column in table.columns}


def _with_page(opened: ir.Table, roles: dict[str, str]) -> ir.Table:
    """Return a table with a column that identifies pages: by default user and time."""
    if "page" in roles:
        return opened.mutate(**{LISTED: opened[roles["page"]].cast("string")})
    user, time = (opened[roles[role]].cast("string") for role in ("user", "time"))
    return opened.mutate(**{LISTED: user + " " + time})
