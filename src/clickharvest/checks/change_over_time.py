"""Do results change while they move?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL, Check, Finding

Array = NDArray[np.float64]
PERIODS = 20
"""Periods of equally many displays; more leave fewer results that move within one."""
TOGETHER = 0.7
"""Largest correlation of change and moves that is assumed; larger, and the bound .7 sd(change) / sd(moves) is wider."""


class ChangeOverTime(Check):
    """The curve from moves within short periods, less the curve from all moves.

    Changes from period to period leave the former as it is. Where hardly anything moves within a period, results that
    stay at their place bound the effect: with τ the spread of their change, and m the spread of the moves of results
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
    d, height = evidence.displays, evidence.distance[evidence.place]
    n_units = int(d.unit.max()) + 1
    shown_of_unit = np.maximum(np.bincount(d.unit, d.shown, n_units), 1)
    early = when < (np.bincount(d.unit, d.shown * when, n_units) / shown_of_unit)[d.unit]
    columns = (d.shown, d.clicks, d.shown * early, d.clicks * early)
    shown, clicks, first, first_clicks = (np.bincount(evidence.same_place, column) for column in columns)
    use = (first > 0) & (first < shown) & (clicks > 0) & (clicks < shown)
    share = first[use] / shown[use]
    variance = clicks[use] * share * (1 - share) * (shown - clicks)[use] / np.maximum(shown[use] - 1, 1)
    excess = first_clicks[use] - clicks[use] * share
    if not variance.sum():
        return None
    excess = excess - excess.sum() / variance.sum() * variance  # a change that all results share moves none of them
    surplus, known = excess**2 - variance, float(variance @ variance)
    change = np.sqrt(max(0.0, float(surplus.sum() + NORMAL * np.sqrt(surplus @ surplus)) / known))
    displays = [np.bincount(d.unit, d.shown * half, n_units) for half in (early, ~early)]
    heights = [np.bincount(d.unit, d.shown * height * half, n_units) for half in (early, ~early)]
    before, after = (total / np.maximum(n, 1e-9) for total, n in zip(heights, displays, strict=True))
    weight = np.bincount(d.unit, d.clicks, n_units) * (np.minimum(*displays) > 0)
    if not weight.sum():
        return None
    moved = np.sqrt(weight @ (before - after) ** 2 / weight.sum())
    return float(TOGETHER * change / moved) if moved > 0 else None
