"""Document features: a table that is read into one matrix, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.rank.columns import FeatureColumns, find_columns
from clickharvest.rank.features import Index
from clickharvest.words import clean_text

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

ROWS = 25_000
"""Rows that are read at a time."""


@dataclass(frozen=True, eq=False)
class Documents:
    """An open table of documents with features; `open_documents` makes it.

    Attributes:
        table: the keys and the columns.
        engine: the engine of the table.
        by: the keys: `("query", "doc")`, `("doc",)` where features are the same for all queries, or `("page", "doc")`.
        columns: how its columns become features.
        name: what it is called in messages.
    """

    table: ir.Table
    engine: Engine
    by: tuple[str, ...]
    columns: FeatureColumns
    name: str

    def keys(self) -> pa.Table:
        """Return the keys of all documents, once each."""
        keys = self.engine.fetch(self.table.select(*self.by), task=f"Reading keys of {self.name}")
        refuse_nulls(keys, self.by, "the table of documents")
        refuse_twins(keys)
        return keys

    def matrix(self, keys: pa.Table) -> Any:
        """Return the features of some documents in the order of their keys, an array or CSR array, [n, F].

        Args:
            keys: `query`, `doc`, and `page` if it is a key; all of them are in the table.
        """
        import pyarrow as pa
        from scipy.sparse import csr_array, vstack

        places = _Places.of(keys, self.by)
        wanted = self.table.select(*self.by, *self.columns.columns)
        rows, parts = [np.zeros(0, np.int64)], []
        dense: Any = None
        if not self.columns.is_sparse:
            kind = np.float32 if self.columns.single else np.float64
            dense = np.empty((keys.num_rows, len(self.columns.names)), kind)
        for batch in self.engine.stream(wanted, task=f"Reading {self.name}", rows=ROWS):
            at, of = places.find(batch)
            features = self.columns.encode(batch if len(of) == batch.num_rows else batch.take(pa.array(of)), self.name)
            if dense is not None:
                dense[at] = features
            else:
                rows.append(at)
                parts.append(features)
        if dense is not None or not parts:
            return dense if dense is not None else csr_array((0, len(self.columns.names)))
        return csr_array(vstack(parts, format="csr"))[np.argsort(np.concatenate(rows))]


@dataclass(frozen=True, eq=False)
class _Places:
    """The rows of documents in the matrix. A join inside the engine might hold all features in memory.

    Attributes:
        by: the keys.
        names: the values of each key, once each.
        codes: the code of every row's keys, ascending, [n].
        rows: these rows, [n].
    """

    by: tuple[str, ...]
    names: tuple[pa.Array, ...]
    codes: Index
    rows: Index

    @classmethod
    def of(cls, keys: pa.Table, by: tuple[str, ...]) -> _Places:
        names = tuple(keys[key].combine_chunks().unique() for key in by)
        codes = _code(keys, by, names)
        rows = np.argsort(codes, kind="stable")
        return cls(by, names, codes[rows], rows)

    def find(self, batch: pa.RecordBatch) -> tuple[Index, Index]:
        """Return rows of the matrix, and the row of the batch that goes into each."""
        code = _code(batch, self.by, self.names)
        first, last = (np.searchsorted(self.codes, code, side=side) for side in ("left", "right"))
        of = np.repeat(np.arange(len(code)), last - first)
        within = np.arange(len(of)) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
        return self.rows[first[of] + within], of


def _code(table: pa.Table | pa.RecordBatch, by: tuple[str, ...], names: tuple[pa.Array, ...]) -> Index:
    """Return one number for the keys of each row, −1 where one of them is unknown."""
    import pyarrow.compute as pc

    code = np.zeros(table.num_rows, np.int64)
    known = np.ones(table.num_rows, bool)
    for key, values in zip(by, names, strict=True):
        column = table[key]
        if column.type != values.type:
            column = column.cast(values.type)
        place = np.asarray(pc.fill_null(pc.index_in(column, values), -1))
        known &= place >= 0
        code = code * len(values) + place
    return np.where(known, code, -1)


def open_documents(log: ClickLog, source: Any, features: Sequence[str] | None = None) -> Documents:
    """Open a table of documents, with keys under the names and of the types of a log.

    Args:
        log: the log.
        source: a path or table with the log's document column, its query column unless features are the same for all
            queries, or its page column where they change from page to page, and the columns of the features.
        features: columns of the features; by default all but query, page and document.

    Raises:
        InputError: columns are missing or cannot be features.
    """
    opened, engine, by, name = open_keyed(log, source, list(features or ()), alone=True)
    names = list(features or [column for column in opened.columns if column not in ("query", *by)])
    if not names:
        raise InputError(f"{name} has no column other than {' and '.join(by)}: add features")
    return Documents(opened.select(*by, *names), engine, by, find_columns(opened, engine, names, name), name)


def open_keyed(
    log: ClickLog, source: Any, needed: Sequence[str], *, alone: bool = False
) -> tuple[ir.Table, Engine, tuple[str, ...], str]:
    """Open a table whose keys are a log's queries and documents.

    Args:
        log: the log.
        source: a path or table.
        needed: further columns that it must have.
        alone: whether its keys may be documents alone, or documents of pages.

    Returns:
        The table, its keys as `query` and `doc` and of the log's types; its engine; its keys; its name in messages.
    """
    from clickharvest.logs.click_log import identifier
    from clickharvest.logs.sources import open_source
    from clickharvest.words import spell_columns

    spelled = {role: log.roles[role] for role in ("query", "doc")}
    paged = {"page": log.roles["page"]} if alone and log.has("page") else {}
    opened, engine = open_source(source, log.engine, text={*spelled.values(), *paged.values()})
    name = str(source) if isinstance(source, str) else "the table"
    if paged.get("page") in opened.columns:
        spelled = paged | {"doc": spelled["doc"]}
    elif alone and spelled["query"] not in opened.columns:
        del spelled["query"]
    if missing := [column for column in (*spelled.values(), *needed) if column not in opened.columns]:
        columns = spell_columns(opened.columns)
        raise InputError(
            f"{name} lacks the column{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}: found {columns}"
        )
    keys = {role: identifier(opened[column], log.columns[role].type()) for role, column in spelled.items()}
    more = [column for column in opened.columns if column not in spelled.values()]
    if clash := [column for column in more if column in keys]:
        raise InputError(f"{name} has both {clash[0]!r} and {spelled[clash[0]]!r}: rename the former or leave it out")
    return opened.select(**keys, **{column: opened[column] for column in more}), engine, tuple(spelled), name


def refuse_twins(keys: pa.Table) -> None:
    """Raise `InputError` where a table of keys holds one of them twice."""
    if keys.group_by(keys.column_names).aggregate([]).num_rows < keys.num_rows:
        counts = keys.group_by(keys.column_names).aggregate([([], "count_all")])
        ordered = counts.sort_by([("count_all", "descending"), *((name, "ascending") for name in keys.column_names)])
        (most,) = ordered.slice(0, 1).to_pylist()
        twice = " and ".join({"doc": "document"}.get(name, name) for name in keys.column_names)
        example = ", ".join(repr(clean_text(most[name])) for name in keys.column_names)
        raise InputError(
            f"the table of documents holds some {twice} twice ({example} {most['count_all']} times): expected one row "
            "for each"
        )


def refuse_nulls(table: pa.Table, columns: Sequence[str], name: str) -> None:
    """Raise `InputError` where one of some columns is empty in some rows."""
    for column in columns:
        if table[column].null_count:
            raise InputError(
                f"{name}, column {column!r}: {table[column].null_count:,} rows are empty; fill or drop them"
            )
