"""Do results change while they move?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL, Finding

Array = NDArray[np.float64]
PERIODS = 20
"""Periods of equally many displays; more leave fewer results that move within one."""
TOGETHER = 0.7
"""Largest correlation of change and moves that is thought of: then it bends the curve by .7 sd(change) / sd(moves)."""


class Drift(Check):
    """The curve from moves within short periods, less the curve from all moves.

    What changes from period to period does not touch the former. Where hardly anything moves within a period, results
    that stay at their place bound the effect: with τ the spread of their change, and m that of how far results move
    from the first to the second half of their displays, it is at most .7 τ / m in the power of k. The smaller of both
    counts.
    """

    kind = "time"
    question = "Do results gain or lose clicks while they move?"
    assumption = "results that move do not change"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d = evidence.displays
        if d.time is None:
            return self.untested("time")
        if not len(evidence.moved):
            return self.unanswered("nothing moves")
        of_time = np.bincount(d.time, d.shown)
        middle = (np.cumsum(of_time) - of_time / 2) / of_time.sum()
        period = np.minimum(middle * PERIODS, PERIODS - 1).astype(np.int64)[d.time]
        effect, error = evidence.along(*evidence.moves(period).minus(evidence.pooled))
        if (bound := _bound(evidence, middle[d.time])) is not None:
            other = bound * np.abs(evidence.distance) / NORMAL
            if (NORMAL * other).max() < (np.abs(effect) + NORMAL * error).max():
                effect, error = np.zeros_like(effect), other
        return self.found(
            effect,
            error,
            "Moves within short periods give the same curve.",
            "Moves within short periods give a curve that differs by up to {size}: results change while they move.",
            "fit a shorter period, or swap neighbouring results at random on some pages",
        )


def _bound(evidence: Evidence, when: Array) -> float | None:
    """Return .7 τ / m, τ at its upper end; None where nothing stays, or nothing moves."""
    d = evidence.displays
    n_units = int(d.unit.max()) + 1
    early = (
        when
        < (np.bincount(d.unit, d.shown * when, n_units) / np.maximum(np.bincount(d.unit, d.shown, n_units), 1))[d.unit]
    )
    cell = evidence.same_place
    n = int(cell.max()) + 1
    shown, clicks = (np.bincount(cell, column, n) for column in (d.shown, d.clicks))
    first, first_clicks = (np.bincount(cell, column * early, n) for column in (d.shown, d.clicks))
    use = (first > 0) & (first < shown) & (clicks > 0) & (clicks < shown)
    share = first[use] / shown[use]
    variance = clicks[use] * share * (1 - share) * (shown - clicks)[use] / np.maximum(shown[use] - 1, 1)
    excess = first_clicks[use] - clicks[use] * share
    if not variance.sum():
        return None
    excess = excess - excess.sum() / variance.sum() * variance  # what all results have in common moves none of them
    surplus, known = excess**2 - variance, float(variance @ variance)
    change = np.sqrt(max(0.0, float(surplus.sum() + NORMAL * np.sqrt(surplus @ surplus)) / known))
    height = evidence.distance[evidence.place]
    seen, far = (
        [np.bincount(d.unit, own * half, n_units) for half in (early, ~early)] for own in (d.shown, d.shown * height)
    )
    means = [own / np.maximum(displays, 1e-9) for own, displays in zip(far, seen, strict=True)]
    both = np.minimum(*seen) > 0
    weight = np.bincount(d.unit, d.clicks, n_units) * both
    if not weight.sum():
        return None
    moved = np.sqrt(weight @ (means[0] - means[1]) ** 2 / weight.sum())
    return float(TOGETHER * change / moved) if moved > 0 else None
