"""Misfit: how far examination may be from any curve of the fitted kind, as far as the clicks can tell.

An interval of a curve tells how well its parameters are known, as if the curve were right. Let log examination deviate
from it,

    log p_k(x) = curve_k(x; θ) + γ-part:   −(u·φ(x)) log(k / anchor) + δ_k + ω_k·φ(x),

φ(x) being the features that the curve may miss: their squares, cubes and products, and the features themselves unless
the curve is linear in them. γ = (u, δ, ω) is normal around 0 as in `pooling`, and its variances maximise the evidence,
in which θ is integrated out: the information on γ that is left is H_γγ − H_γθ H⁻¹ H_θγ, and so for the score. H is that
of the clicks alone: what a prior or a penalty has shrunk, and the covariance has counted, is no misfit. Both are
divided by the design effect, as the clicks of a query depend on each other.

A power law, and a curve that knows no context, may be off in so many ways that chance alone would make their intervals
a third wider: there misfit counts where these variances are e times more evident than none, or more, and otherwise not.
That there is a bound, and where, was chosen by simulation, on other logs than those of the table of coverage: without
one a power law covers 99 instead of 97 % where it is right; with one, other curves would cover 87 instead of 90 % where
examination has a fold. (Weights that grow with the evidence were worse: too wide where a law is right, and too narrow
where it is not.)

With γ ~ N(m, P) given the clicks, predictions are off by ψ(x)·γ, ψ(x) = φ-row − H_γθ H⁻¹ (gradient of the curve): what
θ does not make up for. Its mean square over the contexts of the log, S [K, K], is added to the covariance along the
parameters that move one position in all contexts alike. So misfit makes the intervals of all contexts wider by the
same amount: right on average over contexts, not for each.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from clickharvest.estimation.linear_shares import LinearShares
from clickharvest.estimation.pooling import BOUNDS, Pooled, make_prior, most_evident
from clickharvest.estimation.query_effects import Clustered
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.smooth_shares import Smooth
from clickharvest.model.curves import Constant, Curve, Linear, Power

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_FEATURES, MOST = 50, 700
"""Most features φ, and most parameters γ; cubes are left out first, products, then squares."""
WORK = 1e11
"""Multiplications that information may take; of larger logs a part of the queries is used."""
CONTEXTS = 500
"""Contexts over which misfit is averaged."""
LOOSE = 1e-2
"""Precision of parameters, so that directions that the clicks leave free can be inverted."""
BEGIN = 0.1
"""Standard deviation to start from."""
EVIDENT = 1.0
"""Log evidence from which on the misfit of a power law, or a constant curve, counts."""


def misfit(
    curve: Curve, sample: Sample, fit: Pooled | Smooth, found: Clustered, *, lines: bool = False
) -> Array | None:
    """Return S, the mean square of what the curve may be off by, [K, K], 0 at the anchor; None if it misses nothing.

    Args:
        curve: the curve.
        sample: the sample.
        fit: its fit.
        found: the fit's covariance.
        lines: whether what lines leave unknown is counted beside the curve.
    """
    extra = missed_features(curve, sample.x, lines=lines)
    if extra is None:
        return None
    other = LinearShares(replace(sample, x=extra), curve.anchor)
    prior = make_prior(curve, sample, other)
    # Positions are free in pooled curves; in others they may be held by a formula.
    prior.learned &= isinstance(fit, Smooth) | ~prior.of_positions
    prior.weak[:] = 0.0
    cross, left, score = _left(fit, other)
    bread = cho_factor(fit.information + LOOSE * np.eye(fit.shares.size), check_finite=False)
    explained = cho_solve(bread, cross, check_finite=False)
    left = (left - cross.T @ explained) / found.design_effect
    score = (score - explained.T @ fit.score) / found.design_effect
    log_spread = most_evident(prior, np.log(np.where(prior.learned, BEGIN, BOUNDS[0])), left, score)
    none = np.full(len(prior.names), np.log(BOUNDS[0]))
    gain = prior.evidence(log_spread, left, score)[0] - prior.evidence(none, left, score)[0]
    if isinstance(curve, Power | Constant) and gain < EVIDENT:
        return None
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


def missed_features(curve: Curve, x: Array, *, lines: bool = False) -> Array | None:
    """Return what a curve may miss of the contexts, [m, f], each of mean 0 and variance 1; None where that is nothing.

    Args:
        curve: the curve.
        x: contexts, [m, d].
        lines: whether lines are counted beside the curve, which know all that levels, and other features of two
            values, do by themselves.

    Example:
        A linear curve misses the square and the cube of a number and its product with a level; a level is its own
        square.

        >>> x = np.array([[-1.5, 0.0], [-0.5, 1.0], [0.5, 0.0], [1.5, 1.0], [2.0, 1.0]])
        >>> missed_features(Linear((1, 2), 1, 2), x).shape
        (5, 3)
    """
    own = [] if isinstance(curve, Linear) else list(x.T[~have_two_values(x)] if lines else x.T)
    values = [len(np.unique(column)) for column in x.T]
    squares = [column**2 for column, n in zip(x.T, values, strict=True) if n > 2]
    cubes = [_cube(column) for column, n in zip(x.T, values, strict=True) if n > 3]
    products = [x[:, i] * x[:, j] for i in range(x.shape[1]) for j in range(i)]
    for columns in (
        own + squares + cubes + products,
        own + squares + products,
        own + squares + cubes,
        own + squares,
        own,
    ):
        kept = [column for column in columns if column.std() > 1e-9]
        if len(kept) <= MOST_FEATURES and (1 + len(kept)) * (len(curve.positions) - 1) <= MOST:
            found = np.array([(column - column.mean()) / column.std() for column in kept]).T
            return found if kept else None
    return None


def _cube(column: Array) -> Array:
    """Return the cube of a feature, less the parabola next to it: what hours of a day do and a parabola cannot."""
    values = (column - column.mean()) / column.std()
    parabola = np.vander(values, 3)
    left: Array = values**3 - parabola @ np.linalg.lstsq(parabola, values**3, rcond=None)[0]
    return left


def have_two_values(x: Array) -> Mask:
    """Return which features have two values or one, [d]: levels of categories, and others.

    Example:
        >>> have_two_values(np.array([[0.0, 1.0], [1.0, 2.0], [1.0, 3.0]])).tolist()
        [True, False]
    """
    return np.array([len(np.unique(column)) <= 2 for column in x.T], dtype=bool)


def some_contexts(sample: Sample) -> Integers:
    """Return contexts of the log to average over, by number, at most `CONTEXTS`."""
    return np.unique(np.linspace(0, len(sample.x) - 1, CONTEXTS).astype(np.int64))


def gradients(fit: Pooled | Smooth, contexts: Integers) -> Array:
    """Return a curve's gradients in some contexts, [contexts, K, size]; a pooled constant curve knows one alone."""
    alone = isinstance(fit, Pooled) and fit.shares.width == 1
    return fit.shares.gradients(np.zeros_like(contexts) if alone else contexts)


def _left(fit: Pooled | Smooth, other: LinearShares) -> tuple[Array, Array, Array]:
    """Return H_θγ, H_γγ and the score of γ, of all queries or, in large logs, of a part that stands for them."""
    shares = fit.shares
    work = len(shares.unit) * other.size * (shares.size + other.size)
    every = 1 + int(work / WORK)
    cross, own = np.zeros((shares.size, other.size)), np.zeros((other.size, other.size))
    score = np.zeros(other.size)
    for part in shares.parts(shares.size + other.size):
        cells = part[shares.cluster[part] % every == 0]
        if not len(cells):
            continue
        one, two = (each.centred(each.design(cells), fit.at.share, cells) for each in (shares, other))
        weighted = two * (shares.clicks_of_unit * fit.at.share)[cells, None]
        cross += one.T @ weighted
        own += two.T @ weighted
        score += two.T @ fit.at.residual[cells]
    return every * cross, every * own, every * score
