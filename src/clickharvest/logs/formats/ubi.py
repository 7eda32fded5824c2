"""OpenSearch *User Behavior Insights* (UBI): queries and events, in two files or mixed in one.

What is taken (names of UBI's [schema](https://docs.opensearch.org/latest/search-plugins/ubi/schemas/)):

| here | there |
|---|---|
| `page` | `query_id`: one execution of a query |
| `query` | `user_query` of that execution, else of the event |
| `doc` | `event_attributes.object.object_id` |
| `position` | `event_attributes.position.ordinal`, from 0 or 1, found out for each `application` |
| impression | an event with action `impression` or `view`; a click on a page that has impressions counts as one, too |
| click | an event with action `click` on the same execution and object |
| `user` | `client_id` |
| `time` | `timestamp` of the query |

Where there are no impressions, `query_response_hit_ids` of the queries tells what was *returned*, in order, which is
not what was displayed; a warning says so. Queries may repeat a `query_id`: the first with hits counts. Any field of the
queries or events, such as `application` or `query_attributes.experiment`, can be a context or the ranker. Exports may
be bulk files or index dumps, nest their attributes (JSON, Parquet) or name them with dots (CSV).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import Events, items, moment, open_events, spell_fields, text, value
from clickharvest.logs.formats import log_format
from clickharvest.words import count

IMPRESSIONS = ("impression", "view")
CLICK = "click"
QUERY = "a query"
"""The kind of what is no event but a query."""
OBJECT = "event_attributes.object.object_id"
ORDINAL = "event_attributes.position.ordinal"
HITS = "query_response_hit_ids"
SAME_TIME = "export queries and events of the same time"
EVENT, SEARCH = "json_extract(event, '/done')", "json_extract(event, '/asked')"
"""An event, and the query that it belongs to."""


def looks_like_ubi(event: dict[str, Any]) -> bool:
    """Whether an event is one of UBI, or a query."""
    return "query_id" in event and ("action_name" in event or "user_query" in event)


def read_ubi(
    queries: Any,
    events: Any,
    *,
    ranker: str | None = None,
    context: Sequence[str] = (),
    position_base: int | None = None,
    engine: Engine | None = None,
) -> ClickLog:
    """Read a click log from UBI's queries and events.

    Args:
        queries: the queries, anything `open_source` takes; None where they are among the events.
        events: the events, likewise.
        ranker: field of the queries or events that tells the ranker or A/B arm.
        context: fields of the queries or events that examination may depend on.
        position_base: what ordinals count from, 0 or 1; found out by default.
        engine: where to run; an embedded DuckDB by default.

    Raises:
        InputError: a field is missing, nothing was shown, or no click is on what was shown.

    Warns:
        HarvestWarning: events are left out, ordinals count from 0, or what was returned stands in for what was shown.

    Example:
        >>> import pyarrow as pa
        >>> queries = pa.table({"query_id": ["1"], "user_query": ["shoes"], "timestamp": ["2026-01-01"]})
        >>> events = pa.table({"query_id": ["1", "1"], "action_name": ["impression", "click"],
        ...                    OBJECT: ["sku7", "sku7"], ORDINAL: [3, 3]})
        >>> log = read_ubi(queries, events)
        >>> log.engine.fetch(log.table.select("query", "doc", "position", "clicks"), task="").to_pylist()
        [{'query': 'shoes', 'doc': 'sku7', 'position': 3, 'clicks': 1}]
    """
    opened = open_events(
        [events, queries],
        engine,
        kind=f"coalesce(lower({text('action_name')}), CASE WHEN {text('query_id')} IS NOT NULL THEN '{QUERY}' END)",
        wanted=(*IMPRESSIONS, CLICK, QUERY),
        nested=("event_attributes", "query_attributes", HITS),
        as_text=("query_id", "action_name", "user_query", OBJECT, ORDINAL),
    )
    impressions = ", ".join(f"'{kind}'" for kind in IMPRESSIONS)
    is_shown = f"kind IN ({impressions}) AND {text(OBJECT)} IS NOT NULL"
    hits = f"kind = '{QUERY}' AND len({items(HITS)}) > 0"
    some, returned = opened.run(f"SELECT bool_or({is_shown}), bool_or({hits}) FROM {opened.name}")[0]
    # Impressions that name no object tell nothing; where queries say what was returned, that is better.
    seen = bool(some) or (any(opened.kinds.get(kind) for kind in IMPRESSIONS) and not returned)
    _check(opened, seen, queries is not None)
    joined, doubtful, answers = _with_queries(opened)
    about: dict[str, Any] = {
        "page": _either("query_id"),
        "query": _either("user_query"),
        "user": _either("client_id"),
        "time": f"coalesce({moment('timestamp', of=SEARCH)}, {moment('timestamp', of=EVENT)})",
        "group": _either("application"),
    }
    doc, position = (text(name, of="json_extract(item, '/done')") for name in (OBJECT, ORDINAL))
    clicks = Rows((CLICK,), doc, position=position, **about)
    if seen:
        shown = Rows(IMPRESSIONS, doc, position=position, **about)
    else:
        shown = Rows((QUERY,), "json_extract_string(item, '$')", items(HITS, of=SEARCH), **about)
    options = ExportOptions(context, ranker, None, position_base)
    export = Export("UBI", joined, shown, clicks, options, lookup, no_query=SAME_TIME, clicks_show=seen)
    if doubtful:
        export.notes.append(f"{count(doubtful, 'query_id')} with several user queries: the first counts")
    if answers and not seen:
        export.notes.append(f"{count(answers, 'query_id')} with several answers: the first counts")
    if not seen:
        export.notes.append(
            f"there are no impressions of objects, so {HITS} stands in for them: it holds what was returned, and "
            "results that nobody scrolled to count as shown"
        )
        export.other_ids = f"{HITS} may hold Lucene's own ids where the queries name no object_id_field"
    return export.read()


@log_format("ubi", looks_like_ubi, takes=("ranker",))
def read_events(source: Any, *, queries: Any = None, engine: Engine | None = None, **options: Any) -> ClickLog:
    """OpenSearch User Behavior Insights: events and queries mixed, or queries in the input `queries`."""
    return read_ubi(queries, source, engine=engine, **options)


def lookup(path: str) -> str:
    """Return SQL for the JSON at a path of the query, or of the event."""
    return f"coalesce({value(path, of=SEARCH)}, {value(path, of=EVENT)})"


def _either(name: str) -> str:
    return f"coalesce({text(name, of=SEARCH)}, {text(name, of=EVENT)})"


def _check(events: Events, seen: bool, queries_given: bool) -> None:
    """Raise `InputError` where the events lack what every UBI export has."""
    rows_of_events = f"FROM {events.name} WHERE kind IN ('{CLICK}', '{IMPRESSIONS[0]}', '{IMPRESSIONS[1]}')"
    rows, objects, ordinals = events.run(
        f"SELECT count(*), count({text(OBJECT)}), count({text(ORDINAL)}) {rows_of_events}"
    )[0]
    lacking = [name for name, there in ((OBJECT, objects), (ORDINAL, ordinals or (objects and not seen))) if not there]
    if rows and lacking:
        raise InputError(
            f"the UBI events lack {', '.join(lacking)}: found {spell_fields(events)}; export them as they are"
        )
    hits, texts = events.run(
        f"SELECT coalesce(max(len({items(HITS)})), 0), count({text('user_query')}) FROM {events.name}"
    )[0]
    if not seen and not hits:
        raise InputError(
            f"no impressions among the events: expected the actions {' or '.join(IMPRESSIONS)} with {OBJECT}, found "
            f"{events.spell_kinds()}; log what was shown, not only what was clicked"
        )
    if not texts:
        what = "queries" if queries_given else "events"
        advice = "export them as they are" if queries_given else "name the queries with --inputs queries=FILE"
        raise InputError(f"the UBI {what} lack user_query: found {spell_fields(events)}; {advice}")


def _with_queries(events: Events) -> tuple[Events, int, int]:
    """Return events `{"done": event, "asked": its query}`, and how many queries have several texts, and answers."""
    order = f"{text('query_id')} AS id, event, {items(HITS)} AS hits, {moment('timestamp')} AS moment"
    queries = events.keep(f"SELECT {order}, {text('user_query')} AS words FROM {events.name} WHERE kind = '{QUERY}'")
    ranked = (
        "row_number() OVER (PARTITION BY id ORDER BY coalesce(len(hits), 0) = 0, moment NULLS LAST, event::VARCHAR)"
    )
    first = f"SELECT id, event AS asked FROM {queries} WHERE id IS NOT NULL QUALIFY {ranked} = 1"
    done = (
        f"SELECT kind, event, {text('query_id')} AS id FROM {events.name} WHERE event IS NOT NULL AND kind <> '{QUERY}'"
    )
    both = (
        f"SELECT kind, json_object('done', event, 'asked', asked) AS event FROM ({done}) LEFT JOIN ({first}) USING (id)"
    )
    alone = f"SELECT '{QUERY}' AS kind, json_object('done', NULL, 'asked', asked) AS event FROM ({first})"
    name = events.keep(f"{both} UNION ALL {alone}")
    texts, answers = "count(DISTINCT words) > 1", "count(DISTINCT hits) FILTER (len(hits) > 0) > 1"
    several = f"SELECT {texts} AS doubtful, {answers} AS torn FROM {queries} WHERE id IS NOT NULL GROUP BY id"
    counts = "count(*) FILTER (doubtful), count(*) FILTER (torn)"
    doubtful, torn = events.run(f"SELECT {counts} FROM ({several})")[0]
    return Events(name, events.engine, events.kinds, events.bad, events), doubtful, torn
