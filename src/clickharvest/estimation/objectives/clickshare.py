"""ClickShare: among the clicks of one unit, the share that falls on a position is free of the unit's relevance."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.cells import cells_of
from clickharvest.estimation.objectives.base import ClusterSlopes, Objective, Point, sums_by_cluster_and_context
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Params

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class ClickShare(Objective):
    """Shares of a unit's clicks over its positions, free of its relevance.

    Σ_u Σ_k C_{u,k} log π_{u,k},   π_{u,k} = e_{u,k} p_k(x_u) / Σ_j e_{u,j} p_j(x_u).

    Where contexts vary inside a unit its cells are (context, position) pairs with logits
    log e + s(x) + log p_k(x); s(x) = s·x absorbs how much a context clicks in general.

    Args:
        sample: the sample; units without a click carry no information and are left out.

    Attributes:
        cells: the cells of the clicked units.
        varying: whether contexts vary inside units.
    """

    name = "clickshare"

    def __init__(self, sample: Sample) -> None:
        self.varying = sample.unit_kind == "query" and sample.x.shape[1] > 0
        self.columns, self.n_features = int(self.varying), sample.x.shape[1]
        self.size = float(sample.clicks.sum())
        self.cells = cells_of(sample)

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
        other = copy(self)
        other.cells, there = self.cells.among(clusters)
        return other, there

    def value_and_slopes(
        self, log_p: Array, own: Array | None, weights: Array, *, valued: bool = True
    ) -> tuple[float, Array, Array | None]:
        """Return the log likelihood of weighted clusters [q], if it is asked for, and its slopes by log p and s(x)."""
        value, slopes = self.cells.value_and_slopes(self.logits(log_p, own), weights, valued=valued)
        return value, slopes, None if own is None else slopes.sum(axis=1, keepdims=True)

    def by_cluster(self, log_p: Array, own: Array | None, n_clusters: int) -> Array:
        """Return the log likelihood of every cluster, [q]."""
        return self.cells.by_query(self.logits(log_p, own))

    def cluster_slopes(self, log_p: Array, own: Array | None) -> ClusterSlopes:
        """Return the slopes of every cluster's log likelihood, clicks less expected clicks."""
        cells, at = self.cells, self.cells.shares_of(self.logits(log_p, own))
        residuals = (cells.position[:, None], at.residual, cells.n_positions)
        cluster, context, (slopes,) = sums_by_cluster_and_context(cells.cluster, cells.context, len(log_p), residuals)
        return ClusterSlopes(cluster, context, slopes, None if own is None else slopes.sum(axis=1, keepdims=True))

    def information(self, at: Point, weights: Array, *, rough: bool) -> Array:
        """Return H = Σ_u N_u (Σ_k π z zᵀ − z̄ z̄ᵀ) of weighted clusters [q], z the gradients of logits, [n, n]."""

        def gradients(contexts: Integers) -> Array:
            return self.logits(at.log_p_gradients(contexts), at.own_gradients(contexts) if self.varying else None)

        shares = self.cells.shares_of(self.logits(at.log_p, at.own))
        return self.cells.expected_information(shares, at.size, gradients, weights, rough=rough)
