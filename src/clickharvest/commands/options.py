"""The command line's options that several commands share, each written once.

A command takes a parameter of one of the option classes; `with_options` shows the class's fields to Typer as if
they were the command's own.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from clickharvest.commands.bounds import between, position_or_place, whole
from clickharvest.commands.choices import choice, format_names
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
MOST_CLICKS = 10_000_000
"""More take more memory than a laptop has: a fit of so many clicks takes some 6 GB."""
ENGINE = "Where to run"


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


def _column(flag: str, help: str) -> Any:
    return typer.Option(flag, metavar="COLUMN", help=help, rich_help_panel=COLUMNS, show_default=False)


@dataclass(frozen=True)
class LogOptions:
    """Which log to read, the roles of its columns, and the engine."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="Parquet (file, folder, quoted glob), CSV, TSV or JSONL (also .gz), or a DuckDB file.",
            show_default=False,
        ),
    ]
    query: Annotated[str | None, _column("--query", "Query a result was shown for (default: query).")] = None
    doc: Annotated[str | None, _column("--doc", "The result (default: doc).")] = None
    position: Annotated[str | None, _column("--position", "Where it was shown, 1 is the top (default: position).")] = (
        None
    )
    place: Annotated[
        list[str] | None,
        typer.Option(
            "--place",
            metavar="A,B,…",
            help="Instead: columns that make the place it was shown at, such as row,column or slot.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    click: Annotated[str | None, _column("--click", "0/1, one row per impression (default: click).")] = None
    clicks: Annotated[str | None, _column("--clicks", "Clicks of aggregated rows (default: clicks).")] = None
    impressions: Annotated[
        str | None, _column("--impressions", "Impressions of aggregated rows (default: impressions).")
    ] = None
    ranker: Annotated[str | None, _column("--ranker", "Ranker or A/B arm (default: ranker, if there).")] = None
    page: Annotated[str | None, _column("--page", "Result page (default: page, if there).")] = None
    user: Annotated[str | None, _column("--user", "User, visitor or session (default: user, if there).")] = None
    time: Annotated[str | None, _column("--time", "Time of display (default: time, if there).")] = None
    original: Annotated[str | None, _column("--original", "Position before a swap (default: original, if there).")] = (
        None
    )
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="A,B,…",
            help="Columns that examination may depend on.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    position_base: Annotated[
        int | None,
        typer.Option(
            "--position-base",
            help="0 where positions start at 0 (default: 1; known exports: found out).",
            rich_help_panel=COLUMNS,
            show_default=False,
            callback=whole(-1_000_000, 1_000_000),
        ),
    ] = None
    block: Annotated[
        list[str] | None,
        typer.Option(
            "--block",
            metavar="COLUMN=VALUE",
            help="Keep these rows alone, such as kind=organic where ads share positions.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    random: Annotated[
        str | None,
        typer.Option(
            "--random",
            metavar="COLUMN=VALUE",
            help="Rows of pages in random order, such as ranker=random: harvests take all results of a query there for "
            "one.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    page_number: Annotated[
        str | None,
        _column("--page-number", "Number of the page in its list, from 1, where positions start again on each."),
    ] = None
    page_size: Annotated[
        int | None,
        typer.Option(
            "--page-size",
            metavar="N",
            help="Results of such a page: position becomes (page number − 1) · N + position.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    repeat: Annotated[
        RepeatName | None,
        typer.Option(
            "--repeat",
            help="A document that a page shows twice keeps its first place, clicked if either was.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    table: Annotated[
        str | None,
        typer.Option("--table", help="Table of a DuckDB file.", rich_help_panel=COLUMNS, show_default=False),
    ] = None
    format: Annotated[
        str | None,
        choice("--format", format_names, help="LOG is a known export.", panel=COLUMNS, show_default=False),
    ] = None
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            metavar="NAME=FILE,…",
            help="What else the format of LOG is read from.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    clicks_from: Annotated[
        str | None,
        typer.Option(
            "--clicks-from",
            metavar="FILE",
            help="LOG holds what was shown, FILE the clicks: of page and document, or of user, document and time.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="TIME",
            help="How long after a list was shown a click of its user may be on it (default: 30min).",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    ubi_queries: Annotated[
        str | None,
        typer.Option(
            "--ubi-queries",
            metavar="FILE",
            help="LOG holds OpenSearch UBI events; FILE their queries: --format ubi --inputs queries=FILE.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = None
    engine: Annotated[
        EngineName, typer.Option("--engine", help="Where to run the queries.", rich_help_panel=ENGINE)
    ] = EngineName.duckdb
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="SIZE",
            help="Such as 2GB; DuckDB spills to disk beyond it.",
            rich_help_panel=ENGINE,
            show_default=False,
        ),
    ] = None
    spark_master: Annotated[
        str | None,
        typer.Option(
            "--spark-master",
            metavar="URL",
            help="Cluster to run on; this machine by default.",
            rich_help_panel=ENGINE,
            show_default=False,
        ),
    ] = None

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
        return _split(self.context)

    @property
    def place_columns(self) -> tuple[str, ...]:
        """The columns that make places, likewise."""
        return _split(self.place)

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
        from clickharvest.logs.reading import read_log
        from clickharvest.logs.two_files import read_two_files

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


def _split(texts: list[str] | None) -> tuple[str, ...]:
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


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose option-class parameters are spread into one parameter per field, for Typer."""
    groups: dict[str, type] = {}
    spread: list[inspect.Parameter] = []
    for name, kind in get_type_hints(command, include_extras=True).items():
        parameter = inspect.signature(command).parameters.get(name)
        if parameter is None:
            continue
        if not dataclasses.is_dataclass(kind):
            spread.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(kind, type)
        groups[name] = kind
        spread += _parameters(kind)

    @wraps(command)
    def spread_command(**values: Any) -> None:
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
    typer.Option(
        "--cluster",
        metavar="ROLE|COLUMN",
        help="Within what clicks depend on each other, and error bars are by: query, doc, user, page or any column.",
        rich_help_panel=UNITS,
    ),
]
MaxClicksOption = Annotated[
    int,
    typer.Option(
        "--max-clicks",
        metavar="N",
        help="Of a harvest with more clicks, keep whole queries with about so many, and at least 1,000 queries; "
        "intervals become wider.",
        rich_help_panel=UNITS,
        callback=whole(1, 10**15),
    ),
]
AnchorOption = Annotated[
    str,
    typer.Option(
        "--anchor",
        metavar="POSITION|PLACE",
        help="Position, or place, such as 1,1 or top, that others are compared with.",
        callback=position_or_place,
    ),
]
TrustOption = Annotated[
    TrustName,
    typer.Option(
        "--trust",
        help="Where a propensity is 'cannot tell', checked takes that of the last position above that can be told, all "
        "takes the estimate.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file, as fit writes it.", show_default=False)]


@cache
def _parameters(kind: type) -> list[inspect.Parameter]:
    """Return an option class's fields as parameters; to read annotations takes milliseconds, and six commands ask."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
    ]


OutputPath = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False)
]
LevelOption = Annotated[
    float, typer.Option("--level", help="Level of the intervals.", callback=between(0, 1, ends=False))
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
