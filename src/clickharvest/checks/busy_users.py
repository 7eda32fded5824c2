"""Does the curve rest on those who click most, robots perhaps?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Check, Finding

BUSIEST = 0.1
"""Share of the displays that is left out; a larger share finds more robots and has larger errors."""
PRIOR = 2.0
"""Clicks at the average rate that each user is given, so that one lucky page makes no user busy."""


class BusyUsers(Check):
    """The curve without the tenth of each ranker's displays whose users click most on *other* pages, less that of all.

    Clicks on the page itself are left out, so that chance puts no user into that tenth. Users who click much but read
    like others change nothing; robots, who read everything, do.
    """

    kind = "crowd"
    question = "Do those who click most have another curve?"
    assumption = "those who click most read like others"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d = evidence.displays
        if d.user is None or d.page is None or d.viewer is None:
            return self.untested("user" if d.user is None else "page")
        n_pages = int(d.page.max(initial=-1)) + 1
        columns = (d.clicks, d.shown * np.exp(evidence.log_p), d.shown)
        clicks, seen, shown = (np.bincount(d.page, column, n_pages) for column in columns)
        user, ranker = np.zeros((2, n_pages), dtype=np.int64)
        user[d.page] = d.viewer
        clicks, seen = (np.bincount(user, column)[user] - column for column in (clicks, seen))
        if not clicks.sum():
            return self.unanswered("no user has a second page with clicks")
        rate = np.where(seen > 0, (clicks + PRIOR) / (seen + PRIOR * seen.sum() / clicks.sum()), 0.0)
        if d.ranker is not None:
            ranker[d.page] = evidence.ranker_number
        order = np.lexsort((-rate, ranker))  # by ranker, as users of a good one click more
        before = np.cumsum(shown[order]) - shown[order]
        by_ranker = np.bincount(ranker, shown)
        begins = np.cumsum(by_ranker) - by_ranker
        busy = np.zeros(n_pages, dtype=np.bool_)
        busy[order] = before - begins[ranker[order]] < BUSIEST * by_ranker[ranker[order]]
        others = ~busy[d.page]
        return self.found(
            *evidence.by_kind(
                lambda rows: evidence.along(*evidence.moves(rows=rows[others[rows]]).minus(evidence.moves(rows=rows)))
            ),
            "Those who click most have the same curve.",
            "Without the tenth of the displays whose users click most, the curve differs by up to {size}: robots, or "
            "users who read everything.",
            "leave out robots, or name the column that tells such users apart (--context)",
        )
