"""Ranking data from files: a log with propensities, document features, and judgments.

A list holds the documents that compete. If most pages of a query show the same documents, they are one list. If the
documents change from page to page, as free rooms or goods in stock do, every page is a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.model.budget import Budget, budget_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.rank.columns import FeatureColumns
from clickharvest.rank.counting import clicked_pages, count_documents, pages_of_arms, sum_rows, weighed_rows
from clickharvest.rank.data import RankingData, ranking_data
from clickharvest.rank.documents import Documents, open_documents, open_keyed
from clickharvest.rank.estimates import ShownRanking
from clickharvest.rank.features import Array, Index
from clickharvest.weights.clipping import effective_sample_size, vanishing_clip
from clickharvest.weights.scoring import Trust
from clickharvest.words import count

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog

Missing = Literal["error", "drop"]
Lists = Literal["auto", "query", "page"]
Candidates = Literal["shown", "all"]

STEADY = 0.5
"""Share of the other pages of its query and ranker that show a result, from which lists are those of queries."""


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks and candidate documents of a log; `read_clicks` makes it.

    Attributes:
        log: the log.
        data: lists and clicks with propensities.
        keys: query and document of every row of the features.
        arms: the rankings as they were shown, by the name of their ranker; of all traffic where the log names none.
        features: names of the features.
        columns: how columns of the table of documents became features.
        unknown: clicks on documents that have no features, which were dropped.
        unsupported: share of the clicks at positions or in contexts without an estimate of their own; None where this
            is unknown.
        lists: whether documents of a `"query"` compete, or those of a `"page"`.
        steady: how likely a result of a page is on another page of its query and ranker.
        reason: why the error of the propensities has no bound; empty where it has one.
    """

    log: ClickLog
    data: RankingData
    keys: pa.Table
    arms: dict[str, ShownRanking]
    features: list[str]
    columns: FeatureColumns
    unknown: int = 0
    unsupported: float | None = None
    lists: Literal["query", "page"] = "query"
    steady: float = 1.0
    reason: str = ""

    @property
    def effective(self) -> float:
        """Effective sample size of the clicks, each weighted by its inverse propensity."""
        return effective_sample_size(1 / self.data.propensity, self.data.clicks)


