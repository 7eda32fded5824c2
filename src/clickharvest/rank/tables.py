"""Clicks for rankers from files: a log with propensities, document features, and judgements where there are some.

A list holds the documents that compete. Where a query shows the same documents on most of its pages, one list of the
query holds all of them, and its clicks share it. Where they change from page to page, as rooms that are free or goods
in stock do, every page is a list of its own: documents of other days did not compete with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from clickharvest.click_models.affine import correct_log
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs.engines import steady
from clickharvest.model.budget import CANNOT_TELL, Budget, budget_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.rank.columns import FeatureColumns
from clickharvest.rank.counts import numbered, ranking_data_from_counts
from clickharvest.rank.data import RankingData
from clickharvest.rank.documents import Documents, open_documents, open_keyed
from clickharvest.rank.features import Array
from clickharvest.rank.shown import ShownRanking
from clickharvest.weights.clipping import effective_sample_size, vanishing_clip
from clickharvest.weights.scoring import Trust
from clickharvest.weights.weighing import weigh

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog

Missing = Literal["error", "drop"]
Lists = Literal["auto", "query", "page"]
Candidates = Literal["shown", "all"]

ALL_TRAFFIC = "all traffic"
"""The name of what was shown, where the log names no rankers."""
STEADY = 0.5
"""Share of the other pages of its query and ranker that show a result, from which lists are those of queries."""


@dataclass(frozen=True, eq=False)
class Clicks:
    """What a log tells rankers; `read_clicks` makes it.

    Attributes:
        log: the log.
        data: lists and clicks with propensities.
        keys: query and document of every row of the features.
        arms: the rankings as they were shown, by the name of their ranker; of all traffic where the log names none.
        features: names of the features.
        columns: how columns of the table of documents became features.
        unknown: clicks on documents that have no features, which were dropped.
        unsupported: share of the clicks at positions, or in contexts, that the model has no estimate of its own for;
            None where the log does not tell.
        lists: whether documents of a `"query"` compete, or those of a `"page"`.
        steady: how likely a result of a page is on another page of its query and ranker.
        reason: why the budget of the model tells nothing of its propensities; empty where it does.
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

    The list of a query holds all its documents that the log showed, at least once. The others are left out: a document
    that nobody could click must not count as one that nobody wanted. One that some pages showed is judged by these
    alone: propensities count the pages without it, see `data`. The list of a page holds what that page showed; pages
    without a click are left out, since they do not tell which of their documents is better.

    Args:
        log: the log; clicks are counted inside its engine.
        documents: a path or table with the log's query and document columns and columns that become features, see
            `columns`; without a query column, features are those of the document for all queries. With the log's page
            column, they are those of the document on that page, such as its price on the day.
        propensities: the model, of examination or affine; None where the log has a column `propensity`, or the columns
            `click_slope` and `click_offset`, as `weigh` writes them.
        features: columns to learn from; by default all but query and document.
        missing: what becomes of clicks on documents that are not in the table: `"error"` or `"drop"`.
        lists: whether the documents of a `"query"` compete or those of a `"page"`; `"auto"` takes pages where features
            are those of pages, or a result is on less than `STEADY` of the other pages of its query and ranker.
        candidates: `"shown"`, or `"all"` for all documents that the table has for the query or page: estimates then
            tell how much of a ranking was never shown.
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
    rows, is_told = _weighed_rows(log, propensities, trust)
    cells = log.engine.fetch(_sums(rows, ("query", "arm", "doc", "position")), task="Counting clicks")
    total = float(np.asarray(cells["clicks"]).sum())
    if not total:
        raise NotIdentifiedError("the log has no click, so there is nothing to learn from: add clicks")
    of_arms = pages_of_arms(log, cells)
    steady = _steadiness(cells, of_arms)
    opened = open_documents(log, documents, features)
    by_page = lists == "page" or "page" in opened.by or (lists == "auto" and log.has("page") and steady < STEADY)
    if by_page:
        cells = log.engine.fetch(_sums(_clicked_pages(rows), ("query", "page", "arm", "doc")), task="Reading pages")
    keys = ("query", "page", "doc") if by_page else ("query", "doc")
    counts = count_documents(cells, keys)
    known = counts.join(opened.keys(), list(opened.by), join_type="left semi")
    dropped = total - float(np.asarray(known["clicks"]).sum())
    if missing == "drop" and dropped == total:
        raise NotIdentifiedError(f"no clicked document is in {opened.name}: are the names of documents the same?")
    counts = known if missing == "drop" else counts
    share = _unsupported(cells if missing == "error" else counts, total - dropped) if is_told else None
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
        raise InputError(f"{opened.name} does not tell which documents compete: add a column of queries or of pages")
    *lists, _ = shown.column_names
    of_list = shown.group_by(lists).aggregate([])
    return of_list.join(opened.keys(), opened.by[0], join_type="inner").select(shown.column_names)


