"""Affine clicks: what a click at each position says of a click at the anchor, where trust in high ranks matters too.

Where users believe what stands high, a click depends on relevance *and* on the position, even once a result is seen:

    E[C | u, k] = α_k r_u + β_k.

Relevance is known by clicks alone, and so neither its zero nor its unit is. But the click rate c_u of a unit at the
anchor is an affine function of r_u, and so is that at any position:

    E[C | u, k] = a_k c_u + b_k,     a_k = α_k / α_1,     b_k = β_k − β_1 a_k,

and these are identified as soon as relevance varies. (C − b_k) / a_k has the expectation of a click at the anchor,
whatever position it comes from. With b = 0 this is the examination model, and a_k its propensities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.model.provenance import Provenance
from clickharvest.model.soundness import LONGEST, check_info
from clickharvest.model.storage import write_file
from clickharvest.model.summary import aligned, spell_fitted, wrap
from clickharvest.model.support import CANNOT_TELL, cannot_tell, rests_on_few
from clickharvest.words import spell_positions

Array = NDArray[np.float64]

LARGEST = 1e6
"""Largest slope, offset or variance: more is damage, or a forgery."""
SIGN = 0.05
"""p-value below which offsets are called needed."""


@dataclass(frozen=True, eq=False)
class AffinePrediction:
    """Slopes and offsets of K positions with their intervals, [K] each.

    Attributes:
        positions: every position of the data, ascending.
        slope: a_k; NaN at positions that nothing links to the anchor.
        slope_lower: lower ends, NaN without error bars.
        slope_upper: upper ends.
        offset: b_k.
        offset_lower: lower ends.
        offset_upper: upper ends.
        supported: whether clicks there can be corrected: the position is linked to the anchor, and its slope is known
            to a factor of ten or better.
    """

    positions: tuple[int, ...]
    slope: Array
    slope_lower: Array
    slope_upper: Array
    offset: Array
    offset_lower: Array
    offset_upper: Array
    supported: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AffineModel:
    """A fitted affine model.

    Attributes:
        anchor: the position whose clicks are the unit: a = 1 and b = 0.
        positions: the positions with an estimate, ascending, K.
        slope: a_k, [K].
        offset: b_k, [K].
        covariance: of all slopes, then all offsets, clustered by query, [2 K, 2 K]; None without error bars.
        shown: every position of the data, ascending.
        info: whatever else a reader may ask for; `anchor_rate` is clicks per display at the anchor,
            `effective_queries` on how many queries the error bars rest.
        provenance: where it comes from.

    Example:
        Of a position whose clicks fall by half, and for whom .1 of a click at position 1 is trust alone:

        >>> model = AffineModel(1, (1, 2), np.array([1.0, 0.5]), np.array([0.0, -0.05]), None, (1, 2))
        >>> model.correct([1, 0, 1], [2, 2, 1]).tolist()  # (1 + .05) / .5, .05 / .5, 1
        [2.1, 0.1, 1.0]
    """

    kind: ClassVar[str] = "affine"
    context: ClassVar[tuple[str, ...]] = ()

    anchor: int
    positions: tuple[int, ...]
    slope: Array
    offset: Array
    covariance: Array | None
    shown: tuple[int, ...]
    info: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        k = len(self.positions)
        for number in (self.anchor, *self.positions, *self.shown):
            if type(number) is not int or not 1 <= number < 2**31:
                raise InputError(f"a position is {str(number)[:20]}; expected an integer from 1")
        for name, ks in (("positions", self.positions), ("shown", self.shown)):
            if list(ks) != sorted(set(ks)):
                raise InputError(f"{name} do not ascend")
        if len(self.shown) > LONGEST:
            raise InputError(f"more than {LONGEST:,} positions: expected a smaller model")
        if self.anchor not in self.positions or not set(self.positions) <= set(self.shown):
            raise InputError("the positions must hold the anchor, and be among those shown")
        shapes = {"slope": (k,), "offset": (k,), "covariance": (2 * k, 2 * k)}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is None and name == "covariance":
                continue
            array = np.array(value, np.float64)
            if array.shape != shape or not (np.abs(array) <= LARGEST).all():
                raise InputError(f"{name} has the shape {array.shape}; expected numbers {shape} up to {LARGEST:g}")
            object.__setattr__(self, name, array)
        here = self.positions.index(self.anchor)
        if (self.slope[here], self.offset[here]) != (1.0, 0.0):
            raise InputError("the slope of the anchor is not 1, or its offset not 0")
        if self.covariance is not None and (np.diag(self.covariance) < 0).any():
            raise InputError("a variance is negative")

    def __str__(self) -> str:
        predicted = self.predict()
        rows = [
            [str(k), _cell(predicted.slope[i]), _span(predicted, "slope", i), _cell(predicted.offset[i]),
             _span(predicted, "offset", i), "" if predicted.supported[i] else CANNOT_TELL]
            for i, k in enumerate(self.shown)
        ]  # fmt: skip
        header = ["position", "slope", "95 % interval", "offset", "95 % interval", ""]
        parts = [
            wrap("Affine clicks: where trust in the position counts beside examination and relevance"),
            spell_fitted(self.info),
            wrap(
                f"Of a result that is clicked with probability c at position {self.anchor}, the click probability "
                "elsewhere is slope · c + offset:"
            ),
            aligned(header, rows),
            *map(wrap, self.sentences()),
        ]
        return "\n\n".join(part for part in parts if part)

    def sentences(self) -> list[str]:
        """Return what was found, in words."""
        told = []
        test = self.offset_test()
        if test is None and self.covariance is not None:
            told.append("Too few queries to test whether offsets are needed: look at their intervals.")
        if test is not None:
            p = "p < 0.001" if test[1] < 0.001 else f"p = {test[1]:.3f}"
            if test[1] < SIGN:
                told.append(
                    f"Offsets are needed ({p}): how clicks fall with the position depends on the result, as when "
                    "people trust what stands high. Propensities alone would be off."
                )
            else:
                told.append(
                    f"No sign that offsets are needed ({p}): slopes are what propensities are, and the examination "
                    "model, fit --model examination, tells them more exactly."
                )
        floor, rate = self.floor(), self.info.get("anchor_rate")
        if floor is not None and isinstance(rate, int | float) and rate > 0:
            told.append(
                f"Of 100 clicks at position {self.anchor}, at least {100 * min(floor / rate, 1.0):.0f} come whatever "
                "the result is (95 % confidence)."
                if floor > 0
                else f"Nothing says that clicks at position {self.anchor} come whatever the result is."
            )
        told.append("Corrected click: (click - offset) / slope, of every display, clicked or not.")
        lost = [k for k, fine in zip(self.shown, self.predict().supported, strict=True) if not fine]
        if lost:
            told.append(
                f"Cannot tell position{'s' if len(lost) > 1 else ''} {spell_positions(lost)}: nothing links them to "
                f"position {self.anchor}, or their slopes span a factor of ten."
            )
        return told

    def describe(self) -> dict[str, Any]:
        """Return what the model says of itself, as JSON holds it."""
        predicted, test = self.predict(), self.offset_test()
        names = ("slope", "slope_lower", "slope_upper", "offset", "offset_lower", "offset_upper")
        return {
            "model": self.kind,
            "anchor": self.anchor,
            "positions": [
                {"position": k, **{name: _finite(getattr(predicted, name)[i]) for name in names},
                 "supported": bool(predicted.supported[i])}
                for i, k in enumerate(self.shown)
            ],
            "offsets_needed": None if test is None else {"statistic": test[0], "p_value": test[1]},
            "clicks_whatever_the_result": self.floor(),
            "sentences": self.sentences(),
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }  # fmt: skip

    def predict(self, *, level: float = 0.95) -> AffinePrediction:
        """Return slopes and offsets of every position shown with intervals: a · exp(± z sd / a) and b ± z sd.

        z is the quantile of Student's t with as many degrees of freedom as effective queries, less one.
        """
        if not 0 < level < 1:
            raise InputError(f"the level of an interval is {level}; expected a number between 0 and 1, such as 0.95")
        z, k = self._quantile((1 - level) / 2), len(self.positions)
        sd = np.full(2 * k, np.nan) if self.covariance is None else np.sqrt(np.diag(self.covariance))
        with np.errstate(all="ignore"):
            ratio = np.where(self.slope > 0, np.exp(np.minimum(z * sd[:k] / self.slope, 700.0)), np.nan)
        columns = {
            "slope": self.slope, "slope_lower": self.slope / ratio, "slope_upper": self.slope * ratio,
            "offset": self.offset, "offset_lower": self.offset - z * sd[k:], "offset_upper": self.offset + z * sd[k:],
        }  # fmt: skip
        fine = (self.slope > 0) & ~cannot_tell(columns["slope_lower"], columns["slope_upper"])
        at = np.searchsorted(self.shown, self.positions)
        supported = np.zeros(len(self.shown), bool)
        supported[at] = fine
        filled = {}
        for name, column in columns.items():
            filled[name] = np.full(len(self.shown), np.nan)
            filled[name][at] = column
        return AffinePrediction(self.shown, **filled, supported=supported)

    def offset_test(self) -> tuple[float, float] | None:
        """Return the statistic and the p-value of "all offsets are 0"; None without error bars.

        It is the largest |b_k| in standard errors, over the m positions but the anchor; its p-value is m times that of
        Student's t with Q − 1 degrees of freedom, where Q are the effective queries. None too where these are too few.
        (Hotelling's bᵀ V⁻¹ b counts directions in which V is hardly known: it rejects too often where relevance nearly
        decides the position, and sees mild trust less often.)
        """
        from scipy.special import stdtr  # scoring needs NumPy alone

        others = np.flatnonzero(np.array(self.positions) != self.anchor)
        queries = self.info.get("effective_queries")
        if self.covariance is None or not isinstance(queries, int | float) or rests_on_few(queries):
            return None
        error = np.sqrt(np.diag(self.covariance)[len(self.positions) + others])
        largest = float(np.max(np.abs(self.offset[others]) / np.maximum(error, np.finfo(float).tiny)))
        return largest, min(1.0, float(2 * len(others) * stdtr(queries - 1, -largest)))

    def floor(self) -> float | None:
        """Return what the click rate of any result at the anchor is at least, with 95 % confidence; None if unknown.

        No click rate is negative, so β_k = a_k β_1 + b_k ≥ 0, that is β_1 ≥ −b_k / a_k at every position: where a line
        reaches 0 before relevance does, clicks at the anchor come without relevance. The largest lower confidence bound
        of −b_k / a_k is told, each at 1 − .05 / m for m positions. It is 0 where nothing speaks for such clicks, as
        where offsets are not needed (`offset_test`), and unknown where queries are too few to test that.
        """
        test = self.offset_test()
        if test is None and self.info.get("effective_queries") is not None:
            return None
        if test is not None and test[1] >= SIGN:
            return 0.0
        fine = self.predict().supported[np.searchsorted(self.shown, self.positions)]
        others = np.flatnonzero((np.array(self.positions) != self.anchor) & fine)
        if self.covariance is None or not len(others):
            return None
        z, k = self._quantile(0.05 / len(others)), len(self.positions)
        best = 0.0
        for i in others:
            a, b = self.slope[i], self.offset[i]
            gradient = np.array([b / a**2, -1 / a])
            own = self.covariance[np.ix_([i, k + i], [i, k + i])]
            best = max(best, float(-b / a - z * np.sqrt(max(gradient @ own @ gradient, 0.0))))
        return min(best, 1.0)

    def _quantile(self, tail: float) -> float:
        """Return the upper quantile of Student's t, by its expansion around the normal's (Cornish and Fisher)."""
        z, rests_on = -NormalDist().inv_cdf(tail), self.info.get("effective_queries")
        if not isinstance(rests_on, int | float):
            return z
        n = max(rests_on - 1, 2.0)
        return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)

    def correct(self, clicks: ArrayLike, position: ArrayLike, impressions: ArrayLike = 1.0) -> Array:
        """Return (C − n b_k) / a_k: what as many displays would have been clicked at the anchor, in expectation, [n].

        NaN at positions that are not supported (`predict`). Displays without a click count too: theirs is −b_k / a_k.

        Args:
            clicks: clicks C of each row, [n].
            position: its position k, [n].
            impressions: its displays n, [n]; one by default.
        """
        known = self.predict()
        at = np.searchsorted(self.shown, np.asarray(position))
        at = np.minimum(at, len(self.shown) - 1)
        fine = (np.array(self.shown)[at] == np.asarray(position)) & known.supported[at]
        shown = np.asarray(impressions, np.float64)
        corrected = (np.asarray(clicks, np.float64) - shown * known.offset[at]) / known.slope[at]
        return np.where(fine, corrected, np.nan)

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all, that `load_model` reads."""
        tensors = {"slope": self.slope, "offset": self.offset}
        if self.covariance is not None:
            tensors["covariance"] = self.covariance
        header = {
            "model": self.kind,
            "anchor": self.anchor,
            "positions": list(self.positions),
            "shown": list(self.shown),
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }
        write_file(Path(path), header, tensors)


def affine_from_file(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> AffineModel:
    """Return the model of a file's header and tensors, checked; whatever it raises, the file is not sound."""
    if not {"slope", "offset"} <= tensors.keys() <= {"slope", "offset", "covariance"}:
        raise InputError(f"it has the tensors {', '.join(sorted(tensors))[:80]}; expected slope, offset, covariance")
    if not isinstance(header["info"], Mapping):
        raise InputError("its info is no mapping; fit again")
    check_info(header["info"])
    origin = header["provenance"]
    return AffineModel(
        header["anchor"],
        tuple(header["positions"]),
        tensors["slope"],
        tensors["offset"],
        tensors.get("covariance"),
        tuple(header["shown"]),
        header["info"],
        None if origin is None else Provenance.from_dict(origin),
    )


def _cell(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "-"


def _span(predicted: AffinePrediction, name: str, i: int) -> str:
    low, high = (getattr(predicted, f"{name}_{end}")[i] for end in ("lower", "upper"))
    return f"{low:.4f} to {high:.4f}" if np.isfinite(low) and predicted.supported[i] else "-"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
