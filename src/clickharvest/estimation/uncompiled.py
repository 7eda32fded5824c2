"""ClickShare of a curve in NumPy: values, gradients and information without compiling anything.

A program for one curve takes longer to compile than a log of a hundred thousand rows takes to fit, so that this is what
processors use; `compiled` is for other objectives, and for large logs on a GPU.

The log likelihood depends on the parameters through the logits z_k(x) = log p_k(x) (+ s(x) where contexts vary inside
units) of the distinct contexts alone. Units give its slope by these, Σ (C − N π), and the curve's own program pulls
that back to the parameters (`slopes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.line_batches import LineBatches, Units, is_straight
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.slopes import Slopes, softplus
from clickharvest.model.curves import Curve, flatten_params, unflatten_params

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

UNITS = 32_768
"""Units that are evaluated at once: what fits into a processor's cache is several times faster."""
CONTEXTS = 8_192
"""Contexts that are evaluated at once, likewise."""
NUMBERS = 2_000_000
"""Numbers of derivatives that are held at once, and that a rough information rests on."""


FEW_CELLS = 200
"""Cells of context and position up to which information is summed for pairs of them, not for rows of derivatives."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Some units of one size; cells are told by context · K + position, less `begin`."""

    cluster: Integers
    cell: Integers
    begin: int
    end: int
    log_exposure: Array
    clicks: Array
    total: Array


