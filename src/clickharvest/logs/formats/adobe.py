"""Adobe Commerce: storefront events of Live Search, as they are published to the data layer.

What is taken (names of the [storefront events](https://github.com/adobe/commerce-events), in `eventInfo` or beside it):

| here | there |
|---|---|
| a list was shown | `event` = `search-results-view` or `category-results-view`: `searchResultsContext.units.products` |
| click | `event` = `search-product-click` |
| `doc` | `products.sku`; `sku` of the click |
| `position` | `products.rank`, on later pages (`units.page`, `units.perPage`) counted through |
| `query` | `searchInputContext.units.phrase` of the same `searchRequestId`, in this or an earlier event |
| `page` | `units.searchRequestId` of the unit `searchUnitId` |
| `time` | `timestamp`, if there is any |

Popover and results page are units of their own. `searchUnitId` can be a context.
"""

from __future__ import annotations

from typing import Any

from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine, sql_literal
from clickharvest.logs.events import Events, items, moment, open_events, text, value
from clickharvest.logs.formats import log_format
from clickharvest.words import count

VIEWS = ("search-results-view", "category-results-view")
CLICKS = ("search-product-click",)
INPUTS = ("search-request-sent", "search-response-received")
"""Events that may hold the phrase of a search before it is shown."""


def looks_like_adobe(event: dict[str, Any]) -> bool:
    """Whether an event is one of Adobe Commerce's storefront."""
    return event.get("event") in (*VIEWS, *CLICKS, *INPUTS) or ("eventInfo" in event and "event" in event)


@log_format("adobe", looks_like_adobe, takes=("ranker",))
def read_adobe(source: Any, *, clicks_from: Any = None, engine: Engine | None = None, **options: Any) -> ClickLog:
    """Adobe Commerce's storefront events: search results and clicks on products."""
    events = open_events(
        [source, clicks_from],
        engine,
        kind=text("event", "eventType"),
        wanted=(*VIEWS, *CLICKS, *INPUTS),
        nested=("eventInfo", "searchResultsContext", "searchInputContext", "context"),
    )
    lost = _without_unit(events)
    events = _with_phrases(events)
    # Each event is now one unit of the page, with the phrase that was searched for.
    lists: dict[str, Any] = {"page": text("unit.searchRequestId"), "user": text("user"), "time": moment("time")}
    shown = Rows(
        VIEWS,
        text("sku", of="item"),
        items("products"),
        position=text("rank", of="item"),
        query=text("phrase"),
        **lists,
    )
    clicks = Rows(CLICKS, text("sku", of="item"), **lists)
    export = Export(
        "Adobe Commerce",
        events,
        shown,
        clicks,
        ExportOptions(**options),
        lookup,
        no_query="export the events that hold searchInputContext, too",
        named=False,
    )
    if lost:
        export.notes.append(f"{count(lost, 'event')} without the unit of search results that it is about: left out")
    return export.read()


def lookup(path: str) -> str:
    """Return SQL for the JSON at a path of the unit, or of the event."""
    return value(f"unit.{path}", f"whole.{path}", f"whole.eventInfo.{path}")


def _units(name: str) -> str:
    return items(f"eventInfo.{name}.units", f"{name}.units", f"context.{name}.units")


def _about() -> str:
    """Return SQL on `unit` for whether the event is about it."""
    return f"coalesce({text('eventInfo.searchUnitId', 'searchUnitId')} = {text('searchUnitId', of='unit')}, true)"


def _without_unit(events: Events) -> int:
    """Return how many lists and clicks name no unit of search results."""
    kinds = ", ".join(map(sql_literal, (*VIEWS, *CLICKS)))
    units = f"list_filter({_units('searchResultsContext')}, lambda unit: {_about()})"
    none = f"kind IN ({kinds}) AND coalesce(len({units}), 0) = 0"
    lost: int = events.run(f"SELECT count(*) FROM {events.name} WHERE {none}")[0][0]
    return lost


def _with_phrases(events: Events) -> Events:
    """Return the events, one for each unit of search results that it is about, with the phrase of its request."""
    there = f"FROM {events.name} WHERE event IS NOT NULL"
    units = f"SELECT unnest({_units('searchInputContext')}) AS unit {there}"
    request = f"{text('searchRequestId', of='unit')} AS id"
    phrases = f"SELECT {request}, min({text('phrase', of='unit')}) AS phrase FROM ({units}) GROUP BY id"
    shown = f"SELECT kind, event, unnest({_units('searchResultsContext')}) AS unit {there}"
    units = f"SELECT *, {request} FROM ({shown}) WHERE {_about()}"
    page, size = (f"try_cast({text(name, of='unit')} AS BIGINT)" for name in ("page", "perPage"))
    rank = f"try_cast({text('rank', of='hit')} AS BIGINT)"
    # Where a later page counts from 1 again, its places in the whole list are meant.
    through = f"CASE WHEN {page} > 1 AND {rank} <= {size} THEN {rank} + ({page} - 1) * {size} ELSE {rank} END"
    product = f"json_object('sku', json_extract(hit, '/sku'), 'rank', {through})"
    whole = {
        "unit": "unit",
        "whole": "event",
        "phrase": "phrase",
        "sku": value("eventInfo.sku", "sku"),
        "products": f"list_transform({items('products', of='unit')}, lambda hit: {product})",
        "time": value("timestamp", "eventInfo.timestamp", "time"),
        "user": value("eventInfo.shopperContext.shopperId", "userId", "sessionId"),
    }
    made = ", ".join(f"'{name}', {sql}" for name, sql in whole.items())
    joined = f"({units}) LEFT JOIN ({phrases}) USING (id)"
    name = events.keep(f"SELECT kind, json_object({made}) AS event FROM {joined}")
    return Events(name, events.engine, events.kinds, events.bad, events)
