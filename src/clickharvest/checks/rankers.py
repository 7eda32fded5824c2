"""Do rankers know what single users like?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.harvesting.numbering import distinct

FIXED = 0.01
"""Share of the spread of positions within a result and ranker below which rankers have one place for each result."""
RIDGE = 1e-3
"""Precision of the prior of all slopes: keeps levels of rankers apart that hardly meet."""


class Rankers(Check):
    """The same result at the same place: is it clicked more where its ranker usually shows it elsewhere?

    Who sees a result higher than its ranker usually shows it is somebody the ranker expects to like it. The slope γ of
    clicks by the usual log position, ranker levels free, is what choosing users adds to the power of k; without a
    ranker column, users stand for rankers: who usually sees a result higher clicks it more anywhere.
    """

    kind = "rankers"
    question = "Do rankers show results higher to users who like them?"
    assumption = "rankers do not know what single users like"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d, height = evidence.displays, evidence.distance[evidence.place]
        if d.ranker is not None and evidence.ranker_levels.shape[1]:
            who, sign = d.ranker, 1.0
        elif d.viewer is not None and d.user is not None:
            who, sign = d.viewer, -1.0
        else:
            return self.untested("user" if d.ranker is not None else "ranker")
        of = distinct(d.unit, who)[1]
        usual = (np.bincount(of, d.shown * height) / np.bincount(of, d.shown))[of]
        spread = d.shown @ (height - d.shown @ height / d.shown.sum()) ** 2
        if d.shown @ (height - usual) ** 2 < FIXED * spread:
            if sign < 0:
                return self.unanswered("users see a result at one place alone")
            none = np.zeros(len(evidence.positions))
            return Finding(self.kind, "ok", "Every ranker has one place for each result.", "", none[None], none[None])
        x = usual[:, None]
        if sign > 0:
            x = np.concatenate([x, evidence.ranker_levels], axis=1)
        fit = evidence.stays(who, x, ridge=RIDGE)
        slope, error = sign * fit.theta[0], np.sqrt(fit.covariance[0, 0])
        return self.found(
            slope * evidence.distance,
            error * np.abs(evidence.distance),
            "The same result at the same place is clicked alike, wherever its ranker usually shows it.",
            "Rankers show results to users who like them, or positions are not those that users saw: the curve may be "
            "off by {size}.",
            "swap neighbouring results at random on some pages"
            + (", or compare the rankers of an A/B test (--instrument ranker)" if sign > 0 else ""),
        )
