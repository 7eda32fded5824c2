"""Is a lower position examined more often than the top?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check, spell_change
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding


class Order(Check):
    """Positions whose whole interval lies above the top of the list: seldom so, but where ranks are not those of users.

    The effect is all that they are above it.
    """

    kind = "order"
    question = "Is a lower position examined more often than the top?"
    assumption = "no position is examined more often than the top"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        no = Finding(self.kind, "ok", "No position is examined more often than the top.")
        if evidence.model.places is not None or evidence.anchor:
            return no
        found = evidence.prediction
        estimated = np.isin(found.positions, evidence.positions)
        above = (np.nan_to_num(found.lower[:, estimated], nan=0.0) > 1) * np.maximum(evidence.table, 0.0)
        if not above.any():
            return no
        effect = above.max(axis=0)[None]
        at = int(np.argmax(effect))
        return Finding(
            self.kind,
            "warning",
            f"Position {evidence.positions[at]} is examined more often than position {evidence.positions[0]}, by "
            f"{spell_change(float(effect[0, at]))}.",
            "were positions logged before results were removed or moved? Log them where users saw them",
            -effect,
            np.zeros_like(effect),
        )
