"""Counts from the checks of a log's rows, and what counts of pages say. It needs no engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clickharvest.words import clean_text

LONG = 5
"""Rows of a page from which a click on every one of them is suspicious."""
SESSIONS = 0.01
"""Share of pages with several queries from which the page column seems to name sessions."""
SELECTED = 0.1
"""Share of the clicks from which pages selected by a click matter."""


@dataclass(frozen=True)
class LogFacts:
    """Counts from the checks of a log's rows.

    Attributes:
        rows: rows of the log.
        clicks: clicks.
        impressions: impressions.
        pages: result pages, 0 where the log has no page column.
        clicked_pages: pages with a click.
        likely_pages: expected pages with a click if all rows were equally likely to be clicked.
        shared_pages: pages that show several documents at one position.
        session_pages: pages with several queries, which are no pages but sessions.
        through_pages: pages of `LONG` rows or more with a click on every row.
        through_clicks: the clicks on these pages.
        gapped_pages: pages that lack a position between their first and their last.
        shared_example: such a page and position.
    """

    rows: int
    clicks: int
    impressions: int
    pages: int = 0
    clicked_pages: int = 0
    likely_pages: int = 0
    shared_pages: int = 0
    session_pages: int = 0
    through_pages: int = 0
    through_clicks: int = 0
    gapped_pages: int = 0
    shared_example: str = ""


class PagesOfSize(NamedTuple):
    """Pages of 2^size to 2^(size + 1) − 1 results: how many there are, how many have a click, and their clicks."""

    size: int
    pages: int
    clicked: int
    clicks: int


def selected_pages(sizes: Sequence[PagesOfSize]) -> str | None:
    """Return a phrase on page sizes that seem to be in the log only where clicked; None where there are none.

    Example:
        >>> selected_pages([PagesOfSize(0, 900, 40, 40), PagesOfSize(3, 300, 300, 330), PagesOfSize(4, 90, 90, 99)])
        '390 of 390 pages of 8 to 31 results have a click'
    """
    selected = [one for one in sizes if lack_unclicked(one.pages, one.clicked, one.clicks)]
    if sum(one.clicks for one in selected) <= SELECTED * sum(one.clicks for one in sizes):
        return None
    least, most = 2 ** min(one.size for one in selected), 2 ** (max(one.size for one in selected) + 1) - 1
    clicked, pages = (sum(column) for column in ([o.clicked for o in selected], [o.pages for o in selected]))
    size = f"{least} to {most} results" if most > 1 else "1 result"
    return f"{clicked:,} of {pages:,} pages of {size} have a click"


def lack_unclicked(pages: int, clicked: int, clicks: int) -> bool:
    """Whether pages without a click seem to be missing: far fewer than clicks that fall at random would leave.

    If n pages got m clicks at random, n exp(−m / n) of them would be without; users of unequal zeal leave more. Ten or
    more must be expected, and less than a twentieth of them be there.

    Example:
        >>> lack_unclicked(1_000, 1_000, 1_050), lack_unclicked(1_000, 400, 600), lack_unclicked(1_000, 1_000, 6_000)
        (True, False, False)
    """
    expected = pages * math.exp(-clicks / pages) if pages else 0.0
    return expected >= 10 and pages - clicked < expected / 20


def has_sessions(facts: LogFacts) -> bool:
    """Whether what is called a page is a session: many of them have several queries."""
    return facts.session_pages > SESSIONS * facts.pages


def spell_sessions(facts: LogFacts, roles: Mapping[str, str]) -> str:
    """Return that the page column names sessions, and what to do."""
    page, query = (clean_text(roles[role], 48) for role in ("page", "query"))
    return (
        f"{facts.session_pages:,} of {facts.pages:,} pages have several queries: the column {page!r} seems to name a "
        f"session, not a page; join columns that make a page, such as --page {page},{query} or --page {page},TIME, and "
        f"name the session with --user {page}"
    )