def read_clicks(
    log: ClickLog,
    documents: Any,
    propensities: Propensities | AnyAffine | None = None,
    *,
    features: Sequence[str] | None = None,
    missing: Missing = "error",
    lists: Lists = "auto",
    candidates: Candidates = "shown",
    trust: Trust = "checked",
) -> Clicks:
    """Read the clicks of a log and the features of the documents that compete.

    The list of a query holds all its documents that the log showed; propensities count the pages without a document, as
    in `data`. The list of a page holds what that page showed; pages without a click are left out.

    Args:
        log: the log; clicks are counted inside its engine.
        documents: a path or table with the log's query and document columns and columns that become features, see
            `columns`; without a query column, features are those of the document for all queries. With the log's page
            column, they are those of the document on that page, such as its price on the day.
        propensities: the model, of examination or affine; None where the log has a column `propensity`, or the columns
            `click_slope` and `click_offset`, which `weigh` writes.
        features: columns to learn from; by default all but query and document.
        missing: what becomes of clicks on documents that are not in the table: `"error"` or `"drop"`.
        lists: whether the documents of a `"query"` compete or those of a `"page"`; `"auto"` takes pages where features
            are those of pages, or a result is on less than `STEADY` of the other pages of its query and ranker.
        candidates: `"shown"`, or `"all"` for all documents that the table has for the query or page: estimates then
            have the share of a ranking that was never shown.
        trust: as in `weigh`.

    Raises:
        InputError: columns are missing, or a click is on a document that is not in the table.
        NotIdentifiedError: the log has no click.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [0, 1]}
        >>> documents = pa.table({"query": ["q", "q", "q"], "doc": ["b", "a", "c"], "stars": [4.5, 3.0, 5.0]})
        >>> clicks = read_clicks(read_log(pa.table(shown | {"propensity": [1.0, 0.5]})), documents)
        >>> print(clicks.data, list(clicks.arms), clicks.features)
        RankingData: 1 list of 1 query, 2 documents, 1 feature, 1 click ['all traffic'] ['stars']
    """
    import pyarrow as pa

    if missing not in ("error", "drop"):
        raise InputError(f"missing is {missing!r}: expected 'error' or 'drop'")
    if lists not in ("auto", "query", "page"):
        raise InputError(f"lists is {lists!r}: expected 'auto', 'query' or 'page'")
    if candidates not in ("shown", "all"):
        raise InputError(f"candidates is {candidates!r}: expected 'shown' or 'all'")
    if lists == "page" and not log.has("page"):
        raise InputError("lists of pages need to know the page of every row: name its column (page)")
    rows, support_known = weighed_rows(log, propensities, trust)
    cells = log.engine.fetch(sum_rows(rows, ("query", "arm", "doc", "position")), task="Counting clicks")
    total = float(np.asarray(cells["clicks"]).sum())
    if not total:
        raise NotIdentifiedError("the log has no click, so there is nothing to learn from: add clicks")
    of_arms = pages_of_arms(log, cells)
    steady = _steadiness(cells, of_arms)
    opened = open_documents(log, documents, features)
    by_page = lists == "page" or "page" in opened.by or (lists == "auto" and log.has("page") and steady < STEADY)
    if by_page:
        cells = log.engine.fetch(sum_rows(clicked_pages(rows), ("query", "page", "arm", "doc")), task="Reading pages")
    keys = ("query", "page", "doc") if by_page else ("query", "doc")
    counts = count_documents(cells, keys)
    known = counts.join(opened.keys(), list(opened.by), join_type="left semi")
    dropped = total - float(np.asarray(known["clicks"]).sum())
    if missing == "drop" and dropped == total:
        raise NotIdentifiedError(f"no clicked document is in {opened.name}: are the names of documents the same?")
    counts = known if missing == "drop" else counts
    share = _unsupported(cells if missing == "error" else counts, total - dropped) if support_known else None
    of_documents = known.select(keys)
    if candidates == "all":
        of_documents = _all_candidates(of_documents, opened)
    of_documents = of_documents.sort_by([(name, "ascending") for name in keys])
    release_memory()
    features_of = opened.matrix(of_documents)
    if by_page:
        pages = of_documents.group_by(["query", "page"]).aggregate([])
        pages = pages.append_column("pages", pa.array(np.ones(pages.num_rows)))
    else:
        pages = of_arms.group_by("query").aggregate([("pages", "sum")]).rename_columns(["query", "pages"])
    data = ranking_data_from_counts(counts.drop_columns(["unsupported"]), pages, of_documents, features_of)
    budget = budget_of(propensities) if isinstance(propensities, Propensities) else None
    if isinstance(propensities, Propensities) and budget is not None and not budget.reason:
        data = replace(data, bounds=_bounds(cells, propensities, budget, trust, of_documents, data))
    arms = _arms(cells, of_arms, data, of_documents)
    names, unknown = list(opened.columns.names), round(dropped) if missing == "drop" else 0
    return Clicks(
        log, data, of_documents, arms, names, opened.columns, unknown, share, "page" if by_page else "query", steady,
        "" if budget is None else budget.reason,
    )  # fmt: skip


def _all_candidates(shown: pa.Table, opened: Documents) -> pa.Table:
    """Return the keys of all documents that a table has for the queries or pages of those shown."""
    if opened.by == ("doc",):
        raise InputError(f"{opened.name} has no column of queries or pages, which say which documents compete: add one")
    *lists, _ = shown.column_names
    of_list = shown.group_by(lists).aggregate([])
    return of_list.join(opened.keys(), opened.by[0], join_type="inner").select(shown.column_names)


