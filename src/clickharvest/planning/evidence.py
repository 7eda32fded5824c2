"""Evidence: what a log tells of all that decides how its intervals narrow as it grows, and how surely.

How far queries differ, as `query_random_effects` estimates it, but with no bound at 0: an estimate far below 0 says
that there is nothing, one of 0 does not. How overdispersed clicks are, with its error. How surely the information is
known: clicks N_u of units are counts, so that the variance xᵀ H x of an entry, x = J⁻¹ g, has the variance
Σ_u N_u v_u², v_u the variance of x·z over the shares of unit u. And how much faster than its pages the information of
realised exposures grows, see `unseen`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.pooling import Pooled
from clickharvest.estimation.query_random_effects import (
    FEWEST,
    LEAST,
    MOST_LEVERAGE,
    Clustered,
    contrasts_of_queries,
    settle,
)
from clickharvest.estimation.sample import Sample
from clickharvest.harvesting.interventions import Interventions

Array = NDArray[np.float64]

THINNED = 8
"""Halves that realised exposures are thinned to."""
MOST_GAIN = 1.95
"""Largest q of `Unseen`."""


@dataclass(frozen=True)
class Overdispersion:
    """φ, and how well it is known.

    Attributes:
        found: φ without a bound.
        error: its standard error.
        full: what that would be were all cells full of clicks.
        leak: how much σ² = 1 adds: units of a query do not share its effects wholly, the less the more clicks.
    """

    found: float
    error: float
    full: float
    leak: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a log tells of the variances between its queries.

    Attributes:
        found: unconstrained estimates of (σ², ς²) from what was shown, [2].
        hidden: how much lower the fit's own are: displays that exclude each other hide it, ever less with pages, [2].
        slopes: what a unit of either adds to squared residuals, in units of φ, [rows, 2].
        weight: of each row, 1 − h, [rows].
        overdispersion: φ.
        alone: share of S that single clicks make.
    """

    found: Array
    hidden: Array
    slopes: Array
    weight: Array
    overdispersion: Overdispersion
    alone: float

    def precision(self, scale: float) -> Array:
        """Return the inverse covariance of the estimates with `scale` times the clicks, [2, 2]."""
        grown = self.slopes * scale * (1 - self.alone * (1 - 1 / scale))
        at = np.maximum(self.found, 0.0)
        root = np.sqrt(self.weight) / (max(self.overdispersion.found, 1.0) + grown @ at / self.weight)
        rows = grown * root[:, None]
        product: Array = rows.T @ rows / 2
        return product + np.eye(2) * 1e-12 * max(float(np.trace(product)), 1e-6)


@dataclass(frozen=True, eq=False)
class Gathered:
    """Residuals of queries at single positions, and then of their steepness, as `query_random_effects` has them.

    Attributes:
        effects: S and T, what queries that differ with a variance of 1 add to the score's variance, [2, size, size].
        excess: squared residuals in units of what clicks alone would give, [rows].
        slopes: what a unit of σ² and of ς² adds to them, [rows, 2].
        weight: 1 − h, [rows].
        squares: |Q a|² of every query at every position of its own, [rows at single positions].
    """

    effects: Array
    excess: Array
    slopes: Array
    weight: Array
    squares: Array

    def estimates(self, overdispersion: float, weighed_by: Array) -> Array:
        """Return σ² and ς² without a bound at 0, by weights that go by φ and by such variances, [2]."""
        rows, left = self._weighted(overdispersion, weighed_by)
        found: Array = np.linalg.lstsq(rows, left, rcond=None)[0].astype(np.float64)
        return found

    def last_weights(self, overdispersion: float) -> Array:
        """Return the variances by which the fit weighed residuals in its last step, [2]."""
        return settle(lambda variances: self._weighted(overdispersion, variances))[0]

    def _weighted(self, overdispersion: float, variances: Array) -> tuple[Array, Array]:
        root = np.sqrt(self.weight) / (overdispersion + self.slopes @ variances / self.weight)
        return self.slopes * root[:, None], (self.excess - overdispersion) * root


def gather(fit: Pooled) -> Gathered:
    """Go through the queries of a fit."""
    inverse = np.linalg.inv(fit.information + fit.precision)
    effects, told = np.zeros((2, fit.shares.size, fit.shares.size)), []
    for cells in fit.shares.some_queries(fit.shares.size):
        for kind, (y, contrasts) in enumerate(contrasts_of_queries(fit.shares, fit.at, cells)):
            leverage = np.einsum("ri,ri->r", y @ inverse, y) / np.maximum(contrasts.own, LEAST)
            leverage = np.clip(leverage, 0.0, MOST_LEVERAGE)
            y /= np.sqrt(1 - leverage)[:, None]
            effects[kind] += y.T @ y
            told.append(replace(contrasts, kept=1 - leverage))
    residual, own, squares, along, kept = (
        np.concatenate([getattr(one, name) for one in told]) for name in ("residual", "own", "squares", "along", "kept")
    )
    use = own > LEAST
    residual, own, squares, along, kept = (part[use] for part in (residual, own, squares, along, kept))
    return Gathered(
        effects=effects,
        excess=residual**2 / (own * kept),
        slopes=np.stack([squares, along**2], axis=1) * (kept / own)[:, None],
        weight=kept,
        squares=np.concatenate([one.squares for one in told if one.position is not None]),
    )


