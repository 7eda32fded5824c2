"""Misfit: how far examination may be from any curve of the fitted kind, as far as the clicks can tell.

An interval of a curve tells how well its parameters are known, as if the curve were right. Let log examination deviate
from it,

    log p_k(x) = curve_k(x; θ) + γ-part:   −(u·φ(x)) log(k / anchor) + δ_k + ω_k·φ(x),

φ(x) being the features that the curve may miss: waves along each number, and along the mean of log p_k(x) that the
curve itself has, products, and the features themselves unless the curve is linear in them. Waves are the principal
components of a random walk over a number's ranks, less its line: a bend, an S, and finer ones that are the less likely,
as where examination jumps at some value. γ = (u, δ, ω) is normal around 0 as in `pooling`, and its variances maximise
the evidence, in which θ is integrated out: the information on γ that is left is H_γγ − H_γθ H⁻¹ H_θγ, and so for the
score. H is that of the clicks alone: what a prior or a penalty has shrunk, and the covariance has counted, is no
misfit. Both are divided by the design effect, as the clicks of a query depend on each other.

A curve may miss something of all contexts, or of one of them, or of its own mean, or of products alone: one number that
matters is hard to see among many that do not. These sets of features share the prior odds, its own mean having half of
them, as what is wrong of a curve mostly is so along what it tells contexts apart by. All features count, unless one set
is more evident by its evidence times its share.

A power law may be off in so many ways that chance alone would make its intervals a third wider: there the most evident set counts where evidence times share is 1.1 times that of none, and otherwise
nothing. That there is a bound, and where, and the share of the curve's own mean were chosen by simulation, on other
logs than those of the table of coverage: without a bound a power law covers 99 instead of 97 % where it is right.
(Weights that grow with the evidence were worse: too wide where a law is right, and too narrow where it is not.) Other
curves are taken where clicks show that simple ones are wrong, and have none.

With γ ~ N(m, P) given the clicks, predictions are off by ψ(x)·γ, ψ(x) = φ-row − H_γθ H⁻¹ (gradient of the curve): what
θ does not make up for. Its mean square over the contexts of the log, S [K, K], is added to the covariance along the
parameters that move one position in all contexts alike. So misfit makes the intervals of all contexts wider by the
same amount: right on average over contexts, not for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import rankdata

from clickharvest.estimation.linear_shares import LinearShares
from clickharvest.estimation.pooling import BOUNDS, Pooled, Prior, make_prior, most_evident
from clickharvest.estimation.query_effects import Clustered
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.smooth_shares import Smooth
from clickharvest.model.curves import Constant, Curve, Linear, Power

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

WAVES, SMALLEST = 7, 1e-6
"""Most waves along a number, and their least variance by that of the largest."""
MOST_FEATURES, MOST = 50, 700
"""Most features φ, and most parameters γ; of waves all but one are left out first, then products, then waves."""
CONTEXTS = 500
"""Contexts over which misfit is averaged."""
PRODUCTS, MEAN = -1, -2
"""What features are of that are of no context."""
LOOSE = 1e-2
"""Precision of parameters, so that directions that the clicks leave free can be inverted."""
BEGIN = 0.1
"""Standard deviation to start from."""
EVIDENT = 0.1
"""Log of evidence times share from which on the misfit of a power law counts."""
OF_MEAN = 0.5
"""Share of the prior odds that the curve's own mean has."""


@dataclass(frozen=True, eq=False)
class Missed:
    """What a curve may miss of the contexts.

    Attributes:
        values: the features φ of the contexts, each of mean 0, [m, f].
        of: the context that each is of, `MEAN` for the curve's own mean, `PRODUCTS` for products, [f].
    """

    values: Array
    of: Integers

    def sets(self) -> list[tuple[Integers, float]]:
        """Return the sets of features that may be all that is missed, each with its share of the prior odds.

        All features come first, then those of each thing alone.

        Example:
            >>> [(some.tolist(), share) for some, share in Missed(np.zeros((0, 3)), np.array([0, 0, MEAN])).sets()]
            [([0, 1, 2], 0.25), ([2], 0.5), ([0, 1], 0.25)]
        """
        things = np.unique(self.of).tolist()
        if len(things) < 2:
            return [(np.arange(len(self.of)), 1.0)]
        others = (1 - OF_MEAN) / len(things) if MEAN in things else 1 / (1 + len(things))
        each = [(np.flatnonzero(self.of == one), OF_MEAN if one == MEAN else others) for one in things]
        return [(np.arange(len(self.of)), others), *each]


@dataclass(frozen=True, eq=False)
class Asked:
    """How evident the misfit of a set of features is.

    Attributes:
        params: the parameters γ of the set, among all.
        prior: their prior.
        log_spread: log τ of most evidence.
        gain: log evidence, less that of no misfit.
        score: the same, with the share of the set in the prior odds.
    """

    params: Integers
    prior: Prior
    log_spread: Array
    gain: float
    score: float


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
    missed = missed_features(curve, sample.x, fit.mean_log_p)
    if missed is None:
        return None
    other = LinearShares(replace(sample, x=missed.values), curve.anchor)
    cross = _cross_information(fit, other)
    bread = cho_factor(fit.information + LOOSE * np.eye(fit.shares.size), check_finite=False)
    explained = cho_solve(bread, cross, check_finite=False)
    left = (other.information(fit.at) - cross.T @ explained) / found.design_effect
    score = (other.score(fit.at) - explained.T @ fit.score) / found.design_effect
    # Positions are free in pooled curves; in others they may be held by a formula.
    held = isinstance(fit, Smooth)
    asked = [_ask(curve, sample, other, *one, left, score, held=held) for one in missed.sets()]
    best = max(asked, key=lambda one: one.score)
    if isinstance(curve, Power):
        if best.score < EVIDENT:
            return None
    elif best.score < asked[0].gain:
        best = asked[0]
    own = best.params
    posterior = np.linalg.inv(left[np.ix_(own, own)] + best.prior.matrix(np.exp(best.log_spread)))
    mean = posterior @ score[own]
    contexts = some_contexts(sample)
    rows = other.gradients(contexts) - gradients(fit, contexts) @ explained
    square = posterior + np.outer(mean, mean)
    whole: Array = np.einsum("cki,ij,clj->kl", rows[..., own], square, rows[..., own], optimize=True) / len(contexts)
    return whole


