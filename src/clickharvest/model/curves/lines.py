"""Curves of few parameters, zero at the anchor by construction: `constant`, `power`, `linear`, `lowrank`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares


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


@dataclass(frozen=True)
class Power(Curve):
    """A power law whose steepness depends on the context: p_k(x) = (k / anchor)^{−η(x)}, η(x) ≥ 0.

    η(x) = softplus(s · (a + w·x)) / s with s = 10: the straight line a + w·x, bent so that it stays positive.

    Parameters: `a`, the steepness of an average context (0: everything is examined alike; 1: position k gets 1/k);
    `w` [d], how much a unit of each feature adds to it.
    """

    name: ClassVar[str] = "power"
    sharpness: ClassVar[float] = 10.0

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k in every context."""
        return {"a": np.array([1.0]), "w": np.zeros((self.n_features, 1))}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return −η(x) log(k / anchor)."""
        line = self.sharpness * (x @ params["w"] + params["a"])
        steepness = xp.logaddexp(line, 0.0) / self.sharpness
        return self.anchored(-steepness * self.log_distance(), xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ |w|²."""
        return half_squares(params["w"], xp=xp)


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
