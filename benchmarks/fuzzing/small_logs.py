"""Small logs of every kind for valid command lines: written once, with tables that go with them and models of them."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import materials
from materials import Table

Row = dict[str, Any]
Values = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class SmallLog:
    """A log of a case.

    Attributes:
        file: its name.
        values: valid values of options with this log, beside those of every log.
        always: options without which it cannot be read.
        lacks: options that do not go with it.
        models: the models that are fitted on it, and how.
        shape: of the pages it is made of, as `_shown` takes it.
    """

    file: str
    values: Values
    always: str = ""
    lacks: frozenset[str] = frozenset()
    models: dict[str, str] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)


def _words(text: str) -> frozenset[str]:
    return frozenset(f"--{word}" for word in text.split())


FITS = {
    "plain": "--curve constant --intervals sandwich",
    "device": "--context device --curve linear --penalty 1 --intervals sandwich",
    "numbers": "--context hour,length --curve linear --penalty 1 --intervals sandwich",
    "queries": "--unit query --context device,hour --curve position --penalty 1 --intervals sandwich",
    "after": "--outcome bought --curve constant --intervals sandwich",
    "browsing": "--model browsing", "reading": "--model reading", "affine": "--model affine",
}  # fmt: skip
ROLES: Values = {
    "--query": ("query", "device", "time", "hour", "length"), "--doc": ("doc", "doc_number"),
    "--ranker": ("ranker", "device", "hour", "new", ""), "--page": ("page", ""), "--user": ("user", "page", "hour", ""),
    "--time": ("time", "page", "day", "hour", ""), "--original": ("original", ""), "--page-number": ("screen",),
    "--context": ("device", "hour", "length", "device,hour", "hour,twice", "land,hour", "day", "new,length", "kind"),
    "--cluster": ("query", "doc", "user", "page", "time", "device", "hour", "length", "new", "land", "kind"),
    "--block": ("kind=organic", "device=phone", "hour=1", "new=true", "land=de"),
    "--random": ("kind=organic", "device=phone"),
    "--outcome": ("bought", "revenue", "new"), "--after-click": ("same",),
}  # fmt: skip
LISTED: Values = {"--position": ("position",), "--click": ("click",), "--position-base": ("1", "0"),
                  "--anchor": ("1", "2", "4")}  # fmt: skip
AFTER: Values = {"--after-click": ("same", "after.safetensors")}
DESIGNS: Values = {"--rankings": ("rankings.csv",), "--placements": ("placements.csv",), "--placement": ("placed",)}
COUNTED = _words("clicks impressions")
OF_LISTS = _words("position position-base swap max-position original page-number page-size")
ONE_FILE = _words("table format inputs ubi-queries clicks-from within")
OF_RANKINGS = _words("rankings placements placement traffic team-draft")
LOGS = {
    "ab": SmallLog(
        "ab.parquet", ROLES | LISTED | DESIGNS | AFTER | {"--place": ("position", "row,column")},
        lacks=ONE_FILE | COUNTED, models=FITS,
    ),
    "popular": SmallLog(  # one query with most of the pages, positions from 0, the top one swapped
        "popular.jsonl", ROLES | LISTED | AFTER | {"--position": ("rank",), "--position-base": ("0",)},
        "--position rank --position-base 0", ONE_FILE | COUNTED | OF_RANKINGS | {"--place"},
        {name: FITS[name] for name in ("plain", "device", "numbers", "queries", "after")},
        {"pages": 320, "queries": 12, "positions": 5, "dominant": 0.7, "swapped": True},
    ),
    "places": SmallLog(
        "places.csv",
        ROLES | AFTER | {"--place": ("row,column", "slot", "column,row,slot"), "--click": ("click",),
                         "--anchor": ("1,1", "2,2")},
        "--place row,column",
        ONE_FILE | COUNTED | OF_RANKINGS | OF_LISTS,
        {name: FITS[name] for name in ("plain", "device", "after")}, {"pages": 250},
    ),
    "counted": SmallLog(
        "counted.tsv",
        {"--query": ("query", "device"), "--doc": ("doc",), "--context": ("device", "hour", "device,hour"),
         "--cluster": ("query", "doc", "device", "hour"), "--block": ("device=phone",), "--ranker": ("ranker", ""),
         "--position": ("position",), "--position-base": ("1",), "--anchor": ("1", "3"), "--clicks": ("clicks",),
         "--impressions": ("impressions",), "--rankings": ("rankings.csv",), "--placements": ("placements.csv",)},
        lacks=ONE_FILE | _words("after-click click page user time original page-number page-size outcome repeat swap "
                                "place placement team-draft"),
        models={name: FITS[name] for name in ("plain", "device", "queries")}, shape={"pages": 600, "positions": 5},
    ),
    "thin": SmallLog(  # few pages, flat clicks, queries that are times, clicks that are true and false
        "thin.duckdb", ROLES | LISTED | {"--table": ("log",), "--place": ("slot",)}, "--table log",
        (ONE_FILE - {"--table"}) | COUNTED | OF_RANKINGS,
        {name: FITS[name] for name in ("plain", "device", "queries")},
        {"pages": 90, "queries": 5, "positions": 4, "steepness": 0.0},
    ),
    "shown": SmallLog(  # without clicks, which are in a file of their own
        "shown.csv.gz",
        ROLES | LISTED | {"--clicks-from": ("clicked.csv",), "--within": ("30min", "2h"), "--doc": ("doc",)},
        "--clicks-from clicked.csv",
        (ONE_FILE - {"--clicks-from", "--within"}) | COUNTED | OF_RANKINGS | _words("click outcome place after-click"),
        {"plain": FITS["plain"]}, {"pages": 200},
    ),
    "exported": SmallLog(  # one record a page
        "exported.jsonl",
        {"--query": ("query", "device"), "--doc": ("docs",), "--click": ("clicked",), "--page": ("page",),
         "--user": ("user",), "--time": ("time",), "--ranker": ("ranker", "device"), "--format": ("pages",),
         "--inputs": ("clicked=docs",), "--context": ("device", "hour", "device,hour", "land"),
         "--cluster": ("query", "user", "page", "doc"), "--position-base": ("1",), "--anchor": ("1", "2")},
        "--format pages",
        (ONE_FILE - {"--format", "--inputs"}) | COUNTED | OF_RANKINGS
        | _words("place position original outcome page-number page-size swap after-click block repeat"),
        {name: FITS[name] for name in ("plain", "device")}, {"pages": 200},
    ),
    "harvested": SmallLog("harvested.parquet", {"--anchor": ("1", "3"), "--cluster": ("query",)}),
}  # fmt: skip
"""`harvested` are interventions: options on how a log is read do not go with them, see `combinations.py`."""


def make_logs(folder: Path) -> None:
    """Write every log into a folder of its own, with its models and the tables that go with it."""
    for number, (name, log) in enumerate(LOGS.items()):
        own = folder / name
        own.mkdir(parents=True)
        drawn = random.Random(f"log {number}")
        rows = _shown(drawn, **log.shape)
        _write_log(name, rows, own)
        _write_tables(rows, own, drawn)
        for model, how in log.models.items():
            words = f"fit {log.file} {log.always} {how} -o {model}.safetensors"
            materials.run_quietly(words.split(), own)


def _shown(
    drawn: random.Random,
    *,
    pages: int = 300,
    queries: int = 15,
    positions: int = 4,
    dominant: float = 0.2,
    steepness: float = 1.0,
    swapped: bool = False,
) -> list[Row]:
    """Return the rows of pages of two rankers whose clicks fall as position^-steepness."""
    docs = positions + 2
    relevance = {(q, doc): drawn.betavariate(1.2, 1.2) for q in range(queries) for doc in range(docs)}
    pairs = [(q, ranker) for q in range(queries) for ranker in "ab"]
    orders = {
        pair: sorted(range(docs), key=lambda doc: drawn.gauss(0, 0.4) - relevance[pair[0], doc]) for pair in pairs
    }
    rows = []
    for page in range(pages):
        q = 0 if drawn.random() < dominant else drawn.randrange(queries)
        ranker, hour, device = drawn.choice("ab"), drawn.randrange(6), drawn.choice(("phone", "desktop"))
        order, time = orders[q, ranker][:positions], datetime(2026, 3, 1, 10) + timedelta(minutes=37 * page)
        before, new = {doc: k for k, doc in enumerate(order, 1)}, drawn.random() < 0.5
        if swapped:
            rank = drawn.randrange(3)
            order[0], order[rank] = order[rank], order[0]
        for k, doc in enumerate(order, 1):
            click = int(drawn.random() < relevance[q, doc] * k ** -(steepness + 0.3 * (device == "phone")))
            rows.append({
                "query": f"query {q}", "doc": f"d{q}-{doc}", "doc_number": q * 100 + doc, "position": k, "rank": k - 1,
                "row": (k + 1) // 2, "column": 2 - k % 2, "slot": ("top", "left", "middle", "right", "end")[k - 1],
                "click": click, "ranker": ranker, "page": page, "user": None if page % 9 == 0 else f"u{page % 40}",
                "time": time, "day": f"{time:%Y-%m-%d}", "device": device, "hour": hour, "twice": 2 * hour,
                "length": 1.5 * (q % 4), "land": "de", "new": new, "kind": "ad" if k == positions else "organic",
                "original": before[doc], "screen": 1, "placed": 0.5, "bought": click * (hour % 2),
                "revenue": click * (page % 3),
            })  # fmt: skip
    return rows


def _write_log(name: str, rows: list[Row], folder: Path) -> None:
    path = folder / LOGS[name].file
    match name:
        case "popular":
            path.write_text(_lines([_without(row, "position") for row in rows]))
        case "places":
            _write_csv([_without(row, "position", "rank", "original", "screen") for row in rows], path)
        case "counted":
            keys = ("query", "doc", "position", "ranker", "device", "hour", "twice")
            cells: dict[tuple[Any, ...], Row] = {}
            for row in rows:
                of_cell = {key: row[key] for key in keys}
                cell = cells.setdefault(tuple(of_cell.values()), of_cell | {"clicks": 0, "impressions": 0})
                cell |= {"clicks": cell["clicks"] + row["click"], "impressions": cell["impressions"] + 1}
            _write_csv(list(cells.values()), path)
        case "thin":
            import duckdb

            when = [row["time"].replace(hour=row["hour"], minute=0, day=1) for row in rows]
            table = [row | {"query": time, "click": row["click"] == 1} for row, time in zip(rows, when, strict=True)]
            materials.write_parquet(_columns(table), folder / "thin.parquet")
            with duckdb.connect(str(path)) as database:
                database.execute(f"CREATE TABLE log AS FROM '{folder / 'thin.parquet'}'")
                database.execute("CREATE TABLE other AS SELECT 1 AS x")
        case "shown":
            _write_csv([_without(row, "click", "bought", "revenue") for row in rows], path)
            clicked = [row | {"time": row["time"] + timedelta(seconds=9)} for row in rows if row["click"]]
            _write_csv(
                [{key: row[key] for key in ("page", "doc", "user", "time")} for row in clicked], folder / "clicked.csv"
            )
        case "exported":
            pages: dict[int, Row] = {}
            for row in rows:
                same = {key: row[key] for key in ("query", "page", "user", "time", "ranker", "device", "hour", "land")}
                page = pages.setdefault(row["page"], same | {"docs": [], "clicked": []})
                page["docs"].append(row["doc"])
                page["clicked"] += [row["doc"]] * row["click"]
            path.write_text(_lines(list(pages.values())))
        case "harvested":
            materials.write_parquet(_columns(rows), folder / "log.parquet")
            materials.run_quietly(f"harvest log.parquet --context device,hour -o {path.name}".split(), folder)
        case _:
            materials.write_parquet(_columns(rows), path)


def _write_tables(rows: list[Row], folder: Path, drawn: random.Random) -> None:
    """Write rankings, placements, features, grades and contexts of a log."""
    tables = {
        "rankings.csv": [
            {name: row[name] for name in ("query", "ranker", "doc")} | {"position": row["original"]} for row in rows
        ],
        "placements.csv": [
            {"query": row["query"], "doc": row["doc"], "position": row["position"], "probability": 0.5} for row in rows
        ],
        "features.csv": [{"doc": row["doc"], "a": row["doc_number"] % 7, "b": row["doc_number"] / 3} for row in rows],
        "grades.csv": [{"query": row["query"], "doc": row["doc"], "grade": row["doc_number"] % 4} for row in rows],
        "contexts.csv": [
            {"device": "phone", "hour": 1, "length": 1.5}, {"device": "desktop", "hour": 5, "length": 0},
            {"device": "fridge", "hour": 99, "length": -2.5},
        ],
    }  # fmt: skip
    for name, table in tables.items():
        distinct = {tuple(row.values()): row for row in table}
        _write_csv(sorted(distinct.values(), key=lambda row: drawn.random()), folder / name)


def _columns(rows: list[Row]) -> Table:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row, default=str) + "\n" for row in rows)


def _write_csv(rows: list[Row], path: Path) -> None:
    """Write rows as CSV or TSV, compressed where the name says so."""
    mark = "\t" if path.suffix == ".tsv" else ","
    lines = [list(rows[0]), *(["" if value is None else str(value) for value in row.values()] for row in rows)]
    data = "".join(mark.join(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
