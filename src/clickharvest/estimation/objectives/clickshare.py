"""ClickShare: among the clicks of one unit, the share that falls on a position is free of the unit's relevance."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.line_batches import LineBatches, Units
from clickharvest.estimation.objectives.base import (
    NUMBERS,
    ClusterSlopes,
    Objective,
    Point,
    runs,
    sums_by_cluster_and_context,
)
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.slopes import softplus
from clickharvest.model.curves import Curve, Params

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NEVER = -1e30
"""Log exposure of cells that are not there: finite, so that 0 clicks times it is 0."""
UNITS = 32_768
"""Units of two cells that are evaluated at once: what fits into a processor's cache is several times faster."""
FEW_CELLS = 200
"""Cells of context and position up to which information is summed for pairs of them, not for rows of derivatives."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Some units of one size; the number of a cell is context · K + position, less `begin`."""

    cluster: Integers
    cell: Integers
    begin: int
    end: int
    log_exposure: Array
    clicks: Array
    total: Array


class ClickShare(Objective):
    """Shares of a unit's clicks over its positions, free of its relevance.

    Σ_u Σ_k C_{u,k} log π_{u,k},   π_{u,k} = e_{u,k} p_k(x_u) / Σ_j e_{u,j} p_j(x_u).

    Where contexts vary inside a unit its cells are (context, position) pairs with logits
    log e + s(x) + log p_k(x); s(x) = s·x absorbs how much a context clicks in general.

    Args:
        sample: the sample; units without a click carry no information and are left out.
    """

    name = "clickshare"

    def __init__(self, sample: Sample) -> None:
        self.varying = sample.unit_kind == "query" and sample.x.shape[1] > 0
        self.columns = int(self.varying)
        self.n_features, self.n_positions = sample.x.shape[1], len(sample.positions)
        self.size = float(sample.clicks.sum())
        self._parts = list(_parts(sample))

    def init(self, random: np.random.Generator) -> Params:
        """Start from contexts that click alike."""
        return {"s": np.zeros((self.n_features, 1))} if self.varying else {}

    def formula(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return s(x), [m, 1]."""
        return x @ params["s"]

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ |s|²."""
        return xp.sum(params["s"] ** 2) / 2 if self.varying else 0.0

    def logits(self, log_p: Array, own: Array | None) -> Array:
        """Return what shares depend on beside exposures, s(x) + log p_k(x), [m, K]."""
        return log_p if own is None else log_p + own

    def among(self, clusters: NDArray[np.bool_], n_contexts: int) -> tuple[Self, NDArray[np.bool_]]:
        """Return the objective of some clusters [q] alone, and the contexts [m] that it is left with."""
        other, size = copy(self), self.n_positions
        chosen = [(part, np.flatnonzero(clusters[part.cluster])) for part in self._parts]
        there = np.zeros(n_contexts, dtype=np.bool_)
        for part, units in chosen:
            there[(part.cell[units] + part.begin) // size] = True
        moved = (np.arange(n_contexts) - np.cumsum(there) + there) * size
        other._parts = [_moved(part, units, moved, size) for part, units in chosen if len(units)]
        return other, there

    def side_by_side(self, curve: Curve, x: Array) -> LineBatches:
        """Return what evaluates many straight curves at once."""
        units = (Units(part.cluster, part.cell + part.begin, part.log_exposure, part.clicks) for part in self._parts)
        return LineBatches(curve, x, units)

    def value_and_slopes(
        self, log_p: Array, own: Array | None, weights: Array, *, valued: bool = True
    ) -> tuple[float, Array, Array | None]:
        """Return the log likelihood of weighted clusters [q], if it is asked for, and its slopes by log p and s(x)."""
        value: Any = 0.0
        flat = np.ascontiguousarray(self.logits(log_p, own)).ravel()
        slope = np.zeros(len(flat))
        for part in self._parts:
            weight = weights.take(part.cluster)
            near, length = flat[part.begin : part.end], part.end - part.begin
            if part.cell.shape[1] == 2:
                # Two positions, one logistic, and the residuals are opposite.
                first, second = part.cell[:, 0], part.cell[:, 1]
                gap = near.take(second) - near.take(first)
                gap += part.log_exposure[:, 1]
                share = np.tanh(gap / 2)
                share += 1.0
                share *= part.total / 2
                residual = part.clicks[:, 1] - share
                residual *= weight
                slope[part.begin : part.end] += np.bincount(second, residual, length)
                slope[part.begin : part.end] -= np.bincount(first, residual, length)
                if valued:
                    value += weight @ (part.clicks[:, 1] * gap - part.total * softplus(gap))
            else:
                z = part.log_exposure + near.take(part.cell)
                z -= z.max(axis=1, keepdims=True)
                share = np.exp(z)
                total = share.sum(axis=1)
                if valued:
                    value += weight @ (np.einsum("uk,uk->u", part.clicks, z) - part.total * np.log(total))
                share *= (part.total / total)[:, None]
                residual = (part.clicks - share) * weight[:, None]
                slope[part.begin : part.end] += np.bincount(part.cell.ravel(), residual.ravel(), length)
        by_log_p = slope.reshape(log_p.shape)
        return float(value), by_log_p, None if own is None else by_log_p.sum(axis=1, keepdims=True)

    def by_cluster(self, log_p: Array, own: Array | None, n_clusters: int) -> Array:
        """Return the log likelihood of every cluster, [q]."""
        logits, by_cluster = self.logits(log_p, own).ravel(), np.zeros(n_clusters)
        for part in self._parts:
            z = part.log_exposure + logits[part.begin : part.end].take(part.cell)
            z -= z.max(axis=1, keepdims=True)
            value = np.einsum("uk,uk->u", part.clicks, z) - part.total * np.log(np.exp(z).sum(axis=1))
            by_cluster += np.bincount(part.cluster, value, n_clusters)
        return by_cluster

    def cluster_slopes(self, log_p: Array, own: Array | None) -> ClusterSlopes:
        """Return the slopes of every cluster's log likelihood, clicks less expected clicks."""
        logits, none = self.logits(log_p, own).ravel(), np.zeros(0, dtype=np.int64)
        cells = [(none, none, np.zeros(0))]
        for part in self._parts:
            cell = part.cell + part.begin
            residual = part.clicks - part.total[:, None] * _shares(part.log_exposure + logits[cell])
            cells.append((np.repeat(part.cluster, cell.shape[1]), cell.ravel(), residual.ravel()))
        cluster, cell, residual = (np.concatenate(column) for column in zip(*cells, strict=True))
        context, position = np.divmod(cell, self.n_positions)
        residuals = (position[:, None], residual, self.n_positions)
        cluster, context, (by_log_p,) = sums_by_cluster_and_context(cluster, context, len(log_p), residuals)
        return ClusterSlopes(cluster, context, by_log_p, None if own is None else by_log_p.sum(axis=1, keepdims=True))

    def information(self, at: Point, weights: Array, *, rough: bool) -> Array:
        """Return H = Σ_u N_u (Σ_k π z zᵀ − z̄ z̄ᵀ) of weighted clusters [q], z the gradients of logits, [n, n]."""
        logits = self.logits(at.log_p, at.own)
        n_cells = logits.size
        few = n_cells <= FEW_CELLS
        total, seen = np.zeros((n_cells, n_cells) if few else (at.size, at.size)), 0.0
        for part, units, cell, share in self._units(logits, at.size, rough):
            clicks = part.total[units] * weights[part.cluster[units]]
            seen += clicks.sum()
            if few:
                total += _information_of_cells(cell, share, clicks, n_cells)
                continue
            rows = self._gradients(at, cell)
            if cell.shape[1] == 2:  # one row is enough: π₁ π₂ (z₂ − z₁) (z₂ − z₁)ᵀ
                rows = rows[:, 1] - rows[:, 0]
                rows *= np.sqrt(share[:, 0] * share[:, 1] * clicks)[:, None]
            else:
                rows -= np.einsum("uk,uki->ui", share, rows)[:, None]
                rows *= np.sqrt(share * clicks[:, None])[:, :, None]
                rows = rows.reshape(-1, at.size)
            total += rows.T @ rows
        if few:
            z = self._context_gradients(at, np.arange(len(logits))).reshape(n_cells, at.size)
            total = z.T @ total @ z
            total = (total + total.T) / 2
        clicks_of_all = sum(part.total @ weights[part.cluster] for part in self._parts)
        return np.asarray(total * (clicks_of_all / max(seen, 1e-300)))

    def _units(self, logits: Array, size: int, rough: bool) -> Iterator[tuple[_Part, Integers, Integers, Array]]:
        """Yield some units at a time: part, which, cells of context and position, and shares, [units, k] both."""
        flat, cells = logits.ravel(), sum(part.cell.size for part in self._parts)
        sparse = 1 + rough * (logits.size * size // NUMBERS)
        every = 1 + rough * (cells * size // sparse // NUMBERS)
        for part in self._parts:
            context = (part.cell[:, 0] + part.begin) // self.n_positions
            chosen = np.flatnonzero(context % sparse == 0)[::every]
            for some in runs(len(chosen), max(1, NUMBERS // (part.cell.shape[1] * size))):
                units = chosen[some]
                cell = part.cell[units] + part.begin
                yield part, units, cell, _shares(part.log_exposure[units] + flat[cell])

    def _gradients(self, at: Point, cell: Integers) -> Array:
        """Return the gradients of the logits of cells [units, k], [units, k, n]."""
        context, position = np.divmod(cell, self.n_positions)
        there = np.zeros(len(at.log_p), dtype=bool)
        there[context] = True
        row = np.cumsum(there) - 1
        gradients: Array = self._context_gradients(at, np.flatnonzero(there))[row[context], position]
        return gradients

    def _context_gradients(self, at: Point, contexts: Integers) -> Array:
        return self.logits(at.log_p_gradients(contexts), at.own_gradients(contexts) if self.varying else None)


def _shares(logits: Array) -> Array:
    share: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    return share


def _information_of_cells(cell: Integers, share: Array, clicks: Array, n_cells: int) -> Array:
    """Return M with Σ_u N_u (Σ_k π z zᵀ − z̄ z̄ᵀ) = Zᵀ M Z, Z the rows z of all cells, [cells, cells].

    Args:
        cell: cells of units, [units, k].
        share: π, [units, k].
        clicks: N, [units].
        n_cells: the number of cells.
    """
    expected = share * clicks[:, None]
    total: Array = np.diag(np.bincount(cell.ravel(), expected.ravel(), n_cells)).astype(np.float64)
    pairs, products = cell[:, :, None] * n_cells + cell[:, None], expected[:, :, None] * share[:, None]
    total -= np.bincount(pairs.ravel(), products.ravel(), n_cells**2).reshape(n_cells, n_cells)
    return total


def _parts(sample: Sample) -> Iterator[_Part]:
    """Yield the units with a click, those of similar size together; neighbours have neighbouring contexts."""
    clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
    _, first, unit, cells = np.unique(sample.unit[clicked], return_index=True, return_inverse=True, return_counts=True)
    slot = np.arange(len(unit)) - first[unit]
    cell_of_row = sample.context[clicked] * len(sample.positions) + sample.position[clicked]
    log_exposure_of_row, clicks_of_row = np.log(sample.exposure[clicked]), sample.clicks[clicked].astype(np.float64)
    cluster_of_unit = sample.cluster[clicked][first]
    bucket = np.ceil(np.log2(cells)).astype(int)
    for size in np.unique(bucket):
        units, rows = np.flatnonzero(bucket == size), np.flatnonzero(bucket[unit] == size)
        at = np.searchsorted(units, unit[rows]), slot[rows]
        shape = (len(units), int(cells[units].max()))
        cell = np.full(shape, -1, dtype=np.int64)
        log_exposure, clicks = np.full(shape, NEVER), np.zeros(shape)
        cell[at], log_exposure[at], clicks[at] = cell_of_row[rows], log_exposure_of_row[rows], clicks_of_row[rows]
        order = np.argsort(cell[:, 0] // len(sample.positions), kind="stable")
        for some in runs(len(units), max(1, UNITS * 2 // shape[1])):
            chosen = order[some]
            yield _part(cluster_of_unit[units[chosen]], cell[chosen], log_exposure[chosen], clicks[chosen])


def _part(cluster: Integers, cell: Integers, log_exposure: Array, clicks: Array) -> _Part:
    """Return a part of cells that are numbered from 0, −1 where a unit has fewer."""
    there = cell >= 0
    begin = int(cell[there].min())
    cell = np.where(there, cell - begin, 0)
    order: Literal["F", "C"] = "C"
    if cell.shape[1] == 2:
        order = "F"
        if there.all():
            log_exposure = log_exposure - log_exposure[:, :1]
    return _Part(
        cluster=cluster,
        cell=np.asarray(cell, order=order),
        begin=begin,
        end=begin + int(cell.max()) + 1,
        log_exposure=np.asarray(log_exposure, order=order),
        clicks=np.asarray(clicks, order=order),
        total=clicks.sum(axis=1),
    )


def _moved(part: _Part, units: Integers, moved: Integers, n_positions: int) -> _Part:
    """Return some units of a part, every cell with a lower number, by how much that of its context is moved."""
    order: Literal["F", "C"] = "F" if part.cell.shape[1] == 2 else "C"
    cell = part.cell.take(units, axis=0) + part.begin
    cell -= moved.take(cell // n_positions)
    begin = int(cell.min())
    cell -= begin
    return _Part(
        cluster=part.cluster.take(units),
        cell=np.asarray(cell, order=order),
        begin=begin,
        end=begin + int(cell.max()) + 1,
        log_exposure=np.asarray(part.log_exposure.take(units, axis=0), order=order),
        clicks=np.asarray(part.clicks.take(units, axis=0), order=order),
        total=part.total.take(units),
    )
