"""The curve `position`: the position as an input beside the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares


@dataclass(frozen=True)
class Position(Curve):
    """The position as an input beside the context: log p_k(x) = c_k + v·tanh(A x + φ_k + a), φ_k embeds k.

    Parameters: `A` [d, width], `a` [width], what the context does to each hidden unit; `phi` [K, width], what the
    position does; `v` [width], what each unit does to examination; `c` [K], the examination of an average context.
    """

    width: int = 8

    name: ClassVar[str] = "position"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k and embeddings along log k."""
        log_k = np.log(np.array(self.positions, dtype=np.float64) / self.anchor)
        return {
            "A": random.normal(size=(self.n_features, self.width)) / np.sqrt(max(self.n_features, 1)),
            "a": np.zeros(self.width),
            "phi": log_k[:, None] * random.normal(size=self.width) / 2,
            "v": random.normal(size=(self.width, 1)) / self.width,
            "c": -log_k,
        }

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return c_k + v·tanh(A x + φ_k + a)."""
        context = x @ params["A"] + params["a"]
        columns = [
            xp.tanh(context + params["phi"][k]) @ params["v"] + params["c"][k : k + 1]
            for k in range(len(self.positions))
        ]
        return xp.concatenate(columns, axis=-1)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |φ|² + |v|²)."""
        return half_squares(params["A"], params["phi"], params["v"], xp=xp)
