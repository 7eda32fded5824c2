"""Whatever is wrong with the input: exit code 2, one line on standard error, nothing else, no file left behind."""

from __future__ import annotations

import gzip
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from clickharvest.commands import app as cli

pytestmark = pytest.mark.usefixtures("one_duckdb")

LOG = {"query": ["q", "q", "q"], "doc": ["a", "a", "b"], "position": [1, 2, 2], "click": [1, 0, 0]}
COUNTED = {"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "clicks": [1, 0], "impressions": [3, 3]}
OBJECT, ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
UBI_QUERIES = {"query_id": ["1"], "user_query": ["shoes"]}
UBI_EVENTS = {"query_id": ["1"] * 2, "action_name": ["view", "click"], OBJECT: ["sku"] * 2, ORDINAL: [1, 1]}
RANKINGS = {"query": ["q", "q"], "ranker": ["f", "g"], "doc": ["a", "a"], "position": [1, 2]}
INTERVENTIONS = {
    "unit": [0, 0], "query": ["q", "q"], "position": [1, 2], "exposure": [1.0, 1.0], "clicks": [1, 0],
    "impressions": [1, 1],
}  # fmt: skip

Files = dict[str, Any]
"""Files by name: text or bytes as they are, columns as what the name says, None for a folder."""


def make(name: str, content: Any) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content)
    elif name.endswith(".parquet"):
        pq.write_table(pa.table(content), path)
    elif name.endswith(".csv"):
        pa.csv.write_csv(pa.table(content), path)
    elif name.endswith(".duckdb"):
        with duckdb.connect(name) as con:
            for statement in content:
                con.execute(statement)
    else:
        raise AssertionError(name)


def log(**changed: list[Any] | None) -> dict[str, list[Any]]:
    """The good log with some columns changed, or left out where they are None."""
    return {name: column for name, column in (LOG | changed).items() if column is not None}


def case(name: str, arguments: str, message: str, **files: Any) -> Any:
    return pytest.param(arguments, files.pop("files", {}), message, id=name)


def both(name: str, columns: dict[str, list[Any]], message: str, options: str = "") -> list[Any]:
    """The same bad rows in a CSV and in a Parquet file."""
    return [
        case(f"{name} ({ending})", f"check log.{ending} {options}", message, files={f"log.{ending}": columns})
        for ending in ("csv", "parquet")
    ]


GOOD: Files = {"log.parquet": LOG}
TRUNCATED = b"PAR1" + bytes(range(200))
HEADER = "query,doc,position,click\n"

