"""Do relevant results have a curve of their own, as where users trust the top of the page?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Check, Finding
from clickharvest.harvesting.numbering import distinct

Array = NDArray[np.float64]
FOLDS = 4
"""Parts that users are dealt into; more of them measure relevance better, and take longer."""
SPREAD = 2.33
"""Standard deviations above average of the result that the effect is given for: the best of a hundred."""
TINY = 1e-12
ROUNDING = 1e-9
"""Variance of log positions that is rounding; neighbouring positions of a thousand differ by more."""
MOST_CONTEXTS = 200
"""Most contexts at which results are compared within a query and context; with more, within a query and kind."""
AFFINE = "users may trust the top of the page: clickharvest fit LOG --model affine -o model.safetensors"
UNLIKE = "queries may be read to different depths: name what tells them apart (--context)"
CLEAR = 2.58
"""Standard errors beyond which trust shows within queries: those of very unequal steepness leave a trace of it."""
LEAST_RELIABLE = 0.15
"""Reliability below which relevance is not measured well enough."""


class Relevance(Check):
    """Three quarters of the users say how relevant a result is, and the last quarter how steep its curve is.

    With z the standardised log click rate of a result among those of its query, in three quarters, the last one gives γ
    of p_k e^{γ z L}, L = log k, and so for each quarter. The share of the variance of z that two halves have in common
    is its reliability r: per standard deviation of true relevance, γ is γ̂ / √r. The effect is that on the best result
    of a hundred, 2.33 standard deviations of all results better than average, and the other way for the worst. Queries
    of unequal steepness look like that, too: then the mean curve may be right.
    """

    kind = "relevance"
    question = "Does the curve depend on how relevant a result is?"
    assumption = "relevant results are examined like others"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        if (measured := effect_of_relevance(evidence)) is None:
            return self.unanswered("clicks are too few to tell how relevant results are")
        effect, error = measured
        trusted = bool(effect[np.argmax(np.abs(effect))] > 0)
        steeper = "less" if trusted else "more"
        answer = self.found(
            effect,
            error,
            "Results that are clicked more have the same curve.",
            f"The curve of results that are clicked more falls {steeper} steeply, by up to {{size}} for the best.",
            UNLIKE,
            either_side=True,
        )
        if answer.severity == "warning" and trusted and (within := effect_of_relevance(evidence, within=True)):
            surely = (within[0] - CLEAR * within[1])[-1] > 0
            answer = replace(answer, advice=AFFINE if surely else UNLIKE)
        return answer


def effect_of_relevance(evidence: Evidence, *, within: bool = False) -> tuple[Array, Array] | None:
    """Return the effect on a result that is much better than average, and its standard error, [K]; None if unknown.

    Args:
        evidence: the displays.
        within: whether results are compared within their query and context alone, weighted by the information of the
            last quarter on slopes, so that the steepness of a whole query changes nothing.
    """
    fold, evidence = _dealt(evidence)
    d, rows = evidence.displays, evidence.moved
    n_units = int(d.unit.max(initial=-1)) + 1
    part, shape = d.unit * FOLDS + fold, (n_units, FOLDS)
    clicks = np.bincount(part, d.clicks, n_units * FOLDS).reshape(shape)
    seen = np.bincount(part, d.shown * np.exp(evidence.log_p), n_units * FOLDS).reshape(shape)
    if not clicks.sum() or not len(rows):
        return None
    known = _information(evidence, part, n_units * FOLDS).reshape(shape)
    query = np.zeros(n_units, dtype=np.int64)
    query[d.unit] = d.query
    if within:
        context = evidence.context if len(evidence.table) <= MOST_CONTEXTS else evidence.kind
        query[d.unit] = distinct(d.query, context)[1]
        weights = known
    else:
        weights = np.repeat((clicks.sum(axis=1) * (known.sum(axis=1) > 0))[:, None], FOLDS, axis=1)
    weight = weights.sum(axis=1) / max(float(weights.sum()), TINY)
    prior = seen.sum() / clicks.sum()

    def rates(dealt: Array) -> Array:
        """Return z before it is standardised, of folds put together by columns of `dealt`, [units, columns]."""
        return np.asarray(np.log((clicks @ dealt + 1) / (seen @ dealt + prior)))

    halves = rates(np.repeat(np.eye(2), FOLDS // 2, axis=0))
    whole = halves - weight @ halves
    halves = _among_queries(halves, query, np.repeat(weight[:, None], 2, axis=1))
    z = _among_queries(rates(1.0 - np.eye(FOLDS)), query, weights)
    real, spread = float(weight @ halves.prod(axis=1)), np.sqrt(weight @ z**2)
    reliability = real / max(float(np.mean(spread**2)), TINY)
    if reliability < LEAST_RELIABLE and not within:  # within queries it is the sign that is asked for, not the size
        return None
    others = (z / np.maximum(spread, TINY))[d.unit[rows], fold[rows]]
    distance = evidence.distance[evidence.place[rows]]
    cell = part[rows] * len(evidence.positions) + evidence.place[rows]
    fit = evidence.fit(rows, part[rows], cell, np.stack([others * distance, distance], axis=1))
    scale = SPREAD / np.sqrt(max(reliability, LEAST_RELIABLE))
    if not within:  # from results of one query to all results
        scale *= np.sqrt(max(float(weight @ whole.prod(axis=1)) / real, 1.0))
    error = scale * np.sqrt(fit.covariance[0, 0]) * np.abs(evidence.distance)
    return scale * fit.theta[0] * evidence.distance, error


def _among_queries(z: Array, query: NDArray[np.int64], weights: Array) -> Array:
    """Return columns less their weighted means by query, [units, columns]."""
    means = [
        np.bincount(query, weight * column) / np.maximum(np.bincount(query, weight), TINY)
        for column, weight in zip(z.T, weights.T, strict=True)
    ]
    return z - np.stack(means, axis=1)[query]


def _information(evidence: Evidence, part: NDArray[np.int64], parts: int) -> Array:
    """Return the information of each part on a slope by L: clicks times the variance of L by their shares."""
    d, distance = evidence.displays, evidence.distance[evidence.place]
    weight = d.shown * np.exp(evidence.log_p)
    total, first, second = (np.bincount(part, weight * column, parts) for column in (1.0, distance, distance**2))
    total = np.maximum(total, TINY)
    variance = second / total - (first / total) ** 2
    # At a single position the variance is 0 but for rounding, whose sign differs from machine to machine.
    return np.asarray(np.bincount(part, d.clicks, parts) * np.where(variance > ROUNDING, variance, 0.0))


def _dealt(evidence: Evidence) -> tuple[NDArray[np.int64], Evidence]:
    """Deal users, or else pages or single displays, into `FOLDS`; return each row's fold, [n], and the rows.

    The displays and clicks of counted rows are divided among the folds.
    """
    d, random = evidence.displays, evidence.random(Relevance.kind)
    if not d.counted:
        who = np.arange(len(d)) if d.viewer is None else d.viewer
        return random.integers(FOLDS, size=int(who.max(initial=0)) + 1)[who], evidence
    shown = np.rint(d.shown).astype(np.int64)
    clicks = np.minimum(np.rint(d.clicks).astype(np.int64), shown)
    even = np.full(FOLDS, 1 / FOLDS)
    clicked, left = (random.multinomial(many, even).T.ravel() for many in (clicks, shown - clicks))
    torn = replace(
        d.take(np.tile(np.arange(len(d)), FOLDS)),
        shown=(clicked + left).astype(np.float64),
        clicks=clicked.astype(np.float64),
    )
    fold = np.repeat(np.arange(FOLDS), len(d))
    return fold, Evidence(torn, evidence.model, folds=evidence.folds, seed=evidence.seed)
