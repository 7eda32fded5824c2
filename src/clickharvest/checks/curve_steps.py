"""Does the curve have a step at a position that is not a named fold?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Check, Finding

Array = NDArray[np.float64]
BY_CHANCE = 0.004
"""Probability of finding a step in a smooth curve; more false and more small steps are found if it is larger."""
MOST = 30
"""Last position at which steps are looked for; more take longer."""
DEGREE = 4
"""Degree of the smooth curve in log k; a smaller one takes plateaus for steps, a larger one misses steps."""


class CurveSteps(Check):
    """The clearest step beside a smooth curve, log p = a L + b L² + … + d L⁴ + c [k ≥ j], j any position from 2 on.

    A fold of the screen makes one, and so do lost clicks, misplaced rows and advertisements between results. Until the
    user names a fold there, the step counts as an error.
    """

    kind = "step"
    question = "Does the page change at some position?"
    assumption = "the page is one piece"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        positions = evidence.positions
        if evidence.model.places is not None or len(positions) < 4 or not len(evidence.moved):
            return self.passed("There are too few positions, or places, for a step.")
        size, error = evidence.by_kind(lambda rows: _largest(evidence, rows))
        if not size.any():
            return self.passed("The curve has no step.", len(positions))
        jumps = np.diff(size[int(np.argmax(np.abs(size).max(axis=1)))])
        first = int(np.flatnonzero(jumps)[0])
        at, times = int(positions[first + 1]), np.exp(jumps[first])
        sentence = f"From position {at} on, results get {times:.2f} times the clicks that a smooth curve would have."
        advice = f"does the page change there, as at a fold? Then say so (--fold {at}); else clicks or rows may be lost"
        return Finding(self.kind, "warning", sentence, advice, -size, error)


def _largest(evidence: Evidence, rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return the clearest step in log p, relative to the anchor, and its standard error, [K]; 0 where none is clear."""
    positions, number = evidence.positions, evidence.basis.shape[1]
    beside: list[NDArray[Any]] = [positions >= fold for fold in evidence.folds]
    distance = evidence.distance / max(float(np.abs(evidence.distance).max()), 1e-9)
    beside += [distance**power for power in range(number + 1, min(DEGREE, len(positions) - 3) + 1)]

    def step(at: int, *, by_viewer: bool) -> tuple[float, float]:
        more = np.stack([positions >= at, *beside], axis=1).astype(np.float64)
        fit = evidence.moves(rows=rows, more=more, beside_model=False, by_viewer=by_viewer)
        return float(fit.theta[number]), float(np.sqrt(fit.covariance[number, number]))

    none = np.zeros(len(positions))
    candidates = [int(k) for k in positions[2:MOST] if k not in evidence.folds]
    sizes = {at: step(at, by_viewer=False) for at in candidates}
    at = max(sizes, key=lambda k: abs(sizes[k][0] / sizes[k][1]), default=0)
    if not at:
        return none, none
    size, error = step(at, by_viewer=True)
    below = (positions >= at) - float(positions[evidence.anchor] >= at)
    clear = -float(ndtri(BY_CHANCE / 2 / len(candidates) / len(evidence.moved_by_kind)))
    if abs(size) <= clear * error:
        return none, none
    return np.asarray(size * below, dtype=np.float64), np.asarray(error * np.abs(below), dtype=np.float64)
