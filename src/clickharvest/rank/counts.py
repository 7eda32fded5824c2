"""Ranking data from what a log counted: the documents of a list together, and the clicks on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.rank.data import RankingData, ranking_data
from clickharvest.rank.features import Index
from clickharvest.words import clean_text, count

if TYPE_CHECKING:
    import pyarrow as pa


def ranking_data_from_counts(counts: pa.Table, pages: pa.Table, keys: pa.Table, features: Any) -> RankingData:
    """Make ranking data from what a log counted; propensities are ρ = E / n.

    Args:
        counts: `query`, `doc`, their clicks C and exposure E; documents without a click too. Of affine clicks also
            their `shift` B.
        pages: `query`, and how many `pages` it had, n.
        keys: `query` and `doc` of every document that competes, once each, sorted. Where lists are those of pages, all
            three tables have a column `page` beside `query`.
        features: their features, [n_docs, F].
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    *of_list, _ = keys.column_names
    starts = _starts(keys.select(of_list))
    found = _joined(counts, numbered(keys), keys.column_names)
    unknown = found.filter(pc.and_(pc.is_null(found["row_of_document"]), pc.greater(found["clicks"], 0)))
    if unknown.num_rows:
        raise InputError(
            f"{count(unknown.num_rows, 'clicked document is', 'clicked documents are')} not in the table of documents: "
            "add them, or drop their clicks (--missing drop)"
        )
    found = found.filter(pc.is_valid(found["row_of_document"])).sort_by("row_of_document")
    row, clicks, exposed = (np.asarray(found[name]) for name in ("row_of_document", "clicks", "exposure"))
    exposure = np.zeros(keys.num_rows)
    exposure[row] = exposed
    lists = keys.select(of_list).take(pa.array(starts[:-1])).append_column("list", pa.array(np.arange(len(starts) - 1)))
    shown = _joined(lists, pages, of_list).sort_by("list")["pages"].fill_null(0).to_numpy().astype(np.float64)
    shift = np.asarray(found["shift"]) if "shift" in found.column_names else None
    clicked = clicks > 0 if shift is None else exposed > 0
    rows = row[clicked]
    per_page = exposure[rows] / shown[np.searchsorted(starts, rows, side="right") - 1]
    return ranking_data(
        features,
        starts,
        rows,
        per_page,
        clicks=clicks[clicked],
        query=np.asarray(lists["query"].combine_chunks().dictionary_encode().indices),
        impressions=shown,
        exposure=exposure,
        shift=None if shift is None else shift[clicked],
    )


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


def numbered(keys: pa.Table) -> pa.Table:
    """Return keys with the number of their row, `row_of_document`."""
    import pyarrow as pa

    return keys.append_column("row_of_document", pa.array(np.arange(keys.num_rows)))


def refuse_nulls(table: pa.Table, columns: Sequence[str], name: str) -> None:
    """Raise `InputError` where one of some columns is empty in some rows."""
    for column in columns:
        if table[column].null_count:
            raise InputError(
                f"{name}, column {column!r}: {table[column].null_count:,} rows are empty; fill or drop them"
            )


def _starts(lists: pa.Table) -> Index:
    """Return where each list starts, and the end of the last, of rows sorted by list."""
    changed = np.ones(lists.num_rows, np.bool_)
    codes = np.stack([np.asarray(column.combine_chunks().dictionary_encode().indices) for column in lists.columns])
    changed[1:] = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
    return np.append(np.flatnonzero(changed), lists.num_rows)


def _joined(left: pa.Table, right: pa.Table, on: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    try:
        return left.join(right, list(on), join_type="left outer")
    except pa.ArrowException as error:
        kinds = [", ".join(str(table[column].type) for column in on) for table in (left, right)]
        raise InputError(
            f"{', '.join(on)} cannot be compared: {kinds[0]} in one table, {kinds[1]} in the other; use the same types"
        ) from error
