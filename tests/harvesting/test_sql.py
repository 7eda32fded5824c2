"""The emitted SQL: valid in every dialect, and the same rows as our own harvest when run by hand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from sqlglot import exp

from clickharvest.commands.app import assemble
from clickharvest.errors import InputError
from clickharvest.harvesting.collecting import DIALECTS, to_sql, unbound_table
from clickharvest.simulate import simulate_ab_log

pytestmark = pytest.mark.usefixtures("one_duckdb")

OPTIONS = {
    "realised": "",
    "context": "--context device",
    "renamed": "--query 'the query' --max-position 4 --unit query --context device",
    "rankings": "--rankings ranked --ranker ranker",
    "traffic": "--rankings ranked --traffic a=1,b=2,c=1",
    "swap": "--swap 3 --original original",
    "swap of rankings": "--swap 1=.5,2=.5 --rankings ranked --ranker ranker",
}

Command = Callable[[str], str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(arguments: str) -> str:
        assemble()(shlex.split(arguments), standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def clicks() -> pa.Table:
    table, _ = simulate_ab_log(pages=300, queries=12, docs=8, positions=6)
    with duckdb.connect() as con:
        con.register("simulated", table)
        return con.sql(
            'SELECT *, query AS "the query", CASE position WHEN 1 THEN '
            "1 + page % 3 WHEN 1 + page % 3 THEN 1 ELSE position END AS original FROM simulated"
        ).to_arrow_table()


@pytest.fixture(scope="module")
def ranked(clicks: pa.Table) -> pa.Table:
    with duckdb.connect() as con:
        con.register("clicks", clicks)
        return con.sql(
            "SELECT DISTINCT query, ranker, doc, min(position) AS position FROM clicks GROUP BY ALL"
        ).to_arrow_table()


DAILY = {"renamed": DIALECTS, "swap of rankings": DIALECTS, "realised": ("spark",), "swap": ("bigquery",)}
"""Every dialect with the richest queries; the others at night."""


@pytest.mark.parametrize(
    ("dialect", "options"),
    [
        pytest.param(dialect, options, marks=() if dialect in DAILY.get(name, ()) else pytest.mark.nightly)
        for name, options in OPTIONS.items()
        for dialect in DIALECTS
    ],
)
def test_sql_is_valid_and_reads_the_tables_named(dialect: str, options: str, run: Command) -> None:
    sql = run(f"harvest shop.search.clicks {options} --emit-sql {dialect}")
    (parsed,) = sqlglot.parse(sql, read="spark" if dialect == "spark" else dialect)
    assert parsed is not None
    tables = {".".join(part.name for part in table.parts) for table in parsed.find_all(exp.Table)}
    assert "shop.search.clicks" in tables
    assert ("ranked" in tables) == ("ranked" in options)
    assert "memtable" not in sql


@pytest.mark.filterwarnings("ignore:.*impressions stood where:clickharvest.errors.HarvestWarning")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_sql_run_by_hand_gives_our_own_harvest(
    options: str, run: Command, clicks: pa.Table, ranked: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = run(f"harvest clicks {options} --emit-sql duckdb")
    with duckdb.connect() as con:
        con.register("clicks", clicks)
        con.register("ranked", ranked)
        by_hand = con.sql(sql).to_arrow_table()
    monkeypatch.chdir(tmp_path)
    pq.write_table(clicks, "clicks.parquet")
    pq.write_table(ranked, "ranked.parquet")
    run(f"harvest clicks.parquet {options.replace('ranked', 'ranked.parquet')} -o out.parquet")
    ours = pq.read_table("out.parquet")
    assert by_hand.num_rows > 20
    assert by_hand.column_names == ours.column_names
    assert [rounded(row) for row in by_hand.to_pylist()] == [rounded(row) for row in ours.to_pylist()]


def rounded(row: dict[str, object]) -> dict[str, object]:
    return {name: round(float(value), 9) if isinstance(value, float) else value for name, value in row.items()}


def test_a_file_tells_its_column_types(tmp_path: Path, run: Command) -> None:
    (tmp_path / "my log.csv").write_text("query,doc,position,click,age\nq,a,1,1,30\nq,a,2,0,30\n")
    sql = run(f"harvest '{tmp_path}/my log.csv' --context age --emit-sql duckdb")
    assert '"my log"' in sql
    assert 'CAST("t0"."age"' not in sql


@pytest.mark.parametrize(
    ("source", "expected"),
    [("clicks", '"clicks"'), ("shop.clicks", '"shop"."clicks"'), ("p.shop.clicks", '"p"."shop"."clicks"')],
)
def test_tables_are_named_as_given(source: str, expected: str) -> None:
    assert to_sql(unbound_table(source, {"doc": "string"}), "duckdb").endswith(f"FROM {expected}")


def test_a_table_of_a_duckdb_file(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "w.duckdb")) as con:
        con.execute("CREATE TABLE a (x INT); CREATE TABLE b (y INT)")
    assert to_sql(unbound_table(str(tmp_path / "w.duckdb"), {}, table="b"), "duckdb").endswith('FROM "b"')


@pytest.mark.parametrize("name", ["prix (€)", "a.b", " a", "x" * 301])
def test_a_column_that_bigquery_cannot_name_is_refused(name: str) -> None:
    table = unbound_table("t", {name: "string"})
    table = table.agg(last=table[name].max())
    for dialect in DIALECTS[1:]:
        assert name in to_sql(table, dialect)
    with pytest.raises(InputError, match=re.escape(f"BigQuery cannot name the column {name!r}: expected")):
        to_sql(table, "bigquery")


def test_unknown_dialects_are_refused() -> None:
    with pytest.raises(InputError, match="no SQL dialect 'oracle': expected one of bigquery, snowflake"):
        to_sql(unbound_table("t", {"x": "string"}), "oracle")
