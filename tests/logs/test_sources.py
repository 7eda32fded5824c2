"""Every source a log may come from gives the same rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickharvest import read_log
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.sources import data_files, file_format, open_source
from clickharvest.words import spell_columns

pytestmark = pytest.mark.usefixtures("one_duckdb")

ROWS = {
    "query": ["shoes", "shoes", 'red, or "blue"', "07"],
    "doc": ["007", "7", "ü", "2024-01-01"],
    "position": [1, 2, 1, 3],
    "click": [1, 0, 0, 1],
}
TABLE = pa.table(ROWS)


def canonical(log: ClickLog) -> list[tuple[Any, ...]]:
    t = log.table
    plain = t.select("query", "doc", *(t[name].cast("int64").name(name) for name in ("position", "clicks")))
    return sorted(tuple(row.values()) for row in log.engine.fetch(plain, task="Reading").to_pylist())


EXPECTED = sorted(zip(*ROWS.values(), strict=True))


def csv_text(table: pa.Table, delimiter: str = ",") -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerow(table.column_names)
    writer.writerows(row.values() for row in table.to_pylist())
    return buffer.getvalue().encode()


def jsonl_text(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def parquet_bytes(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "log.parquet": parquet_bytes,
    "log.pq": parquet_bytes,
    "log.csv": csv_text,
    "semicolons.csv": lambda table: csv_text(table, ";"),
    "log.tsv": lambda table: csv_text(table, "\t"),
    "log.jsonl": jsonl_text,
    "log.ndjson": jsonl_text,
    "log.csv.gz": lambda table: gzip.compress(csv_text(table)),
    "log.tsv.gz": lambda table: gzip.compress(csv_text(table, "\t")),
    "log.jsonl.gz": lambda table: gzip.compress(jsonl_text(table)),
    "LOG.CSV": csv_text,
    "a b.csv": csv_text,
    "it's.csv": csv_text,
    'qu"ote.jsonl': jsonl_text,
    "log[1].parquet": parquet_bytes,
    "st*r?.csv": csv_text,
    "übung.tsv": lambda table: csv_text(table, "\t"),
    "2024.01.02.csv": csv_text,
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_every_format_and_name(name: str, tmp_path: Path, duckdb_engine: DuckDBEngine) -> None:
    path = tmp_path / name
    path.write_bytes(WRITERS[name](TABLE))
    assert canonical(read_log(path, engine=duckdb_engine)) == EXPECTED


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl", "csv.gz", "jsonl.gz"])
@pytest.mark.parametrize("where", ["logs", "logs/*.{}", "logs/**/*.{}", "odd [1] *"])
def test_folders_and_globs(ending: str, where: str, tmp_path: Path, duckdb_engine: DuckDBEngine) -> None:
    nested = "**" in where or "*." not in where
    folder = tmp_path / where.partition("/")[0]
    parts = [folder / f"1.{ending}", (folder / "deep" / "er" if nested else folder) / f"2.{ending}"]
    for part, rows in zip(parts, (TABLE[:2], TABLE[2:]), strict=True):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(WRITERS[f"log.{ending}"](rows))
    (folder / "_SUCCESS").touch()
    assert canonical(read_log(tmp_path / where.format(ending), engine=duckdb_engine)) == EXPECTED


def test_files_of_a_folder_may_order_their_columns_differently(tmp_path: Path, duckdb_engine: DuckDBEngine) -> None:
    (tmp_path / "1.csv").write_bytes(csv_text(TABLE[:2]))
    (tmp_path / "2.csv").write_bytes(csv_text(TABLE[2:].select(["click", "position", "doc", "query"])))
    assert canonical(read_log(tmp_path, engine=duckdb_engine)) == EXPECTED


def write_parts(folder: Path, *columns: pa.Array) -> None:
    """Write the two halves of the log with another column, which may differ in type."""
    for i, (rows, column) in enumerate(zip((TABLE[:2], TABLE[2:]), columns, strict=True)):
        pq.write_table(rows.append_column("age", column), folder / f"{i}.parquet")


LOSSLESS = {
    "longer integers": (pa.array([1, 2], "int32"), pa.array([2**40, 4], "int64")),
    "integers and numbers": (pa.array([1, 2], "int32"), pa.array([1.5, 4.0])),
    "small integers of pandas and its numbers": (pa.array([1, 2**53]), pa.array([1.5, None])),
    "longer numbers": (pa.array([0.5, 2.0], "float32"), pa.array([0.1, 4.0])),
    "nothing and text": (pa.nulls(2), pa.array(["a", "b"])),
    "two kinds of text": (pa.array(["a", "a"]).dictionary_encode(), pa.array(["a", "b"])),
    "finer times": (pa.array([1, 2], pa.timestamp("us")), pa.array([1, 2], pa.timestamp("ns"))),
}


@pytest.mark.parametrize("kinds", LOSSLESS)
@pytest.mark.parametrize("backwards", [False, True])
def test_types_of_files_are_widened(kinds: str, backwards: bool, tmp_path: Path, duckdb_engine: DuckDBEngine) -> None:
    columns = LOSSLESS[kinds][::-1] if backwards else LOSSLESS[kinds]
    write_parts(tmp_path, *columns)
    opened, engine = open_source(tmp_path, duckdb_engine)
    found = engine.fetch(opened, task="Reading")
    ages = dict(zip(found["doc"].to_pylist(), found["age"].to_pylist(), strict=True))
    assert [ages[doc] for doc in ROWS["doc"]] == [value for column in columns for value in column.to_pylist()]


LOSSY = {
    "int64 and double": (pa.array([1, 2**53 + 1]), pa.array([1.5, 2.0])),
    "int64 and string": (pa.array([1, 2]), pa.array(["007", "x"])),
    "int32 and float": (pa.array([1, 2], "int32"), pa.array([1.5, 2.0], "float32")),
    "bool and int64": (pa.array([True, False]), pa.array([1, 2])),
    "date32[day] and timestamp[us]": (pa.array([1, 2], "date32"), pa.array([1, 2], pa.timestamp("us"))),
}


@pytest.mark.parametrize("kinds", LOSSY)
@pytest.mark.parametrize("backwards", [False, True])
def test_types_of_files_that_would_lose_values_are_refused(kinds: str, backwards: bool, tmp_path: Path) -> None:
    write_parts(tmp_path, *(LOSSY[kinds][::-1] if backwards else LOSSY[kinds]))
    with pytest.raises(InputError, match="the column 'age' is ") as refused:
        open_source(tmp_path / "*.parquet")
    for kind, i in zip(kinds.split(" and "), (1, 0) if backwards else (0, 1), strict=True):
        assert f"{kind} in {tmp_path}/{i}.parquet" in str(refused.value)


@pytest.mark.parametrize(("ending", "files", "rows"), [("csv", 1, 30_000), ("csv", 40, 1), ("jsonl", 40, 1)])
def test_a_late_fraction_is_not_rounded(
    ending: str, files: int, rows: int, tmp_path: Path, duckdb_engine: DuckDBEngine
) -> None:
    """DuckDB guesses types from the first rows and files, and would round what comes later."""
    header, row = ("age\n", "{}\n") if ending == "csv" else ("", '{{"age": {}}}\n')
    for i in range(files):
        (tmp_path / f"{i:02}.{ending}").write_text(header + row.format(1) * rows)
    opened, engine = open_source(tmp_path, duckdb_engine)
    highest = opened.agg(age=opened.age.max())
    with (tmp_path / f"{files - 1:02}.{ending}").open("a") as last:
        last.write(row.format("2.0"))
        last.flush()
        assert engine.fetch(highest, task="Reading")["age"].to_pylist() == [2]
        last.write(row.format("1.5"))
    with pytest.raises(InputError, match=r"column 'age': '1\.5' is not a whole number"):
        engine.fetch(highest, task="Reading")


@pytest.mark.parametrize(
    "written", [["18446744073709551617", "18446744073709551618"], ["9007199254740993", "9007199254740992", "0.5"],
                ["1", '"007"', "true", "1.5", "null"]]
)  # fmt: skip
def test_identifiers_of_jsonl_are_those_that_are_written(written: list[str], tmp_path: Path) -> None:
    rows = [f'{{"query": {text}, "doc": "d", "position": 1, "click": 1}}\n' for text in written]
    (tmp_path / "log.jsonl").write_text("".join(rows))
    log = read_log(tmp_path / "log.jsonl", validate=False)
    found = log.engine.fetch(log.table.select("query"), task="Reading")["query"].to_pylist()
    assert found == [None if text == "null" else text.strip('"') for text in written]


def test_one_and_one_point_nought_are_one_number_in_jsonl(tmp_path: Path) -> None:
    """Writers of data frames add the fraction where a value is missing."""
    for i, text in enumerate(["1", "1.0", "2.5", "30.0"]):
        (tmp_path / f"{i}.jsonl").write_text(f'{{"query": {text}, "doc": "d", "position": 1, "click": 1}}\n')
    log = read_log(tmp_path)
    found = log.engine.fetch(log.table.select("query").order_by("query"), task="Reading")["query"].to_pylist()
    assert found == ["1", "1", "2.5", "30"]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl.gz"])
def test_what_is_hidden_beneath_a_folder_is_no_data(ending: str, tmp_path: Path, duckdb_engine: DuckDBEngine) -> None:
    folder = tmp_path / "_logs"
    shown = ["day=1/part-0", "day=2/part-1"]
    hidden = ["day=1/_temporary/0/part-2", "day=2/_part-3", ".staging/part-4", "day=2/.part-5"]
    for name, rows in zip(shown + hidden, (TABLE[:2], TABLE[2:], *[TABLE] * 4), strict=True):
        path = folder / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(WRITERS[f"log.{ending}"](rows))
    for source in (folder, folder / "**" / f"*.{ending}"):
        assert data_files(str(source)) == [folder / f"{name}.{ending}" for name in shown]
        assert canonical(read_log(source, engine=duckdb_engine)) == EXPECTED
    for named in ("day=1/_temporary", f"*/_*/*/*.{ending}", f"day=2/_part-3.{ending}", f".staging/*.{ending}"):
        assert canonical(read_log(folder / named, engine=duckdb_engine)) == EXPECTED


def test_gzip_of_several_members_is_read_whole(tmp_path: Path) -> None:
    content = csv_text(TABLE)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(content[:40]) + gzip.compress(content[40:]))
    assert canonical(read_log(tmp_path / "log.csv.gz")) == EXPECTED


def test_hive_partitions_are_columns(tmp_path: Path, duckdb_engine: DuckDBEngine) -> None:
    for device, rows in (("mobile", TABLE[:2]), ("desktop", TABLE[2:])):
        folder = tmp_path / f"device={device}"
        folder.mkdir()
        pq.write_table(rows, folder / "part.parquet")
    log = read_log(tmp_path, context=["device"], engine=duckdb_engine)
    counts = log.engine.fetch(log.table.group_by("device").agg(n=log.table.count()), task="").to_pylist()
    assert sorted(row["device"] for row in counts) == ["desktop", "mobile"]
    assert canonical(log) == EXPECTED


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    path = tmp_path / "it's.duckdb"
    pq.write_table(TABLE, tmp_path / "log.parquet")
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE SCHEMA shop")
        con.execute(f"CREATE TABLE shop.clicks AS FROM '{tmp_path}/log.parquet'")
        con.execute("CREATE VIEW seen AS FROM shop.clicks")
        con.execute('CREATE TABLE "odd ""name" AS FROM shop.clicks')
    return path


@pytest.mark.parametrize("table", ["clicks", "shop.clicks", "seen", "main.seen", 'odd "name'])
def test_tables_and_views_of_a_duckdb_file(warehouse: Path, table: str, duckdb_engine: DuckDBEngine) -> None:
    assert canonical(read_log(warehouse, table=table, engine=duckdb_engine)) == EXPECTED


def test_the_only_table_of_a_duckdb_file_needs_no_name(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "one.db")) as con:
        con.register("log", TABLE)
        con.execute("CREATE TABLE clicks AS FROM log")
    assert canonical(read_log(tmp_path / "one.db")) == EXPECTED


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas with an index": lambda: pd.DataFrame(ROWS, index=[3, 1, 4, 1]),
    "pandas with categories": lambda: pd.DataFrame(ROWS).astype({"query": "category", "doc": "category"}),
    "Polars": lambda: pl.DataFrame(ROWS),
    "Polars, lazy": lambda: pl.LazyFrame(ROWS),
    "Polars with categories": lambda: pl.DataFrame(ROWS).with_columns(pl.col("query").cast(pl.Categorical)),
    "Arrow table": lambda: TABLE,
    "Arrow batch": lambda: TABLE.to_batches()[0],
    "Arrow reader": TABLE.to_reader,
    "DuckDB relation": lambda: duckdb.from_arrow(TABLE),
    "Ibis memtable": lambda: ibis.memtable(TABLE),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_tables_in_memory(kind: str) -> None:
    assert canonical(read_log(FRAMES[kind]())) == EXPECTED


def test_an_ibis_table_stays_in_its_own_connection() -> None:
    con = ibis.duckdb.connect()
    con.con.register("arrow", TABLE)
    con.con.execute("CREATE TABLE clicks AS FROM arrow")
    clicks = con.table("clicks")
    log = read_log(clicks.filter(clicks.position < 3))
    assert log.engine.backend is con
    assert canonical(log) == [row for row in EXPECTED if row[2] < 3]


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    str.strip
)
rows = st.lists(st.tuples(names, names, st.integers(1, 99), st.integers(0, 1)), min_size=1, max_size=8)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.tsv", "log.jsonl", "log.csv.gz", "log.jsonl.gz"])
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows)
def test_any_log_reads_the_same_in_every_format(
    name: str, rows: list[tuple[str, str, int, int]], tmp_path: Path, duckdb_engine: DuckDBEngine
) -> None:
    table = pa.table(dict(zip(ROWS, map(list, zip(*rows, strict=True)), strict=True)))
    path = tmp_path / name
    path.write_bytes(WRITERS[name](table))
    assert canonical(read_log(path, engine=duckdb_engine, validate=False)) == sorted(rows)


def test_numbers_and_words_mix_in_json_documents(tmp_path: Path) -> None:
    docs = [7, "x", "2024-01-01"]
    lines = [{"query": "q", "doc": doc, "position": 1, "click": doc == 7} for doc in docs]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [row[1] for row in canonical(read_log(tmp_path / "log.jsonl"))] == ["2024-01-01", "7", "x"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([1, 2], "cannot read a log from list"),
        (pl.Series([1]), "the Series cannot be converted"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the DataFrame cannot be converted"),
        (pd.DataFrame({"a": [1, "x"]}), "one type"),
        (pa.table({"Query": ["q"], "query": ["r"]}), "'Query' and 'query' differ at most in upper and lower case"),
    ],
)
def test_what_is_no_table_is_refused(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(source)


def test_a_column_may_look_like_a_renamed_one(tmp_path: Path) -> None:
    """DuckDB calls the second of two columns `doc` `doc_1`; a column that is called so by its owner is no copy."""
    more = TABLE.append_column("doc_1", pa.array(["other"] * 4))
    for name in ("log.parquet", "log.csv", "log.tsv", "log.jsonl"):
        (tmp_path / name).write_bytes(WRITERS[name](more))
        assert canonical(read_log(tmp_path / name, context=["doc_1"])) == EXPECTED


@pytest.mark.parametrize(("name", "neighbour"), [("log[1]", "log1"), ("x*", "xy"), ("q?", "qa"), ("{a,b}", "a")])
@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_path_that_exists_is_that_file(name: str, neighbour: str, ending: str, tmp_path: Path) -> None:
    write = WRITERS[f"log.{ending}"]
    (tmp_path / f"{name}.{ending}").write_bytes(write(TABLE))
    (tmp_path / f"{neighbour}.{ending}").write_bytes(write(TABLE.slice(0, 1)))
    assert canonical(read_log(tmp_path / f"{name}.{ending}")) == EXPECTED


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("where", ["", "position=7", "position=7/log.{}", "*/log.{}"])
def test_names_of_folders_replace_no_column(
    ending: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of a path, nor those above the folder that it begins in."""
    place = tmp_path / "run=1" / "position=7"
    place.mkdir(parents=True)
    (place / f"log.{ending}").write_bytes(WRITERS[f"log.{ending}"](TABLE))
    assert canonical(read_log(place.parent / where.format(ending))) == EXPECTED
    monkeypatch.chdir(place.parent)
    assert canonical(read_log(where.format(ending) or ".")) == EXPECTED


