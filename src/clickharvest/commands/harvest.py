"""The command `harvest`: from a log to its interventions, or to the query that harvests them in a warehouse."""

from __future__ import annotations

from typing import Annotated

from clickharvest.commands.declaring import option
from clickharvest.commands.options import (
    QUERY,
    ClusterOption,
    HarvestOptions,
    JsonFlag,
    LogOptions,
    MaxClicksOption,
    OutputPath,
)
from clickharvest.commands.output import complain, place_to_write, tell, tell_json
from clickharvest.errors import InputError
from clickharvest.logs.ibis_inside import COMPILERS
from clickharvest.parameters import MOST_CLICKS
from clickharvest.words import clean_lines, count


def harvest(
    log: LogOptions,
    units: HarvestOptions,
    cluster: ClusterOption = QUERY,
    max_clicks: MaxClicksOption = MOST_CLICKS,
    output: OutputPath = None,
    emit_sql: Annotated[
        str | None,
        option(
            f"Print the query for a warehouse instead of running it: {', '.join(COMPILERS)}. LOG may then be a table's "
            "name.",
            "DIALECT",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Harvest the interventions of a log into one Parquet file.

    Columns: unit, query, position, exposure, clicks, impressions, and the context columns; with --cluster one more.

    Examples:

      clickharvest harvest clicks.parquet --context device -o interventions.parquet

      clickharvest harvest shop.search.clicks --emit-sql bigquery > harvest.sql
    """
    from clickharvest.checks.design_holds import swap_ranks
    from clickharvest.harvesting.collecting import count_interventions, harvest_to_parquet
    from clickharvest.harvesting.designs import Swap

    if emit_sql is not None:
        if output is not None or as_json:
            given = "--json" if output is None else f"-o {output}"
            raise InputError(f"{given} does not go with --emit-sql, which prints the query: redirect it, > harvest.sql")
        sql = _warehouse_query(log, units, cluster, emit_sql)
        if clean_lines(sql) != sql:
            raise InputError("names with control characters cannot be printed as SQL: rename the columns or the table")
        tell(sql)
        return
    output = place_to_write(output, "the interventions", "interventions.parquet", [*log.sources, units.rankings])
    clicks = log.read()
    harvesting = units.arguments(log)
    rows = harvest_to_parquet(clicks, output, **harvesting, cluster=cluster, max_clicks=max_clicks)
    if isinstance(design := harvesting["design"], Swap):  # the file does not tell which ranks were drawn
        for finding in swap_ranks(clicks.parsed(), design, units.max_position):
            if finding.severity == "decisive":
                complain(f"Warning: {finding.sentence}")
    counts = count_interventions(output)
    if as_json:
        tell_json({"file": str(output), "rows": rows, **counts})
        return
    units_and_clicks = f"{count(counts['units'], 'unit')} in {count(rows, 'row')}, {count(counts['clicks'], 'click')}"
    tell(f"{units_and_clicks}: {output}")


def _warehouse_query(log: LogOptions, units: HarvestOptions, cluster: str, dialect: str) -> str:
    from clickharvest.harvesting.collecting import harvest_table, to_sql, unbound_table
    from clickharvest.logs.click_log import OPTIONAL
    from clickharvest.logs.reading import read_log

    looks_at_rows = "it looks at rows before there is a query"
    refused = {
        f"the format {log.export and log.export[0]}": (log.export, "name a table of a click log's columns"),
        "--clicks-from": (log.clicks_from, "name one table of what was shown and clicked"),
        "--place": (log.place, "number the places in the warehouse, as positions from 1"),
        "--placements": (units.placements, looks_at_rows),
        "--placement": (units.placement, looks_at_rows),
        "--team-draft": (units.team_draft, looks_at_rows),
    }
    for name, (value, why) in refused.items():
        if value:
            raise InputError(f"--emit-sql does not go with {name}: {why}")
    columns = {role: role for role in ("query", "doc", "position", *{cluster} & set(OPTIONAL))} | log.columns
    if not {"click", "clicks"} & columns.keys():
        columns["click"] = "click"
    numbers = ("position", "click", "clicks", "impressions", "original")
    types = {column: "int64" if role in numbers else "string" for role, column in columns.items()}
    blocks = log.preparation.get("block", {}) | log.preparation.get("random", {})
    types = dict.fromkeys((*log.context_columns, *blocks, *{cluster} - columns.keys()), "string") | types
    types |= {} if log.page_number is None else {log.page_number: "int64"}
    table = unbound_table(log.source, types, table=log.table)
    clicks = read_log(
        table,
        **log.columns,
        **log.preparation,
        context=log.context_columns,
        position_base=log.base,
        validate=False,
    )
    ranked = {"query": "string", "ranker": "string", "doc": "string", "position": "int64"}
    rankings = unbound_table(units.rankings, ranked) if units.rankings else None
    return to_sql(harvest_table(clicks, **units.arguments(log, rankings), cluster=cluster), dialect)
