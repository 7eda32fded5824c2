"""Thinning: of a harvest that is too large for memory, some whole queries are enough.

Clicks of one query depend on each other, so queries are what is drawn: those whose hash is below a threshold, the same
ones on every engine and on every run. Whether a query is kept depends on its name alone, so the estimate stays what it
was, with fewer queries behind it: with a share s of the clicks, intervals are about 1 / √s times as wide.
"""

from __future__ import annotations

import math
import warnings

from clickharvest.errors import HarvestWarning
from clickharvest.words import count

MOST_CLICKS = 20_000_000
"""Clicks that a harvest of the command line is thinned to: they fit into the memory of a laptop."""
LEAST_QUERIES = 1_000
"""So many queries are kept, whatever their clicks: intervals are made of queries."""


def share_to_keep(clicks: int, queries: int, max_clicks: int) -> float:
    """Return the share of the queries to keep.

    Example:
        >>> share_to_keep(80, 10_000, 20), share_to_keep(80, 4_000, 1), share_to_keep(80, 500, 20)
        (0.25, 0.25, 1.0)
    """
    if clicks <= max_clicks or not queries:
        return 1.0
    return min(1.0, max(max_clicks / clicks, LEAST_QUERIES / queries))


def width_ratio(clicks: int, whole: int) -> float:
    """Return how many times as wide intervals are with so many of the clicks, about.

    Example:
        >>> width_ratio(25, 100)
        2.0
    """
    return math.sqrt(whole / clicks) if clicks else math.inf


def spell_thinning(clicks: int, whole: int) -> str:
    """Return a sentence on a harvest that was thinned.

    Example:
        >>> print(spell_thinning(25, 100))
        Thinned to 25 of 100 clicks, those of whole queries chosen by hash: intervals are about 2.0 times as wide.
    """
    return (
        f"Thinned to {clicks:,} of {count(whole, 'click')}, those of whole queries chosen by hash: intervals are about "
        f"{width_ratio(clicks, whole):.1f} times as wide."
    )


def warn_of_thinning(clicks: int, whole: int) -> None:
    """Warn that a harvest was thinned."""
    told = f"{spell_thinning(clicks, whole)} Raise --max-clicks (max_clicks) to use more; memory grows with it."
    warnings.warn(told, HarvestWarning, stacklevel=3)
