"""Is a context column made of clicks?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.words import clean_text

ENOUGH = 50
"""Clicks that a value would be expected to have, from its queries' click rates, below which the value is not judged."""
MOST_VALUES = 200
"""Values of a column that are looked at; of numbers, as many ranges of equally many rows."""


class LeakedContexts(Check):
    """A value that is never clicked, where the same queries are clicked with other values, is known after the click."""

    kind = "leaked contexts"
    question = "Are context columns known before the click?"
    assumption = "context columns are known before the click"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d = evidence.displays
        rate = np.bincount(d.query, d.clicks) / np.maximum(np.bincount(d.query, d.shown), 1)
        expected = d.shown * rate[d.query]
        for name in evidence.model.context:
            code = d.codes[name] + 1
            if code.max(initial=0) > MOST_VALUES:
                continue
            clicks, own = np.bincount(code, d.clicks), np.bincount(code, expected)
            worst = int(np.argmax(np.where(clicks == 0, own, 0)))
            if clicks[worst] == 0 and own[worst] >= ENOUGH:
                value = clean_text(str(d.contexts[name][int(np.argmax(code == worst))]), 24)
                return Finding(
                    self.kind,
                    "decisive",
                    f"{clean_text(name, 24)} = {value} is never clicked, where {own[worst]:,.0f} clicks were expected: "
                    "the column seems to be made of clicks.",
                    f"leave {clean_text(name, 24)} out of the context",
                )
        return Finding(self.kind, "ok", "Context columns are known before the click.")