def _steadiness(cells: pa.Table, of_arms: pa.Table) -> float:
    """Return how likely a result of a page is on another page of the same query and ranker; 1 where none has two."""
    shown = cells.group_by(["query", "arm", "doc"]).aggregate([("n", "sum")]).join(of_arms, ["query", "arm"])
    n, pages = np.asarray(shown["n_sum"]), np.asarray(shown["pages"])
    others = float((n * np.maximum(pages - 1, 0)).sum())
    return float((n * (np.minimum(n, pages) - 1)).sum()) / others if others else 1.0


def _clicked_pages(rows: ir.Table) -> ir.Table:
    """Return the rows of pages with a click; of corrected clicks all rows, as those without a click count as well."""
    if "offset" in rows.columns:
        return rows
    clicked = rows.filter(rows.clicks > 0).select("query", "page").distinct()
    return rows.semi_join(clicked, ["query", "page"])


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
    # Nothing is seen more often than it is shown, nor so rarely that a single click would outweigh all others.
    least = np.maximum(estimate * np.where(anchor, 1, 1 - down), n * vanishing_clip(float(data.clicks.sum())))
    most = np.minimum(estimate * np.where(anchor, 1, 1 + up), n)
    names = keys.column_names
    sides = {"exposure": exposure, "least": np.minimum(least, exposure), "most": np.maximum(most, exposure)}
    table = pa.table({name: cells[name] for name in names} | sides)
    sums = table.group_by(names).aggregate([(name, "sum") for name in sides])
    joined = numbered(keys).join(sums, names, join_type="left outer").sort_by("row_of_document")
    own, *both = (np.asarray(joined[f"{name}_sum"])[data.clicked] for name in sides)
    return data.propensity * both[0] / own, data.propensity * both[1] / own


def _clipped_by(model: Propensities, position: Array) -> Array:
    """Return the estimate at positions over what weights are clipped to there, in a typical context."""
    found = model.predict_encoded(typical_context(model))
    ratio = np.nan_to_num(found.propensity / found.clipped(), nan=1.0)[0]
    at = np.minimum(np.searchsorted(found.positions, position), len(ratio) - 1)
    return np.where(np.asarray(found.positions)[at] == position, ratio[at], 1.0)


def _unsupported(counts: pa.Table, clicks: float) -> float:
    """Return the share of unsupported clicks; those of affine clicks are not among the others."""
    unsupported = float(np.asarray(counts["unsupported"]).sum())
    return unsupported / (clicks + unsupported * ("shift" in counts.column_names))


def pages_of_arms(log: ClickLog, cells: pa.Table) -> pa.Table:
    """Return the pages of every query and arm: counted if there is a page column, else as its most shown position."""
    from clickharvest.logs.click_log import identifier

    if log.has("page"):
        query = identifier(log.table.query, log.table.query.type())
        t = log.table.mutate(query=query, arm=_arm(log.table.ranker if log.has("ranker") else None))
        return log.engine.fetch(
            t.group_by(["query", "arm"]).agg(pages=t.page.nunique().cast("float64")), task="Counting pages"
        )
    places = cells.group_by(["query", "arm", "position"]).aggregate([("n", "sum")])
    return places.group_by(["query", "arm"]).aggregate([("n_sum", "max")]).rename_columns(["query", "arm", "pages"])


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
        # Places of what is not on the list, such as advertisements, are nobody's.
        order = np.lexsort((position, of_list))
        position[order] = np.arange(len(row)) - np.searchsorted(of_list, of_list) + 1.0
    coded = joined["arm"].combine_chunks().dictionary_encode()
    arm = np.asarray(coded.indices)
    return {
        name: ShownRanking(row[own], position[own], share[own], np.bincount(of_list[own], minlength=len(data)) > 0)
        for name, code in sorted((name, code) for code, name in enumerate(coded.dictionary.to_pylist()))
        if (own := arm == code).any()
    }


def release_memory() -> None:
    """Give back what Arrow keeps for later: its joins leave about as much as a matrix of features takes."""
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
    return np.asarray(_joined(clicks.keys, table)["grade"].fill_null(0).to_numpy(), np.float64)


def document_cells(log: ClickLog, model: Propensities | AnyAffine | None) -> tuple[ir.Table, bool]:
    """Return clicks, exposure and impressions of every query, arm, document and position, not yet run.

    And whether it is known which clicks the model supports.
    """
    rows, told = _weighed_rows(log, model, "checked")
    return _sums(rows, ("query", "arm", "doc", "position")), told


