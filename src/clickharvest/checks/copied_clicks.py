"""Were clicks joined to every display of their document?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check, Finding
from clickharvest.checks.evidence import Evidence
from clickharvest.harvesting.numbering import distinct

ENOUGH = 50
"""What was shown again and clicked below which nothing is told."""
MIXED = 0.02
"""Share of it that was also left once: whoever comes back leaves more than that."""


class CopiedClicks(Check):
    """Of what was shown again and clicked, to one user where users are known, some is left on another display."""

    kind = "copied clicks"
    question = "Does a click count for one display alone?"
    assumption = "a click counts for one display"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d = evidence.displays
        none = Finding(self.kind, "ok", "A click counts for one display alone.")
        if d.counted or 2 * d.clicks.sum() > d.shown.sum():
            return none
        of = d.unit if d.user is None or d.viewer is None else distinct(d.unit, d.viewer)[1]
        shown, clicks = (np.bincount(of, column) for column in (d.shown, d.clicks))
        again = (shown > 1) & (clicks > 0)
        left = int(np.count_nonzero(again & (clicks < shown)))
        if again.sum() < ENOUGH or left >= MIXED * again.sum():
            return none
        return Finding(
            self.kind,
            "decisive",
            f"Of {again.sum():,} results that were shown again and clicked, {left:,} were left on some display: clicks "
            "seem to be joined to every display of their document.",
            "join clicks to displays by page, too",
        )
