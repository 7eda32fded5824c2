"""Harvest: from a click log to interventions, as one query inside the engine.

A unit is one (query, context, document). Its exposure at position k is

- **realised**: the impressions it had there, e_{u,k} = Σ_rows 1[position = k] · impressions;
- **design**, if it is known where else the document could have been shown, see `clickharvest.harvesting.designs`.

Kept are the units with a positive exposure at two positions or more, the union of the interventional sets
S_{k,k'} = {u : e_{u,k} > 0 and e_{u,k'} > 0}.

Clicks of one query depend on each other, and error bars are by query. Where something else clusters, users say, a
unit's clicks are divided among the users they come from; what makes a unit stays the same, and so does its exposure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.designs import Design, check_design
from clickharvest.harvesting.interventions import (
    CLUSTERED_BY,
    COLUMNS,
    NOBODY,
    QUERY,
    ExposureKind,
    Interventions,
    UnitKind,
    describe,
)
from clickharvest.harvesting.large_logs import narrowed, share_to_keep, warn_of_thinning
from clickharvest.harvesting.placements import LoggedPlacements
from clickharvest.harvesting.reading import interventions_from_arrow
from clickharvest.logs.click_log import ROLES, ClickLog, count_displays, named_column, require_log, same
from clickharvest.logs.engines import Engine
from clickharvest.logs.ibis_inside import COMPILERS, compile_for
from clickharvest.logs.incomplete_logs import refuse_clicks_alone, warn_of_doubts
from clickharvest.logs.sources import file_format, open_source

CLUSTER = "_cluster"
"""Column of the cluster's name while a harvest runs."""
DIALECTS = tuple(COMPILERS)
"""Dialects that the harvest can be written in."""


def harvest(
    log: ClickLog,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
    cluster: str = QUERY,
    clicked_only: bool = False,
    max_clicks: int | None = None,
) -> Interventions:
    """Harvest the interventions of a log into memory.

    Args:
        log: the click log.
        unit: `"context"` makes a unit of every query, context and document; `"query"` of every query and
            document, with one row per context inside it.
        max_position: leave out what was shown lower.
        design: where documents could have been shown, see `clickharvest.harvesting.designs`; without it exposures are
            realised.
        cluster: what clicks depend on each other within: `"query"`; another role of the log, such as `"doc"`, `"user"`
            or `"page"`; or any of its columns. Where it is empty, the page clusters, or the query without pages.
        clicked_only: leave units without a click in the engine: they say nothing to ClickShare, but AllPairs needs
            them.
        max_clicks: a harvest with more clicks is thinned to about so many by whole queries, see
            `clickharvest.harvesting.large_logs`; None keeps all.

    Raises:
        InputError: the options contradict each other or the log, or the log holds clicks alone.
        NotIdentifiedError: no unit was exposed at two positions.

    Warns:
        HarvestWarning: the log seems to lack displays, see `clickharvest.logs.incomplete_logs`; or the harvest was
            thinned.

    Example:
        >>> from clickharvest.logs.reading import read_log
        >>> import pyarrow as pa
        >>> shown = pa.table({"query": ["q"] * 3, "doc": ["a", "a", "b"], "position": [1, 2, 2], "click": [1, 0, 0]})
        >>> print(harvest(read_log(shown)))
        Interventions: 1 unit, 2 rows, 1 click, positions 1-2, realised exposures, no context
    """
    require_log(log)
    log = log.pooled(design)
    options: dict[str, Any] = {"unit": unit, "max_position": max_position, "design": design, "cluster": cluster}
    log, whole = _ready(log, options, max_clicks, clicked_only=clicked_only)
    table = harvest_table(log, **options, clicked_only=clicked_only)
    rows = log.engine.fetch(table, task="Harvesting", coded=True)
    _require_rows(rows.num_rows)
    result = interventions_from_arrow(rows, metadata=_metadata(log, unit, design, whole), name="the harvest")
    if whole:
        warn_of_thinning(int(result.clicks.sum()), whole)
    return result


def harvest_to_parquet(
    log: ClickLog,
    path: str | Path,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
    cluster: str = QUERY,
    max_clicks: int | None = None,
) -> int:
    """Harvest a log straight into a Parquet file, however large, and return the number of rows.

    Arguments are those of `harvest`; `read_interventions` reads the file back. On a cluster it is a folder of files.
    """
    options: dict[str, Any] = {"unit": unit, "max_position": max_position, "design": design, "cluster": cluster}
    log, whole = _ready(log.pooled(design), options, max_clicks)
    table = harvest_table(log, **options)
    metadata = _metadata(log, unit, design, whole)
    with log.engine.output(Path(path)) as partial:
        rows = log.engine.write_parquet(table, partial, metadata=metadata, task="Harvesting")
        _require_rows(rows)
    if whole:
        warn_of_thinning(count_interventions(path)["clicks"], whole)
    return rows


