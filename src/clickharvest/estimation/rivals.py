"""Rivals: how far the curves that were not taken are from the one that was.

Cross-validation takes one curve, and an interval of that curve tells nothing of the choice. Others that predict unseen
queries nearly as well may say something else, and one of them may be right. Let ℓ_cq be the held-out log likelihood of
query q under curve c. With random weights on the queries, ω ~ Dirichlet(1, …, 1),

    w_c = E[softmax_c(Q Σ_q ω_q ℓ_cq)],

the weights of pseudo-Bayesian model averaging with the Bayesian bootstrap: nearly 1 for a curve that is clearly better,
shared where queries do not tell. The mean square of what the choice may be off by is

    S = Σ_c w_c  mean over folds and contexts of  d dᵀ,   d = log p_c(x) − log p_chosen(x), both relative to the anchor,

[K, K], the two being fitted to the same queries. It is 0 where the chosen curve has all the weight.

A power law, or a curve that knows no context, is taken unless others are clearly better, and folds, which see four
fifths of the queries, rarely see that it is not quite right. Both are pooled lines whose deviations, from the law or
from all contexts alike, are 0. So lines are no rivals, but the clicks are asked once more, without folds: let B be the
evidence of deviations, all of one size τ, by that of none, mean over τ. Where B is 1/3 or more for a law, or 1 for a
constant curve, what lines leave unknown beyond the curve counts in full, and otherwise not at all. For a constant curve
of places, or of two positions, it is 1/3, too: no law stands between it and lines there. (A part of it would be worse
than either: errors of an exact law are those of one number, its steepness, and whatever single positions may be off by
makes bands of all positions much wider. The bounds were chosen on other logs than those of the table.)

Beside a law that is a variance of all contexts alike, mean over contexts. Beside a constant curve it is one for every
context, `unseen_effects`; and there levels, or other features of two values, count whatever B is: a level that one
query in twenty has brings too few clicks to be asked, and what nobody could see may still be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from clickharvest.estimation.misfit import gradients, have_two_values, some_contexts
from clickharvest.estimation.pooling import BOUNDS, Pooled, curve_order
from clickharvest.estimation.query_effects import clustered_covariance
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import Judged
from clickharvest.estimation.smooth_shares import Smooth
from clickharvest.model.curves import Constant, Curve, Linear, Power, flatten_params, unflatten_params

Array = NDArray[np.float64]

DRAWS = 1_000
"""Draws of the queries' weights."""
DEVIATIONS = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Sizes τ of deviations."""
BESIDE_NEXT, BESIDE_CONSTANT = 1 / 3, 1.0
"""B from which on lines count beside a curve that is next to them, and beside a constant one with laws between."""


def rivalry(judged: Sequence[Judged], x: Array, without: str | None = None) -> tuple[Array, dict[str, float]]:
    """Return S, [K, K], and the weight of every curve by its name.

    Args:
        judged: the candidates; of each curve the best penalty counts, and none that was left on the way: by far behind
            on some of the folds, it would have no weight.
        x: contexts to average over, [contexts, features].
        without: a curve that is none of the rivals.
    """
    best: dict[str, Judged] = {}
    for one in judged:
        if one.candidate.folds is not None or (name := _name(one)) == without:
            continue
        own = best.get(name)
        if own is None or (one.candidate.chosen, one.candidate.score) > (own.candidate.chosen, own.candidate.score):
            best[name] = one
    sound = {name: one for name, one in best.items() if np.isfinite(one.by_query).all()}
    weights = model_weights(np.array([one.by_query * one.fit.scale for one in sound.values()]))
    logs = {name: _log_examination(one, x) for name, one in sound.items()}
    (taken,) = (logs[name] for name, one in sound.items() if one.candidate.chosen)
    square = np.zeros((taken.shape[-1],) * 2)
    for weight, each in zip(weights, logs.values(), strict=True):
        off = (each - taken).reshape(-1, taken.shape[-1])
        square += weight * off.T @ off / len(off)
    return square, dict(zip(sound, weights.tolist(), strict=True))


def beyond(lines: Pooled, sample: Sample, curve: Curve, own: Array, positions: Sequence[int]) -> Array | None:
    """Return how much more lines leave unknown than a curve that they contain, [K, K]; None where clicks speak for it.

    Args:
        lines: the fit of pooled lines.
        sample: the sample they were fitted to.
        curve: a power law.
        own: its covariance, as `mean_variance` has it, [K, K].
        positions: the K positions to tell of.
    """
    found = clustered_covariance(lines)
    if evidence_of_deviations(lines, curve, found.design_effect) < BESIDE_NEXT:
        return None
    return more(mean_variance(lines, found.covariance, sample, positions), own)


def unseen_effects(lines: Pooled, sample: Sample, curve: Constant) -> Array | None:
    """Return what lines leave unknown of the contexts' effects, a covariance of (W, b), [n, n]; None where nothing.

    With S = E[W Wᵀ] and x̄ the mean context of the clicks, log p_k(x) has the variance (x − x̄)ᵀ S_k (x − x̄).

    Args:
        lines: the fit of pooled lines.
        sample: the sample they were fitted to.
        curve: a constant curve.
    """
    found = clustered_covariance(lines)
    others = len(curve.positions) - 1
    bound = BESIDE_CONSTANT if sample.places is None and others > 1 else BESIDE_NEXT
    evident = evidence_of_deviations(lines, curve, found.design_effect) >= bound
    counted = have_two_values(sample.x) | evident
    if not counted.any():
        return None
    order = curve_order(Linear(curve.positions, curve.anchor, curve.n_features), lines.shares)
    effects = order[: curve.n_features * others]
    square = found.covariance[np.ix_(effects, effects)] + np.outer(lines.theta[effects], lines.theta[effects])
    centre = np.average(sample.x[sample.context], axis=0, weights=sample.clicks)
    moves = np.concatenate([np.eye(len(effects)), -np.kron(centre, np.eye(others))]) * np.repeat(counted, others)
    whole: Array = moves @ square @ moves.T
    return whole


def evidence_of_deviations(lines: Pooled, curve: Curve, design_effect: float) -> float:
    """Return B, how many times more evident deviations from a curve are than none.

    Args:
        lines: the fit of pooled lines.
        curve: a power law or a constant curve, which are lines without deviations.
        design_effect: how many times the variance of independent clicks the score of the lines has.
    """
    assert lines.prior is not None
    prior = copy(lines.prior)
    prior.weak = np.zeros_like(prior.weak)
    of_law = np.array([name == "steepness" for name in prior.names])
    kept = of_law if isinstance(curve, Power) else prior.of_positions
    information = lines.information / design_effect
    linear = (lines.information @ lines.theta + lines.score) / design_effect

    def evidence(deviation: float) -> float:
        return prior.evidence(np.where(kept, lines.log_spread, np.log(deviation)), information, linear)[0]

    gains = np.array([evidence(one) for one in DEVIATIONS]) - evidence(BOUNDS[0])
    return float(np.exp(logsumexp(gains) - np.log(len(gains))))


def mean_variance(fit: Pooled | Smooth, covariance: Array, sample: Sample, positions: Sequence[int]) -> Array:
    """Return the covariance of log p_k(x) / p_anchor(x), mean over contexts, [K, K].

    Args:
        fit: the fit.
        covariance: the covariance of its parameters, [size, size].
        sample: the sample it was fitted to.
        positions: the K positions to tell of, the anchor among them.
    """
    rows = gradients(fit, some_contexts(sample))[:, np.isin(sample.positions, positions)]
    found: Array = np.einsum("cki,ij,clj->kl", rows, covariance, rows, optimize=True) / len(rows)
    return found


def more(wide: Array, narrow: Array) -> Array:
    """Return by how much one covariance is larger than another, [K, K], along directions in which it is.

    Example:
        >>> more(np.diag([3.0, 1.0]), np.diag([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(wide - narrow)
    found: Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return found


def model_weights(log_likelihood: Array) -> Array:
    """Return the weights of candidates by the held-out log likelihood of queries, [candidates, queries] → [candidates].

    Example:
        Twenty queries say that the first of three is better than the third, and next to nothing of the second.

        >>> model_weights(np.outer([0.0, -0.01, -1.0], np.ones(20))).round(2).tolist()
        [0.55, 0.45, 0.0]
    """
    queries = log_likelihood.shape[1]
    omega = np.random.default_rng(0).dirichlet(np.ones(queries), size=DRAWS)
    weights: Array = softmax(queries * omega @ log_likelihood.T, axis=1).mean(axis=0)
    return weights


def _name(one: Judged) -> str:
    return " ".join(str(part) for part in one.candidate.curve.values())


def _log_examination(one: Judged, x: Array) -> Array:
    """Return log p_k(x) / p_anchor(x) as each fold has it, [folds, contexts, K]."""
    like = one.fit.curve.init(np.random.default_rng(0))
    size = len(flatten_params(like))
    return np.array([one.fit.curve.relative(unflatten_params(flat[:size], like), x) for flat in one.flats])
