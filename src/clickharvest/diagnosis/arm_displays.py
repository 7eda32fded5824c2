"""What was shown by whom, or to whom: displays and clicks of documents of queries at positions, by ranker or user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clickharvest.diagnosis.users import with_user
from clickharvest.harvesting.interventions import UnitKind
from clickharvest.logs.hashing import is_drawn

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

By = Literal["ranker", "user"]

TASK = "Comparing rankers"
MOST_RANKERS = 20
"""Rankers that are looked at, those with most clicks."""
MOST_ROWS = 2_000_000
"""Rows, about, that are compared, all of some documents of queries; a quarter of it by user, of whom there are more."""
PARTS = 10_000
"""Parts into which digests divide documents of queries."""
FEW = 0.1
"""Share of `MOST_ROWS` below which documents are so few that all of them are compared."""


@dataclass(frozen=True)
class ArmDisplays:
    """Displays of units by ranker, or by user; of a large log for some documents, drawn by hash.

    Attributes:
        by: `ranker` or `user`.
        unit: the columns that name a unit.
        rows: rows of the log, with the ranker, or user, as `arm`.
        cells: their `shown` and `clicks` by unit, `position` and `arm`.
    """

    by: By
    unit: list[str]
    rows: ir.Table
    cells: ir.Table


def count_displays(log: ClickLog, by: By = "ranker", unit_kind: UnitKind = "context") -> ArmDisplays:
    """Return the displays of a log with a ranker, or user, column and plain contexts, by units of some kind."""
    unit, engine = ["query", *(log.context if unit_kind == "context" else ()), "doc"], log.engine
    t = with_user(log, log.table) if by == "user" else log.table
    t = t.mutate(arm=t._user if by == "user" else t.ranker.cast("string"))
    rows, most = 0 if log.facts is None else log.facts.rows, MOST_ROWS // (4 if by == "user" else 1)
    if rows > most:
        share, digest = most / rows, engine.digest([t.query, t.doc])
        if digest is None:
            chosen = is_drawn(t.query.cast("string") + "\t" + t.doc.cast("string"), share)
        else:  # a tenth of the time
            chosen = digest % PARTS < int(share * PARTS)
        some = t.filter(chosen)
        drawn = engine.materialise(count_rows(some, [*unit, "position", "arm"]), task=TASK)
        shown = engine.fetch(drawn.agg(shown=drawn.shown.sum()), task=TASK).to_pylist()[0]["shown"] or 0.0
        if shown >= FEW * most:
            return ArmDisplays(by, unit, some, drawn)
    return ArmDisplays(by, unit, t, engine.materialise(count_rows(t, [*unit, "position", "arm"]), task=TASK))


def count_rows(rows: ir.Table, keys: list[str]) -> ir.Table:
    """Return `shown` and `clicks` of rows by some columns."""
    return rows.group_by(*keys).agg(
        shown=rows.impressions.sum().cast("float64"), clicks=rows.clicks.sum().cast("float64")
    )
