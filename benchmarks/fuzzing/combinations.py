"""Valid options and columns combined: command lines of small logs that cover pairs of options with values.

The options of a command come from the command line itself, so that new ones are tried at once: one without valid
values, or without a reason in `choices.NOT_TRIED`, ends the run with its name.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from cases import Case
from choices import VALID, options_of
from small_logs import DESIGNS, LOGS

COMMANDS = {
    "check": 14, "harvest": 12, "fit": 24, "report": 12, "weigh": 10, "propensities": 3, "plan": 10, "judgments": 8,
    "rank": 7,
}  # fmt: skip
"""How many of a hundred combinations each command has."""
LOG, MODEL, FLAG = "LOG", "MODEL", ""
"""What is drawn like an option: the log, the model; and the value of an option without one."""
OLDER = {"--ubi-queries"}
"""Older spellings of options, which cases with bent files try."""
OF_CONTEXTS = ("index", "linear", "lowrank", "mlp", "position", "recurrent")
"""Curves that depend on contexts."""
NEEDS = {
    "--traffic": ("--rankings",), "--team-draft": ("--rankings",), "--within": ("--clicks-from",),
    "--inputs": ("--format",), "--after-click": ("--outcome",), "--outcome": ("--after-click",),
    "--page-size": ("--page-number",), "--page-number": ("--page-size",), "--shape": ("--curve",),
    "--loss": ("--learner",), "--relevance": ("--objective",), "--weighting": ("--objective",),
    "--objective": ("--bootstrap",), "--intervals": ("--bootstrap",), "--swap": ("--original",),
    "--clicks": ("--impressions",), "--impressions": ("--clicks",),
    **{f"--curve {curve}": ("--context",) for curve in OF_CONTEXTS},
}  # fmt: skip
"""Options, or options with a value, that go with others alone; --bootstrap because a thousand replicates are dear."""
EXCLUDES = (
    {*DESIGNS, "--swap"},
    {"--team-draft", "--swap", "--placements", "--placement", "--traffic"},
    *({"--place", one} for one in ("--position", "--position-base", "--max-position", "--repeat", "--original")),
    *({"--place", one} for one in ("--swap", "--team-draft", "--rankings", "--page-size", "--page-number")),
    *({"--outcome", one} for one in (*DESIGNS, "--swap", "--team-draft", "--model", "--policy-aware")),
    *({"--emit-sql", one} for one in ("--json", "--format", "--clicks-from", "--place", *DESIGNS)),
    *({"--model", one} for one in ("--curve", "--shape", "--objective", "--relevance", "--weighting", "--penalty")),
    *({"--format", one} for one in ("--repeat", "--block", "--random", "--page-number", "--page-size")),
    {"--model", "--intervals"},
    *({"--random", one} for one in (*DESIGNS, "--swap", "--team-draft")),
    {"--swaps", "--swap"},
    {"--to", "--level"},
)
"""Options of which at most one is given."""
LOSSES = {
    "linear": ("softmax", "poisson"), "svm": ("hinge",), "auto": (),
    **dict.fromkeys(("lightgbm", "xgboost"), ("softmax", "poisson", "pairwise", "lambda")),
}  # fmt: skip
SHAPES = {"rank=2": "lowrank", "width=3": "mlp"}
OF_DESIGN = ("--pages", "--positions", "--queries", "--swaps", "--click-rates", "--steepness", "--spread")
WITH_DESIGN = {*OF_DESIGN, "--width", "--level", "--json", "--rankings", "--traffic", "--swap"}
OF_INTERVENTIONS = {
    "--anchor", "--json", "--cluster", "--max-clicks", "--objective", "--curve", "--shape", "--penalty", "--relevance",
    "--weighting", "--intervals", "--bootstrap", "--seed", "--width", "--level", "--days", "--new-queries",
}  # fmt: skip
OF_CLICKS = {"judgments": ("after", "browsing", "reading"), "rank": ("after", "browsing", "reading")}
UNFIT_MODELS = OF_CLICKS | {"weigh": ("after",), "report": ("affine",)}
"""Models that a command does not take, or not with a log."""
LISTS = ("ab", "popular", "counted", "thin", "shown", "exported")
LOGS_OF = {"plan": (*LISTS, "harvested", "design"), "rank": LISTS, "check": tuple(LOGS), "fit": tuple(LOGS)}
"""Logs that commands read, where these are not all but interventions; `plan` also plans without a log."""
DEAR = {"auto": 0.3, "mlp": 0.3, "recurrent": 0.2, "affine": 0.5, "allpairs": 0.5, "free": 0.5}
"""How often values are drawn that take seconds, against others."""
ENDINGS = {
    "harvest": ".parquet", "fit": ".safetensors", "report": ".html", "weigh": ".parquet", "propensities": ".parquet",
    "judgments": ".csv", "rank": ".json", "opensearch": ".json", "qrels": ".txt",
}  # fmt: skip

Item = tuple[str, str]
Pair = frozenset[Item]


def check_tables() -> None:
    """Raise `SystemExit` with the options that have no valid value, or with those that no command has any more."""
    known = {*VALID, *OLDER, "--log", *(name for log in LOGS.values() for name in log.values)}
    taken = {name: is_flag for command in COMMANDS for name, is_flag in options_of(command).items()}
    missing = [name for name, is_flag in taken.items() if not is_flag and name not in known]
    gone = [name for name in VALID if name not in taken]
    if missing or gone:
        message = f"no valid values for {', '.join(missing)}" if missing else f"no command has {', '.join(gone)}"
        raise SystemExit(f"benchmarks/fuzzing: {message}: change VALID of choices.py or LOGS of small_logs.py")


@cache
def items_of(command: str, log: str) -> dict[str, tuple[str, ...]]:
    """Return the options that go with a command and a log, with their valid values."""
    models = () if log == "design" else LOGS[log].models
    models = tuple(model for model in models if model not in UNFIT_MODELS.get(command, ()))
    items: dict[str, tuple[str, ...]] = {LOG: (log,)}
    if command in ("report", "weigh", "propensities", "judgments"):
        items[MODEL] = models
    for name, is_flag in options_of(command).items():
        if log == "design":
            values = ("rankings.csv",) if name == "--rankings" else VALID.get(name, ()) if name in WITH_DESIGN else ()
        elif (log == "harvested" and name not in OF_INTERVENTIONS) or name in (*LOGS[log].lacks, *OF_DESIGN):
            values = ()
        elif command == "rank" and name == "--model":
            values = tuple(f"{model}.safetensors" for model in models)
        elif name == "--context" and command in ("weigh", "judgments", "report", "rank"):
            values = tuple(model for model in models if model == "device")  # it is the model's
        else:
            values = LOGS[log].values.get(name) or VALID.get(name, ())
        if is_flag and (log != "design" or name in WITH_DESIGN):
            values = (FLAG,)
        if values and (command, name) != ("propensities", "--table"):
            items[name] = values
    return items


@cache
def clash(one: Item, other: Item) -> bool:
    """Whether two options, or an option and the value of another, do not go together."""
    return any(one[0] in group and other[0] in group for group in EXCLUDES) or _clash(one, other) or _clash(other, one)


def _clash(one: Item, other: Item) -> bool:
    (name, value), (second, of_second) = one, other
    model = of_second.removesuffix(".safetensors")
    match name:
        case "--learner":
            return (second == "--loss" and of_second not in LOSSES[value]) or (second == "--C" and value != "svm")
        case "--shape":
            return second == "--curve" and of_second != SHAPES[value]
        case "--relevance" | "--weighting":
            return of_second == "clickshare"
        case "--objective" if value == "allpairs":
            return other == ("--intervals", "clustered") or (second == "--cluster" and of_second != "query")
        case "--original":
            return second == "--swap" and value == ""
        case "--context" if second == MODEL or of_second.endswith(".safetensors"):
            return model != "device"
        case "--outcome" | "--place" | "--rankings" | "--placements" | "--placement":
            return second in (MODEL, "--model") and model in ("browsing", "reading", "affine")
    return False


@cache
def pairs_of(command: str) -> tuple[Pair, ...]:
    """Return all pairs of an option with a value and another with a value that go together."""
    found = set()
    for log in LOGS_OF.get(command, [name for name in LOGS if name != "harvested"]):
        items = [(name, value) for name, values in items_of(command, log).items() for value in values]
        found |= {frozenset((a, b)) for a, b in combinations(items, 2) if a[0] != b[0] and not clash(a, b)}
    return tuple(sorted(found, key=sorted))


def pairs_in(chosen: dict[str, str]) -> Iterator[Pair]:
    """Return the pairs of options with values that a combination has."""
    return map(frozenset, combinations(chosen.items(), 2))


class Drawing:
    """Combinations of one command, each of which begins with a pair that none before it has."""

    def __init__(self, command: str, seed: int) -> None:
        self.command, self.random = command, random.Random(f"{seed} combinations of {command}")
        self.covered: set[Pair] = set()
        self.waiting = list(pairs_of(command))
        self.random.shuffle(self.waiting)

    def next(self) -> dict[str, str]:
        """Return the options of the next combination, the log among them."""
        pair = self._waiting_pair()
        logs = LOGS_OF.get(self.command, [name for name in LOGS if name != "harvested"])
        fits = {log: items_of(self.command, log) for log in logs}
        log = self.random.choice([log for log in logs if all(v in fits[log].get(k, ()) for k, v in pair.items())])
        chosen = {LOG: log} | self._always(log) | pair
        if "--place" in pair:  # places stand for positions
            chosen = {name: value for name, value in chosen.items() if name not in ("--position", "--position-base")}
        self._add(MODEL, chosen, fits[log])
        if self.command == "rank":
            self._add("--model", chosen, fits[log])
        self._complete(chosen, fits[log])
        size = len(chosen) + self.random.choice((0, 2, 4, 7))
        for name in self.random.sample(list(fits[log]), len(fits[log])):
            if len(chosen) < size and self._add(name, chosen, fits[log]):
                self._complete(chosen, fits[log])
        self.covered |= set(pairs_in(chosen))
        return chosen

    def _waiting_pair(self) -> dict[str, str]:
        """Return a pair that is not covered, dear ones seldom while there are others."""
        while self.waiting:
            pair = self.waiting.pop()
            if pair in self.covered:
                continue
            if len(self.waiting) < 9 or self.random.random() < min(DEAR.get(value, 1) for _, value in pair):
                return dict(pair)
            self.waiting.insert(self.random.randrange(len(self.waiting)), pair)
        return {}

    def _always(self, log: str) -> dict[str, str]:
        """Return the options without which a log cannot be read."""
        if log == "design":
            return {"--pages": "20000"}
        words = [] if self.command == "propensities" else LOGS[log].always.split()
        return dict(zip(words[::2], words[1::2], strict=True))

    def _complete(self, chosen: dict[str, str], items: dict[str, tuple[str, ...]]) -> None:
        """Add the options without which others say nothing."""
        names = list(chosen)
        for name in names:
            needed = (*NEEDS.get(name, ()), *NEEDS.get(f"{name} {chosen[name]}", ()))
            names += [one for one in needed if self._add(one, chosen, items)]  # those need others, too

    def _add(self, name: str, chosen: dict[str, str], items: dict[str, tuple[str, ...]]) -> bool:
        """Add an option with one of the values that make most new pairs, unless none goes with what is chosen."""
        if name in chosen:
            return False
        new = {
            value: sum(frozenset(((name, value), other)) not in self.covered for other in chosen.items())
            * DEAR.get(value, 1)
            for value in items.get(name, ())
            if not any(clash((name, value), other) for other in chosen.items())
        }
        if new:
            chosen[name] = self.random.choice([value for value in new if new[value] == max(new.values())])
        return bool(new)


class Combinations:
    """Combinations of all commands, the same for the same seed."""

    def __init__(self, seed: int, commands: Iterable[str]) -> None:
        self.random = random.Random(f"{seed} combinations")
        self.drawings = {name: Drawing(name, seed) for name in commands if name in COMMANDS}
        self.drawn: list[tuple[str, dict[str, str]]] = []

    def __getitem__(self, number: int) -> tuple[str, dict[str, str]]:
        names = list(self.drawings)
        while len(self.drawn) <= number:
            command = self.random.choices(names, [COMMANDS[name] for name in names])[0]
            self.drawn.append((command, self.drawings[command].next()))
        return self.drawn[number]


def build(base: Path, folder: Path, command: str, chosen: dict[str, str]) -> Case:
    """Write the files of a combination and return its case."""
    (folder / "tmp").mkdir(parents=True)
    case, log = Case(command, folder, [command], theme="valid"), chosen[LOG]
    for path in (base / "valid" / ("ab" if log == "design" else log)).iterdir():
        if path.suffix != ".safetensors" or path.stem == chosen.get(MODEL) or path.name in chosen.values():
            shutil.copy(path, folder / path.name)
    file = [] if log == "design" else [LOGS[log].file]
    model = [f"{chosen[MODEL]}.safetensors"] if MODEL in chosen else []
    case.words += {
        "propensities": [*model, "contexts.csv"], "report": [*model, "--log", *file], "rank": [*file, "features.csv"],
    }.get(command, [*file, *model])  # fmt: skip
    for name, value in chosen.items():
        if name not in (LOG, MODEL):
            case.words += [name] if options_of(command)[name] else [name, value]
    if command in ENDINGS and "--emit-sql" not in chosen:
        case.outputs.append(f"out{ENDINGS.get(chosen.get('--to', ''), ENDINGS[command])}")
        case.words += ["-o", *case.outputs]
    return case


def table(results: list[dict[str, Any]]) -> list[str]:
    """Return a table of how many of all pairs the cases tried, and how many in a case that was not refused."""
    lines = ["| pairs of valid options | pairs | tried | in a case with exit 0 or 3 |", "|---|---:|---:|---:|"]
    for command in COMMANDS:
        own = [result for result in results if result["kind"] == "valid" and result["command"] == command]
        pairs = set(pairs_of(command)) if own else set()
        tried = {pair for result in own for pair in pairs_in(result["chosen"])} & pairs
        ran = {pair for result in own if result["code"] in (0, 3) for pair in pairs_in(result["chosen"])} & pairs
        if own:
            shares = " | ".join(f"{len(covered) / len(pairs):.0%}" for covered in (tried, ran))
            lines.append(f"| `{command}` | {len(pairs):,} | {shares} |")
    return lines
