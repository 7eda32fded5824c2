"""Counts of a log against those of a reader in plain Python: clicks, impressions, queries, and units per position.

A case is a log of odd identifiers in one or several files, and `harvest` or `check` with options that change what is
counted. The reader opens every file by itself (csv, json, gzip; pyarrow for the values of one Parquet file, DuckDB for
those of one table), never a folder, and compares identifiers as text. The command may refuse a log; else its counts
are those of the reader.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from cases import Case
from contract import Outcome

Row = dict[str, Any]
MOMENT = datetime(2026, 3, 1, 10)
IDENTIFIERS: tuple[list[Any], ...] = (
    [0, 1, 2, 3, 10, 100], [-1, -2, 0, 1, 2, -(2**31)],
    *([start + i for i in range(6)] for start in (2**53, 2**63 - 6, 2**63, 2**64 - 6, 2**64)),
    [0.5, 1.5, 2.25, 1e-9, 0.1, 0.1 + 2**-54], [Decimal(text) for text in ("1.10", "1.11", "-2.50", "3.00")],
    ["007", "07", "7", "7.0", "0x7", "7e0"], ["é", "e\u0301", "É", "ß", "ss", "日本", "🙂"],
    ["12345678901234567890123", "12345678901234567890124", "9007199254740993", "9007199254740992"],
    ["a", " a", "a ", "A", "a b", "a\u00a0b", "a  b"], ["null", "NULL", "None", "nan", "true", "inf", "x"],
    ["", " ", "x", "y"], ["a,b", 'a"b', "a'b", "a;b", "a\\b", "#a", "a\tb", "=1+1", "a|b"], ["a\nb", "a", "b", "c"],
    [True, False], ["2026-03-01", "2026-3-1", "2026-03-01 00:00:00", "01/03/2026"],
    [MOMENT + timedelta(microseconds=i) for i in range(5)],
)  # fmt: skip
"""Queries and documents: different ones of a list must stay different."""
DEVICES: tuple[list[Any], ...] = (["phone", "desktop"], ["phone", None], [1, 2], [0.5, 2.5], [True, False])
CLICKS = ((0, 1), (0, 1), ("no", "yes"), (False, True), ("0", "1"))
FORMS = (".parquet", ".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz", ".duckdb")
LAYOUTS = ("file",) * 5 + ("folder",) * 4 + ("glob", "days", "devices", "mixed types", "mixed types", "mixed forms")
LEFT_OVERS = ("_temporary/0/part", "_committed/part", ".part", "sub/.hidden/part", "_delta_log/part")
"""What other writers leave in a folder, and no reader counts."""


def build(folder: Path, drawn: random.Random) -> tuple[Case, dict[str, Any]]:
    """Write a log; return the case, and what the reader counts in its files."""
    (folder / "tmp").mkdir(parents=True)
    form, layout = drawn.choice(FORMS), drawn.choice(LAYOUTS)
    layout = "file" if form == ".duckdb" else layout
    options, words = _options(drawn)
    _write_log(_rows(options, drawn), folder, form, layout, drawn)
    source = {"glob": f"log/*{form}", "file": f"log{form}"}.get(layout, "log")
    case = Case(drawn.choice(("harvest", "harvest", "harvest", "check")), folder, theme="counts")
    case.outputs += ["out.parquet"] * (case.command == "harvest")
    case.words = [case.command, source, *words, *(["-o", "out.parquet"] if case.outputs else ["--json"])]
    files = [folder / source] if layout == "file" else _data_files(folder / "log", form if layout == "glob" else "")
    return case, count([row for file in files for row in read(file)], options)


def _options(drawn: random.Random) -> tuple[dict[str, Any], list[str]]:
    """Draw options that change what is counted: what the reader is told, and their words."""
    options: dict[str, Any] = {"most": drawn.choice((None, None, 2, 3)), "base": drawn.choice((1, 1, 1, 0))}
    options |= {"context": drawn.random() < 0.4, "block": drawn.choice((None, None, None, "organic"))}
    options |= {"by query": options["context"] and drawn.random() < 0.5, "counted": drawn.random() < 0.2}
    words = [] if options["most"] is None else ["--max-position", str(options["most"])]
    words += ["--context", "device"] * options["context"] + ["--unit", "query"] * options["by query"]
    words += [] if options["block"] is None else ["--block", f"kind={options['block']}"]
    return options, words + ["--position-base", "0"] * (options["base"] == 0)


def _rows(options: dict[str, Any], drawn: random.Random) -> list[Row]:
    queries, docs, devices, clicks = (drawn.choice(of) for of in (IDENTIFIERS, IDENTIFIERS, DEVICES, CLICKS))
    rows = []
    for _ in range(drawn.choice((20, 60, 300))):
        click = drawn.random() < 0.4
        counts = {"clicks": click * drawn.randrange(3), "impressions": drawn.randrange(3, 6)}
        rows.append(
            {
                "query": drawn.choice(queries),
                "doc": drawn.choice(docs),
                "position": drawn.randrange(4) + options["base"],
            }
            | (counts if options["counted"] else {"click": clicks[click]})
            | {"device": drawn.choice(devices), "kind": drawn.choice(("organic", "organic", "ad", "Organic"))}
        )
    if drawn.random() < 0.04:
        rows[drawn.randrange(len(rows))]["query"] = None
    return rows


def _write_log(rows: list[Row], folder: Path, form: str, layout: str, drawn: random.Random) -> None:
    """Write the rows as one file, or as several in a folder, with what other writers leave there."""
    if layout == "file":
        write(rows, folder / f"log{form}", drawn)
        return
    home, half = folder / "log", len(rows) // 2
    parts = [("a", rows[:half]), ("b", rows[half:])]
    if layout == "days":
        parts = [(f"day=2026-03-0{i}/part", part) for i, (_, part) in enumerate(parts, 1)]
    elif layout == "devices":
        names = sorted({str(row["device"]) for row in rows})
        parts = [(f"device={name}/part", [row for row in rows if str(row["device"]) == name]) for name in names]
        parts = [(name, [{k: v for k, v in row.items() if k != "device"} for row in part]) for name, part in parts]
    elif layout == "mixed types":
        column, change = drawn.choice(("query", "doc", "position")), drawn.choice((str, float, _small))
        parts[1] = ("b", [row | {column: _changed(row[column], change)} for row in rows[half:]])
    elif drawn.random() < 0.2:
        parts[1] = ("b", [dict(reversed(row.items())) for row in rows[half:]])
    forms = [form, drawn.choice(FORMS[:-1]) if layout == "mixed forms" else form]
    for i, (name, part) in enumerate(parts):
        write(part, home / f"{name}{forms[i % 2]}", drawn)
    if drawn.random() < 0.3:
        write(rows[:7], home / f"{drawn.choice(LEFT_OVERS)}{form}", drawn)
    if drawn.random() < 0.2:
        (home / drawn.choice(("_SUCCESS", "README.md", ".part.crc"))).write_text("x")


def _small(value: Any) -> Any:
    """Return an integer that fits into four bytes."""
    return value % 1000 if isinstance(value, int) else value


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    with suppress(ValueError, TypeError, OverflowError):
        return change(value)
    return value


def write(rows: list[Row], path: Path, drawn: random.Random) -> None:
    """Write rows in the form that the name tells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.name.removesuffix(".gz")
    if plain.endswith((".parquet", ".duckdb")):
        _write_arrow(rows, path, drawn)
        return
    if plain.endswith(".jsonl"):
        if drawn.random() < 0.2:  # what is empty is left out
            rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        text = "".join(json.dumps(row, default=str, ensure_ascii=drawn.random() < 0.5) + "\n" for row in rows)
    else:
        file, mark = io.StringIO(), "\t" if plain.endswith(".tsv") else drawn.choice(",,;|")
        quoting = drawn.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
        writer = csv.writer(file, delimiter=mark, lineterminator=drawn.choice(("\n", "\r\n")), quoting=quoting)
        writer.writerow(rows[0])
        writer.writerows([named(value) for value in row.values()] for row in rows)
        text = ("\ufeff" if drawn.random() < 0.1 else "") + file.getvalue()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def _write_arrow(rows: list[Row], path: Path, drawn: random.Random) -> None:
    """Write Parquet or a DuckDB file; types are narrow, wide, or of a dictionary."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        array = None
        for kind in (None, pa.uint64(), pa.decimal128(38, 0)):
            with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
                array = pa.array(values, kind) if array is None else array
        array = pa.array(list(map(named, values))) if array is None else array
        if pa.types.is_string(array.type):
            array = array.cast(drawn.choice((pa.string(), pa.string(), pa.large_string())))
            array = array.dictionary_encode() if drawn.random() < 0.2 else array
        elif pa.types.is_int64(array.type) and drawn.random() < 0.3:
            with suppress(pa.ArrowException):
                array = array.cast(pa.int32())
        columns[name] = array
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=drawn.choice((7, 1000)))
        return
    with duckdb.connect(str(path)) as database:
        database.register("arrow", pa.table(columns))
        database.execute("CREATE TABLE log AS FROM arrow")


def _data_files(home: Path, ending: str) -> list[Path]:
    """Return the files of a folder that hold rows: none whose name, or folder, begins with `_` or a dot."""
    files = sorted(file for file in (home.glob(f"*{ending}") if ending else home.rglob("*")) if file.is_file())
    hidden = [any(part[0] in "._" for part in file.relative_to(home).parts) for file in files]
    return [file for file, is_hidden in zip(files, hidden, strict=True) if file.name.endswith(FORMS) and not is_hidden]


def read(path: Path) -> list[Row]:
    """Return the rows of one file; what names of folders tell is added to them."""
    import pyarrow.parquet as pq

    folders = dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    plain = path.name.removesuffix(".gz")
    rows: list[Row]
    if plain.endswith(".parquet"):
        rows = pq.ParquetFile(path).read().to_pylist()
    elif plain.endswith(".duckdb"):
        import duckdb

        with duckdb.connect(str(path), read_only=True) as database:
            rows = database.sql("FROM log").to_arrow_table().to_pylist()
    else:
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8-sig")
        if plain.endswith(".jsonl"):
            rows = [json.loads(line) for line in text.split("\n") if line]
        else:
            mark = next(one for one in "\t,;|" if one in text.split("\n", 1)[0])
            lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=mark)
            rows = [{name: value or None for name, value in line.items()} for line in lines]
    return [folders | row for row in rows]


def named(value: Any) -> str | None:
    """Return an identifier as text; 1 and 1.0 are one number, as far as floats are exact."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | Decimal) and abs(value) < 2**53 and value == int(value):
        value = int(value)
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


