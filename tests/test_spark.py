"""Everything that starts Spark, in one file for one session: the same log gives the same on Spark as on DuckDB.

Most tests run in this machine's cores; those after `CLUSTER` on two worker processes, where files become folders.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from clickharvest.checks.diagnosing import Diagnosis, diagnose
from clickharvest.click_models.browsing import browsing_log
from clickharvest.click_models.reading import Reading
from clickharvest.commands import app as cli
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.harvesting.collecting import harvest, harvest_to_parquet
from clickharvest.harvesting.designs import Design, Rankings, Swap
from clickharvest.harvesting.reading import read_interventions
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.outcomes import after_click
from clickharvest.logs.reading import read_log
from clickharvest.logs.sources import open_source
from clickharvest.logs.spark import SparkEngine
from clickharvest.logs.tallies import write_tally
from clickharvest.simulate import simulate_ab_log
from clickharvest.weights.weighing import weigh_to_parquet
from context_logs import CONTEXT, context_log, context_model
from places import ROOT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
CLUSTER = pytest.mark.parametrize("spark_engine", ["local-cluster[2,1,1500]"], indirect=True)
"""Two worker processes: what is handed from one to the other really travels."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Java starts, which relative paths begin from."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def spark_engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[SparkEngine]:
    """Spark in this machine's cores, or on the cluster that a test asks for."""
    pytest.importorskip("pyspark", reason="the Spark extra is not installed")
    # Java's second compiler is for code that runs for minutes: on queries that run once it takes most of the time.
    java = "-XX:TieredStopAtLevel=1"
    options = f"--driver-java-options {java} --conf spark.executor.extraJavaOptions={java} pyspark-shell"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", options)
        patch.chdir(folder)
        engine = SparkEngine(master=getattr(request, "param", "local[2]"))
    engine.session.conf.set("spark.sql.shuffle.partitions", "2")
    # Adaptive execution would put both parts of a small log into one; the cluster has it, as users do.
    engine.session.conf.set("spark.sql.adaptive.enabled", str(hasattr(request, "param")).lower())
    yield engine
    engine.session.stop()


