"""The kernel: cells of clicked units, sorted once, and the click shares of any log examination there.

A cell is a unit at a position in a context. The cells of one block are evaluated together: a block fits into a
processor's cache, and holds units of one size, [size, units], or, of large units, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.sample import Sample
from clickharvest.harvesting.numbering import run_starts

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CACHED = 32768
"""Cells of a block: more leave the processor's cache, fewer spend the time between blocks."""
LARGE = 16
"""Cells of a unit from which on units of any size share a block: fewer blocks, each of them slower."""
NUMBERS = 4_000_000
"""Numbers of a design matrix that are in memory at once."""
ROUGH = 2_000_000
"""Numbers of a design matrix that a rough information is computed from."""


@dataclass(frozen=True)
class Shares:
    """The click shares at some parameters.

    Attributes:
        value: the log likelihood Σ C log π.
        share: π of every cell.
        residual: C − N π of every cell.
    """

    value: float
    share: Array
    residual: Array


@dataclass(frozen=True, eq=False)
class Block:
    """Some cells of whole units.

    Attributes:
        cells: the cells.
        units: their units.
        shape: (size, units) where all units have one size, else (cells,).
        starts: where units begin among the cells, if these are of several sizes.
    """

    cells: slice
    units: slice
    shape: tuple[int, ...]
    starts: Integers | None = None

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the block's cells, a view of its shape."""
        return values[self.cells].reshape(self.shape)

    def totals(self, values: Array) -> Array:
        """Return the sum of each unit."""
        return values.sum(axis=0) if self.starts is None else np.add.reduceat(values, self.starts)

    def largest(self, values: Array) -> Array:
        """Return the largest value of each unit."""
        return values.max(axis=0) if self.starts is None else np.maximum.reduceat(values, self.starts)

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of units so that they broadcast over cells."""
        return values if self.starts is None else np.repeat(values, np.diff(self.starts, append=self.shape[0]))


class Cells:
    """The cells of all clicked units.

    Args:
        sample: the sample.

    Attributes:
        positions: the K positions.
        n_positions: their number.
        log_position: how far down they are, [K]: their logarithms; of places, less the log of their click rate.
        n_contexts: number m of contexts.
        n_clusters: number of clusters.
        blocks: the blocks.
        rows: the row of the sample that each cell is, [cells].
        cell: context · K + position, [cells].
        unit: number of the unit, [cells].
        log_exposure: log exposures, [cells].
        clicks: clicks, [cells].
        row_of_unit: the first row of the sample that each unit has, [units].
        cluster_of_unit: the cluster of every unit.
        clicks_per_unit: the clicks N of every unit.
        shared: whether clicks of one unit of the sample come from several clusters.
    """

    def __init__(self, sample: Sample) -> None:
        clicked = np.bincount(sample.unit, sample.clicks) > 0
        rows = np.flatnonzero(clicked[sample.unit] & (sample.exposure > 0))
        first = np.flatnonzero(run_starts([sample.unit[rows]], len(rows)))
        size = np.diff(first, append=len(rows))
        order = np.lexsort((sample.context[rows[first]], np.minimum(size, LARGE)))
        self.blocks: list[Block] = []
        places = list(self._lay_out(first[order], size[order]))
        self.rows = rows[np.concatenate(places)] if places else rows
        n_units = len(first)
        self.unit = np.empty(len(self.rows), dtype=np.int64)
        for block in self.blocks:
            block.of(self.unit)[...] = block.spread(np.arange(block.units.start, block.units.stop))
        self.positions, self.n_positions = sample.positions, len(sample.positions)
        self.log_position = np.log(sample.positions)
        if sample.places is not None:
            clicks, shown = (np.bincount(sample.position, column) for column in (sample.clicks, sample.impressions))
            self.log_position = -np.log((clicks + 1) / (shown + 1))
        self.cell = sample.context[self.rows] * self.n_positions
        self.cell += sample.position[self.rows]
        self.log_exposure = np.log(sample.exposure[self.rows])
        self.clicks = sample.clicks[self.rows].astype(np.float64)
        self.n_contexts, self.n_clusters = len(sample.x), sample.n_clusters
        self.row_of_unit = rows[first[order]]
        self.cluster_of_unit = sample.cluster[self.row_of_unit]
        self.clicks_per_unit = np.bincount(self.unit, self.clicks, n_units).astype(np.float64)
        self.shared = sample.shared

    def _lay_out(self, first: Integers, size: Integers) -> Iterator[Integers]:
        """Yield the cells of block after block by where units begin, and note the blocks."""
        unit = cell = 0
        while unit < len(size):
            k = int(size[unit])
            if k < LARGE:
                end = min(unit + max(1, CACHED // k), int(np.searchsorted(size, k, side="right")))
                of_block = (first[unit:end] + np.arange(k)[:, None]).ravel()
                shape: tuple[int, ...] = (k, end - unit)
                starts = None
            else:
                ends = np.cumsum(size[unit:])
                end = unit + max(1, int(np.searchsorted(ends, CACHED)))
                starts = np.append(0, ends[: end - unit - 1])
                of_block = np.repeat(first[unit:end] - starts, size[unit:end]) + np.arange(ends[end - unit - 1])
                shape = of_block.shape
            self.blocks.append(Block(slice(cell, cell + len(of_block)), slice(unit, end), shape, starts))
            yield of_block
            unit, cell = end, cell + len(of_block)

    @cached_property
    def position(self) -> Integers:
        """Index of the position, [cells]."""
        return self.cell % self.n_positions

    @cached_property
    def context(self) -> Integers:
        """Number of the context, [cells]."""
        return self.cell // self.n_positions

    @cached_property
    def cluster(self) -> Integers:
        """The cluster, [cells]."""
        return self.cluster_of_unit[self.unit]

    @property
    def clicks_of_unit(self) -> Array:
        """The clicks N of the cell's unit, [cells]."""
        return self.clicks_per_unit[self.unit]

    def in_one_context(self) -> Self:
        """Return the same cells in one common context."""
        other = copy(self)
        other.cell, other.n_contexts = self.cell % self.n_positions, 1
        for name in ("position", "context"):
            vars(other).pop(name, None)
        return other

    def among(self, clusters: NDArray[np.bool_]) -> tuple[Self, NDArray[np.bool_]]:
        """Return the cells of some clusters [clusters], their contexts numbered anew, and which contexts these are."""
        other, blocks, chosen, units = copy(self), [], [np.zeros(0, dtype=np.int64)], clusters[self.cluster_of_unit]
        cell = unit = 0
        for block in self.blocks:
            kept, cells = units[block.units], np.arange(block.cells.start, block.cells.stop)
            starts, some = None, cells.reshape(block.shape)[..., block.spread(kept)].ravel()
            shape: tuple[int, ...] = some.shape
            if block.starts is None:
                shape = (block.shape[0], int(np.count_nonzero(kept)))
            else:
                size = np.diff(block.starts, append=block.shape[0])[kept]
                starts = np.cumsum(size) - size
            if len(some):
                n_units = int(np.count_nonzero(kept))
                blocks.append(Block(slice(cell, cell + len(some)), slice(unit, unit + n_units), shape, starts))
                chosen.append(some)
                cell, unit = cell + len(some), unit + n_units
        kept_cells = np.concatenate(chosen)
        for name in ("rows", "cell", "log_exposure", "clicks"):
            setattr(other, name, getattr(self, name)[kept_cells])
        for name in ("row_of_unit", "cluster_of_unit", "clicks_per_unit"):
            setattr(other, name, getattr(self, name)[units])
        other.blocks, other.unit = blocks, (np.cumsum(units) - 1)[self.unit[kept_cells]]
        there = np.zeros(self.n_contexts, dtype=np.bool_)
        there[other.cell // self.n_positions] = True
        moved = (np.arange(self.n_contexts) - np.cumsum(there) + 1) * self.n_positions
        other.cell = other.cell - moved[other.cell // self.n_positions]
        other.n_contexts = int(np.count_nonzero(there))
        for name in ("position", "context", "cluster"):
            vars(other).pop(name, None)
        return other, there

    def weighted(self, weights: Array) -> Self:
        """Return the same cells with clicks that count by the weight of their cluster, [clusters]."""
        other, of_unit = copy(self), weights[self.cluster_of_unit]
        other.clicks = self.clicks * of_unit[self.unit]
        other.clicks_per_unit = self.clicks_per_unit * of_unit
        return other

    def shares_of(self, log_p: Array) -> Shares:
        """Return log likelihood, shares and residuals of log examination up to a term per unit, [cells] or [m, K]."""
        value, share = 0.0, np.empty(len(self.cell))
        for block, logits, exponential, total in self._softmax(log_p):
            value += float(np.vdot(block.of(self.clicks), logits) - self.clicks_per_unit[block.units] @ np.log(total))
            np.divide(exponential, block.spread(total), out=block.of(share))
        residual = self.clicks_of_unit
        residual *= -share
        residual += self.clicks
        return Shares(value, share, residual)

    def _softmax(self, log_p: Array) -> Iterator[tuple[Block, Array, Array, Array]]:
        """Yield blocks with their logits, largest 0, their exponentials, and the sums of these by unit."""
        table = log_p.ravel() if log_p.ndim == 2 else None
        for block in self.blocks:
            logits = block.of(self.log_exposure) + (
                block.of(log_p) if table is None else table.take(block.of(self.cell))
            )
            logits -= block.spread(block.largest(logits))
            exponential = np.exp(logits)
            yield block, logits, exponential, block.totals(exponential)

    def value_and_slopes(self, log_p: Array, weights: Array, *, valued: bool = True) -> tuple[float, Array]:
        """Return the log likelihood of weighted clusters [clusters], if `valued`, and its slopes by log p, [m, K]."""
        value, slopes, of_unit = 0.0, np.zeros(self.n_contexts * self.n_positions), weights[self.cluster_of_unit]
        for block, logits, exponential, total in self._softmax(log_p):
            clicks, weight, n = block.of(self.clicks), of_unit[block.units], self.clicks_per_unit[block.units]
            if valued:
                value += float(weight @ (block.totals(clicks * logits) - n * np.log(total)))
            exponential *= block.spread(-n / total)
            exponential += clicks
            exponential *= block.spread(weight)
            cell = self.cell[block.cells]
            lowest, highest = int(cell.min()), int(cell.max())
            slopes[lowest : highest + 1] += np.bincount(cell - lowest, exponential.ravel())
        return value, slopes.reshape(self.n_contexts, self.n_positions)

    def by_query(self, log_p: Array) -> Array:
        """Return the log likelihood of every cluster, [clusters], at a log examination, [cells] or [m, K]."""
        likelihood = np.zeros(self.n_clusters)
        for block, logits, _, total in self._softmax(log_p):
            clicks, n = block.of(self.clicks), self.clicks_per_unit[block.units]
            of_units = block.totals(clicks * logits) - n * np.log(total)
            likelihood += np.bincount(self.cluster_of_unit[block.units], of_units, self.n_clusters)
        return likelihood

    def by_unit(self, values: Array) -> Array:
        """Return the sum of the cells of every unit, [units]."""
        return np.bincount(self.unit, values, len(self.clicks_per_unit)).astype(np.float64)

    def expected_information(
        self,
        shares: Shares,
        size: int,
        gradients: Callable[[Integers], Array],
        weights: Array | None = None,
        *,
        rough: bool = False,
    ) -> Array:
        """Return H = Σ_u N_u (Σ_k π z zᵀ − z̄ z̄ᵀ), z the gradients of log examination, [size, size].

        Args:
            shares: the shares there.
            size: number of parameters.
            gradients: returns the gradients in some contexts, [contexts, K, size].
            weights: weights of the clusters; all count alike without.
            rough: whether some of the contexts and units are enough, where there are many.
        """
        clicks = self.clicks_per_unit if weights is None else self.clicks_per_unit * weights[self.cluster_of_unit]
        every = 1 + rough * (self.n_contexts * self.n_positions * size // ROUGH)
        thinned = 1 + rough * (len(self.cell) * size // every // ROUGH)
        total, seen = np.zeros((size, size)), 0.0
        for cells in self.parts(size):
            if rough:
                unit, first = np.unique(self.unit[cells], return_index=True)
                drawn = np.zeros(len(self.clicks_per_unit), dtype=np.bool_)
                drawn[unit[self.cell[cells[first]] // self.n_positions % every == 0][::thinned]] = True
                cells = cells[drawn[self.unit[cells]]]
            units, unit = np.unique(self.unit[cells], return_inverse=True)
            places, place = np.unique(self.cell[cells], return_inverse=True)
            contexts, row = np.unique(places // self.n_positions, return_inverse=True)
            z = gradients(contexts)[row, places % self.n_positions]
            share, n = shares.share[cells], clicks[units]
            of_units = csr_array((share * np.sqrt(n)[unit], (unit, place)), shape=(len(units), len(places)))
            mean = of_units.T @ (of_units @ z) if len(cells) > LARGE * len(units) else (of_units.T @ of_units) @ z
            total += z.T @ (z * np.bincount(place, share * n[unit], len(places))[:, None] - mean)
            seen += n.sum()
        return np.asarray((total + total.T) / 2 * (clicks.sum() / max(seen, 1e-300)))

    def parts(self, width: int) -> Iterator[Integers]:
        """Yield the cells of some units at a time, unit by unit, so that a design of some width fits into memory."""
        most = max(1, NUMBERS // max(width, 1))
        for block in self.blocks:
            cells = np.arange(block.cells.start, block.cells.stop)
            if block.starts is None:
                by_unit, step = cells.reshape(block.shape).T, max(1, most // block.shape[0])
                for begin in range(0, len(by_unit), step):
                    yield by_unit[begin : begin + step].ravel()
            elif len(cells) <= most:
                yield cells
            else:
                yield from np.split(cells, block.starts[1:])

    def share_matrices(self, share: Array) -> Iterator[tuple[csr_array, slice]]:
        """Yield the shares of some units at a time as sparse rows, [units, K], and which units they are."""
        for block in self.blocks:
            shares, positions = block.of(share), block.of(self.position)
            n_units = block.units.stop - block.units.start
            if block.starts is None:
                ends, shares, positions = np.arange(n_units + 1) * block.shape[0], shares.T, positions.T
            else:
                ends = np.append(block.starts, block.shape[0])
            rows = (shares.ravel(), positions.ravel(), ends)
            yield csr_array(rows, shape=(n_units, self.n_positions)), block.units

    def some_queries(self, width: int) -> Iterator[Integers]:
        """Yield the cells of some clusters at a time, by cluster and unit, for a design matrix of some width."""
        order = np.lexsort((self.unit, self.cluster))
        cluster = self.cluster[order]
        most, begin = max(1, NUMBERS // max(width, 1)), 0
        while begin < len(order):
            end = begin + most
            if end < len(order):  # one cluster is never torn apart
                end = int(np.searchsorted(cluster, cluster[end]))
                if end <= begin:
                    end = int(np.searchsorted(cluster, cluster[begin], side="right"))
            yield order[begin:end]
            begin = end

    def centred(self, design: Any, share: Array, cells: Integers) -> Array:
        """Return rows z − z̄ of the cells of whole units, z̄ the mean of a unit by its shares, [cells, size]."""
        _, unit = np.unique(self.unit[cells], return_inverse=True)
        column = np.arange(len(cells))
        mean = csr_array((share[cells], (unit, column)), shape=(int(unit.max()) + 1, len(cells))) @ design
        centred = design - mean[unit]
        return centred if isinstance(centred, np.ndarray) else np.asarray(centred.toarray())


def cells_of(sample: Sample) -> Cells:
    """Return the cells of a sample, which are laid out once."""
    if "cells" not in sample.derived:
        sample.derived["cells"] = Cells(sample)
    cells: Cells = sample.derived["cells"]
    return cells
