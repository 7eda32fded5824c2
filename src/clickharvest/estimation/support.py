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

NUMBERS = 5_000_000
"""Numbers (units or queries × positions) that are held at once."""


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
    seen = np.flatnonzero(run_starts([sample.query, sample.context], len(sample.unit)))
    query, context = sample.query[seen], sample.context[seen]
    columns = []
    begin = 0
    for part in () if encoder is None else encoder.parts:
        block = sample.x[:, begin : begin + len(part.features)]
        begin += len(part.features)
        values, unknown = used_values(part, block)
        linked = []
        for has in values.T:
            # What all rows have is supported where positions are.
            is_everywhere = has[context].all()
            own = () if is_everywhere else _enough(sample.take(has[sample.context]), curve.anchor, log_p)
            linked.append(sample.positions if is_everywhere else own)
        reach = None
        if part.kind == "numeric":
            told = values[context, 0]
            reach = _reach(part.mean + part.sd * block[context[told], 0], query[told])
        columns.append(ColumnSupport(tuple(linked), bool(unknown[context].any()), reach))
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
    log_rate = np.log(sample.exposure) + log_p[sample.context, sample.position]
    top = np.full(sample.n_units, -np.inf)
    np.maximum.at(top, sample.unit, log_rate)
    rate = np.exp(log_rate - top[sample.unit])
    total = np.bincount(sample.unit, rate)
    clicks = np.bincount(sample.unit, sample.clicks)
    n_positions = len(sample.positions)
    share = csr_array((rate / total[sample.unit], (sample.unit, sample.position)), shape=(len(clicks), n_positions))
    weighted = csr_array(share.T.multiply(clicks))
    information = np.diag(weighted.sum(axis=1)) - (weighted @ share).toarray()
    others = np.flatnonzero(np.array(sample.positions) != anchor)
    moves = np.zeros((n_positions, n_positions))
    moves[np.ix_(others, others)] = np.linalg.pinv(information[np.ix_(others, others)], hermitian=True)
    query = np.zeros(len(clicks), dtype=np.int64)
    query[sample.unit] = sample.query
    by_query = csr_array((clicks, (query, np.arange(len(clicks)))), shape=(sample.n_queries, len(clicks)))
    found: list[float | None] = []
    size = max(1, NUMBERS // max(by_query.shape))
    for begin in range(0, n_positions, size):
        some = moves[:, begin : begin + size]
        variance = np.asarray(share @ some**2) - np.asarray(share @ some) ** 2
        parts = np.asarray(by_query @ np.maximum(variance, 0.0))
        found += (parts.sum(axis=0) ** 2 / np.maximum((parts**2).sum(axis=0), np.finfo(float).tiny)).tolist()
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
    order = np.argsort(query, kind="stable")
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    least, most = (of.reduceat(numbers[order], starts) for of in (np.minimum, np.maximum))
    rank = min(FEW, (len(starts) + 1) // 2)
    return float(np.sort(least)[rank - 1]), float(np.sort(most)[-rank])
