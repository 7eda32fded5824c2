"""The curve `recurrent`: positions read in sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares
from clickharvest.model.curves.layers import log_sigmoid


@dataclass(frozen=True)
class Recurrent(Curve):
    """Positions read in sequence: log p_k(x) = Σ_{j<k} log σ(c_j + v·h_j), h_j = tanh(A x + B h_{j−1} + a).

    After each position the reader goes on with probability σ(…), so that examination falls with every position.

    Parameters: `A` [d, width], `a` [width], what the context makes of the reader; `B` [width, width], how the reader
    changes on the way; `v` [width], `c` [K - 1], the log odds to go on after each position but the last.
    """

    width: int = 8

    name: ClassVar[str] = "recurrent"
    needs_order: ClassVar[bool] = True

    def init(self, random: np.random.Generator) -> Params:
        """Start from random weights of variance 1/fan-in and even odds to go on."""
        return {
            "A": random.normal(size=(self.n_features, self.width)) / np.sqrt(max(self.n_features, 1)),
            "a": np.zeros(self.width),
            "B": random.normal(size=(self.width, self.width)) / np.sqrt(self.width),
            "v": random.normal(size=(self.width, 1)) / np.sqrt(self.width),
            "c": np.ones(len(self.positions) - 1),
        }

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return the sum of the log probabilities to go on, from the top."""
        reader = xp.tanh(x @ params["A"] + params["a"])
        steps = [x @ np.zeros((self.n_features, 1))]
        for j in range(len(self.positions) - 1):
            odds = reader @ params["v"] + params["c"][j : j + 1]
            steps.append(steps[-1] + log_sigmoid(odds, xp))
            reader = xp.tanh(x @ params["A"] + reader @ params["B"] + params["a"])
        return xp.concatenate(steps, axis=-1)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |B|² + |v|²)."""
        return half_squares(params["A"], params["B"], params["v"], xp=xp)
