"""Curves of single queries: how each deviates from the common one, and what no such curve explains.

Click shares π_{u,k} ∝ e_{u,k} exp(f_k + d_{g,k}): beside a common curve f every group g of units has a deviation of its
own at every position, normal around 0. There are as many as groups and positions, and no matrix of them is ever made: a
product with the information of all, A = Σ_u N_u (diag π_u − π_u π_uᵀ) summed at (g, k), takes one pass over the cells,
and conjugate gradients solve with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from clickharvest.estimation.score_tests import ShareCells

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

STEPS, GAIN = 20, 1e-4
"""Most Newton steps of the deviations, and what a step gains in log likelihood at least."""
PRECISE = 1e-10
"""Share of the squared residual at which conjugate gradients end."""
NOTHING = 1e-12
"""Information on steepness at least, so that what nothing is known of can be divided by it."""


@dataclass(frozen=True)
class OwnCurves:
    """Deviations of groups from a common curve.

    Attributes:
        cells: the cells.
        group: the group of each, numbers from 0.
        at: which of the pairs of group and position each cell is of.
        pairs: how many there are.
        positions: how many a group has at most, which bounds the steps of conjugate gradients.
        spread: standard deviation of deviations: thin groups stay near the common curve, dense ones have their own.

    Example:
        Two documents of one query at two positions, shown alike. Whatever the query's steepness is, it cannot make one
        document fall more than the other: of 3 and 1, their difference is left.

        >>> cells = ShareCells(np.arange(4), np.array([0, 0, 1, 1]), np.zeros(4, int), np.zeros(4), np.ones(4))
        >>> own = OwnCurves(cells, np.zeros(4, int), np.array([0, 1, 0, 1]), pairs=2, positions=2, spread=1.0)
        >>> position = np.array([0.0, 1.0, 0.0, 1.0])
        >>> own.beyond(position * [0, 3, 0, 1], position, np.full(4, 0.5)).round(3).tolist()
        [0.0, 1.0, 0.0, -1.0]
    """

    cells: ShareCells
    group: Integers
    at: Integers
    pairs: int
    positions: int
    spread: float

    def deviations(self, logits: Array) -> Array:
        """Return d where its posterior is largest, [pairs].

        Args:
            logits: log e + f of the cells.
        """
        ridge = self.spread**-2

        def objective(d: Array) -> tuple[float, Array]:
            shares = self.cells.shares(logits + d[self.at])
            return float(xlogy(self.cells.clicks, shares).sum() - ridge * (d @ d) / 2), shares

        d = np.zeros(self.pairs)
        value, shares = objective(d)
        for _ in range(STEPS):
            gradient = self._summed(self.cells.residual(shares)) - ridge * d
            step = self._solve(shares, gradient)
            while (ahead := objective(d + step))[0] < value and gradient @ step > GAIN:
                step = step / 2
            if ahead[0] < value + GAIN:
                break
            d, (value, shares) = d + step, ahead
        return d

    def beyond(self, column: Array, steepness: Array, shares: Array) -> Array:
        """Return a column less what is expected of it where groups have curves of their own.

        Of steepness all is taken, of other deviations as much as `spread` lets expect: the score of what is left does
        not change, to first order, with the steepness of any group, and little with other deviations.

        Args:
            column: a number for each cell.
            steepness: how far down each cell stands.
            shares: π of the cells.
        """
        own = self._less(column, steepness, shares)
        nearest = self._solve(shares, self._summed(self._informed(shares, own)))
        return self._less(own - nearest[self.at], steepness, shares)

    def _less(self, column: Array, steepness: Array, shares: Array) -> Array:
        """Return a column less the steepness of each group that is nearest to it by the information."""
        known = np.bincount(self.group, steepness * self._informed(shares, steepness))
        shared = np.bincount(self.group, steepness * self._informed(shares, column))
        left: Array = column - (shared / np.maximum(known, NOTHING))[self.group] * steepness
        return left

    def _summed(self, values: Array) -> Array:
        return np.bincount(self.at, values, self.pairs).astype(np.float64)

    def _informed(self, shares: Array, column: Array) -> Array:
        """Return N (diag π − π πᵀ) column of every unit, of each cell."""
        mean = np.add.reduceat(shares * column, self.cells.first)[self.cells.unit]
        return self.cells.totals[self.cells.unit] * shares * (column - mean)

    def _solve(self, shares: Array, right: Array) -> Array:
        """Return (A + 1 / spread²)⁻¹ right, by conjugate gradients; groups are apart: few steps serve all."""
        ridge = self.spread**-2
        scale = self._summed(self.cells.totals[self.cells.unit] * shares * (1 - shares)) + ridge
        found, left = np.zeros(self.pairs), right
        along = left / scale
        size = begin = float(left @ along)
        for _ in range(4 * self.positions + 20):
            if size <= PRECISE * begin:
                break
            product = self._summed(self._informed(shares, along[self.at])) + ridge * along
            length = size / float(along @ product)
            found, left = found + length * along, left - length * product
            before, size = size, float(left @ (left / scale))
            along = left / scale + size / before * along
        return found
