"""Standing: how well each position is known, context by context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.cautions import effective_clusters
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import cannot_tell, rests_on_few
from clickharvest.model.typical import typical_context

State = Literal["unlinked", "unsupported", "wide", "thin", "rough", "good"]

ROUGH = 2.0
"""An interval whose ends differ by this factor or more is rough."""


@dataclass(frozen=True)
class Standing:
    """How well one position is known in one context.

    Attributes:
        position: the position.
        state: `unlinked` to the anchor, so that there is no number; `unsupported` by the data in this context; `wide`,
            an interval that tells nothing (`model.cannot_tell`); `thin`, resting on few effective queries, or users, if
            they cluster; `rough`, an interval that spans `ROUGH` or more; or `good`.
        propensity: the estimate; None where there is none that could be shown.
        lower: lower end of its interval; None without one.
        upper: upper end, likewise.
        note: what the model says of the number, see `Prediction.notes`.
    """

    position: int
    state: State
    propensity: float | None
    lower: float | None
    upper: float | None
    note: str | None = None

    @property
    def factor(self) -> float:
        """The factor that the interval spans; infinite without one."""
        return self.upper / self.lower if self.lower and self.upper else float("inf")


def standings(
    model: Propensities, x: NDArray[np.float64] | None = None, *, level: float = 0.95
) -> list[tuple[Standing, ...]]:
    """Return how well every position but the anchor is known, for every context.

    Args:
        model: the model.
        x: encoded contexts, [n, d]; the typical one alone by default.
        level: level of the intervals.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2, 3), anchor=1, n_features=0)
        >>> b = np.log([0.5, 0.2])
        >>> draws = b + np.array([[-0.1, -2.0], [0.0, 0.0], [0.1, 2.0]])
        >>> model = Propensities(curve, {"b": b}, None, (1, 2, 3, 4), draws, "bootstrap")
        >>> [(own.position, own.state) for own in standings(model)[0]]
        [(2, 'good'), (3, 'wide'), (4, 'unlinked')]
    """
    predicted = model.predict_encoded(typical_context(model) if x is None else x, level=level)
    by_query: dict[int, float | None] = dict(zip(model.shown, predicted.queries or (), strict=False))
    notes, clusters = predicted.notes(), effective_clusters(model) or by_query
    rows = []
    for row in range(len(predicted.propensity)):
        found = []
        for i, k in enumerate(model.shown):
            if k == model.curve.anchor:
                continue
            numbers = [float(part[row, i]) for part in (predicted.propensity, predicted.lower, predicted.upper)]
            p, lower, upper = (number if np.isfinite(number) else None for number in numbers)
            supported = bool(predicted.supported[row, i])
            state = _state(p, lower, upper, supported, clusters.get(k))
            found.append(Standing(k, state, p if supported else None, lower, upper, notes[row, i]))
        rows.append(tuple(found))
    return rows


def _state(p: float | None, lower: float | None, upper: float | None, supported: bool, clusters: float | None) -> State:
    if p is None or not supported:
        return "unlinked" if p is None else "unsupported"
    if lower is not None and upper is not None and bool(cannot_tell(lower, upper)):
        return "wide"
    if rests_on_few(clusters):
        return "thin"
    if lower is None or upper is None:
        return "good"
    return "rough" if upper >= ROUGH * lower else "good"
