"""Exports: read a log of a known format, and recognise the format of a log."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ROLES, ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.events import SAMPLE, open_events
from clickharvest.logs.formats import FORMATS, LOOKS, TAKES
from clickharvest.logs.sources import open_source

ALWAYS = ("context", "position_base", "engine")
"""Keywords that every format takes."""


def read_export(source: Any, format: str, **options: Any) -> ClickLog:
    """Read a log of a known export: Google Analytics 4, Snowplow, Segment …

    Args:
        source: the export, anything `read_log` takes.
        format: which one, such as `"ga4"`: the modules of `clickharvest.logs.formats`.
        options: `context`, `position_base`, `engine` and `table` as for `read_log`; what else the format takes, such as
            `ranker`, `within="30min"` for how long after a list was shown a click may be on it, and its own inputs,
            such as `queries` of `"ubi"`.

    Raises:
        InputError: there is no such format, it does not take an option, or the log is not of that format; then the
            message tells which one it looks like.

    Warns:
        HarvestWarning: events are left out, or positions count from 0.

    Example:
        >>> import pyarrow as pa
        >>> ranking = {"event": "ranking", "id": "r1", "timestamp": "1599391467000",
        ...            "fields": [{"name": "query", "value": "cat"}], "items": [{"id": "a"}, {"id": "b"}]}
        >>> click = {"event": "interaction", "type": "click", "id": "i1", "timestamp": "1599391468000", "item": "b",
        ...          "ranking": "r1"}
        >>> log = read_export(pa.Table.from_pylist([ranking]), "metarank", clicks_from=pa.Table.from_pylist([click]))
        >>> log.engine.fetch(log.table.select("query", "doc", "clicks").order_by("doc"), task="").to_pylist()
        [{'query': 'cat', 'doc': 'a', 'clicks': 0}, {'query': 'cat', 'doc': 'b', 'clicks': 1}]
    """
    reader = FORMATS.find(format)
    _, *parameters = inspect.signature(reader).parameters.values()
    takes = {one.name: one.default for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD}
    takes |= dict.fromkeys(TAKES.get(format, ()))
    inputs = [name for name in takes if name not in (*ROLES, "table", *ALWAYS)]
    for given in (name for name in options if name not in (*takes, "table", *ALWAYS)):
        if given in (*ROLES, "place", "block", "page_number", "page_size", "repeat", "random"):
            option = given.replace("_", "-")
            raise InputError(f"--{option} does not go with the format {format}: it fixes its columns")
        raise InputError(f"the format {format} has no input {given!r}: expected {', '.join(inputs) or 'none'}")
    for name in inputs:
        if takes[name] is inspect.Parameter.empty and name not in options:
            raise InputError(f"the format {format} needs {name}: name it with --inputs {name}=FILE")
    if "table" in options and "table" not in takes:
        source, options["engine"] = open_source(source, options.get("engine"), table=options.pop("table"))
    try:
        return reader(source, **options)
    except InputError as error:
        likely = recognise(source)
        if likely is None and _needs_no_format(source):
            raise InputError(f"{error}; it looks like a log of rows: leave --format out") from error
        if likely in (None, format):
            raise
        raise InputError(f"{error}; it looks like {likely}: --format {likely}") from error


def _needs_no_format(source: Any) -> bool:
    """Return whether a source has the columns of a log under their role names."""
    try:
        opened, _ = open_source(source, DuckDBEngine())
    except InputError:
        return False
    return {"query", "doc", "position"} <= {name.lower() for name in opened.columns}


@contextmanager
def suggest_format(source: Any) -> Iterator[None]:
    """Add the format that a source looks like to the message of an error about its columns."""
    try:
        yield
    except InputError as error:
        looks = recognise(source) if "column" in str(error) else None
        if looks is None:
            raise
        raise InputError(f"{error}; or is it {looks}? It looks like that: --format {looks}") from error


def recognise(source: Any) -> str | None:
    """Return the format that most of the first events look like; None if there is none.

    Example:
        >>> import pyarrow as pa
        >>> recognise(pa.table({"query_id": ["1"], "action_name": ["click"]})), recognise(pa.table({"query": ["q"]}))
        ('ubi', None)
    """
    for name in FORMATS:
        FORMATS[name]
    try:
        opened, engine = open_source(source, DuckDBEngine(), records=True)
        events = open_events([opened.limit(SAMPLE)], engine, kind="'any'", wanted=("any",))
        sample = events.sample()
        votes = {name: sum(looks(event) for event in sample) for name, looks in LOOKS.items()}
    except Exception:  # the source may be anything, and an error about it was raised before
        return None
    best = max(votes, key=lambda name: votes[name], default=None)
    return best if best is not None and votes[best] * 2 > len(sample) else None
