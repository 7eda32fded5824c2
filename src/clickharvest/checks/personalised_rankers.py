"""Do rankers know what single users like?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Check, Finding
from clickharvest.harvesting.numbering import distinct

FIXED = 0.01
"""Share of the spread of positions within a result and ranker below which rankers have one place for each result."""
RIDGE = 1e-3
"""Precision of the prior of all slopes: keeps levels of rankers apart that hardly meet."""


class PersonalisedRankers(Check):
    """The same result at the same place: is it clicked more where its ranker usually shows it elsewhere?

    A user who sees a result higher than its ranker usually shows it is expected to like it. The slope γ of clicks by
    the usual log position, ranker levels free, is what personalisation adds to the power of k. Without a ranker
    column, users take the place of rankers: a user who usually sees a result higher clicks it more anywhere.
    """

    kind = "rankers"
    question = "Do rankers show results higher to users who like them?"
    assumption = "rankers do not know what single users like"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d, height = evidence.displays, evidence.distance[evidence.place]
        by_ranker = d.ranker is not None and evidence.ranker_levels.shape[1] > 0
        who = d.ranker if by_ranker else d.viewer if d.user is not None else None
        if who is None:
            return self.untested("user" if d.ranker is not None else "ranker")
        of = distinct(d.unit, who)[1]
        usual = (np.bincount(of, d.shown * height) / np.bincount(of, d.shown))[of]
        spread = d.shown @ (height - d.shown @ height / d.shown.sum()) ** 2
        if d.shown @ (height - usual) ** 2 < FIXED * spread:
            if not by_ranker:
                return self.unanswered("users see a result at one place alone")
            return self.passed("Every ranker has one place for each result.", len(evidence.positions))
        x = usual[:, None]
        if by_ranker:
            x = np.concatenate([x, evidence.ranker_levels], axis=1)
        fit = evidence.stays(who, x, ridge=RIDGE)
        slope = fit.theta[0] if by_ranker else -fit.theta[0]
        return self.found(
            slope * evidence.distance,
            np.sqrt(fit.covariance[0, 0]) * np.abs(evidence.distance),
            "The same result at the same place is clicked alike, wherever its ranker usually shows it.",
            "Rankers show results to users who like them, or positions are not those that users saw: the curve may be "
            "off by {size}.",
            "swap neighbouring results at random on some pages"
            + (", or compare the rankers of an A/B test (--instrument ranker)" if by_ranker else ""),
        )