def _steadiness(cells: pa.Table, of_arms: pa.Table) -> float:
    """Return how likely a result of a page is on another page of the same query and ranker; 1 where none has two."""
    shown = cells.group_by(["query", "arm", "doc"]).aggregate([("n", "sum")]).join(of_arms, ["query", "arm"])
    n, pages = np.asarray(shown["n_sum"]), np.asarray(shown["pages"])
    others = float((n * np.maximum(pages - 1, 0)).sum())
    return float((n * (np.minimum(n, pages) - 1)).sum()) / others if others else 1.0


def _bounds(
    cells: pa.Table, model: Propensities, budget: Budget, trust: Trust, keys: pa.Table, data: RankingData
) -> tuple[Array, Array]:
    """Return the least and the largest propensity of every record by the budget of the model, around its estimate."""
    import pyarrow as pa

    position, exposure, n = (np.asarray(cells[name]) for name in ("position", "exposure", "n"))
    above = np.searchsorted(budget.positions, position, side="right") - 1
    ends = ((budget.down, 1.0), (budget.up, np.inf))
    down, up = (np.where(above >= 0, np.array([*side, 0.0])[above], end) for side, end in ends)
    anchor = position == model.curve.anchor
    estimate = exposure * (_clipped_by(model, position) if trust == "checked" else 1.0)
    # At most one examination per display; at least so many that no single click outweighs all others.
    least = np.maximum(estimate * np.where(anchor, 1, 1 - down), n * vanishing_clip(float(data.clicks.sum())))
    most = np.minimum(estimate * np.where(anchor, 1, 1 + up), n)
    names = keys.column_names
    sides = {"exposure": exposure, "least": np.minimum(least, exposure), "most": np.maximum(most, exposure)}
    table = pa.table({name: cells[name] for name in names} | sides)
    sums = table.group_by(names).aggregate([(name, "sum") for name in sides])
    joined = numbered(keys).join(sums, names, join_type="left outer").sort_by("row_of_document")
    estimated, *both = (np.asarray(joined[f"{name}_sum"])[data.clicked] for name in sides)
    return data.propensity * both[0] / estimated, data.propensity * both[1] / estimated


def _clipped_by(model: Propensities, position: Array) -> Array:
    """Return the estimate at positions over what weights are clipped to there, in a typical context."""
    prediction = model.predict_encoded(typical_context(model))
    ratio = np.nan_to_num(prediction.propensity / prediction.clipped(), nan=1.0)[0]
    at = np.minimum(np.searchsorted(prediction.positions, position), len(ratio) - 1)
    return np.where(np.asarray(prediction.positions)[at] == position, ratio[at], 1.0)


def _unsupported(counts: pa.Table, clicks: float) -> float:
    """Return the share of unsupported clicks; of affine clicks, `clicks` counts the supported ones alone."""
    unsupported = float(np.asarray(counts["unsupported"]).sum())
    return unsupported / (clicks + unsupported * ("shift" in counts.column_names))


def _arms(cells: pa.Table, of_arms: pa.Table, data: RankingData, keys: pa.Table) -> dict[str, ShownRanking]:
    """Return where every arm showed the documents, as shares of its pages; on a list of one page, in their order."""
    if "page" in keys.column_names:
        joined = numbered(keys).join(cells, keys.column_names, join_type="inner").sort_by("row_of_document")
        share = np.ones(joined.num_rows)
    else:
        cells = cells.join(of_arms, ["query", "arm"])
        joined = numbered(keys).join(cells, keys.column_names, join_type="inner").sort_by("row_of_document")
        share = np.minimum(np.asarray(joined["n"]) / np.asarray(joined["pages"]), 1.0)
    row, position = np.asarray(joined["row_of_document"]), np.asarray(joined["position"]).astype(np.float64)
    of_list = np.searchsorted(data.starts, row, side="right") - 1
    if "page" in keys.column_names:
        # Positions of what is not on the list, such as advertisements, are left out.
        order = np.lexsort((position, of_list))
        position[order] = np.arange(len(row)) - np.searchsorted(of_list, of_list) + 1.0
    coded = joined["arm"].combine_chunks().dictionary_encode()
    arm = np.asarray(coded.indices)
    return {
        name: ShownRanking(
            row[is_arm], position[is_arm], share[is_arm], np.bincount(of_list[is_arm], minlength=len(data)) > 0
        )
        for name, code in sorted((name, code) for code, name in enumerate(coded.dictionary.to_pylist()))
        if (is_arm := arm == code).any()
    }


