"""Is the log one of all that was shown and clicked?"""

from __future__ import annotations

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding, Severity

DECISIVE = ("clicked rows", "shared positions", "single clicks")
"""Doubts that leave no number of the log with a meaning."""
HARMLESS = "clicked pages"
"""ClickShare bears that pages without a click are missing."""


class LogDoubts(Check):
    """The most serious doubt that reading the log has raised, see `clickharvest.logs.incomplete_logs`."""

    kind = "log"
    question = "Does the log hold what was shown, and every click?"
    assumption = "the log holds what was shown, and every click"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        doubts = sorted(
            evidence.displays.doubts, key=lambda doubt: (doubt.name not in DECISIVE, doubt.name == HARMLESS)
        )
        if not doubts:
            return Finding(self.kind, "ok", "The log looks like one of all that was shown.")
        severity: Severity = "decisive" if doubts[0].name in DECISIVE else "warning"
        if doubts[0].name == HARMLESS:
            severity = "note"
        return Finding(self.kind, severity, doubts[0].sentence)
