"""A fitted affine model: click rates at each position as an affine function of those at the anchor.

Where users trust what stands high, a click depends on relevance *and* on the position, even once a result is seen:

    E[C | u, k] = α_k r_u + β_k.

Clicks identify neither the zero nor the unit of relevance. But the click rate c_u of a unit at the anchor is an affine
function of r_u, and so is the rate at any position:

    E[C | u, k] = a_k c_u + b_k,     a_k = α_k / α_1,     b_k = β_k − β_1 a_k,

and a and b are identified as soon as relevance varies. (C − b_k) / a_k has the expectation of a click at the anchor,
whatever position it comes from. With b = 0 this is the examination model, and a_k are its propensities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.click_models.base import Array, Header, OtherModel, Tensors
from clickharvest.errors import InputError
from clickharvest.model.budget import CANNOT_TELL
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.propensities import LONGEST, Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.summary import aligned, spell_fitted, wrap
from clickharvest.model.support import rests_on_few
from clickharvest.words import finite, spell_positions

LARGEST = 1e6
"""Largest slope, offset or variance: a file with a larger one is damaged or forged."""
BEST = 2.33
"""Standard deviations between the best of a hundred results and the average one."""
SPAN = 10.0
"""A factor between the ends of a slope's interval from which the interval is useless."""
SIGN = 0.05
"""p-value below which offsets are called needed."""


class AffinePrediction(NamedTuple):
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


class Lines(NamedTuple):
    """Slopes and offsets that correct the clicks of n rows, [n] each.

    Attributes:
        slope: a, 1 without support.
        offset: b, 0 without support.
        sd: standard deviation of a c + b at the mean click rate c at the anchor.
        supported: whether clicks there can be corrected.
    """

    slope: Array
    offset: Array
    sd: Array
    supported: NDArray[np.bool_]


class FittedAffine(OtherModel):
    """What an affine model and one of several levels have in common."""

    kind: ClassVar[str] = "affine"
    title: ClassVar[str]

    @property
    @abstractmethod
    def parts(self) -> list[tuple[str, AffineModel]]:
        """The models of the levels that have one, with their names; without context one model without a name."""

    @abstractmethod
    def lines(self, position: ArrayLike, contexts: Mapping[str, Any] | None = None) -> Lines:
        """Return the slopes and offsets that correct the clicks of rows.

        Args:
            position: position of each row, [n].
            contexts: context columns, [n] each; ignored by a model without a context.
        """

    @property
    def average(self) -> Propensities:
        """How often the average result is clicked at each position, a + b / c, c being the click rate at the anchor.

        Levels count by their clicks; their errors are independent.
        """
        from clickharvest.click_models.average import average_curve

        models = [model for _, model in self.parts]
        curves = [model.clicked() for model in models]
        positions = sorted(set.intersection(*(set(curve[0]) for curve in curves)))
        weight = np.array([float(model.info.get("clicks") or 1) for model in models])
        weight /= weight.sum()
        rows = [np.searchsorted(curve[0], positions) for curve in curves]
        log_p = sum(w * curve[1][at] for w, curve, at in zip(weight, curves, rows, strict=True))
        covariance = None
        if all(curve[2] is not None for curve in curves):
            parts = zip(weight, curves, rows, strict=True)
            covariance = sum(w**2 * curve[2][np.ix_(at, at)] for w, curve, at in parts if curve[2] is not None)
        what = "clicks on the average result"
        return average_curve(positions, np.asarray(log_p), covariance, models[0].anchor, what)

    def correction_errors(self) -> Array | None:
        """Return standard errors of corrected clicks by their mean, at positions of `average`, [1, K]; None if unknown.

        They are those of the best and worst of a hundred results, c ± 2.33 standard deviations of relevance, whichever
        is larger, at the worst level.
        """
        positions, worst = self.average.curve.positions, None
        for _, model in self.parts:
            rate, spread = (float(model.info.get(name) or 0.0) for name in ("anchor_rate", "relevance_spread"))
            if model.covariance is None or not rate:
                return None
            at, k = np.searchsorted(model.positions, positions), len(model.positions)
            v = model.covariance
            a, both, b = np.diag(v)[:k][at], np.diag(v[:k, k:])[at], np.diag(v)[k:][at]
            ends = [rate + side * BEST * spread for side in (-1, 1)]
            largest = np.max([c**2 * a + 2 * c * both + b for c in ends], axis=0)
            errors = np.sqrt(np.maximum(largest, 0)) / (model.slope[at] * rate)
            worst = errors if worst is None else np.maximum(worst, errors)
        return None if worst is None else worst[None]

    def correct(
        self,
        clicks: ArrayLike,
        position: ArrayLike,
        impressions: ArrayLike = 1.0,
        contexts: Mapping[str, Any] | None = None,
    ) -> Array:
        """Return (C − n b_k) / a_k: the expected clicks on as many displays at the anchor, [n]; NaN without support.

        Displays without a click have corrected clicks, too: −b_k / a_k.

        Args:
            clicks: clicks C of each row, [n].
            position: its position k, [n].
            impressions: its displays n, [n]; one by default.
            contexts: context columns, [n] each, where the model has a context.
        """
        lines = self.lines(position, contexts)
        corrected = (np.asarray(clicks, np.float64) - np.asarray(impressions) * lines.offset) / lines.slope
        return np.where(lines.supported, corrected, np.nan)

    def __str__(self) -> str:
        header = ["position", "slope", "95 % interval", "offset", "95 % interval", ""]
        tables = [f"{name}\n{aligned(header, model.rows())}".lstrip() for name, model in self.parts]
        line = (
            f"Of a result that is clicked with probability c at position {self.parts[0][1].anchor}, the click "
            "probability elsewhere is slope · c + offset:"
        )
        parts = [wrap(self.title), spell_fitted(self.info), wrap(line), *tables, *map(wrap, self.sentences())]
        return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True, eq=False)