FILES = [
    case("missing file", "check nothing.csv", "no file matches nothing.csv"),
    case("missing glob", "check 'day*.parquet'", "no file matches day*.parquet"),
    case("missing folder", "check logs/", "no file matches logs/"),
    case("empty name", "check ''", "no file"),
    case("empty csv", "check log.csv", "log.csv is empty", files={"log.csv": ""}),
    case("empty parquet", "check log.parquet", "log.parquet is empty", files={"log.parquet": b""}),
    case("empty jsonl", "check log.jsonl", "log.jsonl is empty", files={"log.jsonl": ""}),
    case("blank csv", "check log.csv", "log.csv", files={"log.csv": "\n\n\n"}),
    case("empty folder", "check logs", "holds no data files", files={"logs": None}),
    case("folder of other things", "check logs", "holds no data files", files={"logs/readme.md": "# logs"}),
    case("mixed folder", "check logs", "found .csv, .parquet", files={"logs/a.csv": LOG, "logs/b.parquet": LOG}),
    case("no extension", "check log", "cannot tell the format of log", files={"log": "query,doc"}),
    case("wrong extension", "check log.xlsx", "cannot tell the format", files={"log.xlsx": b"PK"}),
    case("truncated parquet", "check log.parquet", "cannot be read as Parquet", files={"log.parquet": TRUNCATED}),
    case("text called parquet", "check log.parquet", "cannot be read as Parquet", files={"log.parquet": "query,doc\n"}),
    case("binary called csv", "check log.csv", "log.csv cannot be read as CSV", files={"log.csv": TRUNCATED * 9}),
    case("parquet called csv", "check log.csv", "missing column", files={"log.csv": b"PAR1\x15\x04\x15\x10PAR1"}),
    case("latin-1 csv", "check log.csv", "The file is not UTF-8: save it as such",
         files={"log.csv": (HEADER + "ü,a,1,1\n").encode("latin-1")}),
    case("uneven csv", "check log.csv", "line 3 of log.csv: Expected Number of Columns: 4",
         files={"log.csv": HEADER + "q,a,1,1\nq,b,2,0,9,9\n"}),
    case("late word in a column of numbers", "check log.csv --context age",
         "column 'age': 'old' is not a whole number, as the values of the first rows are; write",
         files={"log.csv": "query,doc,position,click,age\n" + "q,a,1,1,7\n" * 30_000 + "q,a,2,0,old\n"}),
    case("broken gzip", "check log.csv.gz", "log.csv.gz cannot be unpacked: zlib inflate failed: incorrect",
         files={"log.csv.gz": b"query,doc\n"}),
    case("cut gzip", "check log.csv.gz", "the file log.csv.gz cannot be unpacked: Truncated",
         files={"log.csv.gz": gzip.compress(b"query,doc\n" * 999)[:40]}),
    case("altered gzip", "check log.csv.gz", "log.csv.gz cannot be unpacked: zlib inflate failed: incorrect data check",
         files={"log.csv.gz": gzip.compress(b"query,doc,position,click\nq,a,1,1\n", 0).replace(b"q,a", b"q,b")}),
    case("malformed jsonl", "check log.jsonl", "log.jsonl cannot be read as JSONL",
         files={"log.jsonl": '{"query": \n'}),
    case("json that is no records", "check log.jsonl", "log.jsonl", files={"log.jsonl": "1\n2\n"}),
    case("no duckdb file", "check log.duckdb", "cannot be opened as a DuckDB file",
         files={"log.duckdb": "query,doc" * 9}),
    case(
        "duckdb of two tables", "check log.duckdb", "found clicks, other; name one with --table",
        files={"log.duckdb": ["CREATE TABLE clicks (a INT)", "CREATE TABLE other (a INT)"]},
    ),
    case(
        "duckdb without tables", "check log.duckdb", "holds no table",
        files={"log.duckdb": ["CREATE SCHEMA logs"]},
    ),
    case(
        "unknown table", "check log.duckdb --table nope", "no table 'nope'",
        files={"log.duckdb": ["CREATE TABLE clicks (a INT)"]},
    ),
    case(
        "table in two schemas", "check log.duckdb --table t", "found a.t, b.t",
        files={"log.duckdb": [f"CREATE SCHEMA {name}; CREATE TABLE {name}.t (x INT)" for name in "ab"]},
    ),
    case("web address", "check https://example.org/log.parquet", "nothing is downloaded: copy the file here"),
    case("address of rankings", "check log.parquet --rankings s3://b/r.csv --traffic f=1", "s3://b/r.csv is an address",
         files=GOOD),
    case("doubled column (csv)", "check log.csv", "the columns 'click' and 'Click' differ at most in upper and lower",
         files={"log.csv": "query,doc,position,click,Click\nq,a,1,1,0\n"}),
    case("doubled column (tsv)", "check log.tsv", "the columns 'doc' and 'doc' differ",
         files={"log.tsv": "query\tdoc\tposition\tclick\tdoc\nq\ta\t1\t1\tb\n"}),
    case("doubled column (jsonl)", "check log.jsonl", "'Click' differ at most in upper and lower",
         files={"log.jsonl": '{"query": "q", "doc": "a", "position": 1, "click": 1, "Click": 0}\n'}),
    case("doubled column (parquet)", "check log.parquet", "the columns 'click' and 'Click' differ",
         files={"log.parquet": LOG | {"Click": [0, 0, 1]}}),
    case("view of another file", "check log.duckdb --table peek", "view 'peek' cannot be read",
         files={"other.csv": LOG, "log.duckdb": ["CREATE VIEW peek AS FROM 'other.csv'"]}),
    case("table of a parquet file", "check log.parquet --table t", "goes with a DuckDB file", files=GOOD),
]  # fmt: skip

