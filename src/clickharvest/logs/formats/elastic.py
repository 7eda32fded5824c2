"""Elastic behavioral analytics: events as its collections store them.

What is taken (names of the [events reference](https://www.elastic.co/guide/en/elasticsearch/reference/current/behavioral-analytics-event-reference.html)):

| here | there |
|---|---|
| a list was shown | `event.action` = `search`, one row for each of `search.results.items`, in their order |
| click | `event.action` = `search_click` |
| `doc` | `document.id`, else `page.url.original` or `page.url`, of the item and of the click |
| `position` | the place in `search.results.items`, plus (`search.page.current` − 1) · `search.page.size` |
| `query` | `search.query` |
| `page` | session, query and `@timestamp` |
| `user` | `session.id`, else `user.id` |
| `time` | `@timestamp` |

A click is on the latest search of the same session with the same query that returned its document, at most 30 minutes
earlier. Contexts are paths such as `search.search_application`. The items are what was returned: what was displayed
the events do not say.
"""

from __future__ import annotations

from typing import Any

from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import items, moment, open_events, text
from clickharvest.logs.formats import log_format

SEARCH, CLICK = "search", "search_click"


def looks_like_elastic(event: dict[str, Any]) -> bool:
    """Whether an event is one of Elastic's behavioral analytics."""
    inner = event.get("event")
    action = inner.get("action") if isinstance(inner, dict) else event.get("event.action")
    return action in (SEARCH, CLICK, "page_view", "pageview")


@log_format("elastic", looks_like_elastic, takes=("ranker", "within"))
def read_elastic(source: Any, *, clicks_from: Any = None, engine: Engine | None = None, **options: Any) -> ClickLog:
    """Elastic behavioral analytics: searches and clicks."""
    events = open_events(
        [source, clicks_from],
        engine,
        kind=text("event.action"),
        wanted=(SEARCH, CLICK),
        nested=("event", "search", "document", "session", "user", "page", "search.results.items"),
        as_text=("session.id", "user.id", "document.id"),
    )
    lists: dict[str, Any] = {
        "doc": text("document.id", "page.url.original", "page.url", of="item"),
        "list": text("search.query"),
        "user": text("session.id", "user.id"),
        "time": moment("@timestamp"),
    }
    page, size = (f"try_cast({text(f'search.page.{name}')} AS BIGINT)" for name in ("current", "size"))
    offset = f"coalesce(greatest({page} - 1, 0) * {size}, 0)"
    # The places of later pages count on from those before.
    placed = "json_object('document', json_extract(hit, '/document'), 'page', json_extract(hit, '/page'), "
    placed += f"'document.id', json_extract(hit, '/document.id'), 'place', {offset} + i)"
    hits = f"list_transform({items('search.results.items')}, lambda hit, i: {placed})"
    shown = Rows((SEARCH,), **lists, items=hits, position=text("place", of="item"), paged_by_time=True)
    return Export(
        "Elastic behavioral analytics",
        events,
        shown,
        Rows((CLICK,), **lists),
        ExportOptions(**options),
        no_query="search.query is missing",
    ).read()
