"""What a curve is: a frozen description (its shape parameters) with pure functions of (parameters, contexts).

Parameters are plain dicts of arrays. Only ratios p_k(x) / p_anchor(x) are identified; `relative` divides by the
anchor. Some curves are zero at the anchor by construction, as `anchored` makes them; the networks are not, so that
AllPairs can read their sigmoid outputs as probabilities, as the paper does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.curves.registry import CURVES
from clickharvest.words import clean_text

Params = dict[str, Any]


@dataclass(frozen=True)
class Curve(ABC):
    """What all curves share.

    A subclass is a frozen dataclass with a `name`. Its own fields are the curve's shape parameters: integers from 1
    on, or from what the field declares, as in `width: int = field(default=12, metadata={"least": 0})`. With the
    metadata `"told": False`, a field at its default is left out of the spec and of summaries. Its formula may use the
    array functions that `clickharvest.model.trace` knows.

    Attributes:
        positions: the positions the curve speaks of, ascending.
        anchor: the position that others are relative to, one of them.
        n_features: number d of context features; 0 for curves without context.
    """

    positions: tuple[int, ...]
    anchor: int
    n_features: int

    name: ClassVar[str]
    needs_order: ClassVar[bool] = False
    """Whether it needs positions of a list, and not places without order."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            CURVES.add(cls.name, cls)

    def __post_init__(self) -> None:
        ascending = list(self.positions) == sorted(set(self.positions))
        if not ascending or self.anchor not in self.positions or self.positions[0] < 1:
            raise InputError(
                f"a curve needs ascending positions from 1 with the anchor {clean_text(self.anchor)} among them: "
                f"{clean_text(self.positions)}"
            )
        for parameter in self.shape_fields():
            size, least = getattr(self, parameter.name), parameter.metadata.get("least", 1)
            if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < least:
                raise InputError(
                    f"the curve {self.name!r} has the {parameter.name} {str(size)[:20]}: expected an integer of "
                    f"{least} or more"
                )
            object.__setattr__(self, parameter.name, int(size))

    @classmethod
    def shape_fields(cls) -> tuple[Field[Any], ...]:
        """Return the fields that are shape parameters: all that the class has beyond those of every curve."""
        return fields(cls)[len(fields(Curve)) :]

    @property
    def anchor_index(self) -> int:
        """Where the anchor stands among the positions."""
        return self.positions.index(self.anchor)

    @property
    def spec(self) -> dict[str, Any]:
        """The curve's name and shape parameters, as `make_curve` takes them."""
        kept = [part for part in self.shape_fields() if _told(part) or getattr(self, part.name) != part.default]
        return {"name": self.name} | {part.name: getattr(self, part.name) for part in kept}

    @property
    def shape(self) -> dict[str, int]:
        """The shape parameters that summaries show."""
        return {part.name: getattr(self, part.name) for part in self.shape_fields() if _told(part)}

    @abstractmethod
    def init(self, random: np.random.Generator) -> Params:
        """Return parameters to start from."""

    @abstractmethod
    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return log p_k(x) up to a term that depends on x alone: x [n, d] → [n, K]."""

    @abstractmethod
    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ Σ θ² over the parameters that make examination depend on context."""

    def relative(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return log p_k(x) / p_anchor(x): x [n, d] → [n, K], zero at the anchor."""
        free = self.log_examination(params, x, xp)
        return free - free[:, self.anchor_index : self.anchor_index + 1]

    def for_intervals(self) -> Curve:
        """Return the curve whose slopes, by the same parameters, the intervals are computed from: mostly itself."""
        return self

    def anchored(self, others: Any, xp: Any) -> Any:
        """Insert the anchor's zero among the values of the other positions, [..., K - 1] → [..., K]."""
        i = self.anchor_index
        zero = xp.zeros_like(others[..., :1])
        return xp.concatenate([others[..., :i], zero, others[..., i:]], axis=-1)

    def log_distance(self) -> NDArray[np.float64]:
        """Return log(k / anchor) of the positions other than the anchor, [K - 1]."""
        k = np.delete(np.array(self.positions, dtype=np.float64), self.anchor_index)
        return np.log(k / self.anchor)


def _told(part: Field[Any]) -> bool:
    return bool(part.metadata.get("told", True))


def make_curve(name: str, positions: tuple[int, ...], anchor: int, n_features: int, **shape: int) -> Curve:
    """Return a curve by name.

    Args:
        name: one of `CURVES`: `constant, power, linear, lowrank, index, mlp, recurrent, position`, or your own.
        positions: the positions it speaks of.
        anchor: the position others are relative to.
        n_features: number of context features.
        shape: the curve's own fields: `rank` of `lowrank`, `knots` of `index`, `width` of the networks (`mlp` may have
            0).

    Example:
        >>> curve = make_curve("power", (1, 2, 4), 1, 1)
        >>> params = {"a": np.array([1.0]), "w": np.array([[0.5]])}
        >>> np.exp(curve.relative(params, np.array([[0.0], [2.0]]))).round(4)
        array([[1.    , 0.5   , 0.25  ],
               [1.    , 0.25  , 0.0625]])
    """
    if name not in CURVES:
        raise InputError(
            f"no curve {clean_text(repr(name))}: expected one of {', '.join(CURVES)}; a curve of your own is there "
            "once the module that defines it is imported"
        )
    parameters = {parameter.name: parameter for parameter in CURVES[name].shape_fields()}
    foreign = [given for given in shape if given not in parameters]
    if foreign:
        takes = f"its shape is {', '.join(parameters)}" if parameters else "it has no shape parameters"
        raise InputError(f"the curve {name!r} takes no {clean_text(', '.join(foreign))}: {takes}")
    missing = [field for field, parameter in parameters.items() if parameter.default is MISSING and field not in shape]
    if missing:
        raise InputError(f"the curve {name!r} needs {', '.join(missing)}: an integer")
    curve: Curve = CURVES[name](positions, anchor, n_features, **shape)
    return curve


def flatten_params(params: Params) -> NDArray[np.float64]:
    """Return parameters as one vector, in the order of their names.

    Example:
        >>> flatten_params({"b": np.array([3.0]), "W": np.array([[1.0, 2.0]])}).tolist()
        [1.0, 2.0, 3.0]
    """
    return np.concatenate([np.ravel(params[name]) for name in sorted(params)]).astype(np.float64)


def unflatten_params(flat: NDArray[np.float64], like: Params) -> Params:
    """Return a vector as parameters of the shapes that `like` has."""
    params, begin = {}, 0
    for name in sorted(like):
        size = np.size(like[name])
        params[name] = flat[begin : begin + size].reshape(np.shape(like[name]))
        begin += size
    return params


def half_squares(*weights: Any, xp: Any) -> Any:
    """Return ½ Σ w² over all weights."""
    return sum(xp.sum(w * w) for w in weights) / 2
