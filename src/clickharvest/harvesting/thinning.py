"""Thinning: of a harvest that is too large for memory, some whole queries are enough.

Clicks of one query depend on each other, so queries are what is drawn: those whose hash is below a threshold, the same
ones on every engine and on every run. Whether a query is kept depends on its name alone, so the estimate stays what it
was, with fewer queries behind it: with a share s of the clicks, intervals are about 1 / √s times as wide.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from clickharvest.errors import HarvestWarning
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.engines import is_text_drawn
from clickharvest.words import spell_thinning

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


def thin(interventions: Interventions, max_clicks: int) -> Interventions:
    """Return interventions with about so many clicks at most, those that `harvest` would have kept of their log.

    Warns:
        HarvestWarning: queries were left out.
    """
    clicks = int(interventions.clicks.sum())
    queries, query = np.unique(interventions.query.astype(str), return_inverse=True)
    share = share_to_keep(clicks, len(queries), max_clicks)
    if share == 1:
        return interventions
    drawn = np.array([is_text_drawn(text, share) for text in queries.tolist()])
    kept = replace(interventions.take(drawn[query]), thinned_from=interventions.thinned_from or clicks)
    warn_of_thinning(int(kept.clicks.sum()), kept.thinned_from)
    return kept


def warn_of_thinning(clicks: int, whole: int) -> None:
    """Warn that a harvest was thinned."""
    told = f"{spell_thinning(clicks, whole)} Raise --max-clicks (max_clicks) to use more; memory grows with it."
    warnings.warn(told, HarvestWarning, stacklevel=3)
