"""Days: how long a log is, as far as it tells."""

from __future__ import annotations

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog

DAY = 86_400
LONGEST = 1_000_000
"""Days; what is longer has no number for a time, such as infinity."""


def days_of(log: ClickLog) -> float | None:
    """Return the days that a log covers, from the first to the last; None where it has no column of times."""
    if not log.has("time") or not (log.columns["time"].type().is_timestamp() or log.columns["time"].type().is_date()):
        return None
    import pyarrow as pa

    time = log.table.time
    row = log.engine.fetch(log.table.agg(first=time.min(), last=time.max()), task="Looking at times")
    if row["first"].null_count:
        return None
    # Python's own times have no years before 1 or after 9999.
    first, last = (row[name].cast(pa.timestamp("s"), safe=False).cast("int64")[0].as_py() for name in ("first", "last"))
    days: float = (last - first) / DAY
    if days > LONGEST:
        raise InputError(
            f"the times of the log are {days:,.0f} days apart: expected {LONGEST:,} at most; mend the times"
        )
    return days + 1 if pa.types.is_date(row["first"].type) else max(days, 1 / 24)
