"""A fitted browsing model: how likely a result is looked at, given its rank and the last click above it.

It holds the propensities of all browsing states (`clickharvest.positions.states`) of the ranks in the data, relative to
one without a click above, the top of the page. States that the clicks link to it are `linked`; the number of any other
is what the model makes of its rank and its distance to the last click, and counts as not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.browsing_summary import summarise_browsing
from clickharvest.model.contexts import Table
from clickharvest.model.curves import Curve, Params, flatten_params, make_curve, unflatten_params
from clickharvest.model.loading import from_file
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import write_file
from clickharvest.model.support import Doubt, Mask
from clickharvest.model.typical import typical_context
from clickharvest.positions.states import n_states, number_of, state_places, states_of
from clickharvest.words import clean_text

UNLINKED = "no clicks link this state to the anchor: its number leans on its rank and the distance to the last click"
DEEPER = "below the positions of the model's data: the number is that of its last position"


@dataclass(frozen=True, eq=False)
class StatePropensities(Propensities):
    """Propensities whose positions are the numbers of browsing states.

    Attributes:
        leaning: states that have a number which no clicks link to the anchor.
        deeper: states below the ranks of the data, which have the number of the last rank.
    """

    leaning: tuple[int, ...] = ()
    deeper: tuple[int, ...] = ()

    def doubts(self, x: NDArray[np.float64], lacking: Mask | None = None) -> tuple[Doubt, ...]:
        """Return what speaks against relying on numbers: that states are not linked, then what others are doubted for.

        Args:
            x: encoded contexts, [n, d].
            lacking: where a value is missing that never was in training, [n, columns].
        """
        masks = {UNLINKED: np.isin(self.shown, self.leaning)[None], DEEPER: np.isin(self.shown, self.deeper)[None]}
        own = tuple(Doubt(why, where) for why, where in masks.items() if where.any())
        return own + super().doubts(x, lacking)


@dataclass(frozen=True, eq=False)
class BrowsingPropensities:
    """Examination propensities of browsing states, known relative to one without a click above.

    Attributes:
        states: the propensities by the number of the state, of all states of ranks 1 to K.
        info: whatever else a reader may ask for, as JSON holds it.
        provenance: where it comes from; None where nothing tells.

    Example:
        Half look at position 2, a quarter if position 1 was clicked.

        >>> curve, states = make_curve("constant", (1, 2, 3), anchor=1, n_features=0), state_places(2)
        >>> b = {"b": np.log([0.5, 0.25])}
        >>> model = BrowsingPropensities(StatePropensities(curve, b, None, shown=(1, 2, 3), places=states))
        >>> model.propensity_of(rank=[1, 2, 2], last_click=[0, 0, 1]).tolist()
        [1.0, 0.5, 0.25]
    """

    states: StatePropensities
    info: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance | None = None

    kind: ClassVar[str] = "browsing"

    def __post_init__(self) -> None:
        numbers = self.states.curve.positions
        ranks = int(states_of(numbers[-1])[0])
        whole = numbers == tuple(range(1, n_states(ranks) + 1)) == self.states.shown
        if not whole or self.states.places != state_places(ranks):
            raise InputError("a browsing model speaks of all states of its ranks: these are others; fit again")
        if not set(self.states.leaning) <= set(numbers):
            raise InputError("a browsing model calls states unlinked that it does not speak of: fit again")
        if states_of(self.states.curve.anchor)[1] != 0:
            raise InputError("the anchor of a browsing model is a state without a click above: this is another")

    def __str__(self) -> str:
        return summarise_browsing(self)

    @property
    def ranks(self) -> int:
        """How many ranks the model speaks of."""
        return int(states_of(self.states.curve.positions[-1])[0])

    @property
    def listed(self) -> Propensities:
        """What `clickharvest propensities` lists."""
        return self.states

    @property
    def anchor(self) -> int:
        """The rank of the anchor, the state that others are relative to; nothing above it is clicked."""
        return int(states_of(self.states.curve.anchor)[0])

    @property
    def context(self) -> tuple[str, ...]:
        """The context columns that the model depends on."""
        return self.states.context

    def predict(self, contexts: Table | None = None, *, level: float = 0.95, simultaneous: bool = False) -> Prediction:
        """Return the propensities of all states, see `Propensities.predict`.

        Their numbers are its `positions`; its table tells the `position` and `last_click` of each.
        """
        return self.states.predict(contexts, level=level, simultaneous=simultaneous)

    def propensity_of(self, rank: Any, last_click: Any, contexts: Table | None = None) -> NDArray[np.float64]:
        """Return the propensities of impressions, [n].

        Args:
            rank: position of each result, [n]; below those of the model the number is that of its last one.
            last_click: position of the last click above on its page, 0 for none, [n].
            contexts: table of their contexts, n rows; None for a model without context.
        """
        k, j = np.asarray(rank, dtype=np.int64), np.asarray(last_click, dtype=np.int64)
        if np.any((j < 0) | (j >= k)):
            raise InputError("a last click is at or below its result: expected positions above it, 0 for none")
        number = number_of(np.minimum(k, self.ranks), np.minimum(j, self.ranks - 1))
        predicted = self.states.predict(contexts).propensity if self.context else self.states.predict().propensity
        rows = np.arange(len(number)) if self.context else np.zeros(len(number), dtype=np.int64)
        return np.asarray(predicted[rows, number - 1])

    def reaching(self, ranks: int) -> StatePropensities:
        """Return propensities of the states of more ranks, those of the last rank standing for what is below."""
        if ranks <= self.ranks:
            return self.states
        numbers = tuple(range(1, n_states(ranks) + 1))
        k, j = states_of(numbers)
        like = number_of(np.minimum(k, self.ranks), np.minimum(j, self.ranks - 1)) - 1
        states = self.states
        curve = make_curve(states.curve.name, numbers, states.curve.anchor, states.curve.n_features)
        support = states.support and replace(states.support, queries=tuple(states.support.queries[i] for i in like))
        draws = states.draws
        return replace(
            states,
            curve=curve,
            params=_gathered(states.params, states.curve, curve, like),
            shown=numbers,
            places=state_places(ranks),
            draws=None if draws is None else np.stack(
                [flatten_params(_gathered(unflatten_params(draw.astype(np.float64), states.params), states.curve, curve,
                 like)) for draw in draws]
            ).astype(np.float32),
            support=support,
            deeper=tuple(int(n) for n in np.array(numbers)[k > self.ranks]),
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """Return what the model says of itself, as JSON holds it."""
        states = self.states
        typical = states.predict_encoded(typical_context(states))
        records = [
            {
                name: None if isinstance(value, float) and not np.isfinite(value) else value
                for name, value in row.items()
            }
            for row in typical.to_arrow().to_pylist()
        ]
        return {
            "model": self.kind,
            "anchor": self.anchor,
            "positions": self.ranks,
            "context": {} if states.encoder is None else {part.name: part.kind for part in states.encoder.parts},
            "intervals": states.draws_kind,
            "typical_context": records,
            "unlinked_states": len(states.leaning),
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all, that `load_model` reads."""
        whole = replace(self.states, info=dict(self.info), provenance=self.provenance)
        header, tensors = whole.to_file()
        write_file(Path(path), {"model": self.kind, "leaning": list(self.states.leaning)} | header, tensors)

    @classmethod
    def from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> BrowsingPropensities:
        """Return the model of a file's header and tensors; whatever it raises, the file is not sound."""
        read = from_file(header, tensors)
        leaning = header["leaning"]
        if not isinstance(leaning, list) or not all(type(number) is int for number in leaning):
            raise InputError(f"its unlinked states are {clean_text(leaning)}: expected numbers of states; fit again")
        states = StatePropensities(
            read.curve, read.params, read.encoder, read.shown, read.draws, read.draws_kind, {}, None, read.support,
            read.places, tuple(leaning),
        )  # fmt: skip
        return cls(states, read.info, read.provenance)


def _gathered(params: Params, curve: Curve, wider: Curve, like: NDArray[np.int64]) -> Params:
    """Return the parameters of a wider curve whose states have those of others, `like` [states]."""
    columns = {name: curve.anchored(values, np)[..., like] for name, values in params.items()}
    return {name: np.delete(values, wider.anchor_index, axis=-1) for name, values in columns.items()}
