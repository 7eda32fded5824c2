"""Contrasts: whether examination differs between contexts by more than chance, and which way.

Two curves with intervals that overlap may differ, and two that do not look alike may not: what tells is the error of
their ratio. Draws of the parameters give it, as they move both curves at once. `benchmarks/contrasts.py` has how often
what is called clear is so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.model.curves import Curve, Params, unflatten_params
from clickharvest.model.prediction import Prediction

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

NORMALS = 4_000
"""Normal draws whose largest deviations tell what chance does among all that is compared."""
AT_ONCE = 4_000_000
"""Deviations held at once, about 30 MB."""
NOTHING = 1e-9
"""Standard deviation of a log ratio up to which it is the same for all parameters, but for rounding."""


class _Model(Protocol):
    """What contrasts need of `Propensities`."""

    @property
    def curve(self) -> Curve: ...
    @property
    def params(self) -> Params: ...
    @property
    def draws(self) -> NDArray[np.float32] | None: ...
    def spread(self) -> tuple[Curve, Array, float]: ...
    def predict_encoded(self, x: ArrayLike, *, level: float = 0.95) -> Prediction: ...


@dataclass(frozen=True)
class Contrast:
    """Two contexts and the position at which they differ most clearly.

    Attributes:
        high: number of the context in which the position is looked at more.
        low: number of the other one.
        position: the position.
        clear: whether the difference is beyond chance, all that was compared being counted.
        deeper: number of the context that is read further down: less is looked at above the anchor, or more below it.
            None unless the last position that can be compared says so, too; its sign alone is asked.
    """

    high: int
    low: int
    position: int
    clear: bool
    deeper: int | None


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Ratios of examination between m pairs of contexts at K positions.

    They tell which of two contexts is read further down, not by how much: what a curve is off by at a position in a
    single context is in the intervals of its propensities, and cancels here.

    Attributes:
        positions: the positions of the curve, [K].
        anchor: the position that examination is relative to.
        pairs: the two contexts of each pair, [m, 2].
        column: what the contexts of each pair differ in, [m].
        log_ratio: log p_k of the first over that of the second, [m, K]; NaN where one of them is not supported, or has
            an interval that tells nothing.
        sd: its standard deviation, [m, K], likewise.
        z: how many of them a log ratio must be away from 0 to be clear beside all others.
    """

    positions: tuple[int, ...]
    anchor: int
    pairs: Integers
    column: Integers
    log_ratio: Array
    sd: Array
    z: float

    def clearest(self, column: int | None = None) -> Contrast | None:
        """Return what differs most clearly, by standard deviations; None where nothing can be compared, or differs.

        Args:
            column: look only at contexts that differ in this column.
        """
        own = np.ones(len(self.pairs), dtype=np.bool_) if column is None else self.column == column
        far = np.where(own[:, None], np.abs(self.log_ratio) / self.sd, np.nan)
        if not np.nansum(far):
            return None
        i, k = np.unravel_index(int(np.nanargmax(far)), far.shape)
        known = np.flatnonzero(np.isfinite(self.log_ratio[i]))
        # Positive where the first of the two is read further down.
        depth = self.log_ratio[i] * np.sign(np.array(self.positions) - self.anchor)
        first, second = self.pairs[i].tolist()
        high, low = (first, second) if self.log_ratio[i, k] > 0 else (second, first)
        deeper = (first if depth[k] > 0 else second) if depth[k] * depth[known[-1]] > 0 else None
        return Contrast(high, low, self.positions[k], bool(far[i, k] > self.z), deeper)


