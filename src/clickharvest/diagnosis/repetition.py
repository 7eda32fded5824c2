"""Repetition: does anything stay that was shown twice once the context columns split the units?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.diagnosis.findings import Finding, percent

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog


def repetition(log: ClickLog) -> list[Finding]:
    """Tell which context columns vary inside a query, and whether units are ever shown twice.

    A unit is a query, context and document. If contexts are unique to each impression, no unit is seen at two
    positions, and realised exposures identify nothing.
    """
    if not log.context:
        return []
    t = log.table
    units = t.group_by("query", *log.context, "doc").agg(_shown=t.impressions.sum())
    bare = t.group_by("query", "doc").agg(_shown=t.impressions.sum())
    again = {name: g._shown.sum(where=g._shown > 1) / g._shown.sum() for name, g in (("units", units), ("bare", bare))}
    row = units.agg(units=again["units"]).cross_join(bare.agg(bare=again["bare"]))
    shares = {k: v or 0.0 for k, v in log.engine.fetch(row, task="Looking for repetition").to_pylist()[0].items()}
    remedy = (
        "make units of query and document alone (--unit query), use coarser context columns, or give the rankings "
        "of all rankers (--rankings)"
    )
    told = f"{percent(shares['units'])} of impressions show a query, context and document seen more than once"
    if shares["units"] == 0 and shares["bare"] > 0:
        sentence = (
            f"With the context columns every impression is unique, so nothing is shown twice (without them "
            f"{percent(shares['bare'])} of impressions would be): {remedy}."
        )
        findings = [Finding("repetition", "warning", sentence, 0.0)]
    elif shares["units"] < 0.2 * shares["bare"]:
        sentence = f"Only {told}, against {percent(shares['bare'])} without the context: {remedy}."
        findings = [Finding("repetition", "warning", sentence, shares["units"])]
    else:
        findings = [Finding("repetition", "ok", f"{told[0].upper()}{told[1:]}.", shares["units"])]
    return findings + _constancy(log)


def _constancy(log: ClickLog) -> list[Finding]:
    t = log.table
    ranges = {f"low_{i}": t[c].min() for i, c in enumerate(log.context)}
    ranges |= {f"high_{i}": t[c].max() for i, c in enumerate(log.context)}
    by_query = t.group_by("query").agg(**ranges)
    varying = {
        f"varying_{i}": (by_query[f"low_{i}"] != by_query[f"high_{i}"]).fill_null(False).ifelse(1.0, 0.0).mean()
        for i in range(len(log.context))
    }
    shares = log.engine.fetch(by_query.agg(**varying), task="Looking for repetition").to_pylist()[0]
    fixed = [c for i, c in enumerate(log.context) if shares[f"varying_{i}"] == 0]
    moving = {c: shares[f"varying_{i}"] for i, c in enumerate(log.context) if shares[f"varying_{i}"] > 0}
    parts = []
    if fixed:
        parts.append(f"{', '.join(fixed)}: constant within every query")
    parts += [f"{column} varies within {percent(share)} of queries" for column, share in moving.items()]
    return [Finding("context within queries", "ok" if not moving else "note", "; ".join(parts) + ".")]
