"""Tallies: the counts of a log, kept day by day, so that a new day costs the time of one day.

A tally has one row per query, context, document and position (and ranker, original position, and whatever else is
kept), with its clicks and impressions, also for documents at one position only: another day may show them at a second.
Counts of days add up to the counts of the log, so a folder of tallies is read as one log. Which displays shared a page
or a user is lost, and so is the order of displays within a tally.

The footer of the Parquet file says that it is a tally, which columns it keeps apart, and how many pages the checks of
its log have counted. Tallies that keep different columns apart are not one log, and are refused together.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.files import FOOTER_KEY, SHARED
from clickharvest.logs.click_log import RESERVED, ClickLog, count_displays, named_column
from clickharvest.logs.log_facts import LogFacts
from clickharvest.logs.sources import data_files, file_format
from clickharvest.words import count, spell_columns

if TYPE_CHECKING:
    import ibis.expr.types as ir

WHAT = "tally"
VERSION = 1
APART = ("ranker", "original")
"""Roles that are always kept apart: they have few values, and checks and designs need them."""
PAGES = (
    "pages", "clicked_pages", "likely_pages", "shared_pages", "session_pages", "through_pages", "through_clicks",
    "gapped_pages",
)  # fmt: skip
"""Counts of pages in `LogFacts`, which tallies add up."""
KEPT = ("columns", "context", "prepared")
"""Entries of the footer that must be equal in all tallies of a log."""
LARGEST = 2**63
"""Bound of all counts."""
SUSPICIOUS = 1_000
"""Rows from which two tallies do not have equal counts by chance."""


@dataclass(frozen=True)
class Tally:
    """The footer of one tally.

    Attributes:
        path: the file.
        kept: its columns with their types, its context, and how the rows were prepared.
        facts: counts from the checks of its log.
    """

    path: Path
    kept: Mapping[str, Any]
    facts: LogFacts


def tally_table(log: ClickLog, *, keep: Sequence[str] = ()) -> ir.Table:
    """Return the tally of a log as one Ibis expression, not yet run.

    Args:
        log: the click log, or tallies read as one: their sum is a tally, too.
        keep: further columns, or roles such as `"user"`, to keep apart, for later use as `cluster`.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 3, "doc": ["a", "a", "b"], "position": [1, 1, 2], "click": [1, 0, 0]}
        >>> log = read_log(pa.table(shown))
        >>> log.engine.fetch(tally_table(log).order_by("position"), task="Tallying").to_pylist()[0]
        {'query': 'q', 'doc': 'a', 'position': 1, 'clicks': 1, 'impressions': 2}
    """
    if log.places is not None:
        raise InputError("places have no tally: its positions are those of a list; keep the log, or its harvest")
    further = {name: _kept_column(log, name) for name in keep if name not in log.context}
    further = {role: log.columns[role] for role in APART if log.has(role)} | further
    rows = replace(log, columns=log.columns | further).table
    counts = count_displays(rows, raw="click" in log.roles)
    keys = {"query": rows.query} | {c: rows[c] for c in log.context} | {"doc": rows.doc}
    keys |= {"position": rows.position.cast("int64")} | {name: rows[name] for name in further}
    counted = rows.group_by(**keys).agg(**{name: value.cast("int64") for name, value in counts.items()})
    if not log.has("time"):
        return counted
    return counted.cross_join(rows.agg(time=rows.time.min()))


def write_tally(log: ClickLog, path: str | Path, *, keep: Sequence[str] = ()) -> int:
    """Write the tally of a log into a Parquet file and return its number of rows.

    A log that has times gets its earliest one in all rows of the tally: drift is then tested between tallies.

    Args:
        log: the click log, read with all context columns that may ever be asked for: they can be left out later.
        path: the file to write.
        keep: as in `tally_table`.

    Raises:
        InputError: a column to keep is missing or has a name that is reserved, or it is the page, of which every row of
            the log would be one.
    """
    table = tally_table(log, keep=keep)
    kept = {
        "columns": {name: str(kind) for name, kind in table.schema().items()},
        "context": list(log.context),
        "prepared": dict(log.prepared),
    }
    facts = asdict(log.facts) if log.facts is not None else {}
    about = {"what": WHAT, "version": VERSION, "kept": kept, "facts": facts}
    with log.engine.output(Path(path)) as partial:
        return log.engine.write_parquet(table, partial, metadata=about, task="Tallying")


def find_tallies(source: object) -> list[Tally]:
    """Return the tallies that a path, a folder or a glob names; none where it names a log, or what is not here.

    Raises:
        InputError: tallies that keep different things apart, a tally among files that are none, or a tally of another
            version.

    Warns:
        HarvestWarning: two tallies have equal counts.
    """
    files = _parquet_files(source)
    # Footers are read of all files only where there are tallies: a log may have very many files.
    if not any(_is_tally(file) for file in {*files[:1], *files[-1:]}):
        return []
    tallies = [_read(file) for file in files]
    first = tallies[0]
    for other in tallies[1:]:
        if other.kept != first.kept:
            raise InputError(
                f"{first.path} and {other.path} are tallies of different logs: {_difference(first.kept, other.kept)}; "
                "expected one folder of tallies made with the same options"
            )
    _warn_of_doubles(tallies)
    return tallies


def counted_pages(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the sums of the page counts of tallies, as fields of `LogFacts`."""
    sums = {name: sum(getattr(tally.facts, name) for tally in tallies) for name in PAGES}
    return sums | {"shared_example": next((t.facts.shared_example for t in tallies if t.facts.shared_pages), "")}


