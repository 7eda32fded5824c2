"""Which contexts a sample speaks of, and on how many queries its positions rest.

Values of contexts are supported by queries, or by what else clusters: users of a home page are many, and its query one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from clickharvest.estimation.sample import Sample, linked_by
from clickharvest.harvesting.numbering import run_starts
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Curve, Params
from clickharvest.model.support import ENOUGH, FEW, ColumnSupport, Support, used_values

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NUMBERS = 200_000
"""Numbers (units × positions) that are worked on at once: what fits into a processor's cache."""


def find_support(sample: Sample, curve: Curve, params: Params, encoder: ContextEncoder | None) -> Support:
    """Return what a sample speaks of.

    Args:
        sample: the sample that was fitted to.
        curve: the curve that was fitted.
        params: its parameters, of which click shares are made to weigh queries by.
        encoder: the encoder of the sample's contexts; None without.
    """
    log_p = curve.relative(params, sample.x)
    clicked = np.bincount(sample.unit, sample.clicks) > 0
    sample = sample if clicked.all() else sample.take(clicked[sample.unit])
    shares = _Shares.of(sample, log_p)
    queries = shares.effective_queries(sample.positions, curve.anchor)
    if sample.division is not None:
        sample = replace(sample, division=None)
        shares = _Shares.of(sample, log_p)
    # Rows of a cluster stand together and mostly share their context: one look at each run of them is enough.
    runs = np.flatnonzero(run_starts([sample.cluster, sample.context], len(sample.unit)))
    lengths = np.diff(runs, append=len(sample.unit))
    cluster, x = sample.cluster[runs], sample.x[sample.context[runs]]
    columns = []
    begin = 0
    for part in () if encoder is None else encoder.parts:
        block = x[:, begin : begin + len(part.features)]
        begin += len(part.features)
        values, unknown = used_values(part, block)
        # What all rows have is supported where positions are.
        linked = [
            sample.positions if has.all() else _enough(sample, np.repeat(has, lengths), curve.anchor, log_p, shares)
            for has in values.T
        ]
        reach = None
        if part.kind == "numeric":
            told = values[:, 0]
            reach = _reach(part.mean + part.sd * block[told, 0], cluster[told])
        columns.append(ColumnSupport(tuple(linked), bool(unknown.any()), reach))
    apart = () if encoder is None else _never_together(encoder, sample.x[np.unique(sample.context)])
    return Support(tuple(columns), queries, apart)


def effective_queries(sample: Sample, anchor: int, log_p: Array) -> tuple[float | None, ...]:
    """Return how many queries of equal say log p_k / p_anchor rests on, position by position; None for the anchor.

    With H = Σ_u N_u (diag π_u − π_u π_uᵀ) the information of the click shares π and a_k column k of H⁻¹, query g has
    the part Σ_{u of g} N_u Var_π(a_k) in the variance of log p_k, which is (H⁻¹)_kk. With s_g its share, the effective
    queries are 1 / Σ_g s_g². A position that hundreds of queries link to another one, which a single query links to the
    anchor, rests on about one.

    Args:
        sample: the sample, n rows, m contexts, K positions.
        anchor: the position others are relative to.
        log_p: log p_k(x) of its contexts, [m, K].
    """
    return _Shares.of(sample, log_p).effective_queries(sample.positions, anchor)


