"""The likelihood of affine clicks, relevance being a mixture that depends on where a unit was shown.

A unit of relevance r in [0, 1] is clicked at position k with probability q_k(r) = (1 − r) q_k(0) + r q_k(1), a straight
line whatever its ends are. Its counts have the likelihood

    L_u = Σ_g π_g(z_u) Π_k q_k(r_g)^{C_uk} (1 − q_k(r_g))^{n_uk − C_uk},     log π_g(z) = const + Σ_j Q_j(r_g) B_j · z,

over a grid of relevances r_g. z_u are features of the unit's displays (`UnitCounts.features`), Q_j are Legendre
polynomials: the first two depend on z, so that both the mean and the spread of relevance may differ between units that
stand high and units that stand low, and the further ones give the distribution a shape. It is smooth and has few
parameters (as Efron's g-modelling, Biometrika 2016), so that error bars by query are those of an ordinary likelihood.

The ends of r are not identified, but what is needed is: a_k = (q_k(1) − q_k(0)) / (q_1(1) − q_1(0)) and
b_k = q_k(0) − a_k q_1(0). A little penalty, on B and on logits far from where the search starts, picks one of the
equivalent descriptions, so that no end runs off to where click probabilities are 0.

A unit with many displays tells its relevance so well that a coarse grid would miss it. The grid of a unit is as fine as
its own likelihood needs; there are few such units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from clickharvest.estimation.optimise import Status
from clickharvest.estimation.unit_counts import Array, UnitCounts
from clickharvest.progress import Update

DEGREE = 5
"""Polynomials of the distribution of relevance."""
DEPENDENT = 2
"""How many of them depend on where a unit was shown."""
PENALTY = 0.1
"""On the squares of B, and of the distance of logits from their start."""
COARSEST, FINEST = 32, 1024
"""Points of a grid. Units that would need a finer one than the finest count as if they were shown less often."""
ROWS = 4_000
"""Units held at once, times the finest grid over the coarsest."""
STEPS = 200
"""Of an optimisation, at most."""
SMALL = 1e-3
"""Expected gain in log likelihood of a further step, at which a fit has converged."""
NUDGE = 1e-4
"""How far parameters are moved to see how the gradient changes."""
ENOUGH = 20_000
"""Units of which the curvature is taken, where there are more."""
LEAST_LEFT = 0.01
"""Share of what is known that the other queries tell, at least, where one tells nearly all."""


class Fitted(NamedTuple):
    """Parameters of the mixture, the log likelihood there, and how the search ended."""

    theta: Array
    log_likelihood: float
    status: Status


@dataclass(frozen=True, eq=False)
class _Group:
    """Units whose likelihood needs the same grid: their rows, the grid [G], and the polynomials there [G, DEGREE]."""

    rows: NDArray[np.intp]
    grid: Array
    polynomials: Array


class Mixture:
    """The likelihood of some counts.

    Parameters are the logits of q_k(0), of q_k(1), and B, [2 K + n] in all.

    Args:
        counts: the counts of units.
        anchor: the position that others are relative to.
    """

    def __init__(self, counts: UnitCounts, anchor: int) -> None:
        self.n_positions, self.anchor = len(counts.positions), counts.positions.index(anchor)
        self.query, self.n_queries = counts.query, counts.n_queries
        # Units with equal counts have equal likelihoods: many, where most were shown a few times.
        rows = np.concatenate([counts.shown, counts.clicks], axis=1)
        _, first, self.like = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        self.like = self.like.reshape(-1)
        self.times = np.bincount(self.like).astype(np.float64)
        self.clicks, self.shown = counts.clicks[first], counts.shown[first]
        self.features = counts.features()[first]
        self.of_polynomial, self.of_feature = (
            np.array(index)
            for index in zip(
                *[(j, z) for j in range(DEGREE) for z in range(self.features.shape[1] if j < DEPENDENT else 1)],
                strict=True,
            )
        )
        self.n_params = 2 * self.n_positions + len(self.of_polynomial)
        self.groups: list[_Group] = []
        self.centre = np.zeros(self.n_params)

    def start(self, a: Array, b: Array) -> Array:
        """Return parameters near given slopes and offsets, [2 K + n]: r spans what single units show of relevance."""
        tells = self.shown * a**2
        rate = ((self.clicks - self.shown * b) * a).sum(axis=1) / np.maximum(tells.sum(axis=1), np.finfo(float).tiny)
        best = np.argsort(-tells.sum(axis=1))[: max(200, len(rate) // 4)]
        low, high = np.quantile(rate[best], [0.01, 0.99])
        low, high = low - 0.1 * (high - low), high + 0.1 * (high - low) + 0.01
        theta = np.zeros(self.n_params)
        usual = np.clip(self.times @ self.clicks / np.maximum(self.times @ self.shown, 1.0), 1e-3, 0.98)
        theta[: self.n_positions] = logit(np.clip(a * low + b, usual / 10, usual))
        theta[self.n_positions : 2 * self.n_positions] = logit(np.clip(a * high + b, usual, 1 - (1 - usual) / 10))
        return theta

    def fit(self, theta: Array, update: Update) -> Fitted:
        """Return the optimum near some parameters; grids follow what is found."""
        self.centre = theta
        for _ in range(2):
            self._refine(theta)
            found = self._climb(theta, update)
            theta = found.theta
        return found

    def affine(self, theta: Array) -> tuple[Array, Array]:
        """Return a and b, [K] each."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        a = (high - low) / (high - low)[self.anchor]
        return a, low - a * low[self.anchor]

    def covariance(self, theta: Array, update: Update) -> tuple[Array, float]:
        """Return the covariance of a and b, clustered by query, [2 K, 2 K], and on how many queries it rests.

        It is H⁻¹ Σ_q t_q t_qᵀ H⁻¹ · Q / (Q − p) for Q queries and p parameters that the data determine, with the scores
        s_q of queries, t_q = s_q / √(1 − w_q): a query that has a share w_q of all that is known pulls the fit its
        way, which makes its score small. It rests on 1 / Σ w_q² queries.

        Scores of a position that a query or two were clicked at are 0 at the optimum, and see no variance. An error bar
        that is less than half of the model's own, of H⁻¹, is replaced by it.
        """
        values, vectors = np.linalg.eigh(self._curvature(theta, update))
        root = (vectors / np.sqrt(np.maximum(values, PENALTY))) @ vectors.T
        scores = self._evaluate(theta)[1] @ root
        told = np.bincount(self.query, (scores**2).sum(axis=1)[self.like], self.n_queries)
        share = told / told.sum()
        by_query = (
            np.column_stack(
                [
                    np.bincount(self.query, column[self.like], self.n_queries)
                    for column in np.ascontiguousarray(scores.T)
                ]
            )
            / np.sqrt(np.maximum(1 - share, LEAST_LEFT))[:, None]
        )
        turned = self._jacobian(theta) @ root
        whole = turned @ by_query.T
        spent = min(float(told.sum()), self.n_queries / 2)
        covariance = whole @ whole.T * self.n_queries / (self.n_queries - spent)
        return _not_far_below(covariance, (turned**2).sum(axis=1)), 1 / float(share @ share)

    def relevance_spread(self, theta: Array) -> float:
        """Return the standard deviation of the units' click probability at the anchor, as the mixture tells it."""
        low, high = expit(theta[self.anchor]), expit(theta[self.n_positions + self.anchor])
        grid, polynomials = _grid(COARSEST)
        weights = (self.times @ self._mixing(theta, self.features, polynomials)) / self.times.sum()
        return float(abs(high - low) * np.sqrt(weights @ grid**2 - (weights @ grid) ** 2))

    def _jacobian(self, theta: Array) -> Array:
        """Return the derivatives of a and b, [2 K, 2 K + n]."""
        columns = []
        for i in range(2 * self.n_positions):
            nudge = np.zeros(self.n_params)
            nudge[i] = 1e-6
            ends = [np.concatenate(self.affine(theta + sign * nudge)) for sign in (1, -1)]
            columns.append((ends[0] - ends[1]) / 2e-6)
        return np.column_stack([*columns, np.zeros((2 * self.n_positions, self.n_params - 2 * self.n_positions))])

    def _curvature(self, theta: Array, update: Update) -> Array:
        """Return the negative second derivatives of the log likelihood, of some units for all."""
        some, whole = self.groups, float(self.times.sum())
        if len(self.times) > ENOUGH:
            keep = np.zeros(len(self.times), bool)
            keep[np.random.default_rng(0).permutation(len(self.times))[:ENOUGH]] = True
            self.groups = [_Group(g.rows[keep[g.rows]], g.grid, g.polynomials) for g in some]
            whole /= float(self.times[keep].sum())
        else:
            whole = 1.0
        base, columns = self._gradient(theta), []
        for i in range(self.n_params):
            nudge = np.zeros(self.n_params)
            nudge[i] = NUDGE
            columns.append((base - self._gradient(theta + nudge)) / NUDGE * whole)
            update((i + 1) / self.n_params)
        self.groups = some
        curvature = np.column_stack(columns)
        return np.asarray((curvature + curvature.T) / 2 + PENALTY * np.eye(self.n_params))

    def _gradient(self, theta: Array) -> Array:
        _, scores = self._evaluate(theta)
        return np.asarray(self.times @ scores)

    def _refine(self, theta: Array) -> None:
        """Group units by the grid they need: a step of it is a standard deviation of r at most."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        middle = (low + high) / 2
        needed = np.sqrt(1.5 * (self.shown @ ((high - low) ** 2 / (middle * (1 - middle)))))
        share = np.minimum(1.0, FINEST / np.maximum(needed, 1.0))[:, None] ** 2
        self.hits, self.misses = share * self.clicks, share * (self.shown - self.clicks)
        steps = np.ceil(np.log2(np.clip(needed, COARSEST, FINEST) / COARSEST)).astype(int)
        self.groups = [
            _Group(np.flatnonzero(steps == step), *_grid(COARSEST * 2 ** int(step))) for step in np.unique(steps)
        ]

    def _climb(self, theta: Array, update: Update) -> Fitted:
        """Return the optimum by Newton steps with the information of the scores, damped until they gain."""
        damping = 1e-3
        value, scores = self._evaluate(theta)
        for step_number in range(STEPS):
            gradient = self.times @ scores - PENALTY * (theta - self.centre)
            information = (scores * self.times[:, None]).T @ scores + PENALTY * np.eye(self.n_params)
            scale = np.diag(np.diag(information) + 1e-6)
            while True:
                step = np.linalg.solve(information + damping * scale, gradient)
                gained, there = self._evaluate(theta + step)
                if gained >= value - 1e-9:
                    break
                damping = max(damping * 4, 1e-6)
                if damping > 1e8:
                    return Fitted(theta, value, Status.stalled)
            damping, theta, value, scores = max(damping / 5, 1e-8), theta + step, gained, there
            update(step_number / STEPS)
            if gradient @ step < SMALL:
                return Fitted(theta, value, Status.converged)
        return Fitted(theta, value, Status.out_of_iterations)

    def _evaluate(self, theta: Array) -> tuple[float, Array]:
        """Return the penalised log likelihood, and the score of every distinct unit, [D, 2 K + n]."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        value = -0.5 * PENALTY * float(((theta - self.centre) ** 2).sum())
        scores = np.zeros((len(self.times), self.n_params))
        for group in self.groups:
            q = _line(low, high, group.grid)
            for rows in _parts(group):
                told, posterior, prior = self._posterior(theta, group, rows)
                value += float(self.times[rows] @ told)
                hits, misses = self.hits[rows], self.misses[rows]
                own = np.empty((len(rows), self.n_params))
                for i, (end, weight) in enumerate(((low, 1 - group.grid), (high, group.grid))):
                    up, down = posterior @ (weight / q).T, posterior @ (weight / (1 - q)).T
                    columns = slice(i * self.n_positions, (i + 1) * self.n_positions)
                    own[:, columns] = (hits * up - misses * down) * (end * (1 - end))
                moved = (posterior - prior) @ group.polynomials
                own[:, 2 * self.n_positions :] = moved[:, self.of_polynomial] * self.features[rows][:, self.of_feature]
                scores[rows] = own
        return value, scores

    def _posterior(self, theta: Array, group: _Group, rows: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Return log L_u, and the posterior and prior weights of the grid, [n], [n, G], [n, G]."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        q = _line(low, high, group.grid)
        likelihood = self.hits[rows] @ np.log(q) + self.misses[rows] @ np.log1p(-q)
        prior = self._mixing(theta, self.features[rows], group.polynomials)
        largest = likelihood.max(axis=1, keepdims=True)
        posterior = prior * np.exp(likelihood - largest)
        total = posterior.sum(axis=1, keepdims=True)
        return np.log(total[:, 0]) + largest[:, 0], posterior / total, prior

    def _mixing(self, theta: Array, features: Array, polynomials: Array) -> Array:
        """Return π_g(z): [n, Z], [G, DEGREE] → [n, G]."""
        coefficients = np.zeros((DEGREE, features.shape[1]))
        coefficients[self.of_polynomial, self.of_feature] = theta[2 * self.n_positions :]
        log_weight = features @ (polynomials @ coefficients).T
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _not_far_below(covariance: Array, own: Array) -> Array:
    """Return a covariance whose variances are `own`, [n], where they are less than a quarter of it.

    Example:
        >>> _not_far_below(np.array([[1.0, 0.1], [0.1, 0.04]]), np.array([3.0, 1.0])).tolist()
        [[1.0, 0.5], [0.5, 1.0]]
    """
    variance = np.maximum(np.diag(covariance), np.finfo(float).tiny)
    factor = np.sqrt(np.where(own > 4 * variance, own / variance, 1.0))
    return np.asarray(covariance * np.outer(factor, factor))


def _line(low: Array, high: Array, grid: Array) -> Array:
    """Return q_k(r_g), away from 0 and 1 by what logarithms need, [K, G]."""
    return np.clip(low[:, None] * (1 - grid) + high[:, None] * grid, 1e-9, 1 - 1e-9)


def _grid(points: int) -> tuple[Array, Array]:
    """Return the middles of equal parts of [0, 1], and orthonormal polynomials there, but for the constant one."""
    grid = (np.arange(points) + 0.5) / points
    scale = np.sqrt(2.0 * np.arange(1, DEGREE + 1) + 1)
    return grid, np.polynomial.legendre.legvander(2 * grid - 1, DEGREE)[:, 1:] * scale


def _parts(group: _Group) -> list[NDArray[np.intp]]:
    size = max(1, ROWS * COARSEST // len(group.grid))
    return [group.rows[begin : begin + size] for begin in range(0, len(group.rows), size)]
