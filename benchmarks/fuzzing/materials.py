"""Files for cases: sound ones, made once, and ones that are bent in their tables, bytes, headers or names."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import hostile

Table = dict[str, list[Any]]
EXPORTS = Path(__file__).parents[2] / "tests" / "logs" / "exports"
AT_HAND = (
    "log.parquet",
    "rankings.parquet",
    "judgements.parquet",
    "placements.parquet",
    "clicks.parquet",
    "corpus.txt",
    "after.safetensors",
    "place.safetensors",
)
"""Sound files that every case has beside its own."""
FIRST = datetime(2026, 3, 1, 10)
MODELS = {
    "place": "fit log.parquet --place row,column --intervals sandwich",
    "slot": "fit log.parquet --place slot --intervals sandwich",
    "browsing": "fit log.parquet --model browsing",
    "reading": "fit log.parquet --model reading",
    "affine": "fit many.parquet --model affine",
    "after": "fit log.parquet --outcome bought --curve constant --intervals sandwich",
}
"""Models of kinds of their own, and how they are made."""
RANKERS = ("linear", "svm", "lightgbm", "xgboost", "blend")
ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz")


def make_base(folder: Path) -> None:
    """Write the sound files that cases start from: logs, a tally, interventions, models, rankers, a corpus."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from clickharvest.simulate import simulate_ab_log

    folder.mkdir(parents=True)
    log, _ = simulate_ab_log(pages=320, queries=20, positions=5)
    pages = np.unique(log["page"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    log = log.append_column("user", pa.array([f"u{page % 40}" for page in pages]))
    log = log.append_column("time", pa.array([FIRST + timedelta(minutes=int(page)) for page in pages]))
    log = log.append_column("placed", pa.array([0.5] * log.num_rows))
    position, click = (log[name].to_numpy() for name in ("position", "click"))
    log = log.append_column("row", pa.array((position + 1) // 2)).append_column("column", pa.array(2 - position % 2))
    log = log.append_column("slot", pa.array([("top", "left", "middle", "right", "end")[k - 1] for k in position]))
    log = log.append_column("bought", pa.array(click * (np.arange(log.num_rows) % 2)))
    pq.write_table(log, folder / "log.parquet")
    # Slopes of so few pages are not told.
    pq.write_table(simulate_ab_log(pages=3_000, queries=20, positions=5)[0], folder / "many.parquet")
    pq.write_table(log.drop_columns(["click"]), folder / "shown.parquet")
    pq.write_table(
        log.filter(pc.equal(log["click"], 1)).select(["page", "user", "doc", "time"]), folder / "clicks.parquet"
    )
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
    placed = ranked.drop_columns(["ranker"]).rename_columns(["query", "doc", "position"])
    placed = placed.group_by(["query", "doc", "position"]).aggregate([])
    pq.write_table(
        placed.append_column("probability", pa.array([0.5] * placed.num_rows)), folder / "placements.parquet"
    )
    shutil.copytree(EXPORTS, folder / "exports")
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
        "tally log.parquet --context device --keep user -o tally.parquet",
        "harvest log.parquet --place row,column -o placed.parquet",
        *(f"{how} -o {kind}.safetensors" for kind, how in MODELS.items()),
        *(
            f"rank log.parquet features.parquet --model plain.safetensors --learner {learner} -o {learner}.json"
            for learner in RANKERS[:-1]
        ),
    ):
        run_quietly(words.split(), folder)
    (folder / "many.parquet").unlink()
    _blend(folder)


def _blend(folder: Path) -> None:
    """Blend the rankers of a folder, as `rank --learner auto` may."""
    from clickharvest.rank.rankers import Part, TrainedRanker, load_ranker

    parts = tuple(Part(0.25, load_ranker(folder / f"{name}.json")) for name in RANKERS[:-1])
    first = parts[0].ranker
    TrainedRanker("auto", first.features, {}, parts, first.columns, first.info).save(folder / "blend.json")


def run_quietly(words: list[str], folder: Path, allowed: tuple[int, ...] = (0,)) -> int:
    """Run a command in a folder and return its exit code, one of those allowed."""
    from clickharvest.commands.app import _run

    before, argv = Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["clickharvest", *words]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
            code = _run()
        assert code in allowed, f"{' '.join(words)}: exit code {code}, {errors.getvalue()}"
        return code
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
        write_parquet(table, path)
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


def write_parquet(table: Table, path: Path, footer: dict[str, str] | None = None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name, values in table.items():
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    try:
        pq.write_table(pa.table(columns).replace_schema_metadata(footer), path)
    except (pa.ArrowException, UnicodeError):
        path.write_bytes(b"PAR1")


def write_model(base: Path, path: Path, random: random.Random) -> None:
    """Write a model whose header or tensors are not what a fit leaves, with the digest that belongs to them."""
    import numpy as np

    from clickharvest.model.storage import read_file, write_file

    header, tensors = read_file(base)
    header.pop("format")
    for _ in range(random.randrange(1, 3)):
        if random.random() < 0.4 and "params/b" in tensors and "positions" in header:
            with suppress(TypeError, KeyError, ValueError):  # bent before
                forge(header, tensors, random)
        elif random.random() < 0.65:
            change_leaf(header, random)
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


def forge(header: dict[str, Any], tensors: dict[str, Any], random: random.Random) -> None:
    """Make a model of consistent sizes that no fit leaves: thousands of positions or draws, the same position twice."""
    import numpy as np

    many = random.choice((300, 5_000, 100_000))
    kind = random.randrange(7)
    if kind == 0:  # as many positions, mostly with all that belongs to them
        header["positions"] = header["shown"] = list(range(1, many + 1))
        tensors["params/b"] = np.linspace(0, -random.choice((1.0, 50.0, 2_000.0)), many - 1)
        if random.random() < 0.5:
            tensors["draws"] = np.zeros((random.choice((2, 20)), many - 1), np.float32)
        else:
            tensors.pop("draws", None)
    elif kind == 1 and "draws" in tensors:
        draws = tensors["draws"]
        tensors["draws"] = np.resize(draws, (random.choice((0, 1, many // 5)), *draws.shape[1:]))
    elif kind == 2:
        changed = random.choice(
            (lambda k: 1, lambda k: -k, lambda k: 10**6 * k, lambda k: k + 0.5, lambda k: k == 1, str)
        )
        header["positions"] = [changed(k) for k in header.get("positions", [1, 2])]
    elif kind == 3:
        header["anchor"] = random.choice((0, -1, 99, 10**9, True, "top", 1.0))
    elif kind == 4 and isinstance(header.get("encoder"), dict):
        column = random.choice(header["encoder"]["columns"])
        column["levels"] = [f"level {i // random.choice((1, 2))}" for i in range(many)]
        header["n_features"] = random.choice((header["n_features"], many + 1))
    elif kind == 5:
        deep: Any = []
        for _ in range(random.choice((50, 300, 900))):
            deep = [deep]
        header[random.choice(("info", "provenance", "places", "curve"))] = {"checks": deep, "name": deep}
    else:
        header.setdefault("info", {})["checks"] = [{"name": "x" * many, "status": "ok", "sentence": "y" * many}] * 20


def write_tally(base: Path, path: Path, random: random.Random) -> None:
    """Write a tally whose rows or footer are not what `tally` leaves, or are."""
    import pyarrow.parquet as pq

    about = json.loads(pq.read_metadata(base).metadata[b"clickharvest"])
    table = read_table(base)
    if random.random() < 0.5:
        table = bend(table, random)
    if random.random() < 0.6:
        change_leaf(about, random)
    footer = "[" * 100_000 if random.random() < 0.03 else json.dumps(about)
    write_parquet(table, path, {"clickharvest": footer})


def write_export(base: Path, path: Path, random: random.Random) -> None:
    """Write an export as lines or as one list; in half of the cases events of it are bent, and lines are not JSON."""
    lines = [line for line in base.read_text().splitlines() if line.endswith("}")]
    for _ in range(random.choice((0, 0, 0, 1, 2, 5))):
        at, kind = random.randrange(len(lines)), random.randrange(8)
        if kind < 5:
            with suppress(ValueError, RecursionError):  # one that was added is no event
                event = json.loads(lines[at])
                if isinstance(event, dict):
                    change_leaf(event, random)
                    lines[at] = json.dumps(event, ensure_ascii=random.random() < 0.5)
        elif kind == 5:
            lines += random.choices(lines, k=random.choice((1, 50)))
        elif kind == 6:
            lines.append(random.choice(("[" * 100_000, '{"a":' * 5000, "1", "null", '"x"', "[]", lines[at][:-9])))
        elif len(lines) > 1:
            del lines[at]
        lines = [line for line in lines if line.startswith("{") and line.endswith("}")] if kind < 5 else lines
    text = "[\n" + ",\n".join(lines) + "\n]\n" if path.suffix == ".json" else "".join(f"{line}\n" for line in lines)
    data = text.encode(errors="replace")
    data = gzip.compress(data) if path.suffix == ".gz" else data
    path.write_bytes(hostile.spoil(data, random) if random.random() < 0.08 else data)


def write_ranker(base: Path, path: Path, random: random.Random) -> None:
    """Write a ranker that no learner leaves, mostly with the digest that belongs to it."""
    from clickharvest.rank.rankers import _digest

    if random.random() < 0.05:
        path.write_text(random.choice(("[" * 100_000, '{"what":' * 5000, '{"what": "ranker", "format": 1}', "{}", "1")))
        return
    told = json.loads(base.read_text())
    told.pop("sha256")
    for _ in range(random.randrange(1, 3)):
        place: Any = told
        if isinstance(told.get("parts"), list) and told["parts"]:
            place = random.choice(told["parts"])
        match place:
            case {"model": {"text": str() as text}} if text and random.random() < 0.6:
                place["model"]["text"] = _bent_trees(text, random)
            case _:
                change_leaf(told, random)
    whole = json.dumps(told | {"sha256": _digest(told)} if random.random() < 0.95 else told)
    path.write_text(whole)


def _bent_trees(text: str, random: random.Random) -> str:
    """Change numbers of the trees of a library, cut them, or put anything in the place of a part."""
    if text.startswith("{") and random.random() < 0.6:
        with suppress(ValueError):  # bent before
            trees = json.loads(text)
            change_leaf(trees, random)
            return json.dumps(trees)
    if random.random() < 0.1:
        return text[: random.randrange(len(text))]
    begin = random.randrange(len(text))
    at = re.compile(r"-?\d+(\.\d+)?|$").search(text, begin)
    assert at is not None
    new = random.choice(("0", "-1", "1", "2", "99", "2147483648", "-2147483649", "1e308", "nan", "inf", "", "x"))
    return text[: at.start()] + new + text[at.end() :]


def change_leaf(header: dict[str, Any], random: random.Random) -> None:
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
