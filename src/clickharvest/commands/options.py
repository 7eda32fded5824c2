"""Options that several commands share, each declared once: of the log, of the harvest, of the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from clickharvest.commands.declaring import (
    POSITION,
    SEED,
    argument,
    between,
    option,
    parse_positions,
    parse_share,
    parse_shares,
    parse_words,
    position_or_place,
    registered,
    split_list,
    whole,
)
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.click_models.base import FittedModel
    from clickharvest.harvesting.designs import Design
    from clickharvest.harvesting.interventions import Interventions, UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

COLUMNS, UNITS, ENGINE, CHECKS = "Columns of the log", "What to harvest", "Where to run", "Checks"
QUERY = "query"
MOST_RANKS = 1_000
"""Ranks of a swap: each is a part of the query that harvests."""

_column = partial(option, panel=COLUMNS)
_engine = partial(option, panel=ENGINE, rare=True)
_unit = partial(option, panel=UNITS)
_check = partial(option, panel=CHECKS)


@dataclass(frozen=True)
class LogOptions:
    """Which log to read, the roles of its columns, and the engine."""

    source: str = argument("Parquet (file, folder, quoted glob), CSV, TSV, JSONL (.gz), DuckDB.", "LOG")
    query: str | None = _column("Query a result was shown for (default: query).", "COLUMN")
    doc: str | None = _column("The result (default: doc).", "COLUMN")
    position: str | None = _column("Position, 1 is the top (default: position).", "COLUMN")
    place: list[str] | None = _column(
        "Instead of a position: columns that name the place, such as row,column or slot.", "A,B,…", rare=True
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
        "Number of the top position, such as 0 (default: 1; known exports: detected).", rare=True,
        check=whole(-1_000_000, 1_000_000),
    )  # fmt: skip
    block: list[str] | None = _column(
        "Keep only these rows, such as kind=organic where ads share positions.", "COLUMN=VALUE", rare=True
    )
    random: str | None = _column(
        "Rows of pages in random order, such as ranker=random: there, all results of a query are one unit.",
        "COLUMN=VALUE", rare=True,
    )  # fmt: skip
    page_number: str | None = _column(
        "Page number, from 1, where positions start again on every page.", "COLUMN", rare=True
    )
    page_size: int | None = _column(
        "Results per page with --page-number: position becomes (page number − 1) · N + position.", "N", rare=True
    )
    repeat: str | None = _column(
        "A document that a page shows twice keeps its first place, clicked if either was.", rare=True,
        names=["first"],
    )  # fmt: skip
    table: str | None = _column("Table of a DuckDB file.", rare=True)
    format: str | None = _column("LOG is a known export.", names=registered("logs.formats", "FORMATS"))
    inputs: list[str] | None = _column("Further files of the format of LOG.", "NAME=FILE,…", rare=True)
    clicks_from: str | None = _column(
        "LOG holds what was shown, FILE the clicks: of page and document, or of user, document and time.", "FILE",
        rare=True,
    )  # fmt: skip
    within: str | None = _column(
        "Longest time from a list to a click of its user on it (default: 30min).", "TIME", rare=True
    )
    ubi_queries: str | None = _column(
        "LOG holds OpenSearch UBI events; FILE their queries: --format ubi --inputs queries=FILE.", "FILE", rare=True
    )
    engine: str = _engine("Where to run the queries.", default="duckdb", names=["duckdb", "spark"])
    memory_limit: str | None = _engine("Such as 2GB; DuckDB spills to disk beyond it.", "SIZE")
    spark_master: str | None = _engine("Cluster to run on; this machine by default.", "URL")

    @property
    def columns(self) -> dict[str, Any]:
        """The columns the user named, by role."""
        from clickharvest.logs.click_log import ROLES

        return {role: column for role in ROLES if (column := getattr(self, role)) is not None}

    @property
    def preparation(self) -> dict[str, Any]:
        """The options of `read_log` that change rows before they are read, as far as they are given."""
        return _given(
            block=parse_words(",".join(self.block), "--block") if self.block else None,
            page_number=self.page_number,
            page_size=self.page_size,
            repeat=self.repeat,
            random=None if self.random is None else parse_words(self.random, "--random"),
        )

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
        """The number of the top position in a table of columns."""
        return 1 if self.position_base is None else self.position_base

    @property
    def export(self) -> tuple[str, dict[str, str]] | None:
        """The known export that the log is, with its own inputs; None for a table of columns."""
        inputs = parse_words(",".join(self.inputs or ()), "--inputs") if self.inputs else {}
        if options := [name for name in inputs if name in {field.name for field in fields(self)}]:
            raise InputError(f"--inputs {options[0]}=…: it has an option of its own, --{options[0].replace('_', '-')}")
        if self.ubi_queries is not None:
            if self.format not in (None, "ubi"):
                raise InputError(f"--ubi-queries does not go with --format {self.format}: it is an input of ubi")
            return "ubi", {"queries": self.ubi_queries, **inputs}
        if self.format is None and inputs:
            raise InputError("--inputs goes with --format: name the format of LOG")
        return None if self.format is None else (self.format, inputs)

    def start_engine(self) -> Engine:
        """Start the engine the user chose."""
        from clickharvest.logs.engines import DuckDBEngine
        from clickharvest.logs.spark import SparkEngine

        if self.engine == "spark":
            return SparkEngine(master=self.spark_master, memory_limit=self.memory_limit, progress=show_progress)
        if self.spark_master is not None:
            raise InputError("--spark-master goes with --engine spark")
        return DuckDBEngine(memory_limit=self.memory_limit, progress=show_progress)

    def read(self) -> ClickLog:
        """Read and check the log."""
        from clickharvest.logs.exports import read_export, suggest_format
        from clickharvest.logs.matching import read_two_files
        from clickharvest.logs.reading import read_log

        options: Any = {"context": self.context_columns, "engine": self.start_engine()}
        options |= self.columns | self.preparation | _given(table=self.table, place=self.place_columns or None)
        joining = _given(clicks_from=self.clicks_from, within=self.within)
        if self.export is not None:
            name, inputs = self.export
            return read_export(self.source, name, position_base=self.position_base, **inputs, **joining, **options)
        with suggest_format(self.source):
            if self.clicks_from is not None:
                return read_two_files(self.source, position_base=self.base, **joining, **options)
            if self.within is not None:
                raise InputError("--within goes with --clicks-from or --format: it says when clicks come after lists")
            return read_log(self.source, position_base=self.base, **options)

    def with_columns_of(self, *models: FittedModel, and_others: bool = False) -> Self:
        """Return options with the context columns and places of models, which the user need not name again.

        Raises:
            InputError: the user names other context columns, and there are not to be `and_others`.
        """
        needed = list(dict.fromkeys(name for model in models for name in model.context))
        if and_others:
            needed = list(dict.fromkeys([*needed, *self.context_columns]))
        elif self.context_columns and set(self.context_columns) != set(needed):
            raise InputError(
                f"--context {','.join(self.context_columns)}: the model depends on {', '.join(needed) or 'no context'}"
                "; leave --context out, the model names its columns itself"
            )
        places = None if self.place_columns else getattr(models[0], "places", None)
        return replace(self, context=needed, place=self.place if places is None else list(places.columns))


@dataclass(frozen=True)
class HarvestOptions:
    """What makes a unit, and where documents could have been shown."""

    unit: str = _unit(
        "A unit is a query, context and document; or 'query': a query and document, contexts vary inside.",
        default="context", rare=True, names=["context", "query"],
    )  # fmt: skip
    max_position: int | None = _unit("Leave out lower positions.", "K", rare=True, check=POSITION)
    rankings: str | None = _unit(
        "Table of query, ranker, doc, position for all rankers: design exposures.", "FILE", rare=True
    )
    traffic: str | None = _unit(
        "Traffic meant for each ranker; counted from the log by default.", "A=50,B=50", rare=True
    )
    swap: str | None = _unit(
        "Rank 1 was swapped with a rank drawn from 1…K; or 1=.5,2=.3,… with probabilities.", "K", rare=True
    )
    placements: str | None = _unit(
        "Table of query, doc, position, probability of a stochastic policy: design exposures.", "FILE", rare=True
    )
    placement: str | None = _unit(
        "Column of the logged probability of each placement, such as propensity_of_placement.", "COLUMN", rare=True
    )
    team_draft: int | None = _unit(
        "Pages of K results interleave the two rankers of --rankings by team draft.", "K", rare=True
    )

    @property
    def unit_kind(self) -> UnitKind:
        """What makes a unit, as `harvest` takes it."""
        return "query" if self.unit == "query" else "context"

    @property
    def shares(self) -> Mapping[str, float] | None:
        """The traffic meant for each ranker, if given."""
        return None if self.traffic is None else parse_shares(self.traffic, "--traffic")

    def read(self, log: LogOptions) -> ClickLog | Interventions:
        """Return the interventions that a file holds, or the click log.

        Raises:
            InputError: other places are named than those of the interventions; or the log cannot be read.
        """
        from clickharvest.harvesting.reading import is_interventions, read_interventions

        if not is_interventions(log.source):
            return log.read()
        interventions = read_interventions(log.source, unit=self.unit_kind)
        columns = () if interventions.places is None else interventions.places.columns
        named = log.place_columns
        if named and tuple(map(str.lower, named)) != tuple(map(str.lower, columns)):
            raise InputError(
                f"--place {','.join(named)}: {clean_text(log.source)} holds interventions at "
                f"{'places by ' + ', '.join(columns) if columns else 'positions of a list'}; leave it out, or give the "
                "log"
            )
        return interventions

    def arguments(self, log: LogOptions, rankings_source: Any = None) -> dict[str, Any]:
        """Return the keyword arguments that `harvest` and its kin take."""
        design = self.design(log.base, rankings_source)
        return {"unit": self.unit_kind, "max_position": self.max_position, "design": design}

    def design(self, position_base: int, rankings_source: Any = None) -> Design | None:
        """Return the design the options describe, if any; `rankings_source` stands in for the file named."""
        from clickharvest.harvesting.designs import Rankings, Swap
        from clickharvest.harvesting.placements import LoggedPlacements, Placements, TeamDraft

        source = rankings_source if rankings_source is not None else self.rankings
        rankings = Rankings(source, self.shares, position_base) if source is not None else None
        designs = {"--placements": self.placements, "--placement": self.placement, "--team-draft": self.team_draft,
                   "--swap": self.swap}  # fmt: skip
        if len(given := list(_given(**designs))) > 1:
            raise InputError(f"{' and '.join(given)} describe two designs: give one")
        if self.placements is not None:
            return Placements(self.placements, position_base)
        if self.placement is not None:
            return LoggedPlacements(self.placement)
        if self.team_draft is not None:
            if rankings is None:
                raise InputError("--team-draft needs the two rankings: name their table with --rankings")
            return TeamDraft(rankings, self.team_draft)
        if self.swap is None:
            return rankings
        if self.swap.strip().isdecimal():
            return Swap.uniform(_swap_rank(self.swap, self.swap), rankings)
        shares = parse_shares(self.swap, "--swap")
        return Swap({_swap_rank(rank, self.swap): share for rank, share in shares.items()}, rankings)


@dataclass(frozen=True)
class CheckOptions:
    """How a fit is checked, and how much is printed."""

    tolerance: str | None = _check("How far off a usable curve may be (default: 30%).", "SHARE")
    positions: str | None = _check("Positions that matter, as 1-10 or 1,3 (default: all).", "LIST")
    fold: str | None = _check(
        "Positions at which the page changes, such as 6, the first below the fold of the screen.", "LIST", rare=True
    )
    verbose: bool = _check("Print every check, and how the curve was chosen.", default=False)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `check_fit`.

        Raises:
            InputError: an option cannot be read.
        """
        from clickharvest.checks import TOLERANCE

        return {
            "tolerance": TOLERANCE if self.tolerance is None else parse_share(self.tolerance, "--tolerance"),
            "positions": () if self.positions is None else parse_positions(self.positions, "--positions"),
            "folds": () if self.fold is None else parse_positions(self.fold, "--fold"),
        }