def find_contrasts(
    model: _Model, x: Array, column: ArrayLike | None = None, *, level: float = 0.95
) -> Contrasts | None:
    """Compare contexts with each other, two and two; None where the model has no intervals.

    The log ratio log p_k(x_a) − log p_k(x_b) has the standard deviation that the draws of the parameters give it. z is
    the `level` quantile of the largest |error| / sd of all pairs and positions, over normal errors with the draws'
    covariance: if no context differs from another, a difference is called clear in 1 − `level` of all logs at most.

    Args:
        model: the model.
        x: encoded contexts, [n, d].
        column: what each differs in from a common one, [n]: contexts are compared within columns alone. None compares
            all with each other.
        level: how often nothing is called clear where nothing differs.

    Raises:
        InputError: `column` is not as long as x.

    Example:
        Log p_2 of phones is −1.5 ± 0.2 and that of desks −0.5 ± 0.2, independently: 1 apart, ± 0.3.

        >>> from clickharvest.model.contexts import ContextEncoder
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> encoder = ContextEncoder.fit({"device": ["desk", "phone"]})
        >>> log_p, away = np.array([0.0, -0.5, -1.5, 0.0]), 0.2 * np.array([[0, 1, 1, 0], [0, 1, -1, 0]])
        >>> model = Propensities(
        ...     make_curve("linear", (1, 2), 1, 3), {"b": log_p[:1], "W": log_p[1:, None]}, encoder, (1, 2),
        ...     draws=log_p + np.concatenate([away, -away]), draws_kind="bootstrap")
        >>> find_contrasts(model, np.eye(3)[:2]).clearest()
        Contrast(high=0, low=1, position=2, clear=True, deeper=0)
    """
    x = np.asarray(x, dtype=np.float64)
    columns = np.zeros(len(x), dtype=np.intp) if column is None else np.asarray(column, dtype=np.intp)
    if columns.shape != (len(x),):
        raise InputError(f"column is {columns.shape}; expected one number for each of {len(x)} contexts")
    if model.draws is None:
        return None
    positions, predicted = model.curve.positions, model.predict_encoded(x, level=level)
    of_curve = np.isin(predicted.positions, positions)
    known = predicted.supported[:, of_curve] & (np.array(positions) != model.curve.anchor)
    found = [(a, b) for a, b in combinations(range(len(x)), 2) if columns[a] == columns[b]]
    pairs = np.array(found, dtype=np.intp).reshape(-1, 2)
    errors = errors_of(model, x)
    log_p = model.curve.relative(model.params, x)
    log_ratio, sd = np.full((2, len(pairs), len(positions)), np.nan)
    for i, (a, b) in enumerate(pairs):
        own = (errors[:, a] - errors[:, b]).std(axis=0, ddof=1)
        both = known[a] & known[b] & (own > NOTHING)
        log_ratio[i, both], sd[i, both] = (log_p[a] - log_p[b])[both], own[both]
    z = float(np.quantile(_largest(errors, pairs, sd), level))
    return Contrasts(positions, model.curve.anchor, pairs, columns[pairs[:, 0]], log_ratio, sd, z)


def _largest(errors: Array, pairs: Integers, sd: Array) -> Array:
    """Return the largest |deviation| / sd of all pairs and positions, in normal draws of the errors, [draws]."""
    random, largest = np.random.default_rng(0), np.zeros(NORMALS)
    size = max(1, AT_ONCE // max(errors[0].size, 1))
    for begin in range(0, NORMALS, size):
        some = largest[begin : begin + size]
        noise = random.normal(size=(len(some), len(errors))) / np.sqrt(max(len(errors) - 1, 1))
        normal = np.einsum("rb,bnk->rnk", noise, errors, optimize=True)
        for (a, b), own in zip(pairs, sd, strict=True):
            known = np.isfinite(own)
            far = np.abs(normal[:, a] - normal[:, b])[:, known] / own[known]
            np.maximum(some, far.max(axis=1, initial=0.0), out=some)
    return largest


def errors_of(model: _Model, x: Array) -> Array:
    """Return what the draws' log p deviates by from its mean, [draws, n, K]; their covariance is that of log p."""
    curve, draws, scale = model.spread()
    log_p = np.stack([scale * curve.relative(unflatten_params(draw, model.params), x) for draw in draws])
    deviations: Array = log_p - log_p.mean(axis=0)
    return deviations
