"""Affine clicks by context: each of a few categories, or classes of contexts, has its own slopes and offsets.

Each of a few categories of contexts (a *level*) has a model with its own intervals; nothing is shared between levels,
because trust on a phone says nothing of trust on a desk. A level that is not identified has a reason instead of a
model. Numbers, and columns of many values, make *classes* of contexts instead, by how steeply examination falls in them
according to an examination model: mean log p_k(x) over positions. Queries that are read to different depths look like
trust, and within a class they differ less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.click_models.affine.fitted import AffineModel, FittedAffine, Lines
from clickharvest.click_models.base import Array, Header, Tensors
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.loading import from_file
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance, data_fingerprint
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions

MOST_LEVELS = 20
"""Levels above which contexts are put into classes."""
CLICKS_OF_CLASS, N_CLASSES = 10_000, (2, 5)
"""Clicks of a class, about, and the least and largest number of classes."""
CLASSES = "classes"
"""Prefix, in a file, of the tensors of the examination model that makes classes."""
LONGEST = 200
"""Most characters of a level's value."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Contexts in classes, by how steeply examination falls in them.

    Attributes:
        propensities: the examination model.
        cuts: mean log p_k(x) between the classes, ascending, [n − 1]; the first class is the steepest.
    """

    propensities: Propensities
    cuts: Array

    def __post_init__(self) -> None:
        cuts = np.asarray(self.cuts, np.float64)
        sound = cuts.ndim == 1 and np.isfinite(cuts).all() and not (np.diff(cuts) < 0).any()
        if self.propensities.encoder is None or not sound:
            raise InputError(
                "classes of contexts need an examination model of contexts, and cuts that ascend; fit again"
            )
        object.__setattr__(self, "cuts", cuts)

    def of(self, contexts: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the class of each row, from 0, [n]."""
        return np.searchsorted(self.cuts, steepness(self.propensities, contexts)).astype(np.int64)


def steepness(propensities: Propensities, contexts: Mapping[str, Any]) -> Array:
    """Return mean log p_k(x) over positions in the context of each row, [n]; the lower, the steeper."""
    assert propensities.encoder is not None
    x, _ = propensities.encoder.encode(contexts)
    return np.asarray(propensities.curve.relative(propensities.params, x).mean(axis=1), np.float64)