def release_memory() -> None:
    """Return Arrow's unused memory: its joins keep about as much as a matrix of features takes."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def read_grades(clicks: Clicks, source: Any) -> Array:
    """Return the grade of every document of the lists, 0 where none is given.

    Args:
        clicks: the clicks, with the documents.
        source: a path or table with the log's query and document columns and a column `grade`.

    Raises:
        InputError: columns are missing, grades are not numbers, or a document is judged twice.
    """
    import pyarrow as pa

    opened, engine, _, name = open_keyed(clicks.log, source, ["grade"])
    table = engine.fetch(opened.select("query", "doc", "grade"), task=f"Reading {name}")
    kind = table["grade"].type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InputError(f"{name}, column 'grade' holds {kind}: expected numbers of 0 or more")
    if table.group_by(["query", "doc"]).aggregate([]).num_rows < table.num_rows:
        raise InputError(f"{name} judges some query and document twice: expected one row for each")
    judged = _joined(numbered(clicks.keys), table, ["query", "doc"]).sort_by("row_of_document")
    return np.asarray(judged["grade"].fill_null(0).to_numpy(), np.float64)


def _joined(left: pa.Table, right: pa.Table, on: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    try:
        return left.join(right, list(on), join_type="left outer")
    except pa.ArrowException as error:
        kinds = [", ".join(str(table[column].type) for column in on) for table in (left, right)]
        raise InputError(
            f"{', '.join(on)} cannot be compared: {kinds[0]} in one table, {kinds[1]} in the other; use the same types"
        ) from error


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
    joined = _joined(counts, numbered(keys), keys.column_names)
    unknown = joined.filter(pc.and_(pc.is_null(joined["row_of_document"]), pc.greater(joined["clicks"], 0)))
    if unknown.num_rows:
        raise InputError(
            f"{count(unknown.num_rows, 'clicked document is', 'clicked documents are')} not in the table of documents: "
            "add them, or drop their clicks (--missing drop)"
        )
    joined = joined.filter(pc.is_valid(joined["row_of_document"])).sort_by("row_of_document")
    row, clicks, exposed = (np.asarray(joined[name]) for name in ("row_of_document", "clicks", "exposure"))
    exposure = np.zeros(keys.num_rows)
    exposure[row] = exposed
    lists = keys.select(of_list).take(pa.array(starts[:-1])).append_column("list", pa.array(np.arange(len(starts) - 1)))
    shown = _joined(lists, pages, of_list).sort_by("list")["pages"].fill_null(0).to_numpy().astype(np.float64)
    shift = np.asarray(joined["shift"]) if "shift" in joined.column_names else None
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


def _starts(lists: pa.Table) -> Index:
    """Return where each list starts, and the end of the last, of rows sorted by list."""
    changed = np.ones(lists.num_rows, np.bool_)
    codes = np.stack([np.asarray(column.combine_chunks().dictionary_encode().indices) for column in lists.columns])
    changed[1:] = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
    return np.append(np.flatnonzero(changed), lists.num_rows)


def numbered(keys: pa.Table) -> pa.Table:
    """Return keys with the number of their row, `row_of_document`."""
    import pyarrow as pa

    return keys.append_column("row_of_document", pa.array(np.arange(keys.num_rows)))