def harvest_table(
    log: ClickLog,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
    cluster: str = QUERY,
    clicked_only: bool = False,
) -> ir.Table:
    """Return the harvest as one Ibis expression, not yet run.

    Its columns are `unit, query, position, exposure, clicks, impressions` and the context columns, its rows
    sorted by unit and position. Units are numbered from 0 in the order of query, context and document, so that
    every engine gives the same rows. Clusters other than queries are the last column, `clustered_by_…`, numbered in the
    order of their names as text, so that no name leaves the log.
    """
    log = log.pooled(design)
    cells, units, keys = _intervened(log, unit, max_position, design, cluster)
    if clicked_only:
        units = units.filter(units._clicks > 0)
    units = log.engine.numbered(units.select(*keys), keys, "unit", like=log.table.query)
    joined = cells.inner_join(units, same(cells, units, keys))
    columns = {name: joined[name].cast("int64") for name in ("unit", "position", "clicks", "impressions")}
    exposure = joined.exposure if "exposure" in cells.columns else joined.impressions
    columns |= {"query": joined.query, "exposure": exposure.cast("float64")}
    kept = {name: columns[name] for name in COLUMNS} | {c: joined[c] for c in log.context}
    order = ["unit", "position", *(log.context if unit == "query" else ())]
    if cluster == QUERY:
        return joined.select(**kept).order_by(*order)
    named = CLUSTERED_BY + cluster
    numbered = _numbered(joined.select(**kept, **{CLUSTER: joined[CLUSTER]}), named, log.engine)
    return numbered.order_by(*order, named)


def _intervened(
    log: ClickLog, unit: UnitKind, max_position: int | None, design: Design | None, cluster: str
) -> tuple[ir.Table, ir.Table, list[str]]:
    """Return the cells of the log, the units among them at two positions or more with their clicks, and their keys."""
    if unit not in ("context", "query"):
        raise InputError(f"unit is {unit!r}: expected 'context' or 'query'")
    if max_position is not None and max_position < 2:
        raise InputError(f"max_position is {max_position}: two positions or more are needed to compare")
    of_ranks = design is not None and not isinstance(design, LoggedPlacements)
    if log.places is not None and (max_position is not None or of_ranks):
        reason = "a largest position (--max-position)" if max_position is not None else "a design of ranks"
        raise InputError(
            f"places ({', '.join(log.places.columns)}) have no ranks: {reason} goes with --position alone; leave it out"
        )
    divided = cluster != QUERY
    shown = _with_clusters(log, cluster) if divided else log.table
    rows = shown if max_position is None else shown.filter(shown.position <= max_position)
    cells = realised_cells(rows, log.context, raw="click" in log.roles, by=(CLUSTER,) if divided else ())
    if log.likely is not None:  # few are left of a large log: kept, they are summed once and without the rest
        cells = log.engine.materialise(cells, task="Harvesting")
    if design is not None:
        cells = _designed_cells(cells, design, log, max_position)
    elif divided:
        cells = _with_whole_exposure(cells, log.context)
    keys = ["query", *log.context, "doc"] if unit == "context" else ["query", "doc"]
    positions = cells.count() if unit == "context" and not divided else cells.position.nunique()
    units = cells.group_by(*keys).agg(_positions=positions, _clicks=cells.clicks.sum())
    return cells, units.filter(lambda u: u._positions >= 2), keys


def _ready(
    log: ClickLog, options: dict[str, Any], max_clicks: int | None, *, clicked_only: bool = False
) -> tuple[ClickLog, int]:
    """Return the log to harvest, thinned if needed, and the clicks of the whole harvest, 0 unless it is thinned."""
    _, _, keys = _intervened(log, **options)
    refuse_clicks_alone(log)
    warn_of_doubts(log, stacklevel=4)
    if options["design"] is not None:
        check_design(log, options["design"], options["max_position"])
    else:
        log = narrowed(log, keys, max_position=options["max_position"], clicked_only=clicked_only)
    if max_clicks is None or (log.facts is not None and log.facts.clicks <= max_clicks):
        return log, 0
    _, units, _ = _intervened(log, **options)
    counts = units.agg(clicks=units._clicks.sum().cast("int64"), queries=units.query.nunique())
    totals = log.engine.fetch(counts, task="Counting clicks").to_pylist()[0]
    share = share_to_keep(totals["clicks"] or 0, totals["queries"], max_clicks)
    return (log.thinned(share), totals["clicks"]) if share < 1 else (log, 0)


