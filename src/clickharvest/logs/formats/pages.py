"""Pages: one row per result page, with a list of its documents and a list of the clicked ones.

| here | there |
|---|---|
| `query` | `query`; another column with `--query` |
| `doc` | each of `docs` (`--doc`): a list of ids, or of objects that have an `id`, `doc_id`, `sku` … |
| `position` | the place in the list |
| click | each of `clicked` (`--click`): documents, positions, or a 0/1 for each document; one alone needs no list |
| `page`, `user`, `time`, `ranker` | columns of these names, if there; each row is a page where there is no `page` |

JSONL, Parquet with lists, or CSV with lists as JSON (`["a", "b"]`). Which of the three the clicks are is found out;
`--inputs clicked=docs`, `positions` or `flags` says it. Clicks may also come from a second file, `--clicks-from`, of
`page` and `doc`, or of `user`, `doc` and `time`.
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
from clickharvest.logs.matching import WITHIN
from clickharvest.words import count

PAGE, CLICK = "page", "click"
IDS = ("id", "doc", "doc_id", "document_id", "item_id", "product_id", "sku", "objectID")
WHOLE = "json_extract(event, '/whole')"
"""The row as it came."""
MEANINGS = ("docs", "positions", "flags")


def looks_like_pages(event: dict[str, Any]) -> bool:
    """Whether a record is a page with a list of documents."""
    return isinstance(event.get("docs"), list) and "query" in event


@log_format("pages", looks_like_pages)
def read_pages(
    source: Any,
    *,
    query: str = "query",
    doc: str = "docs",
    click: str = "clicked",
    page: str = "page",
    user: str = "user",
    time: str = "time",
    ranker: str | None = None,
    context: Sequence[str] = (),
    position_base: int | None = None,
    clicked: str | None = None,
    clicks_from: Any = None,
    within: str = WITHIN,
    engine: Engine | None = None,
) -> ClickLog:
    """One row per page, with a list of documents and a list of the clicked ones."""
    if clicked not in (None, *MEANINGS):
        raise InputError(f"--inputs clicked={clicked}: expected one of {', '.join(MEANINGS)}")
    nested, as_text = (doc, click), (query, page, user)
    events = open_events([source], engine, kind=f"'{PAGE}'", wanted=(PAGE,), nested=nested, as_text=as_text)
    _require(events, doc, "--doc", items(doc), "the documents of a page as a list")
    if not events.run(f"SELECT count({text(query)}) FROM {events.name}")[0][0]:
        raise InputError(
            f"missing column {query!r}: found {spell_fields(events)}; name the right one with --query COLUMN"
        )
    docs = f"list_transform({items(doc)}, lambda one: {text_of_id('one')}) AS docs"
    clicks = f"list_transform({_as_list(click)}, lambda one: {text_of_id('one')}) AS clicks"
    names = f"coalesce({text(page)}, 'row ' || row_number() OVER ()) AS page"
    table = events.keep(f"SELECT event, {docs}, {clicks}, {names} FROM {events.name} WHERE event IS NOT NULL")
    notes: list[str] = []
    chosen, usable = "[]::VARCHAR[]", "true"
    if clicks_from is None:
        chosen, usable = _clicked(events, table, click, clicked, position_base, notes)
    whole = f"json_object('page', page, 'docs', docs, 'clicked', {chosen}, 'whole', event)"
    rows = f"SELECT '{PAGE}' AS kind, {whole} AS event FROM {table} WHERE {usable}"
    kinds, bad = dict(events.kinds), events.bad
    if clicks_from is not None:
        texts = (*as_text, "doc")
        second = open_events([clicks_from], events.engine, kind=f"'{CLICK}'", wanted=(CLICK,), as_text=texts)
        one = f"json_object('page', {text(page)}, 'clicked', [{text('doc', doc)}], 'whole', event)"
        rows += f" UNION ALL SELECT kind, {one} FROM {second.name} WHERE event IS NOT NULL"
        kinds |= second.kinds
        bad += second.bad
    combined = Events(events.keep(rows), events.engine, kinds, bad, events)
    about: dict[str, Any] = {"page": text("page"), "user": text(user, of=WHOLE), "time": moment(time, of=WHOLE)}
    item = "json_extract_string(item, '$')"
    shown = Rows((PAGE,), item, items("docs"), query=text(query, of=WHOLE), **about)
    clicked_rows = Rows((CLICK,) if clicks_from is not None else (PAGE,), item, items("clicked"), **about)
    options = ExportOptions(context, ranker, None, None, within)
    return Export(
        "pages", combined, shown, clicked_rows, options, lambda path: value(path, of=WHOLE), notes=notes
    ).read()


def text_of_id(sql: str) -> str:
    """Return SQL for the id of a document: the value itself, or what an object calls its id."""
    return f"CASE WHEN json_type({sql}) = 'OBJECT' THEN {text(*IDS, of=sql)} ELSE json_extract_string({sql}, '$') END"


def _as_list(column: str) -> str:
    """Return SQL for a list as a list of JSON; a single value is a list of one."""
    alone = f"{text(column)} IS NOT NULL AND json_type({value(column)}) <> 'ARRAY'"
    return f"CASE WHEN {alone} THEN [{value(column)}] ELSE coalesce({items(column)}, []::JSON[]) END"


def _require(events: Events, column: str, option: str, lists: str, expected: str) -> None:
    """Raise `InputError` unless a column holds lists, of which `lists` is the SQL."""
    there, filled = events.run(f"SELECT count({value(column)}), count(*) FILTER (len({lists}) > 0) FROM {events.name}")[
        0
    ]
    if not there and column not in events.fields():
        raise InputError(
            f"missing column {column!r}: found {spell_fields(events)}; name the right one with {option} COLUMN"
        )
    if not filled:
        raise InputError(f'column {column!r} holds no lists: expected {expected}, such as ["a", "b"]')


def _clicked(
    events: Events, table: str, column: str, meaning: str | None, base: int | None, notes: list[str]
) -> tuple[str, str]:
    """Return SQL for the clicked documents of a page, and for whether its list of clicks is usable.

    The meaning of the lists (documents, positions or flags) is found out unless it is given.
    """
    _require(
        events, column, "--click", _as_list(column), "the clicked documents of a page, or their positions, as a list"
    )
    known = "list_filter(clicks, lambda one: list_contains(docs, one))"
    places = "list_filter(clicks, lambda one: try_cast(one AS DOUBLE) BETWEEN 0 AND len(docs))"
    others = "list_filter(clicks, lambda one: lower(one) NOT IN ('0', '1', 'true', 'false'))"
    flags = (
        f"sum(len({others})) = 0 AND 2 * count(*) FILTER (len(clicks) = len(docs)) > count(*) AND max(len(docs)) > 1"
    )
    query = f"SELECT sum(len({known})), sum(len({places})), {flags}, bool_or(list_contains(clicks, '0'))"
    query += f" FROM {table} WHERE len(clicks) > 0"
    as_docs, as_positions, as_flags, zero = events.run(query)[0]
    if meaning is None:
        meaning = (
            "flags" if as_flags and not as_docs else "docs" if (as_docs or 0) >= (as_positions or 0) else "positions"
        )
        if meaning == "positions" or (as_docs and as_positions):
            notes.append(f"{column} is taken for {meaning}; --inputs clicked=docs, positions or flags says otherwise")
    if meaning == "docs":
        return "clicks", "true"
    if meaning == "flags":
        fits = "len(clicks) = coalesce(len(docs), 0)"
        odd = events.run(f"SELECT count(*) FROM {table} WHERE NOT {fits}")[0][0]
        if odd:
            notes.append(f"{count(odd, 'page')} with more or fewer flags in {column} than documents: left out")
        return "list_filter(docs, lambda one, i: lower(clicks[i]) IN ('1', 'true'))", fits
    start = base if base is not None else 0 if zero else 1
    if base is None and start == 0:
        notes.append("clicked positions count from 0; --position-base 1 says that they do not")
    return f"list_transform(clicks, lambda one: docs[try_cast(one AS BIGINT) + {1 - start}])", "true"
