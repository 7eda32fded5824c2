"""All that is used of Ibis beyond its documented interface, in one place: what to look at when Ibis changes.

Ibis is imported when it is used, so that help can list the dialects without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clickharvest.errors import InputError

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

COMPILERS = {
    "bigquery": "BigQueryCompiler",
    "snowflake": "SnowflakeCompiler",
    "spark": "PySparkCompiler",
    "duckdb": "DuckDBCompiler",
    "trino": "TrinoCompiler",
}
"""Ibis's name for the compiler of each dialect."""


def compile_for(table: ir.Table, dialect: str) -> str:
    """Return an expression as SQL of a dialect without a connection, which `ibis.to_sql` asks some dialects for."""
    import ibis
    import ibis.backends.sql.compilers as compilers

    class SparkOptions(ibis.config.Config):  # type: ignore[misc]
        """What Ibis's Spark compiler reads, which Ibis itself only sets where PySpark is installed and loaded."""

        treat_nan_as_null: bool = False

    if dialect == "spark" and ibis.options.pyspark is None:
        ibis.options.pyspark = SparkOptions()
    compiler = getattr(compilers, COMPILERS[dialect])()
    if dialect == "bigquery":
        allowed = compiler._gen_valid_name
        compiler._gen_valid_name = lambda name: _name_as_it_is(name, allowed)
    return str(compiler.to_sqlglot(table).sql(dialect=compiler.dialect, pretty=True))


def _name_as_it_is(name: str, allowed: Callable[[str], str]) -> str:
    """Return a column's name, which Ibis would change into another one where BigQuery does not allow it."""
    import ibis

    with suppress(ibis.common.exceptions.IbisError):
        if allowed(name) == name:
            return name
    raise InputError(
        f"BigQuery cannot name the column {name!r}: expected at most 300 characters, without space at either end and "
        'without !"$()*,./;?@[\\]^`{}~; rename it'
    )


def compile_on(backend: Any, table: ir.Table) -> str:
    """Return an expression as SQL that a backend's own connection runs; DataFrames it reads are registered there."""
    backend._run_pre_execute_hooks(table)
    return str(backend.compile(table))


def sql_types(backend: Any, types: Mapping[str, Any]) -> dict[str, str]:
    """Return the backend's SQL names of Ibis data types, those of columns that hold nothing but nulls left out."""
    mapper = backend.compiler.type_mapper
    return {name: mapper.to_string(kind) for name, kind in types.items() if not kind.is_null()}


def table_in_memory(table: pa.Table) -> ir.Table:
    """Return what `ibis.memtable` does of a table of Arrow's; that imports pandas first, .4 s of a small weigh."""
    import ibis.expr.operations as ops
    import ibis.expr.schema as sch
    from ibis.formats.pyarrow import PyArrowTableProxy
    from ibis.util import gen_name

    schema, data = sch.Schema.from_pyarrow(table.schema), PyArrowTableProxy(table)
    return ops.InMemoryTable(name=gen_name("memtable"), schema=schema, data=data).to_expr()


def column_tested_for_null(test: ir.BooleanValue) -> ir.Value | None:
    """Return x of the expression `x.isnull()`, None of any other."""
    import ibis.expr.operations as ops

    operation = test.op()
    return operation.arg.to_expr() if isinstance(operation, ops.IsNull) else None


def read_off(columns: Mapping[str, ir.Value], before: ir.Table, after: ir.Table) -> dict[str, ir.Value]:
    """Return expressions on the columns of one table as the same ones on another, which has these columns, too."""
    tables = {before.op(): after.op()}
    return {name: value.op().replace(tables).to_expr() for name, value in columns.items()}


def hash_of_two(one: ir.Value, two: ir.Value) -> ir.Value:
    """Return DuckDB's hash of two values, which Ibis takes one of at a time."""
    import ibis

    def digest(one: Any, two: Any) -> None:
        """Stand for DuckDB's function."""

    return ibis.udf.scalar.builtin(name="hash", signature=((one.type(), two.type()), "uint64"))(digest)(one, two)
