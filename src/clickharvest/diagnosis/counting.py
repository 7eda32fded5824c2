"""Displays and clicks of every document at every position: counted once for all that compares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog


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
    """Return a log in counts, which the engine holds."""
    plain = log.with_plain_contexts()
    t = plain.table
    keys = ["query", *plain.context, "doc", "position"]
    arm = {"arm": t.ranker.cast("string")} if log.has("ranker") else {}
    cells = t.group_by(*keys, **arm).agg(
        shown=t.impressions.sum().cast("float64"), clicks=t.clicks.sum().cast("float64")
    )
    return Counted(plain, log.context, plain.engine.materialise(cells, task="Counting displays"))
