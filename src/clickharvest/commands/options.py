"""How options are declared, and those that several commands share, each written once.

An option is a field of a dataclass, such as `query: str | None = option("Query a result was shown for.", "COLUMN")`, or
stands in `Annotated` where one command has it. A command takes a parameter of one of the dataclasses; `with_options`
shows the fields to Typer as if they were the command's own.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from clickharvest.commands.bounds import SEED, between, position_or_place, whole
from clickharvest.commands.choices import Choice, Names, format_names
from clickharvest.commands.output import tell
from clickharvest.errors import InputError
from clickharvest.progress import Progress

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

LARGEST_SHARE = 1e15
"""Of traffic: beyond it, the sum of a few shares would not be exact."""
COLUMNS = "Columns of the log"
UNITS = "What to harvest"
QUERY = "query"
ENGINE = "Where to run"


def option(
    help: str,
    metavar: str | None = None,
    default: Any = None,
    *,
    flags: tuple[str, ...] = (),
    panel: str | None = None,
    rare: bool = False,
    check: Callable[..., Any] | None = None,
    names: Names | None = None,
    eager: bool = False,
) -> Any:
    """Return the field of a dataclass that is an option of the command line.

    Args:
        help: what it says or asks for.
        metavar: what stands for its value in the help; by default the type.
        default: the value where it is not given.
        flags: its spellings; by default the field's name, with hyphens.
        panel: the section of the help.
        rare: whether --help-all shows it and --help does not, unless the command's description or examples name it.
        check: called with the value, to refuse it.
        names: returns the values there are, for an option that chooses among names of a registry.
        eager: whether its check comes before all others.
    """
    about = {"help": help, "metavar": metavar, "rich_help_panel": panel, "hidden": rare, "callback": check}
    about["is_eager"] = eager
    return dataclasses.field(default=default, metadata=about | {"flags": flags, "names": names})


def argument(help: str, metavar: str | None = None, default: Any = MISSING) -> Any:
    """Return the field of a dataclass that is an argument of the command line, required unless it has a default."""
    return dataclasses.field(default=default, metadata={"help": help, "metavar": metavar, "flags": None})


class EngineName(StrEnum):
    """The engines a command can run on."""

    duckdb = "duckdb"
    spark = "spark"


class RepeatName(StrEnum):
    """What becomes of a document that a page shows twice."""

    first = "first"


class TrustName(StrEnum):
    """Which propensities weights are made of, see `weights.scoring.Trust`."""

    checked = "checked"
    all = "all"


_column = partial(option, panel=COLUMNS)
_engine = partial(option, panel=ENGINE, rare=True)


@dataclass(frozen=True)
class LogOptions:
    """Which log to read, the roles of its columns, and the engine."""

    source: str = argument("Parquet (file, folder, quoted glob), CSV, TSV, JSONL (.gz), DuckDB.", "LOG")
    query: str | None = _column("Query a result was shown for (default: query).", "COLUMN")
    doc: str | None = _column("The result (default: doc).", "COLUMN")
    position: str | None = _column("Position, 1 is the top (default: position).", "COLUMN")
    place: list[str] | None = _column(
        "Instead: columns that make the place it was shown at, such as row,column or slot.", "A,B,…", rare=True
    )
    click: str | None = _column("0/1, one row per impression (default: click).", "COLUMN")
    clicks: str | None = _column("Clicks of aggregated rows (default: clicks).", "COLUMN", rare=True)
    impressions: str | None = _column("Impressions of aggregated rows (default: impressions).", "COLUMN", rare=True)
    ranker: str | None = _column("Ranker or A/B arm (default: ranker, if there).", "COLUMN")
    page: str | None = _column("Result page (default: page, if there).", "COLUMN", rare=True)
    user: str | None = _column("User, visitor or session (default: user, if there).", "COLUMN", rare=True)
    time: str | None = _column("Time of display (default: time, if there).", "COLUMN", rare=True)
    original: str | None = _column("Position before a swap (default: original, if there).", "COLUMN", rare=True)
    context: list[str] | None = _column("Columns that examination may depend on.", "A,B,…")
    position_base: int | None = _column(
        "0 where positions start at 0 (default: 1; known exports: found out).", rare=True,
        check=whole(-1_000_000, 1_000_000),
    )  # fmt: skip
    block: list[str] | None = _column(
        "Keep these rows alone, such as kind=organic where ads share positions.", "COLUMN=VALUE", rare=True
    )
    random: str | None = _column(
        "Rows of pages in random order, such as ranker=random: harvests take all results of a query there for one.",
        "COLUMN=VALUE", rare=True,
    )  # fmt: skip
    page_number: str | None = _column(
        "Number of the page in its list, from 1, where positions start again on each.", "COLUMN", rare=True
    )
    page_size: int | None = _column(
        "Results of such a page: position becomes (page number − 1) · N + position.", "N", rare=True
    )
    repeat: RepeatName | None = _column(
        "A document that a page shows twice keeps its first place, clicked if either was.", rare=True
    )
    table: str | None = _column("Table of a DuckDB file.", rare=True)
    format: str | None = _column("LOG is a known export.", names=format_names)
    inputs: list[str] | None = _column("What else the format of LOG is read from.", "NAME=FILE,…", rare=True)
    clicks_from: str | None = _column(
        "LOG holds what was shown, FILE the clicks: of page and document, or of user, document and time.", "FILE",
        rare=True,
    )  # fmt: skip
    within: str | None = _column(
        "How long after a list was shown a click of its user may be on it (default: 30min).", "TIME", rare=True
    )
    ubi_queries: str | None = _column(
        "LOG holds OpenSearch UBI events; FILE their queries: --format ubi --inputs queries=FILE.", "FILE", rare=True
    )
    engine: EngineName = _engine("Where to run the queries.", default=EngineName.duckdb)
    memory_limit: str | None = _engine("Such as 2GB; DuckDB spills to disk beyond it.", "SIZE")
    spark_master: str | None = _engine("Cluster to run on; this machine by default.", "URL")

    @property
    def columns(self) -> dict[str, Any]:
        """The columns the user named, by role."""
        from clickharvest.logs.click_log import ROLES

        return {role: column for role in ROLES if (column := getattr(self, role)) is not None}

    @property
    def preparation(self) -> dict[str, Any]:
        """What must be done to the rows first, as `read_log` takes it; nothing where nothing is asked for."""
        asked = {
            "block": parse_words(",".join(self.block), "--block") if self.block else None,
            "page_number": self.page_number,
            "page_size": self.page_size,
            "repeat": None if self.repeat is None else self.repeat.value,
            "random": None if self.random is None else parse_words(self.random, "--random"),
        }
        return {name: value for name, value in asked.items() if value is not None}

    @property
    def context_columns(self) -> tuple[str, ...]:
        """The context columns, however they were split over options and commas."""
        return split_list(self.context)

    @property
    def place_columns(self) -> tuple[str, ...]:
        """The columns that make places, likewise."""
        return split_list(self.place)

    @property
    def sources(self) -> list[str | None]:
        """All files, folders and globs that are read."""
        others = [] if self.export is None else self.export[1].values()
        return [self.source, self.clicks_from, *others]

    @property
    def base(self) -> int:
        """What positions of a table of columns count from."""
        return 1 if self.position_base is None else self.position_base

    def start_engine(self, progress: Progress) -> Engine:
        """Start the engine asked for."""
        from clickharvest.logs.engines import DuckDBEngine
        from clickharvest.logs.spark import SparkEngine

        if self.engine is EngineName.spark:
            return SparkEngine(master=self.spark_master, memory_limit=self.memory_limit, progress=progress)
        if self.spark_master is not None:
            raise InputError("--spark-master goes with --engine spark")
        return DuckDBEngine(memory_limit=self.memory_limit, progress=progress)

    def read(self, progress: Progress) -> ClickLog:
        """Read and check the log."""
        from clickharvest.logs.exports import read_export, suggest_format
        from clickharvest.logs.matching import read_two_files
        from clickharvest.logs.reading import read_log

        shared: dict[str, Any] = {"context": self.context_columns, "engine": self.start_engine(progress)}
        named = self.columns | self.preparation | ({} if self.table is None else {"table": self.table})
        named |= {"place": self.place_columns} if self.place_columns else {}
        if self.export is not None:
            name, inputs = self.export
            return read_export(
                self.source, name, position_base=self.position_base, **named, **inputs, **self.joining, **shared
            )
        shared["position_base"] = self.base
        with suggest_format(self.source):
            if self.clicks_from is not None:
                return read_two_files(self.source, **self.joining, **named, **shared)
            if self.within is not None:
                raise InputError("--within goes with --clicks-from or --format: it says when clicks come after lists")
            return read_log(self.source, **named, **shared)

    @property
    def joining(self) -> dict[str, Any]:
        """Where clicks come from, and how long after a list, where the user says."""
        asked = {"clicks_from": self.clicks_from, "within": self.within}
        return {name: value for name, value in asked.items() if value is not None}

    @property
    def export(self) -> tuple[str, dict[str, str]] | None:
        """The known export that the log is, with its own inputs; None for a table of columns."""
        inputs = parse_words(",".join(self.inputs or ()), "--inputs") if self.inputs else {}
        if own := [name for name in inputs if name in {field.name for field in dataclasses.fields(self)}]:
            raise InputError(f"--inputs {own[0]}=…: it has an option of its own, --{own[0].replace('_', '-')}")
        if self.ubi_queries is not None:
            if self.format not in (None, "ubi"):
                raise InputError(f"--ubi-queries does not go with --format {self.format}: it is an input of ubi")
            return "ubi", {"queries": self.ubi_queries, **inputs}
        if self.format is None and inputs:
            raise InputError("--inputs goes with --format: name the format of LOG")
        return None if self.format is None else (self.format, inputs)


def split_list(texts: list[str] | None) -> tuple[str, ...]:
    """Return the words of an option that takes A,B,… and may be given several times."""
    return tuple(part.strip() for text in texts or () for part in text.split(",") if part.strip())


def parse_words(text: str, option: str) -> dict[str, str]:
    """Return the words of `a=x,b=y`; a comma that no name follows is part of a word.

    Example:
        >>> parse_words("a=my,file.csv, b=2", "--inputs")
        {'a': 'my,file.csv', 'b': '2'}
    """
    words: dict[str, str] = {}
    for part in re.split(r",(?=\s*[^,=]+=)", text):
        name, separator, value = (word.strip() for word in part.partition("="))
        if not separator or not name or not value or name in words:
            raise InputError(f"{option} {text}: expected name=value,name=value,… with every name once")
        words[name] = value
    return words


def parse_shares(text: str, option: str) -> dict[str, float]:
    """Return the numbers of `a=1,b=2`.

    Example:
        >>> parse_shares("a=80, b=20", "--traffic")
        {'a': 80.0, 'b': 20.0}
    """
    shares = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        try:
            if not separator or not name.strip() or name.strip() in shares or not 0 <= float(value) <= LARGEST_SHARE:
                raise ValueError
            shares[name.strip()] = float(value)
        except ValueError:
            raise InputError(
                f"{option} {text}: expected name=number,name=number,… with every name once and numbers of 0 or more"
            ) from None
    return shares


class _Declared(NamedTuple):
    """A parameter of a command: its name, its type, what `option` or `argument` say of it, and its default."""

    name: str
    type: Any
    about: Mapping[str, Any]
    default: Any

    def parameter(self, named: set[str]) -> inspect.Parameter:
        """Return it as Typer reads it; a rare option is shown where the command's description names it."""
        about, kind, annotation = dict(self.about), inspect.Parameter.KEYWORD_ONLY, self.type
        default = inspect.Parameter.empty if self.default is MISSING else self.default
        if about:
            flags = about.pop("flags")
            about["show_default"] = default not in (None, "", inspect.Parameter.empty)
            if flags is None:
                annotation = Annotated[self.type, typer.Argument(**about)]
            else:
                flags = flags or (f"--{self.name.replace('_', '-')}",)
                names, about["hidden"] = about.pop("names"), about["hidden"] and named.isdisjoint(flags)
                found = typer.Option(*flags, **about) if names is None else Choice(flags[0], names, **about)
                annotation = Annotated[self.type, found]
        return inspect.Parameter(self.name, kind, default=default, annotation=annotation)


