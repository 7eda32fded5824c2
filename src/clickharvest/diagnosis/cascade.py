"""A test of independence on the page: does a click above change clicks below?

The position-based model lets examination depend on position and context alone. Users who read downwards and leave once
served make it depend on what was clicked above, too, and no curve is right for all pages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clickharvest.diagnosis.findings import Finding, sign_of, spell_p, spell_sign
from clickharvest.diagnosis.laws import clustered_variance, two_sided

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog


def clicks_above(log: ClickLog) -> list[Finding]:
    """Compare the clicks of a unit at a position on pages with and without a click above it.

    In each unit and position, n displays of which m had a click above and C were clicked: if clicks above change nothing,
    those clicked of the m follow a hypergeometric law with mean E = C m / n. The test is that of Σ(a − E), clustered by
    query (see `clustered_variance`). The number is the Mantel-Haenszel ratio of the click rates,
    Σ a (n − m)/n / Σ (C − a) m/n: below 1 where a click above keeps users from what is below.

    Needs a page column and one row per impression. Users who click much or little, by themselves, make clicks come
    together, and hide as much of a cascade.
    """
    if not log.has("page") or "click" not in log.roles:
        return []
    t = log.table
    clicked = t.filter(t.clicks > 0)
    first = clicked.group_by("page").agg(_first=clicked.position.min())
    rows = t.left_join(first, "page")
    after = (rows._first < rows.position).fill_null(False).ifelse(1.0, 0.0)
    rows = rows.select("query", *log.context, "doc", "position", "clicks", _after=after)
    strata = rows.group_by("query", *log.context, "doc", "position").agg(
        n=rows.count().cast("float64"),
        m=rows._after.sum(),
        c=rows.clicks.sum().cast("float64"),
        a=(rows.clicks * rows._after).sum(),
    )
    n, m, c, a = strata.n, strata.m, strata.c, strata.a
    strata = strata.filter((m > 0) & (m < n) & (c > 0) & (c < n)).select(
        "query",
        score=a - c * m / n,
        variance=c * (m / n) * (1 - m / n) * (n - c) / (n - 1),
        with_click=a * (n - m) / n,
        without=(c - a) * m / n,
    )
    names = ("score", "variance", "with_click", "without")
    own = strata.group_by("query").agg(**{name: strata[name].sum() for name in names})
    sums = own.agg(
        **{name: own[name].sum() for name in names},
        squares=(own.score * own.score).sum(),
        products=(own.score * own.variance).sum(),
        sizes=(own.variance * own.variance).sum(),
    )
    s = log.engine.fetch(sums, task="Testing clicks above").to_pylist()[0]
    name = "clicks above"
    if not s["variance"]:
        sentence = "No unit was shown at one position with and without a click above: cascades cannot be tested."
        return [Finding(name, "note", sentence)]
    variance = clustered_variance(s["score"], s["variance"], s["squares"], s["products"], s["sizes"])
    p_value = two_sided(s["score"], variance)
    ratio = s["with_click"] / s["without"] if s["without"] else math.inf
    told = f"clicked {ratio:.2f} times as often below a click as elsewhere, {spell_p(p_value)}"
    status = sign_of(p_value)
    if status != "warning":
        return [Finding(name, status, f"{spell_sign(p_value)} that a click above changes clicks below ({told}).", ratio, p_value)]
    if ratio < 1:
        sentence = (
            f"A click above keeps users from what is below (the same results at the same position are {told}), as when "
            "users leave once served: examination depends on the results above, and the curve is an average over them. "
            "Use a shallow --max-position, or clicks of pages on which users went on."
        )
        return [Finding(name, "warning", sentence, ratio, p_value)]
    sentence = (
        f"Clicks on a page come together (the same results at the same position are {told}), as when some users click "
        "much and some little: add what tells them apart as context. It may hide users who leave once served."
    )
    return [Finding(name, "note", sentence, ratio, p_value)]
