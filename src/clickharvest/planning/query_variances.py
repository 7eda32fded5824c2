"""What a log says of the variances between its queries, of overdispersion and of unseen units, and how surely.

The variances are those of `query_random_effects`, but with no bound at 0: an estimate far below 0 says that there is
none, one of 0 does not. Overdispersion has its standard error. Clicks N_u of units are counts, so that the variance
xᵀ H x of an entry, x = J⁻¹ g, has the variance Σ_u N_u v_u², v_u the variance of x·z over the shares of unit u. The
information of realised exposures grows faster than the pages, see `unseen`.
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
    Clustered,
    effects_of_queries,
    settle,
)
from clickharvest.estimation.sample import Sample
from clickharvest.harvesting.interventions import Interventions

Array = NDArray[np.float64]

THINNED = 8
"""Random halves of realised exposures whose information is averaged; more are slower and more exact."""
MOST_GAIN = 1.95
"""Largest q of `Unseen`: at 2, the information grows without bound."""


@dataclass(frozen=True)
class Overdispersion:
    """φ and its uncertainty.

    Attributes:
        estimate: φ without a bound.
        error: its standard error.
        full: its standard error if all cells were full of clicks.
        leak: increase of the estimate by σ² = 1: units of a query share its effects the less the more clicks they have.
    """

    estimate: float
    error: float
    full: float
    leak: float


@dataclass(frozen=True, eq=False)
class QueryVariances:
    """Estimates of the variances between queries.

    Attributes:
        estimate: unconstrained estimates of (σ², ς²) from the displays, [2].
        hidden: how much lower the fit's own are: displays that exclude each other hide it, ever less with pages, [2].
        slopes: increase of squared residuals by a unit of either, in units of φ, [rows, 2].
        weight: of each row, 1 − h, [rows].
        overdispersion: φ.
        alone: share of S that single clicks make.
    """

    estimate: Array
    hidden: Array
    slopes: Array
    weight: Array
    overdispersion: Overdispersion
    alone: float

    def precision(self, scale: float) -> Array:
        """Return the inverse covariance of the estimates with `scale` times the clicks, [2, 2]."""
        grown = self.slopes * scale * (1 - self.alone * (1 - 1 / scale))
        variances = np.maximum(self.estimate, 0.0)
        root = np.sqrt(self.weight) / (max(self.overdispersion.estimate, 1.0) + grown @ variances / self.weight)
        rows = grown * root[:, None]
        product: Array = rows.T @ rows / 2
        return product + np.eye(2) * 1e-12 * max(float(np.trace(product)), 1e-6)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of queries at single positions, and then of their steepness, as in `query_random_effects`.

    Attributes:
        effects: S and T, the score's variance by queries that differ with a variance of 1, [2, size, size].
        excess: squared residuals relative to those of independent clicks, [rows].
        slopes: increase of these by a unit of σ² and of ς², [rows, 2].
        weight: 1 − h, [rows].
        squares: |Q a|² of every query at every position of its own, [rows at single positions].
    """

    effects: Array
    excess: Array
    slopes: Array
    weight: Array
    squares: Array

    def estimates(self, overdispersion: float, variances: Array) -> Array:
        """Return σ² and ς² without a bound at 0, weighted by φ and these variances, [2]."""
        rows, excess = self._weighted(overdispersion, variances)
        return np.asarray(np.linalg.lstsq(rows, excess, rcond=None)[0], dtype=np.float64)

    def last_weights(self, overdispersion: float) -> Array:
        """Return the variances that the fit weighted residuals by in its last step, [2]."""
        return settle(lambda variances: self._weighted(overdispersion, variances))[0]

    def _weighted(self, overdispersion: float, variances: Array) -> tuple[Array, Array]:
        root = np.sqrt(self.weight) / (overdispersion + self.slopes @ variances / self.weight)
        return self.slopes * root[:, None], (self.excess - overdispersion) * root


def residuals_of(fit: Pooled) -> Residuals:
    """Return the residuals of the queries of a fit."""
    inverse = np.asarray(np.linalg.inv(fit.information + fit.precision), dtype=np.float64)
    effects, parts = effects_of_queries(fit, inverse)
    residual, information, squares, along, kept = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("residual", "own", "squares", "along", "kept")
    )
    use = information > LEAST
    return Residuals(
        effects=effects,
        excess=(residual**2 / np.where(use, information * kept, 1.0))[use],
        slopes=(np.stack([squares, along**2], axis=1)[use]) * (kept[use] / information[use])[:, None],
        weight=kept[use],
        squares=np.concatenate([part.squares for part in parts if part.position is not None]),
    )