def count(rows: list[Row], options: dict[str, Any]) -> dict[str, Any]:
    """Return what `check` and `harvest` should count; by position: clicks and impressions, and units before them."""
    shown: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    cells: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    queries = set()
    for row in rows:
        position = int(float(row["position"])) + 1 - options["base"]
        if position > (options["most"] or position) or row["kind"] != (options["block"] or row["kind"]):
            continue
        clicked = str(row.get("click")).lower() in ("1", "true", "yes")
        counts = (int(row["clicks"]), int(row["impressions"])) if options["counted"] else (int(clicked), 1)
        context = named(row.get("device")) if options["context"] and not options["by query"] else ""
        unit = (named(row.get("query")), named(row.get("doc")), context)
        queries.add(unit[0])
        for of in (shown[position], cells[unit][position]):
            of[:] = (of[0] + counts[0], of[1] + counts[1])
    harvested: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    units = {unit: places for unit, places in cells.items() if len(places) > 1}
    for places in units.values():
        for position, (clicks, impressions) in places.items():
            before = harvested[position]
            before[:] = (before[0] + 1, before[1] + clicks, before[2] + impressions)
    return {
        "shown": dict(shown), "queries": len(queries), "units": len(units), "harvested": dict(harvested),
        "names": sorted({str(query) for query, _, _ in units}),
    }  # fmt: skip