COLUMNS = [
    *both("no query", log(query=None), "missing column 'query'"),
    *both("no document", log(doc=None), "missing column 'doc': found query, position, click"),
    *both("no position", log(position=None), "--position COLUMN"),
    *both("no click", log(click=None), "no click column"),
    *both("named column missing", LOG, "missing column 'rank'", "--position rank"),
    *both("clicks without impressions", log(click=None, clicks=[1, 0, 0]), "impressions is missing"),
    *both("impressions without clicks", log(click=None, impressions=[1, 1, 1]), "clicks is missing"),
    *both("click and clicks", log(clicks=[1, 0, 0], impressions=[1, 1, 1]), "both click and clicks"),
    *both("context missing", LOG, "missing context column 'device'", "--context device"),
    *both("context doubled", log(d=[1, 2, 3]), "context column 'd' is named twice", "--context d,d"),
    *both("context reserved", log(unit=[1, 2, 3]), "'unit' has a name that is reserved", "--context unit"),
    *both("context named like a role", log(Position=[1, 2, 3], rank=[1, 2, 2], position=None),
          "'Position' has a name that is reserved", "--position rank --context Position"),
    *both("context twice but for case", log(Day=[1, 2, 3]), "is named twice", "--context Day,day"),
    *both("column name of two lines", log(query=None) | {"a\nb": ["x", "y", "z"]}, "found doc, position, click, a b"),
    case("context nested", "check log.parquet --context tags", "'tags' is of type array<int64>",
         files={"log.parquet": log(tags=[[1], [2], [3]])}),
    case("column nested", "check log.parquet", "column 'position' is of type struct",
         files={"log.parquet": log(position=[{"a": 1}] * 3)}),
    case("query nested", "check log.parquet", "column 'query' is of type array",
         files={"log.parquet": log(query=[["a"], ["b"], ["c"]])}),
    case("position a date", "check log.parquet", "expected numbers",
         files={"log.parquet": log(position=pa.array([1, 2, 3], pa.date32()))}),
]  # fmt: skip

ROWS = [
    *both("no rows", {name: pa.array(column)[:0] for name, column in LOG.items()}, "the log is empty"),
    *both("query empty", log(query=["q", None, "q"]), "column 'query': 1 of 3 rows are empty, such as (query=None"),
    *both("document empty", log(doc=[None, None, None]), "column 'doc': 3 of 3 rows are empty"),
    *both("position empty", log(position=[1, None, 2]), "column 'position': 1 of 3 rows are empty"),
    *both("click empty", log(click=[1, None, 0]), "column 'click': 1 of 3 rows are empty"),
    *both("ranker empty", log(ranker=["f", None, "g"]), "column 'ranker': 1 of 3 rows are empty"),
    *both("click of 2", log(click=[2, 0, 1]), "column 'click': 1 of 3 rows are neither 0 nor 1"),
    *both("click a word", log(click=["seen", "no", "no"]), "column 'click': 1 of 3 rows are neither 0 nor 1"),
    *both("click a fraction", log(click=[0.5, 1.0, 0.0]), "column 'click': 1 of 3 rows are neither 0 nor 1"),
    *both("position 0", log(position=[0, 1, 1]), "0-based? pass --position-base 0"),
    *both("position below the base", log(position=[-1, 0, 1]), "column 'position': 1 of 3 rows", "--position-base 0"),
    *both("position a fraction", log(position=[1.5, 2.0, 2.0]), "column 'position': 1 of 3 rows are not whole numbers"),
    *both("position a word", log(position=["top", "2", "2"]), "such as (query='q', doc='a', position='top'"),
    *both("position infinite", log(position=[float("inf"), 1.0, 2.0]), "column 'position': 1 of 3 rows are not whole"),
    *both("position beyond all lists", log(position=[1e300, 1.0, 2.0]), "'position': 1 of 3 rows are beyond 1,000,000"),
    *both("position an identifier", log(position=[2**62, 1, 2]), "or name another column with --position"),
    *both("position the largest", log(position=[2**63 - 1, 1, 2]), "are beyond 1,000,000", "--position-base 0"),
    *both("position NaN", log(position=["nan", "1", "2"]), "leave out rows without one"),
    *both("huge counts", COUNTED | {"impressions": [1e300, 3.0]}, "'impressions': 1 of 2 rows are above"),
    *both("clicks alone", log(click=[1, 1, 1]), "log what was shown, not only what was clicked"),
    *both("clicks alone, counted", COUNTED | {"clicks": [3, 3]}, "all of 6 impressions are clicked"),
    *both("original 0", log(original=[0, 1, 2]), "column 'original': 1 of 3 rows are less than 1"),
    *both(
        "more clicks than impressions", COUNTED | {"clicks": [4, 0]}, "1 of 2 rows have more clicks than impressions"
    ),
    *both("negative clicks", COUNTED | {"clicks": [-1, 2]}, "column 'clicks': 1 of 2 rows are negative"),
    *both("impressions a fraction", COUNTED | {"impressions": [3.5, 3.0]}, "'impressions': 1 of 2 rows are not whole"),
    *both("document twice on a page", log(page=[1, 1, 1]), "2 of 3 rows show a document twice on one page"),
    *both("no clicks", log(click=[0, 0, 0]), "no clicks at all in 3 rows"),
    *both("no counted clicks", COUNTED | {"clicks": [0, 0]}, "check the column 'clicks'"),
]

