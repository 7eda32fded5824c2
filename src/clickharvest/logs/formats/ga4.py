"""Google Analytics 4, as BigQuery exports it: one event per row of `events_YYYYMMDD`.

What is taken (names of the [export's schema](https://support.google.com/analytics/answer/7029846)):

| here | there |
|---|---|
| a list was shown | `event_name` = `view_item_list`, one row for each of `items` |
| click | `event_name` = `select_item`, each of its `items` |
| `doc` | `items.item_id`, else `items.item_name` |
| `position` | `items.item_list_index`: text, may start at 0 or 1, may be `(not set)` |
| `query` | the event's `search_term`, else `items.item_list_name`, `items.item_list_id`, the event's `page_location` |
| `user` | the session: `user_pseudo_id` and the event parameter `ga_session_id` |
| `page` | session, name of the list and `event_timestamp` |
| `time` | `event_timestamp`, in microseconds |

Contexts are paths: `device.category`, `geo.country`, `platform`, `event_params.page_title`. A click is on the latest
view of the same list (by name or id) in the same session that had its item, at most 30 minutes earlier.
"""

from __future__ import annotations

from typing import Any

from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import entry, items, moment, open_events, something, text, value
from clickharvest.logs.formats import log_format

VIEW, CLICK = "view_item_list", "select_item"
VALUES = ("string_value", "int_value", "float_value", "double_value")
LISTS = ("event_params", "user_properties")


def looks_like_ga4(event: dict[str, Any]) -> bool:
    """Whether an event is one of Google Analytics 4."""
    return "event_name" in event and ("event_params" in event or "event_timestamp" in event)


@log_format("ga4", looks_like_ga4, takes=("query", "ranker", "within"))
def read_ga4(source: Any, *, clicks_from: Any = None, engine: Engine | None = None, **options: Any) -> ClickLog:
    """Google Analytics 4, as BigQuery exports it."""
    events = open_events(
        [source, clicks_from],
        engine,
        kind=text("event_name"),
        wanted=(VIEW, CLICK),
        nested=("items", *LISTS, "device", "geo"),
        as_text=("user_pseudo_id", "event_timestamp"),
    )
    lists: dict[str, Any] = {
        "doc": text("item_id", "item_name", of="item"),
        "items": items("items"),
        "item_list": text("item_list_name", "item_list_id", of="item"),
        "list": f"coalesce({parameter('item_list_name')}, {parameter('item_list_id')})",
        "user": f"{text('user_pseudo_id', 'user_id')} || coalesce('/' || {parameter('ga_session_id')}, '')",
        "time": moment("event_timestamp"),
    }
    shown = Rows(
        (VIEW,),
        **lists,
        position=text("item_list_index", "index", of="item"),
        alias=text("item_list_id", of="item"),
        query=parameter("search_term"),
        fallback=parameter("page_location"),
        paged_by_time=True,
    )
    return Export(
        "Google Analytics 4", events, shown, Rows((CLICK,), **lists), ExportOptions(**options), lookup=lookup
    ).read()


def parameter(name: str) -> str:
    """Return SQL for a parameter of the event, as text."""
    return something(f"json_extract_string({_parameter(name, 'event_params')}, '$')")


def lookup(path: str) -> str:
    """Return SQL for the JSON at a path, which may lead into a list of parameters."""
    first, _, rest = path.partition(".")
    return _parameter(rest, first) if first in LISTS and rest else value(path)


def _parameter(name: str, path: str) -> str:
    return value(*(f"value.{kind}" for kind in VALUES), of=entry(path, name))
