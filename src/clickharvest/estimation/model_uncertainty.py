"""Misfit: how far examination may be from any curve of the fitted kind, as far as the clicks show.

An interval of a curve says how well its parameters are known, as if the curve were right. Let log examination deviate
from it by a pooled linear curve of features φ(x) that the curve lacks: the features themselves unless the curve is
linear in them, and smooth waves along each number. Their coefficients γ are normal around 0 with the prior of
`pooling`, whose variances maximise the evidence given what the curve leaves unexplained, H_γγ − H_γθ H⁻¹ H_θγ and the
same of the score, both divided by the design effect. The mean square of the predictions' deviation, S [K, K], averaged
over contexts, is added to the covariance of all contexts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import rankdata

from clickharvest.estimation.local_linear_fit import Smooth
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.pooling import BOUNDS, Pooled, make_prior, most_evident
from clickharvest.estimation.query_random_effects import Clustered
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Constant, Curve, Linear

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

WAVES, SMALLEST = 7, 1e-6
"""Most waves along a number, and their least variance by that of the largest."""
MOST_FEATURES, MOST = 50, 700
"""Most features φ, and most parameters γ; with more, the finest waves are left out first."""
CONTEXTS = 500
"""Contexts over which misfit is averaged."""
LOOSE = 1e-2
"""Precision of parameters, so that directions that the clicks leave free can be inverted."""
BEGIN = 0.1
"""Standard deviation to start from."""


def misfit(curve: Curve, sample: Sample, fit: Pooled | Smooth, found: Clustered) -> Array | None:
    """Return S, the mean square of what the curve may be off by, [K, K], 0 at the anchor; None if it misses nothing.

    Args:
        curve: the curve.
        sample: the sample.
        fit: its fit.
        found: the fit's covariance.
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
    left = (other.information(fit.at) - cross.T @ explained) / found.design_effect
    score = (other.score(fit.at) - explained.T @ fit.score) / found.design_effect
    prior = make_prior(curve, sample, other.width, other.size)
    # Positions are free in pooled curves; in others they may be held by a formula.
    prior.learned &= isinstance(fit, Smooth) | ~prior.of_positions
    prior.weak[:] = 0.0
    log_spread = most_evident(prior, np.log(np.where(prior.learned, BEGIN, BOUNDS[0])), left, score)
    posterior = np.linalg.inv(left + prior.matrix(np.exp(log_spread)))
    mean = posterior @ score
    contexts = some_contexts(sample)
    rows = other.gradients(contexts) - gradients(fit, contexts) @ explained
    square = posterior + np.outer(mean, mean)
    whole: Array = np.einsum("cki,ij,clj->kl", rows, square, rows, optimize=True) / len(contexts)
    return whole


def widened(sample: Sample, fit: Pooled | Smooth, covariance: Array, square: Array) -> Array:
    """Return a covariance of the parameters with the mean square S of an error of all contexts added, [size, size]."""
    rows = gradients(fit, some_contexts(sample))
    gram = np.einsum("cki,ckj->ij", rows, rows, optimize=True)
    ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
    moves = np.linalg.solve(gram + ridge, rows.sum(axis=0).T)
    wider: Array = covariance + moves @ square @ moves.T
    return wider


def missed_features(curve: Curve, x: Array) -> Array | None:
    """Return features of the contexts that a curve may lack, each of mean 0, [m, features]; None where there are none.

    Args:
        curve: the curve.
        x: contexts, [m, d].

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


def _scaled(column: Array) -> Array:
    """Return a feature of mean 0 and variance 1, or of zeros where it is constant."""
    spread = column.std()
    scaled: Array = (column - column.mean()) / spread if spread > 1e-9 else np.zeros_like(column)
    return scaled


def some_contexts(sample: Sample) -> Integers:
    """Return contexts of the log to average over, by number, at most `CONTEXTS`."""
    return np.unique(np.linspace(0, len(sample.x) - 1, CONTEXTS).astype(np.int64))


def gradients(fit: Pooled | Smooth, contexts: Integers) -> Array:
    """Return a curve's gradients in some contexts, [contexts, K, size]; a pooled constant curve knows one alone."""
    alone = isinstance(fit, Pooled) and fit.shares.width == 1
    return fit.shares.gradients(np.zeros_like(contexts) if alone else contexts)


def _cross_information(fit: Pooled | Smooth, other: MultinomialLogit) -> Array:
    """Return H_θγ, [θ, γ]: rows of γ need not be centred, as those of θ are."""
    shares, cross = fit.shares, np.zeros((fit.shares.size, other.size))
    for cells in shares.parts(shares.size + other.size):
        centred = shares.centred(shares.design(cells), fit.at.share, cells)
        centred *= (shares.clicks_of_unit * fit.at.share)[cells, None]
        cross += (other.design(cells).T @ centred).T
    return cross
