"""Narrowing: of a large log, the rows that a harvest can be made of.

In a log with a heavy tail of queries most units are shown at one position only. To learn which are not, a short number
for each unit is enough, its digest: with a bit for each position that it was shown at, a third is held of what queries,
contexts and documents would take, and less has to be written to disk and read again. Rows are then kept by digest. Two
units that share one are kept or left together, so that nothing is lost; a unit that is kept for another's sake is found
out as the harvest sums by the keys themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import ibis

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

LARGE = 5_000_000
"""Rows from which on a log is narrowed: a smaller one is summed before it is read a second time."""
SAMPLE, SPARSE = 200_000, 0.3
"""Rows that are looked at first, and units among them, by row, from which on a log has a heavy tail."""
BITS = 32
"""Positions that are told apart, a bit for each: 4 bytes. The last stands for all beyond, where units are kept."""


def narrowed(
    log: ClickLog, keys: list[str], *, max_position: int | None = None, clicked_only: bool = False
) -> ClickLog:
    """Return the log with the rows of units shown at two positions, and some others; as it is where that costs more.

    Args:
        log: the click log.
        keys: what makes a unit.
        max_position: leave out what was shown lower.
        clicked_only: leave out units without a click.
    """
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
    some = rows.limit(SAMPLE)
    digest = log.engine.digest([some[key] for key in keys])
    if digest is None:
        return False
    found = log.engine.fetch(some.agg(units=digest.nunique()), task="Looking for interventions").to_pylist()[0]
    return bool(found["units"] >= SPARSE * SAMPLE)
