"""Outcomes: what a click led to, such as a purchase, as a log of its own.

Given the click, a clicked display is a display, and what came of it is a click: with s_k(x) how much more often a click
at position k leads to the outcome than one at the anchor, and r the document's own rate, Pr(outcome | click) = s_k(x) r
has the form of Pr(click) = p_k(x) r. So the log after the click can be harvested, fitted and tested like any other.
Its exposures are the observed clicks: no design gives them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import ibis
import ibis.expr.types as ir

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog, find_column, number, require_column
from clickharvest.logs.validation import LARGEST_COUNT
from clickharvest.words import count


@dataclass(frozen=True)
class AfterClick:
    """A log of the outcomes of clicks.

    Attributes:
        log: the clicked displays as displays, those with the outcome as clicked.
        column: the column of the outcome, as the log spells it.
        clicks: clicks of the log.
        outcomes: clicks with the outcome.
        without_click: outcomes of rows without a click, left out: their position is unknown.
        beyond_clicks: outcomes beyond one per click, left out.
    """

    log: ClickLog
    column: str
    clicks: int
    outcomes: int
    without_click: int
    beyond_clicks: int

    @property
    def left_out(self) -> str:
        """A sentence on what is left out, or an empty text."""
        parts = []
        if self.without_click:
            parts.append(f"{count(self.without_click, 'outcome')} on rows without a click")
        if self.beyond_clicks:
            parts.append(f"{count(self.beyond_clicks, 'outcome')} beyond one a click")
        return f"column {self.column!r}: {' and '.join(parts)} left out of {self.total:,}" if parts else ""

    @property
    def total(self) -> int:
        """All outcomes of the log."""
        return self.outcomes + self.without_click + self.beyond_clicks

    def to_dict(self) -> dict[str, int]:
        """Return the counts."""
        return {name: getattr(self, name) for name in ("clicks", "outcomes", "without_click", "beyond_clicks")}


def after_click(log: ClickLog, outcome: str) -> AfterClick:
    """Return the log of the outcomes of the clicks of a log.

    Args:
        log: a click log whose source has the column, before `ClickLog.parsed`.
        outcome: column of 0/1 (or no/yes), or of counts; empty means none.

    Warns:
        HarvestWarning: outcomes are left out, on rows without a click or beyond one a click.

    Raises:
        InputError: there is no such column, its rows are no counts, or no click has the outcome, or all have.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": "qqqq", "doc": "aabb", "position": [1, 2, 1, 2], "click": [1, 1, 1, 0]}
        >>> rows = pa.table({name: list(column) for name, column in shown.items()} | {"bought": [1, 0, None, 0]})
        >>> found = after_click(read_log(rows), "bought")
        >>> found.clicks, found.outcomes
        (3, 1)
    """
    column = _outcome_column(log, outcome)
    value = number(log.source[column], words=True)
    value = value.fill_null(0) if value.type().is_integer() else value.fill_null(0.0)
    clicks = log.columns["clicks"]
    totals = _count(log, column, value)
    after = AfterClick(
        log=_as_log(log, column, ibis.least(value, clicks).cast("int64")),
        column=column,
        clicks=int(totals["clicks"]),
        outcomes=int(totals["outcomes"]),
        without_click=int(totals["without_click"]),
        beyond_clicks=int(totals["total"] - totals["outcomes"] - totals["without_click"]),
    )
    if not after.outcomes:
        more = f" ({after.left_out})" if after.left_out else ""
        raise InputError(f"column {column!r}: none of {after.clicks:,} clicks has the outcome{more}: name its column")
    if after.left_out:
        warnings.warn(after.left_out, HarvestWarning, stacklevel=2)
    if after.outcomes == after.clicks > 1:
        raise InputError(
            f"column {column!r}: all of {after.clicks:,} clicks have the outcome, which tells nothing of them: "
            "expected a column that is 0 where nothing came of a click"
        )
    return after


def _outcome_column(log: ClickLog, outcome: str) -> str:
    """Return the outcome's column as the log spells it."""
    if log.tallies:
        raise InputError(f"--outcome {outcome}: tallies keep no outcomes; read the log itself")
    if "repeat" in log.prepared:
        raise InputError(
            f"--outcome {outcome} does not go with --repeat first, which merges clicks of two places: keep one row per "
            "page and document in the log"
        )
    column = require_column(log.source.columns, outcome, "--outcome")
    if column in (taken := {name: role for role, name in log.roles.items()}):
        raise InputError(f"--outcome {outcome}: that is the column of {taken[column]}; name the one of the outcome")
    if find_column(log.context, outcome) in log.context:
        raise InputError(f"--outcome {outcome}: the outcome cannot be a context column as well")
    return column


def _count(log: ClickLog, column: str, value: ir.Value) -> dict[str, float]:
    """Return the totals of clicks and outcomes; refuse values that are no counts."""
    clicks = log.columns["clicks"]
    bad = (value < 0) | (value > LARGEST_COUNT)
    if not value.type().is_integer():
        bad = bad | value.isnan() | value.isinf() | (value % 1 != 0)
    answer = log.source.agg(
        bad=bad.ifelse(1, 0).sum(),
        rows=log.source.count(),
        clicks=clicks.sum(),
        total=bad.ifelse(0, value).sum(),
        outcomes=bad.ifelse(0, ibis.least(value, clicks)).sum(),
        without_click=(bad | (clicks > 0)).ifelse(0, value).sum(),
    )
    totals: dict[str, float] = log.engine.fetch(answer, task="Counting outcomes").to_pylist()[0]
    if totals["bad"]:
        shown = log.source.filter(bad).select(column).limit(3)
        examples = ", ".join(repr(row[column]) for row in log.engine.fetch(shown, task="Counting outcomes").to_pylist())
        raise InputError(
            f"column {column!r}: {totals['bad']:,} of {totals['rows']:,} rows are no outcomes, such as "
            f"{examples[:80]}; expected 0 or 1 (or no/yes), or counts: make amounts 1 where something was bought"
        )
    return totals


def _as_log(log: ClickLog, column: str, outcomes: ir.Value) -> ClickLog:
    """Return the counted log whose impressions are clicks, and whose clicks are outcomes."""
    shown = log.roles.get("click") or log.roles["clicks"]
    roles = {role: name for role, name in log.roles.items() if role not in ("click", "clicks", "impressions")}
    counts = {"clicks": outcomes, "impressions": log.columns["clicks"].cast("int64")}
    # Without facts there are no doubts: those of the log itself have been reported.
    return replace(
        log, columns=log.columns | counts, roles=roles | {"clicks": column, "impressions": shown}, facts=None
    )
