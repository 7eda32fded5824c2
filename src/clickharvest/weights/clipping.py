"""Clipping: inverse propensities as weights, where to cut them off, and the effective sample size that is left."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.words import count

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.engines import Engine

LEAST = sys.float_info.min
"""Below this a propensity is 0: its inverse is not finite."""
SQUARABLE = 1e-140
"""Engines sum the squares of the inverse of this, and of nothing smaller."""


def ips_weights(propensity: ArrayLike, clip: float | None = None) -> NDArray[np.float64]:
    """Return 1 / max(p, clip): p [n] → [n].

    Example:
        >>> ips_weights([1.0, 0.5, 0.01], clip=0.1)
        array([ 1.,  2., 10.])
    """
    with np.errstate(divide="ignore"):
        return 1 / np.maximum(np.asarray(propensity, dtype=np.float64), 0.0 if clip is None else clip)


def effective_sample_size(weight: ArrayLike, clicks: ArrayLike | None = None) -> float:
    """Return (Σ_i c_i w_i)² / Σ_i c_i w_i²: weights w [n] of which each counts c [n] times (once by default).

    Example:
        >>> effective_sample_size([1, 1, 1, 1]), effective_sample_size([1, 3], clicks=[2, 0])
        (4.0, 2.0)
    """
    w = np.asarray(weight, dtype=np.float64)
    c = np.ones_like(w) if clicks is None else np.asarray(clicks, dtype=np.float64)
    w = w / max(float(np.abs(w).max(initial=0.0)), 1.0)  # it is the same at any scale, and squares stay finite
    squares = float((c * w**2).sum())
    return float((c * w).sum()) ** 2 / squares if squares else 0.0


def vanishing_clip(clicks: float) -> float:
    """Return 1 / √clicks: a clip whose bias vanishes as clicks grow in number, and whose weights stay below √clicks.

    Ionides (2008) shows that truncating weights at √n loses nothing in the limit.

    Example:
        >>> vanishing_clip(10_000), vanishing_clip(0)
        (0.01, 1.0)
    """
    return float(1 / np.sqrt(max(clicks, 1.0)))


@dataclass(frozen=True)
class WeightSums:
    """Sums of the weights over the clicks.

    Attributes:
        mean: their mean; 1 without clicks.
        effective: effective sample size.
        largest: the largest weight of all rows.
        clipped: clicks whose propensity is below the clip.
    """

    mean: float
    effective: float
    largest: float
    clipped: int

    @classmethod
    def of_cells(cls, propensity: NDArray[np.float64], clicks: NDArray[np.int64], clip: float | None) -> WeightSums:
        """Sum up cells: p [n], each with so many clicks [n].

        Example:
            >>> WeightSums.of_cells(np.array([1.0, 0.5]), np.array([4, 4]), clip=None)
            WeightSums(mean=1.5, effective=7.2, largest=2.0, clipped=0)
        """
        weight = ips_weights(propensity, clip)
        _refuse_infinite(int(np.count_nonzero(~np.isfinite(weight))), "cell")
        return cls(
            mean=float(np.average(weight, weights=clicks)) if clicks.any() else 1.0,
            effective=effective_sample_size(weight, clicks),
            largest=float(weight.max()),
            clipped=0 if clip is None else int(clicks[propensity < clip].sum()),
        )

    @classmethod
    def of_rows(cls, engine: Engine, rows: ir.Table, clip: float | None) -> WeightSums:
        """Sum up a table with the columns `propensity` and `clicks`, inside its engine."""
        p, clicks = rows.propensity, rows.clicks.cast("float64")
        weight = inverse(p, max(clip or 0.0, SQUARABLE))
        below = (p < LEAST).ifelse(1.0, 0.0) if clip is None else (p < clip).ifelse(clicks, 0.0)
        table = rows.aggregate(
            clicks=clicks.sum(),
            weights=(clicks * weight).sum(),
            squares=(clicks * weight * weight).sum(),
            least=p.min(),
            below=below.sum(),
        )
        (sums,) = engine.fetch(table, task="Summing weights").to_pylist()
        _refuse_infinite(round(sums["below"]) if clip is None else 0, "row")
        return cls(
            mean=sums["weights"] / sums["clicks"] if sums["clicks"] else 1.0,
            effective=sums["weights"] ** 2 / sums["squares"] if sums["squares"] else 0.0,
            largest=1 / max(sums["least"], clip or 0.0),
            clipped=0 if clip is None else round(sums["below"]),
        )


def inverse(propensity: ir.Value, clip: float | None, scale: float = 1.0) -> ir.Value:
    """Return 1 / max(p, clip) / scale as an expression; finite, because engines do not agree on what 1 / 0 is."""
    import ibis

    return 1.0 / scale / ibis.greatest(propensity, LEAST if clip is None else clip)


def _refuse_infinite(number: int, where: str) -> None:
    if number:
        raise InputError(
            f"a propensity of 0 in {count(number, where)} makes weights infinite: clip them, such as with clip=0.01 "
            "(--clip 0.01)"
        )
