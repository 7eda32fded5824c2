"""A test of independence on the page: do clicks above change clicks below?

The position-based model lets examination depend on position and context alone. Users who read downwards and leave once
served make it depend on the results above, too, and no curve is right for all pages.

To compare pages with and without a click above would mislead: users who click much, or read far, click above and below,
which harms no estimate and looks like the opposite of a cascade. So what counts is not the clicks above but how many
the results above *attract*, as measured on other pages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clickharvest.diagnosis.findings import Finding, sign_of, spell_p, spell_sign
from clickharvest.diagnosis.laws import clustered_tail

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

KNOWN = math.log(10) / (2 * 1.96)
"""Standard error of a logarithm from which on its 95 % interval spans a factor of ten: no number is told of it."""


def clicks_above(log: ClickLog) -> list[Finding]:
    """Test whether a unit at a position is clicked less below results that attract clicks.

    Pages (of users, if known) fall into two halves. With c_k the click rate of position k, each half gives a document
    of a query the attraction r = (clicks + 1) / (Σ c_k of its displays + 1), and each page of the other half the clicks
    expected above a result, s = Σ c_k r over the results above. Within a half, unit and position, s and the click y are
    unrelated if clicks above change nothing: U = Σ (s − s̄)(y − ȳ) has mean 0 and variance
    Σ(s − s̄)² Σ(y − ȳ)² / (n − 1), given the s and the number of clicks. U is summed, and its law is that of queries
    that differ, see `clustered_tail`.

    The number is exp(U / Σ ȳ Σ(s − s̄)²): how many times as often a result is clicked for each click expected above it.

    Needs a page column and one row per impression.
    """
    import ibis

    if not log.has("page") or "click" not in log.roles:
        return []
    log = log.with_plain_contexts()
    rows = _expected_above(log)
    strata = rows.group_by("query", *log.context, "doc", "position", "half").agg(
        n=rows.count().cast("float64"),
        s=rows.above.sum(),
        ss=(rows.above * rows.above).sum(),
        y=rows.clicks.sum(),
        sy=(rows.above * rows.clicks).sum(),
    )
    strata = strata.filter((strata.y > 0) & (strata.y < strata.n))
    n, s, y = strata.n, strata.s, strata.y
    spread = ibis.greatest(strata.ss - s * s / n, 0.0)
    strata = strata.select(
        "query",
        score=strata.sy - s * y / n,
        variance=spread * (y - y * y / n) / (n - 1),
        weight=spread * y / n,
    )
    own = strata.group_by("query").agg(**{name: strata[name].sum() for name in ("score", "variance", "weight")})
    sums = own.agg(
        **{name: own[name].sum() for name in ("score", "variance", "weight")},
        squares=(own.score * own.score).sum(),
        products=(own.score * own.variance).sum(),
        sizes=(own.variance * own.variance).sum(),
    )
    return [tell_clicks_above(**log.engine.fetch(sums, task="Testing clicks above").to_pylist()[0])]


def _expected_above(log: ClickLog) -> ir.Table:
    """Return the rows with their half and the clicks expected above them."""
    import ibis

    from clickharvest.logs.hashing import is_drawn

    t = log.table
    who = t.user.cast("string").coalesce(t.page.cast("string")) if log.has("user") else t.page.cast("string")
    t = t.mutate(half=is_drawn(who, 0.5), clicks=t.clicks.cast("float64"))
    positions = t.group_by("position").agg(rate=t.clicks.mean())
    t = t.inner_join(positions, "position").select(*t.columns, "rate")
    docs = t.group_by("query", "doc").agg(
        **{f"clicks_{half}": t.clicks.sum(where=t.half == half).fill_null(0.0) for half in (True, False)},
        **{f"rate_{half}": t.rate.sum(where=t.half == half).fill_null(0.0) for half in (True, False)},
    )
    docs = docs.select(
        "query",
        "doc",
        **{f"r_{half}": (docs[f"clicks_{half}"] + 1) / (docs[f"rate_{half}"] + 1) for half in (True, False)},
    )
    t = t.inner_join(docs, ["query", "doc"])
    t = t.mutate(expected=t.rate * t.half.ifelse(t.r_False, t.r_True))
    upwards = ibis.window(group_by="page", order_by=[t.position, t.doc], preceding=None, following=0)
    t = t.mutate(above=t.expected.sum().over(upwards) - t.expected)
    return t.select("query", *log.context, "doc", "position", "clicks", "half", "above")


def tell_clicks_above(
    score: float, variance: float, weight: float, squares: float, products: float, sizes: float
) -> Finding:
    """Return what the test of `clicks_above` finds.

    Args:
        score: Σ U over queries.
        variance: Σ of its variances.
        weight: Σ ȳ Σ(s − s̄)².
        squares: Σ over queries of U².
        products: Σ over queries of U times its variance.
        sizes: Σ over queries of the squared variance.
    """
    name = "clicks above"
    if (variance or 0.0) < 1e-9:
        return Finding(name, "note", "No unit was clicked below different results: cascades cannot be tested.")
    p_value = clustered_tail(score, variance, squares, products, sizes)
    ratio = math.exp(max(-50.0, min(50.0, score / weight)))
    known = math.sqrt(max(variance, squares)) < KNOWN * weight
    more = "more" if ratio > 1 else "less"
    told = f"{ratio:.2f} times as often for each click that" if known else f"{more} often, the more clicks"
    told += f" results above it attract, {spell_p(p_value)}"
    status = sign_of(p_value)
    if status != "warning":
        why = f"a result is clicked {told}" if known else f"{spell_p(p_value)}; how much they might is not known"
        sentence = f"{spell_sign(p_value)} that clicks above change clicks below ({why})."
        return Finding(name, status, sentence, ratio, p_value)
    how = "as when users leave once served" if ratio < 1 else "as when good results make users read on"
    sentence = (
        f"The same result at the same position is clicked {told}, {how}: examination depends on the results above, and "
        "the curve is an average over them. Do not use its weights for pages of very different quality; fit --model "
        "browsing and --model reading, which follow the clicks above, are worth trying."
    )
    return Finding(name, status, sentence, ratio, p_value)