@cache
def _fields(kind: Any) -> list[_Declared]:
    """Return what the fields of an option class declare; to read annotations takes milliseconds."""
    hints = get_type_hints(kind)
    return [_Declared(own.name, hints[own.name], own.metadata, own.default) for own in dataclasses.fields(kind)]


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for one in context.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        tell(context.get_help())
        raise typer.Exit


HELP_ALL = option("Show all options and exit.", default=False, check=_show_all, eager=True)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer, with one parameter for each field of its option classes."""
    given = inspect.signature(command).parameters
    groups: dict[str, Any] = {}
    declared: list[_Declared] = []
    for name, hint in get_type_hints(command, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            groups[name] = hint
            declared += _fields(groups[name])
        elif name in given:
            kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            declared.append(_Declared(name, kind, about[0].metadata if about else {}, given[name].default))
    named = set(re.findall(r"--[a-z-]+", command.__doc__ or ""))
    if any(one.about.get("hidden") for one in declared):
        declared.append(_Declared("help_all", bool, HELP_ALL.metadata, False))
    spread = [one.parameter(named) for one in declared]

    @wraps(command)
    def spread_command(**values: Any) -> None:
        values.pop("help_all", None)
        grouped = {
            name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **grouped)

    spread_command.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    spread_command.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return spread_command


ClusterOption = Annotated[
    str,
    option(
        "Within what clicks depend on each other, and error bars are by: query, doc, user, page or any column.",
        "ROLE|COLUMN", panel=UNITS, rare=True,
    ),
]  # fmt: skip
MaxClicksOption = Annotated[
    int,
    option(
        "Of a harvest with more clicks, keep whole queries with about so many, and at least 1,000 queries; intervals "
        "become wider.",
        "N", panel=UNITS, rare=True, check=whole(1, 10**15),
    ),
]  # fmt: skip
AnchorOption = Annotated[
    str,
    option(
        "Position, or place, such as 1,1 or top, that others are compared with.", "POSITION|PLACE", rare=True,
        check=position_or_place,
    ),
]  # fmt: skip
TrustOption = Annotated[
    TrustName,
    option(
        "Where a propensity is 'cannot tell', checked takes that of the last position above that can be told, all "
        "takes the estimate.",
        rare=True,
    ),
]
ModelPath = Annotated[Path, argument("Model file, as fit writes it.", "MODEL")]
RankerPath = Annotated[Path, argument("Ranker file, as rank writes it.", "RANKER")]
OutputPath = Annotated[Path | None, option("File to write.", "FILE", flags=("--output", "-o"))]
LevelOption = Annotated[float, option("Level of the intervals.", check=between(0, 1, ends=False))]
SeedOption = Annotated[int, option("Seed of all randomness.", check=whole(*SEED))]
JsonFlag = Annotated[bool, option("Print JSON for machines.", flags=("--json",))]