OPTIONS = [
    case("unknown option", "check log.parquet --kontext a", "--kontext", files=GOOD),
    case("no log", "check", "LOG"),
    case("unknown command", "chek log.parquet", "chek", files=GOOD),
    case("two logs", "check log.parquet other.parquet", "other.parquet", files=GOOD),
    case("position base 2", "check log.parquet --position-base 2", "position base", files=GOOD),
    case("max position 1", "check log.parquet --max-position 1", "two positions or more", files=GOOD),
    case("max position a word", "check log.parquet --max-position x", "should be a valid integer", files=GOOD),
    case("unknown unit", "check log.parquet --unit doc", "doc", files=GOOD),
    case("memory limit", "check log.parquet --memory-limit potato", "Expected a size such as 2GB", files=GOOD),
    case("unknown engine", "check log.parquet --engine hive", "hive", files=GOOD),
    case("block a word", "check log.parquet --block organic", "--block organic: expected name=value", files=GOOD),
    case("block of no column", "check log.parquet --block kind=ad", "--block kind: no such column", files=GOOD),
    case("block of no row", "check log.parquet --block doc=z", "has this value; found a (2 rows)", files=GOOD),
    case("block no number", "check log.parquet --block position=top", "expected a number", files=GOOD),
    case("page size alone", "check log.parquet --page-size 10", "--page-number COLUMN --page-size N", files=GOOD),
    case("page number alone", "check log.parquet --page-number position", "--page-size N", files=GOOD),
    case("page size 0", "check log.parquet --page-number position --page-size 0", "--page-size 0", files=GOOD),
    case("page size too small", "check log.parquet --page-number position --page-size 1", "beyond 1, the end of a page",
         files=GOOD),
    case("page number 0", "check log.parquet --page-number click --page-size 9", "add 1 where the first page is 0",
         files=GOOD),
    case("repeat without pages", "check log.parquet --repeat first", "name their column with --page", files=GOOD),
    case("repeat last", "check log.parquet --repeat last", "last", files=GOOD),
    case("UBI with a block", "check e.csv --ubi-queries q.csv --block a=b", "--block does not go with the format ubi"),
    case("spark master", "check log.parquet --spark-master local", "goes with --engine spark", files=GOOD),
    case("traffic a word", "check log.parquet --traffic half", "expected name=number", files=GOOD),
    case("traffic twice", "check log.parquet --traffic a=1,a=2", "every name once", files=GOOD),
    case("swap a word", "check log.parquet --swap some --original position", "--swap some", files=GOOD),
    case("swap of 1", "check log.parquet --swap 1 --original position", "2 or more", files=GOOD),
    case("swap shares", "check log.parquet --swap 1=.5,2=.1 --original position", "sum to 0.6", files=GOOD),
    case("swap of names", "check log.parquet --swap a=.5,b=.5 --original position", "expected a number", files=GOOD),
    case("swap without original", "check log.parquet --swap 2", "--original", files=GOOD),
    case("rankings missing", "check log.parquet --rankings r.csv --traffic f=1", "no file matches r.csv", files=GOOD),
    case("rankings lack columns", "check log.parquet --rankings r.csv --traffic f=1", "rankings table lacks ranker",
         files=GOOD | {"r.csv": {name: RANKINGS[name] for name in ("query", "doc", "position")}}),
    case("rankings match nothing", "check log.parquet --rankings r.csv --traffic f=1,g=1", "no impression of the log",
         files=GOOD | {"r.csv": RANKINGS | {"query": ["x", "y"]}}),
    case("rankings without traffic", "check log.parquet --rankings r.csv", "--traffic a=50,b=50",
         files=GOOD | {"r.csv": RANKINGS}),
    case("negative traffic", "check log.parquet --rankings r.csv --traffic f=1,g=-1", "numbers of 0 or more",
         files=GOOD | {"r.csv": RANKINGS}),
    case("no output", "harvest log.parquet", "-o interventions.parquet", files=GOOD),
    case("output in no folder", "harvest log.parquet -o no/out.parquet", "no does not exist", files=GOOD),
    case("output a folder", "harvest log.parquet -o out.parquet", "is a directory", files=GOOD | {"out.parquet": None}),
    case("output no parquet", "harvest log.parquet -o out.csv", "should end in .parquet", files=GOOD),
    case("bad log, good output", "harvest log.csv -o out.parquet", "missing column", files={"log.csv": "a,b\n1,2\n"}),
    case("unknown dialect", "harvest log.parquet --emit-sql oracle", "no SQL dialect 'oracle'", files=GOOD),
    case("sql of missing file", "harvest nothing.csv --emit-sql duckdb", "no file matches nothing.csv"),
    case("sql of UBI", "harvest e.csv --ubi-queries q.csv --emit-sql duckdb", "does not go with the format ubi"),
    case("inputs without format", "check log.parquet --inputs queries=q.csv", "goes with --format", files=GOOD),
    case("inputs twice", "check e.csv --format ubi --inputs queries=a --inputs queries=b", "every name once"),
    case("unknown input", "check e.csv --format ubi --inputs sessions=s.csv", "no input 'sessions': expected queries"),
    case("missing input", "check e.csv --format algolia", "the format algolia needs results"),
    case("within alone", "check log.parquet --within 30min", "--within goes with --clicks-from", files=GOOD),
    case("clicks and a column", "check log.parquet --clicks-from c.csv --click click", "--click does not go with",
         files=GOOD | {"c.csv": {"doc": ["a"]}}),
    case("clicks of nothing", "check log.parquet --clicks-from c.csv", "clicks cannot be joined to what was shown",
         files=GOOD | {"c.csv": {"doc": ["a"]}}),
    case("clicks not there", "check log.parquet --clicks-from c.csv", "no file matches c.csv", files=GOOD),
    case("sql of two files", "harvest log.parquet --clicks-from c.csv --emit-sql duckdb", "not go with --clicks"),
    case("unknown format", "check e.csv --format aol", "'aol' is not one of 'adobe', 'algolia'"),
    case("demo into a file", "demo -o log.parquet", "log.parquet", files=GOOD),
]  # fmt: skip

