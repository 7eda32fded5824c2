"""Intervals: what draws of a curve's parameters say of the error of log p."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.curves import Curve, Params, flatten_params, unflatten_params

Array = NDArray[np.float64]

NUMBERS_AT_ONCE = 20_000_000
"""Numbers held at once (draws × contexts × positions); more contexts are taken in parts."""
NORMALS = 4_000
"""Normal draws whose largest deviations give the width of simultaneous bands around exact points."""
NEAR = 1e-4
"""How much of the way to the points of a clustered covariance is gone: little enough for a curve to be straight."""


@dataclass(frozen=True, eq=False)
class DrawnCurves:
    """The curves that draws of the parameters give: sd_k(x) is `factor` times the sd of their log p_k(x).

    Attributes:
        curve: the curve.
        params: parameters of its shapes.
        draws: the draws, as vectors of all parameters, [B, n].
        factor: what deviations are multiplied by.
        are_points: whether draws are points that have the covariance of the estimate exactly.
    """

    curve: Curve
    params: Params
    draws: Array
    factor: float = 1.0
    are_points: bool = False

    @classmethod
    def of(cls, curve: Curve, params: Params, draws: NDArray[np.float32], kind: str | None) -> Self:
        """Return the curves of draws of a kind, see `Propensities.draws`.

        Clustered points stand far from the estimate, where a curve that is not linear in its parameters bends. Points
        on the way to them are taken instead, so that sd is that of the curve's tangent.
        """
        vectors = draws.astype(np.float64)
        if kind != "clustered":
            return cls(curve, params, vectors)
        middle = flatten_params(params)
        return cls(curve.for_intervals(), params, middle + NEAR * (vectors - middle), 1 / NEAR, are_points=True)

    def log_p(self, x: Array) -> Array:
        """Return the factor times log p_k(x) of every draw: x [n, d] → [B, n, K]."""
        log_p = np.empty((len(self.draws), len(x), len(self.curve.positions)))
        for i, draw in enumerate(self.draws):
            log_p[i] = self.factor * self.curve.relative(unflatten_params(draw, self.params), x)
        return log_p

    def deviations(self, x: Array) -> Array:
        """Return what `log_p` deviates by from its mean, [B, n, K]; their covariance is that of log p."""
        log_p = self.log_p(x)
        deviations: Array = log_p - log_p.mean(axis=0)
        return deviations

    def sd(self, x: Array) -> Array:
        """Return the standard deviation of log p_k(x), [n, K]."""
        sd = np.empty((len(x), len(self.curve.positions)))
        for part in self._parts(len(x), len(self.draws)):
            sd[part] = self.log_p(x[part]).std(axis=0, ddof=1)
        return sd

    def simultaneous_z(self, x: Array, level: float) -> Array:
        """Return how many standard deviations cover all positions of a context together, [n, 1].

        That is the `level` quantile of max_k |log p*_k − mean_k| / sd_k over the draws, or over normal draws with the
        covariance of points.
        """
        z = np.empty((len(x), 1))
        for part in self._parts(len(x), max(len(self.draws), NORMALS)):
            log_p = self.log_p(x[part])
            sd = log_p.std(axis=0, ddof=1)
            log_p -= log_p.mean(axis=0)
            far = np.abs(_normal_like(log_p) if self.are_points else log_p)
            np.divide(far, sd, out=far, where=sd > 0)  # the anchor has neither spread nor distance
            z[part, 0] = np.quantile(far.max(axis=2), level, axis=0)
        return z

    def _parts(self, n: int, draws: int) -> list[slice]:
        size = max(1, NUMBERS_AT_ONCE // (draws * len(self.curve.positions)))
        return [slice(begin, begin + size) for begin in range(0, n, size)]


def normal_z(level: float) -> float:
    """Return how many standard deviations the interval of a normal reaches to either side.

    Example:
        >>> round(normal_z(0.95), 2)
        1.96
    """
    return -NormalDist().inv_cdf((1 - level) / 2)


def _normal_like(deviations: Array) -> Array:
    """Return normal draws with the covariances of deviations of points: [B, n, K] → [NORMALS, n, K]."""
    covariance = np.einsum("bnk,bnj->nkj", deviations, deviations, optimize=True) / (len(deviations) - 1)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    noise = np.random.default_rng(0).normal(size=(NORMALS, covariance.shape[1]))
    draws: Array = np.einsum("bj,nkj->bnk", noise, root, optimize=True)
    return draws
