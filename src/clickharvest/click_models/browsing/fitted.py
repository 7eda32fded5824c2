"""A fitted browsing model: how likely a result is looked at, given its rank and the last click above it.

A browsing *state* is the rank of a result and the rank of the last click above it on its page (0 where there is none).
The states of K ranks are numbered from 1, by rank and then by last click:

    (1, 0) → 1;   (2, 0) → 2, (2, 1) → 3;   (3, 0) → 4, (3, 1) → 5, (3, 2) → 6;   …   number = k (k − 1) / 2 + j + 1

Code for positions thus takes states by number: the first is the top of the page, and the states of ranks up to K have
the numbers up to K (K + 1) / 2. The model holds the propensities of all states of the ranks in the data, relative to a
state without a click above. States that clicks link to it are supported; the propensity of any other state follows
from its rank and its distance to the last click.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.click_models.average import average_of_places
from clickharvest.click_models.base import OtherModel
from clickharvest.errors import InputError
from clickharvest.model.budget import CANNOT_TELL
from clickharvest.model.contexts import Table
from clickharvest.model.curves import Curve, Params, flatten_params, make_curve, unflatten_params
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.summary import aligned, spell_fitted, wrap
from clickharvest.model.support import Doubt, Mask
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import Places
from clickharvest.words import count, json_value

Integers = NDArray[np.int64]

COLUMNS = ("position", "last_click")
"""The columns of a table of states."""
MOST_RANKS = 60
"""Most ranks: those of more would make over 1,830 states, whose matrices take more than minutes to factor."""
SHOWN_RANKS, SHOWN_CLICKS = 25, 9
"""Rows and columns of last clicks that the summary shows."""
UNLINKED = "no clicks link this state to the anchor: its number leans on its rank and the distance to the last click"
DEEPER = "below the positions of the model's data: the number is that of its last position"


def n_states(ranks: int) -> int:
    """Return how many states there are of so many ranks.

    Example:
        >>> n_states(3), n_states(10)
        (6, 55)
    """
    return ranks * (ranks + 1) // 2


def number_of(rank: ArrayLike, last: ArrayLike) -> Integers:
    """Return the numbers of states, [n].

    Args:
        rank: ranks from 1, [n].
        last: ranks of the last click above, 0 for none, [n].

    Example:
        >>> number_of([1, 2, 2, 3], [0, 0, 1, 2]).tolist()
        [1, 2, 3, 6]
    """
    k, j = np.asarray(rank, dtype=np.int64), np.asarray(last, dtype=np.int64)
    numbers: Integers = k * (k - 1) // 2 + j + 1
    return numbers


def states_of(number: ArrayLike) -> tuple[Integers, Integers]:
    """Return the ranks and the ranks of the last click above of numbered states, each [n].

    Example:
        >>> rank, last = states_of([1, 2, 3, 6])
        >>> rank.tolist(), last.tolist()
        ([1, 2, 2, 3], [0, 0, 1, 2])
    """
    n = np.asarray(number, dtype=np.int64)
    rank = np.ceil((np.sqrt(8.0 * n + 1) - 1) / 2).astype(np.int64)
    last: Integers = n - rank * (rank - 1) // 2 - 1
    return rank, last


def state_places(ranks: int) -> Places:
    """Return the states of so many ranks as a table of places.

    Example:
        >>> state_places(3).name(6), state_places(3).columns
        ('position 3, last_click 2', ('position', 'last_click'))
    """
    rank, last = states_of(np.arange(1, n_states(ranks) + 1))
    return Places(COLUMNS, tuple(zip(rank.tolist(), last.tolist(), strict=True)))


def require_few(ranks: int) -> None:
    """Raise an InputError where ranks make too many states."""
    if ranks > MOST_RANKS:
        raise InputError(
            f"results were shown at {ranks} positions, which make {n_states(ranks):,} browsing states: expected at "
            f"most {MOST_RANKS} positions; leave out what stood lower with --max-position {MOST_RANKS}"
        )


@dataclass(frozen=True, eq=False)
class StatePropensities(Propensities):
    """Propensities whose positions are the numbers of browsing states.

    Attributes:
        leaning: states that no clicks link to the anchor; their propensities follow from other states.
        deeper: states below the ranks of the data, which have the propensities of the last rank.
    """

    leaning: tuple[int, ...] = ()
    deeper: tuple[int, ...] = ()

    def doubts(self, x: NDArray[np.float64], lacking: Mask | None = None) -> tuple[Doubt, ...]:
        """Return the reasons to doubt propensities: states that are not linked, then those of `Propensities`."""
        masks = {UNLINKED: np.isin(self.shown, self.leaning)[None], DEEPER: np.isin(self.shown, self.deeper)[None]}
        doubts = tuple(Doubt(why, where) for why, where in masks.items() if where.any())
        return doubts + super().doubts(x, lacking)


@dataclass(frozen=True, eq=False)
class BrowsingPropensities(OtherModel):
    """Examination propensities of browsing states, known relative to one without a click above.

    Attributes:
        states: the propensities by the number of the state, of all states of ranks 1 to K.
        info: whatever else a reader may ask for, as JSON holds it.
        provenance: where it comes from; None if unknown.

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
        states = self.states
        predicted = states.predict_encoded(typical_context(states))
        where = f"Propensity relative to position {self.anchor} with no click above it"
        where += "" if states.encoder is None else " in a typical context"
        signs = []
        if not predicted.supported.all():
            signs.append("* no clicks link the state: its number leans on its rank and the distance to the last click")
        if (predicted.cannot_tell & predicted.supported).any():
            signs.append(f"? {CANNOT_TELL}: {predicted.untold}")
        if states.draws is not None:
            signs.append(f"Intervals: {states.draws_kind}; clickharvest propensities MODEL lists them")
        parts = [
            wrap("Examination propensities of browsing states: position and last click above"),
            spell_fitted(self.info),
            *map(wrap, self.sentences()),
            wrap(where + ", by the position of the last click above:"),
            self._table(predicted),
            wrap(". ".join(signs) + ".") if signs else "",
        ]
        return "\n\n".join(part for part in parts if part)

    def _table(self, predicted: Prediction) -> str:
        """Return ranks down, last clicks across."""

        def cell(number: int) -> str:
            value = predicted.propensity[0, number - 1]
            supported = predicted.supported[0, number - 1]
            if (supported and predicted.cannot_tell[0, number - 1]) or not np.isfinite(value):
                return "?"
            return f"{value:.{2 if value < 100 else 0}f}{'' if supported else '*'}"

        ranks, clicks = min(self.ranks, SHOWN_RANKS), min(self.ranks - 1, SHOWN_CLICKS)
        header = ["position", "none", *(f"at {j}" for j in range(1, clicks + 1))]
        rows = []
        for rank in range(1, ranks + 1):
            cells = [cell(number) for number in number_of(rank, np.arange(min(rank, clicks + 1))).tolist()]
            rows.append([str(rank), *cells, *[""] * (clicks + 1 - len(cells))])
        left = n_states(self.ranks) - sum(min(rank, clicks + 1) for rank in range(1, ranks + 1))
        return "\n".join([aligned(header, rows), *([f"… {count(left, 'more state')}"] if left else [])])

    @property
    def ranks(self) -> int:
        """How many ranks the model speaks of."""
        return int(states_of(self.states.curve.positions[-1])[0])

    @property
    def listed(self) -> Propensities:
        """The propensities that `clickharvest propensities` lists."""
        return self.states

    @property
    def average(self) -> Propensities:
        """How often positions are examined, on average over what was clicked above."""
        return average_of_places(self.states, self.info.get("displays"), self.anchor)

    def sentences(self) -> list[str]:
        """Return how a click above changes looking below, in words."""
        return spell_effects(self.info)

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
        """Return the propensities of the states of more ranks: those below the last rank have its propensities."""
        if ranks <= self.ranks:
            return self.states
        numbers = tuple(range(1, n_states(ranks) + 1))
        k, j = states_of(numbers)
        like = number_of(np.minimum(k, self.ranks), np.minimum(j, self.ranks - 1)) - 1
        states = self.states
        curve = make_curve(states.curve.name, numbers, states.curve.anchor, states.curve.n_features)
        support = states.support and replace(states.support, queries=tuple(states.support.queries[i] for i in like))
        draws = states.draws
        if draws is not None:
            each = (unflatten_params(draw.astype(np.float64), states.params) for draw in draws)
            wider = [flatten_params(gather(params, states.curve, curve, like)) for params in each]
            draws = np.stack(wider).astype(np.float32)
        return replace(
            states,
            curve=curve,
            params=gather(states.params, states.curve, curve, like),
            shown=numbers,
            places=state_places(ranks),
            draws=draws,
            support=support,
            deeper=tuple(int(n) for n in np.array(numbers)[k > self.ranks]),
        )

    def describe(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        states = self.states
        typical = states.predict_encoded(typical_context(states))
        return {
            "model": self.kind,
            "anchor": self.anchor,
            "positions": self.ranks,
            "context": {} if states.encoder is None else {part.name: part.kind for part in states.encoder.parts},
            "intervals": states.draws_kind,
            "typical_context": json_value(typical.to_arrow().to_pylist()),
            "unlinked_states": len(states.leaning),
            **self.origin(),
        }

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the tensors of a file."""
        header, tensors = replace(self.states, info=dict(self.info), provenance=self.provenance).to_file()
        return {"leaning": list(self.states.leaning)} | header, tensors


def gather(params: Params, curve: Curve, other: Curve, like: Integers) -> Params:
    """Return the parameters of another curve, each place of which is like a state of the first, `like` [places]."""
    columns = {name: curve.anchored(values, np)[..., like] for name, values in params.items()}
    return {name: np.delete(values, other.anchor_index, axis=-1) for name, values in columns.items()}


def spell_effects(info: Mapping[str, Any]) -> list[str]:
    """Return the sentence on how a click above changes looking below; empty where the model has no estimate.

    Example:
        >>> near, far = {"ratio": 1.5, "lower": 1.2, "upper": 1.8}, {"ratio": 0.4, "lower": 0.3, "upper": 0.5}
        >>> spell_effects({"click_above": {"next": near, "further": far}})[0]
        'Right below a click, a result is looked at 1.50 times as often as at the same position with no click above \
(1.20 to 1.80); further below, 0.40 times (0.30 to 0.50).'
    """
    effects = info.get("click_above")
    if not isinstance(effects, Mapping):
        return []
    near, far = (_spell_ratio(effects.get(name)) for name in ("next", "further"))
    if near is None:
        return ["No result below a click was clicked, too: the numbers of such states lean on those without a click."]
    below = (
        f"Right below a click, a result is looked at {near[0]} times as often as at the same position with no click "
    )
    return [f"{below}above{near[1]}{'' if far is None else f'; further below, {far[0]} times{far[1]}'}."]


def _spell_ratio(effect: Any) -> tuple[str, str] | None:
    """Return a ratio and its interval in words; None where there is none."""
    if not isinstance(effect, Mapping) or not isinstance(effect.get("ratio"), int | float):
        return None
    ends = [effect.get(name) for name in ("lower", "upper")]
    interval = f" ({ends[0]:.2f} to {ends[1]:.2f})" if all(isinstance(end, int | float) for end in ends) else ""
    return f"{effect['ratio']:.2f}", interval
