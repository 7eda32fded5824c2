"""Cases by seed: a command line, the files it names, and what befalls it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hostile
import materials

COMMANDS = {
    "check": 20, "harvest": 18, "show": 14, "propensities": 13, "weigh": 10, "simulate": 7, "compare": 6, "fit": 4,
    "report": 4, "rank": 3, "reproduce": 1,
}  # fmt: skip
"""How many of a hundred cases each command has; those that compile or draw are dear."""
FAULTS = (
    "fsize",
    "full",
    "closed",
    "pipe",
    "no stderr",
    "interrupt",
    "kill",
    "ascii",
    "columns",
    "no tmp",
    "umask",
    "nobody",
)
PLACES = (
    "old", "link", "dangling", "loop", "fifo", "folder", "lost", "long", "input", "hard link", "device", "hostile",
    "ending", "hidden",
)  # fmt: skip
"""What the place to write may be, where it is not just a new file."""
NAMES = (
    "my log",
    "log[1]",
    "x*",
    "a'b",
    'a"b',
    "-x",
    "a\nb",
    "\x1b[31mx",
    "日本",
    "é",
    "a;b",
    "%20",
    "x" * 200,
    "~",
    "a,b",
    "a=b",
)
NUMBER = list(hostile.OPTION_NUMBERS)
COLUMN_FLAGS = (
    "query",
    "doc",
    "position",
    "click",
    "clicks",
    "impressions",
    "ranker",
    "page",
    "user",
    "time",
    "original",
)
COLUMN_VALUES = ["query", "doc", "position", "click", "device", "ranker", "page", "user", "nothing", ""]
LOG_OPTIONS = {
    **{f"--{name}": COLUMN_VALUES for name in COLUMN_FLAGS},
    "--context": ["device", "device", "device,ranker", "nothing", "query", "position", ",", "device,device"],
    "--position-base": ["0", "1", "2", "-5"],
    "--memory-limit": ["50MB", "1GB", "0", "-1", "1", "900TB", "x"],
    "--table": ["log", "main.log"],
    "--format": ["ubi", "nothing"],
    "--ubi-queries": ["rankings.parquet", "nothing.jsonl"],
    "--inputs": ["queries=nothing", "x"],
    "--spark-master": ["local"],
}
HARVEST_OPTIONS = {
    "--unit": ["context", "query"],
    "--max-position": ["2", "3", "10", "1"],
    "--rankings": ["rankings.parquet", "rankings.parquet", "log.parquet", "nothing"],
    "--traffic": ["a=50,b=50,c=1", "a=1", "a=0", "x=1"],
    "--swap": ["2", "5", "1", "1=.5,2=.5", "1=1", "2=.3"],
}
LEVEL = {"--level": ["0.9", "0.5", "0.999999", "1e-9", "1"]}
ANCHOR = {"--anchor": ["1", "2", "3", "99"]}
SEED = {"--seed": ["0", "7"]}
OPTIONS: dict[str, dict[str, list[str]]] = {
    "check": LOG_OPTIONS | HARVEST_OPTIONS | ANCHOR,
    "harvest": LOG_OPTIONS | HARVEST_OPTIONS | {"--emit-sql": ["bigquery", "snowflake", "trino", "nothing"]},
    "show": {},
    "propensities": LEVEL | {"--table": ["x"]},
    "weigh": LOG_OPTIONS | {"--clip": ["0.1", "auto", "1", "2"]},
    "compare": LEVEL | {"--log": ["log.parquet"], "--baseline-log": ["log.parquet"], "--max-position": ["3"]},
    "report": LEVEL | LOG_OPTIONS | HARVEST_OPTIONS | {"--title": ["A page"], "--log": ["log.parquet"]},
    "fit": LOG_OPTIONS
    | HARVEST_OPTIONS
    | ANCHOR
    | SEED
    | {
        "--objective": ["clickshare", "allpairs"],
        "--curve": ["constant", "linear", "power"],
        "--shape": ["rank=2", "width=3"],
        "--penalty": ["0", "1", "1e12"],
        "--intervals": ["sandwich", "none", "clustered"],
        "--relevance": ["constant"],
        "--weighting": ["paper"],
        "--bootstrap": ["2", "5"],
    },
    "rank": LOG_OPTIONS
    | LEVEL
    | SEED
    | {
        "--learner": ["svm", "lightgbm", "xgboost"],
        "--clip": ["0.1", "auto"],
        "--C": ["1", "0.1"],
        "--features": ["a", "a,b", "x", ""],
        "--test-share": ["0.3", "0.9"],
        "--judgements": ["judgements.parquet", "features.parquet", "nothing"],
    },
    "simulate": SEED
    | {
        "--queries": ["20", "100", "200"],
        "--positions": ["2", "5", "30"],
        "--pages": ["10", "200"],
        "--sweeps": ["1", "2.5", "0.1"],
        "--training-queries": ["50", "100"],
        "--test-queries": ["0", "10"],
        "--eta": ["0", "1", "100"],
        "--zeta": ["0", "0.5"],
        "--examination": ["power", "nothing"],
        "--clicks": ["pbm", "cascade", "trust"],
        "--noise": ["0", "1"],
        "--traffic": ["1,1", "80,15,5", "1", "0,0"],
        "--repetition": ["even", "zipf"],
        "--deployment": ["ab", "consecutive"],
        "--corpus": ["corpus.txt", "synthetic", "log.parquet", "nothing"],
        "--threshold": ["1", "2"],
        "--cache": ["cache", "log.parquet"],
    },
    "reproduce": {"--jobs": ["1", "2"], "--corpus": ["nothing", "corpus.txt"], "--page": ["page.md"]},
}
FLAGS = {
    "check": ["--json"], "harvest": ["--json"], "show": ["--json"], "propensities": ["--json", "--simultaneous"],
    "weigh": ["--json", "--normalise"], "compare": ["--json"], "report": ["--json"], "fit": ["--json"],
    "rank": ["--json"],
    "simulate": ["--json", "--force"], "reproduce": ["--no-run", "--quick"],
}  # fmt: skip
ENDS = {
    "harvest": (".parquet",), "propensities": (".parquet", ".csv"), "weigh": (".parquet",), "report": (".html",),
    "fit": (".safetensors",), "rank": (".json", ".txt"), "simulate": ("",),
}  # fmt: skip


@dataclass
class Case:
    """A command, its folder, and what befalls it; `outputs` may appear or change, all else must stay."""

    command: str
    folder: Path
    words: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    fault: str | None = None
    amount: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)


def build(base: Path, folder: Path, random: random.Random) -> Case:
    """Draw a case and write its files."""
    folder.mkdir(parents=True)
    (folder / "tmp").mkdir()
    command = random.choices(list(COMMANDS), list(COMMANDS.values()))[0]
    case = Case(command, folder, [command])
    for name in ("log.parquet", "rankings.parquet", "judgements.parquet", "corpus.txt"):
        shutil.copy(base / name, folder / name)
    ARGUMENTS[command](case, base, random)
    bad = random.random() < 0.3
    for flag, values in random.sample(
        sorted(OPTIONS[command].items()), min(len(OPTIONS[command]), random.choice((0, 0, 0, 1, 1, 2)))
    ):
        case.words += [flag, hostile.argument(random) if bad and random.random() < 0.5 else random.choice(values)]
    if "--page" in case.words and command == "reproduce":
        case.outputs.append(case.words[case.words.index("--page") + 1])
    case.words += [flag for flag in FLAGS[command] if random.random() < 0.25]
    if command in ENDS and random.random() < 0.95:
        _output(case, random)
    if random.random() < 0.02:
        case.words.insert(random.randrange(len(case.words) + 1), hostile.argument(random))
    if random.random() < 0.15:
        case.fault = random.choice(FAULTS)
        case.amount = random.random()
    return case


def _output(case: Case, random: random.Random) -> None:
    """Name a place to write: mostly sound ones, and those that are not what they seem."""
    ending = random.choice(ENDS[case.command])
    name = f"out{ending}"
    place = case.folder / name
    kind = random.choice(("new",) * len(PLACES) + PLACES)
    there = {path.name for path in case.folder.iterdir() if path.is_file()}
    given = [word for word in case.words[1:] if word in there]
    if kind in ("input", "hard link") and not given:
        kind = "new"
    if kind == "old" and case.command != "simulate":
        place.write_bytes(b"older")
    elif kind == "link":
        (case.folder / "target").write_bytes(b"older")
        place.symlink_to("target")
        case.outputs.append("target")
    elif kind == "dangling":
        place.symlink_to("target")
        case.outputs.append("target")
    elif kind == "loop":
        place.symlink_to(name)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "lost":
        name = f"nowhere/{name}"
    elif kind == "long":
        name = "x" * random.choice((245, 255, 300)) + ending
    elif kind == "input":
        name = random.choice(given)
    elif kind == "hard link":
        os.link(case.folder / random.choice(given), place)
    elif kind == "device":
        name = "/dev/full"
    elif kind == "hostile":
        name = random.choice(NAMES) + ending
    elif kind == "ending":
        name = "out" + random.choice((".pkl", "", ".PARQUET", ".parquet.gz"))
    elif kind == "hidden":
        name = f".hidden{ending}"
    case.words += ["-o", name]
    if kind not in ("fifo", "folder", "loop", "hard link", "input"):
        case.outputs.append(name)
    if kind == "folder" and case.command == "simulate":
        case.outputs.append(name)


def _name(random: random.Random, ending: str) -> str:
    return (random.choice(NAMES) if random.random() < 0.1 else "given") + ending


def _table(case: Case, base: Path, random: random.Random, which: str = "log.parquet", bent: float = 0.4) -> str:
    """Write a table, sound or bent, in some format; return the word that names it."""
    ending = random.choice(materials.ENDINGS) if random.random() < 0.5 else ".parquet"
    name = _name(random, ending)
    if random.random() < 0.03:
        return hostile.argument(random)
    name = name if not (case.folder / name).exists() else f"other{ending}"
    path = case.folder / name
    if random.random() < 0.06:
        path.mkdir()
        path = path / f"part{ending}"
    table = materials.read_table(base / which)
    if random.random() < bent:
        table = materials.bend(table, random)
    materials.write_table(table, path, random)
    if random.random() < 0.08:
        path.write_bytes(hostile.spoil(path.read_bytes(), random))
    return f"./{name}" if name.startswith("-") else name


def _model(case: Case, base: Path, random: random.Random, sound: float = 0.5) -> str:
    name = _name(random, ".safetensors")
    kind = random.choice(("plain", "context"))
    source = base / f"{kind}.safetensors"
    drawn = random.random()
    if drawn < sound:
        shutil.copy(source, case.folder / name)
    elif drawn < 0.92:
        materials.write_model(source, case.folder / name, random)
    elif drawn < 0.98:
        (case.folder / name).write_bytes(hostile.spoil(source.read_bytes(), random))
    else:
        return hostile.argument(random)
    return f"./{name}" if name.startswith("-") else name


def _log_argument(case: Case, base: Path, random: random.Random) -> None:
    which = "interventions.parquet" if random.random() < 0.15 else "log.parquet"
    case.words.append(_table(case, base, random, which))


def _fit(case: Case, base: Path, random: random.Random) -> None:
    _log_argument(case, base, random)
    case.words += ["--bootstrap", "20"]  # as much can go wrong as with a thousand replicates


def _show(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.3))


def _propensities(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.6))
    if random.random() < 0.8:
        case.words.append(_table(case, base, random, "contexts.parquet"))


def _weigh(case: Case, base: Path, random: random.Random) -> None:
    case.words += [_table(case, base, random), _model(case, base, random, 0.75)]


def _report(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.5))
    if random.random() < 0.4:
        case.words += ["--log", _table(case, base, random)]


def _compare(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.6))
    if random.random() < 0.8:
        shutil.copy(base / "context.safetensors", case.folder / "second.safetensors")
        case.words.append("second.safetensors")
    if random.random() < 0.3:
        case.words += ["--log", _table(case, base, random)]


def _rank(case: Case, base: Path, random: random.Random) -> None:
    case.words += [_table(case, base, random, bent=0.3), _table(case, base, random, "features.parquet", bent=0.5)]
    if random.random() < 0.7:
        case.words += ["--model", _model(case, base, random, 0.9)]
    if random.random() < 0.7:
        case.words += ["--C", "1", "--clip", "0.1"]


def _simulate(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(random.choice(("ab", "arxiv", "protocol", "protocol")))
    case.words += {"ab": ["--pages", "50"], "arxiv": ["--queries", "150"]}.get(case.words[-1], [])
    if case.words[-1] == "protocol":
        case.words += [
            "--queries",
            "60",
            "--test-queries",
            "10",
            *(["--rows"] if random.random() < 0.2 else ["--documents"]),
        ]


def _reproduce(case: Case, base: Path, random: random.Random) -> None:
    case.words += random.choice(
        (["nothing"], ["table-pbm", "--no-run", "--results", "results"], [hostile.argument(random)])
    )
    case.outputs.append("results")


ARGUMENTS: dict[str, Callable[[Case, Path, random.Random], None]] = {
    "check": _log_argument, "harvest": _log_argument, "fit": _fit, "show": _show,
    "propensities": _propensities,
    "weigh": _weigh, "report": _report, "compare": _compare, "rank": _rank, "simulate": _simulate,
    "reproduce": _reproduce,
}  # fmt: skip
