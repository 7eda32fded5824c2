"""What rankers showed: displays and clicks of documents of queries at positions, by ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.logs.hashing import is_drawn

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

TASK = "Comparing rankers"
MOST_ROWS = 2_000_000
"""Rows, about, that are compared, all of some documents of queries."""
PARTS = 10_000
"""Parts into which digests divide documents of queries."""
FEW = 0.1
"""Share of `MOST_ROWS` below which documents are so few that all of them are compared."""


def count_displays(log: ClickLog) -> ir.Table:
    """Return `shown` and `clicks` of units at positions by ranker; of a large log for some documents, drawn by hash."""
    t, engine = log.table, log.engine
    rows = 0 if log.facts is None else log.facts.rows
    if rows > MOST_ROWS:
        share, digest = MOST_ROWS / rows, engine.digest([t.query, t.doc])
        if digest is None:
            chosen = is_drawn(t.query.cast("string") + "\t" + t.doc.cast("string"), share)
        else:  # a tenth of the time
            chosen = digest % PARTS < int(share * PARTS)
        drawn = engine.materialise(_cells(log, t.filter(chosen)), task=TASK)
        shown = engine.fetch(drawn.agg(shown=drawn.shown.sum()), task=TASK).to_pylist()[0]["shown"] or 0.0
        if shown >= FEW * MOST_ROWS:
            return drawn
    return engine.materialise(_cells(log, t), task=TASK)


def _cells(log: ClickLog, rows: ir.Table) -> ir.Table:
    return rows.group_by("query", *log.context, "doc", "position", arm=rows.ranker.cast("string")).agg(
        shown=rows.impressions.sum().cast("float64"), clicks=rows.clicks.sum().cast("float64")
    )
