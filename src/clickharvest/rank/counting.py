"""Counts of a log: clicks, displays and examination by query, ranker, document and position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from clickharvest.click_models.affine import correct_log
from clickharvest.errors import InputError
from clickharvest.logs.engines import steady
from clickharvest.model.budget import CANNOT_TELL
from clickharvest.model.propensities import Propensities
from clickharvest.weights.scoring import Trust
from clickharvest.weights.weighing import weigh

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog

ALL_TRAFFIC = "all traffic"
"""The name of what was shown, where the log names no rankers."""


class _Names(NamedTuple):
    """Columns of a weighed log: the propensity or slope, whether the model supports it, and the offset if any."""

    propensity: str
    supported: str
    offset: str | None = None


WEIGHED = _Names("propensity", "propensity_state")
CORRECTED = _Names("click_slope", "correction_supported", "click_offset")


def document_cells(log: ClickLog, model: Propensities | AnyAffine | None) -> tuple[ir.Table, bool]:
    """Return an expression of the counts by query, arm, document and position, and whether support is known."""
    rows, support_known = weighed_rows(log, model, "checked")
    return sum_rows(rows, ("query", "arm", "doc", "position")), support_known


def weighed_rows(log: ClickLog, model: Propensities | AnyAffine | None, trust: Trust) -> tuple[ir.Table, bool]:
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
    support_known = names.supported in source.columns
    of["supported"] = ibis.literal(True)
    if support_known and names.offset is None:
        of["supported"] = source[names.supported] != CANNOT_TELL
    elif support_known:
        of["supported"] = source[names.supported].cast("boolean")
    of["propensity"] = source[names.propensity].cast("float64")
    if names.offset is not None:
        of["offset"] = source[names.offset].cast("float64")
        of["supported"] = of["supported"] & of["offset"].notnull() & of["propensity"].notnull()
    rows = source.select(**of)
    return rows.filter(rows.impressions > 0), support_known


def sum_rows(rows: ir.Table, by: Sequence[str]) -> ir.Table:
    """Return clicks, exposure, displays `n` and unsupported clicks of groups of rows; the position, if not a key, too.

    Of affine clicks also their shift; displays without an estimate count among displays alone, their clicks as
    unsupported.
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


def clicked_pages(rows: ir.Table) -> ir.Table:
    """Return the rows of pages with a click; of corrected clicks all rows, as those without a click count as well."""
    if "offset" in rows.columns:
        return rows
    clicked = rows.filter(rows.clicks > 0).select("query", "page").distinct()
    return rows.semi_join(clicked, ["query", "page"])


def count_documents(cells: pa.Table, keys: Sequence[str] = ("query", "doc")) -> pa.Table:
    """Return sums by query and document, or other keys: clicks, exposure, shift if any, and unsupported clicks.

    Of affine clicks, documents without an estimate at any display are left out.
    """
    import pyarrow.compute as pc

    sums = [name for name in ("clicks", "exposure", "shift", "unsupported") if name in cells.column_names]
    counts = cells.group_by(list(keys)).aggregate([(name, "sum") for name in sums])
    counts = steady(counts.rename_columns([*keys, *sums]), [name for name in ("exposure", "shift") if name in sums])
    return counts.filter(pc.greater(counts["exposure"], 0)) if "shift" in sums else counts


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
