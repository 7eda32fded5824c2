"""Read interventions from a file or from the rows of an engine, and check them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.files import SHARED
from clickharvest.harvesting.interventions import (
    CLUSTERED_BY,
    COLUMNS,
    QUERY,
    ExposureKind,
    Interventions,
    UnitKind,
)
from clickharvest.harvesting.numbering import as_array, distinct
from clickharvest.positions.places import Places
from clickharvest.words import first_line, name_columns

if TYPE_CHECKING:
    import pyarrow as pa

ROUNDING = 1e-6
"""Excess over 1 that a sum of probabilities may have."""


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
    missing = [column for column in COLUMNS if column not in table.column_names]
    if missing:
        raise InputError(
            f"{name} lacks the {name_columns(missing)} of interventions: found "
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
    thinned = metadata.get("thinned_from")
    arrays: dict[str, Any] = {column: _array(table, column, name) for column in COLUMNS}
    result = Interventions(
        **arrays,
        contexts={column: _as_in_a_log(table, column, name) for column in context},
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
    if column == "query":
        return _as_in_a_log(table, column, name)
    values = _values(table[column])
    kind: type[np.generic] = np.float64 if column == "exposure" else np.int64
    if values.dtype.kind not in "iuf" or (kind is np.int64 and np.any(values != np.floor(values))):
        raise InputError(f"{name}, column {column!r} holds {values.dtype}: expected {kind.__name__}; harvest again")
    if kind is np.int64 and values.dtype != np.int64 and np.any((values < -(2.0**63)) | (values >= 2.0**63)):
        raise InputError(f"{name}, column {column!r} holds infinite or huge numbers: expected int64; harvest again")
    return values.astype(kind)


def _as_in_a_log(table: pa.Table, column: str, name: str) -> NDArray[Any]:
    """Return queries as integers or texts, and contexts as numbers or texts: what reading a log makes of times, say."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values, is_context = table[column], column != "query"
    kind = values.type
    is_number = pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    if not (is_text or pa.types.is_integer(kind) or (is_context and is_number)):
        try:
            is_decimal = is_context and pa.types.is_decimal(kind)
            values = values.cast(pa.float64() if is_decimal else pa.string())
        except pa.ArrowException as error:
            message = f"{name}, column {column!r} is of type {kind}: expected one plain value per row, a number or text"
            raise InputError(message) from error
        if pa.types.is_temporal(kind):
            values = pc.replace_substring_regex(values, r"\.0+(Z?)$", r"\1")
    return _values(values)


def _values(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column; of texts that came as codes, every row has the one object of its text."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return as_array(column)
    coded = column.combine_chunks()
    texts = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
    codes = coded.indices.fill_null(len(texts) - 1) if coded.null_count else coded.indices
    decoded: NDArray[Any] = texts[as_array(pa.chunked_array([codes]))]
    return decoded


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
            f"{name} lacks the context {name_columns([*map(repr, missing)])} that its metadata name: found "
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
