"""Interventions: what a harvest leaves of a log, and all that estimation needs of it.

One row per unit and position it was exposed at (and per context, where contexts vary inside a unit):

| column | what it holds |
|---|---|
| `unit` | number of the unit: one query, context and document whose relevance stays the same |
| `query` | the unit's query; units of one query are statistically dependent |
| `position` | a position the unit was, or by design could have been, shown at |
| `exposure` | how much: impressions there (realised) or probability (design) |
| `clicks` | clicks it got there |
| `impressions` | times it was really shown there |
| context columns | one column each, in the log's own values |
| `clustered_by_user` | only where not queries cluster but, say, users: number of the one who clicked, −1 for nobody |

With clusters other than queries a unit's clicks at a position are divided among the clusters that they come from, one
row each; its impressions without a click have a row of their own. Every such row has the unit's whole exposure there.

This module needs NumPy alone; Arrow is imported where a file is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.files import SHARED, atomic_path
from clickharvest.harvesting.numbering import as_array, distinct, numbered
from clickharvest.places import Places
from clickharvest.words import count, first_line

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("unit", "query", "position", "exposure", "clicks", "impressions")
CLUSTERED_BY = "clustered_by_"
"""What the column of clusters begins with, where a file has one; it ends in what clusters."""
QUERY = "query"
"""What clusters unless something else is named."""
NOBODY = -1
"""Cluster of rows without clicks."""

ExposureKind = Literal["realised", "design"]
UnitKind = Literal["context", "query"]
ROUNDING = 1e-6
"""Sums of probabilities may exceed 1 by this much."""


@dataclass(frozen=True, eq=False)
class Interventions:
    """Units shown at two positions or more, one row per unit and position.

    Attributes:
        unit: unit numbers, int64 [n]; rows of one unit stand together.
        query: query of each row, [n].
        position: positions from 1, int64 [n].
        exposure: positive exposures e_{u,k}, float64 [n].
        clicks: clicks, int64 [n].
        impressions: impressions, int64 [n].
        contexts: context columns, each [n].
        exposure_kind: `"realised"` (impressions) or `"design"` (assignment probabilities).
        unit_kind: `"context"` where every unit has one context, `"query"` where contexts vary inside a unit.
        cluster: where clicks are divided among clusters, the number of each row's, −1 in rows without clicks, [n].
        cluster_kind: what clusters: clicks of one cluster depend on each other, those of different ones do not.
        only_clicked_pages: whether pages without a click are missing from the log, see `warn_of_clicked_pages`.
        thinned_from: clicks of the whole harvest, where this is a part of it; 0 where it is whole.
        places: what positions stand for, where they are numbers of places and not of a list.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]),
        ...     exposure=np.array([3.0, 1.0]), clicks=np.array([2, 0]), impressions=np.array([3, 1]))
        >>> print(interventions)
        Interventions: 1 unit, 2 rows, 2 clicks, positions 1-2, realised exposures, no context
    """

    unit: NDArray[np.int64]
    query: NDArray[Any]
    position: NDArray[np.int64]
    exposure: NDArray[np.float64]
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    contexts: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    exposure_kind: ExposureKind = "realised"
    unit_kind: UnitKind = "context"
    cluster: NDArray[np.int64] | None = None
    cluster_kind: str = QUERY
    only_clicked_pages: bool = False
    thinned_from: int = 0
    places: Places | None = None

    def __post_init__(self) -> None:
        if (self.cluster is None) != (self.cluster_kind == QUERY):
            found = "there are no clusters" if self.cluster is None else "there are clusters"
            raise InputError(f"cluster_kind is {self.cluster_kind!r}, but {found}: give both, or neither")

    def __len__(self) -> int:
        return len(self.unit)

    def __str__(self) -> str:
        if not len(self):
            return "Interventions: none"
        return (
            f"Interventions: {count(self.n_units, 'unit')}, {count(len(self), 'row')}, "
            f"{count(self.clicks.sum(), 'click')}, {self._where}, "
            f"{self.exposure_kind} exposures, "
            + (f"context {', '.join(self.contexts)}" if self.contexts else "no context")
            + ("" if self.cluster is None else f", clustered by {self.cluster_kind}")
        )

    @property
    def _where(self) -> str:
        if self.places is None:
            return f"positions {self.position.min()}-{self.position.max()}"
        return f"{count(len(self.places), 'place')} ({', '.join(self.places.columns)})"

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(np.count_nonzero(np.diff(self.unit)) + 1) if len(self) else 0

    def clicked(self) -> Interventions:
        """Return the units that got at least one click: the others carry no click share."""
        _, unit = numbered(self.unit)
        return self.take(np.bincount(unit, weights=self.clicks)[unit] > 0)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Interventions:
        """Return some of the rows, by a mask, by indices or by a slice, whose columns are views."""
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in COLUMNS},
            contexts={name: column[rows] for name, column in self.contexts.items()},
            cluster=None if self.cluster is None else self.cluster[rows],
        )

    def undivided(self) -> Interventions:
        """Return the rows that queries cluster: a unit's clicks at a position, and context, added up again.

        Example:
            >>> interventions = Interventions(
            ...     unit=np.zeros(3, int), query=np.array(["q"] * 3), position=np.array([1, 1, 2]),
            ...     exposure=np.array([3.0, 3.0, 1.0]), clicks=np.array([1, 1, 0]), impressions=np.array([2, 1, 1]),
            ...     cluster=np.array([0, 1, -1]), cluster_kind="user")
            >>> interventions.undivided().clicks.tolist(), interventions.undivided().impressions.tolist()
            ([2, 0], [3, 1])
        """
        if self.cluster is None:
            return self
        first, row = self.cells()
        clicks, shown = (
            np.bincount(row, weights=column).astype(np.int64) for column in (self.clicks, self.impressions)
        )
        return replace(replace(self, cluster=None, cluster_kind=QUERY).take(first), clicks=clicks, impressions=shown)

    def cells(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first row of every unit, position and context, by unit, and which of them each row is of, [n]."""
        varying = self.contexts.values() if self.unit_kind == "query" else ()
        codes = [np.unique(column.astype(str), return_inverse=True)[1] for column in varying]
        return distinct(self.unit, self.position, *codes)

    def write(self, path: str | Path) -> None:
        """Write to one Parquet file, whole or not at all."""
        import pyarrow.parquet as pq

        with atomic_path(Path(path)) as partial:
            pq.write_table(self.to_arrow(), partial, compression="zstd")

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table of the columns, with the kinds in its metadata."""
        import pyarrow as pa

        columns = {name: getattr(self, name) for name in COLUMNS} | dict(self.contexts)
        columns |= {} if self.cluster is None else {CLUSTERED_BY + self.cluster_kind: self.cluster}
        table = pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
        return table.replace_schema_metadata({"clickharvest": json.dumps(self.metadata)})

    @property
    def metadata(self) -> dict[str, Any]:
        """What a file of interventions says about itself, in addition to its columns."""
        return describe(
            self.exposure_kind,
            self.unit_kind,
            tuple(self.contexts),
            only_clicked_pages=self.only_clicked_pages,
            thinned_from=self.thinned_from,
            places=self.places,
        )


def describe(
    exposure_kind: ExposureKind,
    unit_kind: UnitKind,
    context: tuple[str, ...],
    *,
    only_clicked_pages: bool = False,
    thinned_from: int = 0,
    places: Places | None = None,
) -> dict[str, Any]:
    """Return the metadata of a file of interventions."""
    about: dict[str, Any] = {
        "what": "interventions",
        "exposure_kind": exposure_kind,
        "unit_kind": unit_kind,
        "context": list(context),
    }
    about |= {"only_clicked_pages": True} if only_clicked_pages else {}
    about |= {} if places is None else {"places": places.to_dict()}
    return about | ({"thinned_from": thinned_from} if thinned_from else {})


def is_interventions(path: str | Path) -> bool:
    """Whether a path is a Parquet file with the columns of interventions, or a folder of them that Spark wrote."""
    path = Path(path)
    if path.suffix.lower() not in (".parquet", ".pq"):
        return False
    place = path / SHARED if path.is_dir() else path
    if not place.is_file():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(COLUMNS) <= set(pq.read_schema(place).names)
    except (pa.ArrowException, OSError):
        return False


def read_interventions(path: str | Path, *, unit: UnitKind = "context") -> Interventions:
    """Read a file of interventions, ours or one made by any tool with the same columns.

    Without our metadata every further column counts as context, and exposures as realised where they equal the
    impressions.

    Args:
        path: the file.
        unit: what makes a unit, where the file does not say so itself.

    Raises:
        InputError: the file is not Parquet, lacks columns, or holds values that no harvest could have left.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file() and not (path / SHARED).is_file():
        raise InputError(f"no file {path}: expected a Parquet file of interventions")
    try:
        table = pq.read_table(path)
        if path.is_dir():
            table = table.replace_schema_metadata(pq.read_schema(path / SHARED).metadata)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {first_line(error)}") from error
    return interventions_from_arrow(table, name=str(path), unit=unit)