@pytest.fixture(scope="module")
def ab_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with text, numbers, empty contexts and an original position."""
    table, _ = simulate_ab_log(pages=1500, queries=25, seed=5)
    n = table.num_rows
    length = [None if i % 7 == 0 else i // 10 % 4 / 2 for i in range(n)]
    table = table.append_column("length", pa.array(length)).append_column("original", table["position"])
    device = pa.array([None if i // 10 % 11 == 0 else d for i, d in enumerate(table["device"].to_pylist())])
    table = table.set_column(table.column_names.index("device"), "device", device)
    path = tmp_path_factory.mktemp("log") / "clicks.parquet"
    pq.write_table(table.append_column("time", table["page"]), path)
    return path


def rankings_of(path: Path) -> pa.Table:
    return pq.read_table(path).group_by(["query", "ranker", "doc", "position"]).aggregate([])


@pytest.mark.parametrize(
    ("kind", "unit", "cluster"),
    [
        ("rankings", "context", "length"),
        pytest.param("realised", "context", "page", marks=pytest.mark.nightly),
        pytest.param("swap", "query", None, marks=pytest.mark.nightly),
    ],
)
def test_interventions_are_the_same_row_for_row(
    ab_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine, unit: Any, kind: str, cluster: str | None
) -> None:
    designs: dict[str, Design | None] = {
        "realised": None,
        "rankings": Rankings(rankings_of(ab_log)),
        "swap": Swap.uniform(3),
    }
    context = ["device"] if cluster == "length" else ["device", "length"]
    clustered = {} if cluster is None else {"cluster": cluster}
    tables = []
    for engine in (duckdb_engine, spark_engine):
        log = read_log(ab_log, context=context, engine=engine)
        tables.append(harvest(log, unit=unit, max_position=8, design=designs[kind], **clustered).to_arrow())
    on_duckdb, on_spark = tables
    assert on_spark.drop(["exposure"]).equals(on_duckdb.drop(["exposure"]))
    assert on_spark["exposure"].to_pylist() == pytest.approx(on_duckdb["exposure"].to_pylist(), rel=1e-12)


def test_places_of_readers_are_the_same(ab_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine) -> None:
    """Browsing states, and attractions learned from all other pages."""
    model = Reading(intervals=None)
    logs = [read_log(ab_log, engine=engine, validate=False) for engine in (duckdb_engine, spark_engine)]
    states = [
        log.engine.fetch(browsing_log(log).table.select("page", "query", "doc", "position"), task="").sort_by(
            [("page", "ascending"), ("query", "ascending"), ("doc", "ascending")]
        )
        for log in logs
    ]
    assert states[1].equals(states[0])
    on_duckdb, on_spark = (model.harvest(log, max_position=2) for log in logs)
    assert on_spark.to_arrow().drop(["exposure"]).equals(on_duckdb.to_arrow().drop(["exposure"]))
    assert on_spark.exposure == pytest.approx(on_duckdb.exposure, rel=1e-9)


def test_the_real_log_is_the_same_on_both(
    yandex_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine, tmp_path: Path
) -> None:
    paths = {}
    for engine in (duckdb_engine, spark_engine):
        paths[engine.name] = tmp_path / f"{engine.name}.parquet"
        harvest_to_parquet(read_log(yandex_log, page="session", engine=engine), paths[engine.name])
    on_spark = read_interventions(paths["spark"])
    assert on_spark.to_arrow().equals(read_interventions(paths["duckdb"]).to_arrow(), check_metadata=True)
    assert (on_spark.clicked().n_units, on_spark.clicked().clicks.sum()) == (404, 39_677)


@pytest.mark.nightly
def test_what_is_thinned_is_the_same(
    ab_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clickharvest.harvesting.large_logs.LEAST_QUERIES", 1)
    kept: list[pa.Table] = []
    for engine in (duckdb_engine, spark_engine):
        log = read_log(ab_log, context=["device"], engine=engine)
        with pytest.warns(HarvestWarning, match="Thinned to"):
            kept.append(harvest(log, clicked_only=True, max_clicks=500).to_arrow())
    assert kept[1].equals(kept[0])
    assert kept[0].num_rows < harvest(read_log(ab_log, context=["device"]), clicked_only=True).to_arrow().num_rows


@pytest.mark.nightly
def test_outcomes_at_places_are_the_same(
    ab_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine, tmp_path: Path
) -> None:
    table = pq.read_table(ab_log, columns=["query", "doc", "position", "click"]).slice(0, 4_000)
    position, click = (table[name].to_numpy() for name in ("position", "click"))
    more = {"row": (position - 1) // 5, "column": (position - 1) % 5, "bought": click * (position % 2)}
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, tmp_path / "grid.parquet")
    ours, theirs = (
        after_click(
            read_log(tmp_path / "grid.parquet", place=("row", "column"), engine=engine, validate=False), "bought"
        ).log
        for engine in (duckdb_engine, spark_engine)
    )
    assert theirs.places == ours.places is not None
    found = harvest(ours).to_arrow()
    assert found.num_rows > 50
    assert harvest(theirs).to_arrow().equals(found, check_metadata=True)


def test_the_diagnosis_is_the_same(ab_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine) -> None:
    found: list[Diagnosis] = []
    for engine in (duckdb_engine, spark_engine):
        log = read_log(ab_log, context=["device", "length"], engine=engine)
        found.append(diagnose(log, traffic={"a": 1, "b": 1, "c": 1}))
    on_duckdb, on_spark = found
    for ours, theirs in zip(on_spark.pairs, on_duckdb.pairs, strict=True):
        assert asdict(ours) == pytest.approx(asdict(theirs))
    assert on_spark.segments == on_duckdb.segments
    assert on_spark.totals == on_duckdb.totals
    for ours, theirs in zip(on_spark.findings, on_duckdb.findings, strict=True):
        assert ours.value == pytest.approx(theirs.value)
        assert ours.p == pytest.approx(theirs.p)
        assert replace(ours, value=None, p=None).to_dict() == replace(theirs, value=None, p=None).to_dict()


@pytest.mark.parametrize(
    "ending", ["csv", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("tsv.gz", "jsonl"))]
)
def test_text_files_read_alike(
    ending: str, tmp_path: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine
) -> None:
    rows = [{"query": "q", "doc": "007", "rank": k, "click": k == 1, "length": 1.5 * k} for k in (1, 2)]
    rows += [{"query": "q", "doc": "7", "rank": k, "click": k == 2, "length": 3.0} for k in (1, 3)]
    path = tmp_path / f"clicks.{ending}"
    if ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        options = csv.WriteOptions(delimiter="\t" if ending == "tsv.gz" else ",")
        with pa.output_stream(path, compression="gzip" if ending.endswith("gz") else None) as stream:
            csv.write_csv(pa.Table.from_pylist(rows), stream, options)
    on_duckdb, on_spark = (
        harvest(read_log(path, position="rank", context=["length"], engine=engine), unit="query")
        for engine in (duckdb_engine, spark_engine)
    )
    assert on_spark.to_arrow().equals(on_duckdb.to_arrow())
    assert on_spark.n_units == 2


@pytest.mark.parametrize("backwards", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_files_that_differ_in_type_read_alike(
    backwards: bool, tmp_path: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine
) -> None:
    kinds = {"age": ("int32", "double"), "user": ("int32", "int64"), "length": ("float", "double")}
    for i in (0, 1):
        row = {name: pa.array([7], kind[i]) for name, kind in kinds.items()} | {"doc": pa.array([i])}
        pq.write_table(pa.table(row), tmp_path / f"{1 - i if backwards else i}.parquet")
    tables = []
    for engine in (duckdb_engine, spark_engine):
        opened, _ = open_source(tmp_path, engine)
        tables.append(engine.fetch(opened.order_by("doc"), task="Reading"))
    assert tables[1].equals(tables[0])
    pq.write_table(pa.table({"doc": ["x"]}), tmp_path / "2.parquet")
    for engine in (duckdb_engine, spark_engine):
        with pytest.raises(InputError, match=r"the column 'doc' is int64 in .*0.parquet and string in .*2.parquet"):
            open_source(tmp_path, engine)


@pytest.mark.parametrize(
    "ending", ["jsonl", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("csv", "parquet"))]
)
def test_folders_and_globs_read_alike(
    ending: str, tmp_path: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine
) -> None:
    """What is hidden is no data, names of folders are columns, and identifiers are those that are written."""
    docs = [18446744073709551617, 1.5, True, "007"] if ending == "jsonl" else ["a", "b", "c", "007"]
    for name in ("_logs/day=1/x", "_logs/day=2/y", "_logs/day=2/_y", "_logs/_temporary/0"):
        rows = [{"doc": doc, "n": k} for k, doc in enumerate(docs)]
        path = tmp_path / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if ending == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif ending == "csv":
            csv.write_csv(pa.Table.from_pylist(rows), path)
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)
    for source in (tmp_path / "_logs", tmp_path / "_logs" / "*" / f"*.{ending}"):
        tables = []
        for engine in (duckdb_engine, spark_engine):
            opened, _ = open_source(source, engine, text=["doc"])
            plain = opened.select("doc", n=opened.n.cast("int64"), day=opened.day.cast("int64"))
            tables.append(engine.fetch(plain.order_by("day", "n"), task="Reading"))
        assert tables[1].equals(tables[0])
        written = [str(doc).lower() for doc in docs]
        assert tables[0]["doc"].to_pylist() == written * 2


def test_spark_reads_its_own_tables_and_dataframes(ab_log: Path, spark_engine: SparkEngine) -> None:
    spark_engine.session.read.parquet(str(ab_log)).createOrReplaceTempView("clicks_view")
    whole = pq.read_table(ab_log)
    some = whole.slice(0, 1_000)
    for source, rows in (("clicks_view", whole), (some, some)):
        ours, theirs = (read_log(own, engine=engine) for own, engine in ((rows, None), (source, spark_engine)))
        tables = [log.engine.fetch(log.table.order_by("page", "position"), task="") for log in (ours, theirs)]
        assert tables[1].equals(tables[0])
        assert tables[0].num_rows == rows.num_rows
    with pytest.raises(InputError, match="neither a file nor a table"):
        read_log("no_such_view", engine=spark_engine)


def test_bad_rows_are_told_alike(tmp_path: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine) -> None:
    (tmp_path / "clicks.csv").write_text("query,doc,position,click\nq,a,first,1\nq,b,2,0\n")
    messages = []
    for engine in (duckdb_engine, spark_engine):
        with pytest.raises(InputError) as raised:
            read_log(tmp_path / "clicks.csv", engine=engine)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "1 of 2 rows are not whole numbers" in messages[0]


def test_an_interrupt_is_told_in_one_line(ab_log: Path, spark_engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "clickharvest", "harvest", str(ab_log), "--engine", "spark", "-o", "out.parquet"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    pipe = subprocess.PIPE

    def heed() -> None:
        """Tests in the background ignore interrupts, and so would the child."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed
    ) as child:
        while child.poll() is None and not list(tmp_path.glob("temporary/*/java.log")):
            time.sleep(0.05)
        time.sleep(2)  # Java is starting, or at work
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, "", "Interrupted; nothing was written.\n")
    assert not list(tmp_path.glob("temporary/clickharvest-*"))
    assert not (tmp_path / "out.parquet").exists()


