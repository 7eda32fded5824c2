"""Harvest: from a click log to interventions, as one query inside the engine.

A unit is one (query, context, document). Its exposure at position k is

- **realised**: the impressions it had there, e_{u,k} = Σ_rows 1[position = k] · impressions;
- **design**, if it is known where else the document could have been shown, see `clickharvest.harvesting.designs`.

Kept are the units with a positive exposure at two positions or more, the union of the interventional sets
S_{k,k'} = {u : e_{u,k} > 0 and e_{u,k'} > 0}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.files import atomic_path
from clickharvest.harvesting.designs import Design, check_design
from clickharvest.harvesting.interventions import (
    COLUMNS,
    ExposureKind,
    Interventions,
    UnitKind,
    describe,
    interventions_from_arrow,
)
from clickharvest.logs.click_log import ClickLog, same
from clickharvest.logs.doubting import refuse_clicks_alone, warn_of_doubts


def harvest(
    log: ClickLog,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
) -> Interventions:
    """Harvest the interventions of a log into memory.

    Args:
        log: the click log.
        unit: `"context"` makes a unit of every query, context and document; `"query"` of every query and
            document, with one row per context inside it.
        max_position: leave out what was shown lower.
        design: where documents could have been shown, see `clickharvest.harvesting.designs`; without it exposures are
            realised.

    Raises:
        InputError: the options contradict each other or the log, or the log holds clicks alone.
        NotIdentifiedError: no unit was exposed at two positions.

    Warns:
        HarvestWarning: the log looks unlike one of all that was shown, see `clickharvest.logs.doubting`.

    Example:
        >>> from clickharvest.logs.reading import read_log
        >>> import pyarrow as pa
        >>> shown = pa.table({"query": ["q"] * 3, "doc": ["a", "a", "b"], "position": [1, 2, 2], "click": [1, 0, 0]})
        >>> print(harvest(read_log(shown)))
        Interventions: 1 unit, 2 rows, 1 click, positions 1-2, realised exposures, no context
    """
    table = harvest_table(log, unit=unit, max_position=max_position, design=design)
    refuse_clicks_alone(log)
    warn_of_doubts(log)
    if design is not None:
        check_design(log, design, max_position)
    rows = log.engine.fetch(table, task="Harvesting")
    _require_rows(rows.num_rows)
    return interventions_from_arrow(rows, metadata=_metadata(log, unit, design), name="the harvest")


def harvest_to_parquet(
    log: ClickLog,
    path: str | Path,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
) -> int:
    """Harvest a log straight into a Parquet file, however large, and return the number of rows.

    Arguments are those of `harvest`; `read_interventions` reads the file back.
    """
    table = harvest_table(log, unit=unit, max_position=max_position, design=design)
    refuse_clicks_alone(log)
    warn_of_doubts(log)
    if design is not None:
        check_design(log, design, max_position)
    with atomic_path(Path(path)) as partial:
        metadata = _metadata(log, unit, design)
        rows = log.engine.write_parquet(table, partial, metadata=metadata, task="Harvesting")
        _require_rows(rows)
    return rows


def harvest_table(
    log: ClickLog,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
) -> ir.Table:
    """Return the harvest as one Ibis expression, not yet run.

    Its columns are `unit, query, position, exposure, clicks, impressions` and the context columns, its rows
    sorted by unit and position. Units are numbered from 0 in the order of query, context and document, so that
    every engine gives the same rows.
    """
    if unit not in ("context", "query"):
        raise InputError(f"unit is {unit!r}: expected 'context' or 'query'")
    if max_position is not None and max_position < 2:
        raise InputError(f"max_position is {max_position}: two positions or more are needed to compare")
    rows = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    cells = realised_cells(rows, log.context, raw="click" in log.roles)
    if design is not None:
        cells = _designed_cells(cells, design, log, max_position)
    keys = ["query", *log.context, "doc"] if unit == "context" else ["query", "doc"]
    positions = cells.count() if unit == "context" else cells.position.nunique()
    units = cells.group_by(*keys).agg(_positions=positions).filter(lambda u: u._positions >= 2)
    units = units.select(*keys, unit=ibis.row_number().over(order_by=[units[key] for key in keys]))
    joined = cells.inner_join(units, same(cells, units, keys))
    columns = {name: joined[name].cast("int64") for name in ("unit", "position", "clicks", "impressions")}
    exposure = joined.impressions if design is None else joined.exposure
    columns |= {"query": joined.query, "exposure": exposure.cast("float64")}
    table = joined.select(**{name: columns[name] for name in COLUMNS}, **{c: joined[c] for c in log.context})
    return table.order_by("unit", "position", *(log.context if unit == "query" else ()))


def realised_cells(rows: ir.Table, context: tuple[str, ...], *, raw: bool) -> ir.Table:
    """Return one row per query, context, document and position, with its clicks and impressions.

    Raw rows are counted, not summed: DuckDB counts in 8 bytes and sums in 16, and cells are what it spills.
    """
    clicks = rows.count(where=rows.clicks == 1) if raw else rows.clicks.sum()
    impressions = rows.count() if raw else rows.impressions.sum()
    return rows.group_by("query", *context, "doc", "position").agg(clicks=clicks, impressions=impressions)


def _designed_cells(cells: ir.Table, design: Design, log: ClickLog, max_position: int | None) -> ir.Table:
    exposures = design.exposures(log)
    if max_position is not None:
        exposures = exposures.filter(exposures.position <= max_position)
    keys = ["query", *log.context, "doc", "position"]
    joined = exposures.left_join(cells, same(exposures, cells, keys), rname="seen_{name}")
    counts = {name: joined[name].fill_null(0) for name in ("clicks", "impressions")}
    return joined.select(*keys, **counts, exposure=exposures.exposure)


def _metadata(log: ClickLog, unit: UnitKind, design: Design | None) -> dict[str, Any]:
    kind: ExposureKind = "realised" if design is None else "design"
    return describe(kind, unit, log.context, only_clicked_pages=log.only_clicked_pages)


def _require_rows(rows: int) -> None:
    if not rows:
        raise NotIdentifiedError(
            "nothing to harvest: no unit (query, context and document) was exposed at two positions; "
            "run clickharvest check on the log to see what would help"
        )
