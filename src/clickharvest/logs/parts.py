"""Parts of a log: ordinary pages, and pages of an experiment with results in random order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ibis.expr.types as ir

from clickharvest.errors import InputError
from clickharvest.logs.click_log import OURS, RANDOM, ClickLog, find_column, number
from clickharvest.logs.log_facts import lack_unclicked
from clickharvest.logs.preparing import Preparation
from clickharvest.logs.validation import validate_log
from clickharvest.words import clean_text, count, spell_columns

ODDS = 3.0
"""Odds ratio of an outcome from which pages count as sampled by it; a larger one misses more."""
DIFFERENCE = 0.1
"""Difference of the shares of an outcome below which pages do not count as sampled by it."""
FEWEST = 20
"""Pages with a click that both parts need at least for a comparison of their outcomes."""
MOST_OUTCOMES = 20
"""Columns that may be taken for outcomes at most."""


@dataclass(frozen=True)
class Parts:
    """A log in two parts.

    Attributes:
        whole: both; a harvest of it takes pages in random order for a design.
        ordinary: the rows of ordinary pages.
        random: those of pages in random order.
        sampled: how the choice of pages differs between the parts, in words; empty where no difference was found.
        outcome: the column by which pages were chosen, if it is known: pages with it can be compared.
    """

    whole: ClickLog
    ordinary: ClickLog
    random: ClickLog
    sampled: str = ""
    outcome: str = ""


def split_log(log: ClickLog, random: Mapping[str, str] | None = None, pages_with: str | None = None) -> Parts:
    """Divide a log into ordinary pages and those in random order.

    Args:
        log: the log; where it was not read with `random`, it is said here.
        random: the column and value of rows in random order, such as `{"ranker": "random"}`.
        pages_with: keep pages of which a row has 1 in this column, such as `"booked"`.

    Raises:
        InputError: a column is missing, or a part has no rows or no clicks.
    """
    log = log.parsed(also=log.source.columns)
    if random:
        preparation = Preparation(random=random)
        log = replace(log, source=preparation.apply(log.source, log.roles, log.context, log.position_base, log.engine))
    if RANDOM not in log.source.columns:
        raise InputError(
            'nothing tells which pages are in random order: name them, such as random={"ranker": "random"}'
        )
    log = keep_pages_with(log, pages_with)
    outcomes = [name for name in (_outcomes(log) if log.has("page") else []) if name != pages_with]
    shuffled = log.source[RANDOM]
    ordinary, other = (_part(log, rows, name) for rows, name in ((~shuffled, "ordinary"), (shuffled, "random")))
    return Parts(log, ordinary, other, *_sampled(log, ordinary, other, outcomes))


def keep_pages_with(log: ClickLog, column: str | None) -> ClickLog:
    """Return a log with the pages of which a row has 1 in a column.

    Raises:
        InputError: there is no such column, or no page column.
    """
    if column is None:
        return log
    if not log.has("page"):
        raise InputError(f"pages with {clean_text(column)} can be kept only where a column names the page")
    t, name = log.source, find_column(log.source.columns, column)
    if name not in t.columns:
        raise InputError(f"no column {clean_text(column)!r} to keep pages by: found {spell_columns(t.columns)}")
    page = log.columns["page"]
    kept = t.filter(number(t[name], words=True) > 0).select(**{f"{OURS}page": page}).distinct()
    return replace(log, source=t.filter(page.isin(kept[f"{OURS}page"])))


def _part(log: ClickLog, rows: ir.BooleanValue, name: str) -> ClickLog:
    """Return some of the rows as a log."""
    part = replace(log, source=log.source.filter(rows).drop(RANDOM), facts=None)
    try:
        return replace(part, facts=validate_log(part))
    except InputError as error:
        raise InputError(f"{name} pages alone: {error}") from None


def _outcomes(log: ClickLog) -> list[str]:
    """Return columns of 0 and 1 that are 1 on clicked rows alone, such as bookings."""
    t = log.source
    used = {*log.roles.values(), *log.columns, RANDOM}
    kinds = {name: kind for name, kind in t.schema().items() if name not in used and not name.startswith(OURS)}
    names = [name for name, kind in kinds.items() if kind.is_integer() or kind.is_boolean()][:MOST_OUTCOMES]
    if not names:
        return []
    questions: dict[str, Any] = {}
    clicked = log.columns["clicks"] > 0
    for i, name in enumerate(names):
        value = number(t[name])
        questions |= {
            f"least_{i}": value.min(),
            f"most_{i}": value.max(),
            f"clicked_{i}": (clicked | (value == 0)).all(),
        }
    answers = log.engine.fetch(t.agg(**questions), task="Looking at columns").to_pylist()[0]
    return [
        n
        for i, n in enumerate(names)
        if (answers[f"least_{i}"], answers[f"most_{i}"], answers[f"clicked_{i}"]) == (0, 1, True)
    ]


def _sampled(log: ClickLog, ordinary: ClickLog, random: ClickLog, outcomes: list[str]) -> tuple[str, str]:
    """Return how the choice of pages differs between the parts, in words, and the outcome by which, if any."""
    if ordinary.facts is None or random.facts is None or not log.has("page"):
        return "", ""
    rates = [part.facts.clicked_pages / max(part.facts.pages, 1) for part in (ordinary, random) if part.facts]
    for name, with_outcome in _outcome_pages(log, outcomes).items():
        (many, of_many), (few, of_few) = with_outcome
        if min(of_many, of_few) < FEWEST:
            continue
        odds = [(some + 0.5) / (clicked - some + 0.5) for some, clicked in with_outcome]
        if max(odds) > ODDS * min(odds) and abs(many / of_many - few / of_few) > DIFFERENCE:
            return (
                f"{100 * many / of_many:.0f} % of ordinary pages with a click have a row with {clean_text(name)} = 1, "
                f"{100 * few / of_few:.0f} % of those in random order"
            ), name
    lacking = [lack_unclicked(f.pages, f.clicked_pages, f.clicks) for f in (ordinary.facts, random.facts)]
    if lacking[0] != lacking[1]:
        return (
            f"{100 * rates[0]:.0f} % of ordinary pages have a click, {100 * rates[1]:.0f} % of those in random order",
            "",
        )
    return "", ""


def _outcome_pages(log: ClickLog, outcomes: list[str]) -> dict[str, list[tuple[int, int]]]:
    """Return for every outcome the pages with it and the pages with a click, among ordinary and random ones."""
    if not outcomes:
        return {}
    t = log.source
    keys = {f"{OURS}page": log.columns["page"], "random": t[RANDOM]}
    of_page = {f"own_{i}": number(t[name]).max() for i, name in enumerate(outcomes)}
    pages = t.group_by(**keys).agg(clicks=log.columns["clicks"].sum(), **of_page)
    clicked = pages.filter(pages.clicks > 0)
    sums = {f"own_{i}": clicked[f"own_{i}"].sum() for i in range(len(outcomes))}
    rows = log.engine.fetch(clicked.group_by("random").agg(pages=clicked.count(), **sums), task="Looking at columns")
    by_part = {bool(row["random"]): row for row in rows.to_pylist()}
    if len(by_part) < 2:
        return {}
    return {
        name: [(int(by_part[part][f"own_{i}"]), int(by_part[part]["pages"])) for part in (False, True)]
        for i, name in enumerate(outcomes)
    }


def spell_part(log: ClickLog) -> str:
    """Return how many pages and clicks a part has.

    Example:
        >>> from clickharvest.logs.reading import read_log
        >>> import pyarrow as pa
        >>> shown = {"page": [1, 1, 2], "query": ["q"] * 3, "doc": list("aba"), "position": [1, 2, 1], "click": [1] * 3}
        >>> spell_part(read_log(pa.table(shown)))
        '2 pages, 3 clicks'
    """
    assert log.facts is not None
    shown = count(log.facts.pages, "page") if log.facts.pages else count(log.facts.rows, "row")
    return f"{shown}, {count(log.facts.clicks, 'click')}"
