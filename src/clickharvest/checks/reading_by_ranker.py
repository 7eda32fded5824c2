"""Are the pages of all rankers read alike?"""

from __future__ import annotations

import numpy as np

from clickharvest.checks.conditional_logit import Estimate
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL, Check, Finding

DEEP = 0.1
"""Spread of log p at the last position from which on rankers are read to different depths."""
RIDGE = 1e-3
"""Precision of the prior of all levels and depths of rankers: keeps them apart where rankers hardly meet."""


class ReadingByRanker(Check):
    """Rankers may be read to different depths, or clicked more at every position.

    - Depth: the same result at the same place under several rankers, a level and a slope by log k for each. The
      standard deviation of slopes beyond chance, weighted by clicks, bounds the effect on either side.
    - Level: the curve with a free level of each ranker, less that without.
    """

    kind = "arms"
    question = "Are the pages of all rankers read alike?"
    assumption = "the pages of all rankers are read alike"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        if evidence.displays.ranker is None:
            return self.untested("ranker")
        if not evidence.ranker_levels.shape[1]:
            return self.passed("There is one ranker.", len(evidence.positions))
        spread = self._spread_of_depth(evidence)
        effect, error = evidence.along(*self._with_levels(evidence).minus(evidence.pooled))
        error = np.sqrt(error**2 + (spread * evidence.distance / NORMAL) ** 2)
        advice = "name the ranker as context (--context), or fit each ranker's pages for themselves"
        if spread * np.abs(evidence.distance).max() > DEEP:
            sentence = f"Rankers' pages are read to different depths: the power of k differs by ± {spread:.2f}."
            return Finding(self.kind, "warning", sentence, advice, effect[None], error[None])
        return self.found(
            effect,
            error,
            "The pages of all rankers are read alike.",
            "Pages of some rankers are clicked more at every position, which bends the curve by up to {size}.",
            advice,
        )

    def _spread_of_depth(self, evidence: Evidence) -> float:
        """Return the standard deviation of the power of k among rankers, beyond chance."""
        levels = evidence.ranker_levels
        others = levels.shape[1]
        slopes = levels * evidence.distance[evidence.place][:, None]
        fit = evidence.stays(evidence.ranker_number, np.concatenate([levels, slopes], axis=1), ridge=RIDGE)
        depth, covariance = np.zeros(others + 1), np.zeros((others + 1, others + 1))
        depth[1:], covariance[1:, 1:] = fit.theta[others:], fit.covariance[others:, others:]
        weight = np.bincount(evidence.ranker_number, evidence.displays.clicks, others + 1)
        weight = weight / weight.sum()
        apart = np.eye(others + 1) - weight
        by_chance = weight @ np.diag(apart @ covariance @ apart.T)
        return float(np.sqrt(max(0.0, weight @ (apart @ depth) ** 2 - by_chance)))

    def _with_levels(self, evidence: Evidence) -> Estimate:
        """Return the curve within units, with a free level of each ranker."""
        rows, unit, levels = evidence.moved, evidence.displays.unit, evidence.ranker_levels
        cell = evidence.same_place[rows] * (levels.shape[1] + 1) + evidence.ranker_number[rows]
        x = np.concatenate([evidence.basis[evidence.place[rows]], levels[rows]], axis=1)
        return evidence.fit(rows, unit[rows], cell, x, ridge=RIDGE).first(evidence.basis.shape[1])