UBI = [
    case("UBI with a role", "check e.csv --ubi-queries q.csv --query q", "--query does not go with the format ubi"),
    case("UBI with a table", "check e.csv --ubi-queries q.csv --table t", "a table name (t) goes with a DuckDB file",
         files={"e.csv": UBI_EVENTS}),
    case("an input that is an option", "check e.csv --format ubi --inputs within=1h", "an option of its own, --within"),
    case("UBI named, a role", "check e.csv --format ubi --inputs queries=q.csv --doc d", "--doc does not go with"),
    case("UBI queries missing", "check e.csv --ubi-queries q.csv", "no file matches q.csv",
         files={"e.csv": UBI_EVENTS}),
    case("UBI without impressions", "check e.csv --ubi-queries q.csv", "no impressions among the events",
         files={"e.csv": UBI_EVENTS | {"action_name": ["click", "click"]}, "q.csv": UBI_QUERIES}),
    case("UBI events lack columns", "check e.csv --ubi-queries q.csv", f"events lack {ORDINAL}",
         files={"e.csv": {n: c for n, c in UBI_EVENTS.items() if n != ORDINAL}, "q.csv": UBI_QUERIES}),
    case("UBI queries lack columns", "check e.csv --ubi-queries q.csv", "queries lack user_query",
         files={"e.csv": UBI_EVENTS, "q.csv": {"query_id": ["1"]}}),
    case("UBI context missing", "check e.csv --ubi-queries q.csv --context device", "missing context column 'device'",
         files={"e.csv": UBI_EVENTS, "q.csv": UBI_QUERIES}),
    case("UBI of other queries", "check e.csv --ubi-queries q.csv", "without a query or name of a list",
         files={"e.csv": UBI_EVENTS, "q.csv": UBI_QUERIES | {"query_id": ["2"]}}),
]  # fmt: skip