def widened(sample: Sample, fit: Pooled | Smooth, covariance: Array, square: Array) -> Array:
    """Return a covariance of the parameters with the mean square S of an error of all contexts added, [size, size]."""
    rows = gradients(fit, some_contexts(sample))
    gram = np.einsum("cki,ckj->ij", rows, rows, optimize=True)
    ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
    moves = np.linalg.solve(gram + ridge, rows.sum(axis=0).T)
    wider: Array = covariance + moves @ square @ moves.T
    return wider


def missed_features(curve: Curve, x: Array, mean_log_p: Array | None = None) -> Missed | None:
    """Return what a curve may miss of the contexts; None where that is nothing.

    Args:
        curve: the curve.
        x: contexts, [m, d].
        mean_log_p: what the curve itself says of the contexts, [m]; None where it says the same of all. That it may
            bend is asked where there are several contexts and not all are levels, of which each may do as it likes.

    Example:
        A linear curve misses waves along a number, as many as five values have, and its product with a level.

        >>> x = np.array([[-1.5, 0.0], [-0.5, 1.0], [0.5, 0.0], [1.5, 1.0], [2.0, 1.0]])
        >>> missed_features(Linear((1, 2), 1, 2), x).of.tolist()
        [0, 0, 0, -1]
    """
    numbers = range(x.shape[1])
    levels = have_two_values(x)
    own = [] if isinstance(curve, Linear) else [(i, column) for i in numbers if (column := _scaled(x[:, i])).any()]
    waves = [(i, waves_along(x[:, i])) for i in numbers]
    if mean_log_p is not None and len(numbers) > 1 and not levels.all():
        waves.append((MEAN, waves_along(mean_log_p)))
    products = [(PRODUCTS, column) for column in _products(x)]
    fewer = [(most, products) for most in range(WAVES, 0, -1)] + [(most, []) for most in range(WAVES, -1, -1)]
    for most, crossed in fewer:
        kept = [*own, *((i, wave) for i, along in waves for wave in along[:most]), *crossed]
        if len(kept) <= MOST_FEATURES and (1 + len(kept)) * (len(curve.positions) - 1) <= MOST:
            return Missed(np.array([column for _, column in kept]).T, np.array([i for i, _ in kept])) if kept else None
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
    if have_two_values(values[:, None])[0]:
        return np.zeros((0, len(column)))
    of = np.arange(1, WAVES + 2)
    walk = np.cos(np.pi * np.outer((rankdata(values) - 0.5) / len(values), of)) / of
    line = np.stack([np.ones_like(values), values], axis=1)
    walk -= line @ np.linalg.lstsq(line, walk, rcond=None)[0]
    variances, axes = np.linalg.eigh(walk.T @ walk / len(walk))
    kept = np.flatnonzero(variances > SMALLEST * variances[-1])[::-1][:WAVES]
    waves: Array = (walk @ axes[:, kept]).T / np.sqrt(variances[-1])
    return waves


def _products(x: Array) -> list[Array]:
    """Return the products of features that are not constant; nothing where they are too many."""
    found: list[Array] = []
    for i, j in combinations(range(x.shape[1]), 2):
        if (column := _scaled(x[:, i] * x[:, j])).any():
            found.append(column)
        if len(found) > MOST_FEATURES:
            return []
    return found


def _scaled(column: Array) -> Array:
    """Return a feature of mean 0 and variance 1, or of zeros where it is constant."""
    spread = column.std()
    scaled: Array = (column - column.mean()) / spread if spread > 1e-9 else np.zeros_like(column)
    return scaled


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


def _cross_information(fit: Pooled | Smooth, other: LinearShares) -> Array:
    """Return H_θγ, [θ, γ]: rows of γ need not be centred, as those of θ are."""
    shares, cross = fit.shares, np.zeros((fit.shares.size, other.size))
    for cells in shares.parts(shares.size + other.size):
        centred = shares.centred(shares.design(cells), fit.at.share, cells)
        centred *= (shares.clicks_of_unit * fit.at.share)[cells, None]
        cross += (other.design(cells).T @ centred).T
    return cross


def _ask(
    curve: Curve,
    sample: Sample,
    other: LinearShares,
    some: Integers,
    share: float,
    left: Array,
    score: Array,
    *,
    held: bool,
) -> Asked:
    """Ask how evident it is that some of the features are missed, given what is left of information and score."""
    columns = np.append(0, 1 + some)
    params = (np.arange(other.n_blocks)[:, None] * other.width + columns).ravel()
    prior = make_prior(curve, sample, len(columns), len(params))
    prior.learned &= held | ~prior.of_positions
    prior.weak[:] = 0.0
    left, score = left[np.ix_(params, params)], score[params]
    log_spread = most_evident(prior, np.log(np.where(prior.learned, BEGIN, BOUNDS[0])), left, score)
    none = np.full(len(prior.names), np.log(BOUNDS[0]))
    gain = prior.evidence(log_spread, left, score)[0] - prior.evidence(none, left, score)[0]
    return Asked(params, prior, log_spread, gain, gain + np.log(share))