def check_weights(engine: SparkEngine, folder: Path) -> Path:
    """Compare all columns that `weigh` writes on Spark with those it writes on DuckDB; return what Spark wrote."""
    table = context_log(rows=150).drop(["note"])
    pq.write_table(table, folder / "clicks.parquet")
    model = context_model(table)
    tables, reports = [], []
    for one in (DuckDBEngine(), engine):
        log = read_log(folder / "clicks.parquet", query="q", position="rank", context=CONTEXT, engine=one)
        out = folder / f"{one.name}.parquet"
        reports.append(weigh_to_parquet(log, model, out, clip="auto", normalise=True).to_dict())
        tables.append(pq.read_table(out).sort_by("doc"))
    assert tables[1].column_names == tables[0].column_names
    assert tables[1].schema.types == tables[0].schema.types
    original = table.sort_by("doc")
    for name in tables[0].column_names:
        ours, theirs = (found[name].to_pylist() for found in tables)
        if name in ("propensity", "ips_weight"):
            assert theirs == pytest.approx(ours, rel=1e-12)
        else:
            assert list(map(repr, theirs)) == list(map(repr, ours))
        if name in original.column_names:
            assert list(map(repr, theirs)) == list(map(repr, original[name].to_pylist()))
    assert reports[1].keys() == reports[0].keys()
    for key, value in reports[0].items():
        assert reports[1][key] == (pytest.approx(value) if isinstance(value, float) else value)
    return out


