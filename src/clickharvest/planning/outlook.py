"""Outlook: how wide intervals will be once a log has grown, as far as the log can tell, by draws.

A forecast that scales the fit of a log takes for known what the log only hints at: how far queries differ (σ², ς²), how
overdispersed clicks are (φ), how far positions stray from a power law (τ), and how many clicks tell of each position.
A draw of the outlook takes truths that agree with the log, lets the log grow to s times its pages, and does what a fit
would do then:

1. **Truths.** Unconstrained estimates of σ² and ς² are normal around them, that of φ too; τ has its evidence, and θ
   given τ is normal. Before anything is seen, σ, ς and τ may be of any order of magnitude (`SPREADS`), φ is near 1.
2. **Growth.** The score becomes y_s = y_1 + (s − 1) H θ + noise: clicks add φ (s − 1) H, while what queries read
   otherwise comes again, s times as large (with `new_queries` it is that of other queries). Estimates of σ², ς² and φ
   move towards the truth as their error falls; what the log has told stays in them. What displays that exclude each
   other hide of σ² (`evidence`) falls with 1/s, and φ grows by what it takes for overdispersion and is σ².
3. **The fit.** τ of most evidence, then V = J⁻¹ (φ H + σ² S + ς² T + Λ) J⁻¹, as `forecast` has it.

So all draws start, at s = 1, from the width of the log's own fit. All τ are multiplied by one factor f, so that one
basis diagonalises H and Λ/f² for every f and s: with Pᵀ H P = D and Pᵀ Λ P = E, J⁻¹ = P (s D + E/f²)⁻¹ Pᵀ.

**Realised exposures** gain units as a log grows: s times the pages hold s (1 + n) / (s + n) times as much as pages
alone, n from parts of the log, with its error (`evidence.unseen`).

**Information** is that at the fitted shares: with the parameters that a draw's fit finds, it is another, by its slopes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clickharvest.planning.evidence import Evidence, Unseen

Array = NDArray[np.float64]

DRAWS = 400
SPREADS = (0.003, 1.0)
"""Standard deviations τ, σ and ς on the log scale: of 0.3 % to 100 %, each order of magnitude as likely as another."""
COUNTED = 0.2
"""Standard deviation of φ around 1 before anything is seen."""
FACTORS = (1 / 60, 12.0)
"""What τ may be multiplied with, in `STEPS` steps; in fewer where parameters are so many that they take more work."""
STEPS, WORK = 60, 1e8
BOUNDS = (1e-3, 10.0)
GRID = 40


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is drawn from; coordinates are those of the basis P.

    Attributes:
        rows: gradients of the entries, [entries, size].
        information: D, [size].
        precision: E, [size].
        linear: y_1, [size].
        rank: how many parameters the prior holds.
        spread: τ of the fit, those that are learned.
        pairs, single, steep: S − B, B and T for variances of 1, [size, size] each.
        missed: what misfit adds to the variance of every entry, [entries].
        counts: root of the covariance of the entries' log information, for clicks are counts, [entries, r].
        slopes: how the entries' log information goes with θ, [entries, size].
        evidence: of the variances between queries.
        unseen: how much faster than pages the information grows.
        seed: of the draws.
    """

    rows: Array
    information: Array
    precision: Array
    linear: Array
    rank: int
    spread: Array
    pairs: Array
    single: Array
    steep: Array
    missed: Array
    counts: Array
    slopes: Array
    evidence: Evidence
    unseen: Unseen
    seed: int = 0

    def log_sd(self, scale: float, *, new_queries: bool = False) -> Array:
        """Return standard deviations of every entry with `scale` ≥ 1 times the traffic, [draws, entries]."""
        truth, noise = self._truth, self._noise
        s, drawn = self.unseen.scales(scale, noise["unseen"])
        variances, overdispersion = self._estimates(s, new_queries=new_queries)
        effect = truth.effect if not new_queries else 0.0
        fresh = truth.overdispersion[:, None] * self.information
        if new_queries:
            fresh = fresh + truth.between
        linear = self.linear + (s - 1) * (self.information * truth.theta + effect)
        linear = linear + np.sqrt((s - 1) * fresh) * noise["score"]
        factor = self._most_evident(s, linear)
        found = np.empty((DRAWS, len(self.rows)))
        pairs = s if new_queries else s**2
        by_position = pairs * self.pairs + s * self.single
        for f in np.unique(factor):
            own = factor == f
            rows = self.rows / (s * self.information + self.precision / f**2)
            clicks = rows**2 @ self.information * s
            prior = rows**2 @ (self.precision / f**2)
            position, steep = _form(rows, by_position), pairs * _form(rows, self.steep)
            sigma, varsigma = variances[own].T
            found[own] = np.outer(overdispersion[own], clicks) + np.outer(sigma, position) + np.outer(varsigma, steep)
            found[own] += prior
        chance = (1 - 1 / s) * noise["counts"] + np.sqrt(s - 1) / s * noise["new counts"]
        moved = linear / (s * self.information + self.precision / factor[:, None] ** 2) - self.linear
        more = chance @ self.counts.T + moved @ self.slopes.T + np.log(drawn / s)[:, None]
        sd: Array = np.sqrt(found * np.exp(-more) + self.missed / s)
        return sd

    def _estimates(self, s: float, *, new_queries: bool) -> tuple[Array, Array]:
        """Return what a fit to the grown log finds of σ² and ς², [draws, 2], and of φ, [draws]."""
        truth, noise, evidence = self._truth, self._noise, self.evidence
        before = evidence.precision(1.0)
        information = before * s if new_queries else evidence.precision(s)
        then = np.linalg.inv(information).astype(np.float64)
        share: Array = then @ before
        left = then - share @ then
        raw = truth.variances + (evidence.found - truth.variances) @ share.T + noise["variances"] @ _root(left).T
        raw = raw - evidence.hidden / (1 if new_queries else s)
        # As in `query_random_effects`: both at least 0, steepness shrunk by its error, the rest counted as σ².
        alone = raw[:, 1] + information[0, 1] / information[1, 1] * raw[:, 0]
        steep = np.maximum(np.where(raw[:, 0] < 0, alone, raw[:, 1]), 0.0)
        kept = steep**3 / np.maximum(steep**2 + then[1, 1], 1e-300)
        single = np.maximum(raw[:, 0] + information[0, 1] / information[0, 0] * (raw[:, 1] - kept), 0.0)
        phi = evidence.overdispersion
        error = np.sqrt(phi.full**2 + (phi.error**2 - phi.full**2) / s)
        moved = truth.overdispersion + (phi.found - truth.overdispersion) / s
        if not new_queries:
            moved = moved + phi.leak * (s - 1) * truth.variances[:, 0]
        moved = moved + error * np.sqrt(1 - 1 / s**2) * noise["overdispersion"]
        return np.stack([single, kept], axis=1), np.maximum(moved, 1.0)

    def _most_evident(self, s: float, linear: Array) -> Array:
        """Return the factor of τ that a fit chooses, [draws]."""
        if not self.rank:
            return np.ones(len(linear))
        total = s * self.information + self.precision / self._factors[:, None] ** 2
        value = linear**2 @ (1 / total).T / 2 - np.log(total).sum(axis=1) / 2 - self.rank * np.log(self._factors)
        tau = self._factors[:, None] * self.spread
        found: Array = self._factors[np.argmax(value + (np.log(tau) - tau).sum(axis=1), axis=1)]
        return found

    @cached_property
    def _factors(self) -> Array:
        """Factors that keep every τ within its bounds."""
        steps = int(np.clip(WORK / (len(self.rows) * len(self.linear) ** 2), 1, STEPS))
        factors = np.exp(np.linspace(np.log(FACTORS[0]), np.log(FACTORS[1]), steps)) if steps > 2 else np.ones(1)
        fits = (self.spread.max() * factors <= BOUNDS[1]) & (self.spread.min() * factors >= BOUNDS[0])
        return np.unique(np.append(factors[fits], 1.0))

    @cached_property
    def _noise(self) -> dict[str, Array]:
        random = np.random.default_rng((self.seed, 1))
        sizes = {"score": len(self.linear), "variances": 2, "counts": self.counts.shape[1]}
        sizes["new counts"] = sizes["counts"]
        found = {name: random.normal(size=(DRAWS, size)) for name, size in sizes.items()}
        return found | {name: random.normal(size=DRAWS) for name in ("overdispersion", "unseen")}

    @cached_property
    def _truth(self) -> _Truth:
        random = np.random.default_rng((self.seed, 0))
        evidence = self.evidence
        variances = _spreads(evidence.found, evidence.precision(1.0), random)
        phi = evidence.overdispersion
        trust = COUNTED**2 / (COUNTED**2 + phi.error**2)
        overdispersion = 1 + trust * (phi.found - 1) + np.sqrt(trust) * phi.error * random.normal(size=DRAWS)
        overdispersion = np.maximum(overdispersion, 0.2)
        either = np.diag(self.pairs + self.single), np.diag(self.steep)
        between = np.maximum(variances @ np.stack(either), 0.0)
        whole = overdispersion[:, None] * self.information + between + 1e-12
        told = self.information * self.linear / whole
        precise = self.information**2 / whole
        factor = np.ones(DRAWS)
        if self.rank:
            total = precise[:, None] + self.precision / self._factors[:, None] ** 2
            value = (told[:, None] ** 2 / total).sum(axis=2) / 2 - np.log(total).sum(axis=2) / 2
            tau = self._factors[:, None] * self.spread
            likely = ((tau >= SPREADS[0]) & (tau <= SPREADS[1])).any(axis=1)
            value += np.where(likely | ~likely.any(), -self.rank * np.log(self._factors), -np.inf)
            weight = np.exp(value - value.max(axis=1, keepdims=True))
            if len(self._factors) > 1:
                weight *= np.gradient(np.log(self._factors))
            below = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
            factor = self._factors[np.argmax(below >= random.random((DRAWS, 1)), axis=1)]
        total = precise + self.precision / factor[:, None] ** 2
        theta = told / total + random.normal(size=told.shape) / np.sqrt(total)
        left = self.linear - self.information * theta
        share = np.minimum(between / whole, 1.0)
        effect = share * left + np.sqrt(between * (1 - share)) * random.normal(size=told.shape)
        return _Truth(variances, overdispersion, theta, effect, between)


@dataclass(frozen=True, eq=False)
class _Truth:
    """Truths: (σ², ς²) [draws, 2], φ [draws], θ, what queries add to y_1 and its variance, [draws, size]."""

    variances: Array
    overdispersion: Array
    theta: Array
    effect: Array
    between: Array


def _form(rows: Array, matrix: Array) -> Array:
    total: Array = np.sum(rows @ matrix * rows, axis=-1)
    return total


def _root(matrix: Array) -> Array:
    """Return R with R Rᵀ the matrix, as far as it is positive."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _spreads(mean: Array, precision: Array, random: np.random.Generator) -> Array:
    """Return draws of two variances whose estimates are normal, standard deviations as in `SPREADS`, [draws, 2]."""
    ends = 2 * np.log(np.array(SPREADS))
    grid = np.linspace(ends[0], ends[1], GRID)
    step = grid[1] - grid[0]
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    off = np.exp(points) - mean
    value = -np.sum(off @ precision * off, axis=1) / 2
    weight = np.exp(value - value.max())
    drawn = random.choice(len(points), DRAWS, p=weight / weight.sum())
    found: Array = np.exp(points[drawn] + random.uniform(-step / 2, step / 2, (DRAWS, 2)))
    return found
