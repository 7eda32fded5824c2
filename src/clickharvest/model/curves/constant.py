"""The curve `constant`: the position-based model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params


@dataclass(frozen=True)
class Constant(Curve):
    """The position-based model: log p_k(x) = b_k for every context.

    Parameters: `b` [K - 1], the log examination of each position other than the anchor, relative to it.
    """

    name: ClassVar[str] = "constant"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k."""
        return {"b": -self.log_distance()}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k for every row of x."""
        return self.anchored(params["b"] + x @ np.zeros((self.n_features, 1)), xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Nothing depends on context, nothing is penalised."""
        return 0.0 * xp.sum(params["b"])
