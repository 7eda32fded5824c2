"""What rankers showed: displays and clicks of documents of queries at positions, by ranker."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class ArmDisplays:
    """Displays of units by ranker; of a large log for some documents, drawn by hash.

    Attributes:
        unit: the columns that name a unit.
        rows: rows of the log, with the ranker as `arm`.
        cells: their `shown` and `clicks` by unit, `position` and `arm`.
    """

    unit: list[str]
    rows: ir.Table
    cells: ir.Table


def count_displays(log: ClickLog) -> ArmDisplays:
    """Return the displays of a log with a ranker column and plain contexts."""
    unit, engine = ["query", *log.context, "doc"], log.engine
    t = log.table.mutate(arm=log.table.ranker.cast("string"))
    rows = 0 if log.facts is None else log.facts.rows
    if rows > MOST_ROWS:
        share, digest = MOST_ROWS / rows, engine.digest([t.query, t.doc])
        if digest is None:
            chosen = is_drawn(t.query.cast("string") + "\t" + t.doc.cast("string"), share)
        else:  # a tenth of the time
            chosen = digest % PARTS < int(share * PARTS)
        some = t.filter(chosen)
        drawn = engine.materialise(count_rows(some, [*unit, "position", "arm"]), task=TASK)
        shown = engine.fetch(drawn.agg(shown=drawn.shown.sum()), task=TASK).to_pylist()[0]["shown"] or 0.0
        if shown >= FEW * MOST_ROWS:
            return ArmDisplays(unit, some, drawn)
    return ArmDisplays(unit, t, engine.materialise(count_rows(t, [*unit, "position", "arm"]), task=TASK))


def count_rows(rows: ir.Table, keys: list[str]) -> ir.Table:
    """Return `shown` and `clicks` of rows by some columns."""
    return rows.group_by(*keys).agg(
        shown=rows.impressions.sum().cast("float64"), clicks=rows.clicks.sum().cast("float64")
    )
