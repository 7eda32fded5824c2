"""Signs that a log lacks displays or clicks, although each of its rows is possible: robots, bad joins, lost rows.

They come from the counts in `LogFacts`, without another query.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.log_facts import LONG, LogFacts, has_sessions, spell_sessions

NEARLY_ALL = 0.95
"""Share of clicked rows from which a log looks like one of clicks alone."""
ENOUGH = 20
"""Impressions, or pages, that a doubt needs at least."""
MATTERS = 0.05
"""Expected share of second clicks from which their absence matters."""
BY_ROBOTS = 0.02
"""Share of the clicks, on pages clicked throughout, from which robots are suspected."""
BEYOND_CHANCE = 10
"""Ratio of such pages to those expected by chance from which robots are suspected."""
GAPPED = 0.3
"""Share of pages with gaps from which rows seem to be missing."""

SHARED_REMEDY = (
    "where positions start again on every page of a list, count through with --page-number COLUMN --page-size N; "
    "where ads or other blocks have positions of their own, keep one block with --block COLUMN=VALUE"
)
CLICKED_PAGES = (
    "ClickShare, the default, becomes a little too flat by that (not at all with --rankings), whereas click rates and "
    "AllPairs are wrong"
)


@dataclass(frozen=True)
class Doubt:
    """One reason to doubt a log.

    Attributes:
        name: what is wrong.
        sentence: what was found, what it means and what to do.
        value: the share of rows or pages concerned.
    """

    name: Literal[
        "clicked rows",
        "shared positions",
        "clicked pages",
        "one click a page",
        "single clicks",
        "clicked through",
        "missing rows",
    ]
    sentence: str
    value: float


def doubts(log: ClickLog) -> list[Doubt]:
    """Return the reasons to doubt a log whose rows were checked.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 3, "doc": ["a", "b", "c"], "position": [1, 1, 2], "click": [1, 0, 0]}
        >>> [doubt.name for doubt in doubts(read_log(pa.table(shown | {"page": [7, 7, 7]})))]
        ['shared positions']
    """
    facts = log.facts
    if facts is None:
        return []
    reasons = []
    if facts.impressions >= ENOUGH and facts.clicks >= NEARLY_ALL * facts.impressions:
        sentence = (
            f"{facts.clicks:,} of {facts.impressions:,} impressions are clicked, more than in any list of results. Log "
            "what was shown, not only what was clicked."
        )
        reasons.append(Doubt("clicked rows", sentence, facts.clicks / facts.impressions))
    if has_sessions(facts):
        reasons.append(
            Doubt("shared positions", f"{spell_sessions(facts, log.roles)}.", facts.session_pages / facts.pages)
        )
    elif facts.shared_pages:
        what, remedy = "position", SHARED_REMEDY
        if log.places is not None:
            what, remedy = "place", "name a further column, which tells them apart, with --place"
        sentence = (
            f"{facts.shared_pages:,} of {facts.pages:,} pages show several documents at one {what} "
            f"({facts.shared_example}), so that one {what} means several places: {remedy}."
        )
        reasons.append(Doubt("shared positions", sentence, facts.shared_pages / facts.pages))
    if log.only_clicked_pages:
        sentence = (
            f"{facts.clicked_pages:,} of {facts.pages:,} pages have a click: pages without one seem to be left out. "
            f"{CLICKED_PAGES}."
        )
        reasons.append(Doubt("clicked pages", sentence, facts.clicked_pages / facts.pages))
    if ("click" in log.roles or log.tallies) and log.places is None:  # tallies keep the page counts of their logs
        reasons += _single_clicks(facts, known=not log.only_clicked_pages) + _clicked_through(facts)
        reasons += [] if log.prepared else _gaps(facts)  # where rows were left out on purpose, gaps are no news
    return reasons


def _single_clicks(facts: LogFacts, *, known: bool) -> list[Doubt]:
    """Doubt a log whose pages have one click at most.

    With clicks at random, at the rate r of the log, Σ 1 − (1 − r)^rows of the pages have a click, and all further
    clicks are second or later ones; users of unequal zeal make more of these. A doubt needs enough expected ones to
    matter, and less than a twentieth of them in the log. Where pages without a click are missing, r is not known.
    """
    if not facts.likely_pages:
        return []
    later = facts.clicks - facts.clicked_pages
    expected = facts.clicks - facts.likely_pages
    if expected < max(ENOUGH, MATTERS * facts.clicks) or later >= expected / 20:
        return []
    if not known:
        sentence = (
            f"{later:,} of {facts.clicks:,} clicks are second or later clicks on their page. If the log keeps one of "
            "several clicks on a page, the curve may be off by a factor: find out whether it does."
        )
        return [Doubt("one click a page", sentence, later / facts.clicks)]
    sentence = (
        f"{later:,} of {facts.clicks:,} clicks are second or later clicks on their page, against {expected:,.0f} by "
        "chance: the log keeps one click of a page, or users leave after one, and the curve may be off by a factor "
        "(too steep if the first click is kept, too flat if the last). Log every click; if pages get a new name when "
        "users come back to them, name the visit with --page."
    )
    return [Doubt("single clicks", sentence, later / facts.clicks)]


def _clicked_through(facts: LogFacts) -> list[Doubt]:
    """Doubt a log with many pages on which everything is clicked, far more than its click rate makes."""
    if facts.through_pages < ENOUGH or facts.through_clicks < BY_ROBOTS * facts.clicks:
        return []
    # An upper bound: longer pages have fewer, and the product of unequal rates is less than that of their mean.
    expected = facts.pages * (facts.clicks / facts.impressions) ** LONG
    if facts.through_pages < BEYOND_CHANCE * expected:
        return []
    sentence = (
        f"{facts.through_pages:,} of {facts.pages:,} pages have a click on every result ({LONG} or more), against "
        f"{expected:,.0f} by chance, and {100 * facts.through_clicks / facts.clicks:.0f} % of all clicks: robots click "
        "like that, and make the curve too flat. Leave out the users of these pages."
    )
    return [Doubt("clicked through", sentence, facts.through_clicks / facts.clicks)]


def _gaps(facts: LogFacts) -> list[Doubt]:
    """Doubt a log whose pages lack positions between others."""
    if facts.gapped_pages < max(ENOUGH, GAPPED * facts.pages):
        return []
    sentence = (
        f"{facts.gapped_pages:,} of {facts.pages:,} pages lack a position between their first and their last, which is "
        "harmless if ads stand there. If rows without a click were left out, the curve is too flat: keep all rows of a "
        "page, or leave out whole pages by chance."
    )
    return [Doubt("missing rows", sentence, facts.gapped_pages / facts.pages)]


def refuse_clicks_alone(log: ClickLog) -> None:
    """Raise `InputError` for a log of clicks alone, which cannot be fitted; it may still be weighed."""
    if log.facts is not None and log.facts.clicks == log.facts.impressions > 1:
        raise InputError(
            f"all of {log.facts.impressions:,} impressions are clicked: a log of clicks alone tells nothing of "
            "examination; log what was shown, not only what was clicked"
        )


def warn_of_doubts(log: ClickLog, *, stacklevel: int = 3) -> None:
    """Warn of all doubts but missing pages, which do not matter to ClickShare."""
    for doubt in doubts(log):
        if doubt.name not in ("clicked pages", "one click a page"):
            warnings.warn(doubt.sentence, HarvestWarning, stacklevel=stacklevel)
