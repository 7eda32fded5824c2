"""Do relevant results have a curve of their own, as where users trust the top of the page?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.base import Check, Finding
from clickharvest.checks.evidence import Evidence

SPREAD = 2.0
"""How many standard deviations better than average the result is that the effect is told for."""
LEAST_RELIABLE = 0.15
"""Split-half correlation below which relevance is hardly measured, and nothing is told."""


class Relevance(Check):
    """Clicks of half of the users tell how relevant a result is, and those of the others how steep its curve.

    With z the standardised log click rate of a result among results of its query in one half, the other half gives γ of
    p_k e^{γ z L}, L = log k, and the other way round. The correlation of both halves' z, the reliability r, tells how
    much of z is noise: per standard deviation of what results really differ by, γ is γ̂ / √r. The effect is that on a
    result two of these better than average, 2 γ̂ L / √r, within queries, scaled to all results.
    """

    kind = "relevance"
    question = "Does the curve depend on how relevant a result is?"
    assumption = "relevant results are examined like others"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        half, evidence = _halves(evidence)
        d, rows = evidence.displays, evidence.moved
        n_units = int(d.unit.max(initial=-1)) + 1
        part = d.unit * 2 + half
        clicks = np.bincount(part, d.clicks, 2 * n_units).reshape(n_units, 2)
        seen = np.bincount(part, d.shown * np.exp(evidence.log_p), 2 * n_units).reshape(n_units, 2)
        if not clicks.sum() or not len(rows):
            return self.unanswered("too few clicks")
        whole = np.log((clicks + 1) / (seen + seen.sum() / clicks.sum()))
        weight = np.zeros(n_units)
        weight[d.unit[rows]] = 1
        weight = weight * clicks.sum(axis=1)
        weight = weight / weight.sum()
        query = np.zeros(n_units, dtype=np.int64)
        query[d.unit] = d.query
        total = np.maximum(np.bincount(query, weight), 1e-12)
        centred = whole - np.stack([(np.bincount(query, weight * z) / total)[query] for z in whole.T], axis=1)
        whole = whole - weight @ whole
        between, within = (float(weight @ (z[:, 0] * z[:, 1])) for z in (whole, centred))
        spread = np.sqrt(weight @ centred**2)
        if within < LEAST_RELIABLE * spread.prod():
            return self.unanswered("clicks are too few to tell how relevant results are")
        z = (centred / spread)[d.unit[rows], 1 - half[rows]]
        distance = evidence.distance[evidence.place[rows]]
        cell = part[rows] * len(evidence.positions) + evidence.place[rows]
        fit = evidence.fit(rows, part[rows], cell, np.stack([z * distance, distance], axis=1))
        # within is the variance of what results of a query really differ by, between that of all results
        scale = SPREAD * np.sqrt(spread.prod() / within) * np.sqrt(max(between / within, 1.0))
        slope, error = fit.theta[0] * scale, np.sqrt(fit.covariance[0, 0]) * scale
        steeper = "less" if slope > 0 else "more"
        return self.found(
            slope * evidence.distance,
            error * np.abs(evidence.distance),
            "Results that are clicked more have the same curve.",
            f"The curve of results that are clicked more falls {steeper} steeply, by up to {{size}} for the best.",
            "users may trust the top of the page: compare with --model affine",
        )


def _halves(evidence: Evidence) -> tuple[NDArray[np.int64], Evidence]:
    """Deal users, or else pages or single displays, into halves; return each row's half, [n], and the rows.

    Rows that count several displays are torn in two, each with its part of them and of the clicks.
    """
    d, random = evidence.displays, evidence.random(Relevance.kind)
    if not d.counted:
        who = np.arange(len(d)) if d.viewer is None else d.viewer
        return (random.random(int(who.max(initial=0)) + 1) < 0.5)[who].astype(np.int64), evidence
    shown = np.rint(d.shown).astype(np.int64)
    clicks = np.minimum(np.rint(d.clicks).astype(np.int64), shown)
    part = random.binomial(shown, 0.5)
    own = np.minimum(random.binomial(clicks, part / np.maximum(shown, 1)), part)
    both = d.take(np.tile(np.arange(len(d)), 2))
    both = replace(
        both,
        shown=np.concatenate([part, shown - part]).astype(np.float64),
        clicks=np.concatenate([own, clicks - own]).astype(np.float64),
    )
    return np.repeat([0, 1], len(d)), Evidence(both, evidence.model, folds=evidence.folds, seed=evidence.seed)