@dataclass(frozen=True, eq=False)
class AffineLevels(FittedAffine):
    """A fitted affine model of contexts.

    Attributes:
        context: the context columns.
        levels: the values of each level, one of each column.
        models: their models; None where a level is not identified.
        reasons: why a level is not identified; empty where it is.
        info: whatever else a reader may ask for.
        provenance: where it comes from.
        classes: the classes, where levels are classes of contexts.

    Example:
        Phones have another slope than desks at position 2.

        >>> phone, desk = (AffineModel(1, (1, 2), [1, a], [0, -0.1], None, (1, 2)) for a in (0.5, 0.8))
        >>> model = AffineLevels(("device",), (("phone",), ("desk",)), (phone, desk), ("", ""))
        >>> model.correct([1, 1, 0], [2, 2, 2], contexts={"device": ["phone", "desk", "tv"]}).round(3).tolist()
        [2.2, 1.375, nan]
    """

    title: ClassVar[str] = (
        "Affine clicks by context: where trust in the position counts beside examination and relevance"
    )

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
        if len({model.anchor for _, model in self.parts}) > 1:
            raise InputError("levels have different anchors; fit again")
        if self.classes is not None and len(self.classes.cuts) + 1 != len(self.levels):
            raise InputError(
                f"it has {len(self.levels)} levels and {len(self.classes.cuts)} cuts between them; fit again"
            )

    @property
    def anchor(self) -> int:
        """The position whose clicks are the unit."""
        return self.parts[0][1].anchor

    @property
    def parts(self) -> list[tuple[str, AffineModel]]:
        """The models of the levels that have one, with their names."""
        return [(self.name(i), model) for i, model in enumerate(self.models) if model is not None]

    def name(self, level: int) -> str:
        """Return a level in words."""
        values = self.levels[level]
        return spell_level(self.context, values) if self.classes is None else clean_text(values[0], 60)

    def level_of(self, contexts: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the number of the level of each row, [n]; −1 for an unknown level."""
        if missing := [name for name in self.context if name not in contexts]:
            raise InputError(f"no context column {missing[0]!r}: found {', '.join(contexts) or 'none'}")
        columns = {name: contexts[name] for name in self.context}
        if self.classes is not None:
            return self.classes.of(columns)
        number = {level: i for i, level in enumerate(self.levels)}
        return np.array([number.get(row, -1) for row in level_values(columns)], np.int64)

    def lines(self, position: ArrayLike, contexts: Mapping[str, Any] | None = None) -> Lines:
        """Return the slopes and offsets that correct the clicks of rows, by the level of their contexts."""
        k, level = np.asarray(position, np.int64), self.level_of(contexts or {})
        lines = Lines(np.ones(len(k)), np.zeros(len(k)), np.zeros(len(k)), np.zeros(len(k), np.bool_))
        for i, model in enumerate(self.models):
            rows = np.flatnonzero(level == i)
            if model is not None and len(rows):
                for whole, part in zip(lines, model.lines(k[rows]), strict=True):
                    whole[rows] = part
        return lines

    def floor(self) -> float | None:
        """Return the least of the levels' `AffineModel.floor`; None where one is unknown."""
        floors = [model.floor() for _, model in self.parts]
        known = [floor for floor in floors if floor is not None]
        return min(known) if len(known) == len(floors) else None

    def sentences(self) -> list[str]:
        """Return the results of the fit in words, level by level."""
        sentences = []
        for i, model in enumerate(self.models):
            of_level = [f"Cannot tell: {self.reasons[i]}."] if model is None else model.sentences()
            sentences += [f"{self.name(i)}: {one}" for one in of_level if not one.startswith("Corrected click")]
        return [
            *sentences,
            "Corrected click: (click - offset) / slope of its own context, of every display, clicked or not.",
        ]

    def describe(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        levels = []
        for i, model in enumerate(self.models):
            record: dict[str, Any] = {"reason": self.reasons[i]} if model is None else model.describe()
            columns = self.context if self.classes is None else ("class",)
            level = {"level": dict(zip(columns, self.levels[i], strict=True))}
            levels.append(level | {key: record[key] for key in record if key not in ("model", "provenance")})
        return {
            "model": self.kind,
            "anchor": self.anchor,
            "context": list(self.context),
            "levels": levels,
            "sentences": self.sentences(),
            **self.origin(),
        }

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the tensors of a file."""
        tensors: dict[str, NDArray[Any]] = {}
        levels: list[dict[str, Any]] = []
        for i, model in enumerate(self.models):
            levels.append({"values": list(self.levels[i]), "reason": self.reasons[i]})
            if model is not None:
                header, own_tensors = replace(model, provenance=None).to_file()
                levels[-1] |= header
                tensors |= {f"{i}/{name}": value for name, value in own_tensors.items()}
        classes: dict[str, Any] | None = None
        if self.classes is not None:
            header, own_tensors = replace(self.classes.propensities, info={}, provenance=None).to_file()
            classes = {"model": header, "cuts": self.classes.cuts.tolist()}
            tensors |= {f"{CLASSES}/{name}": value for name, value in own_tensors.items()}
        return {"classes": classes, "context": list(self.context), "levels": levels} | self.origin(), tensors

    @classmethod
    def from_file(cls, header: Header, tensors: Tensors) -> AffineLevels:
        """Return the model of a file's header and tensors, checked; whatever it raises, the file is not sound."""
        FitInfo.check(header["info"])
        if len(header["levels"]) > MOST_LEVELS:
            raise InputError(f"it has {len(header['levels']):,} levels; expected at most {MOST_LEVELS}")

        def below(folder: str) -> dict[str, NDArray[Any]]:
            return {
                name.partition("/")[2]: value for name, value in tensors.items() if name.partition("/")[0] == folder
            }

        models = [AffineModel.from_file(level, own_tensors) if (own_tensors := below(str(i))) else None
                  for i, level in enumerate(header["levels"])]  # fmt: skip
        classes, origin = header["classes"], header["provenance"]
        if classes is not None:
            examination = from_file({"format": header["format"]} | classes["model"], below(CLASSES))
            classes = Classes(examination, np.array(classes["cuts"]))
        return cls(
            tuple(str(name) for name in header["context"]),
            tuple(tuple(str(value)[:LONGEST] for value in level["values"]) for level in header["levels"]),
            tuple(models),
            tuple(clean_text(level["reason"], 400) for level in header["levels"]),
            header["info"],
            None if origin is None else Provenance.from_dict(origin),
            classes,
        )


def fit_levels(
    interventions: Interventions,
    fit: Callable[[Interventions], AffineModel],
    examination: Callable[[Interventions], Propensities],
) -> AffineLevels:
    """Return the model of every level of the context; a level that is not identified has a reason instead.

    Args:
        interventions: the interventions, with context columns.
        fit: fits one level.
        examination: fits the examination model that makes classes, where there are more than `MOST_LEVELS` values.
    """
    columns, classes = tuple(interventions.contexts), None
    if interventions.unit_kind != "context":
        raise InputError("the model affine takes contexts of whole units: harvest with --unit context, or leave it out")
    levels, level = levels_of(interventions.contexts)
    if len(levels) > MOST_LEVELS:
        propensities = examination(interventions.clicked())
        steep = steepness(propensities, interventions.contexts)
        n = int(np.clip(interventions.clicks.sum() // CLICKS_OF_CLASS, *N_CLASSES))
        classes = Classes(propensities, np.quantile(steep, np.arange(1, n) / n))
        level, ends = classes.of(interventions.contexts), {0: ", read least far", n - 1: ", read farthest"}
        levels = [(f"class {i + 1} of {n}{ends.get(i, '')}",) for i in range(n)]
    models: list[AffineModel | None] = []
    reasons: list[str] = []
    for i in range(len(levels)):
        rows, model, reason = replace(interventions.take(level == i), contexts={}), None, ""
        try:
            if not len(rows):
                raise NotIdentifiedError("no unit has such a context")
            model = fit(rows)
        except NotIdentifiedError as error:
            reason = str(error)
        models.append(model)
        reasons.append(reason)
    fitted = [model for model in models if model is not None]
    if not fitted:
        raise NotIdentifiedError(f"no level of {', '.join(columns)} tells slopes; of the first, {reasons[0]}")
    with_model = np.isin(level, [i for i, model in enumerate(models) if model])
    queries = len(np.unique(interventions.query[with_model]))
    info = {"estimator": fitted[0].info["estimator"]}
    info |= {name: sum(int(model.info[name]) for model in fitted) for name in ("units", "clicks")}
    info |= {"queries": queries, "data": data_fingerprint(interventions)}
    return AffineLevels(columns, tuple(levels), tuple(models), tuple(reasons), info, fitted[0].provenance, classes)


def levels_of(contexts: Mapping[str, Any]) -> tuple[list[tuple[str, ...]], NDArray[np.int64]]:
    """Return the combinations of values of contexts, ascending, and the number of that of each row."""
    rows = level_values(contexts)
    levels = sorted(set(rows))
    number = {level: i for i, level in enumerate(levels)}
    return levels, np.array([number[row] for row in rows], dtype=np.int64)


def spell_level(columns: Sequence[str], values: Sequence[str]) -> str:
    """Return a level in words.

    Example:
        >>> spell_level(["device", "side"], ["phone", ""])
        'device = phone, side = empty'
    """
    pairs = zip(columns, values, strict=True)
    return ", ".join(f"{clean_text(column, 24)} = {clean_text(value, 40) or 'empty'}" for column, value in pairs)


def level_values(contexts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the values of context columns row by row, as texts; a missing value is an empty text.

    Example:
        >>> level_values({"some": [True, 2.0, "a", None, float("nan")]})
        [('true',), ('2',), ('a',), ('',), ('',)]
    """

    def spelt(value: Any) -> str:
        if value is None or value != value:  # NaN alone differs from itself
            return ""
        if isinstance(value, bool | np.bool_):
            return str(bool(value)).lower()
        if isinstance(value, float | np.floating) and float(value).is_integer():
            return str(int(value))
        return str(value)[:LONGEST]

    columns = (
        column.to_pylist() if hasattr(column, "to_pylist") else np.asarray(column, object).tolist()
        for column in contexts.values()
    )
    return list(zip(*(map(spelt, column) for column in columns), strict=True))