def interventions_from_arrow(
    table: pa.Table,
    *,
    metadata: Mapping[str, Any] | None = None,
    name: str = "the table",
    unit: UnitKind = "context",
) -> Interventions:
    """Return the interventions in an Arrow table, checked; with `metadata`, as a harvest of our own.

    Raises:
        InputError: columns are missing or hold values that no harvest could have left.
    """
    import pyarrow as pa

    missing = [column for column in COLUMNS if column not in table.column_names]
    if missing:
        raise InputError(
            f"{name} lacks the columns {', '.join(missing)} of interventions: found "
            f"{', '.join(table.column_names)}; make such a file with clickharvest harvest"
        )
    foreign = metadata is None
    if metadata is None:
        metadata = _checked_metadata(_written_metadata(table, name), table.column_names, name)
    context = metadata.get("context", [c for c in table.column_names if c not in COLUMNS and not _of_clusters(c)])
    clusters = [column for column in table.column_names if _of_clusters(column) and column not in context]
    if len(clusters) > 1:
        raise InputError(f"{name} has the columns {' and '.join(clusters)}: expected one at most; harvest again")
    needed = (*COLUMNS, *clusters)
    nulls = {column: table[column].null_count for column in needed if table[column].null_count}
    if nulls:
        column, count = next(iter(nulls.items()))
        raise InputError(f"{name}, column {column!r}: {count:,} rows are empty; harvest the log again")
    for column in ("query", *context):
        if pa.types.is_nested(table.schema.field(column).type):
            kind = table.schema.field(column).type
            raise InputError(f"{name}, column {column!r} is of type {kind}: expected one plain value per row")
    thinned = metadata.get("thinned_from")
    arrays: dict[str, Any] = {column: _array(table, column, name) for column in COLUMNS}
    result = Interventions(
        **arrays,
        contexts={column: _values(table[column]) for column in context},
        unit_kind=metadata.get("unit_kind", unit),
        cluster=_array(table, clusters[0], name) if clusters else None,
        cluster_kind=clusters[0].removeprefix(CLUSTERED_BY) if clusters else QUERY,
        only_clicked_pages=metadata.get("only_clicked_pages") is True,
        thinned_from=thinned if isinstance(thinned, int) and 0 < thinned < 2**63 else 0,
        places=_places(metadata, name),
    )
    whole = result.undivided()
    realised = bool(np.array_equal(whole.exposure, whole.impressions))
    result = replace(result, exposure_kind=metadata.get("exposure_kind", "realised" if realised else "design"))
    result = _checked(result, name)
    if foreign:
        _refuse_impossible(result, name)
    return result


