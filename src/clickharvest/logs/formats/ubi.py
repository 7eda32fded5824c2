"""Reading OpenSearch *User Behavior Insights* (UBI): a table of queries and a table of events.

What is taken from them:

| here | there |
|---|---|
| `page` | `query_id`: one execution of a query |
| `query` | `user_query` of that execution |
| `doc` | `event_attributes.object.object_id` |
| `position` | `event_attributes.position.ordinal` |
| impression | an event with action `impression` or `view` (a click counts as one, too) |
| click | an event with action `click` on the same execution and object |
| `time` | `timestamp` of the query |

Every other plain column of the queries, such as `application` or `query_attributes.experiment`, can be a context
column or the ranker. Exports may nest their attributes (JSON) or name them with dots (CSV), and may wrap each
record in `_source`, as index dumps do.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog, number
from clickharvest.logs.engines import Engine
from clickharvest.logs.formats import log_format
from clickharvest.logs.reading import read_log
from clickharvest.logs.sources import open_source, spell_columns

IMPRESSIONS = ("impression", "view")
CLICK = "click"
OBJECT = "event_attributes.object.object_id"
ORDINAL = "event_attributes.position.ordinal"


def read_ubi(
    queries: Any,
    events: Any,
    *,
    ranker: str | None = None,
    context: Sequence[str] = (),
    position_base: int = 1,
    engine: Engine | None = None,
) -> ClickLog:
    """Read a click log from UBI's two tables.

    Args:
        queries: the queries, anything `open_source` takes.
        events: the events, likewise.
        ranker: column of the queries that tells the ranker or A/B arm.
        context: columns of the queries that examination may depend on.
        position_base: 0 where ordinals count from 0.
        engine: where to run; an embedded DuckDB by default.

    Raises:
        InputError: a column is missing, there are no impressions, or the rows cannot be a click log.

    Warns:
        HarvestWarning: results were shown for queries that `queries` lacks; they are left out.

    Example:
        >>> import pyarrow as pa
        >>> queries = pa.table({"query_id": ["1"], "user_query": ["shoes"], "timestamp": ["2026-01-01"]})
        >>> events = pa.table({"query_id": ["1", "1"], "action_name": ["impression", "click"],
        ...                    OBJECT: ["sku7", "sku7"], ORDINAL: [3, 3]})
        >>> log = read_ubi(queries, events)
        >>> log.engine.fetch(log.table.select("query", "doc", "position", "clicks"), task="").to_pylist()
        [{'query': 'shoes', 'doc': 'sku7', 'position': 3, 'clicks': 1}]
    """
    asked, engine = open_source(queries, engine, text=("query_id", "user_query"))
    happened, engine = open_source(events, engine, text=("query_id", "action_name", OBJECT, ORDINAL))
    asked, happened = flatten(asked), flatten(happened)
    _require(asked, ("query_id", "user_query"), "queries")
    _require(happened, ("query_id", "action_name", OBJECT, ORDINAL), "events")
    shown = _shown(happened)
    asked = asked.mutate(query_id=asked.query_id.cast("string"))
    joined = shown.inner_join(asked.drop(*(set(shown.columns) & set(asked.columns) - {"query_id"})), "query_id")
    _check_events(happened, shown, joined, engine)
    return read_log(
        joined,
        query="user_query",
        doc=OBJECT,
        position=ORDINAL,
        click=CLICK,
        page="query_id",
        time="timestamp" if "timestamp" in asked.columns else "",
        original="",
        ranker=ranker,
        context=context,
        position_base=position_base,
        engine=engine,
    )


@log_format("ubi")
def read_events(
    source: Any,
    *,
    queries: str,
    ranker: str | None = None,
    context: Sequence[str] = (),
    position_base: int = 1,
    engine: Engine | None = None,
) -> ClickLog:
    """OpenSearch User Behavior Insights: the log holds the events, the input `queries` their queries."""
    return read_ubi(queries, source, ranker=ranker, context=context, position_base=position_base, engine=engine)


def flatten(table: ir.Table) -> ir.Table:
    """Return a table whose nested records are columns named with dots, those of `_source` without the prefix.

    Example:
        >>> nested = ibis.table({"_source": "struct<a: int64, b: struct<c: string>>"}, name="t")
        >>> flatten(nested).columns
        ('a', 'b.c')
    """
    columns: dict[str, ir.Value] = {}
    waiting = [(name, table[name]) for name in table.columns]
    while waiting:
        name, value = waiting.pop(0)
        if value.type().is_struct():
            prefix = "" if name == "_source" else f"{name}."
            waiting[:0] = [(f"{prefix}{part}", value[part]) for part in value.names]
        else:
            columns[name] = value
    return table.select(**columns)


def _shown(events: ir.Table) -> ir.Table:
    """Return every object shown for a query: its position, and whether it was clicked."""
    kept = events.filter(events.action_name.lower().isin([*IMPRESSIONS, CLICK]) & events[OBJECT].notnull())
    position = number(kept[ORDINAL])
    is_click = kept.action_name.lower() == CLICK
    grouped = kept.group_by(kept.query_id.cast("string").name("query_id"), kept[OBJECT].cast("string").name(OBJECT))
    return grouped.agg(
        ibis.coalesce(position.min(where=~is_click), position.min()).name(ORDINAL),
        is_click.ifelse(1, 0).max().name(CLICK),
        is_click.ifelse(0, 1).max().name("seen"),
    )


def _check_events(events: ir.Table, shown: ir.Table, joined: ir.Table, engine: Engine) -> None:
    counts = shown.agg(results=shown.count(), seen=shown.seen.sum()).cross_join(joined.agg(known=joined.count()))
    found = engine.fetch(counts, task="Reading events").to_pylist()[0]
    if not found["seen"]:
        actions = events.group_by("action_name").agg(rows=events.count()).order_by(ibis.desc("rows")).limit(5)
        names = engine.fetch(actions, task="Reading events")["action_name"].to_pylist()
        raise InputError(
            f"no impressions among the events: expected the actions {' or '.join(IMPRESSIONS)} with {OBJECT}, found "
            f"{', '.join(map(str, names)) or 'no event'}; log what was shown, not only what was clicked"
        )
    if not found["known"]:
        raise InputError(
            f"no query_id of the {found['results']:,} results shown is among the queries: export queries and events of "
            "the same time"
        )
    if found["known"] < found["results"]:
        warnings.warn(
            f"{found['results'] - found['known']:,} of {found['results']:,} results were shown for a query_id that is "
            "not among the queries; they are left out",
            HarvestWarning,
            stacklevel=3,
        )


def _require(table: ir.Table, needed: Sequence[str], what: str) -> None:
    missing = [name for name in needed if name not in table.columns]
    if missing:
        found = spell_columns(table.columns)
        raise InputError(f"the UBI {what} lack {', '.join(missing)}: found {found}; export them as they are")