def test_weights_are_the_same(spark_engine: SparkEngine, tmp_path: Path) -> None:
    assert check_weights(spark_engine, tmp_path).is_file()


def test_the_blocks_of_the_page_print_what_they_show(
    spark_engine: SparkEngine, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    text = (ROOT / "docs" / "logs.md").read_text()
    blocks = re.findall(
        r"<!-- needs spark -->\n```python\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == text.count("<!-- needs") > 0
    for code, printed in blocks:
        exec(compile(code, "page", "exec", dont_inherit=True), {})  # noqa: S102
        assert capsys.readouterr().out == printed


@CLUSTER
def test_weights_written_by_two_processes_are_a_folder(spark_engine: SparkEngine, tmp_path: Path) -> None:
    assert check_weights(spark_engine, tmp_path).is_dir()


@CLUSTER
def test_a_tally_written_by_two_processes_is_a_folder(
    ab_log: Path, duckdb_engine: DuckDBEngine, spark_engine: SparkEngine, tmp_path: Path
) -> None:
    kept = []
    for engine in (duckdb_engine, spark_engine):
        path = tmp_path / f"{engine.name}.parquet"
        write_tally(read_log(ab_log, context=["device"], engine=engine), path)
        kept.append(harvest(read_log(path, context=["device"])).to_arrow())
    assert path.is_dir()
    assert kept[1].equals(kept[0])


@pytest.mark.nightly
@CLUSTER
def test_the_command_line_on_a_cluster(
    ab_log: Path,
    spark_engine: SparkEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out.parquet"
    arguments = [
        "harvest",
        str(ab_log),
        "--engine",
        "spark",
        "--spark-master",
        spark_engine.session.sparkContext.master,
        "--context",
        "device",
        "-o",
        str(output),
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["clickharvest", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert output.is_dir()
    on_duckdb = harvest(read_log(ab_log, context=["device"]))
    assert json.loads(capsys.readouterr().out)["units"] == on_duckdb.n_units
    assert read_interventions(output).to_arrow().equals(on_duckdb.to_arrow())