def _places(metadata: Mapping[str, Any], name: str) -> Places | None:
    try:
        return Places.from_dict(metadata["places"]) if "places" in metadata else None
    except InputError as error:
        raise InputError(f"{name} cannot be used: {error}") from error


def _written_metadata(table: pa.Table, name: str) -> Any:
    try:
        return json.loads((table.schema.metadata or {}).get(b"clickharvest", b"{}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} has metadata that are no JSON: harvest the log again") from error


def _of_clusters(column: str) -> bool:
    return column.startswith(CLUSTERED_BY)


def _array(table: pa.Table, column: str, name: str) -> NDArray[Any]:
    values = _values(table[column])
    if column == "query":
        return values
    kind: type[np.generic] = np.float64 if column == "exposure" else np.int64
    if values.dtype.kind not in "iuf" or (kind is np.int64 and np.any(values != np.floor(values))):
        raise InputError(f"{name}, column {column!r} holds {values.dtype}: expected {kind.__name__}; harvest again")
    if kind is np.int64 and values.dtype != np.int64 and np.any((values < -(2.0**63)) | (values >= 2.0**63)):
        raise InputError(f"{name}, column {column!r} holds infinite or huge numbers: expected int64; harvest again")
    return values.astype(kind)


def _values(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column; of texts that came as codes, every row has the one object of its text."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return as_array(column)
    coded = column.combine_chunks()
    texts = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
    codes = coded.indices.fill_null(len(texts) - 1) if coded.null_count else coded.indices
    found: NDArray[Any] = texts[as_array(pa.chunked_array([codes]))]
    return found


def _checked(interventions: Interventions, name: str) -> Interventions:
    i = interventions
    problems = {
        "exposure": (~(np.isfinite(i.exposure) & (i.exposure > 0)), "are not positive numbers"),
        "position": (i.position < 1, "are less than 1"),
        "clicks": ((i.clicks < 0) | (i.clicks > i.impressions), "are negative or more than the impressions"),
    }
    if i.places is not None:
        problems["position"] = ((i.position < 1) | (i.position > len(i.places)), "are no numbers of its places")
    if i.cluster is not None:
        problems["cluster"] = ((i.clicks > 0) & (i.cluster < 0), "have clicks of nobody")
    for column, (broken, problem) in problems.items():
        if broken.any():
            values = ", ".join(str(value) for value in getattr(i, column)[broken][:3])
            raise InputError(
                f"{name}, column {column!r}: {broken.sum():,} rows {problem}, such as {values}; harvest the log again"
            )
    order = np.lexsort((i.position, i.unit))
    return i if np.array_equal(order, np.arange(len(i))) else i.take(order)


def _checked_metadata(metadata: Any, columns: Sequence[str], name: str) -> Mapping[str, Any]:
    """Return what a file says about itself, unless no harvest would say it or its context columns are missing."""
    if not isinstance(metadata, dict):
        raise InputError(f"{name} has metadata that are no JSON object: harvest the log again")
    for key, known in (("exposure_kind", get_args(ExposureKind)), ("unit_kind", get_args(UnitKind))):
        if metadata.get(key, known[0]) not in known:
            raise InputError(f"{name} has the {key} {metadata[key]!r}: expected {' or '.join(known)}; harvest again")
    context = metadata.get("context", [])
    if not isinstance(context, list) or not all(isinstance(column, str) for column in context):
        raise InputError(f"{name} has context {context!r} in its metadata: expected a list of columns; harvest again")
    if missing := [column for column in context if column not in columns]:
        raise InputError(
            f"{name} lacks the context column {', '.join(map(repr, missing))} that its metadata name: found "
            f"{', '.join(columns)}; harvest the log again"
        )
    return metadata


def _refuse_impossible(i: Interventions, name: str) -> None:
    """Raise `InputError` for interventions, sorted by unit and position, that no harvest could have left."""
    same_unit = i.unit[1:] == i.unit[:-1]
    _refuse(i, same_unit & _differs(i.query), name, "query", "change the query inside a unit", "a unit has one query")
    again = same_unit & (i.position[1:] == i.position[:-1])
    for column, values in i.contexts.items():
        changes = same_unit & _differs(values)
        if i.unit_kind == "context":
            advice = "a unit has one context; say --unit query where a unit is a query and document alone"
            _refuse(i, changes, name, column, "change the context inside a unit", advice)
        again &= ~changes
    if i.cluster is not None or (i.unit_kind == "query" and i.contexts):
        again = _doubled(i)
    _refuse(i, again, name, "position", "repeat a unit's position", "expected one row per unit and position")
    i = i.undivided()
    if i.exposure_kind == "realised":
        wrong = i.exposure != i.impressions
        advice = "realised exposures are the impressions"
        _refuse(i, wrong, name, "exposure", "are not the impressions", advice)
    else:
        advice = "a probability by design, or else the impressions"
        _refuse(i, i.exposure > 1 + ROUNDING, name, "exposure", "are above 1", advice)


def _refuse(i: Interventions, broken: NDArray[np.bool_], name: str, column: str, problem: str, expected: str) -> None:
    if broken.any():
        row = int(np.flatnonzero(broken)[0]) + len(i) - len(broken)
        where = f"unit {i.unit[row]} at position {i.position[row]}"
        raise InputError(
            f"{name}, column {column!r}: {np.count_nonzero(broken):,} rows {problem}, such as {where}; expected "
            f"{expected}; harvest the log again"
        )


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each value but the first differs from the one before; empty values are equal."""
    after, before = values[1:], values[:-1]
    differs = np.asarray(after != before, dtype=bool)
    unlike_itself = np.asarray(values != values, dtype=bool)  # NaN and NaT
    changes: NDArray[np.bool_] = differs & ~(unlike_itself[1:] & unlike_itself[:-1])
    return changes


def _doubled(i: Interventions) -> NDArray[np.bool_]:
    """Return which rows have the unit, position, contexts and cluster of one before, whatever their order."""
    codes = [np.unique(values.astype(str), return_inverse=True)[1] for values in i.contexts.values()]
    first, _ = distinct(i.unit, i.position, *codes, *([] if i.cluster is None else [i.cluster]))
    doubled = np.ones(len(i), dtype=bool)
    doubled[first] = False
    return doubled