def query_variances(fit: Pooled, clustered: Clustered, sample: Sample) -> tuple[QueryVariances, Array, Array]:
    """Return the variances by a fit's residuals, S and T, [2, size, size], and B, [size, size], as in `forecast`."""
    of_fit = residuals_of(fit)
    weights = of_fit.last_weights(clustered.overdispersion)
    phi = within = overdispersion(fit, of_fit.squares)
    of_displays = of_fit
    if not np.array_equal(sample.exposure, sample.impressions):
        as_shown = with_displays(fit, sample)
        of_displays = residuals_of(as_shown)
        within = overdispersion(as_shown, of_displays.squares)
    clicks, shown = fit.shares.clicks, sample.impressions[fit.shares.rows]
    several = shown > 1
    repeated = np.sum(clicks[several] * (clicks[several] - 1) / (shown[several] - 1))
    rate = min(float(repeated / max(clicks[several].sum(), 1.0)), 0.9)  # a display has one click at most
    estimate = of_displays.estimates(max(within.estimate, 1 - rate), weights)
    single = single_clicks(fit)
    variances = QueryVariances(
        estimate=estimate,
        hidden=estimate - of_fit.estimates(clustered.overdispersion, weights),
        slopes=of_displays.slopes,
        weight=of_displays.weight,
        overdispersion=phi,
        alone=float(min(np.trace(single) / max(np.trace(of_fit.effects[0]), 1e-300), 1.0)),
    )
    return variances, of_fit.effects, single


def single_clicks(fit: Pooled) -> Array:
    """Return B, part by part, [size, size]."""
    shares = fit.shares
    whole = np.zeros((shares.size, shares.size))
    for cells in shares.parts(shares.size):
        rows = shares.centred(shares.design(cells), fit.at.share, cells)
        rows *= (np.sqrt(shares.clicks_of_unit[cells]) * fit.at.share[cells])[:, None]
        whole += rows.T @ rows
    return whole


def with_displays(fit: Pooled, sample: Sample) -> Pooled:
    """Return the fit at the same parameters with displays as exposures, instead of a design's.

    Displays that a design draws exclude each other: a page has one result at a rank. That hides how queries differ.
    """
    shares = copy(fit.shares)
    shares.log_exposure = np.log(np.maximum(sample.impressions[shares.rows], 1e-9))
    return replace(fit, shares=shares, at=shares.shares(fit.theta))


def overdispersion(fit: Pooled, squares: Array) -> Overdispersion:
    """Return φ of a fit, as in `query_random_effects`: how units of a query differ at one position.

    Args:
        fit: the fit.
        squares: |Q a|² of every query at every position of its own.
    """
    shares, at = fit.shares, fit.at
    _, row = np.unique(shares.cluster * shares.n_positions + shares.position, return_inverse=True)
    expected = shares.clicks_of_unit * at.share
    variance = expected * (1 - at.share)
    alike = shares.by_unit(at.share**2)[shares.unit]
    use = variance > LEAST
    divisor = np.where(use, variance, 1.0)
    apart = expected**2 * (1 - 2 * at.share + alike) / divisor
    columns = (np.ones(len(row)), variance, at.residual, at.residual**2 / divisor, apart)
    by_row = np.stack([np.bincount(row, np.where(use, column, 0.0)) for column in columns])
    several = by_row[0] > 1
    count, total, sums, squared, apart = by_row[:, several]
    weight = np.minimum(total / count, 1.0)
    freedom = float(weight @ (count - 1))
    if freedom < FEWEST:
        return Overdispersion(1.0, 0.0, 0.0, 0.0)
    within = squared - sums**2 / total
    estimate = float(weight @ within / freedom)
    variance_of_it = float(np.sum((weight * (within - estimate * (count - 1))) ** 2)) / freedom**2
    # Two units that were clicked on the same page exclude each other at a rank, which dominates where pages are few.
    sparse = float(weight @ ((count - 1) * (total < count / 2)) / freedom)
    error = float(np.sqrt(variance_of_it + (sparse * (estimate - 1)) ** 2))
    full = float(np.sqrt(2 * max(estimate, 1.0) ** 2 / np.sum(count - 1)))
    leak = max(float(weight @ (apart - squares[several] / total) / freedom), 0.0)
    return Overdispersion(estimate, error, min(error, full), leak)


def counts(fit: Pooled, gradients: Array) -> tuple[Array, Array]:
    """Return a root of the covariance of the entries' log information, [entries, r], and its slopes in θ.

    Clicks are counts; and information depends on the shares: ∂(xᵀ H x) / ∂θ is the sum of N_u times the third moment of
    x·z, x·z and z over the shares of unit u, [entries, size].
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
        of_units = np.add.reduceat(squares, begins, axis=0)
        of_units *= np.sqrt(shares.clicks_of_unit[cells][begins])[:, None]
        covariance += of_units.T @ of_units
    total = np.einsum("ie,ij,je->e", x, fit.information + fit.precision, x)
    covariance /= np.maximum(np.outer(total, total), 1e-300)
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root, slopes / np.maximum(total, 1e-300)[:, None]


@dataclass(frozen=True)
class Unseen:
    """How much faster than its pages the information of a log grows.

    Attributes:
        gain: half of the information of twice the pages, relative to the pages', 1 ≤ q < 2; 1 for exposures by design.
        error: standard error of log q, by query.
    """

    gain: float
    error: float

    def scales(self, times: float, noise: Array) -> tuple[float, Array]:
        """Return how much more information `times` the pages hold, and the same of draws, noise being normal."""
        drawn = np.clip(self.gain * np.exp(self.error * noise), 1.0, MOST_GAIN)

        def more(gain: Array) -> Array:
            n = (gain - 1) / (2 - gain)
            return np.asarray(times**2 * (1 + n) / (times + n))

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
