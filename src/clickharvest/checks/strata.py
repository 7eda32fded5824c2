"""The engine of all checks: how do clicks fall within strata, and how do two answers to that differ?

Within a stratum t the clicks fall as C_r ∝ n_r exp(o_r + x_r·θ), n displays and o an offset: a conditional logit given
the clicks of the stratum. It is asked in two ways.

- *moves*: a stratum is a unit, perhaps within a group, and its rows differ in position. What is the curve there?
- *stays*: a stratum is a unit at a position, and its rows differ in who saw it, when, or below what. Is the same result
  at the same place clicked alike?

With s_q the score of query q and I_q its information, ψ_q = (I − .9 I_q)⁻¹ s_q is about what leaving it out changes,
and V = Σ ψ_q ψ_qᵀ the variance of θ̂, never below that of independent clicks, I⁻¹. Where viewers are known, clicks
depend in two ways, and V is in no direction less than Σ ψ_v ψ_vᵀ over viewers. Two estimates from overlapping clicks
differ with the variance Σ (ψ_a − ψ_b)(ψ_a − ψ_b)ᵀ, however they depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.numbering import distinct

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

LEVERAGE = 0.9
"""Share of its information that is taken off where a query is left out; 1 would let one query have infinite weight."""
STEPS, CLOSE, FARTHEST = 30, 1e-6, 2.0
"""Newton steps at most, the change that ends them, and the longest step."""
RIDGE, TINY = 1e-9, 1e-12
"""A precision, and displays, that are as good as none."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """θ̂ and what it rests on.

    Attributes:
        theta: θ̂, [size].
        information: I, [size, size].
        influences: ψ by query, and by viewer where they are known, [groups, size] each.
        clicks: clicks of strata that tell anything.
    """

    theta: Array
    information: Array
    influences: tuple[Array, ...]
    clicks: float

    @property
    def covariance(self) -> Array:
        """V, [size, size]."""
        return at_least(clustered(self.influences), inverse(self.information))

    def minus(self, other: Estimate) -> tuple[Array, Array]:
        """Return θ̂ less another of overlapping clicks, [size], and the covariance of the difference."""
        return self.theta - other.theta, clustered([
            _longer(own, its) - _longer(its, own) for own, its in zip(self.influences, other.influences, strict=True)
        ])  # fmt: skip

    def first(self, size: int) -> Estimate:
        """Return the first parameters alone."""
        return Estimate(
            self.theta[:size],
            self.information[:size, :size],
            tuple(psi[:, :size] for psi in self.influences),
            self.clicks,
        )


def _longer(influences: Array, other: Array) -> Array:
    """Return influences with as many groups as others have at least, [groups, size]."""
    more = max(0, len(other) - len(influences))
    return np.concatenate([influences, np.zeros((more, influences.shape[1]))])


def clustered(influences: Sequence[Array]) -> Array:
    """Return the covariance from influences by query, and in no direction less than that by viewer, [size, size]."""
    of_query, *of_viewer = (psi.T @ psi for psi in influences)
    return at_least(of_viewer[0], of_query) if of_viewer else of_query


def at_least(matrix: Array, least: Array) -> Array:
    """Return a covariance whose variances are in no direction less than another's, [size, size]."""
    values, vectors = np.linalg.eigh(least)
    largest = max(float(values.max(initial=0.0)), float(np.abs(np.diag(matrix)).max(initial=0.0)), 1e-100)
    root = vectors * np.sqrt(np.maximum(values, 1e-12 * largest))
    whitened = np.linalg.solve(root, np.linalg.solve(root, matrix).T)
    ratios, axes = np.linalg.eigh((whitened + whitened.T) / 2)
    return np.asarray(root @ (axes * np.maximum(ratios, 1.0)) @ axes.T @ root.T)


def inverse(information: Array) -> Array:
    """Return the inverse of an information, nearly infinite where there is none, [size, size]."""
    size = len(information)
    scale = np.sqrt(np.maximum(np.diag(information), RIDGE))
    whole = np.linalg.inv(information / np.outer(scale, scale) + RIDGE * np.eye(size))
    return np.asarray(whole / np.outer(scale, scale))


