"""Propensities: the result of every estimator, as a value, as a table and as a file.

`Propensities` holds a curve, its parameters and draws of them that tell how uncertain they are. `predict` gives
p_k(x) / p_anchor(x) with intervals for any contexts; `save` and `load_propensities` keep it in one safetensors file,
which can hold numbers and JSON but no code. This module needs NumPy and safetensors alone, so that a model scores where
no engine is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.model.budget import budget_of, most_noise, why_cannot_tell
from clickharvest.model.contexts import ContextEncoder, Table, column_names
from clickharvest.model.curves import CURVES, Curve, Params, flatten_params
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.intervals import DrawnCurves, normal_z
from clickharvest.model.prediction import Prediction
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import write_file
from clickharvest.model.summary import describe_model, summarise
from clickharvest.model.support import Doubt, Mask, Support, supported_by
from clickharvest.positions.places import Places, name_place
from clickharvest.words import clean_text, json_value

Array = NDArray[np.float64]
DrawsKind = Literal["bootstrap", "sandwich", "clustered"]

NORMAL = normal_z(0.95)
"""Standard deviations to either side in a 95 % interval."""
MANY = 50
"""Effective queries of a position from which bootstrap and sandwich intervals hold: they count neither what a single
query tells, nor what a penalty shrinks, nor that folds have chosen it."""
SHRUNK = 0.1
"""What shrinkage leaves unknown, as a share of the variance that these intervals count, up to which they hold."""
LONGEST = 8192
"""Most positions, features or hidden units, so that a forged file cannot ask for all of the memory."""
MOST_DRAWS = 10_000
"""Most draws, as many as `fit --bootstrap` takes: each costs a tenth of a millisecond with every use."""
LARGEST = 1e6
"""Largest parameter, or draw of one, in absolute value. Features have the size of 1 and exp(710) overflows, so that no
fit comes near: more is damage, or a forgery."""


@dataclass(frozen=True, eq=False)
class Propensities:
    """Examination propensities p_k(x), known relative to an anchor.

    Attributes:
        curve: the examination curve; its positions are the supported ones.
        params: its parameters, float64 arrays.
        encoder: turns context columns into the curve's features; None for a model without context.
        shown: every position in the data, ascending, supported or not.
        draws: parameter vectors in the order of `curves.flatten_params`, float32 [B, n], B ≥ 2.
        draws_kind: what they are: `"bootstrap"` replicates, draws of the `"sandwich"` normal distribution, or points
            that have the `"clustered"` covariance exactly.
        info: whatever else the fit tells, as JSON holds it; `fit_info` has the entries that are read.
        provenance: where it comes from; None where that is not recorded.
        support: the contexts that the data have, and how many queries positions rest on; None in files of older
            versions, where every context counts as supported.
        places: what positions stand for, where they are numbers of places and not of a list.

    Example:
        Three draws of log p_2 / p_1, whose standard deviation is 0.1; nothing links position 3.

        >>> from clickharvest.model.curves import make_curve
        >>> model = Propensities(
        ...     make_curve("constant", (1, 2), anchor=1, n_features=0), {"b": np.log([0.5])}, None, shown=(1, 2, 3),
        ...     draws=np.log(0.5) + np.array([[-0.1], [0.0], [0.1]]), draws_kind="bootstrap")
        >>> prediction = model.predict(level=0.95)
        >>> prediction.propensity.round(3), prediction.lower.round(3), prediction.upper.round(3)
        (array([[1. , 0.5, nan]]), array([[1.   , 0.411,   nan]]), array([[1.   , 0.608,   nan]]))
    """

    curve: Curve
    params: Params
    encoder: ContextEncoder | None
    shown: tuple[int, ...]
    draws: NDArray[np.float32] | None = None
    draws_kind: DrawsKind | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance | None = None
    support: Support | None = None
    places: Places | None = None

    def __post_init__(self) -> None:
        _check_curve(self.curve, self.encoder, self.shown)
        if self.places is not None and self.shown[-1] > len(self.places):
            raise InputError(f"place {self.shown[-1]} was shown, the table of places has {len(self.places)}")
        if self.support is not None:
            self.support.check(self.encoder, self.curve.positions)
        params = _checked_params(self.curve, self.params)
        draws = _checked_draws(self.draws, self.draws_kind, len(flatten_params(params)))
        if not isinstance(self.info, Mapping):
            raise InputError(f"info is {type(self.info).__name__}; expected a mapping")
        info = json_value(self.info)
        try:
            json.dumps(info)
        except (TypeError, ValueError) as error:
            raise InputError(f"info is refused: {error}; expected what JSON can hold") from error
        checked = {"shown": tuple(map(int, self.shown)), "params": params, "draws": draws, "info": info}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return summarise(self)

    kind: ClassVar[str] = "examination"
    """The click model it is of."""

    @property
    def fit_info(self) -> FitInfo:
        """The known entries of `info`, typed."""
        return FitInfo.of(self.info)

    @property
    def context(self) -> tuple[str, ...]:
        """The context columns that the model depends on."""
        return () if self.encoder is None else self.encoder.columns

    def sentences(self) -> list[str]:
        """Return what was found besides the curve: nothing, as for every model of examination."""
        return []

    def describe(self) -> dict[str, Any]:
        """Return what the model says of itself, as JSON holds it."""
        return describe_model(self)

    @property
    def unsupported(self) -> tuple[int, ...]:
        """Positions that were shown but that nothing links to the anchor: there is no estimate for them."""
        return tuple(k for k in self.shown if k not in self.curve.positions)

    def predict(self, contexts: Table | None = None, *, level: float = 0.95, simultaneous: bool = False) -> Prediction:
        """Return propensities with intervals for every row of a table of contexts.

        The interval is exp(log p_k(x) ± z · sd_k(x)), where sd_k(x) is the standard deviation of the draws' log p_k(x)
        (`DrawnCurves`): positive, and centred on the estimate. Percentiles of bootstrap replicates would not be: a
        penalty shrinks every replicate once more, so that they spread around a point beside the estimate.

        A position that nothing links to the anchor has no number; where only the context is unsupported (`support`),
        the number stays and the interval is NaN.

        Args:
            contexts: table with the encoder's columns (dict of arrays, DataFrame, Arrow table), n rows. None is for
                models without context: one row.
            level: how often an interval covers the truth.
            simultaneous: whether it covers all positions of a context together. Then z is that of
                `DrawnCurves.simultaneous_z`, otherwise that of the normal.

        Raises:
            InputError: columns are missing, or hold values of another kind than in training.
        """
        if self.encoder is not None:
            if contexts is None:
                needed = ", ".join(self.encoder.columns)
                raise InputError(f"the model depends on context: give a table with the columns {needed}")
            x, lacking = self.encoder.encode(contexts)
            return self._predict(x, lacking, level, simultaneous)
        x = np.zeros((1 if contexts is None else _n_rows(contexts), 0))
        return self._predict(x, None, level, simultaneous)

    def predict_encoded(self, x: ArrayLike, *, level: float = 0.95, simultaneous: bool = False) -> Prediction:
        """Return what `predict` does, for contexts that are already encoded: x [n, d].

        Where training had no missing values, features cannot show that a number is missing: `predict` sees that it is
        unsupported, this does not.
        """
        return self._predict(x, None, level, simultaneous)

    def doubts(self, x: Array, lacking: Mask | None = None) -> tuple[Doubt, ...]:
        """Return the reasons not to rely on numbers, at the positions shown: first on positions, then on contexts.

        Args:
            x: encoded contexts, [n, d].
            lacking: where a value is missing that never was in training, [n, columns], see `ContextEncoder.encode`.
        """
        doubts: list[Doubt] = []
        if self.unsupported:
            what = "position" if self.places is None else "place"
            why = f"nothing links this {what} to {name_place(self.curve.anchor, self.places)}"
            doubts.append(Doubt(why, ~np.isin(self.shown, self.curve.positions)[None]))
        if self.support is not None:
            clusters = self.fit_info.cluster_nouns[1]
            doubts += self._doubtful_intervals()
            doubts += self.support.doubts(self.encoder, x, self.shown, lacking, clusters)
        return tuple(doubts)

    def _doubtful_intervals(self) -> list[Doubt]:
        """Return where intervals that are not clustered leave something out that matters."""
        doubts: list[Doubt] = []
        kind, info, shown = self.draws_kind or "bootstrap", self.fit_info, np.array(self.shown)
        if kind == "clustered":
            return doubts
        if info.by_folds:
            where = shown != self.curve.anchor
            doubts.append(Doubt(f"cross-validation chose curve or penalty, which {kind} intervals ignore", where[None]))
        if self.draws is None:
            return doubts
        few = np.array([queries is not None and queries < MANY for queries in self._queries()])
        if few.any():
            doubts.append(Doubt(f"rests on fewer than {MANY} queries, too few for {kind} intervals", few[None]))
        shrunk = dict(zip(self.curve.positions, info.shrunk or (), strict=False))
        much = np.array([(shrunk.get(k) or 0.0) > SHRUNK for k in self.shown])
        if much.any():
            doubts.append(
                Doubt(f"the penalty shrinks the estimate by more than {kind} intervals allow for", much[None])
            )
        return doubts

    def _predict(self, x: ArrayLike, lacking: Mask | None, level: float, simultaneous: bool) -> Prediction:
        if not 0 < level < 1:
            raise InputError(f"the level of an interval is {level}; expected a number between 0 and 1, such as 0.95")
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.curve.n_features or not np.isfinite(x).all():
            raise InputError(f"x is {x.shape}; expected finite numbers [n, {self.curve.n_features}]")
        log_p = self.curve.relative(self.params, x)
        margin, noise = np.full_like(log_p, np.nan), np.zeros_like(log_p)
        if self.draws is not None:
            drawn, (first, row) = self.drawn_curves(), _distinct_rows(x)
            sd = drawn.sd(x[first])
            z = drawn.simultaneous_z(x[first], level) if simultaneous else normal_z(level)
            margin, noise = (z * sd)[row], (NORMAL * sd)[row]
        with np.errstate(over="ignore"):
            estimates = np.exp([log_p, log_p - margin, log_p + margin])
        filled = np.full((3, len(x), len(self.shown)), np.nan)
        filled[:, :, np.isin(self.shown, self.curve.positions)] = estimates
        doubts = self.doubts(x, lacking)
        supported = supported_by(doubts, filled.shape[1:])
        filled[1:, ~supported] = np.nan
        return Prediction(
            self.shown, filled[0], filled[1], filled[2], supported, doubts, self._queries(), self.places,
            codes=self._codes(noise, supported), anchor=self.curve.anchor, untold=why_cannot_tell(budget_of(self)),
        )  # fmt: skip

    def _codes(self, noise: Array, supported: Mask) -> NDArray[np.int8]:
        """Return the index of the state of each number in `budget.STATES`, [n, positions shown].

        Args:
            noise: half the width of the 95 % interval of log p, [n, positions of the curve].
            supported: [n, positions shown].
        """
        usable, with_care = most_noise(budget_of(self), self.curve.positions, self.curve.anchor)
        codes = np.full(supported.shape, 2, dtype=np.int8)
        codes[:, np.isin(self.shown, self.curve.positions)] = (noise > usable).astype(np.int8) + (noise > with_care)
        codes[~supported & np.not_equal(self.shown, self.curve.anchor)] = 2
        return codes

    def state_codes(self, x: Array, lacking: Mask | None = None) -> tuple[NDArray[np.int8], Array]:
        """Return `Prediction.codes`, [n, positions shown], and `log_sd`, 0 without draws; see `doubts`."""
        sd = np.zeros((len(x), len(self.curve.positions))) if self.draws is None else self.log_sd(x)
        return self._codes(NORMAL * sd, supported_by(self.doubts(x, lacking), (len(x), len(self.shown)))), sd

    def _queries(self) -> tuple[float | None, ...]:
        """Return the effective queries of every position shown, None where they are not known."""
        queries = () if self.support is None else self.support.queries
        known = dict(zip(self.curve.positions, queries, strict=False))
        return tuple(known.get(k) for k in self.shown)

    def drawn_curves(self) -> DrawnCurves:
        """Return the curves that the draws give, whose log p vary as the estimate may."""
        if self.draws is None:
            raise InputError("the model has no draws: fit with intervals")
        return DrawnCurves.of(self.curve, self.params, self.draws, self.draws_kind)

    def log_sd(self, x: Array) -> Array:
        """Return the standard deviations of log p_k(x) / p_anchor(x) of encoded contexts: x [n, d] → [n, K]."""
        first, row = _distinct_rows(x)
        return self.drawn_curves().sd(x[first])[row]

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all; the same model gives the same bytes, see `storage`."""
        write_file(Path(path), *self.to_file())

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a file holds, as `loading.from_file` reads it: a header, which is JSON, and tensors.

        Tensors: `params/NAME`, float64, and `draws`, float32, where there are any.
        """
        tensors: dict[str, NDArray[Any]] = {f"params/{name}": value for name, value in self.params.items()}
        if self.draws is not None:
            tensors["draws"] = self.draws
        header: dict[str, Any] = {
            "curve": self.curve.spec,
            "positions": [int(k) for k in self.curve.positions],
            "anchor": int(self.curve.anchor),
            "n_features": self.curve.n_features,
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "shown": list(self.shown),
            "draws_kind": self.draws_kind,
            "info": self.info,
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }
        if self.support is not None:
            header["support"] = self.support.to_dict()
        if self.places is not None:
            header["places"] = self.places.to_dict()
        return header, tensors


def _distinct_rows(x: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where each distinct row first stands, and for every row the number of its like."""
    if not x.shape[1]:
        return np.arange(min(len(x), 1)), np.zeros(len(x), dtype=np.intp)
    # Rows as plain bytes sort much faster than as records of numbers.
    rows = np.ascontiguousarray(x).view(np.dtype((np.void, x.dtype.itemsize * x.shape[1])))[:, 0]
    _, first, row = np.unique(rows, return_index=True, return_inverse=True)
    return first, row


