"""Files for cases: sound ones, made once, and ones that are bent in their tables, bytes, headers or names."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import hostile

Table = dict[str, list[Any]]
ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz")


def make_base(folder: Path) -> None:
    """Write the sound files that cases start from: logs, interventions, models, features, a corpus."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from clickharvest.simulate import simulate_ab_log

    folder.mkdir(parents=True)
    log, _ = simulate_ab_log(pages=160, queries=8, positions=5)
    pq.write_table(log, folder / "log.parquet")
    rows = log.select(["query", "doc"]).group_by(["query", "doc"]).aggregate([])
    drawn = np.random.default_rng(0)
    features = {name: drawn.random(rows.num_rows) for name in ("a", "b")}
    pq.write_table(
        pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **features}), folder / "features.parquet"
    )
    grades = pa.array(drawn.integers(0, 3, rows.num_rows))
    pq.write_table(rows.append_column("grade", grades), folder / "judgements.parquet")
    ranked = log.group_by(["query", "ranker", "doc"]).aggregate([("position", "min")])
    pq.write_table(ranked.rename_columns(["query", "ranker", "doc", "position"]), folder / "rankings.parquet")
    pq.write_table(
        pa.table({"device": ["mobile", "desktop", "fridge", None], "x": [1, 2, 3, 4]}), folder / "contexts.parquet"
    )
    lines = [
        f"{drawn.integers(0, 3)} qid:{q} 1:{drawn.random():.3f} 3:{drawn.random():.3f}\n"
        for q in range(60)
        for _ in range(4)
    ]
    (folder / "corpus.txt").write_text("".join(lines))
    for words in (
        "harvest log.parquet --context device -o interventions.parquet",
        "fit log.parquet --curve constant --intervals sandwich -o plain.safetensors",
        "fit log.parquet --context device --curve linear --penalty 1 --intervals sandwich -o context.safetensors",
    ):
        run_quietly(words.split(), folder)


def run_quietly(words: list[str], folder: Path) -> None:
    from clickharvest.commands.app import _run

    before, argv = Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["clickharvest", *words]
    try:
        with redirect_stdout(io.StringIO()):
            assert _run() == 0, words
    finally:
        os.chdir(before)
        sys.argv = argv


def read_table(path: Path) -> Table:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pydict()  # type: ignore[no-any-return]


def bend(table: Table, random: random.Random) -> Table:
    """Change a table in one to three ways: values, types, names, columns, rows."""
    table = {name: list(values) for name, values in table.items()}
    for _ in range(random.randrange(1, 4)):
        random.choice(CHANGES)(table, random)
    return table


def _some_values(table: Table, random: random.Random) -> None:
    values = table[random.choice(list(table))] if table else []
    new = hostile.value(random)
    for _ in range(random.choice((1, 5, 100)) if values else 0):
        values[random.randrange(len(values))] = new


def _all_values(table: Table, random: random.Random) -> None:
    if table:
        name = random.choice(list(table))
        same, new = random.random() < 0.6, hostile.value(random)
        table[name] = [new if same else hostile.value(random) for _ in table[name]]


def _numbers(table: Table, random: random.Random) -> None:
    for name in random.sample(list(table), min(len(table), 2)):
        if all(isinstance(value, int) for value in table[name]):
            add, times = random.choice((0, -1, 1, 2**31, 10**9, 2**62)), random.choice((1, 1, -1, 1000, 0.5))
            table[name] = [value * times + add for value in table[name]]


def _clicks(table: Table, random: random.Random) -> None:
    for name in ("click", "clicks"):
        if name in table:
            table[name] = [random.choice((0, 1, True, 2, 10**9)) for _ in table[name][:1]] * len(table[name])


def _drop(table: Table, random: random.Random) -> None:
    if table:
        del table[random.choice(list(table))]


def _rename(table: Table, random: random.Random) -> None:
    if table:
        name = random.choice(list(table))
        table[random.choice((name.upper(), f" {name}", hostile.text(random)))] = table.pop(name)


def _add(table: Table, random: random.Random) -> None:
    rows = len(next(iter(table.values()), []))
    table[hostile.text(random)] = [hostile.value(random)] * rows


def _shorten(table: Table, random: random.Random) -> None:
    rows = random.choice((0, 1, 2, 10))
    for name in table:
        table[name] = table[name][:rows]


def _double(table: Table, random: random.Random) -> None:
    for name in table:
        table[name] = table[name] * 2


CHANGES: tuple[Callable[[Table, random.Random], None], ...] = (
    _some_values, _some_values, _some_values, _all_values, _all_values, _numbers, _clicks, _drop, _rename, _add,
    _shorten,
    _double,
)  # fmt: skip


def write_table(table: Table, path: Path, random: random.Random) -> None:
    """Write a table in the format that the name tells; what a format cannot hold becomes text."""
    plain = path.name.removesuffix(".gz")
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if plain.endswith(".parquet"):
        _write_parquet(table, path)
        return
    if plain.endswith(".jsonl"):
        text = "".join(json.dumps(row, default=str, ensure_ascii=random.random() < 0.5) + "\n" for row in rows)
    else:
        file = io.StringIO()
        writer = csv.writer(
            file,
            delimiter="\t" if plain.endswith(".tsv") else random.choice(",,,;|"),
            lineterminator=random.choice(("\n", "\r\n")),
        )
        writer.writerow(table)
        writer.writerows(row.values() for row in rows)
        text = file.getvalue()
    data = text.encode(random.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16")), errors="replace")
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name, values in table.items():
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    try:
        pq.write_table(pa.table(columns), path)
    except (pa.ArrowException, UnicodeError):
        path.write_bytes(b"PAR1")


def write_model(base: Path, path: Path, random: random.Random) -> None:
    """Write a model whose header or tensors are not what a fit leaves, mostly with the digest that belongs to them."""
    import numpy as np

    from clickharvest.model.storage import read_file, write_file

    header, tensors = read_file(base)
    header.pop("format")
    for _ in range(random.randrange(1, 3)):
        if random.random() < 0.65:
            _change_leaf(header, random)
        else:
            name = random.choice(list(tensors))
            array = np.array(tensors[name])
            kind = random.randrange(6)
            with np.errstate(all="ignore"):
                if kind == 0 and array.size:
                    array.flat[random.randrange(array.size)] = random.choice(
                        (1e308, -1e308, np.nan, np.inf, 1e5, 800.0, 1e6)
                    )
                elif kind == 1:
                    array = array * random.choice((0.0, -1.0, 1e3, 1e30, 1e300))
                elif kind == 2:
                    array = array.astype(random.choice((np.float16, np.float32, np.int64, np.float64)))
                elif kind == 3:
                    array = array.reshape(-1)[: random.randrange(array.size + 1)]
                elif kind == 4:
                    array = np.concatenate([array, array])
                else:
                    tensors.pop(name)
                    name = random.choice(("params/x", "draws", hostile.text(random)))
            tensors[name] = np.ascontiguousarray(array)
    try:
        write_file(path, header, tensors)
    except Exception:  # what safetensors itself refuses is cut instead
        path.write_bytes(base.read_bytes()[: random.randrange(3000)])


def _change_leaf(header: dict[str, Any], random: random.Random) -> None:
    """Put anything in the place of something in a header, at any depth."""
    where: Any = header
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        if not keys:
            return
        key = random.choice(keys)
        if isinstance(where[key], dict | list) and where[key] and random.random() < 0.75:
            where = where[key]
            continue
        if random.random() < 0.1 and isinstance(where, dict):
            del where[key]
        else:
            where[key] = hostile.json_value(random)
        return
