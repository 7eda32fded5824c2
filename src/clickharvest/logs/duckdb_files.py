"""DuckDB files as sources: one table, or one view, of a file that may come from anywhere.

A view is a query, and a query may read any file that this process can. So tables are attached and read in place,
whereas a view runs in an instance of its own that can open nothing but its file, and its rows are copied over.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import duckdb

from clickharvest.errors import InputError
from clickharvest.logs.engines import DuckDBEngine, sql_literal, sql_name
from clickharvest.words import first_line

if TYPE_CHECKING:
    import ibis.expr.types as ir


def open_duckdb_file(path: str, engine: DuckDBEngine, table: str | None) -> ir.Table:
    """Return a table or view of a DuckDB file.

    Args:
        path: the file.
        engine: where its rows are read.
        table: its name, with its schema or without; needed where the file holds more than one.

    Raises:
        InputError: the file cannot be opened or holds no such table, or the view reads other files.
    """
    con = engine.backend.con
    catalog = f"log_{uuid.uuid4().hex}"
    try:
        con.execute(f"ATTACH {sql_literal(path)} AS {catalog} (TYPE duckdb, READ_ONLY)")
    except Exception as error:
        raise InputError(f"{path} cannot be opened as a DuckDB file: {first_line(error)}") from error
    listed = "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_catalog = ?"
    found = con.execute(f"{listed} ORDER BY ALL", [catalog]).fetchall()
    wanted = [row for row in found if table is None or table in (row[1], ".".join(row[:2]))]
    if len(wanted) == 1:
        schema, name, kind = wanted[0]
        if kind != "VIEW":
            return engine.backend.table(name, database=(catalog, schema))
        con.execute(f"DETACH {catalog}")
        return _copy_view(path, schema, name, engine)
    if not found:
        raise InputError(f"{path} holds no table: expected one with the log's rows")
    names = ", ".join(name if schema == "main" else f"{schema}.{name}" for schema, name, _ in found)
    problem = f"{len(wanted)} tables" if wanted else f"no table {table!r}"
    raise InputError(f"{path} holds {problem}: found {names}; name one with --table")


def _copy_view(path: str, schema: str, name: str, engine: DuckDBEngine) -> ir.Table:
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "memory_limit": str(engine.setting("memory_limit")),
        "temp_directory": f"{engine.setting('temp_directory')}/view",
        "lock_configuration": "true",
    }
    copy = f"clickharvest_{uuid.uuid4().hex}"
    try:
        with duckdb.connect(path, read_only=True, config=config) as apart:
            rows = apart.sql(f"SELECT * FROM {sql_name(schema)}.{sql_name(name)}").to_arrow_reader(100_000)
            con = engine.backend.con
            con.register(f"{copy}_rows", rows)
            with engine.running("Reading the view"):
                con.execute(f"CREATE TEMP TABLE {copy} AS FROM {copy}_rows")
            con.unregister(f"{copy}_rows")
    except duckdb.Error as error:
        raise InputError(
            f"{path}, view {name!r} cannot be read: {first_line(error)} A view may read the tables of its own file "
            "alone; store its rows as a table."
        ) from error
    return engine.backend.table(copy)
