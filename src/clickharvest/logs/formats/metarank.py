"""Metarank: its own events, as it imports them.

What is taken (names of the [event schema](https://github.com/metarank/metarank/blob/master/doc/event-schema.md)):

| here | there |
|---|---|
| a list was shown | `event` = `ranking`, one row for each of `items`, in their order |
| click | `event` = `interaction` of `type` = `click` (another with `--inputs type=NAME`) |
| `doc` | `items.id`; `item` of the interaction |
| `position` | the place in `items` |
| `query` | the field `query`; another with `--query NAME` |
| `page` | `id` of the ranking; `ranking` of the interaction |
| `user` | `session`, else `user` |
| `time` | `timestamp` |

Contexts, ranker and query are names in `fields`, or paths. An interaction without `ranking` is on the latest ranking of
the same user that had its item, at most 30 minutes earlier.
"""

from __future__ import annotations

from typing import Any

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.displays import Export, ExportOptions, Rows
from clickharvest.logs.engines import Engine
from clickharvest.logs.events import entry, items, moment, open_events, something, text, value
from clickharvest.logs.formats import log_format

RANKING, INTERACTION = "ranking", "interaction"


def looks_like_metarank(event: dict[str, Any]) -> bool:
    """Whether an event is one of Metarank's."""
    return event.get("event") in (RANKING, INTERACTION, "item", "user") and "timestamp" in event and "id" in event


@log_format("metarank", looks_like_metarank, takes=("query", "ranker", "within"))
def read_metarank(
    source: Any, *, type: str = "click", clicks_from: Any = None, engine: Engine | None = None, **options: Any
) -> ClickLog:
    """Metarank's events: rankings and interactions."""
    clicked = f"{INTERACTION} of type {type}"
    events = open_events(
        [source, clicks_from],
        engine,
        kind=f"CASE {text('event')} WHEN '{INTERACTION}' THEN '{INTERACTION} of type ' || coalesce({text('type')}, '') "
        f"ELSE {text('event')} END",
        wanted=(RANKING, clicked),
        nested=("items", "fields"),
        as_text=("id", "ranking", "item", "user", "session", "timestamp"),
    )
    if events.kinds.get(RANKING) and not events.kinds.get(clicked):
        raise InputError(
            f"no {clicked} among the events of Metarank: found {events.spell_kinds()}; name the type of a click with "
            "--inputs type=NAME"
        )
    who: dict[str, Any] = {"user": text("session", "user"), "time": moment("timestamp")}
    searched = something(f"json_extract_string({lookup('query')}, '$')")
    shown = Rows((RANKING,), text("id", of="item"), items("items"), query=searched, page=text("id"), **who)
    clicks = Rows((clicked,), text("item", of="item"), page=text("ranking"), **who)
    return Export("Metarank", events, shown, clicks, ExportOptions(**options), lookup=lookup).read()


def lookup(path: str) -> str:
    """Return SQL for the JSON of a field, or at a path."""
    name = path.removeprefix("fields.")
    return f"coalesce({value('value', of=entry('fields', name, name='name'))}, {value(path)})"
