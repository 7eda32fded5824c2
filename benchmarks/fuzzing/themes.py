"""What a case is about: a list, as ever, or places, click models, what came of clicks.

A theme says what is drawn more often: options of its kind, models that belong to it, and columns bent where it looks.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import hostile
import materials
from materials import Table

THEMES = {"list": 60, "places": 15, "models": 15, "outcomes": 10}
"""How many of a hundred cases are about each."""
MODELS = {
    "list": ("plain", "plain", "context", "context", "browsing", "affine"),
    "places": ("place", "place", "place", "slot", "plain", "browsing"),
    "models": ("browsing", "browsing", "reading", "affine", "affine", "place"),
    "outcomes": ("plain", "plain", "context", "after", "affine", "place"),
}
"""The models that cases of a theme draw from."""
PLACES = (
    *("row,column", "slot") * 6, "row", "column,row", "position", "position,row", "slot,slot", "nothing", "query",
    "doc", "click", "device", "page", "time", ",", "ROW,Column", "row,column,slot,device",
)  # fmt: skip
ANCHORS = ("1", "1,1", "top", "2,1", "end", "9,9", " 1 , 1 ", "1,1,1", "", ",", "0", "-1", "row 1", "1.0,1.0")
OUTCOMES = (*("bought",) * 8, "click", "clicks", "position", "device", "time", "query", "nothing", "BOUGHT", "", "page")
AFTER = ("same", "same", "after.safetensors", "after.safetensors", "log.parquet", "nothing", "", "place.safetensors")
FITTED = ("browsing", "browsing", "reading", "affine", "affine", "auto", "examination", "nothing", "")
READS_PLACES = ("check", "harvest", "fit", "plan", "weigh", "judgments", "report", "compare")


def words(theme: str, command: str, random: random.Random) -> list[str]:
    """Return the options of a theme that a command takes, drawn; none in one of ten cases."""
    if random.random() < 0.1:
        return []
    drawn: list[str] = []
    if theme == "places" and command in READS_PLACES:
        drawn += ["--place", _or_any(random, PLACES)]
        if command in ("check", "fit", "plan") and random.random() < 0.5:
            drawn += ["--anchor", _or_any(random, ANCHORS)]
    if theme == "outcomes" and command in ("check", "fit", "weigh"):
        drawn += ["--outcome", _or_any(random, OUTCOMES)]
        if command == "weigh" and random.random() < 0.9:
            drawn += ["--after-click", _or_any(random, AFTER)]
    if theme == "models" and command == "fit":
        drawn += ["--model", _or_any(random, FITTED)]
    if theme == "models" and random.random() < 0.15 and command in READS_PLACES:
        drawn += ["--page", _or_any(random, ("page", "query", "user", "device", "nothing"))]
    return drawn


def _or_any(random: random.Random, values: tuple[str, ...]) -> str:
    return hostile.argument(random) if random.random() < 0.05 else random.choice(values)


def bend(theme: str, table: Table, random: random.Random) -> Table:
    """Change a table where its theme looks: the columns of places, of pages, of outcomes."""
    table = {name: list(values) for name, values in table.items()}
    changes = {"places": _bend_places, "models": _bend_pages, "outcomes": _bend_outcomes}
    if theme in changes and table.get("doc"):
        changes[theme](table, random)
    return table


def _bend_places(table: Table, random: random.Random) -> None:
    """Make places empty, alike after cleaning, of mixed types, of control characters, or a thousand."""
    rows = len(table["doc"])
    name = random.choice([own for own in ("row", "column", "slot") if own in table] or ["doc"])
    values = table[name]
    kind = random.randrange(9)
    if kind == 0:
        _put(values, random.choice((None, "", " ", float("nan"))), random)
    elif kind == 1:
        table[name] = [f"{value}{random.choice(('', ' ', chr(27) + '[31m', chr(0x200B)))}" for value in values]
    elif kind == 2:
        table[name] = [value if i % 2 else str(value) for i, value in enumerate(values)]
    elif kind == 3:
        renamed = {value: hostile.text(random) for value in dict.fromkeys(map(str, values))}
        table[name] = [renamed[str(value)] for value in values]
    elif kind == 4:
        most = random.choice((300, 1_000, 1_599, 3_000))
        table[name] = [f"p{i % most}" for i in range(rows)]
    elif kind == 5:
        factor = random.choice((1e300, 0.1, -1, 2**40, 1e-320, True, float("inf")))
        table[name] = [value * factor if isinstance(value, int) else value for value in values]
    elif kind == 6:
        table[name] = [values[0]] * rows
    elif kind == 7:
        random.shuffle(values)
    else:
        _put(values, hostile.value(random), random)


def _bend_pages(table: Table, random: random.Random) -> None:
    """Make pages empty, shared between queries, one row long, all one; or clicks and positions without states."""
    rows, kind = len(table["doc"]), random.randrange(9)
    if kind == 0:
        _put(table.setdefault("page", [0] * rows), None, random)
    elif kind == 1:
        table["page"] = [i // random.choice((7, 50)) for i in range(rows)]
    elif kind == 2:
        table["page"] = random.choice(([0] * rows, list(range(rows)), [None] * rows, [float("nan")] * rows))
    elif kind == 3 and "position" in table:
        table["position"] = [k * random.choice((1, 13, 1_000)) for k in table["position"]]
    elif kind == 4:
        each = random.choice((1, 5, 10**6))
        table["click"] = [int(i % each == 0) for i in range(rows)]
    elif kind == 5:
        keep = [i for i in range(rows) if table.get("click", [1] * rows)[i] == 1]
        table |= {name: [values[i] for i in keep] for name, values in table.items()}
    elif kind == 6:
        table["query"] = ["one"] * rows
    elif kind == 7:
        table.pop("page", None)
    else:
        _put(table.setdefault("page", [0] * rows), hostile.value(random), random)


def _bend_outcomes(table: Table, random: random.Random) -> None:
    """Make outcomes negative, huge, texts, empty, all, none, or on rows without a click."""
    rows, kind = len(table["doc"]), random.randrange(7)
    values = table.setdefault("bought", [0] * rows)
    if kind == 0:
        _put(values, random.choice((-1, -0.5, 2, 0.5, 10**9, 2**62, 1e300, float("nan"), float("inf"))), random)
    elif kind == 1:
        _put(values, random.choice((None, "yes", "", "1.0", "🙂", "\x1b[2J")), random)
    elif kind == 2:
        table["bought"] = [random.choice(("no", "yes")) for _ in values]
    elif kind == 3:
        table["bought"] = [random.choice((0, 1, 2**62, None))] * rows
    elif kind == 4:
        table["bought"] = [1 - (click if click in (0, 1) else 0) for click in table.get("click", [0] * rows)]
    elif kind == 5:
        table["bought"] = list(table.get("click", [1] * rows))
    else:
        table["bought"] = [hostile.value(random) for _ in values]


def _put(values: list[Any], new: Any, random: random.Random) -> None:
    for _ in range(random.choice((1, 20, len(values)))):
        values[random.randrange(len(values))] = new


def write_interventions(base: Path, path: Path, random: random.Random) -> None:
    """Write interventions of places whose table of places or rows are not those of a harvest, or are."""
    import pyarrow.parquet as pq

    about = json.loads(pq.read_metadata(base).metadata[b"clickharvest"])
    table = materials.read_table(base)
    if random.random() < 0.3:
        table = materials.bend(table, random)
    labels = about["places"]["labels"]
    kind = random.randrange(9)
    if kind == 0:
        labels.pop()
    elif kind == 1:
        labels.append(
            random.choice(([1, 1], ["x", "y"], [None, 1], [1], [[1], 2], [2**70, 1], [1e308, True], [""] * 2))
        )
    elif kind == 2:
        about["places"]["labels"] = [[i, j] for i in range(random.choice((20, 500))) for j in range(20)]
    elif kind == 3:
        about["places"]["columns"] = random.choice((["row"], ["row", "row"], [], ["unit", "clicks"], ["\x1b[2J", ""]))
    elif kind == 4:
        materials.change_leaf(about["places"], random)
    elif kind == 5:
        materials.change_leaf(about, random)
    elif kind == 6:
        labels[random.randrange(len(labels))] = [hostile.text(random), hostile.text(random)]
    footer = "[" * 100_000 if random.random() < 0.03 else json.dumps(about)
    materials.write_parquet(table, path, {"clickharvest": footer})
