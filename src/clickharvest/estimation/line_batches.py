"""Gradients of many straight curves side by side, such as bootstrap replicates of `linear` and `constant`.

For log p_k(x) = b_k + W_k·x the logits of all contexts, and the gradient from the slopes by them, are products of
matrices. With replicates as columns, [cells, replicates], one look at a unit serves all of them: half of the time that
they take one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.model.curves import Constant, Curve, Linear

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

SIDE = 32
"""Problems that stand side by side."""
UNITS = 2_048
"""Units that are evaluated at once: what all problems need of them fits into a processor's cache."""


@dataclass(frozen=True, eq=False)
class Units:
    """Some units of one size k, by context.

    Attributes:
        cluster: their clusters, [units].
        cell: cells, told by context · K + position, [units, k].
        log_exposure: log exposures, very low where a unit has fewer cells; of two cells, the second less the first.
        clicks: clicks, [units, k].
    """

    cluster: Integers
    cell: Integers
    log_exposure: Array
    clicks: Array


@dataclass(frozen=True, eq=False)
class _Look:
    """What is needed of some units: the contexts they stand in, and which of these contexts' cells they have."""

    contexts: slice
    units: Units
    total: Array
    entries: csr_array
    spread: csr_array


class LineBatches:
    """The slope of the log likelihood by the parameters of straight curves.

    Args:
        curve: one that `is_straight`.
        x: contexts, [m, d].
        units: the units, in parts of one size, each part by context.
    """

    def __init__(self, curve: Curve, x: Array, units: Iterable[Units]) -> None:
        ones = np.ones((len(x), 1))
        self._rows = np.concatenate([x, ones], axis=1) if isinstance(curve, Linear) else ones
        self._n_positions = len(curve.positions)
        self._others = np.flatnonzero(np.array(curve.positions) != curve.anchor)
        self._looks = [look for part in units for look in self._cut(part)]

    def slopes(self, flat: Array, weights: Array) -> Array:
        """Return the slopes of weighted log likelihoods, [B, n], of parameters [B, n] and weights [B, clusters]."""
        some = [slice(begin, begin + SIDE) for begin in range(0, len(flat), SIDE)]
        with ThreadPoolExecutor(min(len(some), os.cpu_count() or 1)) as pool:
            return np.concatenate(list(pool.map(lambda own: self._side_by_side(flat[own], weights[own]), some)))

    def _side_by_side(self, flat: Array, weights: Array) -> Array:
        size, width = len(flat), self._rows.shape[1]
        lines = np.zeros((width, self._n_positions, size))
        lines[:, self._others] = flat.T.reshape(width, len(self._others), size)
        lines = lines.reshape(width, self._n_positions * size)
        weights = np.ascontiguousarray(weights.T)
        found = np.zeros_like(lines)
        for look in self._looks:
            rows = self._rows[look.contexts]
            logits = (rows @ lines).reshape(-1, size)
            residual = _residuals(look, logits)
            residual *= weights.take(look.units.cluster, axis=0)[:, None]
            slope = look.spread @ residual.reshape(-1, size)
            found += rows.T @ slope.reshape(len(rows), -1)
        own = found.reshape(width, self._n_positions, size)[:, self._others]
        return own.reshape(-1, size).T

    def _cut(self, part: Units) -> Iterator[_Look]:
        for begin in range(0, len(part.cell), UNITS):
            some = slice(begin, begin + UNITS)
            units = Units(part.cluster[some], part.cell[some], part.log_exposure[some], part.clicks[some])
            first, last = int(units.cell.min()) // self._n_positions, int(units.cell.max()) // self._n_positions
            cell = np.ascontiguousarray(units.cell - first * self._n_positions)
            n_cells = (last + 1 - first) * self._n_positions
            count, k = cell.shape
            if k == 2:  # only how the second differs from the first
                ends, signs = 2 * np.arange(count + 1), np.tile([-1.0, 1.0], count)
                entries = csr_array((signs, cell.ravel(), ends), shape=(count, n_cells))
            else:
                entries = csr_array((np.ones(cell.size), cell.ravel(), np.arange(cell.size + 1)), (cell.size, n_cells))
            yield _Look(slice(first, last + 1), units, units.clicks.sum(axis=1), entries, entries.T.tocsr())


def _residuals(look: _Look, logits: Array) -> Array:
    """Return clicks less expected clicks, [units, k, B]; of two cells those of the second, [units, 1, B]."""
    units, total = look.units, look.total
    z = look.entries @ logits
    if units.cell.shape[1] == 2:
        z += units.log_exposure[:, 1:]
        z /= 2
        np.tanh(z, out=z)
        z += 1.0
        z *= -total[:, None] / 2
        z += units.clicks[:, 1:]
        return z[:, None]
    z = z.reshape(*units.cell.shape, -1)
    z += units.log_exposure[:, :, None]
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z *= (-total[:, None] / z.sum(axis=1))[:, None]
    z += units.clicks[:, :, None]
    return z


def is_straight(curve: Curve) -> bool:
    """Return whether a curve's parameters are lines, W and b of every position but the anchor, and nothing else."""
    return type(curve) in (Constant, Linear)
