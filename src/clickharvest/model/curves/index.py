"""The curve `index`: contexts differ in one number, along which every position bends as it likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.curves.base import Curve, Params, half_squares


@dataclass(frozen=True)
class SingleIndex(Curve):
    """Contexts differ in one number t = u·x, patience say: log p_k(x) = b_k + V_{0k} t + Σ_m V_{mk} (g_m(t) − g_m(0)).

    Every bend g_m(t) = softplus(2 (t − τ_m)) / 2 is flat before its knot τ_m and straight after it. Knots stand evenly
    from −1.6 to 1.6; how far contexts spread among them is up to u. Without bends this is `lowrank` of rank 1.

    Parameters: `b` [K - 1], the log examination of each position in an average context; `u` [d, 1], how far each
    feature pushes along the index; `V` [1 + knots, K - 1], what the index does to each position: the straight line
    first, then the bends.
    """

    knots: int = 5

    name: ClassVar[str] = "index"
    span: ClassVar[float] = 1.6
    sharpness: ClassVar[float] = 2.0

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k, steeper along an index of random direction."""
        lines = np.zeros((1 + self.knots, len(self.positions) - 1))
        lines[0] = -self.log_distance() / np.sqrt(len(self.positions))
        into = random.normal(size=(self.n_features, 1)) / np.sqrt(max(self.n_features, 1))
        return {"b": -self.log_distance(), "u": into, "V": lines}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k + V_{0k} t + Σ_m V_{mk} (g_m(t) − g_m(0))."""
        index = x @ params["u"]
        bends = xp.logaddexp(self.sharpness * (index - self.places()), 0.0) / self.sharpness
        average = np.logaddexp(-self.sharpness * self.places(), 0.0) / self.sharpness
        return self.anchored(xp.concatenate([index, bends - average], axis=-1) @ params["V"] + params["b"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|u|² + |V|²)."""
        return half_squares(params["u"], params["V"], xp=xp)

    def places(self) -> NDArray[np.float64]:
        """Return the knots τ_m, [knots]; a single one stands at 0."""
        return self.span * (np.linspace(-1.0, 1.0, self.knots) if self.knots > 1 else np.zeros(1))
