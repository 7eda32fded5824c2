"""Displays and clicks of documents at positions: counted once for all that compares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clickharvest.logs.hashing import is_drawn

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

TASK = "Counting displays"
MOST_ROWS = 2_000_000
"""Rows, about, that are counted, all of some documents of queries: what they do not show is not there to see."""
PARTS = 10_000
"""Parts into which digests divide documents of queries."""
FEW = 0.1
"""Share of these below which the documents are so few that all of them are counted."""


@dataclass(frozen=True)
class Counted:
    """A log in counts.

    Attributes:
        log: the log, its contexts called `_context_0`, ….
        contexts: how the user calls them.
        cells: `query`, contexts, `doc`, `position` and, where there are rankers, `arm`; `shown` and `clicks`.
    """

    log: ClickLog
    contexts: tuple[str, ...]
    cells: ir.Table

    @property
    def unit(self) -> list[str]:
        """The columns that make a unit."""
        return ["query", *self.log.context, "doc"]


def count_displays(log: ClickLog) -> Counted:
    """Return a log in counts, which the engine holds; of a large one some documents of queries, drawn by hash."""
    plain = log.with_plain_contexts()
    t, engine = plain.table, plain.engine
    rows = 0 if log.facts is None else log.facts.rows
    if rows > MOST_ROWS:
        digest = engine.digest([t.query, t.doc])
        share = MOST_ROWS / rows
        if digest is None:
            chosen = is_drawn(t.query.cast("string") + "\t" + t.doc.cast("string"), share)
        else:  # a tenth of the time
            chosen = digest % PARTS < int(share * PARTS)
        drawn = engine.materialise(_cells(plain, t.filter(chosen)), task=TASK)
        shown = engine.fetch(drawn.agg(shown=drawn.shown.sum()), task=TASK).to_pylist()[0]["shown"] or 0.0
        if shown >= FEW * MOST_ROWS:
            return Counted(plain, log.context, drawn)
    return Counted(plain, log.context, engine.materialise(_cells(plain, t), task=TASK))


def _cells(log: ClickLog, rows: ir.Table) -> ir.Table:
    arm = {"arm": rows.ranker.cast("string")} if log.has("ranker") else {}
    return rows.group_by("query", *log.context, "doc", "position", **arm).agg(
        shown=rows.impressions.sum().cast("float64"), clicks=rows.clicks.sum().cast("float64")
    )
