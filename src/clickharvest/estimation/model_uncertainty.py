"""Model uncertainty: how far examination may be from the fitted curve, as far as the clicks show.

An interval of a curve says how well its parameters are known, as if the curve were right. Two mean squares of what it
may be off by, [K, K] and averaged over contexts, are added.

What the curve misses (`misfit`): log examination deviates from it by a pooled linear curve of features φ(x) that it
lacks: the features themselves unless the curve is linear in them, and smooth waves along each number. Their
coefficients γ are normal around 0 with the prior of `pooling`, whose variances maximise the evidence given what the
curve leaves unexplained, H_γγ − H_γθ H⁻¹ H_θγ and the same of the score, both divided by the design effect.

Other curves (`curve_disagreement`): others that predict unseen queries nearly as well may say something else, and one
of them may be right. Let ℓ_cq be the held-out log likelihood of query q under curve c. With random weights on the
queries, ω ~ Dirichlet(1, …, 1), the weights of curves, w_c = E[softmax_c(Q Σ_q ω_q ℓ_cq)], are those of pseudo-Bayesian
model averaging with the Bayesian bootstrap: nearly 1 for a curve that is clearly better, shared where queries cannot
tell. Then S = Σ_c w_c mean(d dᵀ) over folds and contexts, d = log p_c(x) − log p_chosen(x), relative to the anchor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax
from scipy.stats import rankdata

from clickharvest.estimation.local_linear_fit import LocalLinearFit
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.pooling import BOUNDS, Pooled, make_prior, most_evident
from clickharvest.estimation.query_random_effects import Clustered
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import Judged
from clickharvest.model.curves import Constant, Curve, Linear, flatten_params, unflatten_params

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

WAVES, SMALLEST = 7, 1e-6
"""Most waves along a number, and their least variance by that of the largest."""
MOST_FEATURES, MOST = 50, 700
"""Most features φ, and most parameters γ; with more, the finest waves are left out first."""
CONTEXTS = 500
"""Contexts over which what a curve may be off by is averaged."""
LOOSE = 1e-2
"""Precision of parameters, so that directions that the clicks leave free can be inverted."""
BEGIN = 0.1
"""Standard deviation to start from."""
DRAWS = 1_000
"""Draws of the queries' weights."""


def misfit(curve: Curve, sample: Sample, fit: Pooled | LocalLinearFit, clustered: Clustered) -> Array | None:
    """Return S of what a curve misses, [K, K], 0 at the anchor; None if it misses nothing.

    Args:
        curve: the curve.
        sample: the sample.
        fit: its fit.
        clustered: the fit's covariance.
    """
    if isinstance(curve, Constant):  # one curve for all contexts is what was asked for
        return None
    missed = missed_features(curve, sample.x)
    if missed is None:
        return None
    other = MultinomialLogit(fit.shares, missed, curve.anchor, varying=sample.unit_kind == "query")
    cross = _cross_information(fit, other)
    bread = cho_factor(fit.information + LOOSE * np.eye(fit.shares.size), check_finite=False)
    explained = cho_solve(bread, cross, check_finite=False)
    left = (other.information(fit.at) - cross.T @ explained) / clustered.design_effect
    score = (other.score(fit.at) - explained.T @ fit.score) / clustered.design_effect
    prior = make_prior(curve, sample, other.width, other.size)
    # Positions are free in pooled curves; in others they may be held by a formula.
    prior.learned &= isinstance(fit, LocalLinearFit) | ~prior.of_positions
    prior.weak[:] = 0.0
    log_spread = most_evident(prior, np.log(np.where(prior.learned, BEGIN, BOUNDS[0])), left, score)
    posterior = np.linalg.inv(left + prior.matrix(np.exp(log_spread)))
    mean = posterior @ score
    contexts = some_contexts(sample)
    rows = other.gradients(contexts) - gradients(fit, contexts) @ explained
    square = posterior + np.outer(mean, mean)
    whole: Array = np.einsum("cki,ij,clj->kl", rows, square, rows, optimize=True) / len(contexts)
    return whole


def widened(sample: Sample, fit: Pooled | LocalLinearFit, covariance: Array, square: Array) -> Array:
    """Return a covariance of the parameters with the mean square S of an error of all contexts added, [size, size]."""
    rows = gradients(fit, some_contexts(sample))
    gram = np.einsum("cki,ckj->ij", rows, rows, optimize=True)
    ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
    moves = np.linalg.solve(gram + ridge, rows.sum(axis=0).T)
    wider: Array = covariance + moves @ square @ moves.T
    return wider


