"""Conditional logit of clicks within strata: the estimator of most checks.

Within a stratum t the clicks fall as C_r ∝ n_r exp(o_r + x_r·θ), with n displays and an offset o. Checks use two kinds:

- *moves*: a stratum is a unit, perhaps within a group, and its rows differ in position. What is the curve there?
- *stays*: a stratum is a unit at a position, and its rows differ in who saw it, when, or below what. Is the same result
  at the same place clicked alike?

With s_q the score of query q and I_q its information, ψ_q = (I − .9 I_q)⁻¹ s_q approximates the change of θ̂ without the
query, and V = Σ ψ_q ψ_qᵀ is the variance of θ̂, never below that of independent clicks, I⁻¹. Where viewers are known, V
is in no direction less than Σ ψ_v ψ_vᵀ over viewers. Two estimates from overlapping clicks differ with the variance
Σ (ψ_a − ψ_b)(ψ_a − ψ_b)ᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.cells import Cells
from clickharvest.estimation.sample import Sample
from clickharvest.harvesting.numbering import distinct, numbered

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
    """θ̂ and its uncertainty.

    Attributes:
        theta: θ̂, [size].
        information: I, [size, size].
        influences: ψ by query, and by viewer where viewers are known, [groups, size] each.
        clicks: clicks of the strata that were used.
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
        pairs = zip(self.influences, other.influences, strict=True)
        return self.theta - other.theta, clustered([_difference(psi, other_psi) for psi, other_psi in pairs])

    def first(self, size: int) -> Estimate:
        """Return the first parameters alone."""
        influences = tuple(psi[:, :size] for psi in self.influences)
        return Estimate(self.theta[:size], self.information[:size, :size], influences, self.clicks)


def _difference(influences: Array, other: Array) -> Array:
    """Return the difference of influences; groups that one of them lacks have influence 0 there, [groups, size]."""
    difference = np.zeros((max(len(influences), len(other)), influences.shape[1]))
    difference[: len(influences)] += influences
    difference[: len(other)] -= other
    return difference


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


def cells_of_strata(
    stratum: Integers, weight: Array, clicks: Array, query: Integers | None = None
) -> tuple[Cells, Integers]:
    """Return rows as the cells of clicked strata, and the row that each cell is, [cells].

    Args:
        stratum: number of the stratum, [n].
        weight: displays times exp(o), [n].
        clicks: clicks, [n].
        query: number of the query, [n]; one query without.
    """
    order = np.argsort(stratum, kind="stable")
    cluster = np.zeros(len(order), dtype=np.int64) if query is None else query[order]
    zeros, n_clusters = np.zeros(len(order), dtype=np.int64), int(cluster.max(initial=-1)) + 1
    sample = Sample(
        positions=(1,),
        x=np.zeros((1, 0)),
        unit=numbered(stratum[order])[1],
        context=zeros,
        position=zeros,
        exposure=np.maximum(weight[order], TINY),
        clicks=clicks[order],  # type: ignore[arg-type]  # expected clicks are no whole numbers
        impressions=zeros,
        cluster=cluster,
        n_clusters=n_clusters,
    )
    cells = Cells(sample)
    return cells, order[cells.rows]


def centred(cells: Cells, share: Array, x: Array) -> Array:
    """Return x less its mean in the stratum by shares of clicks, [cells, size]."""
    means = [cells.by_unit(share * column) for column in x.T]
    return x - np.stack(means, axis=1)[cells.unit] if means else x


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
    first, cell_of_row = distinct(cell)
    shown_of_cell, clicks_of_cell = (
        np.bincount(cell_of_row, column, len(first)).astype(np.float64) for column in (shown, clicks)
    )
    shown_of_cell = np.maximum(shown_of_cell, TINY)
    clicks_of_cell *= _differs(stratum[first], x[first])  # other strata tell nothing
    weight = shown_of_cell * np.exp(offset[first])
    cells, chosen = cells_of_strata(stratum[first], weight, clicks_of_cell, query[first])
    x, clicks_of_stratum = x[first[chosen]], cells.clicks_of_unit
    size = x.shape[1]
    theta, prior = np.zeros(size), (ridge + RIDGE) * np.eye(size)

    def evaluate() -> tuple[Array, Array, Array, Array]:
        shares = cells.shares_of(x @ theta)
        slopes, expected = centred(cells, shares.share, x), clicks_of_stratum * shares.share
        return shares.residual, expected, slopes, slopes.T @ (expected[:, None] * slopes) + prior

    for _ in range(STEPS):
        residual, expected, slopes, information = evaluate()
        move = np.linalg.solve(information, residual @ slopes - ridge * theta)
        longest = float(np.abs(move).max(initial=0.0))
        theta = theta + move * min(1.0, FARTHEST / max(longest, TINY))
        if longest < CLOSE:
            break
    residual, expected, slopes, information = evaluate()
    scores = _sums(cells.cluster, residual[:, None] * slopes)
    without = information - LEVERAGE * _informations(cells.cluster, expected, slopes)
    influences: list[Array] = [np.asarray(np.linalg.solve(without, scores[:, :, None])[:, :, 0], dtype=np.float64)]
    if viewer is not None:
        number = np.full(len(first), -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        rows = np.flatnonzero(number[cell_of_row] >= 0)
        of_row = number[cell_of_row[rows]]
        surplus = clicks[rows] - (expected / shown_of_cell[chosen])[of_row] * shown[rows]
        scores = _sums(viewer[rows], surplus[:, None] * slopes[of_row])
        influences.append(np.asarray(np.linalg.solve(information, scores.T).T, dtype=np.float64))
    return Estimate(theta, information, tuple(influences), float(cells.clicks.sum()))


def _differs(stratum: Integers, x: Array) -> NDArray[np.bool_]:
    """Return whether x differs within the stratum of each cell, [cells]."""
    first, number = distinct(stratum)
    differs = np.zeros(len(first), dtype=np.bool_)
    differs[number[(x != x[first[number]]).any(axis=1)]] = True
    return differs[number]


def _informations(cluster: Integers, expected: Array, slopes: Array) -> Array:
    """Return the information of every cluster, [clusters, size, size], without a matrix for every row."""
    size = slopes.shape[1]
    informations = np.empty((int(cluster.max(initial=-1)) + 1, size, size))
    for i in range(size):
        for j in range(i + 1):
            products = expected * slopes[:, i] * slopes[:, j]
            informations[:, i, j] = informations[:, j, i] = np.bincount(cluster, products, len(informations))
    return informations


def _sums(cluster: Integers, columns: Array) -> Array:
    """Return the sums of columns by cluster, [clusters, columns]."""
    return np.stack([np.bincount(cluster, column) for column in columns.T], axis=1)
