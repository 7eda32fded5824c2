"""ClickShare: among the clicks of one unit, the share that falls on a position is free of the unit's relevance."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickharvest.estimation.objectives.base import Data, Objective, chunked_sum
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Params

NEVER = -1e30
"""Log exposure of cells that are not there: finite, so that 0 clicks times it is 0."""


class ClickShare(Objective):
    """Shares of a unit's clicks over its positions, free of its relevance.

    Σ_u Σ_k C_{u,k} log π_{u,k},   π_{u,k} = e_{u,k} p_k(x_u) / Σ_j e_{u,j} p_j(x_u).

    Where contexts vary inside a unit its cells are (context, position) pairs with logits
    log e + s(x) + log p_k(x); s(x) = s·x absorbs how much a context clicks in general.

    Args:
        sample: the sample; units without a click carry no information and are left out.

    Cells are held as [units, cells per unit] arrays, units of similar size together, so that padding stays small.
    """

    name = "clickshare"

    def __init__(self, sample: Sample) -> None:
        self.varying = sample.unit_kind == "query" and sample.x.shape[1] > 0
        self.n_features = sample.x.shape[1]
        self.size = float(sample.clicks.sum())
        clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
        _, first, unit, cells = np.unique(
            sample.unit[clicked], return_index=True, return_inverse=True, return_counts=True
        )
        slot = np.arange(len(unit)) - first[unit]
        columns = {
            "context": sample.context[clicked],
            "position": sample.position[clicked],
            "log_exposure": np.log(sample.exposure[clicked]),
            "clicks": sample.clicks[clicked].astype(np.float64),
        }
        bucket = np.ceil(np.log2(cells)).astype(int)
        self.data: list[Data] = []
        for size in np.unique(bucket):
            own = np.flatnonzero(bucket[unit] == size)
            row = np.searchsorted(np.flatnonzero(bucket == size), unit[own])
            shape = (int((bucket == size).sum()), int(cells[bucket == size].max()))
            block: Data = {"cluster": sample.cluster[clicked][first[bucket == size]]}
            for name, column in columns.items():
                block[name] = np.full(shape, NEVER if name == "log_exposure" else 0, dtype=column.dtype)
                block[name][row, slot[own]] = column[own]
            by_context = np.argsort(block["context"][:, 0], kind="stable")  # neighbours in memory are read faster
            self.data.append({name: values[by_context] for name, values in block.items()})

    def init(self, random: np.random.Generator) -> Params:
        """Start from contexts that click alike."""
        return {"s": np.zeros(self.n_features)} if self.varying else {}

    def logits(self, params: Params, log_p: Any, x: Any) -> Any:
        """Return what shares depend on beside exposures, s(x) + log p_k(x), [m, K]."""
        return log_p + (x @ params["s"])[:, None] if self.varying else log_p

    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: list[Data], weights: Any) -> Any:
        """Return Σ_u w_u Σ_k C_{u,k} log π_{u,k}."""
        import jax
        import jax.numpy as jnp

        log_p = self.logits(params, log_p, x)

        def of_block(block: Data) -> Any:
            logits = block["log_exposure"] + log_p[block["context"], block["position"]]
            top = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
            log_share = logits - top - jnp.log(jnp.sum(jnp.exp(logits - top), axis=1, keepdims=True))
            return jnp.sum(weights[block["cluster"]] * jnp.sum(block["clicks"] * log_share, axis=1))

        return sum(chunked_sum(of_block, block, block["clicks"].shape[1]) for block in data)

    def penalty(self, params: Params) -> Any:
        """Return ½ |s|²."""
        return (params["s"] ** 2).sum() / 2 if self.varying else 0.0