def evidence_of(fit: Pooled, found: Clustered, sample: Sample) -> tuple[Evidence, Array, Array]:
    """Return what a fit's residuals tell, S and T, [2, size, size], and B, [size, size], as in `forecast`."""
    own = gather(fit)
    weighed_by = own.last_weights(found.overdispersion)
    phi = overdispersion(fit, own.squares)
    clear, within = own, phi
    if not np.array_equal(sample.exposure, sample.impressions):
        shown = as_shown(fit, sample)
        clear = gather(shown)
        within = overdispersion(shown, clear.squares)
    variances = clear.estimates(max(within.found, 1 - _rate(fit, sample)), weighed_by)
    single = single_clicks(fit)
    evidence = Evidence(
        found=variances,
        hidden=variances - own.estimates(found.overdispersion, weighed_by),
        slopes=clear.slopes,
        weight=clear.weight,
        overdispersion=phi,
        alone=float(min(np.trace(single) / max(np.trace(own.effects[0]), 1e-300), 1.0)),
    )
    return evidence, own.effects, single


def _rate(fit: Pooled, sample: Sample) -> float:
    """Return the rate of clicks where clicks are: a display has one at most, so that they vary by so much less."""
    clicks, shown = fit.shares.clicks, sample.impressions[fit.shares.rows]
    told = shown > 1
    return min(float(np.sum(clicks[told] * (clicks[told] - 1) / (shown[told] - 1)) / max(clicks[told].sum(), 1.0)), 0.9)


def single_clicks(fit: Pooled) -> Array:
    """Return B, part by part, [size, size]."""
    shares = fit.shares
    whole = np.zeros((shares.size, shares.size))
    for cells in shares.parts(shares.size):
        rows = shares.centred(shares.design(cells), fit.at.share, cells)
        rows *= (np.sqrt(shares.clicks_of_unit[cells]) * fit.at.share[cells])[:, None]
        whole += rows.T @ rows
    return whole


def as_shown(fit: Pooled, sample: Sample) -> Pooled:
    """Return the fit at the same parameters with the displays there were as exposures, instead of a design's.

    Displays that a design draws exclude each other: a page has one result at a rank. That hides how queries differ.
    """
    shares = copy(fit.shares)
    shares.log_exposure = np.log(np.maximum(sample.impressions[shares.rows], 1e-9))
    at = shares.shares(fit.theta)
    return replace(fit, shares=shares, at=at)


def overdispersion(fit: Pooled, together: Array) -> Overdispersion:
    """Return φ of a fit, as `query_random_effects` has it: how units of a query differ at one position.

    Args:
        fit: the fit.
        together: |Q a|² of every query at every position of its own.
    """
    shares, at = fit.shares, fit.at
    _, row = np.unique(shares.cluster * shares.n_positions + shares.position, return_inverse=True)
    expected = shares.clicks_of_unit * at.share
    variance = expected * (1 - at.share)
    alike = shares.by_unit(at.share**2)[shares.unit]
    own = np.divide(expected**2 * (1 - 2 * at.share + alike), variance, out=np.zeros_like(variance), where=variance > 0)
    use = variance > LEAST
    square = np.divide(at.residual**2, variance, out=np.zeros_like(variance), where=use)
    columns = (np.where(use, column, 0.0) for column in (np.ones(len(row)), variance, at.residual, square, own))
    by_row = np.stack([np.bincount(row, column) for column in columns])
    told = by_row[0] > 1
    count, total, sums, squares, apart = by_row[:, told]
    together = together[told]
    weight = np.minimum(total / count, 1.0)
    freedom = float(weight @ (count - 1))
    if freedom < FEWEST:
        return Overdispersion(1.0, 0.0, 0.0, 0.0)
    within = squares - sums**2 / total
    found = float(weight @ within / freedom)
    error = float(np.sum((weight * (within - found * (count - 1))) ** 2)) / freedom**2
    # Two units that were clicked on the same page exclude each other at a rank: that is most of what few pages tell.
    sparse = float(weight @ ((count - 1) * (total < count / 2)) / freedom)
    full = 2 * max(found, 1.0) ** 2 / float(np.sum(count - 1))
    leak = max(float(weight @ (apart - together / total) / freedom), 0.0)
    error = float(np.sqrt(error + (sparse * (found - 1)) ** 2))
    return Overdispersion(found, error, min(error, float(np.sqrt(full))), leak)