def _n_rows(table: Table) -> int:
    names = column_names(table)
    if not names:
        raise InputError("the table of contexts has no columns; leave it out, or give one with rows to count")
    return len(table[names[0]])


def _check_curve(curve: Curve, encoder: ContextEncoder | None, shown: tuple[int, ...]) -> None:
    if CURVES.get(curve.name) is not type(curve):
        raise InputError(f"the curve {type(curve).__name__} is not the one named {curve.name!r}: give it its own name")
    for number in (curve.anchor, *curve.positions, *shown):
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or not 1 <= number < 2**31:
            raise InputError(f"a position is {str(number)[:20]}; expected an integer from 1")
    if not set(curve.positions) <= set(shown) or list(shown) != sorted(set(shown)):
        raise InputError("the positions shown must ascend and contain those of the curve")
    features = 0 if encoder is None else len(encoder.feature_names)
    if type(curve.n_features) is not int or curve.n_features != features:
        raise InputError(f"the curve has {str(curve.n_features)[:20]} features, the encoder {features}")
    sizes = [size for name, size in curve.spec.items() if name != "name"]
    if max(len(shown), features, *sizes) > LONGEST:
        raise InputError(f"more than {LONGEST:,} positions, features or hidden units: expected a smaller model")


def _checked_params(curve: Curve, params: Params) -> dict[str, NDArray[np.float64]]:
    expected = {name: np.shape(value) for name, value in curve.init(np.random.default_rng(0)).items()}
    shapes = {name: np.shape(value) for name, value in params.items()}
    if shapes != expected:
        raise InputError(f"the curve {curve.name!r} has the parameters {shapes}; expected {expected}")
    arrays = {name: np.array(params[name], dtype=np.float64, order="C") for name in sorted(params)}
    if not all(np.isfinite(value).all() for value in arrays.values()):
        raise InputError(f"parameters of the curve {curve.name!r} are not finite: the fit failed")
    if (largest := max((np.abs(value).max(initial=0) for value in arrays.values()), default=0)) > LARGEST:
        raise InputError(f"parameters of the curve {curve.name!r} reach {largest:.2g}; expected {LARGEST:g} at most")
    return arrays


def _checked_draws(draws: ArrayLike | None, kind: Any, size: int) -> NDArray[np.float32] | None:
    if (draws is None) != (kind is None) or kind not in (None, *get_args(DrawsKind)):
        raise InputError(
            f"draws are of the kind {clean_text(kind)!r}; expected {' or '.join(get_args(DrawsKind))}, None without"
        )
    if draws is None:
        return None
    with np.errstate(over="ignore"):
        array = np.array(draws, dtype=np.float32, order="C")
    if array.ndim != 2 or array.shape[1] != size or not 2 <= len(array) <= MOST_DRAWS or not np.isfinite(array).all():
        raise InputError(f"draws are {array.shape}; expected finite numbers [2 to {MOST_DRAWS:,}, {size}]")
    return array
