"""Logs some of whose pages are there for having a click."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

SELECTED = 0.1
"""Share of the clicks up to which pages that are in the log for having a click change little."""


class PagesOfSize(NamedTuple):
    """Pages of 2^size to 2^(size + 1) − 1 results: how many there are, how many have a click, and their clicks."""

    size: int
    pages: int
    clicked: int
    clicks: int


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


def selected_pages(sizes: Sequence[PagesOfSize]) -> str | None:
    """Return that pages of some sizes seem to be in the log for having a click, in words; None where none are.

    Example:
        >>> selected_pages([PagesOfSize(0, 900, 40, 40), PagesOfSize(3, 300, 300, 330), PagesOfSize(4, 90, 90, 99)])
        '390 of 390 pages of 8 to 31 results have a click'
    """
    selected = [one for one in sizes if lack_unclicked(one.pages, one.clicked, one.clicks)]
    if sum(one.clicks for one in selected) <= SELECTED * sum(one.clicks for one in sizes):
        return None
    least, most = 2 ** min(one.size for one in selected), 2 ** (max(one.size for one in selected) + 1) - 1
    clicked, pages = (sum(column) for column in ([o.clicked for o in selected], [o.pages for o in selected]))
    told = f"{least} to {most} results" if most > 1 else "1 result"
    return f"{clicked:,} of {pages:,} pages of {told} have a click"