def counts(fit: Pooled, gradients: Array) -> tuple[Array, Array]:
    """Return what moves the entries' log information: a root of its covariance, [entries, r], and its slopes in θ.

    Clicks are counts; and the same clicks tell more or less where shares are others: ∂(xᵀ H x) / ∂θ is the sum of
    N_u times the third moment of x·z, x·z and z over the shares of unit u, [entries, size].
    """
    shares = fit.shares
    x = np.linalg.solve(fit.information + fit.precision, gradients.T)
    covariance = np.zeros((len(gradients), len(gradients)))
    slopes = np.zeros((len(gradients), shares.size))
    for cells in shares.parts(shares.size + len(gradients)):
        centred = shares.centred(shares.design(cells), fit.at.share, cells)
        rows = centred @ x
        begins = np.flatnonzero(np.diff(shares.unit[cells], prepend=-1))
        squares = rows**2 * fit.at.share[cells, None]
        slopes += (squares * shares.clicks_of_unit[cells, None]).T @ centred
        own = np.add.reduceat(squares, begins, axis=0)
        own *= np.sqrt(shares.clicks_of_unit[cells][begins])[:, None]
        covariance += own.T @ own
    total = np.einsum("ie,ij,je->e", x, fit.information + fit.precision, x)
    covariance /= np.maximum(np.outer(total, total), 1e-300)
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root, slopes / np.maximum(total, 1e-300)[:, None]


@dataclass(frozen=True)
class Unseen:
    """How much faster than its pages the information of a log grows.

    Attributes:
        gain: half of what twice the pages hold, relative to the pages, 1 ≤ q < 2; 1 where exposures are by design.
        error: standard error of log q, by query.
    """

    gain: float
    error: float

    def scales(self, times: float, noise: Array) -> tuple[float, Array]:
        """Return how much more information `times` the pages hold, and the same of draws, noise being normal."""
        drawn = np.clip(self.gain * np.exp(self.error * noise), 1.0, MOST_GAIN)

        def more(gain: Array) -> Array:
            n = (gain - 1) / (2 - gain)
            found: Array = times**2 * (1 + n) / (times + n)
            return found

        return float(more(np.array(self.gain))), more(drawn)


def unseen(interventions: Interventions, fit: Pooled, seed: int = 0) -> Unseen:
    """Return how fast the information of a log grows.

    Exposures by design are known from the beginning: q = 1. Of realised ones every display, with its click, is kept at
    random with probability ½; the information of what is left, position by position at the fitted shares, is 1 / (2 q)
    of the whole. With units that are shown at rates which are exponentially distributed, s times the pages hold
    s² (1 + n) / (s + n) times as much, n = (q − 1) / (2 − q) being how many times the pages of the log it takes until
    half of what links positions has been seen.
    """
    if interventions.exposure_kind != "realised" or interventions.cluster is not None:
        return Unseen(1.0, 0.0)
    shares, random = fit.shares, np.random.default_rng(seed)
    p = np.exp(np.log(fit.at.share) - shares.log_exposure)
    shown, clicks = np.rint(np.exp(shares.log_exposure)).astype(np.int64), shares.clicks.astype(np.int64)
    _, query = np.unique(shares.cluster, return_inverse=True)
    shape = (int(query.max()) + 1, shares.n_positions)

    def information(seen: NDArray[np.int64], click: NDArray[np.int64]) -> Array:
        """Return it by query and position."""
        weight = seen * p
        total = shares.by_unit(weight)[shares.unit]
        share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        of_unit = shares.by_unit(click.astype(np.float64))[shares.unit]
        cell = query * shares.n_positions + shares.position
        return np.bincount(cell, of_unit * share * (1 - share), shape[0] * shape[1]).reshape(shape).astype(np.float64)

    whole, half = information(shown, clicks), np.zeros(shape)
    for _ in range(THINNED):
        click = random.binomial(clicks, 0.5)
        half += information(click + random.binomial(np.maximum(shown - clicks, 0), 0.5), click) / THINNED
    use = half.sum(axis=0) > 0
    if not use.any():
        return Unseen(1.0, 0.0)
    whole, half = whole[:, use], half[:, use]
    gain = float(np.exp(np.mean(np.log(whole.sum(axis=0) / half.sum(axis=0))))) / 2
    # A query that is left out moves log q by so much.
    moves = np.mean(whole / whole.sum(axis=0) - half / half.sum(axis=0), axis=1)
    return Unseen(min(max(gain, 1.0), MOST_GAIN), float(np.sqrt(np.sum(moves**2))))
