"""The harvest as SQL, for people who run it in their own warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ibis
import ibis.expr.types as ir

from clickharvest.errors import InputError
from clickharvest.logs.ibis_inside import COMPILERS, compile_for
from clickharvest.logs.sources import file_format, open_source

DIALECTS = tuple(COMPILERS)
"""Dialects that the harvest can be written in."""


def to_sql(table: ir.Table, dialect: str) -> str:
    """Return an expression over unbound tables as SQL.

    Args:
        table: such as the result of `harvest_table` for a log over an `unbound_table`.
        dialect: one of `DIALECTS`.

    Example:
        >>> print(to_sql(unbound_table("shop.clicks", {"doc": "string"}), "trino"))
        SELECT
          *
        FROM "shop"."clicks"
    """
    if dialect not in DIALECTS:
        raise InputError(f"no SQL dialect {dialect!r}: expected one of {', '.join(DIALECTS)}")
    return compile_for(table, dialect)


def unbound_table(source: str, columns: Mapping[str, str], *, table: str | None = None) -> ir.Table:
    """Return a table to write SQL against: a file's, with its column types, or one that is only named.

    Args:
        source: a file, or a table's name such as `project.dataset.clicks`.
        columns: column types by name, where there is no file to tell.
        table: the table of a DuckDB file that holds more than one.
    """
    if Path(source).exists() or file_format(source) is not None:
        opened, _ = open_source(source, table=table)
        return ibis.table(opened.schema(), name=table or Path(source).name.split(".")[0])
    *path, name = source.split(".")
    catalog, database = (".".join(path[:-1]) or None, path[-1]) if path else (None, None)
    return ibis.table(dict(columns), name=name, catalog=catalog, database=database)
