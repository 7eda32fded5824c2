"""Ranking data from tables: a log with propensities, and the features of the documents that compete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.rank.columns import FeatureColumns
from clickharvest.rank.data import RankingData, ranking_data
from clickharvest.rank.features import Index
from clickharvest.words import clean_text, count, first_line, name_columns

if TYPE_CHECKING:
    import pyarrow as pa


def ranking_data_from_log(
    weighted: Any,
    documents: Any,
    *,
    query: str = "query",
    doc: str = "doc",
    click: str = "click",
    propensity: str = "propensity",
    offset: str | None = None,
    position: str | None = None,
    page: str | None = None,
    impressions: str | None = None,
    features: Sequence[str] | None = None,
) -> tuple[RankingData, pa.Table]:
    """Make ranking data from a log with propensities, as `clickharvest weigh` writes it, and a table of documents.

    A query's list is all its documents in the table of documents. The propensity of a document's clicks is ρ, which
    counts the pages of its query that did not show it, see `data`. Tables are Arrow tables, data frames, mappings of
    columns, or paths of Parquet files.

    Args:
        weighted: the log, one row per shown result.
        documents: one row per query and document, with its features.
        query: column of queries, in both tables.
        doc: column of documents, in both tables.
        click: column of clicks, 0/1 or counts.
        propensity: column of propensities; of affine clicks, that of slopes, `click_slope`.
        offset: column of offsets of affine clicks, `click_offset`; rows where it is empty are pages, but tell nothing.
        position: column of positions; with it, and without pages, a query was shown as often as its most shown
            position; with neither, as often as its most shown document.
        page: column of pages; with it, a query was shown as often as it has pages.
        impressions: column of impressions, where rows of the log are counts; one each by default.
        features: columns of the features; by default all further columns of the documents.

    Returns:
        The data, and a table of query and document in the order of its rows.

    Raises:
        InputError: columns are missing or empty, a document is twice in a list, or a click is on one not in the table.

    Example:
        >>> log = {"query": ["q", "q"], "doc": ["a", "b"], "click": [0, 1], "propensity": [1.0, 0.5]}
        >>> data, keys = ranking_data_from_log(log, {"query": ["q", "q"], "doc": ["b", "a"], "x": [0.7, 0.2]})
        >>> print(data)
        RankingData: 1 list of 1 query, 2 documents, 1 feature, 1 click
        >>> keys["doc"].to_pylist(), data.clicked.tolist(), data.propensity.tolist(), data.exposure.tolist()
        (['a', 'b'], [1], [0.5], [1.0, 0.5])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = (query, doc, click, propensity, offset, position, page, impressions)
    roles = [name for name in columns if name is not None]
    log = _table(weighted, "the log", roles)
    docs = _table(documents, "the table of documents", [query, doc, *(features or ())])
    refuse_nulls(log, (query, doc) if offset is not None else (query, doc, propensity), "the log")
    clicks = log[click].cast(pa.int64()) if pa.types.is_boolean(log[click].type) else log[click]
    shown = pa.array(np.ones(log.num_rows, np.int64)) if impressions is None else log[impressions]
    rows = pa.table(
        {
            "query": log[query],
            "doc": log[doc],
            "clicks": clicks if offset is None else pc.if_else(pc.is_valid(log[offset]), clicks, 0),
            "exposure": _times(log[propensity], shown),
            "n": shown,
            "place": log[position] if position is not None else log[doc],
        }
        | ({} if page is None else {"page": log[page]})
        | ({} if offset is None else {"shift": _times(log[offset], shown)})
    )
    sums = ["clicks", "exposure", *(["shift"] if offset is not None else [])]
    counts = rows.group_by(["query", "doc"]).aggregate([(name, "sum") for name in sums])
    if page is None:
        places = rows.group_by(["query", "place"]).aggregate([("n", "sum")])
        pages = places.group_by("query").aggregate([("n_sum", "max")])
    else:
        pages = rows.group_by("query").aggregate([("page", "count_distinct")])
    docs = docs.rename_columns([{query: "query", doc: "doc"}.get(name, name) for name in docs.column_names])
    names = list(features) if features else [name for name in docs.column_names if name not in ("query", "doc")]
    if not names:
        raise InputError("the table of documents has no column other than query and document: add features")
    refuse_nulls(docs, ("query", "doc"), "the table of documents")
    docs = docs.sort_by([("query", "ascending"), ("doc", "ascending")])
    keys = docs.select(["query", "doc"])
    refuse_twins(keys)
    for name in names:
        refuse_nulls(docs, (name,), "the table of documents")
    data = ranking_data_from_counts(
        counts.rename_columns(["query", "doc", *sums]),
        pages.rename_columns(["query", "pages"]),
        keys,
        FeatureColumns(tuple(names)).encode(docs),
    )
    return data, keys


def ranking_data_from_counts(counts: pa.Table, pages: pa.Table, keys: pa.Table, features: Any) -> RankingData:
    """Make ranking data from what a log counted; propensities are ρ = E / n.

    Args:
        counts: `query`, `doc`, their clicks C and exposure E; documents without a click too. Of affine clicks also
            their `shift` B.
        pages: `query`, and how many `pages` it had, n.
        keys: `query` and `doc` of every document that competes, once each, sorted.
        features: their features, [n_docs, F].
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = _starts(keys["query"])
    found = _joined(counts, numbered(keys), ["query", "doc"])
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
    lists = pa.table({"query": keys["query"].take(pa.array(starts[:-1])), "list": np.arange(len(starts) - 1)})
    shown = _joined(lists, pages, ["query"]).sort_by("list")["pages"].fill_null(0).to_numpy().astype(np.float64)
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


def _times(values: pa.ChunkedArray, shown: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values times impressions, 0 where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.multiply(values.cast(pa.float64()), shown.cast(pa.float64())), 0.0)


def _table(source: Any, name: str, columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(source, (str, Path)):
            table = pq.read_table(source)
        elif isinstance(source, Mapping):
            table = pa.table(dict(source))
        else:
            table = pa.table(source)
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as a table: {first_line(error)}") from error
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        raise InputError(f"{name} lacks the {name_columns(missing)}: found {', '.join(table.column_names)}")
    return table


def refuse_nulls(table: pa.Table, columns: Sequence[str], name: str) -> None:
    """Raise `InputError` where one of some columns is empty in some rows."""
    for column in columns:
        if table[column].null_count:
            raise InputError(
                f"{name}, column {column!r}: {table[column].null_count:,} rows are empty; fill or drop them"
            )


def _starts(sorted_values: pa.ChunkedArray) -> Index:
    import pyarrow.compute as pc

    runs = pc.run_end_encode(sorted_values.combine_chunks(), run_end_type="int64")
    return np.concatenate([[0], runs.run_ends.to_numpy()])


def _joined(left: pa.Table, right: pa.Table, on: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    try:
        return left.join(right, list(on), join_type="left outer")
    except pa.ArrowException as error:
        kinds = [", ".join(str(table[column].type) for column in on) for table in (left, right)]
        raise InputError(
            f"{', '.join(on)} cannot be compared: {kinds[0]} in one table, {kinds[1]} in the other; use the same types"
        ) from error