HARVESTED = [
    case(f"interventions: {name}", "check i.parquet", message, files={"i.parquet": INTERVENTIONS | changed})
    for name, changed, message in [
        ("exposure of 0", {"exposure": [0.0, 1.0]}, "column 'exposure': 1 row"),
        ("exposure a word", {"exposure": ["a", "b"]}, "column 'exposure' holds"),
        ("position 0", {"position": [0, 1]}, "column 'position': 1 row"),
        ("position a fraction", {"position": [1.5, 2.0]}, "column 'position'"),
        ("clicks missing", {"clicks": [None, 1]}, "column 'clicks': 1 row"),
        ("more clicks than impressions", {"clicks": [2, 0]}, "column 'clicks': 1 row"),
        ("rows twice", {"position": [2, 2]}, "column 'position': 1 rows repeat a unit's position"),
        ("two queries in a unit", {"query": ["q", "r"]}, "column 'query': 1 rows change the query inside a unit"),
        ("two contexts in a unit", {"device": ["a", "b"]}, "say --unit query where"),
        ("exposures no impressions", {"exposure": [2.0, 1.0]}, "column 'exposure': 1 rows are above 1"),
        ("infinite unit", {"unit": [float("inf"), 1.0]}, "column 'unit' holds infinite or huge numbers"),
    ]
]

CASES = FILES + COLUMNS + ROWS + OPTIONS + UBI + HARVESTED


def check_complaint(code: int, out: str, err: str, message: str) -> None:
    assert code == 2, err
    assert out == ""
    assert err.startswith("Error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert message in err
    for internal in ("Traceback", "ibis_", "SELECT", "t0", "check_", "clickharvest_", "Exception", "LINE 1"):
        assert internal not in err


def found() -> set[Path]:
    return set(Path().rglob("*"))


@pytest.mark.parametrize(("arguments", "files", "message"), CASES)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: str,
    files: Files,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        make(name, content)
    before = found()
    monkeypatch.setattr(sys, "argv", ["clickharvest", *shlex.split(arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert isinstance(stopped.value.code, int)
    check_complaint(stopped.value.code, *capsys.readouterr(), message)
    assert found() == before


@pytest.mark.parametrize(("arguments", "files", "message"), [OPTIONS[0]])
def test_bad_input_in_a_process_of_its_own(
    arguments: str, files: Files, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        make(name, content)
    command = [str(Path(sys.executable).with_name("clickharvest")), *shlex.split(arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    check_complaint(ended.returncode, ended.stdout, ended.stderr, message)
