"""Were clicks joined to every display of their document?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.harvesting.numbering import distinct

ENOUGH = 50
"""Results shown again and clicked that the check needs."""
MIXED = 0.02
"""Share of them that was also left unclicked once, below which clicks look copied; real users leave more."""


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