def require_clusters(interventions: Interventions, cluster: str, source: str) -> None:
    """Refuse clusters that a file of interventions does not have: its clicks are divided already, or not at all."""
    if cluster not in (QUERY, interventions.cluster_kind):
        raise InputError(
            f"--cluster {cluster}: {source} was harvested by {interventions.cluster_kind}; harvest the log again with "
            f"--cluster {cluster}"
        )


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that are given."""
    return {name: value for name, value in options.items() if value is not None}


def _swap_rank(text: str, option: str) -> int:
    """Return a rank, or number of ranks, of a swap."""
    try:
        rank = int(text)
    except ValueError:
        rank = 0
    if not 1 <= rank <= MOST_RANKS:
        raise InputError(
            f"--swap {clean_text(option, 60)}: expected a number of ranks, or 1=.5,2=.3,…, of ranks from 1 to "
            f"{MOST_RANKS:,}"
        )
    return rank


def flags_of(options: Any) -> list[str]:
    """Return the options that differ from their defaults, as one types them.

    Example:
        >>> flags_of(LogOptions("log.csv", query="q", context=["device", "shop"]))
        ['--query', 'q', '--context', 'device,shop']
    """
    words = []
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name != "source" and value not in (field.default, []):
            words += [f"--{field.name.replace('_', '-')}", ",".join(value) if isinstance(value, list) else str(value)]
    return words


ClusterOption = Annotated[
    str,
    option(
        "Error bars are clustered by query, doc, user, page or any column: clicks depend on each other within it.",
        "ROLE|COLUMN", panel=UNITS, rare=True,
    ),
]  # fmt: skip
MaxClicksOption = Annotated[
    int,
    option(
        "Thin a larger harvest to whole queries with about N clicks, and at least 1,000 queries; intervals become "
        "wider.",
        "N", panel=UNITS, rare=True, check=whole(1, 10**15),
    ),
]  # fmt: skip
AnchorOption = Annotated[
    str,
    option(
        "Position, or place such as 1,1 or top, that all others are compared with.", "POSITION|PLACE", rare=True,
        check=position_or_place,
    ),
]  # fmt: skip
TrustOption = Annotated[
    str,
    option(
        "Where a propensity is 'cannot tell': checked takes that of the last position above with an answer, all "
        "takes the estimate.",
        rare=True, names=["checked", "all"],
    ),
]  # fmt: skip
OutcomeOption = Annotated[
    str | None, option("What came of clicks, such as purchase: 0/1, counts.", "COLUMN", panel=COLUMNS)
]
ModelPath = Annotated[Path, argument("Model file, as fit writes it.", "MODEL")]
RankerPath = Annotated[Path, argument("Ranker file, as rank writes it.", "RANKER")]
OutputPath = Annotated[Path | None, option("File to write.", "FILE", flags=("--output", "-o"))]
FolderPath = Annotated[Path | None, option("Folder to write.", "FOLDER", flags=("--output", "-o"))]
LevelOption = Annotated[float, option("Level of the intervals.", check=between(0, 1, ends=False))]
SeedOption = Annotated[int, option("Seed of all randomness.", check=SEED)]
JsonFlag = Annotated[bool, option("Print JSON for machines.", flags=("--json",))]