def fit_strata(
    stratum: Integers,
    cell: Integers,
    shown: Array,
    offset: Array,
    clicks: Array,
    x: Array,
    query: Integers,
    viewer: Integers | None = None,
    *,
    ridge: float = 0.0,
) -> Estimate:
    """Return the estimate of θ from rows that are alike within cells.

    Args:
        stratum: number of the stratum, [n].
        cell: number of the cell, within which rows have one stratum, offset and x, [n].
        shown: displays, [n].
        offset: o, [n].
        clicks: clicks, [n].
        x: what the cells of a stratum differ in, [n, size].
        query: number of the query, [n]; a stratum has one.
        viewer: number of the viewer, [n], if they are known.
        ridge: precision of a normal prior of θ with mean 0.
    """
    first, of_row = distinct(cell)
    n_cells = len(first)
    stratum, x, query = stratum[first], x[first], query[first]
    own_shown, own_clicks = (np.bincount(of_row, column, n_cells).astype(np.float64) for column in (shown, clicks))
    cells, stratum = _telling(stratum, own_clicks, x)
    x, query, own_clicks = x[cells], query[cells], own_clicks[cells]
    log_weight = np.log(np.maximum(own_shown[cells], TINY)) + offset[first][cells]
    total = np.bincount(stratum, own_clicks).astype(np.float64)
    size = x.shape[1]
    theta, prior = np.zeros(size), (ridge + RIDGE) * np.eye(size)
    for _ in range(STEPS):
        expected, centred = expected_clicks(stratum, log_weight + x @ theta, total, x)
        information = centred.T @ (expected[:, None] * centred) + prior
        score = (own_clicks - expected) @ centred - ridge * theta
        move = np.linalg.solve(information, score)
        longest = float(np.abs(move).max(initial=0.0))
        theta = theta + move * min(1.0, FARTHEST / max(longest, TINY))
        if longest < CLOSE:
            break
    expected, centred = expected_clicks(stratum, log_weight + x @ theta, total, x)
    information = centred.T @ (expected[:, None] * centred) + prior
    scores = _sums(query, (own_clicks - expected)[:, None] * centred)
    left = information - LEVERAGE * _informations(query, expected, centred)
    influences: list[Array] = [np.asarray(np.linalg.solve(left, scores[:, :, None])[:, :, 0], dtype=np.float64)]
    if viewer is not None:
        of_cell = np.full(n_cells, -1, dtype=np.int64)
        of_cell[cells] = np.arange(len(cells))
        rows = np.flatnonzero(of_cell[of_row] >= 0)
        own = of_cell[of_row[rows]]
        beyond = clicks[rows] - (expected / np.maximum(own_shown[cells], TINY))[own] * shown[rows]
        scores = _sums(viewer[rows], beyond[:, None] * centred[own])
        influences.append(np.asarray(np.linalg.solve(information, scores.T).T, dtype=np.float64))
    return Estimate(theta, information, tuple(influences), float(own_clicks.sum()))


def _telling(stratum: Integers, clicks: Array, x: Array) -> tuple[Integers, Integers]:
    """Return the cells of strata with clicks whose cells differ, and the strata numbered anew."""
    count = int(stratum.max(initial=-1)) + 1
    first = np.zeros(count, dtype=np.int64)
    first[stratum] = np.arange(len(stratum))
    differs = np.zeros(count, dtype=np.bool_)
    differs[stratum[(x != x[first[stratum]]).any(axis=1)]] = True
    use = differs & (np.bincount(stratum, clicks, count) > 0)
    return np.flatnonzero(use[stratum]), (np.cumsum(use) - 1)[stratum[use[stratum]]]


def expected_clicks(stratum: Integers, logits: Array, total: Array, x: Array) -> tuple[Array, Array]:
    """Return the clicks that are expected, [n], and x less its mean in the stratum, [n, size].

    Args:
        stratum: number of the stratum, [n].
        logits: log of how clicks fall within it, up to a constant, [n].
        total: clicks of every stratum, [strata].
        x: [n, size].
    """
    count = len(total)
    highest = np.full(count, -np.inf)
    np.maximum.at(highest, stratum, logits)
    weight = np.exp(logits - highest[stratum])
    share = weight / np.bincount(stratum, weight, count)[stratum]
    means = [np.bincount(stratum, share * column, count) for column in x.T]
    centred = x - np.stack(means, axis=1)[stratum] if means else x
    return total[stratum] * share, centred


def _informations(cluster: Integers, expected: Array, centred: Array) -> Array:
    """Return the information of every cluster, [clusters, size, size], without a matrix for every row."""
    size = centred.shape[1]
    found = np.empty((int(cluster.max(initial=-1)) + 1, size, size))
    for i in range(size):
        for j in range(i + 1):
            found[:, i, j] = found[:, j, i] = np.bincount(cluster, expected * centred[:, i] * centred[:, j], len(found))
    return found


def _sums(cluster: Integers, columns: Array) -> Array:
    """Return the sums of columns by cluster, [clusters, columns]."""
    return np.stack([np.bincount(cluster, column) for column in columns.T], axis=1)
