"""The paper's two estimators on the arXiv-like log, with bootstrap bands by query.

Where contexts are few, both depend on the log only through sums over queries. A replicate draws Poisson(1) weights for
the queries, adds up their parts of these sums, and refits to the sums: a thousand replicates take seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.errors import NotIdentifiedError
from clickharvest.estimation import AllPairs, Fit, make_sample, supported_positions
from clickharvest.harvesting import Interventions
from clickharvest.model import Constant, ContextEncoder, Propensities, make_curve

Array = NDArray[np.float64]

PART = 50
"""Replicates whose weights are held at once."""
STARTS = 3
TOLERANCE = 1e-6
"""Curves then end within a few per cent of a standard error of where a tenth of it would take them."""


def swap_ratio_bands(interventions: Interventions, *, replicates: int, seed: int) -> Propensities:
    """Return the ratios of `swap_ratio`, p_k / p_1 = ĉ_{1,k}(k) / ĉ_{1,k}(1), with bootstrap draws.

    Replicates in which a position got no click are left out.
    """
    positions = supported_positions(interventions, 1)
    rows = interventions.clicked()
    rows = rows.take(np.isin(rows.position, positions))
    _, unit = np.unique(rows.unit, return_inverse=True)
    _, query = np.unique(rows.query, return_inverse=True)
    k = np.searchsorted(positions, rows.position)
    rate = rows.clicks / rows.exposure
    first = np.bincount(unit, np.where(k == 0, rate, 0.0))
    has_first = np.bincount(unit, k == 0) > 0
    shape = (int(query.max()) + 1, len(positions))
    here = csr_array((np.where(has_first[unit], rate, 0.0), (query, k)), shape=shape)
    there = csr_array((first[unit], (query, k)), shape=shape)
    at_k, at_first = (_with_replicates(sums, replicates, seed) for sums in (here, there))
    usable: NDArray[np.bool_] = np.all((at_k > 0) & (at_first > 0), axis=1)
    if not usable[0]:
        raise NotIdentifiedError("a position got no click on either side of the swap: simulate more queries")
    draws = np.log(at_k[usable, 1:] / at_first[usable, 1:])
    return Propensities(
        curve=Constant(positions, 1, 0),
        params={"b": draws[0]},
        encoder=None,
        shown=tuple(int(p) for p in np.unique(interventions.position)),
        draws=draws[1:],
        draws_kind="bootstrap",
    )


def all_pairs_bands(interventions: Interventions, *, width: int, replicates: int, seed: int) -> Propensities:
    """Return the CPBM of AllPairs with networks for examination and relevance, with bootstrap draws.

    Args:
        interventions: with design exposures and few distinct contexts.
        width: hidden units of both networks, 0 for the paper's one layer.
        replicates: number of replicates; each starts from the fit to all queries.
        seed: seed of the starts and of the replicates.
    """
    positions = supported_positions(interventions, 1)
    encoder = ContextEncoder.fit(interventions.contexts)
    cells, parts = pooled_pairs(interventions)
    sample = make_sample(cells, positions, encoder)
    curve = make_curve("mlp", positions, 1, sample.x.shape[1], width=width)
    objective = AllPairs(sample, relevance="mlp", width=width)
    fit = Fit(curve, objective, sample)
    sums = _with_replicates(parts, replicates, seed)
    every = np.ones((STARTS, fit.n_clusters))
    first = fit.solve(fit.starts(STARTS, seed), every, np.zeros(STARTS), tolerance=TOLERANCE)
    best = first.params[int(np.nanargmin(first.value))]
    start = np.tile(best, (replicates, 1))
    again = fit.solve(start, sums[1:] / sums[0], np.zeros(replicates), tolerance=TOLERANCE)
    size = sum(np.size(values) for values in fit.params(best)["curve"].values())
    return Propensities(
        curve=curve,
        params=fit.params(best)["curve"],
        encoder=encoder,
        shown=tuple(int(p) for p in np.unique(interventions.position)),
        draws=again.params[np.isfinite(again.value), :size].astype(np.float32),
        draws_kind="bootstrap",
    )


def pooled_pairs(interventions: Interventions) -> tuple[Interventions, csr_array]:
    """Return the cells that the objective of AllPairs is a sum over, and each query's part of each cell.

    A cell is a context, an ordered pair of positions (k, k') and whether there was a click at k. The part of a query is
    Σ 1 / q_k over its rows at k of units exposed at k'. As interventions a cell is one unit, and query, that is seen at
    k once, with the exposure there that gives it the weight of its sum over queries, up to a common factor.

    Returns:
        The cells as interventions, and the parts, [queries, cells].
    """
    i = interventions
    _, unit, size = np.unique(i.unit, return_inverse=True, return_counts=True)
    start = np.cumsum(size) - size
    shown = np.flatnonzero(i.impressions > 0)
    row = np.repeat(shown, size[unit[shown]])
    step = np.arange(len(row)) - np.repeat(np.cumsum(size[unit[shown]]) - size[unit[shown]], size[unit[shown]])
    other = start[unit[row]] + step
    row, other = row[row != other], other[row != other]
    columns = [*(column[row] for column in i.contexts.values()), i.position[row], i.position[other]]
    codes = np.zeros(len(row), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        codes = codes * len(values) + code
    weight = np.concatenate([i.clicks[row], (i.impressions - i.clicks)[row]]) / np.tile(i.exposure[row], 2)
    counted = np.flatnonzero(weight)
    codes = np.concatenate([2 * codes, 2 * codes + 1])[counted]
    row, other, weight = np.tile(row, 2)[counted], np.tile(other, 2)[counted], weight[counted]
    _, first, cell = np.unique(codes, return_index=True, return_inverse=True)
    _, query = np.unique(i.query[row], return_inverse=True)
    parts = csr_array((weight, (query, cell)), shape=(int(query.max()) + 1, len(first)))
    total = np.bincount(cell, weight)
    number = np.repeat(np.arange(len(first)), 2)
    here = np.tile([1, 0], len(first))
    cells = Interventions(
        unit=number,
        query=number,
        position=np.stack([i.position[row[first]], i.position[other[first]]], axis=1).ravel(),
        exposure=np.where(here, (total.mean() / total)[number], 1.0),
        clicks=here * (1 - codes[first] % 2)[number],
        impressions=here,
        contexts={name: column[row[first]][number] for name, column in i.contexts.items()},
        exposure_kind="design",
    )
    return cells, parts


def _with_replicates(parts: csr_array, replicates: int, seed: int) -> Array:
    """Return the sums over queries [cells], then those of every replicate, [1 + replicates, cells]."""
    random = np.random.default_rng([seed, 1])
    sums = [np.asarray(parts.sum(axis=0), np.float64)[None]]
    for begin in range(0, replicates, PART):
        drawn = random.poisson(1.0, (min(PART, replicates - begin), parts.shape[0])).astype(np.float64)
        sums.append(np.asarray((parts.T @ drawn.T).T))
    return np.concatenate(sums)
