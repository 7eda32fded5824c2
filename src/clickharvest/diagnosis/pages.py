"""Is the log one of all that was shown, one document at one position of a page?

Where the log names its pages, the checks of its rows have counted them. Where it does not, what the same user saw for
the same query at the same time is taken for a page, and what is found there is a suspicion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.diagnosis.findings import Finding, percent
from clickharvest.logs.click_log import lack_unclicked
from clickharvest.logs.doubting import CLICKED_PAGES, SHARED_REMEDY, doubts
from clickharvest.words import count

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

ENOUGH_PAGES = 20
"""Of fewer likely pages nothing is told."""
SUSPICIOUS = 0.05
"""Share of the likely pages with shared positions from which on they are no accident of the clock."""
UNEQUAL = 0.2
"""Mean difference of the lengths of a query's pages from their mean, over all lengths, from which on they differ."""


def page_findings(log: ClickLog) -> list[Finding]:
    """Return what makes the log doubtful, certain where it names its pages and suspected where it has times alone."""
    found = [Finding(doubt.name, "warning", doubt.sentence, doubt.value) for doubt in doubts(log)]
    return found + _lost(log) + _suspicions(log) + _lengths(log)


def _lost(log: ClickLog) -> list[Finding]:
    """Return what counts of days cannot tell, where the log is made of them."""
    if not log.tallies:
        return []
    hold = "hold" if log.tallies > 1 else "holds"
    by_user = "" if log.has("user") else ", tests by user"
    sentence = (
        f"Read from {count(log.tallies, 'tally', 'tallies')}, which {hold} counts: whether clicks above change clicks "
        f"below{by_user} and drift within a tally are told by the log itself alone."
    )
    return [Finding("tallies", "note", sentence, float(log.tallies))]


def _suspicions(log: ClickLog) -> list[Finding]:
    """Return what likely pages tell; nothing where times are too coarse to tell pages apart.

    Rows of one query, user and time are a likely page if no document is among them twice: pages of one query show much
    the same documents, so where a day or an hour joins several of them, documents repeat.
    """
    if log.has("page") or not log.has("time") or "click" not in log.roles:
        return []
    t = log.table
    keys = ["query", "time", *(role for role in ("user", "ranker") if log.has(role))]
    docs = t.group_by(*keys, "doc").agg(rows=t.count(), clicks=t.clicks.sum(), place=t.position.min())
    places = docs.group_by(*keys, "place").agg(
        docs=docs.count(), rows=docs.rows.sum(), clicks=docs.clicks.sum(), again=docs.rows.max()
    )
    likely = places.group_by(*keys).agg(
        shared=places.docs.max(), rows=places.rows.sum(), clicks=places.clicks.sum(), again=places["again"].max()
    )
    several = likely.rows > 1
    counts = likely.agg(
        joined=likely.count(where=several & (likely["again"] > 1)),
        pages=likely.count(where=several & (likely["again"] == 1)),
        shared=likely.count(where=several & (likely["again"] == 1) & (likely.shared > 1)),
        clicked=likely.count(where=several & (likely["again"] == 1) & (likely.clicks > 0)),
        clicks=likely.clicks.sum(where=several & (likely["again"] == 1)),
    )
    n = log.engine.fetch(counts, task="Looking for pages").to_pylist()[0]
    if n["pages"] < ENOUGH_PAGES or n["joined"] > SUSPICIOUS * n["pages"]:
        return []
    findings = []
    told = f"{n['pages']:,} likely pages (the same query at the same time)"
    if n["shared"] >= SUSPICIOUS * n["pages"]:
        listed = log.places is None
        what, remedy = ("position", SHARED_REMEDY) if listed else ("place", "name a further column with --place")
        sentence = (
            f"{percent(n['shared'] / n['pages'])} of {told} show several documents at one {what}, so one {what} is "
            f"suspected to mean several places. Name the page column with --page to be sure; {remedy}."
        )
        findings.append(Finding("shared positions", "warning", sentence, n["shared"] / n["pages"]))
    if lack_unclicked(n["pages"], n["clicked"], n["clicks"]):
        sentence = (
            f"{n['clicked']:,} of {told} have a click: those without one are suspected to be left out. Name "
            f"the page column with --page to be sure. {CLICKED_PAGES}."
        )
        findings.append(Finding("clicked pages", "warning", sentence, n["clicked"] / n["pages"]))
    return findings


def _lengths(log: ClickLog) -> list[Finding]:
    """Warn where pages of one query and context differ much in length: what was not scrolled to may not be logged.

    A row that is logged once it was seen is always examined. What is compared is then how often results are clicked
    that were seen, and the curve is flat, however few see the end of the page.
    """
    if not log.has("page") or "click" not in log.roles or log.places is not None:
        return []
    plain = log.with_plain_contexts()
    t = plain.table
    keys = ["query", *plain.context]
    pages = t.group_by("page", *keys).agg(_rows=t.count().cast("float64"))
    typical = pages._rows.mean().over(group_by=keys)
    off = pages.mutate(_off=(pages._rows - typical).abs())
    found = log.engine.fetch(
        off.agg(pages=off.count(), off=off._off.sum(), rows=off._rows.sum()), task="Looking at pages"
    ).to_pylist()[0]
    if found["pages"] < ENOUGH_PAGES or found["off"] < UNEQUAL * found["rows"]:
        return []
    value = found["off"] / found["rows"]
    sentence = (
        f"Pages of one query have {found['rows'] / found['pages']:.1f} results on average and differ from that by "
        f"{100 * value:.0f} %. If results are logged once users scroll to them, the curve is that of results "
        "that were seen, far too flat: log what was loaded, seen or not. If pages differ by device or layout, name "
        "that column as context."
    )
    return [Finding("unequal pages", "warning", sentence, value)]