def refuse_on_tallies(tallies: Sequence[Tally], options: Mapping[str, Any], context: Sequence[str]) -> None:
    """Refuse options that go with a log and not with its tallies.

    Args:
        tallies: the tallies that are read.
        options: the given options that name columns or prepare rows.
        context: the context columns to read.

    Raises:
        InputError: an option needs what a tally has lost.
    """
    kept = tallies[0].kept
    if missing := [name for name in context if name not in kept["context"]]:
        raise InputError(
            f"{tallies[0].path} is a tally without the context column {', '.join(map(repr, missing))}: found "
            f"{spell_columns(kept['context'])}; tally the logs again with --context"
        )
    for name, value in options.items():
        if value is not None and value != name and not (value == "" and name not in kept["columns"]):
            raise InputError(
                f"{tallies[0].path} is a tally, whose columns are called after their roles and whose rows are "
                f"prepared: leave --{name.replace('_', '-')} out; found {spell_columns(list(kept['columns']))}"
            )


def _kept_column(log: ClickLog, name: str) -> ir.Value:
    if name == "page" or name == log.roles.get("page"):
        raise InputError("--keep page: a tally by page is the log itself; keep the log where tests by page matter")
    if name in log.source.columns and name not in log.columns and name.lower() in (*RESERVED, "user"):
        raise InputError(f"--keep {name}: the name is reserved for a role; rename the column, or name its role")
    return named_column(log, name, "--keep")


def _parquet_files(source: object) -> list[Path]:
    if not isinstance(source, str | Path):
        return []
    files = [file for file in data_files(str(source)) if file_format(file.name) == "parquet"]
    # The parts of a folder that Spark wrote are one tally.
    return list(dict.fromkeys(file.parent if (file.parent / SHARED).is_file() else file for file in files))


def _is_tally(file: Path) -> bool:
    about = footer_of(file)
    return isinstance(about, dict) and about.get("what") == WHAT


def _read(file: Path) -> Tally:
    about = footer_of(file)
    if not isinstance(about, dict) or about.get("what") != WHAT:
        raise InputError(f"{file} is no tally, but is among tallies: expected nothing else in their folder; move it")
    if about.get("version") != VERSION:
        raise InputError(
            f"{file} is a tally of version {about.get('version')}: expected {VERSION}; tally its log again"
        )
    try:
        kept = {name: about["kept"][name] for name in KEPT}
        facts = LogFacts(**{"rows": 0, "clicks": 0, "impressions": 0} | about["facts"])
        if not _is_sound(kept, facts):
            raise ValueError("what is kept or counted is of another kind")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} has a footer that no tally has: tally its log again") from error
    return Tally(file, kept, facts)


def _is_sound(kept: Mapping[str, Any], facts: LogFacts) -> bool:
    """Whether a footer has the types that `write_tally` writes."""
    columns, context, prepared = (kept[name] for name in KEPT)
    *counts, example = astuple(facts)
    return (
        isinstance(columns, dict)
        and all(isinstance(kind, str) for kind in columns.values())
        and isinstance(context, list)
        and all(isinstance(name, str) for name in context)
        and isinstance(prepared, dict)
        and isinstance(example, str)
        and all(type(number) is int and 0 <= number < LARGEST for number in counts)
    )


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if one["context"] != other["context"]:
        values = [", ".join(kept["context"]) or "none" for kept in (one, other)]
        return f"their context columns are {values[0]}, and {values[1]}"
    if one["columns"] != other["columns"]:
        differ = sorted(dict(one["columns"].items() ^ other["columns"].items()))
        first = differ[0]
        values = [kept["columns"].get(first, "missing") for kept in (one, other)]
        return f"the column {first!r} is {values[0]}, and {values[1]}"
    return f"their rows were prepared by {json.dumps(one['prepared'])}, and {json.dumps(other['prepared'])}"


def _warn_of_doubles(tallies: Sequence[Tally]) -> None:
    seen: dict[LogFacts, Path] = {}
    for tally in tallies:
        twin = seen.setdefault(tally.facts, tally.path)
        if twin != tally.path and tally.facts.rows >= SUSPICIOUS:
            counts = f"{count(tally.facts.rows, 'row')} and {count(tally.facts.clicks, 'click')}"
            warnings.warn(
                f"{twin} and {tally.path} both count {counts}: if that is one day tallied twice, remove one of them.",
                HarvestWarning,
                stacklevel=4,
            )


def footer_of(path: Path) -> Any:
    """Return our metadata in the footer of a Parquet file, of a part of a folder, or of a folder; None without any."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = [path / SHARED] if path.is_dir() else [path, path.parent / SHARED]
    for place in places:
        if not place.is_file():
            continue
        try:
            written = (pq.read_metadata(place).metadata or {}).get(FOOTER_KEY.encode())
            if written is not None:
                return json.loads(written)
        except (pa.ArrowException, OSError, ValueError, RecursionError):
            return None
    return None
