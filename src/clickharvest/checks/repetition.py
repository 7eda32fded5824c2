"""Repetition: does anything stay that was shown twice once the context columns split the units?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.checks.finding import Finding, spell_percent

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

FEW = 0.2
"""Share of what is shown again without the context columns below which they leave too little."""


def repetition(log: ClickLog) -> list[Finding]:
    """Tell which context columns vary inside a query, and whether units are ever shown twice.

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
    told = f"{spell_percent(units)} of impressions show a query, context and document seen more than once"
    if units == 0 and bare > 0:
        sentence = (
            f"With the context columns every impression is unique, so nothing is shown twice (without them "
            f"{spell_percent(bare)} of impressions would be): {remedy}."
        )
        findings = [Finding("repetition", "warning", sentence, value=0.0)]
    elif units < FEW * bare:
        sentence = f"Only {told}, against {spell_percent(bare)} without the context: {remedy}."
        findings = [Finding("repetition", "warning", sentence, value=units)]
    elif units == 0:
        findings = [
            Finding("repetition", "note", "No impression shows a query and document seen more than once.", value=0.0)
        ]
    else:
        findings = [Finding("repetition", "ok", f"{told[0].upper()}{told[1:]}.", value=units)]
    return findings + _constancy(log)


def _shown_again(log: ClickLog, keys: list[str]) -> float:
    """Return the share of impressions of what was shown more than once: digests are enough to tell things apart."""
    t = log.table
    digest = log.engine.digest([t[key] for key in keys])
    by = {key: t[key] for key in keys} if digest is None else {"_digest": digest}
    units = t.group_by(**by).agg(_shown=t.count() if "click" in log.roles else t.impressions.sum())
    counts = units.agg(again=units._shown.sum(where=units._shown > 1), shown=units._shown.sum())
    found = log.engine.fetch(counts, task="Looking for repetition").to_pylist()[0]
    return (found["again"] or 0) / (found["shown"] or 1)


def _constancy(log: ClickLog) -> list[Finding]:
    """Tell which columns vary inside queries, an empty value being one more, and which are empty everywhere."""
    t = log.table
    ranges = {"rows": t.count()} | {f"there_{i}": t[c].count() for i, c in enumerate(log.context)}
    ranges |= {f"low_{i}": t[c].min() for i, c in enumerate(log.context)}
    ranges |= {f"high_{i}": t[c].max() for i, c in enumerate(log.context)}
    by_query = t.group_by("query").agg(**ranges)
    asked = {f"there_{i}": by_query[f"there_{i}"].sum() for i in range(len(log.context))}
    for i in range(len(log.context)):
        there, apart = by_query[f"there_{i}"], (by_query[f"low_{i}"] != by_query[f"high_{i}"]).fill_null(False)
        half = (there > 0) & (there < by_query.rows)
        asked[f"varying_{i}"] = (apart | half).ifelse(1.0, 0.0).mean()
    shares = log.engine.fetch(by_query.agg(**asked), task="Looking for repetition").to_pylist()[0]
    empty = [c for i, c in enumerate(log.context) if not shares[f"there_{i}"]]
    fixed = [c for i, c in enumerate(log.context) if shares[f"varying_{i}"] == 0 and c not in empty]
    moving = {c: shares[f"varying_{i}"] for i, c in enumerate(log.context) if shares[f"varying_{i}"] > 0}
    parts = []
    if fixed:
        parts.append(f"{', '.join(fixed)}: constant within every query")
    parts += [f"{column} varies within {spell_percent(share)} of queries" for column, share in moving.items()]
    found = [Finding("context within queries", "ok" if not moving else "note", "; ".join(parts) + ".")] if parts else []
    if empty:
        sentence = (
            f"Empty in every row, so that nothing can depend on it: {', '.join(empty)}. Leave it out of --context."
        )
        found.append(Finding("empty context", "warning", sentence))
    return found
