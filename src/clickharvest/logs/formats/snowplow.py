"""Snowplow e-commerce: the events of the warehouse, or the table `product_interactions` of its dbt package.

What is taken (names of the e-commerce plugin's [events](https://docs.snowplow.io/docs/events/ootb-data/ecommerce-events/)
and of the package [snowplow-ecommerce](https://github.com/snowplow/dbt-snowplow-ecommerce)):

| here | events | `product_interactions` |
|---|---|---|
| a list was shown | `type` = `list_view`, one row per product | `ecommerce_action_type` or `product_view_type` |
| click | `type` = `list_click` | `ecommerce_action_type`; in older tables a row that is no other action |
| `doc` | `id` of the product context | `product_id` |
| `position` | `position` of the product context | `product_list_position` |
| `query` | `name` of the action, else `page_urlpath` | `ecommerce_action_name`, else `product_list_name` |
| `page` | `event_id` | `event_id` |
| `user` | `domain_sessionid`, else `domain_userid` | the same |
| `time` | `derived_tstamp`, else `collector_tstamp` | the same |

The action is the column `unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_1`, the
products are `contexts_com_snowplowanalytics_snowplow_ecommerce_product_1`; BigQuery's `_1_0_2` is known, too. A click
is on the latest view of its list (older tables do not name it) in the same session that had its product, at most 30
minutes earlier.
"""

from __future__ import annotations

from typing import Any

from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import items, moment, open_events, text
from clickharvest.logs.formats import log_format

VIEW, CLICK = "list_view", "list_click"
SCHEMA = "com_snowplowanalytics_snowplow_ecommerce"
VERSIONS = ("1", "1_0_2", "1_0_1", "1_0_0")
ACTIONS = [f"unstruct_event_{SCHEMA}_snowplow_ecommerce_action_{version}" for version in VERSIONS]
PRODUCTS = [f"contexts_{SCHEMA}_product_{version}" for version in VERSIONS]
OTHERS = ("is_product_view", "is_add_to_cart", "is_remove_from_cart", "is_product_transaction")
"""What a row of an older `product_interactions` may be, beside a click on a list."""


def looks_like_snowplow(event: dict[str, Any]) -> bool:
    """Whether an event is one of Snowplow's e-commerce events."""
    return "product_event_id" in event or any(name in event for name in (*ACTIONS, *PRODUCTS))


@log_format("snowplow", looks_like_snowplow, takes=("query", "ranker", "within"))
def read_snowplow(source: Any, *, clicks_from: Any = None, engine: Engine | None = None, **options: Any) -> ClickLog:
    """Snowplow e-commerce events, or the table product_interactions of its dbt package."""
    no_other = " AND ".join(f"coalesce({text(name)}, 'false') = 'false'" for name in OTHERS)
    older = f"CASE WHEN {text('product_event_id')} IS NOT NULL AND {no_other} THEN '{CLICK}' END"
    named = text("ecommerce_action_type", "product_view_type", *(f"{action}.type" for action in ACTIONS))
    events = open_events(
        [source, clicks_from],
        engine,
        kind=f"coalesce({named}, {older})",
        wanted=(VIEW, CLICK),
        nested=(*ACTIONS, *PRODUCTS),
        as_text=("product_id", "event_id", "domain_sessionid", "domain_userid"),
    )
    products = items(*PRODUCTS)
    lists: dict[str, Any] = {
        "doc": text("id", "product_id", of="item"),
        # The dbt table has one product per row.
        "items": f"CASE WHEN {text('product_id')} IS NULL THEN {products} ELSE [event] END",
        "list": text("ecommerce_action_name", "product_list_name", *(f"{action}.name" for action in ACTIONS)),
        "user": text("domain_sessionid", "domain_userid", "user_id"),
        "time": moment("derived_tstamp", "collector_tstamp", "dvce_created_tstamp"),
    }
    shown = Rows(
        (VIEW,),
        **lists,
        position=text("position", "product_list_position", of="item"),
        page=text("event_id"),
        fallback=text("page_urlpath"),
    )
    # Most events of a warehouse are none of a list, and have no type.
    return Export("Snowplow", events, shown, Rows((CLICK,), **lists), ExportOptions(**options), named=False).read()
