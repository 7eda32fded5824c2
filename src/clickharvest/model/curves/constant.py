"""The curve `constant`: the position-based model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params


@dataclass(frozen=True)
class Constant(Curve):
    """The position-based model: log p_k(x) = b_k for every context.

    Parameters: `b` [K - 1], the log examination of each position other than the anchor, relative to it; where contexts
    may stand `apart`, `W` [d, K - 1], how much a unit of each feature adds to it.
    """

    apart: int = field(default=0, metadata={"least": 0, "told": False})

    name: ClassVar[str] = "constant"
    apart_by: ClassVar[str] = "W"
    """The parameter by which they do."""
    apart_at: ClassVar[int] = 0
    """Where it begins in a vector of all parameters, `flatten_params`."""

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k."""
        alike = {"b": -self.log_distance()}
        return self.set_apart(alike)[1] if self.apart else alike

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k for every row of x, and W_k·x where contexts may stand apart."""
        return self.anchored(params["b"] + x @ (params["W"] if self.apart else np.zeros((self.n_features, 1))), xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Nothing depends on context, nothing is penalised."""
        return 0.0 * xp.sum(params["b"])

    def set_apart(self, params: Params) -> tuple[Constant, Params]:
        """Return the same curve as one that contexts may stand apart from, though none does."""
        return replace(self, apart=1), params | {"W": np.zeros((self.n_features, len(self.positions) - 1))}
