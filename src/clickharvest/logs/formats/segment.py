"""Segment's e-commerce events, version 2: calls of `track`, or the tables that its warehouses make of them.

What is taken (names of the [specification](https://www.twilio.com/docs/segment/connections/spec/ecommerce/v2)):

| here | there |
|---|---|
| a list was shown | `event` = `Product List Viewed` or `Product List Filtered`, one row per `properties.products` |
| click | `event` = `Product Clicked` |
| `doc` | `product_id`, else `sku` |
| `position` | `products.position` |
| `query` | `properties.query`, else `list_id`, else `category` |
| `page` | `messageId` (`id` in a warehouse) |
| `user` | `anonymousId`, else `userId` |
| `time` | `timestamp`, else `originalTimestamp`, `sentAt` |

A click names no list: it is on the latest list of the same user that had its product, at most 30 minutes earlier
(`--within`). Warehouses have a table for each event and columns without `properties`: pass `product_list_viewed` as the
log and `product_clicked` with `--clicks-from`. The names of version 1 (`Viewed Product Category`, `Clicked Product`)
are known.
"""

from __future__ import annotations

from typing import Any

from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import items, moment, open_events, text
from clickharvest.logs.formats import log_format

VIEWS = ("product list viewed", "product list filtered", "viewed product category")
CLICKS = ("product clicked", "clicked product")


def looks_like_segment(event: dict[str, Any]) -> bool:
    """Whether an event is a call of Segment's, or a row of its warehouse."""
    named = str(event.get("event", "")).lower().replace("_", " ")
    return ("properties" in event and "event" in event) or named in (*VIEWS, *CLICKS)


@log_format("segment", looks_like_segment, takes=("query", "ranker", "within"))
def read_segment(source: Any, *, clicks_from: Any = None, engine: Engine | None = None, **options: Any) -> ClickLog:
    """Segment's e-commerce events, version 2."""
    events = open_events(
        [source, clicks_from],
        engine,
        kind=f"lower(replace({text('event', 'event_text')}, '_', ' '))",
        wanted=(*VIEWS, *CLICKS),
        nested=("properties", "products", "context"),
        as_text=("product_id", "sku", "anonymous_id", "user_id", "id"),
    )
    who = text("anonymousId", "anonymous_id", "userId", "user_id")
    when = moment("timestamp", "originalTimestamp", "original_timestamp", "sentAt", "sent_at")
    clicks = Rows(
        CLICKS,
        text("properties.product_id", "product_id", "properties.sku", "sku", of="item"),
        list=text("properties.list_id", "list_id"),
        user=who,
        time=when,
    )
    shown = Rows(
        VIEWS,
        text("product_id", "sku", of="item"),
        items("properties.products", "products"),
        position=text("position", of="item"),
        list=text("properties.list_id", "list_id"),
        query=text("properties.query", "query"),
        fallback=text("properties.category", "category"),
        page=f"coalesce({text('messageId', 'message_id', 'id')}, {who} || ' ' || {when})",
        user=who,
        time=when,
    )
    # Calls of `identify` and `page` are among the others, and name no event.
    return Export("Segment", events, shown, clicks, ExportOptions(**options), named=False).read()
