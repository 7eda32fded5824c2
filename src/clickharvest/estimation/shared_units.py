"""Clusters that share units: users, pages or sessions that see the same documents, each at a position of its own.

A user of one arm of an A/B test sees a document at one position alone, and it is other users who see it elsewhere.
So what a user clicks follows from their arm, and from how much they click at all, and the effects by position of
`query_effects` account for neither: where few users have most of the clicks, they make intervals too narrow. Queries
have their documents to themselves.

The scores of clusters tell all of it, s_g = Σ_{u of g} Σ_k C_{u,k} (z_{u,k} − z̄_u), but where a cluster is alone with
what it tells of a parameter, the fit has made its score small. So the variance of the score is

    M = ω^½ B ω^½ + (1 − ω)^½ M₀ (1 − ω)^½,   B = Σ_g s̃_g s̃_gᵀ,   ω_j = max(0, 1 − 5 / n_j),

M₀ being that of `query_effects`, s̃ the score over √(1 − h), h_{gj} the cluster's share of what is known of parameter j,
and n_j = 1 / Σ_g h_{gj}² how many clusters of equal weight know as much. M is never less than that of independent
clicks. Five clusters tell nothing of how they differ; thirty tell five sixths of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from clickharvest.estimation.pooling import Pooled
from clickharvest.estimation.smooth_shares import Smooth

Array = NDArray[np.float64]

FEW = 5.0
"""Clusters whose scores tell nothing of how clusters differ."""
MOST = 0.9
"""The largest share h of a cluster: none counts for more than ten times itself."""


def own_scores(fit: Pooled | Smooth) -> tuple[Array, Array]:
    """Return B, [size, size], and how many clusters of equal weight tell of each parameter, n, [size].

    Args:
        fit: parameters at the maximum, with their information.
    """
    shares = fit.shares
    known = np.diag(fit.information)
    meat, squares = np.zeros((shares.size, shares.size)), np.zeros(shares.size)
    for cells in shares.some_queries(shares.size):
        _, begins = np.unique(shares.cluster[cells], return_index=True)
        centred = shares.centred(shares.design(cells), fit.at.share, cells)
        expected = (shares.clicks_of_unit * fit.at.share)[cells]
        told = np.add.reduceat(expected[:, None] * centred**2, begins)
        told = np.divide(told, known, out=np.zeros_like(told), where=known > 0)
        squares += np.sum(told**2, axis=0)
        scores = np.add.reduceat(shares.clicks[cells, None] * centred, begins) / np.sqrt(1 - np.minimum(told, MOST))
        meat += scores.T @ scores
    return meat, np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)


def beyond_independence(fit: Pooled | Smooth, expected: Array, independent: Array) -> Array:
    """Return M less that of independent clicks, [size, size].

    Args:
        fit: parameters at the maximum, with their information and precision.
        expected: M₀, [size, size].
        independent: that of independent clicks, φ H, [size, size].
    """
    meat, clusters = own_scores(fit)
    weight = 1 - FEW / np.maximum(clusters, FEW)
    scores, effects = np.sqrt(weight), np.sqrt(1 - weight)
    whole = scores[:, None] * meat * scores + effects[:, None] * expected * effects
    curvature = fit.information + fit.precision
    values, vectors = eigh(whole - independent, curvature, check_finite=False)
    above = curvature @ vectors[:, values > 0]
    more: Array = (above * values[values > 0]) @ above.T
    return more
