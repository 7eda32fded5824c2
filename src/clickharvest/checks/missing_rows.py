"""Are rows missing from pages?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Check, Finding
from clickharvest.harvesting.numbering import distinct, run_starts, whole_numbers

Array = NDArray[np.float64]
GAPPED = 0.3
"""Share of pages with a gap, a position that others have, from which on rows are missing."""
FIXED = 0.95
"""Share of pages without a position from which on something else always stands there."""


class MissingRows(Check):
    """The log of the share of a query's pages that have a row at k, relative to the anchor, by context.

    Where rows are logged only if they were on the screen, the curve is that of results on the screen, and the share
    is what is missing. Where pages have gaps at changing positions, positions may also have been counted before
    results were removed: then the effect is the larger of that share and of the change of the curve if the rows of
    every page are numbered anew.
    """

    kind = "rows"
    question = "Are all results that were shown logged, at the places where users saw them?"
    assumption = "every result that was shown is logged"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        if evidence.displays.page is None:
            return self.untested("page")
        if evidence.model.places is not None:
            return self.passed("Places may have rows or not: pages that users did not turn to have none.")
        effect = _missing(evidence)
        error = np.zeros_like(effect)
        gapped, renumbered = _gaps(evidence)
        if gapped:
            without_gaps = evidence.moves(place=renumbered)
            change, its_error = evidence.along(*without_gaps.minus(evidence.moves(beside_model=False)))
            larger = np.abs(change) > np.abs(effect)
            effect, error = np.where(larger, change, effect), np.where(larger, its_error, error)
        return self.found(
            effect,
            error,
            "Pages of a query have all their rows.",
            "Pages have gaps that change from page to page: rows were left out or positions counted before results "
            "were removed, and the curve may be off by {size}."
            if gapped
            else "Many pages end early: if only rows on the screen are logged, the curve is too flat by up to {size}.",
            "log every row at the place where users saw it",
        )


def _missing(evidence: Evidence) -> Array:
    """Return the log of the share of pages with a row at k, relative to the anchor, [contexts, K]."""
    d, n_places = evidence.displays, len(evidence.positions)
    assert d.page is not None
    first = distinct(d.page)[0]
    head, group = distinct(evidence.kind, d.query)
    pages = np.bincount(group[first], minlength=len(head))
    row = distinct(d.page * n_places + evidence.place)[0]
    there = np.bincount(group[row] * n_places + evidence.place[row], minlength=len(head) * n_places)
    there = there.reshape(len(head), n_places)
    could = (there > 0) * pages[:, None]  # queries that never reach a place have no more results
    kind = evidence.kind[head]
    by_kind = [np.stack([np.bincount(kind, column) for column in counts.T], axis=1) for counts in (there, could)]
    share = by_kind[0] / np.maximum(by_kind[1], 1)
    log_share = np.log(np.where(share > 0, share, 1.0))
    return np.asarray(log_share - log_share[:, [evidence.anchor]])


def _gaps(evidence: Evidence) -> tuple[bool, NDArray[np.int64]]:
    """Return whether pages have gaps at changing positions, and the places if rows are numbered anew, [n]."""
    d, n_places = evidence.displays, len(evidence.positions)
    assert d.page is not None
    there = whole_numbers(d.page * n_places + evidence.place)
    page, place = there // n_places, there % n_places
    starts = np.flatnonzero(run_starts([page], len(page)))
    last = place[np.append(starts[1:], len(page)) - 1]
    ending = np.bincount(last, minlength=n_places)
    reach = len(starts) - np.cumsum(ending) + ending
    filled = np.bincount(place, minlength=n_places) >= (1 - FIXED) * reach
    expected = np.cumsum(filled)[last]
    present = np.add.reduceat(filled[place].astype(np.int64), starts)
    order, starts = evidence.down_the_pages
    renumbered = np.empty(len(order), dtype=np.int64)
    renumbered[order] = np.arange(len(order)) - starts
    return bool(np.mean(present < expected) >= GAPPED), np.minimum(renumbered, n_places - 1)
