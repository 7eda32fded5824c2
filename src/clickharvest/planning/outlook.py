"""Outlook: the widths of intervals once a log has grown, as draws from what the log leaves uncertain.

Scaling the fit of a log takes for known what the log only estimates: the variances between queries (σ², ς²),
overdispersion (φ), the distance of positions from a power law (τ), and the information at each position. A draw of the
outlook takes truths that agree with the log, lets the log grow to s times its pages, and fits again:

1. **Truths.** Unconstrained estimates of σ² and ς² are normal around them, that of φ too; τ has its evidence, and θ
   given τ is normal. A priori, σ, ς and τ may be of any order of magnitude (`SPREADS`), φ is near 1.
2. **Growth.** The score becomes y_s = y_1 + (s − 1) H θ + noise: clicks add φ (s − 1) H, while the effects of queries
   come again, s times as large (with `new_queries` they are those of other queries). Estimates of σ², ς² and φ
   move towards the truth as their error falls, and keep the log's part. The part of σ² that displays which exclude each
   other hide falls with 1/s, and φ grows by what it takes for overdispersion and is σ².
3. **The fit.** τ of most evidence, then V = J⁻¹ (φ H + σ² S + ς² T + Λ) J⁻¹, as `forecast` has it.

So all draws start, at s = 1, from the width of the log's own fit. All τ are multiplied by one factor f, so that one
basis diagonalises H and Λ/f² for every f and s: with Pᵀ H P = D and Pᵀ Λ P = E, J⁻¹ = P (s D + E/f²)⁻¹ Pᵀ.

Realised exposures gain units as a log grows: s times the pages hold s (1 + n) / (s + n) times as much as pages alone,
n from parts of the log, with its error (`unseen`). Information is that at the fitted shares, and changes with the
parameters of a draw by its slopes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clickharvest.planning.query_variances import QueryVariances, Unseen

Array = NDArray[np.float64]

DRAWS = 400
"""Draws; more are slower and move the ends of ranges less."""
SPREADS = (0.003, 1.0)
"""Range of the standard deviations τ, σ and ς on the log scale, each order of magnitude as likely as another."""
PRIOR_SPREAD = 0.2
"""Prior standard deviation of φ around 1."""
FACTORS, BOUNDS = (1 / 60, 12.0), (1e-3, 10.0)
"""Range of the factors of τ, and of τ itself."""
STEPS, WORK = 60, 1e8
"""Steps between these factors, and the operations that they may take."""
GRID = 40
"""Values of σ and of ς that truths are drawn from."""


@dataclass(frozen=True, eq=False)
class Outlook:
    """The distribution of the draws; coordinates are those of the basis P.

    Attributes:
        rows: gradients of the entries, [entries, size].
        information: D, [size].
        precision: E, [size].
        linear: y_1, [size].
        rank: number of parameters with a learned prior; 0 without.
        spread: τ of the fit, those that are learned.
        pairs, single, steep: S − B, B and T for variances of 1, [size, size] each.
        missed: variance of every entry by the curve's misfit, [entries].
        counts: root of the covariance of the entries' log information, [entries, r].
        slopes: slopes of the entries' log information in θ, [entries, size].
        variances: estimates of the variances between queries.
        unseen: growth of the information beyond that of pages.
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
    variances: QueryVariances
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
        variance = np.empty((DRAWS, len(self.rows)))
        pairs = s if new_queries else s**2
        by_position = pairs * self.pairs + s * self.single
        for f in np.unique(factor):
            drawn_f = factor == f
            rows = self.rows / (s * self.information + self.precision / f**2)
            clicks = rows**2 @ self.information * s
            prior = rows**2 @ (self.precision / f**2)
            position, steep = quadratic_form(rows, by_position), pairs * quadratic_form(rows, self.steep)
            sigma, varsigma = variances[drawn_f].T
            variance[drawn_f] = np.outer(overdispersion[drawn_f], clicks) + np.outer(sigma, position)
            variance[drawn_f] += np.outer(varsigma, steep) + prior
        chance = (1 - 1 / s) * noise["counts"] + np.sqrt(s - 1) / s * noise["new counts"]
        moved = linear / (s * self.information + self.precision / factor[:, None] ** 2) - self.linear
        more = chance @ self.counts.T + moved @ self.slopes.T + np.log(drawn / s)[:, None]
        return np.asarray(np.sqrt(variance * np.exp(-more) + self.missed / s))

    def _estimates(self, s: float, *, new_queries: bool) -> tuple[Array, Array]:
        """Return the estimates of a fit to the grown log: σ² and ς², [draws, 2], and φ, [draws]."""
        truth, noise, known = self._truth, self._noise, self.variances
        before = known.precision(1.0)
        information = before * s if new_queries else known.precision(s)
        then = np.linalg.inv(information).astype(np.float64)
        share: Array = then @ before
        left = then - share @ then
        raw = truth.variances + (known.estimate - truth.variances) @ share.T + noise["variances"] @ _root(left).T
        raw = raw - known.hidden / (1 if new_queries else s)
        # As in `query_random_effects`: both at least 0, steepness shrunk by its error, the rest counted as σ².
        alone = raw[:, 1] + information[0, 1] / information[1, 1] * raw[:, 0]
        steep = np.maximum(np.where(raw[:, 0] < 0, alone, raw[:, 1]), 0.0)
        kept = steep**3 / np.maximum(steep**2 + then[1, 1], 1e-300)
        single = np.maximum(raw[:, 0] + information[0, 1] / information[0, 0] * (raw[:, 1] - kept), 0.0)
        phi = known.overdispersion
        error = np.sqrt(phi.full**2 + (phi.error**2 - phi.full**2) / s)
        moved = truth.overdispersion + (phi.estimate - truth.overdispersion) / s
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
        return np.asarray(self._factors[np.argmax(value + (np.log(tau) - tau).sum(axis=1), axis=1)])

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
        noise = {name: random.normal(size=(DRAWS, size)) for name, size in sizes.items()}
        return noise | {name: random.normal(size=DRAWS) for name in ("overdispersion", "unseen")}

    @cached_property
    def _truth(self) -> _Truth:
        random = np.random.default_rng((self.seed, 0))
        variances = _spreads(self.variances.estimate, self.variances.precision(1.0), random)
        phi = self.variances.overdispersion
        trust = PRIOR_SPREAD**2 / (PRIOR_SPREAD**2 + phi.error**2)
        overdispersion = 1 + trust * (phi.estimate - 1) + np.sqrt(trust) * phi.error * random.normal(size=DRAWS)
        overdispersion = np.maximum(overdispersion, 0.2)
        either = np.diag(self.pairs + self.single), np.diag(self.steep)
        between = np.maximum(variances @ np.stack(either), 0.0)
        whole = overdispersion[:, None] * self.information + between + 1e-12
        score = self.information * self.linear / whole
        precise = self.information**2 / whole
        factor = np.ones(DRAWS)
        if self.rank:
            total = precise[:, None] + self.precision / self._factors[:, None] ** 2
            value = (score[:, None] ** 2 / total).sum(axis=2) / 2 - np.log(total).sum(axis=2) / 2
            tau = self._factors[:, None] * self.spread
            likely = ((tau >= SPREADS[0]) & (tau <= SPREADS[1])).any(axis=1)
            value += np.where(likely | ~likely.any(), -self.rank * np.log(self._factors), -np.inf)
            weight = np.exp(value - value.max(axis=1, keepdims=True))
            if len(self._factors) > 1:
                weight *= np.gradient(np.log(self._factors))
            below = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
            factor = self._factors[np.argmax(below >= random.random((DRAWS, 1)), axis=1)]
        total = precise + self.precision / factor[:, None] ** 2
        theta = score / total + random.normal(size=score.shape) / np.sqrt(total)
        left = self.linear - self.information * theta
        share = np.minimum(between / whole, 1.0)
        effect = share * left + np.sqrt(between * (1 - share)) * random.normal(size=score.shape)
        return _Truth(variances, overdispersion, theta, effect, between)


@dataclass(frozen=True, eq=False)
class _Truth:
    """Truths: (σ², ς²) [draws, 2], φ [draws], θ, what queries add to y_1 and its variance, [draws, size]."""

    variances: Array
    overdispersion: Array
    theta: Array
    effect: Array
    between: Array


def quadratic_form(rows: Array, matrix: Array) -> Array:
    """Return xᵀ M x of every row x, [...]."""
    return np.asarray(np.sum(rows @ matrix * rows, axis=-1))


def _root(matrix: Array) -> Array:
    """Return R with R Rᵀ the matrix, negative eigenvalues taken for 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


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
    return np.asarray(np.exp(points[drawn] + random.uniform(-step / 2, step / 2, (DRAWS, 2))))