@dataclass(frozen=True)
class _Shares:
    """Click shares of units.

    Attributes:
        share: π_{u,k}, unit after unit, [n].
        position: index of the position, [n].
        ends: where units begin, and the end of the last, [units + 1].
        clicks: clicks of units, [units].
        query: queries of units, [units].
    """

    share: Array
    position: NDArray[np.int64]
    ends: NDArray[np.int64]
    clicks: Array
    query: NDArray[np.int64]

    @classmethod
    def of(cls, sample: Sample, log_p: Array) -> _Shares:
        """Return the click shares of a sample's units, where contexts have log p_k(x), [m, K]."""
        begins = np.flatnonzero(run_starts([sample.unit], len(sample.unit)))
        share = np.log(sample.exposure)
        share += log_p[sample.context, sample.position]
        share -= np.maximum.reduceat(share, begins)[sample.unit]
        np.exp(share, out=share)
        share /= np.bincount(sample.unit, share)[sample.unit]
        ends = np.append(begins, len(share))
        clicks = np.bincount(sample.unit, sample.clicks).astype(np.float64)
        return cls(share, sample.position, ends, clicks, sample.query[begins])

    def take(self, units: NDArray[np.intp]) -> _Shares:
        """Return the shares of some units."""
        sizes = np.diff(self.ends)[units]
        ends = np.append(0, np.cumsum(sizes))
        rows = np.repeat(self.ends[units] - ends[:-1], sizes)
        rows += np.arange(len(rows))
        return _Shares(self.share[rows], self.position[rows], ends, self.clicks[units], self.query[units])

    def effective_queries(self, positions: tuple[int, ...], anchor: int) -> tuple[float | None, ...]:
        """Return what `effective_queries` says of these units, which have shares of the positions."""
        if np.any(self.query[1:] < self.query[:-1]):
            return self.take(np.argsort(self.query, kind="stable")).effective_queries(positions, anchor)
        n_positions = len(positions)
        information = np.zeros((n_positions, n_positions))
        for own, clicks, _ in self._chunks(n_positions):
            weighted = own.toarray()
            weighted *= clicks[:, None]
            information += np.diag(weighted.sum(axis=0)) - own.T @ weighted
        others = np.flatnonzero(np.array(positions) != anchor)
        moves = np.zeros((n_positions, n_positions))
        moves[np.ix_(others, others)] = np.linalg.pinv(information[np.ix_(others, others)], hermitian=True)
        total, squares, last = np.zeros((3, n_positions))
        before = -1
        for own, clicks, query in self._chunks(n_positions):
            variance, mean = own @ moves**2, own @ moves
            mean *= mean
            variance -= mean
            np.maximum(variance, 0.0, out=variance)
            runs = np.flatnonzero(run_starts([query], len(query)))
            ends = np.append(runs, len(query))
            parts = csr_array((clicks, np.arange(len(query)), ends), shape=(len(runs), len(query))) @ variance
            if query[0] == before:
                parts[0] += last
            else:
                total += last
                squares += last**2
            before, last = query[-1], parts[-1].copy()
            total += parts[:-1].sum(axis=0)
            squares += (parts[:-1] ** 2).sum(axis=0)
        total += last
        squares += last**2
        found: list[float | None] = (total**2 / np.maximum(squares, np.finfo(float).tiny)).tolist()
        found[positions.index(anchor)] = None
        return tuple(found)

    def _chunks(self, n_positions: int) -> Iterator[tuple[csr_array, Array, NDArray[np.int64]]]:
        """Yield shares [units, K], clicks and queries of so many units as are worked on at once."""
        size = max(1, NUMBERS // n_positions)
        for begin in range(0, len(self.clicks), size):
            units = slice(begin, begin + size)
            ends = self.ends[begin : begin + size + 1]
            rows = slice(ends[0], ends[-1])
            own = (self.share[rows], self.position[rows], ends - ends[0])
            yield csr_array(own, shape=(len(ends) - 1, n_positions)), self.clicks[units], self.query[units]


def _enough(sample: Sample, rows: Mask, anchor: int, log_p: Array, shares: _Shares) -> tuple[int, ...]:
    """Return the positions that rows with some value link to the anchor, by `ENOUGH` effective queries or more."""
    if not rows.any():
        return ()
    linked = linked_by(sample, anchor, rows)
    if sample.unit_kind == "context" and len(linked) == len(sample.positions):  # units as they are, but fewer
        found = shares.take(np.flatnonzero(rows[shares.ends[:-1]])).effective_queries(sample.positions, anchor)
    else:
        there = np.isin(np.array(sample.positions), linked)[sample.position]
        found = effective_queries(sample.take(rows & there), anchor, log_p)
    told = dict(zip(sample.positions, found, strict=True))
    return tuple(k for k in linked if (queries := told[k]) is None or round(queries) >= ENOUGH)


def _never_together(encoder: ContextEncoder, x: Array) -> tuple[tuple[int, int, int, int], ...]:
    """Return the values of two columns that contexts x, [m, d], have, but never together, as `Support.apart` does."""
    values: list[Any] = []
    column: list[int] = []
    number: list[int] = []
    begin = 0
    for i, part in enumerate(encoder.parts):
        own, _ = used_values(part, x[:, begin : begin + len(part.features)])
        begin += len(part.features)
        values.append(csr_array(own, dtype=np.float64))
        column += [i] * own.shape[1]
        number += range(own.shape[1])
    every = csr_array(hstack(values))
    together = (every.T @ every).toarray() > 0
    had, of = together.diagonal(), np.array(column)
    apart = ~together & had & had[:, None] & (of[:, None] < of)
    return tuple((column[a], number[a], column[b], number[b]) for a, b in np.argwhere(apart).tolist())


def _reach(numbers: Array, query: NDArray[np.int64]) -> tuple[float, float] | None:
    """Return as far as `FEW` queries go, down and up; half of the queries where there are fewer than twice as many."""
    if not len(numbers):
        return None
    if np.any(query[1:] < query[:-1]):
        order = np.argsort(query, kind="stable")
        numbers, query = numbers[order], query[order]
    starts = np.flatnonzero(run_starts([query], len(query)))
    least = most = numbers
    if len(starts) < len(numbers):
        least, most = (of.reduceat(numbers, starts) for of in (np.minimum, np.maximum))
    rank = min(FEW, (len(starts) + 1) // 2)
    return float(np.partition(least, rank - 1)[rank - 1]), float(np.partition(most, -rank)[-rank])