def wrong(case: Case, counted: dict[str, Any], outcome: Outcome) -> list[str]:
    """Return how the counts of a command differ from those of the reader."""
    if outcome.code not in (0, 3):
        return []
    wanted = dict(counted)
    found: dict[str, Any] = {"units": 0}
    if case.command == "check":
        told = json.loads(outcome.out)
        found = {name: told["totals"][name] for name in ("queries", "units")}
        found["shown"] = {place["position"]: [place["clicks"], place["impressions"]] for place in told["shown"]}
        found["harvested"] = {place["position"]: [place["units"], place["clicks"]] for place in told["overlaps"]}
        wanted["harvested"] = {position: counts[:2] for position, counts in counted["harvested"].items()}
    elif outcome.code == 0:
        found = _count_harvest(case.folder / "out.parquet")
        if any(set(name) & set(".e:") for name in found["names"]):  # numbers and times are spelled in several ways
            wanted["names"] = found["names"]
    differing = [name for name in found if found[name] != wanted[name]]
    return [f"{name} {ascii(found[name])[:160]}, the reader has {ascii(wanted[name])[:160]}" for name in differing]


def _count_harvest(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    rows = pq.read_table(path).to_pylist()
    units: dict[int, set[int]] = defaultdict(set)
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        units[row["position"]].add(row["unit"])
        of = sums[row["position"]]
        of[:] = (of[0] + row["clicks"], of[1] + row["impressions"])
    return {
        "units": len({row["unit"] for row in rows}), "names": sorted({str(row["query"]) for row in rows}),
        "harvested": {position: [len(units[position]), *sums[position]] for position in sums},
    }  # fmt: skip
