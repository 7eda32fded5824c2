"""The curve `power`: a power law whose steepness depends on the context."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares


@dataclass(frozen=True)
class Power(Curve):
    """A power law whose steepness depends on the context: p_k(x) = (k / anchor)^{−η(x)}, η(x) ≥ 0.

    η(x) = softplus(s · (a + w·x)) / s with s = 20: the straight line a + w·x, bent so that it stays positive. Without
    context η = a, of either sign: where examination is flat, its estimate may fall on both sides.

    Parameters: `a`, the steepness of an average context (0: everything is examined alike; 1: position k gets 1/k);
    `w` [d], how much a unit of each feature adds to it; where positions may stand `apart` from the law, `d` [K - 1],
    by how much their log examination does so in all contexts.
    """

    apart: int = field(default=0, metadata={"least": 0, "told": False})

    name: ClassVar[str] = "power"
    needs_order: ClassVar[bool] = True
    sharpness: ClassVar[float] = 20.0
    apart_at: ClassVar[int] = 1
    """Where it begins in a vector of all parameters, `flatten_params`."""

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k in every context."""
        law = {"a": np.array([1.0]), "w": np.zeros((self.n_features, 1))}
        return law | {"d": np.zeros(len(self.positions) - 1)} if self.apart else law

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return −η(x) log(k / anchor), and d_k where positions may stand apart."""
        law = -self._steepness(x @ params["w"] + params["a"], xp) * self.log_distance()
        return self.anchored(law + params["d"] if self.apart else law, xp)

    def _steepness(self, line: Any, xp: Any) -> Any:
        return xp.logaddexp(self.sharpness * line, 0.0) / self.sharpness if self.n_features else line

    def for_intervals(self) -> Curve:
        """Return the law whose steepness moves at least half as much as the line, as it does at 0.

        Below 0 the bend would say that next to nothing can move examination, whatever the clicks leave open.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _Unbent(**values) if self.n_features else self

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ |w|²."""
        return half_squares(params["w"], xp=xp)

    def set_apart(self, params: Params) -> tuple[Power, Params]:
        """Return the same law as one that positions may stand apart from, though none does."""
        return replace(self, apart=1), params | {"d": np.zeros(len(self.positions) - 1)}


class _Unbent(Power):
    """The law as intervals see it."""

    def _steepness(self, line: Any, xp: Any) -> Any:
        return super()._steepness(xp.maximum(line, 0.0), xp) + xp.minimum(line, 0.0) / 2
