"""Days: how long a log is, as far as it tells."""

from __future__ import annotations

from datetime import date

from clickharvest.logs.click_log import ClickLog

DAY = 86_400


def days_of(log: ClickLog) -> float | None:
    """Return the days that a log covers, from the first to the last; None where it has no column of times."""
    if not log.has("time") or not (log.columns["time"].type().is_timestamp() or log.columns["time"].type().is_date()):
        return None
    time = log.table.time
    row = log.engine.fetch(log.table.agg(first=time.min(), last=time.max()), task="Looking at times").to_pylist()[0]
    if row["first"] is None:
        return None
    apart = row["last"] - row["first"]
    whole_days = type(row["first"]) is date
    return float(apart.days + 1) if whole_days else max(apart.total_seconds() / DAY, 1 / 24)