def missed_features(curve: Curve, x: Array) -> Array | None:
    """Return features that a curve of contexts x [m, d] may lack, each of mean 0, [m, features]; None without any.

    Example:
        A linear curve lacks waves along a number, as many as five values have, and nothing of a level.

        >>> x = np.array([[-1.5, 0.0], [-0.5, 1.0], [0.5, 0.0], [1.5, 1.0], [2.0, 1.0]])
        >>> missed_features(Linear((1, 2), 1, 2), x).shape
        (5, 3)
    """
    lines = [] if isinstance(curve, Linear) else [column for one in x.T if (column := _scaled(one)).any()]
    waves = [waves_along(column) for column in x.T]
    for most in range(WAVES, -1, -1):
        kept = [*lines, *(wave for along in waves for wave in along[:most])]
        if len(kept) <= MOST_FEATURES and (1 + len(kept)) * (len(curve.positions) - 1) <= MOST:
            return np.array(kept).T if kept else None
    return None


def waves_along(column: Array) -> Array:
    """Return waves along a number that no line contains, [waves, m], the largest of variance 1; none of two values.

    With r the ranks over m, a random walk is Σ_j z_j cos(π j r) / j, z normal: what a line leaves of it is a sum of its
    principal components, the larger ones being smooth.

    Example:
        >>> waves_along(np.array([0.0, 1.0, 2.0])).round(2).tolist()
        [[-0.71, 1.41, -0.71]]
    """
    # What is the same but for rounding has the same rank.
    values = _scaled(column).round(9)
    if len(np.unique(values)) <= 2:
        return np.zeros((0, len(column)))
    of = np.arange(1, WAVES + 2)
    walk = np.cos(np.pi * np.outer((rankdata(values) - 0.5) / len(values), of)) / of
    line = np.stack([np.ones_like(values), values], axis=1)
    walk -= line @ np.linalg.lstsq(line, walk, rcond=None)[0]
    variances, axes = np.linalg.eigh(walk.T @ walk / len(walk))
    kept = np.flatnonzero(variances > SMALLEST * variances[-1])[::-1][:WAVES]
    waves: Array = (walk @ axes[:, kept]).T / np.sqrt(variances[-1])
    return waves


def some_contexts(sample: Sample) -> Integers:
    """Return contexts of the log to average over, by number, at most `CONTEXTS`."""
    return np.unique(np.linspace(0, len(sample.x) - 1, CONTEXTS).astype(np.int64))


def gradients(fit: Pooled | LocalLinearFit, contexts: Integers) -> Array:
    """Return a curve's gradients in some contexts, [contexts, K, size]; a pooled constant curve knows one alone."""
    alone = isinstance(fit, Pooled) and fit.shares.width == 1
    return fit.shares.gradients(np.zeros_like(contexts) if alone else contexts)


def curve_disagreement(judged: Sequence[Judged], x: Array) -> tuple[Array, dict[str, float]]:
    """Return S of other curves, [K, K], and the weight of every curve by its name.

    Args:
        judged: the candidates; of each curve the best penalty counts, and none that was left on the way: by far behind
            on some of the folds, it would have no weight.
        x: contexts to average over, [contexts, features].
    """
    best: dict[str, Judged] = {}
    for one in sorted(judged, key=lambda one: (one.candidate.chosen, one.candidate.score)):
        if one.candidate.folds is None:
            best[" ".join(map(str, one.candidate.curve.values()))] = one
    sound = {name: one for name, one in best.items() if np.isfinite(one.by_query).all()}
    weights = model_weights(np.array([one.by_query * one.fit.scale for one in sound.values()]))
    logs = [_log_examination(one, x) for one in sound.values()]
    (chosen,) = (log_p for one, log_p in zip(sound.values(), logs, strict=True) if one.candidate.chosen)
    square = np.zeros((chosen.shape[-1],) * 2)
    for weight, log_p in zip(weights, logs, strict=True):
        off = (log_p - chosen).reshape(-1, chosen.shape[-1])
        square += weight * off.T @ off / len(off)
    return square, dict(zip(sound, weights.tolist(), strict=True))


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


def _log_examination(one: Judged, x: Array) -> Array:
    """Return log p_k(x) / p_anchor(x) as each fold has it, [folds, contexts, K]."""
    like = one.fit.curve.init(np.random.default_rng(0))
    size = len(flatten_params(like))
    return np.array([one.fit.curve.relative(unflatten_params(flat[:size], like), x) for flat in one.flats])


def _scaled(column: Array) -> Array:
    """Return a feature of mean 0 and variance 1, or of zeros where it is constant."""
    spread = column.std()
    scaled: Array = (column - column.mean()) / spread if spread > 1e-9 else np.zeros_like(column)
    return scaled


def _cross_information(fit: Pooled | LocalLinearFit, other: MultinomialLogit) -> Array:
    """Return H_θγ, [θ, γ]: rows of γ need not be centred, as those of θ are."""
    shares, cross = fit.shares, np.zeros((fit.shares.size, other.size))
    for cells in shares.parts(shares.size + other.size):
        centred = shares.centred(shares.design(cells), fit.at.share, cells)
        centred *= (shares.clicks_of_unit * fit.at.share)[cells, None]
        cross += (other.design(cells).T @ centred).T
    return cross