class AffineModel(FittedAffine):
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
        At position 2 clicks fall by half, and .1 of a click at position 1 is trust alone:

        >>> model = AffineModel(1, (1, 2), np.array([1.0, 0.5]), np.array([0.0, -0.05]), None, (1, 2))
        >>> model.correct([1, 0, 1], [2, 2, 1]).tolist()  # (1 + .05) / .5, .05 / .5, 1
        [2.1, 0.1, 1.0]
    """

    context: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str] = "Affine clicks: where trust in the position counts beside examination and relevance"

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
        for name, shape in {"slope": (k,), "offset": (k,), "covariance": (2 * k, 2 * k)}.items():
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

    @property
    def parts(self) -> list[tuple[str, AffineModel]]:
        """This model, without a name."""
        return [("", self)]

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
        slopes = (self.slope, self.slope / ratio, self.slope * ratio)
        offsets = (self.offset, self.offset - z * sd[k:], self.offset + z * sd[k:])
        at = np.searchsorted(self.shown, self.positions)
        columns = np.full((6, len(self.shown)), np.nan)
        columns[:, at] = slopes + offsets
        supported = np.zeros(len(self.shown), np.bool_)
        supported[at] = (self.slope > 0) & ~useless(*slopes[1:])
        return AffinePrediction._make((self.shown, *columns, supported))

    def clicked(self) -> tuple[tuple[int, ...], Array, Array | None]:
        """Return positions where the average result is clicked, the log of a + b / c there, and its covariance."""
        rate, k = float(self.info.get("anchor_rate") or 1.0), len(self.positions)
        p = self.slope + self.offset / rate
        known = self.predict().supported[np.searchsorted(self.shown, self.positions)] & (p > 0)
        log_p = np.log(p[known])
        jacobian = np.concatenate([np.eye(k), np.eye(k) / rate], axis=1)[known] / p[known][:, None]
        covariance = None if self.covariance is None else jacobian @ self.covariance @ jacobian.T
        return tuple(np.array(self.positions)[known].tolist()), log_p, covariance

    def lines(self, position: ArrayLike, contexts: Mapping[str, Any] | None = None) -> Lines:
        """Return the slopes and offsets that correct the clicks of rows, by their positions."""
        predicted, k = self.predict(), len(self.positions)
        at = np.minimum(np.searchsorted(self.shown, position), len(self.shown) - 1)
        known = (np.array(self.shown)[at] == np.asarray(position)) & predicted.supported[at]
        sd = np.zeros(len(self.shown))
        if self.covariance is not None:
            rate, v = float(self.info.get("anchor_rate") or 1.0), self.covariance
            variance = rate**2 * np.diag(v)[:k] + 2 * rate * np.diag(v[:k, k:]) + np.diag(v)[k:]
            sd[np.searchsorted(self.shown, self.positions)] = np.sqrt(np.maximum(variance, 0.0))
        slope, offset = np.where(known, predicted.slope[at], 1.0), np.where(known, predicted.offset[at], 0.0)
        return Lines(slope, offset, np.where(known, sd[at], 0.0), known)

    def offset_test(self) -> tuple[float, float] | None:
        """Return the statistic and the p-value of "all offsets are 0"; None without error bars.

        The statistic is the largest |b_k| in standard errors over the m positions but the anchor. Its p-value is m
        times that of Student's t with Q − 1 degrees of freedom for Q effective queries; None too where these are too
        few. (Hotelling's bᵀ V⁻¹ b would depend on directions in which V is hardly known: it rejects too often where
        relevance nearly decides the position, and detects mild trust less often.)
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
        """Return a lower bound of the click rate of any result at the anchor, with 95 % confidence; None if unknown.

        No click rate is negative, so β_k = a_k β_1 + b_k ≥ 0, that is β_1 ≥ −b_k / a_k at every position: where a line
        reaches 0 before relevance does, clicks at the anchor come without relevance. The bound is the largest lower
        confidence bound of −b_k / a_k, each at 1 − .05 / m for m positions. It is 0 where offsets are not needed
        (`offset_test`), and unknown where queries are too few for that test.
        """
        test = self.offset_test()
        if test is None and self.info.get("effective_queries") is not None:
            return None
        if test is not None and test[1] >= SIGN:
            return 0.0
        known = self.predict().supported[np.searchsorted(self.shown, self.positions)]
        others = np.flatnonzero((np.array(self.positions) != self.anchor) & known)
        if self.covariance is None or not len(others):
            return None
        z, k, best = self._quantile(0.05 / len(others)), len(self.positions), 0.0
        for i in others:
            a, b = self.slope[i], self.offset[i]
            gradient, v = np.array([b / a**2, -1 / a]), self.covariance[np.ix_([i, k + i], [i, k + i])]
            best = max(best, float(-b / a - z * np.sqrt(max(gradient @ v @ gradient, 0.0))))
        return min(best, 1.0)

    def _quantile(self, tail: float) -> float:
        """Return the upper quantile of Student's t, by its expansion around the normal's (Cornish and Fisher)."""
        z, queries = -NormalDist().inv_cdf(tail), self.info.get("effective_queries")
        if not isinstance(queries, int | float):
            return z
        n = max(queries - 1, 2.0)
        return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)

    def sentences(self) -> list[str]:
        """Return the results of the fit in words."""
        sentences = []
        test = self.offset_test()
        if test is None and self.covariance is not None:
            sentences.append("Too few queries to test whether offsets are needed: look at their intervals.")
        if test is not None:
            p = "p < 0.001" if test[1] < 0.001 else f"p = {test[1]:.3f}"
            if test[1] < SIGN:
                sentences.append(
                    f"Offsets are needed ({p}): how clicks fall with the position depends on the result, as when "
                    "people trust what stands high. Propensities alone would be off."
                )
            else:
                sentences.append(f"No sign that offsets are needed ({p}): slopes are what propensities are.")
        floor, rate = self.floor(), self.info.get("anchor_rate")
        if floor is not None and isinstance(rate, int | float) and rate > 0:
            sentences.append(
                f"Of 100 clicks at position {self.anchor}, at least {100 * min(floor / rate, 1.0):.0f} come whatever "
                "the result is (95 % confidence)."
                if floor > 0
                else f"Nothing says that clicks at position {self.anchor} come whatever the result is."
            )
        sentences.append("Corrected click: (click - offset) / slope, of every display, clicked or not.")
        unknown = [k for k, known in zip(self.shown, self.predict().supported, strict=True) if not known]
        if unknown:
            sentences.append(
                f"Cannot tell position{'s' if len(unknown) > 1 else ''} {spell_positions(unknown)}: nothing links them "
                f"to position {self.anchor}, or their slopes span a factor of ten."
            )
        return sentences

    def rows(self) -> list[list[str]]:
        """Return the cells of the table of a summary, position by position."""
        predicted, rows = self.predict(), []
        for i, k in enumerate(self.shown):
            cells = [str(k)]
            for value, low, high in (predicted[1:4], predicted[4:7]):
                known = np.isfinite(low[i]) and predicted.supported[i]
                cells.append(f"{value[i]:.4f}" if np.isfinite(value[i]) else "-")
                cells.append(f"{low[i]:.4f} to {high[i]:.4f}" if known else "-")
            rows.append([*cells, "" if predicted.supported[i] else CANNOT_TELL])
        return rows

    def describe(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        predicted, test = self.predict()._asdict(), self.offset_test()
        supported, numbers = predicted.pop("supported"), list(predicted.items())[1:]
        return {
            "model": self.kind,
            "anchor": self.anchor,
            "positions": [
                {"position": k}
                | {name: finite(float(column[i])) for name, column in numbers}
                | {"supported": bool(supported[i])}
                for i, k in enumerate(self.shown)
            ],
            "offsets_needed": None if test is None else {"statistic": test[0], "p_value": test[1]},
            "clicks_whatever_the_result": self.floor(),
            "sentences": self.sentences(),
            **self.origin(),
        }

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the tensors of a file."""
        tensors = {"slope": self.slope, "offset": self.offset, "covariance": self.covariance}
        header = {"anchor": self.anchor, "positions": list(self.positions), "shown": list(self.shown)} | self.origin()
        return header, {name: values for name, values in tensors.items() if values is not None}

    @classmethod
    def from_file(cls, header: Header, tensors: Tensors) -> AffineModel:
        """Return the model of a file's header and tensors, checked; whatever it raises, the file is not sound."""
        if not {"slope", "offset"} <= tensors.keys() <= {"slope", "offset", "covariance"}:
            raise InputError(
                f"it has the tensors {', '.join(sorted(tensors))[:80]}; expected slope, offset, covariance"
            )
        if not isinstance(header["info"], Mapping):
            raise InputError("its info is no mapping; fit again")
        FitInfo.check(header["info"])
        origin = header["provenance"]
        return cls(
            header["anchor"], tuple(header["positions"]), tensors["slope"], tensors["offset"],
            tensors.get("covariance"), tuple(header["shown"]), header["info"],
            None if origin is None else Provenance.from_dict(origin),
        )  # fmt: skip


def useless(lower: ArrayLike, upper: ArrayLike) -> NDArray[np.bool_]:
    """Return where an interval is useless, because upper / lower ≥ `SPAN`.

    Example:
        >>> useless([0.2, 0.1, 0.0, 1e-26, np.nan, 0.0], [1.9, 1.0, 0.3, np.inf, np.nan, 0.0])
        array([False,  True,  True,  True, False, False])
    """
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    wide: NDArray[np.bool_] = high >= SPAN * low * (1 - 1e-12)
    return wide & (high > 0)
