"""Doubts: what makes a log whose every row is possible look unlike the log of all that was shown.

They come from the counts that the checks of the rows have made, so they cost nothing more.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog

NEARLY_ALL = 0.95
"""Share of clicked rows from which on a log is doubted: no list of results is clicked like that, a log of clicks is."""
ENOUGH = 20
"""Fewer impressions than this are no ground for a doubt."""

SHARED_REMEDY = (
    "where positions start again on every page of a list, count through with --page-number COLUMN --page-size N; "
    "where ads or other blocks have positions of their own, keep one block with --block COLUMN=VALUE"
)
CLICKED_PAGES = (
    "ClickShare, the default, bears that: it compares clicks with clicks, and comes out a little too flat (not at all "
    "with --rankings). It is fatal for click rates and AllPairs, which compare clicks with what was shown"
)


@dataclass(frozen=True)
class Doubt:
    """One reason to doubt a log.

    Attributes:
        name: what is doubted.
        sentence: what was found, what it means and what to do.
        value: the share of rows or pages it rests on.
    """

    name: Literal["clicked rows", "shared positions", "clicked pages"]
    sentence: str
    value: float


def doubts(log: ClickLog) -> list[Doubt]:
    """Return the reasons to doubt a log whose rows were checked.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 3, "doc": ["a", "b", "c"], "position": [1, 1, 2], "click": [1, 0, 0]}
        >>> [doubt.name for doubt in doubts(read_log(pa.table(shown | {"page": [7, 7, 7]})))]
        ['shared positions']
    """
    facts = log.facts
    if facts is None:
        return []
    found = []
    if facts.impressions >= ENOUGH and facts.clicks >= NEARLY_ALL * facts.impressions:
        sentence = (
            f"{facts.clicks:,} of {facts.impressions:,} impressions are clicked, which hardly any list of results is: "
            "examination shows in what was seen and left. Log what was shown, not only what was clicked."
        )
        found.append(Doubt("clicked rows", sentence, facts.clicks / facts.impressions))
    if facts.shared_pages:
        what, remedy = "position", SHARED_REMEDY
        if log.places is not None:
            what, remedy = "place", "name a further column, which tells them apart, with --place"
        sentence = (
            f"{facts.shared_pages:,} of {facts.pages:,} pages show several documents at one {what} "
            f"({facts.shared_example}), so that one {what} means several places: {remedy}."
        )
        found.append(Doubt("shared positions", sentence, facts.shared_pages / facts.pages))
    if log.only_clicked_pages:
        sentence = (
            f"{facts.clicked_pages:,} of {facts.pages:,} pages have a click: those without one seem to be left out. "
            f"{CLICKED_PAGES}."
        )
        found.append(Doubt("clicked pages", sentence, facts.clicked_pages / facts.pages))
    return found


def refuse_clicks_alone(log: ClickLog) -> None:
    """Raise `InputError` for a log of clicks alone, which tells nothing of examination; it may still be weighed."""
    if log.facts is not None and log.facts.clicks == log.facts.impressions > 1:
        raise InputError(
            f"all of {log.facts.impressions:,} impressions are clicked: a log of clicks alone tells nothing of "
            "examination; log what was shown, not only what was clicked"
        )


def warn_of_doubts(log: ClickLog, *, stacklevel: int = 3) -> None:
    """Warn of what makes everything that is computed from a log doubtful; missing pages do not, see `Doubt`."""
    for doubt in doubts(log):
        if doubt.name != "clicked pages":
            warnings.warn(doubt.sentence, HarvestWarning, stacklevel=stacklevel)
