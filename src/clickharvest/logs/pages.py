"""Pages: how often queries were shown, and on which share of their pages a document was examined."""

from __future__ import annotations

import ibis
import ibis.expr.types as ir

from clickharvest.logs.click_log import ClickLog


def examined_share(log: ClickLog, table: ir.Table, examined: str) -> ir.Table:
    """Return ρ_qd = E_qd / n_q of every query `q` and document `d`, `rho`, not yet run.

    E is the sum of `examined` over the rows that show a document, each as often as it was shown. n is the number of
    pages of the query: counted where the log has a page column, else every ranker's most shown position.

    Args:
        log: the click log, which knows the roles of the columns.
        table: its rows under their own names.
        examined: column of `table` that says how likely the result of a row is examined.
    """
    shown = table[log.roles["impressions"]].cast("float64") if "impressions" in log.roles else ibis.literal(1.0)
    arm = table[log.roles["ranker"]] if log.has("ranker") else ibis.literal("")
    page = {"page": table[log.roles["page"]]} if log.has("page") else {}
    roles = {name: table[log.roles[role]] for name, role in (("q", "query"), ("d", "doc"), ("k", "position"))}
    rows = table.select(**roles, arm=arm, n=shown, p=table[examined], **page)
    exposed = rows.group_by("q", "d").agg(exposure=(rows.p * rows.n).sum())
    if page:
        pages = rows.group_by("q").agg(pages=rows.page.nunique().cast("float64"))
    else:
        places = rows.group_by("q", "arm", "k").agg(n=rows.n.sum())
        arms = places.group_by("q", "arm").agg(n=places.n.max())
        pages = arms.group_by("q").agg(pages=arms.n.sum())
    both = exposed.join(pages, "q")
    # A counted row that was never shown has no page, and no share of none.
    return both.select("q", "d", rho=both.exposure / both.pages.nullif(0.0))
