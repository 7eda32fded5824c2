"""What checks of the model test on: the sample, its cells with clicks, and columns of logits of their shares.

How far down a list a result stands is log(k / anchor). Places have no such number: there it is −log p_k of the PBM, how
much less a place is examined than the anchor.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.pooling import pool
from clickharvest.estimation.sample import Sample, make_sample, supported_positions
from clickharvest.estimation.score_tests import ENOUGH, Columns, ShareCells, beside
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant

Array = NDArray[np.float64]


def model_sample(interventions: Interventions, anchor: int, kinds: Mapping[str, str] | None) -> Sample:
    """Return what a model is fitted to: the positions that are linked, contexts encoded."""
    positions = supported_positions(interventions, anchor)
    encoder = ContextEncoder.fit(interventions.contexts, kinds=kinds) if interventions.contexts else None
    return make_sample(interventions, positions, encoder)


def share_cells(sample: Sample) -> ShareCells:
    """Return the cells of the units with clicks."""
    clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
    rows = np.flatnonzero(clicked & (sample.exposure > 0))
    _, unit = np.unique(sample.unit[rows], return_inverse=True)
    clicks = sample.clicks[rows].astype(np.float64)
    return ShareCells(rows, unit, sample.cluster[rows], np.log(sample.exposure[rows]), clicks)


def null_columns(sample: Sample, anchor: int) -> Columns:
    """Return the columns of the PBM, [n, K − 1]; where contexts vary inside units, also x, how much they click."""
    own = by_position(np.ones((len(sample.unit), 1)), sample, anchor)
    return beside(own, csr_array(sample.x[sample.context])) if sample.unit_kind == "query" else own


def affordable(sample: Sample) -> bool:
    """Whether there are queries enough for all of W."""
    return bool(ENOUGH * sample.x.shape[1] * (len(sample.positions) - 1) <= sample.n_clusters)


def context_columns(sample: Sample, anchor: int, steepness: bool) -> Columns:
    """Return the columns of W, [n, (K − 1) d], or of w alone, [n, d]."""
    x = sample.x[sample.context]
    return csr_array(-x * log_distance(sample, anchor)[:, None]) if steepness else by_position(x, sample, anchor)


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
