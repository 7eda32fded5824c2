"""Unmoved queries: those whose results never moved tell nothing, and may be read in another way than all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.checks.finding import Finding, spell_percent

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

NAME = "unmoved queries"
SOME, MANY = 0.1, 0.25
"""Shares of the clicks from which on this is told, and is a warning: a quarter is enough to be off by a factor."""


def unmoved_queries(log: ClickLog, harvested: ir.Table) -> list[Finding]:
    """Tell which share of the clicks is of queries of which the harvest has no click; nothing below a tenth.

    Args:
        log: the log.
        harvested: its units at two positions or more, as `harvest_table` returns them.
    """
    t = log.table
    moved = harvested.filter(harvested.clicks > 0).select("query").distinct()
    counts = t.agg(clicks=t.clicks.sum().cast("float64")).cross_join(
        t.semi_join(moved, "query").agg(moved=lambda some: some.clicks.sum().cast("float64"))
    )
    found = log.engine.fetch(counts, task="Looking at queries").to_pylist()[0]
    share = 1 - (found["moved"] or 0.0) / (found["clicks"] or 1.0)
    if not found["moved"] or share < SOME:
        return []
    sentence = (
        f"{spell_percent(share)} of the clicks are of queries whose results never moved, or were not clicked where "
        "they did: the curve is that of the other queries. If rankers agree on what is read otherwise, such as names "
        "of sites, it does not hold there: name the kind of query (--context), or swap neighbouring "
        "ranks at random on a few pages of every query."
    )
    return [Finding(NAME, "warning" if share >= MANY else "note", sentence, value=share)]
