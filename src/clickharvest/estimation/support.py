"""Which contexts a sample speaks of, and on how many queries its positions rest.

Values of contexts are supported by queries, or by what else clusters: users of a home page are many, and its query one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from clickharvest.estimation.cells import Cells, cells_of
from clickharvest.estimation.sample import Sample, linked_by
from clickharvest.harvesting.numbering import run_starts
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Curve, Params
from clickharvest.model.support import ENOUGH, FEW, ColumnSupport, Support, used_values

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def find_support(sample: Sample, curve: Curve, params: Params, encoder: ContextEncoder | None) -> Support:
    """Return what a sample speaks of.

    The parameters of the curve make the click shares that queries are weighed by; the encoder is that of the sample's
    contexts.
    """
    log_p = curve.relative(params, sample.x)
    clicked = np.bincount(sample.unit, sample.clicks) > 0
    sample = sample if clicked.all() else sample.take(clicked[sample.unit])
    cells = cells_of(sample)
    share, anchored = cells.shares_of(log_p).share, curve.anchor_index
    queries = _effective(cells, share, sample.query[cells.row_of_unit], cells.clicks_per_unit, anchored)

    def enough(rows: Mask) -> tuple[int, ...]:
        """Return the positions that rows with some value link to the anchor, by `ENOUGH` clusters or more."""
        if not rows.any():
            return ()
        linked = linked_by(sample, curve.anchor, rows)
        if sample.unit_kind == "context" and len(linked) == len(sample.positions):  # units as they are, but fewer
            clicks = cells.clicks_per_unit * rows[cells.row_of_unit]
            queries_of = _effective(cells, share, cells.cluster_of_unit, clicks, anchored)
        else:
            there = np.isin(np.array(sample.positions), linked)[sample.position]
            queries_of = effective_queries(replace(sample.take(rows & there), division=None), curve.anchor, log_p)
        by_position = dict(zip(sample.positions, queries_of, strict=True))
        return tuple(k for k in linked if (count := by_position[k]) is None or round(count) >= ENOUGH)

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
        linked = [sample.positions if has.all() else enough(np.repeat(has, lengths)) for has in values.T]
        reach = None
        if part.kind == "numeric":
            known = values[:, 0]
            reach = _reach(part.mean + part.sd * block[known, 0], cluster[known])
        columns.append(ColumnSupport(tuple(linked), bool(unknown.any()), reach))
    apart = () if encoder is None else _never_together(encoder, sample.x[np.unique(sample.context)])
    return Support(tuple(columns), queries, apart)


def effective_queries(sample: Sample, anchor: int, log_p: Array) -> tuple[float | None, ...]:
    """Return how many queries of equal say log p_k / p_anchor rests on, position by position; None for the anchor.

    With H = Σ_u N_u (diag π_u − π_u π_uᵀ) the information of the click shares π and a_k column k of H⁻¹, query g has
    the part Σ_{u of g} N_u Var_π(a_k) in the variance of log p_k, which is (H⁻¹)_kk. With s_g its share, the effective
    queries are 1 / Σ_g s_g². A position that hundreds of queries link to another one, which a single query links to the
    anchor, rests on about one. `log_p` is that of the sample's contexts, [m, K].
    """
    cells = cells_of(sample)
    share = cells.shares_of(log_p).share
    return _effective(
        cells, share, sample.query[cells.row_of_unit], cells.clicks_per_unit, sample.positions.index(anchor)
    )


def _effective(cells: Cells, share: Array, query: Integers, clicks: Array, anchored: int) -> tuple[float | None, ...]:
    """Return what `effective_queries` does, of units with some queries and clicks, [units] each."""
    size = cells.n_positions
    information = np.zeros((size, size))
    for rows, units in cells.share_matrices(share):
        expected = rows.multiply(clicks[units, None]).tocsr()
        information += np.diag(expected.sum(axis=0)) - (rows.T @ expected).toarray()
    moves = np.zeros((size, size))
    others = np.ix_(*[np.delete(np.arange(size), anchored)] * 2)
    moves[others] = np.linalg.pinv(information[others], hermitian=True)
    parts = np.zeros((int(query.max(initial=0)) + 1, size))
    for rows, units in cells.share_matrices(share):
        variance = np.maximum(rows @ moves**2 - (rows @ moves) ** 2, 0.0)
        n_units = len(variance)
        parts += csr_array((clicks[units], (query[units], np.arange(n_units))), shape=(len(parts), n_units)) @ variance
    total, squares = parts.sum(axis=0), (parts**2).sum(axis=0)
    effective: list[float | None] = (total**2 / np.maximum(squares, np.finfo(float).tiny)).tolist()
    effective[anchored] = None
    return tuple(effective)


def _never_together(encoder: ContextEncoder, x: Array) -> tuple[tuple[int, int, int, int], ...]:
    """Return the values of two columns that contexts x, [m, d], have, but never together, as `Support.apart` does."""
    values: list[Any] = []
    column: list[int] = []
    number: list[int] = []
    begin = 0
    for i, part in enumerate(encoder.parts):
        used, _ = used_values(part, x[:, begin : begin + len(part.features)])
        begin += len(part.features)
        values.append(csr_array(used, dtype=np.float64))
        column += [i] * used.shape[1]
        number += range(used.shape[1])
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
