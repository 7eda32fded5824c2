"""The curve `mlp`: the paper's networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params
from clickharvest.model.curves.layers import hidden_layer, layers_penalty, log_sigmoid, sigmoid_layers


@dataclass(frozen=True)
class MLP(Curve):
    """A network: p_k(x) = σ(c_k + v_k·σ(A x + a)), a sigmoid hidden layer and sigmoid outputs.

    Without a hidden layer, `width` 0, it is the one the paper prints: p_k(x) = σ(c_k + v_k·x).

    Parameters: `A` [d, width] and `a` [width], what each hidden unit responds to; `v` [width, K] and `c` [K], what
    each response does to each position. Without a hidden layer there are only `v` [d, K] and `c`.
    """

    width: int = field(default=12, metadata={"least": 0})

    name: ClassVar[str] = "mlp"

    def init(self, random: np.random.Generator) -> Params:
        """Start from random weights of variance 1/fan-in."""
        return sigmoid_layers(random, self.n_features, self.width, len(self.positions))

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return log σ(c_k + v_k·σ(A x + a)), negative: an examination probability."""
        return log_sigmoid(hidden_layer(params, x, xp) @ params["v"] + params["c"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |v|²)."""
        return layers_penalty(params, xp)
