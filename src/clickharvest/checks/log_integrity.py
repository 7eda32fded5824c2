"""Checks of the log itself: does it hold what was shown and every click, each at its place?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Check, Finding, Severity, spell_change
from clickharvest.harvesting.numbering import distinct
from clickharvest.words import clean_text

SHOWN_AGAIN = 50
"""Results shown again and clicked that the check of copied clicks needs; with fewer, chance raises alarms."""
MIXED = 0.02
"""Share of them that was also left unclicked once, below which clicks look copied; real users leave more."""
EXPECTED = 50
"""Clicks that a context's value would be expected to have, below which the value is not judged."""
MOST_VALUES = 200
"""Most values of a context column that is looked at; numbers have more."""
DECISIVE = ("clicked rows", "shared positions", "single clicks")
"""Doubts that leave no number of the log with a meaning."""
HARMLESS = "clicked pages"
"""ClickShare estimates the same where pages without a click are missing."""


class CopiedClicks(Check):
    """Of results that were shown again and clicked, to one user where users are known, some displays have no click."""

    kind = "copied clicks"
    question = "Does a click count for one display alone?"
    assumption = "a click counts for one display"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d, passed = evidence.displays, self.passed("A click counts for one display alone.")
        if d.counted or 2 * d.clicks.sum() > d.shown.sum():
            return passed
        result = d.unit if d.user is None or d.viewer is None else distinct(d.unit, d.viewer)[1]
        shown, clicks = (np.bincount(result, column) for column in (d.shown, d.clicks))
        again = (shown > 1) & (clicks > 0)
        left = int(np.count_nonzero(again & (clicks < shown)))
        if again.sum() < SHOWN_AGAIN or left >= MIXED * again.sum():
            return passed
        sentence = (
            f"Of {again.sum():,} results that were shown again and clicked, {left:,} were left on some display: clicks "
            "seem to be joined to every display of their document."
        )
        return Finding(self.kind, "decisive", sentence, "join clicks to displays by page, too")


class LeakedContexts(Check):
    """A value that is never clicked, where the same queries are clicked with other values, is known after the click."""

    kind = "leaked contexts"
    question = "Are context columns known before the click?"
    assumption = "context columns are known before the click"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d = evidence.displays
        rate = np.bincount(d.query, d.clicks) / np.maximum(np.bincount(d.query, d.shown), 1)
        for name in evidence.model.context:
            code = d.codes[name] + 1
            if code.max(initial=0) > MOST_VALUES:
                continue
            clicks, expected = np.bincount(code, d.clicks), np.bincount(code, d.shown * rate[d.query])
            worst = int(np.argmax(np.where(clicks == 0, expected, 0)))
            if clicks[worst] == 0 and expected[worst] >= EXPECTED:
                column = clean_text(name, 24)
                value = clean_text(str(d.contexts[name][int(np.argmax(code == worst))]), 24)
                sentence = (
                    f"{column} = {value} is never clicked, where {expected[worst]:,.0f} clicks were expected: "
                    "the column seems to be made of clicks."
                )
                return Finding(self.kind, "decisive", sentence, f"leave {column} out of the context")
        return self.passed("Context columns are known before the click.")


class LogDoubts(Check):
    """The most serious doubt that reading the log has raised, see `clickharvest.logs.incomplete_logs`."""

    kind = "log"
    question = "Does the log hold what was shown, and every click?"
    assumption = "the log holds what was shown, and every click"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""

        def severity(name: str) -> Severity:
            return "decisive" if name in DECISIVE else "note" if name == HARMLESS else "warning"

        doubts = {severity(doubt.name): doubt for doubt in reversed(evidence.displays.doubts)}
        for serious in ("decisive", "warning", "note"):
            if serious in doubts:
                return Finding(self.kind, serious, doubts[serious].sentence)
        return self.passed("The log looks like one of all that was shown.")


class Order(Check):
    """Positions whose whole interval lies above the top of the list: often, ranks that users did not see.

    The effect is all that they are above it.
    """

    kind = "order"
    question = "Is a lower position examined more often than the top?"
    assumption = "no position is examined more often than the top"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        passed = self.passed("No position is examined more often than the top.")
        if evidence.model.places is not None or evidence.anchor:
            return passed
        estimated = np.isin(evidence.prediction.positions, evidence.positions)
        lower = np.nan_to_num(evidence.prediction.lower[:, estimated], nan=0.0)
        effect = ((lower > 1) * np.maximum(evidence.table, 0.0)).max(axis=0)[None]
        if not effect.any():
            return passed
        at = int(np.argmax(effect))
        sentence = (
            f"Position {evidence.positions[at]} is examined more often than position {evidence.positions[0]}, by "
            f"{spell_change(float(effect[0, at]))}."
        )
        advice = "were positions logged before results were removed or moved? Log them where users saw them"
        return Finding(self.kind, "warning", sentence, advice, -effect, np.zeros_like(effect))
