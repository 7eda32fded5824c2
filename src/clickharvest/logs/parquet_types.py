"""Parquet files that are read together: which of their columns differ in type, and which type holds all values.

Engines take the types of one file, and some round the others' numbers to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clickharvest.errors import InputError
from clickharvest.words import first_line

WHOLE = ("int8", "int16", "int32", "int64")
NUMBERS = (*WHOLE, "double")
WIDENINGS = (
    NUMBERS,
    ("uint8", "uint16", "uint32", "uint64"),
    ("float", "double"),
    ("timestamp[ms]", "timestamp[us]", "timestamp[ns]"),
    ("timestamp[ms] with zone", "timestamp[us] with zone", "timestamp[ns] with zone"),
)
"""Types whose values the later ones hold, too; double holds those of int64 up to `EXACT`."""
NOT_ON_SPARK = ("int64", "double"), ("null", "string")
"""Types of which Spark cannot read the former as the latter."""
EXACT = 2**53
"""Whole numbers up to this one are the same as doubles."""


def find_common_types(files: Sequence[Path], *, spark: bool = False) -> dict[str, str]:
    """Return the columns that differ in type between Parquet files, and for each the type that holds all values.

    Args:
        files: the files, whose footers are read.
        spark: whether Spark will read them.

    Raises:
        InputError: no type holds the values of two files, or a file is no Parquet.
    """
    common: dict[str, str] = {}
    for column, files_of in _types_of_columns(files).items():
        if len(files_of) == 1:
            continue
        names = [name for name in files_of if name != "null"]
        clash = next((pair for pair in combinations(names, 2) if not _chains(pair)), None)
        if {"int64", "double"} <= set(names) and not all(_is_exact(file, column) for file in files_of["int64"]):
            clash = ("int64", "double")
        if spark:
            clash = next((pair for pair in NOT_ON_SPARK if set(pair) <= set(files_of)), clash)
        if clash:
            told = " and ".join(f"{name} in {files_of[name][0]}" for name in clash)
            raise InputError(f"the column {column!r} is {told}: write it with one type in all files")
        common[column] = max(names, key=_chains(names)[0].index) if names[1:] else names[0]
    return common


def _chains(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [chain for chain in WIDENINGS if set(names) <= set(chain)]


def _types_of_columns(files: Sequence[Path]) -> dict[str, dict[str, list[Path]]]:
    """Return the files by type by column; what records and lists hold are columns, too, such as `items.element.id`."""
    found: dict[str, dict[str, list[Path]]] = {}
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"the file {file} cannot be read as Parquet: {first_line(error)}") from error
        for field in schema:
            for column, name in _leaves(field.name.lower(), field.type):
                found.setdefault(column, {}).setdefault(name, []).append(file)
    return found


def _leaves(name: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    if pa.types.is_nested(kind):
        for field in (kind.field(i) for i in range(kind.num_fields)):
            yield from _leaves(f"{name}.{field.name}", field.type)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(name, kind.value_type)
    elif pa.types.is_timestamp(kind):
        yield name, f"timestamp[{kind.unit}]" + " with zone" * (kind.tz is not None)
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        yield name, "string"
    else:
        yield name, str(kind)


def _is_exact(file: Path, column: str) -> bool:
    """Whether a file's statistics tell that all whole numbers of a column are exact as doubles."""
    metadata = pq.read_metadata(file)
    places = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path.lower() == column]
    parts = [metadata.row_group(group).column(i).statistics for group in range(metadata.num_row_groups) for i in places]
    return bool(places) and all(
        part is not None and (not part.num_values or (part.has_min_max and -EXACT <= part.min <= part.max <= EXACT))
        for part in parts
    )
