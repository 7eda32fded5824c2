"""Clipping: inverse propensities as weights, how many clicks they are worth, and where to cut them off."""

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

KEPT_SHARE = 0.5
"""Share of the clicks that the effective sample size must reach where the clip is chosen."""
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


def choose_clip(propensity: ArrayLike, clicks: ArrayLike | None = None, *, share: float = KEPT_SHARE) -> float | None:
    """Return the least clip that keeps the effective sample size at `share` of the clicks, None if none is needed.

    With n_eff(τ) the effective sample size of the weights 1 / max(p, τ) over all N clicks,

        clip = min {τ among the propensities of the clicks : n_eff(τ) ≥ share · N}.

    n_eff grows with τ, up to N where all weights are equal, so that there always is one. It bounds the variance of a
    small log; its bias does not vanish as clicks grow in number, see `vanishing_clip`.

    Args:
        propensity: p, [n].
        clicks: how many clicks each stands for, [n]; one by default.
        share: effective share of the clicks to keep, from 0 to 1.

    Example:
        Seven clicks at propensity 1, two at .5 and one at .05: unclipped, the effective sample size is 2.3 clicks.

        >>> choose_clip([1, 0.5, 0.05], clicks=[7, 2, 1])
        0.5
    """
    if not 0 <= share <= 1:
        raise InputError(f"the effective share to keep is {share}: expected a number from 0 to 1")
    p = np.asarray(propensity, dtype=np.float64)
    c = np.ones_like(p) if clicks is None else np.asarray(clicks, dtype=np.float64)
    clicked = c > 0
    if not clicked.any():
        return None
    tau, cell = np.unique(p[clicked], return_inverse=True)
    counts = np.bincount(cell, weights=c[clicked])
    clipped = np.cumsum(counts)
    with np.errstate(divide="ignore", invalid="ignore"):  # a propensity of 0 is never enough
        # In units of 1/τ a clipped click weighs 1 and any other τ/p; both sums run over the propensities above τ.
        above = [np.cumsum((counts * tau**-power)[::-1])[::-1] - counts * tau**-power for power in (1.0, 2.0)]
        sums, squares = (clipped + above[i] * tau ** (i + 1) for i in (0, 1))
        # Rounding must not turn away the last one, where all weights are equal.
        enough = sums**2 / squares >= share * clipped[-1] * (1 - 1e-9)
    first = int(np.argmax(enough))
    return None if first == 0 else float(tau[first])


@dataclass(frozen=True)
class WeightSums:
    """What is told of weights over the clicks.

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
        told = {"infinite": (p < LEAST).ifelse(1, 0).sum()} if clip is None else {}
        told |= {} if clip is None else {"clipped": (p < clip).ifelse(clicks, 0.0).sum()}
        sums = rows.aggregate(
            clicks=clicks.sum(),
            weights=(clicks * weight).sum(),
            squares=(clicks * weight * weight).sum(),
            least=p.min(),
            **told,
        )
        (found,) = engine.fetch(sums, task="Summing weights").to_pylist()
        _refuse_infinite(int(found.get("infinite", 0)), "row")
        return cls(
            mean=found["weights"] / found["clicks"] if found["clicks"] else 1.0,
            effective=found["weights"] ** 2 / found["squares"] if found["squares"] else 0.0,
            largest=1 / max(found["least"], clip or 0.0),
            clipped=round(found.get("clipped", 0)),
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
