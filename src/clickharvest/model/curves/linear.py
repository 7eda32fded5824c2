"""The curve `linear`: a straight line for every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares


@dataclass(frozen=True)
class Linear(Curve):
    """Every position has its own straight line: log p_k(x) = b_k + W_k·x.

    Parameters: `b` [K - 1], the log examination of each position in an average context; `W` [d, K - 1], how much a
    unit of each feature adds to it. With ClickShare the fit is concave: one global optimum.
    """

    name: ClassVar[str] = "linear"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k in every context."""
        return {"b": -self.log_distance(), "W": np.zeros((self.n_features, len(self.positions) - 1))}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k + W_k·x."""
        return self.anchored(x @ params["W"] + params["b"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ |W|²."""
        return half_squares(params["W"], xp=xp)
