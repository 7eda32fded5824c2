"""What checks of the model test on: the sample, its cells with clicks, and columns of logits of their shares.

How far down a list a result stands is log(k / anchor). Places have no such number: there it is −log p_k of the PBM, how
much less a place is examined than the anchor.

What contexts do is linear in their columns unless a fitted model is at hand, in which they may do anything. Then log
p_k(x) of the model is part of the exposures, and three kinds of columns stand beside the PBM's: those of `linear`; the
model's own log p_k(x), as a penalty leaves a curve too flat; and, where contexts are few, a steepness of each. What
these columns can do is what the fit took from the same clicks, to first order: a test of what is left knows about it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.errors import InputError
from clickharvest.estimation.pooling import pool
from clickharvest.estimation.sample import Sample, make_sample, supported_positions
from clickharvest.estimation.score_tests import ENOUGH, Columns, ShareCells, beside
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant
from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]

MOST_CONTEXTS = 60
"""Distinct contexts that have a steepness of their own, and products of features that have one in their place."""


def model_sample(
    interventions: Interventions, anchor: int, kinds: Mapping[str, str] | None, model: Propensities | None = None
) -> Sample:
    """Return what a model is fitted to: the positions that are linked, contexts encoded.

    Args:
        interventions: the harvest.
        anchor: the position others are relative to.
        kinds: kind of context columns, as in `ContextEncoder`.
        model: a fitted model: its columns come first, encoded as it does.
    """
    positions = supported_positions(interventions, anchor)
    encoder = ContextEncoder.fit(interventions.contexts, kinds=kinds) if interventions.contexts else None
    if model is not None and model.encoder is not None:
        if missing := [name for name in model.encoder.columns if name not in interventions.contexts]:
            raise InputError(f"the model depends on {', '.join(missing)}, which the interventions do not have")
        others = () if encoder is None else encoder.parts
        of_model = model.encoder.columns
        encoder = ContextEncoder((*model.encoder.parts, *(part for part in others if part.name not in of_model)))
    return make_sample(interventions, positions, encoder)


def fitted_log_p(model: Propensities | None, sample: Sample, anchor: int) -> Array | None:
    """Return log p_k(x) of each row by a model, [n]; None without a model, or where it knows no contexts.

    At positions that it does not know it says nothing, and is 0.

    Args:
        model: the model that `model_sample` was given.
        sample: the sample.
        anchor: the position others are relative to.
    """
    if model is None or model.encoder is None:
        return None
    log_p = model.curve.relative(model.params, sample.x[:, : model.curve.n_features])
    own, nothing = dict(zip(model.curve.positions, log_p.T, strict=True)), np.zeros(len(sample.x))
    at_anchor = own.get(anchor, nothing)
    found: Array = np.stack([own[k] - at_anchor if k in own else nothing for k in sample.positions], axis=1)
    return found[sample.context, sample.position]


def share_cells(sample: Sample, log_p: Array | None = None) -> ShareCells:
    """Return the cells of the units with clicks; what is known of examination, [n], is part of the exposures."""
    clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
    rows = np.flatnonzero(clicked & (sample.exposure > 0))
    _, unit = np.unique(sample.unit[rows], return_inverse=True)
    clicks = sample.clicks[rows].astype(np.float64)
    log_exposure = np.log(sample.exposure[rows])
    if log_p is not None:
        log_exposure += log_p[rows]
    return ShareCells(rows, unit, sample.cluster[rows], log_exposure, clicks)


def null_columns(sample: Sample, anchor: int) -> Columns:
    """Return the columns of the PBM, [n, K − 1]; where contexts vary inside units, also x, how much they click."""
    own = by_position(np.ones((len(sample.unit), 1)), sample, anchor)
    return beside(own, csr_array(sample.x[sample.context])) if sample.unit_kind == "query" else own


def null_of_contexts(sample: Sample, anchor: int, log_p: Array | None = None) -> Columns:
    """Return the null's columns where contexts matter, [n, columns].

    Args:
        sample: the sample.
        anchor: the position others are relative to.
        log_p: log p_k(x) of each row by a fitted model, [n]; None where there is none.
    """
    null = beside(null_columns(sample, anchor), context_columns(sample, anchor, not affordable(sample)))
    if log_p is None:
        return null
    null = beside(null, csr_array(log_p[:, None]))
    few = len(sample.x) <= MOST_CONTEXTS and ENOUGH * len(sample.x) <= sample.n_clusters
    single = single_contexts(sample, anchor) if few else None
    return null if single is None else beside(null, single)


def affordable(sample: Sample) -> bool:
    """Whether there are queries enough for all of W."""
    return bool(ENOUGH * sample.x.shape[1] * (len(sample.positions) - 1) <= sample.n_clusters)


def is_linear(sample: Sample) -> bool:
    """Whether whatever distinct contexts do is linear in their columns, as of one category."""
    m = len(sample.x)
    return bool(m <= np.linalg.matrix_rank(np.column_stack([np.ones(m), sample.x])))


def context_columns(sample: Sample, anchor: int, steepness: bool) -> Columns:
    """Return the columns of W, [n, (K − 1) d], or of w alone, [n, d]."""
    x = sample.x[sample.context]
    return csr_array(-x * log_distance(sample, anchor)[:, None]) if steepness else by_position(x, sample, anchor)


def single_contexts(sample: Sample, anchor: int) -> Columns | None:
    """Return columns of steepness of distinct contexts, [n, contexts], or of squares and products of features.

    None where these say no more than the features themselves, or would be more than `MOST_CONTEXTS`.
    """
    m, d = sample.x.shape
    if is_linear(sample):
        return None
    distance = log_distance(sample, anchor)
    if m <= MOST_CONTEXTS:
        rows = np.flatnonzero(distance)
        return csr_array((-distance[rows], (rows, sample.context[rows])), shape=(len(distance), m))
    one, two = np.triu_indices(d)
    values = sample.x[:, one] * sample.x[:, two]
    values = values[:, np.ptp(values, axis=0) > 0]
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    if not 0 < values.shape[1] <= MOST_CONTEXTS:
        return None
    return csr_array(-values[sample.context] * distance[:, None])


def by_position(x: Array, sample: Sample, anchor: int) -> Columns:
    """Return x in the columns of the row's position, the anchor's left out, [n, (K − 1) d]."""
    anchored, width = sample.positions.index(anchor), x.shape[1]
    slot = sample.position - (sample.position > anchored)
    rows = np.flatnonzero(sample.position != anchored)
    row, feature = np.nonzero(x[rows])
    shape = (len(x), (len(sample.positions) - 1) * width)
    return csr_array((x[rows][row, feature], (rows[row], slot[rows][row] * width + feature)), shape=shape)


def log_distance(sample: Sample, anchor: int) -> Array:
    """Return how far from the anchor each row stands, log(k / anchor) in a list."""
    distance: Array = np.log(np.array(sample.positions) / anchor)
    if sample.places is not None:
        found = pool(Constant(sample.positions, anchor, sample.x.shape[1]), sample)
        distance = np.insert(-found.theta, sample.positions.index(anchor), 0.0)
    return distance[sample.position]
