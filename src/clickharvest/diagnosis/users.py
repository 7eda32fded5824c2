"""Who saw a row: the users that tests of a log count, or cluster by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog


def with_user(log: ClickLog, table: ir.Table) -> ir.Table:
    """Return rows of a log with users with a text column `_user`.

    Who is not known is somebody else on every page; without a page column such rows are left out.
    """
    known = table.user.cast("string")
    if log.has("page"):
        known = known.coalesce("page " + table.page.cast("string"))
    table = table.mutate(_user=known)
    return table.filter(table._user.notnull())
