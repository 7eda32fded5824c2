"""Known exports: small ones of the documented shape, read from every kind of file, with what is wrong in them told."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pytest

from clickharvest import read_export
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.exports import recognise
from clickharvest.logs.formats import FORMATS
from command_line import run

pytestmark = pytest.mark.usefixtures("one_duckdb")

EXPORTS = Path(__file__).parent / "exports"
Row = tuple[Any, ...]


def rows(log: ClickLog) -> list[Row]:
    """Return what was shown: query, document, position, click and contexts."""
    columns = ["query", "doc", "position", "clicks", *log.context]
    return sorted(tuple(row.values()) for row in log.engine.fetch(log.table.select(*columns), task="").to_pylist())


EXPECTED: dict[str, tuple[str, dict[str, Any], list[Row], list[str]]] = {
    "ga4": (
        "ga4",
        {"context": ("device.category",)},
        [
            ("Boots", "a", 1, 0, "desktop"),
            ("Boots", "a", 1, 0, "mobile"),
            ("Boots", "a", 2, 1, "mobile"),  # the second view of the list, which was the last before the click
            ("Boots", "b", 1, 0, "mobile"),
            ("Boots", "b", 2, 1, "desktop"),  # the click does not name the list
            ("Boots", "b", 2, 1, "mobile"),
            ("Sale", "a", 1, 1, "desktop"),  # an older list than the other, but the one that the click names
            ("Sale", "d", 2, 0, "desktop"),
            ("red boots", "a", 1, 0, "mobile"),
            ("red boots", "b", 2, 0, "mobile"),
        ],
        [
            "1 line of the export is no JSON object and is left out",
            "positions count from 0",
            "1 of 11 items of lists are left out: 1 without a usable position",
            "1 list without items",
            "2 of 7 clicks match nothing of what was shown and are left out: 1 on a document that its user was not "
            "shown, 1 before it was shown",
        ],
    ),
    "snowplow": (
        "snowplow",
        {"context": ("dvce_type",)},
        [
            ("/boots", "a", 2, 1, "Mobile"),
            ("/boots", "b", 1, 0, "Mobile"),
            ("boots", "a", 1, 0, "Mobile"),
            ("boots", "b", 2, 1, "Mobile"),
            ("boots", "c", 3, 0, "Mobile"),
        ],
        ["1 of 3 clicks match nothing of what was shown and are left out: 1 too late, or on another list"],
    ),
    "product_interactions": ("snowplow", {}, [("boots", "a", 1, 0), ("boots", "b", 2, 1)], []),
    "segment": (
        "segment",
        {"context": ("context.device.type",)},
        [
            ("Shoes", "a", 2, 1, "ios"),
            ("Shoes", "d", 1, 0, "ios"),
            ("hot_deals", "a", 1, 1, "ios"),
            ("hot_deals", "b", 2, 0, "ios"),  # clicked after the other list showed it
            ("new", "b", 1, 1, "ios"),
            ("new", "c", 2, 0, "ios"),
        ],
        ["1 of 4 clicks match nothing of what was shown and are left out: 1 too late, or on another list"],
    ),
    "metarank": (
        "metarank",
        {"context": ("device", "width")},
        [
            ("cat", "a", 1, 0, "phone", 390.0),
            ("cat", "a", 2, 1, "desktop", 1280.0),  # the interaction names no ranking
            ("cat", "b", 1, 0, "desktop", 1280.0),
            ("cat", "b", 2, 1, "phone", 390.0),
            ("cat", "c", 3, 0, "phone", 390.0),
        ],
        [
            "2 of 4 clicks match nothing of what was shown and are left out: 1 on a page that is not there, 1 on a "
            "document that its page did not show"
        ],
    ),
    "elastic": (
        "elastic",
        {"context": ("search.search_application",)},
        [
            ("boots", "a", 1, 0, "website"),
            ("boots", "b", 2, 1, "website"),
            ("boots", "c", 3, 0, "website"),
            ("socks", "a", 2, 0, "website"),
            ("socks", "b", 1, 1, "website"),
        ],
        ["1 list without items", "1 of 3 clicks match nothing"],
    ),
    "adobe": (
        "adobe",
        {"context": ("searchUnitId",)},
        [
            ("red boots", "a", 1, 0, "results"),
            ("red boots", "a", 4, 1, "results"),  # the second page, counted through
            ("red boots", "b", 2, 1, "results"),
            ("red boots", "c", 3, 0, "results"),
        ],
        [],
    ),
    "algolia": (
        "algolia",
        {"results": EXPORTS / "algolia_results.jsonl", "context": ("device",)},
        [
            ("boots", "a", 1, 1, "phone"),
            ("boots", "a", 4, 0, "phone"),
            ("boots", "b", 2, 1, "phone"),
            ("boots", "c", 3, 1, "phone"),
        ],
        [
            "what was returned stands in for what was displayed",
            "2 of 5 clicks match nothing of what was shown and are left out: 1 without a page, and without user or "
            "time, 1 on a document that its page did not show",
        ],
    ),
    "pages": (
        "pages",
        {"context": ("device",)},
        [
            ("boots", "a", 1, 0, "phone"),
            ("boots", "a", 2, 0, "desktop"),
            ("boots", "b", 1, 0, "desktop"),
            ("boots", "b", 2, 1, "phone"),
            ("boots", "c", 3, 0, "phone"),
            ("socks", "s", 1, 1, "phone"),
            ("socks", "t", 2, 1, "phone"),
        ],
        ["1 list without items"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> DuckDBEngine:
    return DuckDBEngine()


@pytest.fixture(autouse=True)
def told(recwarn: pytest.WarningsRecorder) -> pytest.WarningsRecorder:
    """Return the warnings, which are no errors here."""
    warnings.simplefilter("always", HarvestWarning)
    return recwarn


@pytest.mark.parametrize("name", EXPECTED)
def test_an_export_of_the_documented_shape(name: str, told: pytest.WarningsRecorder, engine: DuckDBEngine) -> None:
    format, options, expected, notes = EXPECTED[name]
    assert rows(read_export(EXPORTS / f"{name}.jsonl", format, engine=engine, **options)) == expected
    found = [str(one.message) for one in told if issubclass(one.category, HarvestWarning)]
    assert len(found) == len(notes)
    assert all(any(note in message for message in found) for note in notes), found


def test_every_format_has_an_export_here_but_ubi() -> None:
    assert {format for format, *_ in EXPECTED.values()} | {"ubi"} == set(FORMATS)


def write_as(kind: str, source: Path, folder: Path) -> str:
    """Write an export as another kind of file, and return how to name it."""
    good = [line for line in source.read_text().splitlines() if line.endswith("}")]
    text = "".join(f"{line}\n" for line in good)
    match kind:
        case "gz":
            (folder / "x.jsonl.gz").write_bytes(gzip.compress(text.encode()))
            return str(folder / "x.jsonl.gz")
        case "folder" | "glob":
            for i, line in enumerate(good):
                (folder / f"part-{i}.ndjson").write_text(f"{line}\n")
            return str(folder if kind == "folder" else folder / "part-*.ndjson")
        case "array":
            (folder / "x.json").write_text("[\n" + ",\n".join(good) + "\n]\n")
            return str(folder / "x.json")
        case "bulk":
            (folder / "x.ndjson").write_text("".join(f'{{"create": {{}}}}\n{line}\n' for line in good))
            return str(folder / "x.ndjson")
    (folder / "x.jsonl").write_text(text)
    with duckdb.connect() as connection:
        rows = f"read_json('{folder / 'x.jsonl'}', sample_size=-1)"
        connection.execute(f"COPY (FROM {rows}) TO '{folder / 'x.parquet'}'")
    return str(folder / "x.parquet")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ga4", "parquet"), ("segment", "glob"), ("snowplow", "folder"), ("metarank", "array"), ("elastic", "bulk"),
     ("pages", "gz")],
)  # fmt: skip
def test_any_kind_of_file(name: str, kind: str, tmp_path: Path, engine: DuckDBEngine) -> None:
    format, options, expected, _ = EXPECTED[name]
    assert (
        rows(read_export(write_as(kind, EXPORTS / f"{name}.jsonl", tmp_path), format, engine=engine, **options))
        == expected
    )


def test_names_in_capitals_and_objects_as_text_as_warehouses_unload_them(tmp_path: Path, engine: DuckDBEngine) -> None:
    source = EXPORTS / "snowplow.jsonl"
    with duckdb.connect() as connection:
        columns = json.loads(source.read_text().splitlines()[0])
        chosen = ", ".join(f'to_json("{name}")::VARCHAR AS "{name.upper()}"' if isinstance(cell, dict | list) else
                           f'"{name}" AS "{name.upper()}"' for name, cell in columns.items())  # fmt: skip
        connection.execute(f"COPY (SELECT {chosen} FROM read_json('{source}')) TO '{tmp_path / 'x.parquet'}'")
    format, options, expected, _ = EXPECTED["snowplow"]
    assert rows(read_export(tmp_path / "x.parquet", format, engine=engine, **options)) == expected


def test_a_table_of_a_duckdb_file_and_of_a_connection(tmp_path: Path) -> None:
    format, _, expected, _ = EXPECTED["product_interactions"]
    con = ibis.duckdb.connect(str(tmp_path / "shop.duckdb"))
    events = f"read_json('{EXPORTS / 'product_interactions.jsonl'}')"
    con.con.execute(f"CREATE TABLE interactions AS FROM {events}; CREATE TABLE other AS SELECT 1 AS x")
    assert rows(read_export(con.table("interactions"), format)) == expected
    con.disconnect()
    assert rows(read_export(tmp_path / "shop.duckdb", format, table="interactions")) == expected


@pytest.mark.parametrize("name", ["ga4", "snowplow", "segment", "metarank", "elastic", "adobe", "algolia", "pages"])
def test_an_export_is_recognised(name: str) -> None:
    assert recognise(EXPORTS / f"{name}.jsonl") == EXPECTED[name][0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check {0}/ga4.jsonl --format segment", "no list among 14 events of Segment: .*; it looks like ga4: --format"),
        ("check {0}/segment.jsonl", "missing columns 'query'.*; or is it segment.* --format segment"),
        ("check {0}/metarank.jsonl --format metarank --inputs type=like", "name the type of a click with --inputs"),
        ("check {0}/ga4.jsonl --format ga4 --context device.make", "missing context column 'device.make': found .*geo"),
        ("check {0}/ga4.jsonl --format ga4 --context device", "name a field of it, such as device.category"),
        ("check {0}/ga4.jsonl --format ga4 --within soon", "--within soon: expected a length of time"),
        ("check {0}/ga4.jsonl --format ga4 --position rank", "--position does not go with the format ga4"),
        ("check {0}/ga4.jsonl --format ga4 --query event_params.nothing", "missing column 'event_params.nothing'"),
        ("check {0}/ga4.jsonl --format ga4 --position-base 2", "the position base is 2"),
        ("check {0}/adobe.jsonl --format adobe --within 1h", "the format adobe has no input 'within'"),
        ("check {0}/algolia.jsonl --format algolia", "algolia needs results: name it with --inputs results=FILE"),
        ("check {0}/algolia.jsonl --format algolia --inputs results={0}/ga4.jsonl", "no queryID among results"),
        ("check {0}/pages.jsonl --format pages --doc items", "missing column 'items': found query, docs, clicked"),
        ("check {0}/pages.jsonl --format pages --click query", "no click is on what was shown"),
        ("check {0}/pages.jsonl --format pages --inputs clicked=some", "expected one of docs, positions, flags"),
        ("check {0}/nothing.jsonl --format ga4", "no file matches"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command.format(EXPORTS).split()) == 2
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if not line.startswith("Warning")]
    assert out == ""
    assert re.search(message, line), line


@pytest.mark.parametrize("text", ["", "no json\n", "[1, 2]\n", '"a"\n', "{}\n", '{"event_name": 7}\n'])
def test_what_holds_no_events(text: str, tmp_path: Path, engine: DuckDBEngine) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(InputError):
        read_export(tmp_path / "x.jsonl", "ga4", engine=engine)


@pytest.mark.parametrize("odd", ['{"a":' * 5000 + "1" + "}" * 5000, '{"a":' * 700 + "1" + "}" * 700, "9" * 5000])
def test_events_beyond_what_python_reads(odd: str, tmp_path: Path, engine: DuckDBEngine) -> None:
    """DuckDB reads them; Python looks at events to tell a format and its fields."""
    page = '{"query": "boots", "docs": ["a", "b"], "clicked": ["b"], "device": "phone"'
    path = tmp_path / "x.jsonl"
    path.write_text(f'{page}, "x": {odd}}}\n{page}}}\n')
    assert recognise(path) == "pages"
    assert rows(read_export(path, "pages", engine=engine)) == [("boots", "a", 1, 0)] * 2 + [("boots", "b", 2, 1)] * 2
    with pytest.raises(InputError, match="device"):
        read_export(path, "pages", context=("nothing",), engine=engine)


def test_fields_of_odd_names_and_values_are_only_text(tmp_path: Path, engine: DuckDBEngine) -> None:
    """Quotes and pointers in names and ids cannot steer the query."""
    odd = 'it\'s "a" /~. ; DROP'
    pages = [{"query": odd, "docs": [odd, "b"], "clicked": [odd], "a/b": {"c~'d": odd}} for _ in range(2)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    log = read_export(tmp_path / "x.jsonl", "pages", context=("a/b.c~'d",), engine=engine)
    assert rows(log) == sorted([(odd, odd, 1, 1, odd), (odd, "b", 2, 0, odd)] * 2)


@pytest.mark.parametrize(
    ("clicked", "options"),
    [
        ([["b"], [], ["t", "s"]], {}),
        ([[2], [], [2, 1]], {}),
        ([[1], [], [1, 0]], {}),
        ([[0, 1, 0], [0, 0], [1, 1]], {}),
        ([[False, True, False], [False, False], [True, True]], {}),
        ([[2], [], [1, 2]], {"clicked": "positions"}),
    ],
)
def test_clicked_documents_positions_or_flags(
    clicked: list[Any], options: dict[str, Any], tmp_path: Path, engine: DuckDBEngine
) -> None:
    docs = [["a", "b", "c"], ["b", "a"], ["s", "t"]]
    shown = [{"q": "x", "results": [{"id": d} for d in page], "hit": c} for page, c in zip(docs, clicked, strict=True)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(page) + "\n" for page in shown))
    log = read_export(tmp_path / "x.jsonl", "pages", query="q", doc="results", click="hit", engine=engine, **options)
    assert [doc for _, doc, _, click in rows(log) if click] == ["b", "s", "t"]


def test_from_an_export_to_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three commands: fit, report, and what they read is the export as it came."""
    folder = tmp_path / "days"
    folder.mkdir()
    swapped = {"query": "boots", "docs": ["b", "a"], "clicked": ["b", "a"], "device": "phone"}
    for day in range(20):
        shutil.copy(EXPORTS / "pages.jsonl", folder / f"{day}.jsonl")
        (folder / f"{day}-more.jsonl").write_text(json.dumps(swapped) + "\n")
    model, page = tmp_path / "m.safetensors", tmp_path / "report.html"
    assert run("check", folder, "--format", "pages", "--max-position", "2") == 0
    assert run("fit", folder, "--format", "pages", "--max-position", "2", "--curve", "constant", "-o", model) == 0
    assert run("report", model, "--log", folder, "--format", "pages", "--max-position", "2", "-o", page) == 0
    assert "--format pages" in page.read_text()
    assert run("harvest", folder, "--format", "pages", "-o", tmp_path / "i.parquet") == 0
    assert run("weigh", folder, model, "--format", "pages", "-o", tmp_path / "w.parquet") == 0
    capsys.readouterr()