class Uncompiled:
    """The penalised loss of batches of problems, in NumPy.

    Args:
        curve: the curve.
        objective: ClickShare, prepared on a sample.
        x: the sample's contexts, [m, d].
        n_clusters: its clusters.
        ridge: what the squares of the parameters are penalised by, [n], see `ridge_of`.

    Raises:
        InputError: the curve cannot be traced.
    """

    def __init__(self, curve: Curve, objective: ClickShare, x: Array, n_clusters: int, ridge: Array) -> None:
        self._slopes = Slopes(curve)
        self.n_clusters = n_clusters
        self._look_at(x)
        self.n_positions = len(curve.positions)
        self.varying = objective.varying
        self.scale = max(objective.size, 1.0)
        self.ridge = np.concatenate([ridge, np.ones(x.shape[1])]) if self.varying else ridge
        self.size = len(self.ridge)
        self._parts = list(_cut(objective.data, self.n_positions))
        self._curve = curve

    def among(self, clusters: NDArray[np.bool_]) -> Uncompiled:
        """Return the same for weights that are 0 outside some clusters [q]: their units and contexts are left out."""
        other = copy(self)
        other.__dict__.pop("_lines", None)
        own = [(part, np.flatnonzero(clusters[part.cluster])) for part in self._parts]
        there = np.zeros(len(self.x), dtype=np.bool_)
        for part, units in own:
            there[(part.cell[units] + part.begin) // self.n_positions] = True
        moved = (np.arange(len(self.x)) - np.cumsum(there) + there) * self.n_positions
        other._look_at(self.x[there])
        other._parts = [_moved(part, units, moved, self.n_positions) for part, units in own if len(units)]
        return other

    def _look_at(self, x: Array) -> None:
        self.x = x
        self._runs = [(some, np.asfortranarray(x[some])) for some in _runs(len(x), CONTEXTS)]

    def value_and_grad(self, flat: Array, weights: Array, penalty: Array) -> tuple[Array, Array]:
        """Return losses [B] and gradients [B, n] of parameters [B, n], weights of clusters [B, q] and penalties [B]."""
        return self._batch(flat, weights, penalty, valued=True)

    def grad(self, flat: Array, weights: Array, penalty: Array) -> Array:
        """Return the gradients alone, [B, n], which are had for less."""
        if len(flat) > 1 and self._lines is not None:
            return (penalty[:, None] * (self.ridge * flat) - self._lines.slopes(flat, weights)) / self.scale
        return self._batch(flat, weights, penalty, valued=False)[1]

    @cached_property
    def _lines(self) -> LineBatches | None:
        """What evaluates many problems at once; None where the curve bends, or contexts vary inside units."""
        if self.varying or not is_straight(self._curve):
            return None
        units = (Units(part.cluster, part.cell + part.begin, part.log_exposure, part.clicks) for part in self._parts)
        return LineBatches(self._curve, self.x, units)

    def _batch(self, flat: Array, weights: Array, penalty: Array, *, valued: bool) -> tuple[Array, Array]:
        problems = zip(flat, weights, penalty.tolist(), strict=True)
        found = [self._value_and_grad(*problem, valued) for problem in problems]
        return np.array([value for value, _ in found]), np.array([grad for _, grad in found])

    def by_query(self, flat: Array) -> Array:
        """Return the log likelihood of every cluster at each of some parameter vectors, [B, n] → [B, q]."""
        return np.array([self._by_query(one) for one in flat])

    def logits(self, flat: Array) -> Array:
        """Return log p_k(x) of the contexts, with s(x) where ClickShare has it, [m, K]."""
        logits = np.empty((len(self.x), self.n_positions))
        for some, x in self._runs:
            logits[some] = self._slopes.run(flat[: self._slopes.size], x)[-1]
        if self.varying:
            logits += (self.x @ flat[self._slopes.size :])[:, None]
        return logits

    def gradients(self, flat: Array, contexts: Integers) -> Array:
        """Return the gradients of the logits of some contexts, [contexts, K, n]."""
        found = np.zeros((len(contexts), self.n_positions, self.size))
        for some in _runs(len(contexts), max(1, NUMBERS // (self.n_positions * self.size))):
            rows = self.x[contexts[some]]
            found[some, :, : self._slopes.size] = self._slopes.push(self._slopes.run(flat[: self._slopes.size], rows))
        if self.varying:
            found[:, :, self._slopes.size :] = self.x[contexts][:, None]
        return found

    def information(self, flat: Array, weights: Array | None = None, *, rough: bool = True) -> Array:
        """Return H = Σ_u N_u (Σ_k π z zᵀ − z̄ z̄ᵀ), [n, n].

        Args:
            flat: the parameters, [n].
            weights: weights of the clusters; all count alike without.
            rough: whether some of the contexts and units are enough, where there are many.
        """
        n_cells = len(self.x) * self.n_positions
        few = n_cells <= FEW_CELLS
        whole, seen = np.zeros((n_cells, n_cells) if few else (self.size, self.size)), 0.0
        for part, own, cell, share in self._units(flat, rough=rough):
            clicks = part.total[own] if weights is None else part.total[own] * weights[part.cluster[own]]
            seen += clicks.sum()
            if few:
                whole += _information_of_cells(cell, share, clicks, n_cells)
                continue
            rows = self._slopes_of(flat, cell)
            if cell.shape[1] == 2:  # one row is enough: π₁ π₂ (z₂ − z₁) (z₂ − z₁)ᵀ
                rows = rows[:, 1] - rows[:, 0]
                rows *= np.sqrt(share[:, 0] * share[:, 1] * clicks)[:, None]
            else:
                rows -= np.einsum("uk,uki->ui", share, rows)[:, None]
                rows *= np.sqrt(share * clicks[:, None])[:, :, None]
                rows = rows.reshape(-1, self.size)
            whole += rows.T @ rows
        if few:
            z = self.gradients(flat, np.arange(len(self.x))).reshape(n_cells, self.size)
            whole = z.T @ whole @ z
            whole = (whole + whole.T) / 2
        clicks_of_all = sum(
            part.total.sum() if weights is None else part.total @ weights[part.cluster] for part in self._parts
        )
        return whole * (clicks_of_all / max(seen, 1e-300))

    def scores(self, flat: Array) -> Array:
        """Return the gradient of each cluster's log likelihood at a parameter vector, [q, n]."""
        found = np.zeros((self.n_clusters, self.size))
        for part, own, cell, share in self._units(flat, rough=False):
            residual = part.clicks[own] - part.total[own, None] * share
            if self._lines is not None:
                cluster, of_units = self._lines.scores(part.cluster[own], cell, residual)
            else:
                cluster, of_units = part.cluster[own], np.einsum("uk,uki->ui", residual, self._slopes_of(flat, cell))
            order = np.argsort(cluster, kind="stable")
            starts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
            found[cluster[order][starts]] += np.add.reduceat(of_units[order], starts)
        return found

    def _units(self, flat: Array, *, rough: bool) -> Iterator[tuple[_Part, Integers, Integers, Array]]:
        """Yield some units at a time: part, which, cells of context and position, and shares, [units, k] both."""
        logits, cells = self.logits(flat).ravel(), sum(part.cell.size for part in self._parts)
        sparse = 1 + rough * (len(self.x) * self.n_positions * self.size // NUMBERS)
        every = 1 + rough * (cells * self.size // sparse // NUMBERS)
        for part in self._parts:
            context = (part.cell[:, 0] + part.begin) // self.n_positions
            chosen = np.flatnonzero(context % sparse == 0)[::every]
            for some in _runs(len(chosen), max(1, NUMBERS // (part.cell.shape[1] * self.size))):
                own = chosen[some]
                cell = part.cell[own] + part.begin
                z = part.log_exposure[own] + logits[cell]
                share = np.exp(z - z.max(axis=1, keepdims=True))
                share /= share.sum(axis=1, keepdims=True)
                yield part, own, cell, share

    def _slopes_of(self, flat: Array, cell: Integers) -> Array:
        """Return the rows z of cells [units, k], [units, k, n]."""
        context, position = np.divmod(cell, self.n_positions)
        there = np.zeros(len(self.x), dtype=bool)
        there[context] = True
        at = np.cumsum(there) - 1
        rows: Array = self.gradients(flat, np.flatnonzero(there))[at[context], position]
        return rows

    def penalty_curvature(self, flat: Array) -> Array:
        """Return the matrix of second derivatives of the penalty, [n, n]."""
        return np.diag(self.ridge)

    def _value_and_grad(self, flat: Array, weights: Array, penalty: float, valued: bool) -> tuple[float, Array]:
        steps = [self._slopes.run(flat[: self._slopes.size], x) for _, x in self._runs]
        logits = np.concatenate([np.ascontiguousarray(values[-1]) for values in steps])
        if self.varying:
            logits = logits + (self.x @ flat[self._slopes.size :])[:, None]
        value, slope = self._shares(logits, weights, valued)
        own = np.zeros(self._slopes.size)
        for values, (some, _) in zip(steps, self._runs, strict=True):
            own += self._slopes.pull(values, np.asfortranarray(slope[some]))
        if self.varying:
            own = np.concatenate([own, self.x.T @ slope.sum(axis=1)])
        tamed = self.ridge * flat
        return (penalty * float(flat @ tamed) / 2 - value) / self.scale, (penalty * tamed - own) / self.scale

    def _shares(self, logits: Array, weights: Array, valued: bool) -> tuple[float, Array]:
        """Return the log likelihood of logits [m, K], if it is asked for, and its slope by them."""
        value: Any = 0.0
        flat = logits.ravel()
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
        return float(value), slope.reshape(logits.shape)

    def _by_query(self, flat: Array) -> Array:
        logits, found = self.logits(flat).ravel(), np.zeros(self.n_clusters)
        for part in self._parts:
            z = part.log_exposure + logits[part.begin : part.end].take(part.cell)
            z -= z.max(axis=1, keepdims=True)
            own = np.einsum("uk,uk->u", part.clicks, z) - part.total * np.log(np.exp(z).sum(axis=1))
            found += np.bincount(part.cluster, own, self.n_clusters)
        return found


def _information_of_cells(cell: Integers, share: Array, clicks: Array, n_cells: int) -> Array:
    """Return M with Σ_u N_u (Σ_k π z zᵀ − z̄ z̄ᵀ) = Zᵀ M Z, Z the rows z of all cells, [cells, cells].

    Args:
        cell: cells of units, [units, k].
        share: π, [units, k].
        clicks: N, [units].
        n_cells: the number of cells.
    """
    expected = share * clicks[:, None]
    whole: Array = np.diag(np.bincount(cell.ravel(), expected.ravel(), n_cells)).astype(np.float64)
    pairs, products = cell[:, :, None] * n_cells + cell[:, None], expected[:, :, None] * share[:, None]
    whole -= np.bincount(pairs.ravel(), products.ravel(), n_cells**2).reshape(n_cells, n_cells)
    return whole


def ridge_of(curve: Curve) -> Array | None:
    """Return d where a curve's penalty is ½ Σ d_i θ_i², [n]; None where it is something else.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> ridge_of(make_curve("power", (1, 2), anchor=1, n_features=2)).tolist()
        [0.0, 1.0, 1.0]
    """
    like = curve.init(np.random.default_rng(0))
    size = len(flatten_params(like))

    def penalty(flat: Array) -> float:
        return float(curve.penalty(unflatten_params(flat, like), np))

    ridge = np.array([2 * penalty(unit) for unit in np.eye(size)])
    random = np.random.default_rng(0)
    tried = [random.normal(size=size) * far for far in (0.1, 1.0, 10.0)]
    fits = all(np.isclose(penalty(flat), ridge @ flat**2 / 2, rtol=1e-9, atol=1e-300) for flat in tried)
    return ridge if fits and (ridge >= 0).all() else None


def _cut(blocks: list[dict[str, Any]], n_positions: int) -> Iterator[_Part]:
    """Yield the units of an objective's data part by part; neighbours have neighbouring contexts."""
    for block in blocks:
        cells = np.asarray(block["context"], dtype=np.int64) * n_positions + block["position"]
        for some in _runs(len(cells), max(1, UNITS * 2 // cells.shape[1])):
            own = cells[some]
            there = np.asarray(block["log_exposure"][some]) > -1e29
            begin = int(own[there].min(initial=len(cells) * n_positions))
            own = np.where(there, own - begin, 0)
            exposure = np.array(block["log_exposure"][some], dtype=np.float64)
            if exposure.shape[1] == 2 and there.all():
                exposure -= exposure[:, :1]
            clicks = np.asarray(block["clicks"][some], dtype=np.float64)
            yield _Part(
                cluster=np.asarray(block["cluster"][some]),
                cell=np.asfortranarray(own) if own.shape[1] == 2 else own,
                begin=begin,
                end=begin + int(own.max(initial=0)) + 1,
                log_exposure=np.asfortranarray(exposure) if own.shape[1] == 2 else exposure,
                clicks=np.asfortranarray(clicks) if own.shape[1] == 2 else clicks,
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


def _runs(length: int, size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))
