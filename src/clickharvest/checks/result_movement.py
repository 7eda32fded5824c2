"""Do results move: is anything shown twice within the contexts, which queries never move, and what would move them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clickharvest.checks.finding import Finding, Severity, spell_percent
from clickharvest.words import spell_positions

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

FEW = 0.2
"""Share of repeated impressions, relative to that without context columns, below which the columns split too much."""
SOME, MANY = 0.1, 0.25
"""Shares of the clicks on unmoved queries from which on it is a note, and a warning."""
SWAPPED, SHUFFLED = 0.05, 0.01
"""Shares of the pages on which neighbouring ranks are swapped, and whose order is random; more cost more clicks."""


def repetition(log: ClickLog) -> list[Finding]:
    """Return which context columns vary inside a query, and whether units are ever shown twice.

    A unit is a query, context and document. If contexts are unique to each impression, no unit is seen at two
    positions, and realised exposures identify nothing.
    """
    if not log.context:
        return []
    units = _shown_again(log, ["query", *log.context, "doc"])
    bare = _shown_again(log, ["query", "doc"]) if units < FEW else 1.0  # otherwise it makes no difference
    remedy = (
        "make units of query and document alone (--unit query), use coarser context columns, or give the rankings "
        "of all rankers (--rankings)"
    )
    repeated = f"{spell_percent(units)} of impressions show a query, context and document seen more than once"
    severity: Severity = "warning"
    if units == 0 and bare > 0:
        sentence = (
            f"With the context columns every impression is unique, so nothing is shown twice (without them "
            f"{spell_percent(bare)} of impressions would be): {remedy}."
        )
    elif units < FEW * bare:
        sentence = f"Only {repeated}, against {spell_percent(bare)} without the context: {remedy}."
    elif units == 0:
        severity, sentence = "note", "No impression shows a query and document seen more than once."
    else:
        severity, sentence = "ok", f"{repeated[0].upper()}{repeated[1:]}."
    return [Finding("repetition", severity, sentence, value=units), *_variation_within_queries(log)]


def _shown_again(log: ClickLog, keys: list[str]) -> float:
    """Return the share of impressions of what was shown more than once: digests are enough to tell things apart."""
    t = log.table
    digest = log.engine.digest([t[key] for key in keys])
    by = {key: t[key] for key in keys} if digest is None else {"_digest": digest}
    units = t.group_by(**by).agg(_shown=t.count() if "click" in log.roles else t.impressions.sum())
    counts = units.agg(again=units._shown.sum(where=units._shown > 1), shown=units._shown.sum())
    row = log.engine.fetch(counts, task="Looking for repetition").to_pylist()[0]
    return (row["again"] or 0) / (row["shown"] or 1)


def _variation_within_queries(log: ClickLog) -> list[Finding]:
    """Return which columns vary inside queries, an empty value being one more, and which are empty everywhere."""
    t = log.table
    ranges = {"rows": t.count()}
    for i, column in enumerate(log.context):
        ranges |= {f"there_{i}": t[column].count(), f"low_{i}": t[column].min(), f"high_{i}": t[column].max()}
    by_query = t.group_by("query").agg(**ranges)
    sums: dict[str, ir.Scalar] = {}
    for i in range(len(log.context)):
        there, apart = by_query[f"there_{i}"], (by_query[f"low_{i}"] != by_query[f"high_{i}"]).fill_null(False)
        half_empty = (there > 0) & (there < by_query.rows)
        sums |= {f"there_{i}": there.sum(), f"varying_{i}": (apart | half_empty).ifelse(1.0, 0.0).mean()}
    shares = log.engine.fetch(by_query.agg(**sums), task="Looking for repetition").to_pylist()[0]
    empty = [column for i, column in enumerate(log.context) if not shares[f"there_{i}"]]
    varying = {column: shares[f"varying_{i}"] for i, column in enumerate(log.context)}
    moving = {column: share for column, share in varying.items() if share > 0}
    fixed = [column for column, share in varying.items() if share == 0 and column not in empty]
    parts = [f"{', '.join(fixed)}: constant within every query"] if fixed else []
    parts += [f"{column} varies within {spell_percent(share)} of queries" for column, share in moving.items()]
    findings = []
    if parts:
        findings.append(Finding("context within queries", "note" if moving else "ok", "; ".join(parts) + "."))
    if empty:
        sentence = (
            f"Empty in every row, so that nothing can depend on it: {', '.join(empty)}. Leave it out of --context."
        )
        findings.append(Finding("empty context", "warning", sentence))
    return findings


def unmoved_queries(log: ClickLog, harvested: ir.Table) -> list[Finding]:
    """Return the share of the clicks on queries of which the harvest has no click; nothing below a tenth.

    Args:
        log: the log.
        harvested: its units at two positions or more, as `harvest_table` returns them.
    """
    t = log.table
    moved = harvested.filter(harvested.clicks > 0).select("query").distinct()
    counts = t.agg(clicks=t.clicks.sum().cast("float64")).cross_join(
        t.semi_join(moved, "query").agg(moved=lambda some: some.clicks.sum().cast("float64"))
    )
    row = log.engine.fetch(counts, task="Looking at queries").to_pylist()[0]
    share = 1 - (row["moved"] or 0.0) / (row["clicks"] or 1.0)
    if not row["moved"] or share < SOME:
        return []
    sentence = (
        f"{spell_percent(share)} of the clicks are of queries whose results never moved, or were not clicked where "
        "they did: the curve is that of the other queries. If rankers agree on what is read otherwise, such as names "
        "of sites, it does not hold there: name the kind of query (--context), or swap neighbouring "
        "ranks at random on a few pages of every query."
    )
    return [Finding("unmoved queries", "warning" if share >= MANY else "note", sentence, value=share)]


def advise_moves(clicks: Mapping[int, int], unlinked: Sequence[int]) -> str:
    """Return experiments that link positions to others, and the share of the clicks that they cost at most.

    A swap of ranks i < j costs (p_i − p_j)(r_i − r_j) ≤ p_i r_i, at most the clicks at rank i.

    Args:
        clicks: clicks by position, of those shown, ascending.
        unlinked: those that are to be linked.

    Example:
        >>> advise_moves({1: 30, 2: 10, 3: 2}, [3])
        'swap ranks 2 and 3 at random on 5 % of the pages (costs at most 1.2 % of the clicks) or show 1 % of the pages \
in random order (at most 1 %)'
    """
    pairs = [pair for pair in zip(clicks, list(clicks)[1:], strict=False) if {*pair} & {*unlinked}]
    ranks = sorted({rank for pair in pairs for rank in pair})
    which = "ranks {} and {}".format(*ranks) if len(ranks) == 2 else f"neighbours among ranks {spell_positions(ranks)}"
    cost = SWAPPED * sum(clicks[upper] for upper, _ in pairs) / max(sum(clicks.values()), 1)
    return (
        f"swap {which} at random on {100 * SWAPPED:g} % of the pages (costs at most {100 * max(cost, 0.001):.2g} % of "
        f"the clicks) or show {100 * SHUFFLED:g} % of the pages in random order (at most {100 * SHUFFLED:g} %)"
    )
