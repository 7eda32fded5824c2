"""Clicks for rankers from files: a log with propensities, document features, and judgements where there are some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from clickharvest.click_models.affine import correct_log
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs.sums import steady
from clickharvest.rank.columns import FeatureColumns
from clickharvest.rank.data import RankingData
from clickharvest.rank.documents import open_documents, open_keyed
from clickharvest.rank.features import Array
from clickharvest.rank.from_log import numbered, ranking_data_from_counts
from clickharvest.rank.shown import ShownRanking
from clickharvest.weights.clipping import effective_sample_size
from clickharvest.weights.weighing import weigh

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

Missing = Literal["error", "drop"]

ALL_TRAFFIC = "all traffic"
"""The name of what was shown, where the log names no rankers."""


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
    """

    log: ClickLog
    data: RankingData
    keys: pa.Table
    arms: dict[str, ShownRanking]
    features: list[str]
    columns: FeatureColumns
    unknown: int = 0
    unsupported: float | None = None

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
) -> Clicks:
    """Read the clicks of a log and the features of the documents that compete.

    A query's list is all its documents that the log showed, at least once. The others are left out: a document that
    nobody could click must not count as one that nobody wanted. One that some pages showed is judged by these alone:
    propensities count the pages without it, see `data`.

    Args:
        log: the log; clicks are counted inside its engine.
        documents: a path or table with the log's query and document columns and columns that become features, see
            `columns`; without a query column, features are those of the document for all queries.
        propensities: the model, of examination or affine; None where the log has a column `propensity`, or the columns
            `click_slope` and `click_offset`, as `weigh` writes them.
        features: columns to learn from; by default all but query and document.
        missing: what becomes of clicks on documents that are not in the table: `"error"` or `"drop"`.

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
    if missing not in ("error", "drop"):
        raise InputError(f"missing is {missing!r}: expected 'error' or 'drop'")
    expression, unsupported = document_cells(log, propensities)
    cells = log.engine.fetch(expression, task="Counting clicks")
    counts = count_documents(cells)
    clicks = float(np.asarray(counts["clicks"]).sum())
    if not clicks:
        raise NotIdentifiedError("the log has no click, so there is nothing to learn from: add clicks")
    of_arms = pages_of_arms(log, cells)
    pages = of_arms.group_by("query").aggregate([("pages", "sum")]).rename_columns(["query", "pages"])
    opened = open_documents(log, documents, features)
    known = counts.join(opened.keys(), list(opened.by), join_type="left semi")
    keys = known.select(["query", "doc"]).sort_by([("query", "ascending"), ("doc", "ascending")])
    dropped = 0.0
    if missing == "drop":
        dropped = clicks - float(np.asarray(known["clicks"]).sum())
        counts = known
        if dropped == clicks:
            raise NotIdentifiedError(f"no clicked document is in {opened.name}: are the names of documents the same?")
    share = _unsupported(cells if missing == "error" else counts, clicks - dropped) if unsupported else None
    counts = counts.drop_columns(["unsupported"])
    del known
    release_memory()
    data = ranking_data_from_counts(counts, pages, keys, opened.matrix(keys))
    arms = _arms(cells.join(of_arms, ["query", "arm"]), data, keys)
    del cells, counts
    release_memory()
    return Clicks(log, data, keys, arms, list(opened.columns.names), opened.columns, round(dropped), share)


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


def _arms(cells: pa.Table, data: RankingData, keys: pa.Table) -> dict[str, ShownRanking]:
    """Return where every arm showed the documents, as shares of its pages."""
    joined = numbered(keys).join(cells, ["query", "doc"], join_type="inner").sort_by("row_of_document")
    row, position, n, pages = (np.asarray(joined[name]) for name in ("row_of_document", "position", "n", "pages"))
    coded = joined["arm"].combine_chunks().dictionary_encode()
    arm = np.asarray(coded.indices)
    of_list = np.searchsorted(data.starts, row, side="right") - 1
    return {
        name: ShownRanking(
            row[own],
            position[own].astype(np.float64),
            np.minimum(n[own] / pages[own], 1.0),
            np.bincount(of_list[own], minlength=len(data)) > 0,
        )
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

    And whether it is known which clicks the model supports. Of affine clicks also their shift; what is shown where the
    model tells nothing counts among impressions alone, and its clicks as unsupported.
    """
    import ibis

    from clickharvest.logs.click_log import identifier
    from clickharvest.model.propensities import Propensities

    if model is None:
        of = {name: log.columns[name] for name in ("position", "clicks", "impressions")}
        of |= {name: identifier(log.columns[name], log.columns[name].type()) for name in ("query", "doc")}
        of["arm"] = _arm(log.columns.get("ranker"))
        source, names = log.source, _known_columns(log)
    else:
        source = weigh(log, model).table if isinstance(model, Propensities) else correct_log(log, model)[0]
        names = WEIGHED if isinstance(model, Propensities) else CORRECTED
        of = {role: identifier(source[log.roles[role]], log.columns[role].type()) for role in ("query", "doc")}
        of["clicks"] = source[log.roles["click" if "click" in log.roles else "clicks"]].cast("int64")
        of["impressions"] = ibis.literal(1)
        if "impressions" in log.roles:
            of["impressions"] = source[log.roles["impressions"]].cast("int64")
        of["position"] = source[log.roles["position"]].cast("int64") + (1 - log.position_base)
        of["arm"] = _arm(source[log.roles["ranker"]] if log.has("ranker") else None)
    told = names.supported in source.columns
    of["supported"] = source[names.supported].cast("boolean") if told else ibis.literal(True)
    of["propensity"] = source[names.propensity].cast("float64")
    if names.offset is not None:
        of["offset"] = source[names.offset].cast("float64")
        of["supported"] = of["supported"] & of["offset"].notnull() & of["propensity"].notnull()
    rows = source.select(**of)
    rows = rows.filter(rows.impressions > 0)
    sums = {"clicks": rows.clicks, "exposure": rows.propensity * rows.impressions}
    if names.offset is not None:
        sums |= {"shift": rows.offset * rows.impressions}
        sums = {name: rows.supported.ifelse(value, 0) for name, value in sums.items()}
    cells = rows.group_by(["query", "arm", "doc", "position"]).agg(
        **{name: value.sum().cast("float64") for name, value in sums.items()},
        n=rows.impressions.sum().cast("float64"),
        unsupported=rows.supported.ifelse(0, rows.clicks).sum().cast("float64"),
    )
    return cells, told


def count_documents(cells: pa.Table) -> pa.Table:
    """Return the sums of `document_cells` by query and document: clicks, exposure, shift if any, and unsupported.

    Of affine clicks without the documents that were shown only where the model tells nothing.
    """
    import pyarrow.compute as pc

    sums = [name for name in ("clicks", "exposure", "shift", "unsupported") if name in cells.column_names]
    counts = cells.group_by(["query", "doc"]).aggregate([(name, "sum") for name in sums])
    counts = steady(
        counts.rename_columns(["query", "doc", *sums]), [name for name in ("exposure", "shift") if name in sums]
    )
    return counts.filter(pc.greater(counts["exposure"], 0)) if "shift" in sums else counts


class _Names(NamedTuple):
    """The columns that a weighed log has: propensity or slope, whether it is supported, and offset if any."""

    propensity: str
    supported: str
    offset: str | None = None


WEIGHED = _Names("propensity", "propensity_supported")
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
