"""The SQL dialects a harvest can be written in. Listed apart from what writes them, so that help needs no engine."""

DIALECTS = {
    "bigquery": "BigQueryCompiler",
    "snowflake": "SnowflakeCompiler",
    "spark": "PySparkCompiler",
    "duckdb": "DuckDBCompiler",
    "trino": "TrinoCompiler",
}
"""Dialects, and the compilers of Ibis that write them."""
