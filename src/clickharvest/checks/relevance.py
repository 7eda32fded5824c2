"""Do relevant results have a curve of their own, as where users trust the top of the page?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.harvesting.numbering import distinct

Array = NDArray[np.float64]
SPREAD = 2.33
"""The effect is that on a result so many standard deviations better than average: the best of a hundred."""
TINY = 1e-12
MOST_CONTEXTS = 200
"""Contexts up to which results of different ones are not compared within a query."""
LEAST_RELIABLE = 0.15
"""Split-half correlation below which relevance is not measured well enough."""


class Relevance(Check):
    """Clicks of half of the users tell how relevant a result is, and those of the others how steep its curve.

    With z the standardised log click rate of a result among those of its query, in one half, the other half gives γ of
    p_k e^{γ z L}, L = log k, and the other way round. The correlation of both halves' z is the reliability r: per
    standard deviation of what results really differ by, γ is γ̂ / √r. The effect is that on the best result of a
    hundred, 2.33 standard deviations of all results better than average, and the other way for the worst. Queries of
    unequal steepness look like that, too: then the mean curve may be right.
    """

    kind = "relevance"
    question = "Does the curve depend on how relevant a result is?"
    assumption = "relevant results are examined like others"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        found = effect_of_relevance(evidence)
        if found is None:
            return self.unanswered("clicks are too few to tell how relevant results are")
        effect, error = found
        steeper = "less" if effect[np.argmax(np.abs(effect))] > 0 else "more"
        return self.found(
            effect,
            error,
            "Results that are clicked more have the same curve.",
            f"The curve of results that are clicked more falls {steeper} steeply, by up to {{size}} for the best.",
            "users may trust the top of the page: compare with --model affine",
            either_side=True,
        )


def effect_of_relevance(evidence: Evidence, *, within: bool = False) -> tuple[Array, Array] | None:
    """Return the effect on a result that is much better than average, and its standard error, [K]; None if unknown.

    Args:
        evidence: the displays.
        within: whether results are compared with those of their query and context alone, weighted by what the clicks
            of the other half tell of slopes, so that how steep a query is as a whole changes nothing; the size is then
            that among these.
    """
    half, evidence = _halves(evidence)
    d, rows = evidence.displays, evidence.moved
    n_units = int(d.unit.max(initial=-1)) + 1
    part = d.unit * 2 + half
    clicks = np.bincount(part, d.clicks, 2 * n_units).reshape(n_units, 2)
    seen = np.bincount(part, d.shown * np.exp(evidence.log_p), 2 * n_units).reshape(n_units, 2)
    if not clicks.sum() or not len(rows):
        return None
    z = np.log((clicks + 1) / (seen + seen.sum() / clicks.sum()))
    known = _information(evidence, part, 2 * n_units).reshape(n_units, 2)
    query = np.zeros(n_units, dtype=np.int64)
    query[d.unit] = d.query
    if within:
        query[d.unit] = distinct(d.query, evidence.context if len(evidence.table) <= MOST_CONTEXTS else evidence.kind)[
            1
        ]
        weights = known[:, ::-1]
    else:
        weights = np.repeat((clicks.sum(axis=1) * (known.sum(axis=1) > 0))[:, None], 2, axis=1)
    weight = weights.sum(axis=1) / max(float(weights.sum()), TINY)
    whole = z - weight @ z
    for own, its in zip(z.T, weights.T, strict=True):
        own -= (np.bincount(query, its * own) / np.maximum(np.bincount(query, its), TINY))[query]
    real, spread = float(weight @ z.prod(axis=1)), np.sqrt(weight @ z**2)
    reliability = real / max(float(spread.prod()), TINY)
    if reliability < LEAST_RELIABLE and not within:  # within queries it is the sign that is asked for, not the size
        return None
    other = (z / np.maximum(spread, TINY))[d.unit[rows], 1 - half[rows]]
    distance = evidence.distance[evidence.place[rows]]
    cell = part[rows] * len(evidence.positions) + evidence.place[rows]
    fit = evidence.fit(rows, part[rows], cell, np.stack([other * distance, distance], axis=1))
    scale = SPREAD / np.sqrt(max(reliability, LEAST_RELIABLE))
    if not within:  # from results of one query to all results
        scale *= np.sqrt(max(float(weight @ whole.prod(axis=1)) / real, 1.0))
    error = scale * np.sqrt(fit.covariance[0, 0]) * np.abs(evidence.distance)
    return scale * fit.theta[0] * evidence.distance, error


def _information(evidence: Evidence, part: NDArray[np.int64], parts: int) -> Array:
    """Return what the clicks of each part tell of a slope by L: clicks times the variance of L by their shares."""
    d, distance = evidence.displays, evidence.distance[evidence.place]
    weight = d.shown * np.exp(evidence.log_p)
    total, first, second = (np.bincount(part, weight * column, parts) for column in (1.0, distance, distance**2))
    total = np.maximum(total, TINY)
    return np.asarray(np.bincount(part, d.clicks, parts) * np.maximum(second / total - (first / total) ** 2, 0.0))


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
