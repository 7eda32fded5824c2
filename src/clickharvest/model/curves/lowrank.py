"""The curve `lowrank`: a few shapes, mixed by the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares


@dataclass(frozen=True)
class LowRank(Curve):
    """A few shapes, mixed by the context: log p_k(x) = b_k + Σ_m (u_m·x) V_{mk}.

    Parameters: `b` [K - 1], the log examination of each position in an average context; `V` [rank, K - 1], the
    shapes along which contexts differ, such as "steeper"; `u` [d, rank], how far each feature pushes along each.
    """

    rank: int = 1

    name: ClassVar[str] = "lowrank"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k, first shape "steeper", contexts slightly and randomly apart."""
        shapes = 0.3 * random.normal(size=(self.rank, len(self.positions) - 1))
        shapes[0] -= self.log_distance() / np.sqrt(len(self.positions))
        return {"b": -self.log_distance(), "u": 0.1 * random.normal(size=(self.n_features, self.rank)), "V": shapes}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k + Σ_m (u_m·x) V_{mk}."""
        return self.anchored((x @ params["u"]) @ params["V"] + params["b"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|u|² + |V|²): twice this is at least the nuclear norm of the matrix uV."""
        return half_squares(params["u"], params["V"], xp=xp)
