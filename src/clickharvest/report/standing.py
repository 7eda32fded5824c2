"""Standing: how well each position is known in one context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.propensities import Propensities
from clickharvest.model.summary import typical_context

State = Literal["unlinked", "wide", "thin", "rough", "good"]

ROUGH = 2.0
"""An interval whose ends differ by this factor or more is rough."""
UNKNOWN = 10.0
"""An interval whose ends differ by this factor or more is no finding."""
FEW = 5
"""A position that rests on fewer effective queries than this is thin."""


@dataclass(frozen=True)
class Standing:
    """How well one position is known.

    Attributes:
        position: the position.
        state: `unlinked` to the anchor; `wide`, an interval that spans `UNKNOWN` or more; `thin`, fewer than `FEW`
            effective queries; `rough`, an interval that spans `ROUGH` or more; or `good`.
        propensity: the estimate; None where there is none.
        lower: lower end of its interval; None without one.
        upper: upper end, likewise.
    """

    position: int
    state: State
    propensity: float | None
    lower: float | None
    upper: float | None

    @property
    def factor(self) -> float:
        """The factor that the interval spans; infinite without one."""
        if self.lower is None or self.upper is None or not self.lower:
            return float("inf")
        return self.upper / self.lower


def standings(
    model: Propensities, x: NDArray[np.float64] | None = None, *, level: float = 0.95
) -> tuple[Standing, ...]:
    """Return how well every position but the anchor is known.

    Args:
        model: the model.
        x: the encoded context, [1, d]; the typical one by default.
        level: level of the intervals.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2, 3), anchor=1, n_features=0)
        >>> b = np.log([0.5, 0.2])
        >>> draws = b + np.array([[-0.1, -2.0], [0.0, 0.0], [0.1, 2.0]])
        >>> model = Propensities(curve, {"b": b}, None, (1, 2, 3, 4), draws, "bootstrap")
        >>> [(own.position, own.state) for own in standings(model)]
        [(2, 'good'), (3, 'wide'), (4, 'unlinked')]
    """
    predicted = model.predict_encoded(typical_context(model) if x is None else x, level=level)
    queries = _effective_queries(model)
    found = []
    for i, k in enumerate(model.shown):
        if k == model.curve.anchor:
            continue
        numbers = [float(part[0, i]) for part in (predicted.propensity, predicted.lower, predicted.upper)]
        told = [number if np.isfinite(number) else None for number in numbers]
        own = Standing(k, "good", *told)
        found.append(Standing(k, _state(own, queries.get(k)), *told))
    return tuple(found)


def _state(own: Standing, queries: float | None) -> State:
    if own.propensity is None:
        return "unlinked"
    if own.factor >= UNKNOWN:
        return "wide"
    if queries is not None and queries < FEW:
        return "thin"
    return "rough" if own.factor >= ROUGH else "good"


def _effective_queries(model: Propensities) -> dict[int, float]:
    """Return how many queries of equal weight the positions rest on, as far as the model tells."""
    clustered = model.info.get("clustered")
    told = clustered.get("effective_queries") if isinstance(clustered, Mapping) else None
    return dict(zip(model.curve.positions, told or (), strict=False))
