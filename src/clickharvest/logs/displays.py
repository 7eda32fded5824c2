"""Displays: from the events of an export to a click log.

A format says where in an event the list, its items, and their ids and positions are (`Rows`, in the SQL of the module
`events`). The rest is the same for all formats: items without an id, a position or a query are left out and counted,
positions that count from 0 are recognised, a document that a page shows twice keeps its first place, and each click is
matched to the display it was on. Each of these gives one warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import ibis.expr.types as ir

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import sql_literal, sql_name
from clickharvest.logs.events import Events, spell_fields, value
from clickharvest.logs.matching import NOT_THERE, WITHIN, Match, match_clicks, spell_match, spell_torn
from clickharvest.logs.reading import read_log
from clickharvest.logs.validation import LARGEST_POSITION
from clickharvest.words import clean_text, count

NULL = "NULL::VARCHAR"


@dataclass(frozen=True)
class Rows:
    """Where events hold displays, or clicks: SQL on `event`, and on the `item` of its list.

    Attributes:
        kinds: the kinds of events.
        doc: the document, SQL on `item`.
        items: the list of items; None where an event is about one, which is the event itself.
        position: where the item was, SQL on `item`; its place in the list where no event says.
        item_list: what the list is called, SQL on `item`.
        alias: another name of the list, which clicks may use, SQL on `item`.
        list: the name of the list where `item_list` is empty.
        query: what the list was shown for; where it is empty, the name of the list, then `fallback`.
        fallback: the query of last resort.
        page: the result page; empty where a click does not name it.
        user: who saw it.
        time: when.
        group: events of one group count positions from the same number.
        paged_by_time: whether user, list and time make a page.
        query_alone: whether an empty query stays empty.
    """

    kinds: Sequence[str]
    doc: str
    items: str | None = None
    position: str = NULL
    item_list: str = NULL
    alias: str = NULL
    list: str = NULL
    query: str = NULL
    fallback: str = NULL
    page: str = NULL
    user: str = NULL
    time: str = "NULL::TIMESTAMP"
    group: str = NULL
    paged_by_time: bool = False
    query_alone: bool = False

    def select(self, events: str, others: dict[str, str]) -> str:
        """Return SQL for one row per item."""
        kinds = ", ".join(map(sql_literal, self.kinds))
        # Values of the whole event are computed once, not for each of its items.
        whole = {"page": self.page, "list": self.list, "query": self.query, "fallback": self.fallback,
                 "user": self.user, "time": self.time, "grp": self.group, **others}  # fmt: skip
        columns = ", ".join(f"{sql} AS {sql_name(name)}" for name, sql in whole.items())
        things = "[event]" if self.items is None else self.items
        opened = f"SELECT {columns}, {things} AS things FROM {events} WHERE kind IN ({kinds})"
        each = "unnest(things) AS item, generate_subscripts(things, 1) AS place"
        spread = f"SELECT * EXCLUDE (things), {each} FROM ({opened})"
        item_columns = f"{self.doc} AS doc, {self.position} AS written, {self.alias} AS alias"
        listed = f"coalesce({self.item_list}, list) AS list"
        rows = f"SELECT * EXCLUDE (item) REPLACE ({listed}), {item_columns} FROM ({spread})"
        page = "\"user\" || ' ' || coalesce(list, '') || ' ' || time" if self.paged_by_time else "page"
        query = "query" if self.query_alone else "coalesce(query, list, fallback)"
        return f"SELECT * EXCLUDE (fallback) REPLACE ({page} AS page, {query} AS query) FROM ({rows})"


@dataclass(frozen=True)
class ExportOptions:
    """The user's options for an export.

    Attributes:
        context: fields that examination may depend on, as paths.
        ranker: the field of the ranker or A/B arm.
        query: the field of the query, where the format leaves a choice.
        position_base: what positions count from, 0 or 1; found out by default.
        within: how long after a list was shown a click may be on it, where the click names no page.
    """

    context: Sequence[str] = ()
    ranker: str | None = None
    query: str | None = None
    position_base: int | None = None
    within: str = WITHIN

    def __post_init__(self) -> None:
        if self.position_base not in (None, 0, 1):
            raise InputError(f"the position base is {self.position_base}: expected 1, or 0 where the top position is 0")


@dataclass
class Export:
    """An export on its way to a click log.

    Attributes:
        title: its name in messages.
        events: its events.
        shown: where events hold displays.
        clicks: where events hold clicks.
        options: the user's options.
        lookup: SQL for the JSON at a path that the user names.
        no_query: advice where no list has a query.
        clicks_show: whether a click counts as a display of its document, on a page that has other displays.
        other_ids: why ids of documents may differ between clicks and lists, if known.
        named: whether every event must have a name.
        notes: one warning each.
    """

    title: str
    events: Events
    shown: Rows
    clicks: Rows
    options: ExportOptions
    lookup: Callable[[str], str] = value
    no_query: str = "name the field of the query with --query"
    clicks_show: bool = False
    other_ids: str = ""
    named: bool = True
    notes: list[str] = field(default_factory=list)

    def read(self) -> ClickLog:
        """Return the click log, and warn of everything that was left out or assumed.

        Raises:
            InputError: nothing was shown, or no click is on what was shown.

        Warns:
            HarvestWarning: events or clicks are left out, or positions count from 0.
        """
        self.events.require(self.shown.kinds, f"list among {count(self.events.total, 'event')} of {self.title}")
        self.events.require(self.clicks.kinds, f"click among {count(self.events.total, 'event')} of {self.title}")
        if self.events.bad:
            problem = "is no JSON object and is" if self.events.bad == 1 else "are no JSON objects and are"
            self.notes.append(f"{count(self.events.bad, 'line')} of the export {problem} left out")
        unnamed = self.events.kinds.get("", 0)
        if self.named and unnamed:
            self.notes.append(f"{count(unnamed, 'event')} without a name: left out")
        displays = self._displays()
        clicks = self._clicks(displays)
        engine = self.events.engine
        shown = engine.backend.table(displays)
        match = match_clicks(shown, engine.backend.table(clicks), self.options.within, engine)
        self._note_clicks(match)
        log = self._log(shown, match.clicked)
        for note in self.notes:
            warnings.warn(f"{self.title}: {note}", HarvestWarning, stacklevel=4)
        return log

    def _clicks(self, displays: str) -> str:
        """Return the table of clicks."""
        # A page that lists its own clicks may have none.
        empty = self._without_items(self.clicks) if self.clicks.kinds != self.shown.kinds else 0
        if empty:
            self.notes.append(f"{count(empty, 'click')} without items: left out")
        table = self.events.keep(self.clicks.select(self.events.name, {}))
        if self.shown.alias != NULL:
            # A click may know a list by its id alone.
            one = f"SELECT alias, min(list) AS name FROM {displays} GROUP BY alias HAVING min(list) = max(list)"
            named = f"SELECT c.* REPLACE (coalesce(a.name, c.list) AS list) FROM {table} AS c "
            table = self.events.keep(f"{named} LEFT JOIN ({one}) AS a ON c.list = a.alias")
        self._note_places(table, displays)
        return table

    def _note_places(self, clicks: str, displays: str) -> None:
        """Note clicks that name another position than the list of their page."""
        if self.clicks.position == NULL or self.clicks_show:
            return
        differ = "try_cast(c.written AS DOUBLE) <> d.position"
        joined = f"FROM {clicks} AS c JOIN {displays} AS d ON c.page = d.page AND c.doc = d.doc"
        others, clicks_there = self.events.run(f"SELECT count(*) FILTER ({differ}), count(*) {joined}")[0]
        if others:
            self.notes.append(
                f"{others:,} of {count(clicks_there, 'click')} were at another position than the list says: that of "
                "the list counts"
            )

    def _without_items(self, rows: Rows) -> int:
        """Return how many events have an empty list of items."""
        if rows.items is None:
            return 0
        kinds = ", ".join(map(sql_literal, rows.kinds))
        no_items = f"kind IN ({kinds}) AND coalesce(len({rows.items}), 0) = 0"
        empty: int = self.events.run(f"SELECT count(*) FROM {self.events.name} WHERE {no_items}")[0][0]
        return empty

    def _others(self) -> dict[str, str]:
        wanted = {f"c{i}": self.lookup(path) for i, path in enumerate(self.options.context)}
        if self.options.ranker:
            wanted["ranker"] = f"json_extract_string({self.lookup(self.options.ranker)}, '$')"
        return wanted

    def _displays(self) -> str:
        """Return the table of what was shown: one row per page and document, positions from 1."""
        others = self._others()
        shown = self.shown
        if self.options.query:
            chosen = f"json_extract_string({self.lookup(self.options.query)}, '$')"
            shown = replace(shown, query=chosen, query_alone=True)
        rows = f"SELECT *, false AS by_click FROM ({shown.select(self.events.name, others)})"
        if self.clicks_show:
            clicks = replace(self.clicks, query=shown.query)
            rows += f" UNION ALL BY NAME SELECT *, true AS by_click FROM ({clicks.select(self.events.name, others)})"
        table = self.events.keep(rows)
        self._check_fields(table, list(others))
        if self.options.query and not self.events.run(f"SELECT count(query) FROM {table}")[0][0]:
            raise InputError(f"missing column {self.options.query!r}: found {spell_fields(self.events)}")
        place = self._place(table)
        fine = (
            f"doc IS NOT NULL AND page IS NOT NULL AND query IS NOT NULL AND {place} BETWEEN 1 AND {LARGEST_POSITION}"
        )
        fine += f" AND {place} % 1 = 0"
        kept = ", ".join(
            f"min({sql_name(name)}) AS {sql_name(name)}" for name in ("list", "alias", "query", "user", "time", *others)
        )
        seen = f"min({place}) FILTER (NOT by_click)"
        grouped = f"SELECT page, doc, {kept}, coalesce({seen}, min({place}))::BIGINT AS position, "
        grouped += f"count(DISTINCT {place}) FILTER (NOT by_click) > 1 AS twice, bool_and(by_click) AS by_click "
        grouped += f"FROM {table} WHERE {fine} GROUP BY page, doc"
        # A page without displays is known from its clicks alone, which do not tell what was skipped.
        pages = f"SELECT *, bool_and(by_click) OVER (PARTITION BY page) AS clicks_alone FROM ({grouped})"
        displays = self.events.keep(f"SELECT * EXCLUDE (clicks_alone) FROM ({pages}) WHERE NOT clicks_alone")
        self._note_displays(table, fine, displays)
        return displays

    def _check_fields(self, table: str, others: Sequence[str]) -> None:
        """Raise `InputError` where no event has a field that the user named."""
        if not others:
            return
        there = self.events.run(f"SELECT {', '.join(f'count({name})' for name in others)} FROM {table}")[0]
        nested = [f"bool_or(json_type({name}) IN ('OBJECT', 'ARRAY'))" for name in others if name != "ranker"]
        named = dict(zip([*(f"c{i}" for i in range(len(self.options.context))), "ranker"],
                         [*self.options.context, self.options.ranker], strict=True))  # fmt: skip
        for name, rows in zip(others, there, strict=True):
            if not rows:
                role = "missing column" if name == "ranker" else "missing context column"
                raise InputError(f"{role} {named[name]!r}: found {spell_fields(self.events)}")
        answers = self.events.run(f"SELECT {', '.join(nested)} FROM {table}")[0] if nested else ()
        for name, is_nested in zip(self.options.context, answers, strict=True):
            if is_nested:
                inner = [path for path in self.events.fields() if path.startswith(f"{name}.")]
                such = f", such as {inner[0]}" if inner else ""
                raise InputError(f"context column {name!r} holds objects or lists: name a field of it{such}")

    def _place(self, table: str) -> str:
        """Return SQL for a row's position, from 1, having found out what positions count from."""
        number = "try_cast(written AS DOUBLE)"
        named = self.events.run(f"SELECT count({number}) FROM {table} WHERE NOT by_click")[0][0]
        if not named:
            if self.shown.position != NULL:
                self.notes.append("no list tells positions: the order of its items counts")
            return "place"
        base = self.options.position_base
        if base is not None:
            return f"({number} + {1 - base})"
        tops = f"SELECT grp, page, min({number}) AS top FROM {table} WHERE NOT by_click GROUP BY grp, page"
        counts = self.events.run(
            f"SELECT grp, count(*) FILTER (top = 0), count(*) FILTER (top = 1) FROM ({tops}) GROUP BY grp ORDER BY grp"
        )
        from_0 = [group for group, zero, one in counts if zero > one]
        if not from_0:
            return number
        known = [clean_text(group, 40) for group in from_0 if group is not None]
        whose = f" of {', '.join(known[:5])}" if known and len(counts) > 1 else ""
        self.notes.append(
            f"positions{whose} count from 0, so 1 is added; --position-base 0 confirms it, --position-base 1 denies it"
        )
        groups = " OR ".join(f"grp IS NOT DISTINCT FROM {'NULL' if g is None else sql_literal(g)}" for g in from_0)
        return f"({number} + CASE WHEN {groups} THEN 1 ELSE 0 END)"

    def _note_displays(self, table: str, fine: str, displays: str) -> None:
        whole = "doc IS NOT NULL AND page IS NOT NULL"
        lacking = {
            "without a document": "doc IS NULL",
            "without a page (its session, user or time is missing)": "doc IS NOT NULL AND page IS NULL",
            "without a query or name of a list": f"{whole} AND query IS NULL",
            "without a usable position": f"{whole} AND query IS NOT NULL AND NOT coalesce({fine}, false)",
        }
        counts = ", ".join(f"count(*) FILTER (NOT by_click AND {test})" for test in lacking.values())
        total, *broken = self.events.run(f"SELECT count(*) FILTER (NOT by_click), {counts} FROM {table}")[0]
        ((left, twice, by_click),) = self.events.run(
            f"SELECT count(*), count(*) FILTER (twice), count(*) FILTER (by_click) FROM {displays}"
        )
        problems = [f"{rows:,} {what}" for what, rows in zip(lacking, broken, strict=True) if rows]
        if not left:
            why = f"of {count(total, 'item')} of lists, {', '.join(problems)}" if problems else "all lists are empty"
            advice = f"; {self.no_query}" if broken[2] else ""
            raise InputError(f"{self.title}: nothing was shown: {why}{advice}")
        if problems:
            self.notes.append(f"{sum(broken):,} of {count(total, 'item')} of lists are left out: {', '.join(problems)}")
        empty = self._without_items(self.shown)
        if empty:
            self.notes.append(f"{count(empty, 'list')} without items")
        if twice:
            self.notes.append(f"{count(twice, 'document')} at several places of one page: the first place counts")
        if by_click:
            self.notes.append(
                f"{count(by_click, 'result')} clicked without having been shown: counted as shown where the click says"
            )

    def _note_clicks(self, match: Match) -> None:
        why = f"; {self.other_ids}" if self.other_ids and match.reasons[NOT_THERE] else ""
        if match.lost == match.clicks:
            raise InputError(
                f"{self.title}: no click is on what was shown: {match.spell_reasons() or 'there is none'}; see that "
                f"lists and clicks are of the same time, and name documents alike{why}"
            )
        if 2 * match.reasons[NOT_THERE] > match.clicks and why:
            self.notes.append(f"most clicks are on documents that their pages did not show{why}")
        self.notes += [note for note in (spell_match(match), spell_torn(match)) if note]

    def _log(self, shown: ir.Table, clicked: ir.Table) -> ClickLog:
        context = {name: f"c{i}" for i, name in enumerate(self.options.context)}
        kinds = self._kinds(shown.get_name(), list(context.values()))
        marked = clicked.select(its_page=clicked.page, its_doc=clicked.doc)
        joined = shown.left_join(marked, [shown.page == marked.its_page, shown.doc == marked.its_doc])
        filled = shown.agg(rows=shown.count(), user=shown.user.count(), no_time=shown.count() - shown.time.count())
        there = self.events.engine.fetch(filled, task="Reading events").to_pylist()[0]
        if 0 < there["no_time"] < there["rows"]:
            self.notes.append(
                f"{there['no_time']:,} of {count(there['rows'], 'result')} without a readable time, so that no "
                "time is used but to match clicks"
            )
        columns: dict[str, ir.Value] = {name: joined[name] for name in ("page", "query", "doc", "position")}
        columns["click"] = joined.its_page.notnull().ifelse(1, 0)
        complete = {"user": bool(there["user"]), "time": not there["no_time"]}
        columns |= {name: joined[name] for name, has in complete.items() if has and name not in context}
        columns |= {name: _typed(joined[column], kinds[column]) for name, column in context.items()}
        ranker = self.options.ranker
        if ranker and ranker not in columns:
            columns[ranker] = joined.ranker
        kept = self.events.engine.materialise(joined.select(**columns), task="Reading events")
        return read_log(kept, ranker=ranker or "", original="", context=tuple(context), engine=self.events.engine)

    def _kinds(self, table: str, columns: Sequence[str]) -> dict[str, str]:
        """Return what the JSON of each context column holds: numbers, truths or texts."""
        tests = {"number": "'UBIGINT', 'BIGINT', 'HUGEINT', 'DOUBLE'", "truth": "'BOOLEAN'"}
        kinds_of = {}
        for column in columns:
            columns_sql = ", ".join(f"bool_and(json_type({column}) IN ({kinds}))" for kinds in tests.values())
            answer = self.events.run(f"SELECT {columns_sql} FROM {table} WHERE {column} IS NOT NULL")[0]
            kinds_of[column] = next((kind for kind, holds in zip(tests, answer, strict=True) if holds), "text")
        return kinds_of


def _typed(column: ir.Value, kind: str) -> ir.Value:
    """Return JSON as a plain value."""
    plain = column.unwrap_as("string") if kind == "text" else column.cast("string")
    if kind == "text":
        return plain.coalesce(column.cast("string").nullif("null"))
    return plain.cast("float64") if kind == "number" else plain == "true"
