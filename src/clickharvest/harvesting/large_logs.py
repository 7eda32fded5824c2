"""Large logs: harvests that need less memory.

- `narrowed` reads only the rows that a harvest can be made of. Where queries have a heavy tail, most units are shown at
  one position only. A digest of each unit with one bit per position tells which are not, in a third of the memory of
  queries, contexts and documents. Units that share a digest are kept or left out together, so no intervention is lost.
- `thin` keeps some whole queries of a harvest: those whose hash is below a threshold, the same ones on every engine and
  every run. Whether a query is kept depends on its name alone, so the estimate has no bias; with a share s of the
  clicks, intervals are about 1 / √s times as wide.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clickharvest.errors import HarvestWarning
from clickharvest.harvesting.interventions import Interventions
from clickharvest.words import spell_thinning

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

LARGE = 5_000_000
"""Rows from which a log is narrowed; a smaller log is summed faster than it is read twice."""
SAMPLE, SPARSE = 200_000, 0.3
"""Rows that are sampled first, and distinct units per sampled row from which a log has a heavy tail."""
BITS = 32
"""Bits of a digest, one per position. The last stands for all lower positions, whose units are all kept."""
LEAST_QUERIES = 1_000
"""Queries that are kept at least: intervals rest on the number of queries."""


def narrowed(
    log: ClickLog, keys: list[str], *, max_position: int | None = None, clicked_only: bool = False
) -> ClickLog:
    """Return the log with the rows of units shown at two positions, and few others; unchanged where that costs more.

    Args:
        log: the click log.
        keys: what makes a unit.
        max_position: leave out what was shown lower.
        clicked_only: leave out units without a click.
    """
    import ibis

    if log.is_text or log.facts is None or log.facts.rows < LARGE:
        return log
    rows = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    if not _is_sparse(log, rows, keys):
        return log
    bit = (ibis.literal(1, "int64") << (ibis.least(rows.position.cast("int64"), BITS) - 1)).cast("uint32")
    units = rows.group_by(digest=log.engine.digest([rows[key] for key in keys])).agg(
        places=bit.bit_or(), **({"clicks": rows.clicks.max()} if clicked_only else {})
    )
    places = units.places.cast("int64")
    several = ((places & (places - 1)) != 0) | (places >= 2 ** (BITS - 1))
    likely = units.filter(several & (units.clicks > 0) if clicked_only else several).select("digest")
    kept = log.engine.materialise(likely, task="Looking for interventions")
    return replace(log, likely=(kept.digest, tuple(keys)))


def _is_sparse(log: ClickLog, rows: ir.Table, keys: list[str]) -> bool:
    rows_sampled = rows.limit(SAMPLE)
    digest = log.engine.digest([rows_sampled[key] for key in keys])
    if digest is None:
        return False
    sample = log.engine.fetch(rows_sampled.agg(units=digest.nunique()), task="Looking for interventions").to_pylist()[0]
    return bool(sample["units"] >= SPARSE * SAMPLE)


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
    """Return interventions with about `max_clicks` clicks at most: those that `harvest` would keep of their log.

    Warns:
        HarvestWarning: queries were left out.
    """
    clicks = int(interventions.clicks.sum())
    queries, query = np.unique(interventions.query.astype(str), return_inverse=True)
    share = share_to_keep(clicks, len(queries), max_clicks)
    if share == 1:
        return interventions
    from clickharvest.logs.engines import is_text_drawn

    drawn = np.array([is_text_drawn(text, share) for text in queries.tolist()])
    kept = replace(interventions.take(drawn[query]), thinned_from=interventions.thinned_from or clicks)
    warn_of_thinning(int(kept.clicks.sum()), kept.thinned_from)
    return kept


def warn_of_thinning(clicks: int, whole: int) -> None:
    """Warn that a harvest was thinned."""
    message = f"{spell_thinning(clicks, whole)} Raise --max-clicks (max_clicks) to use more; memory grows with it."
    warnings.warn(message, HarvestWarning, stacklevel=3)
