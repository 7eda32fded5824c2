"""Checks of a log's rows: one aggregate query inside the engine, and three example rows for an error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ibis
import ibis.expr.types as ir

from clickharvest.errors import InputError
from clickharvest.logs.click_log import COUNTS, ClickLog
from clickharvest.logs.ibis_inside import column_tested_for_null
from clickharvest.logs.log_facts import LONG, LogFacts, has_sessions, spell_sessions
from clickharvest.positions.places import name_place
from clickharvest.words import count, shorten

LARGEST_POSITION = 1_000_000
LARGEST_COUNT = 10**12


@dataclass(frozen=True)
class RowCheck:
    """A condition that every row must fulfil.

    Attributes:
        role: the role whose column is checked.
        broken: true for rows that break the condition.
        problem: what is wrong with such a row, in a few words.
        remedy: what to do about it.
    """

    role: str
    broken: ir.BooleanValue
    problem: str
    remedy: str

    def count(self, source: ir.Table) -> ir.IntegerScalar:
        """Return how many rows break the condition; Parquet statistics answer how many are empty."""
        column = column_tested_for_null(self.broken)
        if column is not None:
            return source.count() - column.count()
        return self.broken.ifelse(1, 0).sum()


def validate_log(log: ClickLog) -> LogFacts:
    """Return the counts of a log, or raise `InputError` with up to three rows that cannot be what their roles say."""
    checks = row_checks(log)
    counts = {f"check_{i}": check.count(log.source) for i, check in enumerate(checks)}
    rows = log.source.count()
    impressions = rows if "click" in log.roles else log.columns["impressions"].sum()
    answer = log.source.agg(rows=rows, clicks=log.columns["clicks"].sum(), impressions=impressions, **counts)
    totals = log.engine.fetch(answer, task="Checking the log").to_pylist()[0]
    if not totals["rows"]:
        raise InputError("the log is empty: expected at least one row")
    broken = [(check, totals[f"check_{i}"]) for i, check in enumerate(checks) if totals[f"check_{i}"]]
    if broken:
        check, rows = broken[0]
        more = count(len(broken) - 1, "more kind", "more kinds")
        others = f" ({more} of problem after this one)" if len(broken) > 1 else ""
        raise InputError(
            f"column {log.roles[check.role]!r}: {rows:,} of {totals['rows']:,} rows {check.problem}, "
            f"such as {_examples(log, check)}; {check.remedy}{others}"
        )
    if not totals["clicks"]:
        raise InputError(
            f"no clicks at all in {totals['rows']:,} rows: examination cannot be estimated; "
            f"check the column {log.roles.get('click') or log.roles['clicks']!r}"
        )
    facts = LogFacts(totals["rows"], int(totals["clicks"]), int(totals["impressions"]))
    return _check_pages(log, facts) if log.has("page") else facts


def row_checks(log: ClickLog) -> list[RowCheck]:
    """Return the checks that apply to this log's columns."""
    columns = log.columns
    checks = [
        RowCheck(role, log.source[column].isnull(), "are empty", "fill them in or leave those rows out")
        for role, column in log.roles.items()
        if role != "user"  # visitors without an account
    ]
    for role in ("position", "original"):
        if role in columns:
            checks += _position_checks(columns[role], role, log.position_base)
    clicks, impressions = columns["clicks"], columns["impressions"]
    if "click" in log.roles:
        remedy = "a click is 0 or 1 (or no/yes, false/true); pass counts with --clicks and --impressions"
        return [*checks, RowCheck("click", ~clicks.isin([0, 1]), "are neither 0 nor 1", remedy)]
    for role in ("clicks", "impressions"):
        remedy = "counts are whole numbers, 0 or more"
        checks += _whole_check(columns[role], role, remedy)
        checks.append(RowCheck(role, columns[role] < 0, "are negative", remedy))
        checks.append(RowCheck(role, columns[role] > LARGEST_COUNT, f"are above {LARGEST_COUNT:,}", remedy))
    remedy = "expected at most one click per impression: count the impressions that were clicked"
    return [*checks, RowCheck("clicks", clicks > impressions, "have more clicks than impressions", remedy)]


