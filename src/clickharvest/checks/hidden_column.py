"""How much would a context column change that is not named?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check, spell_change
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.harvesting.numbering import distinct
from clickharvest.words import clean_text


class HiddenColumn(Check):
    """The mean curve within results if a named column were not known, less that with it.

    Where rankers show a result higher in one context than in another, leaving the column out bends the curve. A column
    that the log lacks may be as strong as the strongest that it has. The budget does not count it.
    """

    kind = "hidden column"
    question = "How much would a column change that is not named?"
    assumption = "every column that examination depends on is named"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d, names = evidence.displays, evidence.model.context
        if not names or d.doc is None or not len(evidence.moved):
            return Finding(self.kind, "ok", "No named column shows how strong an unnamed one may be.")
        codes = {name: d.codes[name] for name in names}
        known = evidence.moves(beside_model=False)
        moved = {}
        for name in names:
            result = distinct(d.query, d.doc, *(code for other, code in codes.items() if other != name))[1]
            without = evidence.moves(unit=result, beside_model=False)
            moved[name] = evidence.basis @ (without.theta - known.theta)
        strongest = max(moved, key=lambda name: float(np.abs(moved[name]).max()))
        at = int(np.argmax(np.abs(moved[strongest])))
        size = spell_change(float(moved[strongest][at]))
        return Finding(
            self.kind,
            "ok",
            f"A column that is not named, as strong as {clean_text(strongest, 24)}, would move position "
            f"{evidence.positions[at]} by {size}.",
        )
