"""Algolia: the click events of its Insights API, and what its searches returned.

The log holds events, one a line or in requests (`{"events": [...]}`). The input `results` holds what was returned: one
search a line as the Search API answers, with `clickAnalytics` on (or several, `{"results": [...]}`), or one row per
result. What is taken (names of the [events](https://www.algolia.com/doc/libraries/sdk/methods/insights/push-events)
and of the answers to searches):

| here | events | results |
|---|---|---|
| `page` | `queryID` | `queryID` |
| `doc` | each of `objectIDs`, where `eventType` = `click` | `objectID` of `hits`, or `objectIDs`, or `objectID` |
| `position` | `positions` are compared with it | the place in `hits`, plus `page` · `hitsPerPage`; or `position` |
| `query` | | `query`, else `index` |
| `user` | | `userToken` |

Events without `queryID` come from no search; they are counted. Returned is not displayed: a result below the fold
counts as shown.
"""

from __future__ import annotations

from typing import Any

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import Events, items, moment, open_events, text
from clickharvest.logs.formats import log_format

RESULTS, CLICK = "results", "click"
RETURNED = "what was returned stands in for what was displayed: results that nobody scrolled to count as shown"


def looks_like_algolia(event: dict[str, Any]) -> bool:
    """Whether an event is one of Algolia's Insights."""
    inner = event.get("events")
    one = inner[0] if isinstance(inner, list) and inner and isinstance(inner[0], dict) else event
    return "objectIDs" in one and "eventType" in one


@log_format("algolia", looks_like_algolia, takes=("ranker",))
def read_algolia(source: Any, *, results: Any, engine: Engine | None = None, **options: Any) -> ClickLog:
    """Algolia's click events, joined to what its searches returned: the input results."""
    several = "CASE WHEN len({0}) > 0 THEN {0} ELSE [event] END"
    happened = open_events(
        [source], engine, kind="'any'", wanted=("any",), nested=("events", "objectIDs"), as_text=("queryID",)
    )
    single = f"SELECT unnest({several.format(items('events'))}) AS event FROM {happened.name} WHERE event IS NOT NULL"
    clicks = f"SELECT {text('eventType')} AS kind, event FROM ({single})"
    returned = open_events(
        [results], happened.engine, kind="'any'", wanted=("any",), nested=("hits", "objectIDs", "results"),
        as_text=("queryID", "objectID"),
    )  # fmt: skip
    answers = f"SELECT unnest({several.format(items('results'))}) AS event FROM {returned.name} WHERE event IS NOT NULL"
    both = happened.keep(f"{clicks} UNION ALL SELECT '{RESULTS}' AS kind, event FROM ({answers})")
    kinds = dict(happened.run(f"SELECT coalesce(kind, ''), count(*) FROM {both} GROUP BY ALL ORDER BY ALL DESC"))
    events = Events(both, happened.engine, kinds, happened.bad + returned.bad)
    if not events.run(f"SELECT count({text('queryID')}) FROM {both} WHERE kind = '{RESULTS}'")[0][0]:
        raise InputError(
            f"no queryID among {RESULTS} of Algolia: expected what searches returned, with clickAnalytics on"
        )
    hits = f"CASE WHEN len({items('hits')}) > 0 THEN {items('hits')} WHEN len({items('objectIDs')}) > 0 "
    hits += f"THEN {items('objectIDs')} WHEN {text('objectID')} IS NULL THEN []::JSON[] ELSE [event] END"
    offset = f"coalesce(try_cast({text('page')} AS BIGINT) * try_cast({text('hitsPerPage')} AS BIGINT), 0)"
    placed = f"json_object('hit', hit, 'place', {offset} + i, 'position', {text('position')})"
    shown = Rows(
        (RESULTS,),
        text("hit.objectID", "hit", of="item"),
        f"list_transform({hits}, lambda hit, i: {placed})",
        position=text("position", "place", of="item"),
        query=f"coalesce({text('query')}, {text('index', 'indexName')})",
        page=text("queryID"),
        user=text("userToken"),
        time=moment("timestamp"),
    )
    named = f"json_object('doc', doc, 'position', {items('positions')}[i])"
    clicked = f"list_transform({items('objectIDs')}, lambda doc, i: {named})"
    clicks_of = Rows(
        (CLICK,), text("doc", of="item"), clicked, position=text("position", of="item"), page=text("queryID")
    )
    export = Export(
        "Algolia",
        events,
        shown,
        clicks_of,
        ExportOptions(**options),
        no_query="results need query or index",
    )
    export.notes.append(RETURNED)
    return export.read()
