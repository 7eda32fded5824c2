"""Events: exports of one JSON object per event, whatever the file, read by paths such as `device.category`.

An export is opened as a table inside DuckDB with two columns: the kind of each event, and the event itself as JSON
where the kind is wanted. JSONL is read unparsed, so events of other shapes do no harm; rows of Parquet, CSV, DuckDB
files and data frames become objects first. Bulk files (a line of action before each document) and index dumps (each
document in `_source`) are unwrapped. Lines that are no JSON object are counted.

The functions on paths return SQL, in which the formats are written. A path follows nested objects, or names a column
with dots.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from clickharvest.errors import InputError
from clickharvest.logs.click_log import find_column
from clickharvest.logs.engines import Engine, sql_literal, sql_name
from clickharvest.logs.ibis_inside import compile_on
from clickharvest.logs.readers import RECORD
from clickharvest.logs.sources import open_source
from clickharvest.words import clean_text, count, spell_columns

NOTHING = ("", "(not set)", "(not provided)", "null", "undefined", "none")
"""What trackers write for a missing value, in lower case."""
ACTIONS = ("index", "create", "update", "delete")
"""Actions in a bulk file, each on the line before its document."""
SAMPLE = 1_000
"""Events that are read to list their fields."""

DEEPEST = 20
"""Names in the longest path of a field."""


def pointer(path: str) -> str:
    """Return a path as a JSON pointer, quoted for SQL.

    Example:
        >>> pointer("device.web/info")
        "'/device/web~1info'"
    """
    parts = [part.replace("~", "~0").replace("/", "~1") for part in path.split(".")]
    return sql_literal("/" + "/".join(parts))


def value(*paths: str, of: str = "event") -> str:
    """Return SQL for the JSON at the first path with a value; each path is also tried as one name with dots."""
    ways = []
    for path in paths:
        ways.append(f"json_extract({of}, {pointer(path)})")
        if "." in path:
            whole = path.replace("~", "~0").replace("/", "~1")
            ways.append(f"json_extract({of}, {sql_literal('/' + whole)})")
    present = [f"nullif({way}, 'null')" for way in ways]
    return present[0] if len(present) == 1 else f"coalesce({', '.join(present)})"


def text(*paths: str, of: str = "event") -> str:
    """Return SQL for the text at the first path with one; `(not set)` and the like count as missing."""
    ways = [something(f"json_extract_string({value(path, of=of)}, '$')") for path in paths]
    return ways[0] if len(ways) == 1 else f"coalesce({', '.join(ways)})"


def let(sql: str, body: str) -> str:
    """Return SQL for `body`, in which `it` is the value of `sql`, computed once."""
    return f"list_transform([{sql}], lambda it: {body})[1]"


def something(sql: str) -> str:
    """Return SQL for a text, null where it says that the value is missing."""
    nothing = ", ".join(map(sql_literal, NOTHING))
    return let(f"trim({sql})", f"CASE WHEN lower(it) NOT IN ({nothing}) THEN it END")


def items(*paths: str, of: str = "event") -> str:
    """Return SQL for the list at a path, as a list of JSON; a list written as text is parsed."""
    read = "CASE WHEN json_type(it) = 'VARCHAR' THEN try_cast(json_extract_string(it, '$') AS JSON) ELSE it END"
    return f"json_extract({let(value(*paths, of=of), read)}, '$[*]')"


def entry(path: str, key: str, *, name: str = "key", of: str = "event") -> str:
    """Return SQL for the first object of a list whose `name` is `key`, as JSON."""
    test = f"json_extract_string(one, {pointer(name)}) = {sql_literal(key)}"
    return f"list_filter({items(path, of=of)}, lambda one: {test})[1]"


def moment(*paths: str, of: str = "event") -> str:
    """Return SQL for a time: numbers are seconds, milli-, micro- or nanoseconds since 1970, by their size."""
    unit = "CASE WHEN it >= 1e17 THEN 1e-3 WHEN it >= 1e14 THEN 1 WHEN it >= 1e11 THEN 1e3 ELSE 1e6 END"
    number = let("try_cast(it AS DOUBLE)", f"CASE WHEN abs(it) < 8e18 THEN (it * {unit})::BIGINT END")
    zoned = "regexp_matches(it, '[0-9]([zZ]|[+-][0-9][0-9](:?[0-9][0-9])?)$')"
    stamp = f"CASE WHEN {zoned} THEN epoch_us(try_cast(it AS TIMESTAMPTZ)) ELSE epoch_us(try_cast(it AS TIMESTAMP)) END"
    micro = let(text(*paths, of=of), f"coalesce({number}, {stamp})")
    return let(micro, "CASE WHEN abs(it) < 9e15 THEN make_timestamp(it) END")


@dataclass(frozen=True)
class Events:
    """Events of an export inside DuckDB.

    Attributes:
        name: the table, with the columns `kind` (text) and `event` (JSON, where the kind is wanted).
        engine: where it lives.
        kinds: how many events there are of each kind, the most frequent first; those without a kind are under "".
        bad: lines or rows that are no JSON objects.
        origin: the events as they came, where these are made of them.
    """

    name: str
    engine: Engine
    kinds: Mapping[str, int]
    bad: int
    origin: Events | None = None

    @property
    def total(self) -> int:
        """All events."""
        return sum(self.kinds.values())

    def run(self, sql: str, *, task: str = "Reading events") -> list[tuple[Any, ...]]:
        """Run SQL and return its rows."""
        with self.engine.running(task):
            rows: list[tuple[Any, ...]] = self.engine.backend.con.execute(sql).fetchall()
            return rows

    def keep(self, sql: str) -> str:
        """Keep the rows of a query, and return the name of their table."""
        name = f"clickharvest_{uuid.uuid4().hex}"
        self.run(f"CREATE TEMP TABLE {name} AS {sql}")
        return name

    def require(self, wanted: Sequence[str], what: str) -> None:
        """Raise `InputError` unless there is an event of one of these kinds."""
        if not any(self.kinds.get(kind) for kind in wanted):
            raise InputError(f"no {what}: expected {' or '.join(wanted)}, found {self.spell_kinds()}")

    def spell_kinds(self) -> str:
        """Return the most frequent kinds of events, for a message."""
        named = [
            f"{clean_text(kind, 40) or 'without a name'} ({rows:,})" for kind, rows in list(self.kinds.items())[:5]
        ]
        text = ", ".join(named) if named else "no event"
        return text + (f" and {count(self.bad, 'line')} without a JSON object" if self.bad else "")

    def fields(self) -> list[str]:
        """Return the paths of what the first events hold, lists not looked into."""
        if self.origin is not None:
            return self.origin.fields()
        return list(dict.fromkeys(path for event in self.sample() for path in paths_of(event)))

    def sample(self) -> list[dict[str, Any]]:
        """Return the first events, without those that Python cannot parse."""
        events = []
        for (text,) in self.run(f"SELECT event::VARCHAR FROM {self.name} WHERE event IS NOT NULL LIMIT {SAMPLE}"):
            with suppress(ValueError, RecursionError):
                events.append(json.loads(text))
        return [event for event in events if isinstance(event, dict)]


def paths_of(event: object, prefix: str = "") -> list[str]:
    """Return the paths of all values in nested objects, of `DEEPEST` names at most.

    Example:
        >>> paths_of({"a": {"b": 1, "c": [2]}, "d": None})
        ['a.b', 'a.c', 'd']
    """
    if not isinstance(event, dict) or prefix.count(".") >= DEEPEST:
        return [prefix.removesuffix(".")]
    return [path for name, inner in event.items() for path in paths_of(inner, f"{prefix}{name}.")]


def open_events(
    sources: Sequence[Any],
    engine: Engine | None,
    *,
    kind: str,
    wanted: Sequence[str],
    nested: Sequence[str] = (),
    as_text: Sequence[str] = (),
) -> Events:
    """Open exports, all of the same events.

    Args:
        sources: the exports, anything `open_source` takes; None is skipped.
        engine: where to read them; an embedded DuckDB by default.
        kind: SQL on `event` for the kind of an event.
        wanted: kinds that are kept.
        nested: columns that hold objects or lists, be it written as text.
        as_text: columns that CSV must keep as text.

    Raises:
        InputError: a source cannot be opened, or the engine is not DuckDB.
    """
    parts = []
    for source in (source for source in sources if source is not None):
        part, engine = _records(source, engine, nested, as_text)
        parts.append(part)
    assert engine is not None
    unwrapped = "coalesce(json_extract(record, '/_source'), record)"
    actions = ", ".join(sql_literal(action) for action in ACTIONS)
    is_action = f"len(json_keys(record)) = 1 AND json_keys(record)[1] IN ({actions})"
    is_object = "coalesce(json_type(record) = 'OBJECT', false)"
    kept = ", ".join(map(sql_literal, wanted))
    # A CASE guards what is no object from functions that take objects alone.
    records = " UNION ALL ".join(f"SELECT record FROM ({part})" for part in parts)
    objects = f"SELECT CASE WHEN {is_object} THEN {unwrapped} END AS event, {is_object} AS fine FROM ({records}) "
    objects += f"WHERE NOT CASE WHEN {is_object} THEN {is_action} ELSE false END"
    kinds = f"SELECT fine, event, CASE WHEN fine THEN coalesce({kind}, '') END AS kind FROM ({objects})"
    opened = Events("", engine, {}, 0)
    name = opened.keep(f"SELECT kind, CASE WHEN kind IN ({kept}) THEN event END AS event FROM ({kinds})")
    counted = dict(opened.run(f"SELECT kind, count(*) FROM {name} GROUP BY kind ORDER BY count(*) DESC, kind"))
    bad = counted.pop(None, 0)
    return Events(name, engine, counted, bad)


def _records(source: Any, engine: Engine | None, nested: Sequence[str], as_text: Sequence[str]) -> tuple[str, Engine]:
    """Return SQL for the records of a source, as JSON in the column `record`, and where it runs."""
    opened, engine = open_source(source, engine, text=as_text, records=True)
    if engine.backend.name != "duckdb":
        raise InputError(f"known exports are read by DuckDB, not by {engine.name}: leave --engine out, or pass files")
    query = compile_on(engine.backend, opened)
    if opened.columns == (RECORD,):
        return _as_tracked(f"SELECT {RECORD} AS record FROM ({query})", engine, nested), engine
    parsed = {find_column(opened.columns, name) for name in nested}
    types = opened.schema()
    fields = []
    for column in opened.columns:
        cell = sql_name(column)
        if column in parsed and types[column].is_string():
            cell = f"coalesce(try_cast({cell} AS JSON), to_json({cell}))"
        # Some warehouses write all names in capitals.
        name = column.lower() if column.isupper() else column
        fields.append(f"{sql_literal(name)}: {cell}")
    return f"SELECT to_json({{{', '.join(fields)}}}) AS record FROM ({query})", engine


def _as_tracked(records: str, engine: Engine, nested: Sequence[str]) -> str:
    """Return SQL for records of a warehouse as the tracker wrote them: names in lower case, nested text parsed."""
    events = Events("", engine, {}, 0)
    first = f"SELECT CASE WHEN json_type(record) = 'OBJECT' THEN record END AS record FROM ({records}) LIMIT {SAMPLE}"
    names = [name for (name,) in events.run(f"SELECT DISTINCT unnest(json_keys(record)) FROM ({first})")]
    if names and all(name.isupper() for name in names):
        at = "json_extract(record, '/' || replace(replace(name, '~', '~0'), '/', '~1'))"
        small = f"list_transform(json_keys(record), lambda name: {{'key': lower(name), 'value': {at}}})"
        whole = f"CASE WHEN json_type(record) = 'OBJECT' THEN to_json(map_from_entries({small})) ELSE record END"
        records, names = f"SELECT {whole} AS record FROM ({records})", [name.lower() for name in names]
        first = f"{records} LIMIT {SAMPLE}"
    there = [name for name in nested if name in names]
    if there:
        tests = ", ".join(f"bool_or(json_type(record, {pointer(name)}) = 'VARCHAR')" for name in there)
        written = events.run(f"SELECT {tests} FROM ({first})")[0]
        there = [name for name, as_text in zip(there, written, strict=True) if as_text]
    for name in there:
        inner = f"json_extract_string(record, {pointer(name)})"
        read = f"json_object({sql_literal(name)}, try_cast({inner} AS JSON))"
        is_text = f"json_type(record, {pointer(name)}) = 'VARCHAR' AND try_cast({inner} AS JSON) IS NOT NULL"
        records = (
            f"SELECT CASE WHEN {is_text} THEN json_merge_patch(record, {read}) ELSE record END AS record "
            f"FROM ({records})"
        )
    return records


def spell_fields(events: Events) -> str:
    """Return the fields of events, for a message."""
    return spell_columns(events.fields(), most=20)