def _position_checks(position: ir.Value, role: str, base: int) -> list[RowCheck]:
    counting = f"positions count {base}, {base + 1}, {base + 2} …: leave out rows without one, or name another column "
    counting += f"with --{role}"
    remedy = "0-based? pass --position-base 0" if base == 1 else counting
    return [
        *_whole_check(position, role, counting),
        RowCheck(role, position < 1, f"are less than {base}", remedy),
        RowCheck(role, position > LARGEST_POSITION, f"are beyond {LARGEST_POSITION:,}", counting),
    ]


def _whole_check(column: ir.Value, role: str, remedy: str) -> list[RowCheck]:
    if column.type().is_integer():
        return []
    broken = column.isnan() | column.isinf() | (column % 1 != 0)  # floor would be an integer, too small for 1e300
    return [RowCheck(role, broken, "are not whole numbers", remedy)]


def _examples(log: ClickLog, check: RowCheck) -> str:
    where = log.places.columns if log.places is not None else (log.roles["position"],)
    named = {role: (column,) for role, column in log.roles.items()} | {"position": where}
    roles = (role for role in ("query", "doc", "position", *COUNTS, check.role) if role in log.roles)
    shown = dict.fromkeys(column for role in roles for column in named[role])
    rows = log.source.filter(check.broken).select(*shown).limit(3)
    return _show(log.engine.fetch(rows, task="Checking the log").to_pylist())


def _show(rows: list[dict[str, object]]) -> str:
    return "; ".join(
        "(" + ", ".join(f"{name}={shorten(repr(value))}" for name, value in row.items()) + ")" for row in rows
    )


def _check_pages(log: ClickLog, facts: LogFacts) -> LogFacts:
    t = log.table
    doubled = t.group_by("page", "doc").agg(rows=t.count()).filter(lambda pair: pair.rows > 1)
    places = t.group_by("page", "position").agg(
        rows=t.count(), clicks=t.clicks.sum(), query=t.query.min(), other=t.query.max()
    )
    pages = places.group_by("page").agg(
        rows=places.rows.max(),
        clicks=places.clicks.sum(),
        long=places.rows.sum(),
        places=places.count(),
        span=places.position.max() - places.position.min() + 1,
        queries=(places.query.min() != places.other.max()).ifelse(2, 1),
    )
    unclicked = ibis.literal(1 - min(facts.clicks / max(facts.impressions, 1), 1.0)) ** pages.long
    through = (pages.clicks >= pages.long) & (pages.long >= LONG)
    counted = pages.agg(
        pages=pages.count(),
        clicked_pages=pages.count(where=pages.clicks > 0),
        likely_pages=(1 - unclicked).sum().round().cast("int64"),
        shared_pages=pages.count(where=pages.rows > 1),
        session_pages=pages.count(where=pages.queries > 1),
        through_pages=pages.count(where=through),
        through_clicks=pages.clicks.sum(where=through).fill_null(0).cast("int64"),
        gapped_pages=pages.count(where=pages.places < pages.span),
    )
    answer = doubled.agg(pairs=doubled.count(), rows=doubled.rows.sum()).cross_join(counted)
    totals = log.engine.fetch(answer, task="Checking the pages").to_pylist()[0]
    pairs, doubled_rows = totals.pop("pairs"), totals.pop("rows")
    if pairs:
        named = doubled.select(**{log.roles["page"]: doubled.page, log.roles["doc"]: doubled.doc})
        examples = log.engine.fetch(named.limit(3), task="Checking the pages").to_pylist()
        facts = replace(facts, **totals)
        if has_sessions(facts):
            raise InputError(spell_sessions(facts, log.roles))
        raise InputError(
            f"column {log.roles['page']!r}: {doubled_rows:,} of {facts.rows:,} rows show a document twice on one "
            f"page, such as {_show(examples)}; expected one row per page and document: keep the first place of each "
            "with --repeat first, or name the column that tells pages apart with --page (--page '' if there is none)"
        )
    return replace(facts, **totals, shared_example=_shared_example(log) if totals["shared_pages"] else "")


def _shared_example(log: ClickLog) -> str:
    t = log.table
    places = t.group_by("page", "position").agg(rows=t.count(), one=t.doc.min(), other=t.doc.max())
    shared = places.filter(places.rows > 1).order_by("page", "position").limit(1)
    (row,) = log.engine.fetch(shared, task="Checking the pages").to_pylist()
    docs = " and ".join(shorten(repr(row[name])) for name in ("one", "other"))
    return f"page {shorten(repr(row['page']))} has {docs} at {name_place(int(row['position']), log.places)}"
