"""Cases by seed: a command line, the files it names, and what befalls it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hostile
import materials
import themes
from choices import COMMANDS, ENDS, ENGINES, EXPORTS, FAULTS, NAMES, PLACES, doubtful_values, options_of


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
    theme: str = "list"


def build(
    base: Path,
    folder: Path,
    random: random.Random,
    commands: Sequence[str] = tuple(COMMANDS),
    about: Sequence[str] = tuple(themes.THEMES),
) -> Case:
    """Draw a case, of one of the commands and themes, and write its files."""
    folder.mkdir(parents=True)
    (folder / "tmp").mkdir()
    command = random.choices(commands, [COMMANDS[name] for name in commands])[0]
    case = Case(command, folder, [command])
    case.theme = random.choices(about, [themes.THEMES[name] for name in about])[0]
    for name in materials.AT_HAND:
        shutil.copy(base / name, folder / name)
    ARGUMENTS[command](case, base, random)
    case.words += themes.words(case.theme, command, random)
    bad = random.random() < (0.3 if case.theme == "list" else 0.1)
    options = options_of(command)
    valued = sorted(name for name, is_flag in options.items() if not is_flag and name not in case.words)
    wanted = random.choice((0, 0, 0, 1, 1, 2) if case.theme == "list" else (0, 0, 0, 0, 1))
    for option in random.sample(valued, min(len(valued), wanted)):
        hostile_value = bad and random.random() < 0.5
        values = doubtful_values(command, option)
        case.words += [option, hostile.argument(random) if hostile_value else random.choice(values)]
    if command == "compare" and "--chart" in case.words:
        case.outputs.append(case.words[case.words.index("--chart") + 1])
    case.words += [name for name, is_flag in options.items() if is_flag and random.random() < 0.25]
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
    kind = random.choice(("new",) * (len(PLACES) if case.theme == "list" else 6 * len(PLACES)) + PLACES)
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
    ending = (
        random.choice(materials.ENDINGS) if random.random() < (0.5 if case.theme == "list" else 0.2) else ".parquet"
    )
    name = _name(random, ending)
    if random.random() < 0.03:
        return hostile.argument(random)
    name = name if not (case.folder / name).exists() else f"other{ending}"
    path = case.folder / name
    if random.random() < 0.06:
        path.mkdir()
        path = path / f"part{ending}"
    table = materials.read_table(base / which)
    if random.random() < (bent if case.theme == "list" else bent / 3):
        table = materials.bend(table, random)
    if random.random() < 0.5:
        table = themes.bend(case.theme, table, random)
    materials.write_table(table, path, random)
    if random.random() < 0.08:
        path.write_bytes(hostile.spoil(path.read_bytes(), random))
    return f"./{name}" if name.startswith("-") else name


def _model(case: Case, base: Path, random: random.Random, sound: float = 0.5) -> str:
    name = _name(random, ".safetensors")
    kind = random.choice(themes.MODELS[case.theme])
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


def _log(case: Case, base: Path, random: random.Random) -> list[str]:
    """Write a log of some kind: a table, tallies, a known export, or what was shown and what was clicked."""
    drawn = random.random() if case.theme == "list" else random.uniform(0.25, 1)
    if drawn < 0.12:
        return [_tallies(case, base, random)]
    if drawn < 0.27:
        return _export(case, base, random)
    if drawn < 0.35:
        return [_table(case, base, random, "shown.parquet"), "--clicks-from", _clicks(case, base, random)]
    return [_table(case, base, random)]


def _tallies(case: Case, base: Path, random: random.Random) -> str:
    """Write a tally, or a folder of two; their tables, footers or bytes may be bent."""
    name = _name(random, "-tally.parquet")
    path = case.folder / name
    if random.random() < 0.4:
        path.mkdir()
        shutil.copy(base / "tally.parquet", path / "a.parquet")
        path = path / "b.parquet"
    materials.write_tally(base / "tally.parquet", path, random)
    if random.random() < 0.08:
        path.write_bytes(hostile.spoil(path.read_bytes(), random))
    return f"./{name}" if name.startswith("-") else name


def _export(case: Case, base: Path, random: random.Random) -> list[str]:
    """Write a known export, and what else its format is read from."""
    which, ending = random.choice(list(EXPORTS)), random.choice((".jsonl", ".jsonl", ".json", ".jsonl.gz"))
    name = f"export{ending}"
    materials.write_export(base / "exports" / f"{which}.jsonl", case.folder / name, random)
    words = [name, "--format", EXPORTS[which] if random.random() < 0.95 else random.choice(list(EXPORTS.values()))]
    if which == "algolia" and random.random() < 0.95:
        materials.write_export(base / "exports" / "algolia_results.jsonl", case.folder / "results.jsonl", random)
        words += ["--inputs", "results=results.jsonl"]
    return words


def _clicks(case: Case, base: Path, random: random.Random) -> str:
    """Write the clicks of a log of two files beside what was shown."""
    table = materials.read_table(base / "clicks.parquet")
    materials.write_table(
        materials.bend(table, random) if random.random() < 0.4 else table, case.folder / "clicked.parquet", random
    )
    return "clicked.parquet"


def _ranker(case: Case, base: Path, random: random.Random) -> str:
    """Write a ranker, sound or not what a learner leaves."""
    name = _name(random, ".json")
    source = base / f"{random.choice(materials.RANKERS)}.json"
    drawn = random.random()
    if drawn < 0.4:
        shutil.copy(source, case.folder / name)
    elif drawn < 0.9:
        materials.write_ranker(source, case.folder / name, random)
    elif drawn < 0.98:
        (case.folder / name).write_bytes(hostile.spoil(source.read_bytes(), random))
    else:
        return hostile.argument(random)
    return f"./{name}" if name.startswith("-") else name


def _log_argument(case: Case, base: Path, random: random.Random) -> None:
    if random.random() < 0.15:
        case.words.append(_table(case, base, random, "interventions.parquet"))
    elif case.theme == "places" and random.random() < 0.4:
        themes.write_interventions(base / "placed.parquet", case.folder / "placed.parquet", random)
        case.words.append("placed.parquet")
    else:
        case.words += _log(case, base, random)


def _tally(case: Case, base: Path, random: random.Random) -> None:
    case.words += _log(case, base, random)


def _plan(case: Case, base: Path, random: random.Random) -> None:
    if random.random() < (0.5 if case.theme == "list" else 0.8):
        _log_argument(case, base, random)
    else:
        case.words += ["--pages", "5000", "--positions", "5", "--queries", "50"]


def _judgments(case: Case, base: Path, random: random.Random) -> None:
    log, *options = _log(case, base, random)
    case.words += [log, _model(case, base, random, 0.75), *options]


def _labels(case: Case, base: Path, random: random.Random) -> None:
    case.words += _log(case, base, random)
    if random.random() < 0.9:
        case.words += ["--model", _model(case, base, random, 0.75)]


def _rerank(case: Case, base: Path, random: random.Random) -> None:
    case.words += [_ranker(case, base, random), _table(case, base, random, "features.parquet", bent=0.3)]


def _export_ranker(case: Case, base: Path, random: random.Random) -> None:
    engine = random.choice(ENGINES) if random.random() < 0.95 else hostile.argument(random)
    case.words += [_ranker(case, base, random), "--to", engine]


def _fit(case: Case, base: Path, random: random.Random) -> None:
    _log_argument(case, base, random)
    if case.theme != "models":  # other models have no replicates, and refuse the option before anything runs
        case.words += ["--bootstrap", "20"]  # as much can go wrong as with a thousand


def _validate(case: Case, base: Path, random: random.Random) -> None:
    case.words += [*_log(case, base, random), "--random", random.choice(("ranker=a", "device=mobile", "nothing=1"))]
    (case.folder / "theirs.csv").write_text(random.choice(("position,propensity\n1,1\n2,.5\n", "position\n", "\0")))


def _show(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.3))


def _propensities(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.6))
    if random.random() < 0.8:
        case.words.append(_table(case, base, random, "contexts.parquet"))


def _weigh(case: Case, base: Path, random: random.Random) -> None:
    log, *options = _log(case, base, random)
    case.words += [log, _model(case, base, random, 0.75), *options]


def _report(case: Case, base: Path, random: random.Random) -> None:
    case.words.append(_model(case, base, random, 0.5))
    if random.random() < (0.4 if case.theme == "list" else 0.8):
        case.words += ["--log", _table(case, base, random)]


def _compare(case: Case, base: Path, random: random.Random) -> None:
    if random.random() < 0.2:
        case.words += [_table(case, base, random), "--estimators", random.choice(("ctr,pivotone", "clickshare,x"))]
        return
    case.words.append(_model(case, base, random, 0.6))
    if random.random() < 0.8:
        second = random.choice(themes.MODELS[case.theme])
        shutil.copy(base / f"{second}.safetensors", case.folder / "second.safetensors")
        case.words.append("second.safetensors")
    if random.random() < (0.3 if case.theme == "list" else 0.8):
        case.words += ["--log", _table(case, base, random)]


def _rank(case: Case, base: Path, random: random.Random) -> None:
    case.words += [_table(case, base, random, bent=0.3), _table(case, base, random, "features.parquet", bent=0.5)]
    if random.random() < 0.7:
        case.words += ["--model", _model(case, base, random, 0.9)]
    if random.random() < 0.7:
        case.words += ["--C", "1", "--clip", "0.1"]


def _simulate(case: Case, base: Path, random: random.Random) -> None:
    layouts = ("grid", "carousel", "ads", "pages")
    case.words.append(random.choice(layouts if case.theme == "places" else ("ab", "arxiv", "protocol", "protocol")))
    if case.theme == "models":
        case.words[-1] = "protocol"
        case.words += ["--clicks", random.choice(("ubm", "dcm", "dbn", "cascade"))]
        case.words += ["--queries", "20", "--test-queries", "5", *(["--rows"] if random.random() < 0.8 else [])]
        return
    case.words += {"ab": ["--pages", "50"], "arxiv": ["--queries", "150"]}.get(case.words[-1], [])
    case.words += ["--pages", "60", "--queries", "20"] if case.words[-1] in layouts else []
    if case.words[-1] == "protocol":
        case.words += [
            "--queries",
            "60",
            "--test-queries",
            "10",
            *(["--rows"] if random.random() < 0.2 else ["--documents"]),
        ]


ARGUMENTS: dict[str, Callable[[Case, Path, random.Random], None]] = {
    "check": _log_argument, "validate": _validate, "harvest": _log_argument, "fit": _fit, "show": _show,
    "propensities": _propensities,
    "weigh": _weigh, "report": _report, "compare": _compare, "rank": _rank, "simulate": _simulate,
    "tally": _tally, "plan": _plan, "judgments": _judgments, "labels": _labels,
    "rerank": _rerank, "export": _export_ranker,
}  # fmt: skip
