"""Gradients of many straight curves side by side, such as bootstrap replicates of `linear` and `constant`.

For log p_k(x) = b_k + W_k·x the logits of all contexts, and the gradient from the slopes by them, are products of
matrices. With replicates as columns, [cells, replicates], one look at a unit serves all of them: half of the time that
they take one by one. Numbers have single precision, and again half: a replicate needs its gradient to a hundredth of a
standard error √N, rounding the residuals of N clicks moves it by about 1e−7 √N.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.cells import Block, Cells
from clickharvest.model.curves import Constant, Curve, Linear

Array = NDArray[np.float64]
Single = NDArray[np.float32]
Integers = NDArray[np.int64]

HALF = np.float32(0.5)
SIDE = 32
"""Problems that stand side by side."""
UNITS = 4_096
"""Units that are evaluated at once: what all problems need of them fits into a processor's cache."""


@dataclass(frozen=True, eq=False)
class _Look:
    """What is needed of some units, all of one size k.

    Attributes:
        contexts: the contexts they stand in.
        cluster: their clusters, [units].
        reads: makes logits of the cells of these contexts' lines; of two cells, half of how they differ.
        spread: sums residuals over the cells of the contexts.
        log_exposure: log exposures, [units, k, 1]; of two cells, half of how they differ, [units, 1].
        clicks: clicks, [units, k, 1]; of two cells, those of the second less half of all, [units, 1].
        total: clicks of the unit, [units, 1]; of two cells, half of them.
    """

    contexts: slice
    cluster: Integers
    reads: csr_array
    spread: csr_array
    log_exposure: Single
    clicks: Single
    total: Single


class BatchedLinearGradients:
    """The slope of the log likelihood by the parameters of straight curves; units are in blocks of one size."""

    def __init__(self, curve: Curve, x: Array, cells: Cells) -> None:
        ones = np.ones((len(x), 1))
        self._rows = np.concatenate([x, ones], axis=1) if isinstance(curve, Linear) else ones
        self._single = self._rows.astype(np.float32)
        self._n_positions, self._anchored = len(curve.positions), curve.positions.index(curve.anchor)
        self._looks = [look for block in cells.blocks for look in self._cut(cells, block)]

    def slopes(self, flat: Array, weights: Array) -> Array:
        """Return the slopes of weighted log likelihoods, [B, n], of parameters [B, n] and weights [B, clusters]."""
        some = [slice(begin, begin + SIDE) for begin in range(0, len(flat), SIDE)]
        return np.concatenate([self._side_by_side(flat[part], weights[part]) for part in some])

    def _side_by_side(self, flat: Array, weights: Array) -> Array:
        size, width = len(flat), self._rows.shape[1]
        lines = np.ascontiguousarray(flat.T, dtype=np.float32).reshape(width, -1)
        by_cluster = np.ascontiguousarray(weights.T, dtype=np.float32)
        slopes = np.zeros(lines.shape)
        for look in self._looks:
            rows = self._single[look.contexts]
            residual = _residuals(look, (rows @ lines).reshape(-1, size))
            residual *= by_cluster.take(look.cluster, axis=0)[:, None]
            slope = look.spread @ residual.reshape(-1, size)
            slopes += rows.T @ slope.reshape(len(rows), -1)
        return slopes.reshape(-1, size).T

    def _cut(self, cells: Cells, block: Block) -> Iterator[_Look]:
        others, pairs = self._n_positions - 1, block.shape[0] == 2
        by_unit = [block.of(values).T for values in (cells.cell, cells.log_exposure, cells.clicks)]
        cluster = cells.cluster_of_unit[block.units]
        for begin in range(0, len(cluster), UNITS):
            some = slice(begin, begin + UNITS)
            cell, exposure, clicks = (values[some] for values in by_unit)
            context, position = np.divmod(cell, self._n_positions)
            first, last = int(context.min()), int(context.max())
            # The anchor's log p is 0: it needs no entry.
            column = (context - first) * others + position - (position > self._anchored)
            there = position != self._anchored
            signs = np.broadcast_to([-1.0, 1.0] if pairs else 1.0, there.shape)[there]
            ends = np.append(0, np.cumsum(there.sum(axis=1) if pairs else there))
            shape = (len(ends) - 1, (last + 1 - first) * others)
            reads, spread = (
                csr_array((factors.astype(np.float32), column[there], ends), shape)
                for factors in (signs / (1 + pairs), signs)
            )
            exposure, clicks = exposure.astype(np.float32), clicks.astype(np.float32)
            total = clicks.sum(axis=1, keepdims=True)
            if pairs:
                exposure, total = (exposure[:, 1:] - exposure[:, :1]) * HALF, total * HALF
                clicks = clicks[:, 1:] - total
            else:
                exposure, clicks = exposure[:, :, None], clicks[:, :, None]
            contexts = slice(first, last + 1)
            yield _Look(contexts, cluster[some], reads, spread.T.tocsr(), exposure, clicks, total)


def _residuals(look: _Look, logits: Single) -> Single:
    """Return clicks less expected clicks, [units, k, B]; of two cells those of the second, [units, 1, B]."""
    z: Single = look.reads @ logits
    if look.clicks.ndim == 2:  # 1 / (1 + e^{−2 z}) = (1 + tanh z) / 2
        z += look.log_exposure
        np.tanh(z, out=z)
        z *= -look.total
        z += look.clicks
        return z[:, None]
    z = z.reshape(len(look.clicks), -1, logits.shape[1])
    z += look.log_exposure
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z *= (-look.total / z.sum(axis=1))[:, None]
    z += look.clicks
    return z


def is_straight(curve: Curve) -> bool:
    """Return whether a curve's parameters are lines, W and b of every position but the anchor, and nothing else."""
    return type(curve) in (Constant, Linear)
