"""Which contexts a sample speaks of, and on how many queries its positions rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.sample import Sample, linked_by
from clickharvest.harvesting.numbering import run_starts
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Curve, Params
from clickharvest.model.support import ENOUGH, FEW, ColumnSupport, Support, used_values

Array = NDArray[np.float64]

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
    # Rows of a query stand together and mostly share their context: one look at each run of them is enough.
    runs = np.flatnonzero(run_starts([sample.query, sample.context], len(sample.unit)))
    lengths = np.diff(runs, append=len(sample.unit))
    query, x = sample.query[runs], sample.x[sample.context[runs]]
    columns = []
    begin = 0
    for part in () if encoder is None else encoder.parts:
        block = x[:, begin : begin + len(part.features)]
        begin += len(part.features)
        values, unknown = used_values(part, block)
        # What all rows have is supported where positions are.
        linked = [
            sample.positions if has.all() else _enough(sample.take(np.repeat(has, lengths)), curve.anchor, log_p)
            for has in values.T
        ]
        reach = None
        if part.kind == "numeric":
            told = values[:, 0]
            reach = _reach(part.mean + part.sd * block[told, 0], query[told])
        columns.append(ColumnSupport(tuple(linked), bool(unknown.any()), reach))
    return Support(tuple(columns), effective_queries(sample, curve.anchor, log_p))


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
    begins = np.flatnonzero(run_starts([sample.unit], len(sample.unit)))
    share = np.log(sample.exposure)
    share += log_p[sample.context, sample.position]
    share -= np.maximum.reduceat(share, begins)[sample.unit]
    np.exp(share, out=share)
    share /= np.bincount(sample.unit, share)[sample.unit]
    clicks = np.bincount(sample.unit, sample.clicks)
    query = sample.query[begins]
    ends = np.append(begins, len(share))
    n_positions = len(sample.positions)
    size = max(1, NUMBERS // n_positions)
    chunks = []
    information = np.zeros((n_positions, n_positions))
    for begin in range(0, len(begins), size):
        units = slice(begin, begin + size)
        end = ends[begin : begin + size + 1]
        rows = slice(end[0], end[-1])
        own = csr_array((share[rows], sample.position[rows], end - end[0]), shape=(len(end) - 1, n_positions))
        weighted = csr_array((own.data * clicks[sample.unit[rows]], own.indices, own.indptr), shape=own.shape)
        information += np.diag(weighted.sum(axis=0)) - (weighted.T @ own).toarray()
        chunks.append((own, clicks[units], query[units]))
    others = np.flatnonzero(np.array(sample.positions) != anchor)
    moves = np.zeros((n_positions, n_positions))
    moves[np.ix_(others, others)] = np.linalg.pinv(information[np.ix_(others, others)], hermitian=True)
    parts = np.zeros((sample.n_queries, n_positions))
    for own, clicked, of in chunks:
        variance = np.maximum(own @ moves**2 - (own @ moves) ** 2, 0.0)
        runs = np.flatnonzero(run_starts([of], len(of)))
        added = (
            csr_array((clicked, np.arange(len(of)), np.append(runs, len(of))), shape=(len(runs), len(of))) @ variance
        )
        if np.all(of[runs[1:]] > of[runs[:-1]]):
            parts[of[runs]] += added
        else:
            np.add.at(parts, of[runs], added)
    squares = np.maximum((parts**2).sum(axis=0), np.finfo(float).tiny)
    found: list[float | None] = (parts.sum(axis=0) ** 2 / squares).tolist()
    found[sample.positions.index(anchor)] = None
    return tuple(found)


def _enough(sample: Sample, anchor: int, log_p: Array) -> tuple[int, ...]:
    """Return the positions that the rows with some value link to the anchor, by `ENOUGH` effective queries or more."""
    if not len(sample.unit):
        return ()
    linked = linked_by(sample, anchor)
    if len(linked) < len(sample.positions):
        sample = sample.take(np.isin(np.array(sample.positions)[sample.position], linked))
    told = dict(zip(sample.positions, effective_queries(sample, anchor, log_p), strict=True))
    return tuple(k for k in linked if (queries := told[k]) is None or round(queries) >= ENOUGH)


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