FORBIDDEN = {
    "csv": "SELECT * FROM read_csv('{secret}')",
    "name": "SELECT * FROM '{secret}'",
    "text": "SELECT content AS query FROM read_text('{secret}')",
    "listing": "SELECT file AS query FROM glob('{folder}/*')",
    "macro": "SELECT * FROM peek()",
    "other view": "SELECT * FROM csv",
    "sniffing": "SELECT * FROM sniff_csv('{secret}')",
}


@pytest.mark.parametrize("view", FORBIDDEN)
def test_a_view_reads_no_other_file(view: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_bytes(csv_text(TABLE))
    places = {"secret": secret, "folder": tmp_path}
    with duckdb.connect(str(tmp_path / "log.duckdb")) as con:
        con.execute(f"CREATE MACRO peek() AS TABLE {FORBIDDEN['csv'].format(**places)}")
        for name in dict.fromkeys(["csv", view]):
            con.execute(f'CREATE VIEW "{name}" AS {FORBIDDEN[name].format(**places)}')
    with pytest.raises(InputError, match="A view may read the tables of its own file alone") as refused:
        read_log(tmp_path / "log.duckdb", table=view)
    assert "shoes" not in str(refused.value)


def test_the_engine_downloads_nothing_by_itself() -> None:
    engine = DuckDBEngine()
    assert not engine.setting("autoinstall_known_extensions")
    assert not engine.setting("autoload_known_extensions")


@pytest.mark.parametrize(
    "address", ["http://x/log.csv", "https://x/log.parquet", "s3://b/*.parquet", "gs://b/log.jsonl"]
)
def test_addresses_are_refused(address: str) -> None:
    with pytest.raises(InputError, match="is an address, and nothing is downloaded"):
        open_source(address)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.PARQUET", "parquet"), ("s3://b/x.jsonl.zst", "jsonl"), ("csv", None), ("a.gz", None)]
)
def test_formats_are_told_by_the_name(name: str, kind: str | None) -> None:
    assert file_format(name) == kind


def test_many_columns_are_spelt_short() -> None:
    assert spell_columns([]) == "no column"
    assert spell_columns(["a\nb", "c"]) == "a b, c"
    assert spell_columns([str(i) for i in range(100)]).endswith("10, 11 and 88 more")
