"""Click cells: the (unit, position) pairs of all clicked units, and the click shares of logits there.

What curves that are linear in their parameters (`linear_shares`) and all others (`smooth_shares`) have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NUMBERS = 4_000_000
"""Numbers of rows that are held at once."""


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


class ClickCells:
    """The cells of all clicked units; those of a unit stand together.

    Args:
        sample: the sample.

    Attributes:
        rows: which rows of the sample they are.
        first: the first cell of each unit.
        unit: number of each cell's unit, from 0.
        positions: the K positions.
        n_positions: their number.
        log_position: how far down they are, [K]: their logarithms; of places, less the log of their click rate.
        clicks_of_unit: clicks N of each cell's unit.
        shared: whether clicks of one unit come from several clusters.
    """

    def __init__(self, sample: Sample) -> None:
        total = np.bincount(sample.unit, weights=sample.clicks)
        self.rows = np.flatnonzero((total[sample.unit] > 0) & (sample.exposure > 0))
        _, self.first, self.unit = np.unique(sample.unit[self.rows], return_index=True, return_inverse=True)
        self.cluster, self.n_clusters = sample.cluster[self.rows], sample.n_clusters
        self.positions, self.n_positions = sample.positions, len(sample.positions)
        self.log_position = np.log(sample.positions)
        if sample.places is not None:
            clicks, shown = (np.bincount(sample.position, own) for own in (sample.clicks, sample.impressions))
            self.log_position = -np.log((clicks + 1) / (shown + 1))
        self.log_exposure = np.log(sample.exposure[self.rows])
        self.clicks = sample.clicks[self.rows].astype(np.float64)
        self.position, self.context = sample.position[self.rows], sample.context[self.rows]
        self.clicks_of_unit = np.add.reduceat(self.clicks, self.first)[self.unit]
        self.shared = sample.shared

    def weighted(self, weights: Array) -> Self:
        """Return the same cells with clicks that count by the weight of their query, [queries]."""
        other = copy(self)
        other.clicks = self.clicks * weights[self.cluster]
        other.clicks_of_unit = self.clicks_of_unit * weights[self.cluster]
        return other

    def shares_of(self, log_p: Array) -> Shares:
        """Return log likelihood, shares and residuals where examination is log p up to a term per unit, [cells]."""
        logits = self.log_exposure + log_p
        logits -= np.maximum.reduceat(logits, self.first)[self.unit]
        weight = np.exp(logits)
        total = np.add.reduceat(weight, self.first)[self.unit]
        share = weight / total
        value = float(self.clicks @ (logits - np.log(total)))
        return Shares(value, share, self.clicks - self.clicks_of_unit * share)

    def parts(self, width: int) -> Iterator[Integers]:
        """Yield cells part by part, so that rows of some width can be held; a unit is never torn apart."""
        most, begin = max(1, NUMBERS // max(width, 1)), 0
        while begin < len(self.unit):
            last = self.unit[min(begin + most, len(self.unit)) - 1]
            end = int(np.searchsorted(self.unit, last, side="right"))
            yield np.arange(begin, end)
            begin = end

    def some_queries(self, width: int) -> Iterator[Integers]:
        """Yield the cells of some queries, or what else clusters, at a time, so that rows of some width can be held.

        They are sorted by query and, within, by unit.
        """
        order = np.argsort(self.cluster, kind="stable")
        cluster = self.cluster[order]
        most, begin = max(1, NUMBERS // max(width, 1)), 0
        while begin < len(order):
            end = begin + most
            if end < len(order):  # one query is never torn apart
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

    def by_query(self, at: Shares) -> Array:
        """Return the log likelihood of every query, [queries]."""
        clicked = np.flatnonzero(self.clicks)
        own = self.clicks[clicked] * np.log(at.share[clicked])
        return np.bincount(self.cluster[clicked], own, self.n_clusters).astype(np.float64)
