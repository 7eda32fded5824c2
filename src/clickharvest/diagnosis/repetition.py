"""Repetition: does anything stay that was shown twice once the context columns split the units?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.diagnosis.findings import Finding, percent

if TYPE_CHECKING:
    from clickharvest.diagnosis.counting import Counted

FEW = 0.2
"""Share of what is shown again without the context columns below which they leave too little."""


def repetition(counted: Counted) -> list[Finding]:
    """Tell which context columns vary inside a query, and whether units are ever shown twice.

    A unit is a query, context and document. If contexts are unique to each impression, no unit is seen at two
    positions, and realised exposures identify nothing.
    """
    if not counted.contexts:
        return []
    units = _shown_again(counted, counted.unit)
    bare = _shown_again(counted, ["query", "doc"]) if units < FEW else 1.0  # otherwise it makes no difference
    remedy = (
        "make units of query and document alone (--unit query), use coarser context columns, or give the rankings "
        "of all rankers (--rankings)"
    )
    told = f"{percent(units)} of impressions show a query, context and document seen more than once"
    if units == 0 and bare > 0:
        sentence = (
            f"With the context columns every impression is unique, so nothing is shown twice (without them "
            f"{percent(bare)} of impressions would be): {remedy}."
        )
        findings = [Finding("repetition", "warning", sentence, 0.0)]
    elif units < FEW * bare:
        sentence = f"Only {told}, against {percent(bare)} without the context: {remedy}."
        findings = [Finding("repetition", "warning", sentence, units)]
    elif units == 0:
        findings = [Finding("repetition", "note", "No impression shows a query and document seen more than once.", 0.0)]
    else:
        findings = [Finding("repetition", "ok", f"{told[0].upper()}{told[1:]}.", units)]
    return findings + _constancy(counted)


def _shown_again(counted: Counted, keys: list[str]) -> float:
    """Return the share of impressions of what was shown more than once."""
    cells = counted.cells
    units = cells.group_by(*keys).agg(_shown=cells.shown.sum())
    counts = units.agg(again=units._shown.sum(where=units._shown > 1), shown=units._shown.sum())
    found = counted.log.engine.fetch(counts, task="Looking for repetition").to_pylist()[0]
    return (found["again"] or 0) / (found["shown"] or 1)


def _constancy(counted: Counted) -> list[Finding]:
    cells, columns = counted.cells, counted.log.context
    ranges = {f"low_{i}": cells[c].min() for i, c in enumerate(columns)}
    ranges |= {f"high_{i}": cells[c].max() for i, c in enumerate(columns)}
    by_query = cells.group_by("query").agg(**ranges)
    varying = {
        f"varying_{i}": (by_query[f"low_{i}"] != by_query[f"high_{i}"]).fill_null(False).ifelse(1.0, 0.0).mean()
        for i in range(len(columns))
    }
    shares = counted.log.engine.fetch(by_query.agg(**varying), task="Looking for repetition").to_pylist()[0]
    fixed = [c for i, c in enumerate(counted.contexts) if shares[f"varying_{i}"] == 0]
    moving = {c: shares[f"varying_{i}"] for i, c in enumerate(counted.contexts) if shares[f"varying_{i}"] > 0}
    parts = []
    if fixed:
        parts.append(f"{', '.join(fixed)}: constant within every query")
    parts += [f"{column} varies within {percent(share)} of queries" for column, share in moving.items()]
    return [Finding("context within queries", "ok" if not moving else "note", "; ".join(parts) + ".")]