def count_interventions(path: str | Path) -> dict[str, int]:
    """Return the `units` and `clicks` of a file, or folder, that a harvest of our own has just written."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    written = pq.read_table(path, columns=["unit", "clicks"])
    return {"units": pc.max(written["unit"]).as_py() + 1, "clicks": pc.sum(written["clicks"]).as_py()}


def realised_cells(rows: ir.Table, context: tuple[str, ...], *, raw: bool, by: tuple[str, ...] = ()) -> ir.Table:
    """Return one row per query, context, document and position (and `by`), with its clicks and impressions."""
    return rows.group_by("query", *context, "doc", "position", *by).agg(**count_displays(rows, raw=raw))


def _with_clusters(log: ClickLog, cluster: str) -> ir.Table:
    """Return the log's rows with a column of clusters as text; rows without a click have no cluster."""
    advice = f"; name it with --{cluster} COLUMN" if cluster in ROLES else ""
    column = named_column(log, cluster, "--cluster", advice)
    if CLUSTERED_BY + cluster in log.context:
        raise InputError(f"--cluster {cluster}: a context column is called {CLUSTERED_BY + cluster}; rename it")
    rows = replace(log, columns=log.columns | {CLUSTER: column.cast("string")}).table
    rest = "page " + rows.page.cast("string") if log.has("page") else "query " + rows.query.cast("string")
    rows = rows.mutate(**{CLUSTER: (rows.clicks > 0).ifelse(rows[CLUSTER].coalesce(rest), ibis.null("string"))})
    if "click" in log.roles:
        return rows
    # A counted row has displays with and without a click: the latter belong to no cluster.
    clicked = rows.filter(rows.clicks > 0)
    left = rows.filter(rows.impressions > rows.clicks)
    without = left.mutate(
        clicks=ibis.literal(0, rows.clicks.type()), impressions=left.impressions - left.clicks,
        **{CLUSTER: ibis.null("string")},
    )  # fmt: skip
    return ibis.union(clicked.mutate(impressions=clicked.clicks), without.cast(dict(rows.schema().items())))


def _with_whole_exposure(cells: ir.Table, context: tuple[str, ...]) -> ir.Table:
    """Return cells that are divided among clusters with the impressions of all of them as their exposure."""
    keys = ["query", *context, "doc", "position"]
    whole = cells.group_by(*keys).agg(exposure=cells.impressions.sum())
    joined = cells.inner_join(whole, same(cells, whole, keys), rname="whole_{name}")
    return joined.select(*cells.columns, "exposure")


def _numbered(rows: ir.Table, named: str, engine: Engine) -> ir.Table:
    """Return the rows with clusters as numbers from 0, in the order of their text, and `NOBODY` where there is none."""
    clusters = rows.filter(rows[CLUSTER].notnull()).select(_name=rows[CLUSTER]).distinct()
    clusters = engine.numbered(clusters, ["_name"], "_number", like=clusters._name)
    joined = rows.left_join(clusters, rows[CLUSTER] == clusters._name)
    number = joined._number.fill_null(NOBODY).cast("int64")
    return joined.select(*(name for name in rows.columns if name != CLUSTER), **{named: number})


def _designed_cells(cells: ir.Table, design: Design, log: ClickLog, max_position: int | None) -> ir.Table:
    exposures = design.exposures(log)
    if max_position is not None:
        exposures = exposures.filter(exposures.position <= max_position)
    keys = ["query", *log.context, "doc", "position"]
    joined = exposures.left_join(cells, same(exposures, cells, keys), rname="seen_{name}")
    counts = {name: joined[name].fill_null(0) for name in ("clicks", "impressions")}
    more = {CLUSTER: joined[CLUSTER]} if CLUSTER in cells.columns else {}
    return joined.select(*keys, **counts, **more, exposure=exposures.exposure)


def _metadata(log: ClickLog, unit: UnitKind, design: Design | None, thinned_from: int) -> dict[str, Any]:
    kind: ExposureKind = "realised" if design is None else "design"
    missing = log.only_clicked_pages
    return describe(kind, unit, log.context, only_clicked_pages=missing, thinned_from=thinned_from, places=log.places)


def _require_rows(rows: int) -> None:
    if not rows:
        raise NotIdentifiedError(
            "nothing to harvest: no unit (query, context and document) was exposed at two positions; "
            "run clickharvest check on the log to see what would help"
        )


def to_sql(table: ir.Table, dialect: str) -> str:
    """Return an expression over unbound tables as SQL.

    Args:
        table: such as the result of `harvest_table` for a log over an `unbound_table`.
        dialect: one of `DIALECTS`.

    Example:
        >>> print(to_sql(unbound_table("shop.clicks", {"doc": "string"}), "trino"))
        SELECT
          *
        FROM "shop"."clicks"
    """
    if dialect not in DIALECTS:
        raise InputError(f"no SQL dialect {dialect!r}: expected one of {', '.join(DIALECTS)}")
    return compile_for(table, dialect)


def unbound_table(source: str, columns: Mapping[str, str], *, table: str | None = None) -> ir.Table:
    """Return a table to write SQL against: a file's, with its column types, or one that is only named.

    Args:
        source: a file, or a table's name such as `project.dataset.clicks`.
        columns: column types by name, where there is no file to tell.
        table: the table of a DuckDB file that holds more than one.
    """
    if Path(source).exists() or file_format(source) is not None:
        opened, _ = open_source(source, table=table)
        return ibis.table(opened.schema(), name=table or Path(source).name.split(".")[0])
    *path, name = source.split(".")
    catalog, database = (".".join(path[:-1]) or None, path[-1]) if path else (None, None)
    return ibis.table(dict(columns), name=name, catalog=catalog, database=database)
