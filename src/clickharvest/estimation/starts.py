"""Where curves of several shapes start: from the straight lines of a pooled fit, instead of anywhere.

`linear` has one optimum. Its slopes W [d, K − 1], cut to their largest singular values, are the shapes of a low-rank
curve, the largest of them the index of a curve that has one, not bent yet; and a network that is nearly linear in its
contexts, with outputs far from saturation, can begin as that curve, its other hidden units small and random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.curves import MLP, Curve, LowRank, SingleIndex, flatten_params

Array = NDArray[np.float64]

LOW = 3.0
"""How far below saturation the outputs of a network begin: there log σ(z) is nearly z."""
NEAR = 0.5
"""Size of the weights into hidden units: there σ(z) is nearly a line."""


def start_from_lines(curve: Curve, base: Array, slopes: Array, seed: int) -> Array | None:
    """Return parameters of a curve that begins as straight lines do, [n]; None where a curve cannot.

    Args:
        curve: the curve.
        base: log examination of an average context, [K − 1].
        slopes: what a unit of each feature adds to it, [d, K − 1].
        seed: seed of what stays random.

    Example:
        >>> base, slopes = np.array([-0.7, -1.1]), np.outer([0.3, 0.1], [-0.5, -0.9])
        >>> curve = LowRank((1, 2, 3), 1, 2, rank=1)
        >>> flat = start_from_lines(curve, base, slopes, 0)
        >>> u, v, b = flat[3:5], flat[:2], flat[5:]
        >>> bool(np.allclose(np.outer(flat[4:], flat[:2]), slopes))
        True
    """
    params = curve.init(np.random.default_rng(seed))
    if isinstance(curve, LowRank):
        into, out = _shapes(slopes, curve.rank)
        return flatten_params(params | {"b": base, "u": into, "V": out})
    if isinstance(curve, SingleIndex):
        left, values, right = np.linalg.svd(slopes, full_matrices=False)
        lines = np.concatenate([values[:1, None] * right[:1], np.zeros_like(params["V"][1:])])
        return flatten_params(params | {"b": base, "u": left[:, :1], "V": lines})
    if isinstance(curve, MLP) and curve.width:
        rank = min(2, curve.width)
        into, out = _shapes(slopes, rank)
        size = np.maximum(np.abs(into).max(axis=0), 1e-6) / NEAR
        anchored = np.insert(out, curve.anchor_index, 0.0, axis=1)
        params["A"][:, :rank] = into / size
        # σ(z) is about ½ + z / 4.
        params["v"] *= 0.1
        params["v"][:rank] = 4 * size[:, None] * anchored
        params["c"] = np.insert(base, curve.anchor_index, 0.0) - LOW - params["v"].sum(axis=0) / 2
        return flatten_params(params)
    return None


def _shapes(slopes: Array, rank: int) -> tuple[Array, Array]:
    """Return u [d, rank] and V [rank, K − 1] of equal size, uV the nearest to the slopes."""
    left, values, right = np.linalg.svd(slopes, full_matrices=False)
    root = np.zeros(rank)
    root[: len(values)] = np.sqrt(values[:rank])
    into, out = np.zeros((len(slopes), rank)), np.zeros((rank, slopes.shape[1]))
    kept = min(rank, len(values))
    into[:, :kept], out[:kept] = left[:, :kept], right[:kept]
    return into * root, out * root[:, None]