def _weighed_rows(log: ClickLog, model: Propensities | AnyAffine | None, trust: Trust) -> tuple[ir.Table, bool]:
    """Return the rows of a log with their propensities, and whether it is known which of them the model supports."""
    import ibis

    from clickharvest.logs.click_log import identifier

    if model is None:
        of = {name: log.columns[name] for name in ("position", "clicks", "impressions")}
        of |= {name: identifier(log.columns[name], log.columns[name].type()) for name in ("query", "doc")}
        of |= {"page": identifier(log.columns["page"], log.columns["page"].type())} if log.has("page") else {}
        of["arm"] = _arm(log.columns.get("ranker"))
        source, names = log.source, _known_columns(log)
    else:
        source = weigh(log, model, trust=trust).table if isinstance(model, Propensities) else correct_log(log, model)[0]
        names = WEIGHED if isinstance(model, Propensities) else CORRECTED
        of = {role: identifier(source[log.roles[role]], log.columns[role].type()) for role in ("query", "doc")}
        of["clicks"] = source[log.roles["click" if "click" in log.roles else "clicks"]].cast("int64")
        of["impressions"] = ibis.literal(1)
        if "impressions" in log.roles:
            of["impressions"] = source[log.roles["impressions"]].cast("int64")
        of["position"] = source[log.roles["position"]].cast("int64") + (1 - log.position_base)
        of["arm"] = _arm(source[log.roles["ranker"]] if log.has("ranker") else None)
        if log.has("page"):
            of["page"] = identifier(source[log.roles["page"]], log.columns["page"].type())
    told = names.supported in source.columns
    of["supported"] = ibis.literal(True)
    if told and names.offset is None:
        of["supported"] = source[names.supported] != CANNOT_TELL
    elif told:
        of["supported"] = source[names.supported].cast("boolean")
    of["propensity"] = source[names.propensity].cast("float64")
    if names.offset is not None:
        of["offset"] = source[names.offset].cast("float64")
        of["supported"] = of["supported"] & of["offset"].notnull() & of["propensity"].notnull()
    rows = source.select(**of)
    return rows.filter(rows.impressions > 0), told


def _sums(rows: ir.Table, by: Sequence[str]) -> ir.Table:
    """Return clicks, exposure, displays `n` and unsupported clicks of groups of rows; the position, if not a key, too.

    Of affine clicks also their shift; what is shown where the model tells nothing counts among displays alone, and its
    clicks as unsupported.
    """
    sums = {"clicks": rows.clicks, "exposure": rows.propensity * rows.impressions}
    if "offset" in rows.columns:
        sums |= {"shift": rows.offset * rows.impressions}
        sums = {name: rows.supported.ifelse(value, 0) for name, value in sums.items()}
    return rows.group_by(list(by)).agg(
        **{name: value.sum().cast("float64") for name, value in sums.items()},
        **({} if "position" in by else {"position": rows.position.min()}),
        n=rows.impressions.sum().cast("float64"),
        unsupported=rows.supported.ifelse(0, rows.clicks).sum().cast("float64"),
    )


def count_documents(cells: pa.Table, keys: Sequence[str] = ("query", "doc")) -> pa.Table:
    """Return sums by query and document, or other keys: clicks, exposure, shift if any, and unsupported clicks.

    Of affine clicks without the documents that were shown only where the model tells nothing.
    """
    import pyarrow.compute as pc

    sums = [name for name in ("clicks", "exposure", "shift", "unsupported") if name in cells.column_names]
    counts = cells.group_by(list(keys)).aggregate([(name, "sum") for name in sums])
    counts = steady(counts.rename_columns([*keys, *sums]), [name for name in ("exposure", "shift") if name in sums])
    return counts.filter(pc.greater(counts["exposure"], 0)) if "shift" in sums else counts


class _Names(NamedTuple):
    """The columns that a weighed log has: propensity or slope, whether it can be told, and offset if any."""

    propensity: str
    supported: str
    offset: str | None = None


WEIGHED = _Names("propensity", "propensity_state")
CORRECTED = _Names("click_slope", "correction_supported", "click_offset")


def _known_columns(log: ClickLog) -> _Names:
    """Return the columns of a log that was weighed before."""
    for names in (WEIGHED, CORRECTED):
        if all(name in log.source.columns for name in (names.propensity, names.offset) if name is not None):
            return names
    raise InputError(
        "the log has no column propensity: name a model with --model, or weigh the log first "
        "(clickharvest weigh LOG MODEL -o weighted.parquet)"
    )


def _arm(ranker: ir.Value | None) -> ir.Value:
    import ibis

    return ibis.literal(ALL_TRAFFIC) if ranker is None else ranker.cast("string").fill_null("no ranker named")


def _joined(keys: pa.Table, table: pa.Table) -> pa.Table:
    return numbered(keys).join(table, ["query", "doc"], join_type="left outer").sort_by("row_of_document")
