"""Does the curve rest on those who click most, robots perhaps?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding

BUSIEST = 0.1
"""Share of the displays that is left out."""
PRIOR = 2.0
"""Clicks' worth of average behaviour that each user is given, so that one lucky page makes no user busy."""


class Crowd(Check):
    """The curve without the tenth of each ranker's displays whose users click most on *other* pages, less that of all.

    Clicks on the page itself are not looked at, so that chance puts no user into that tenth. Users who click much but
    read like others change nothing; robots, who read everything, do.
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
        user = np.zeros(n_pages, dtype=np.int64)
        user[d.page] = d.viewer
        clicks, seen = (np.bincount(user, column)[user] - column for column in (clicks, seen))
        if not clicks.sum():
            return self.unanswered("no user has a second page with clicks")
        rate = np.where(seen > 0, (clicks + PRIOR) / (seen + PRIOR * seen.sum() / clicks.sum()), 0.0)
        ranker = np.zeros(n_pages, dtype=np.int64)
        if d.ranker is not None:
            ranker[d.page] = evidence.ranker_number
        order = np.lexsort((-rate, ranker))  # of each ranker, whose users click much because its results are good
        before = np.cumsum(shown[order]) - shown[order]
        whole = np.bincount(ranker, shown)
        begins = np.cumsum(whole) - whole
        busy = np.zeros(n_pages, dtype=np.bool_)
        busy[order] = before - begins[ranker[order]] < BUSIEST * whole[ranker[order]]
        of_row, found = d.page, {}
        for rows in evidence.moved_by_kind:
            if id(rows) not in found:  # kinds with too few clicks share all rows
                others = evidence.moves(rows=rows[~busy[of_row[rows]]])
                found[id(rows)] = evidence.along(*others.minus(evidence.moves(rows=rows)))
        effect, error = zip(*(found[id(rows)] for rows in evidence.moved_by_kind), strict=True)
        return self.found(
            np.stack(effect),
            np.stack(error),
            "Those who click most have the same curve.",
            "Without the tenth of the displays whose users click most, the curve differs by up to {size}: robots, or "
            "users who read everything.",
            "leave out robots, or name the column that tells such users apart (--context)",
        )
