"""Affine clicks by context: slopes and offsets of their own for each of a few categories.

    E[C | u, k, x] = a_k(x) c_u + b_k(x)

with x a category, or a combination of categories, and c_u the click rate of the unit at the anchor in that context.
Each level is a model by itself, with its own intervals: nothing is shared between levels, for trust on a phone says
nothing of trust on a desk. A level whose clicks do not tell has none, and a reason.

Numbers, and columns of many values, make *classes* of contexts instead, by how steeply examination falls in them as an
examination model tells it: mean log p_k(x) over positions. Queries that are read to different depths look like trust,
and within a class they differ less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.model.affine import AffineModel, affine_from_file
from clickharvest.model.loading import from_file
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.soundness import check_info
from clickharvest.model.storage import write_file
from clickharvest.model.summary import aligned, spell_fitted, wrap
from clickharvest.model.support import CANNOT_TELL
from clickharvest.words import clean_text

Array = NDArray[np.float64]

MOST_LEVELS = 20
"""Levels beyond which columns are no few categories."""
MISSING = ""
"""The level of an empty value."""
CLASSES = "classes"
"""What the tensors of the examination model that makes classes begin with."""
LONGEST = 200
"""Characters of a level's value, at most."""


class Lines(NamedTuple):
    """What clicks of n rows are corrected with, [n] each.

    Attributes:
        slope: a, 1 where it is not supported.
        offset: b, 0 where it is not supported.
        sd: standard deviation of what slope and offset take away from a click, at the mean rate at the anchor.
        supported: whether clicks there can be corrected.
    """

    slope: Array
    offset: Array
    sd: Array
    supported: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Classes:
    """Contexts in classes, by how steeply examination falls in them.

    Attributes:
        propensities: the examination model that tells it.
        cuts: mean log p_k(x) that divide the classes, ascending: the first is the steepest, [n − 1].
    """

    propensities: Propensities
    cuts: Array

    def __post_init__(self) -> None:
        cuts = np.asarray(self.cuts, np.float64)
        if (
            self.propensities.encoder is None
            or cuts.ndim != 1
            or not np.isfinite(cuts).all()
            or (np.diff(cuts) < 0).any()
        ):
            raise InputError(
                "classes of contexts need an examination model of contexts, and cuts that ascend; fit again"
            )
        object.__setattr__(self, "cuts", cuts)

    def of(self, contexts: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the class of each row, from 0, [n]."""
        return np.searchsorted(self.cuts, steepness(self.propensities, contexts)).astype(np.int64)


def steepness(propensities: Propensities, contexts: Mapping[str, Any]) -> Array:
    """Return mean log p_k(x) over positions, of the context of each row: the less, the steeper, [n]."""
    assert propensities.encoder is not None
    x, _ = propensities.encoder.encode(contexts)
    return np.asarray(propensities.curve.relative(propensities.params, x).mean(axis=1), np.float64)


@dataclass(frozen=True, eq=False)
class AffineLevels:
    """A fitted affine model of categorical contexts.

    Attributes:
        context: the context columns.
        levels: the values of each level, one of each column.
        models: their models; None where clicks do not tell.
        reasons: why they do not; empty where they do.
        info: whatever else a reader may ask for.
        provenance: where it comes from.
        classes: where levels are classes of contexts, how they are made.

    Example:
        Phones have another slope than desks at position 2.

        >>> of = [AffineModel(1, (1, 2), np.array([1.0, a]), np.array([0.0, -0.1]), None, (1, 2)) for a in (0.5, 0.8)]
        >>> model = AffineLevels(("device",), (("phone",), ("desk",)), tuple(of), ("", ""))
        >>> model.correct([1, 1, 0], [2, 2, 2], {"device": ["phone", "desk", "tv"]}).round(3).tolist()
        [2.2, 1.375, nan]
    """

    kind: ClassVar[str] = "affine"

    context: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    models: tuple[AffineModel | None, ...]
    reasons: tuple[str, ...]
    info: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance | None = None
    classes: Classes | None = None

    def __post_init__(self) -> None:
        if not len(self.levels) == len(self.models) == len(self.reasons) or not self.context:
            raise InputError("levels, models and reasons are not as many, or there is no context; fit again")
        width = len(self.context) if self.classes is None else 1
        if len(set(self.levels)) < len(self.levels) or any(len(one) != width for one in self.levels):
            raise InputError("two levels are the same, or have not one value for each context column; fit again")
        if not any(self.models):
            raise InputError("no level has a model; fit again")
        if len({model.anchor for model in self.models if model is not None}) > 1:
            raise InputError("levels have different anchors; fit again")

    @property
    def anchor(self) -> int:
        """The position whose clicks are the unit."""
        return next(model.anchor for model in self.models if model is not None)

    def name(self, level: int) -> str:
        """Return a level in words."""
        if self.classes is not None:
            return clean_text(self.levels[level][0], 60)
        pairs = zip(self.context, self.levels[level], strict=True)
        return ", ".join(f"{clean_text(column, 24)} = {clean_text(value, 40) or 'empty'}" for column, value in pairs)

    def level_of(self, contexts: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the number of the level of each row, −1 for one that the model does not know, [n]."""
        if missing := [name for name in self.context if name not in contexts]:
            raise InputError(f"no context column {missing[0]!r}: found {', '.join(contexts) or 'none'}")
        if self.classes is not None:
            return self.classes.of({name: contexts[name] for name in self.context})
        rows = zip(*(level_values(contexts[name]) for name in self.context), strict=True)
        number = {level: i for i, level in enumerate(self.levels)}
        return np.array([number.get(row, -1) for row in rows], np.int64)

    def correct(
        self, clicks: ArrayLike, position: ArrayLike, contexts: Mapping[str, Any], impressions: ArrayLike = 1.0
    ) -> Array:
        """Return (C − n b_k(x)) / a_k(x), [n]; NaN where it is not supported. See `AffineModel.correct`."""
        lines = lines_of(self, position, contexts)
        shown = np.asarray(impressions, np.float64)
        corrected = (np.asarray(clicks, np.float64) - shown * lines.offset) / lines.slope
        return np.where(lines.supported, corrected, np.nan)

    def floor(self) -> float | None:
        """Return the least of the levels' `AffineModel.floor`; None where one is unknown."""
        found = [model.floor() for model in self.models if model is not None]
        known = [floor for floor in found if floor is not None]
        return min(known) if len(known) == len(found) else None

    def sentences(self) -> list[str]:
        """Return what was found, in words, level by level."""
        told = []
        for i, model in enumerate(self.models):
            found = [f"Cannot tell: {self.reasons[i]}."] if model is None else model.sentences()
            told += [f"{self.name(i)}: {sentence}" for sentence in found if not sentence.startswith("Corrected click")]
        return [
            *told,
            "Corrected click: (click - offset) / slope of its own context, of every display, clicked or not.",
        ]

    def __str__(self) -> str:
        parts = [
            wrap("Affine clicks by context: where trust in the position counts beside examination and relevance"),
            spell_fitted(self.info),
            wrap(
                f"Of a result that is clicked with probability c at position {self.anchor}, the click probability "
                "elsewhere is slope · c + offset:"
            ),
        ]
        header = ["position", "slope", "95 % interval", "offset", "95 % interval", ""]
        for i, model in enumerate(self.models):
            if model is not None:
                parts.append(f"{self.name(i)}\n{aligned(header, _rows(model))}")
        return "\n\n".join(part for part in [*parts, *map(wrap, self.sentences())] if part)

    def describe(self) -> dict[str, Any]:
        """Return what the model says of itself, as JSON holds it."""
        levels = []
        for i, model in enumerate(self.models):
            own: dict[str, Any] = {"reason": self.reasons[i]} if model is None else model.describe()
            columns = self.context if self.classes is None else ("class",)
            named = dict(zip(columns, self.levels[i], strict=True))
            levels.append({"level": named, **{key: own[key] for key in own if key not in ("model", "provenance")}})
        return {
            "model": self.kind,
            "anchor": self.anchor,
            "context": list(self.context),
            "levels": levels,
            "sentences": self.sentences(),
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all, that `load_model` reads."""
        tensors: dict[str, NDArray[Any]] = {}
        levels: list[dict[str, Any]] = []
        for i, model in enumerate(self.models):
            levels.append({"values": list(self.levels[i]), "reason": self.reasons[i]})
            if model is None:
                continue
            levels[-1] |= {
                "anchor": model.anchor, "positions": list(model.positions), "shown": list(model.shown),
                "info": dict(model.info), "provenance": None,
            }  # fmt: skip
            tensors |= {f"{i}/slope": model.slope, f"{i}/offset": model.offset}
            if model.covariance is not None:
                tensors[f"{i}/covariance"] = model.covariance
        header: dict[str, Any] = {"classes": None}
        if self.classes is not None:
            own, further = replace(self.classes.propensities, info={}, provenance=None).to_file()
            header["classes"] = {"model": own, "cuts": self.classes.cuts.tolist()}
            tensors |= {f"{CLASSES}/{name}": value for name, value in further.items()}
        header |= {
            "model": self.kind,
            "context": list(self.context),
            "levels": levels,
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }
        write_file(Path(path), header, tensors)


def levels_from_file(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> AffineLevels:
    """Return the model of a file's header and tensors, checked; whatever it raises, the file is not sound."""
    check_info(header["info"])
    values, models, reasons = [], [], []
    if len(header["levels"]) > MOST_LEVELS:
        raise InputError(f"it has {len(header['levels']):,} levels; expected at most {MOST_LEVELS}")
    for i, level in enumerate(header["levels"]):
        own = {name.partition("/")[2]: value for name, value in tensors.items() if name.partition("/")[0] == str(i)}
        values.append(tuple(str(value)[:LONGEST] for value in level["values"]))
        reasons.append(clean_text(level["reason"], 400))
        models.append(affine_from_file(level, own) if own else None)
    origin, told = header["provenance"], header["classes"]
    classes = None
    if told is not None:
        own = {name.removeprefix(f"{CLASSES}/"): value for name, value in tensors.items() if name.startswith(CLASSES)}
        classes = Classes(from_file({"format": header["format"]} | told["model"], own), np.array(told["cuts"]))
        if len(classes.cuts) + 1 != len(values):
            raise InputError(f"it has {len(values)} levels and {len(classes.cuts)} cuts between them; fit again")
    return AffineLevels(
        tuple(str(name) for name in header["context"]), tuple(values), tuple(models), tuple(reasons), header["info"],
        None if origin is None else Provenance.from_dict(origin), classes,
    )  # fmt: skip


def lines_of(model: AffineModel | AffineLevels, position: ArrayLike, contexts: Mapping[str, Any]) -> Lines:
    """Return what the clicks of rows are corrected with.

    Args:
        model: the model, with or without context.
        position: position of each row, [n].
        contexts: context columns, [n] each; without a context they do not matter.
    """
    k = np.asarray(position, np.int64)
    if isinstance(model, AffineModel):
        return _lines(model, k)
    found = Lines(np.ones(len(k)), np.zeros(len(k)), np.zeros(len(k)), np.zeros(len(k), np.bool_))
    level = model.level_of(contexts)
    for i, own in enumerate(model.models):
        rows = np.flatnonzero(level == i)
        if own is not None and len(rows):
            for whole, part in zip(found, _lines(own, k[rows]), strict=True):
                whole[rows] = part
    return found


def level_values(values: Any) -> list[str]:
    """Return the values of a context column as levels are spelt.

    Example:
        >>> level_values([True, 2.0, "a", None, float("nan")])
        ['true', '2', 'a', '', '']
    """
    plain: Sequence[Any] = values.to_pylist() if hasattr(values, "to_pylist") else np.asarray(values, object).tolist()
    return [_spelt(value) for value in plain]


def _spelt(value: Any) -> str:
    if value is None or value != value:  # NaN alone differs from itself
        return MISSING
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)[:LONGEST]


def _lines(model: AffineModel, position: NDArray[np.int64]) -> Lines:
    predicted, k = model.predict(), len(model.positions)
    at = np.minimum(np.searchsorted(model.shown, position), len(model.shown) - 1)
    fine = (np.array(model.shown)[at] == position) & predicted.supported[at]
    sd = np.zeros(len(model.shown))
    if model.covariance is not None:
        rate, v = float(model.info.get("anchor_rate") or 1.0), model.covariance
        both = np.diag(v[:k, k:])
        own = np.sqrt(np.maximum(rate**2 * np.diag(v)[:k] + 2 * rate * both + np.diag(v)[k:], 0.0))
        sd[np.searchsorted(model.shown, model.positions)] = own
    return Lines(
        np.where(fine, predicted.slope[at], 1.0), np.where(fine, predicted.offset[at], 0.0),
        np.where(fine, sd[at], 0.0), fine,
    )  # fmt: skip


def _rows(model: AffineModel) -> list[list[str]]:
    found = model.predict()

    def span(name: str, i: int) -> str:
        low, high = (getattr(found, f"{name}_{end}")[i] for end in ("lower", "upper"))
        return f"{low:.4f} to {high:.4f}" if np.isfinite(low) and found.supported[i] else "-"

    def cell(value: float) -> str:
        return f"{value:.4f}" if np.isfinite(value) else "-"

    return [
        [str(k), cell(found.slope[i]), span("slope", i), cell(found.offset[i]), span("offset", i),
         "" if found.supported[i] else CANNOT_TELL]
        for i, k in enumerate(model.shown)
    ]  # fmt: skip
