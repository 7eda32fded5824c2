"""Reading: as browsing, and what stands above and was not clicked counts, too: whoever skips what all click has left.

Users who read from the top and leave once served (a cascade) examine a result the less, the more attractive the results
above it are that they did *not* click, and the more the one satisfied them that they clicked last. Two steps:

1. a browsing model gives every impression the propensity γ of its state, and with it every document of a query an
   attraction r̂, from all other pages that it stood on;
2. every impression has a *place*: its rank, its distance to the last click, how likely a reader would have skipped all
   results since then, Π (1 − r̂), in five steps, and the attraction of the last click in four. Click shares over places,
   with exposures times γ, tell what places change beyond their state, pooled towards each of the four
   (`estimation.normal_prior`), places without a click included. The propensity is γ(x) h:

       log p_place(x) = log γ_state(x) + log h_place.

A place is known before its result is looked at, as a browsing state is.

Attraction is how likely a document is clicked by whoever looks at it. A display that is looked at with probability γ
is clicked with probability γ r. Of its displays, clicked or not,

    log L_d(r) = Σ_clicked log r + Σ_others log(1 − γ r)

is the log likelihood of document d's attraction r up to a constant. How attractions are spread over documents is
learned from all of them: weights w on the points of `GRID` that maximise Π_d Σ_g w_g L_d(r_g). Relevant and irrelevant
documents then come apart by themselves, where a prior of one hump would draw both towards the middle. On a page, r̂ is
the mean of r under w_g L_d(r_g), L without that very display: whether it was clicked there is told by the page itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.average import average_of_places
from clickharvest.click_models.base import PageModel
from clickharvest.click_models.browsing import Browsing, browsing_log
from clickharvest.click_models.browsing.fitted import BrowsingPropensities, gather, number_of
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.curves import Params, flatten_params, make_curve, unflatten_params
from clickharvest.model.loading import from_file
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import write_file
from clickharvest.model.summary import spell_fitted, wrap
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import Places

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine
    from clickharvest.weights.summary import WeightReport
    from clickharvest.weights.weighing import Clip, Trust

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

COLUMNS = ("position", "distance", "skipped", "served")
"""What makes a place: rank, positions to the last click (0 for none), what was skipped since (0, hardly anything, to 4,
what nearly all click), and how attractive the last click was (1 to 4, 0 for none)."""
SKIPPED = (0.85, 0.6, 0.3, 0.1)
"""Probabilities to skip all results since the last click that divide the steps 0 (hardly anything was skipped) to 4."""
SERVED = (0.25, 0.55, 0.8)
"""Attractions of the last click that divide the steps 1 to 4; 0 is for no click above."""
GRID = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
"""Attractions that documents may have; nothing is certain to be clicked."""
STEPS = 60
"""Steps of the learning of w: each makes the clicks likelier, and those after these hardly."""
LEAST = 1e-12
"""Least weight of a point: its logarithm is taken."""
DOCUMENTS = 100_000
"""Documents, about, that the spread of attractions is learned from, drawn where there are more."""
MANY_LEFT = 0.9
"""How often users look on, of the usual, below which they are said to have left."""
PROPENSITY = "_clickharvest_propensity"
"""The column of the propensity of a row's browsing state."""
BASE = "base/"
"""What the tensors of the browsing model begin with."""


@dataclass(frozen=True, eq=False)
class ReadingPropensities:
    """Examination propensities of places, known relative to the top of the page.

    Attributes:
        base: the browsing model, with which documents get their attraction.
        places_model: the propensities of places, whose columns are `COLUMNS`.
        info: whatever else a reader may ask for, as JSON holds it.
        provenance: where it comes from; None where nothing tells.
    """

    base: BrowsingPropensities
    places_model: Propensities
    info: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance | None = None

    kind: ClassVar[str] = "reading"

    def __post_init__(self) -> None:
        places = self.places_model.places
        if places is None or places.columns != COLUMNS:
            raise InputError(f"a reading model has places by {', '.join(COLUMNS)}: this has others; fit again")
        if self.base.context != self.places_model.context:
            raise InputError("the two parts of a reading model depend on different contexts: fit again")

    def __str__(self) -> str:
        title = "Examination propensities of readers: position, last click, and what was skipped above"
        parts = [wrap(title), spell_fitted(self.info), *(wrap(sentence) for sentence in self.sentences())]
        return "\n\n".join([*parts, "Its first step, without what was skipped:", str(self.base)])

    @property
    def context(self) -> tuple[str, ...]:
        """The context columns that the model depends on."""
        return self.base.context

    @property
    def listed(self) -> Propensities:
        """What `clickharvest propensities` lists."""
        return self.places_model

    @property
    def average(self) -> Propensities:
        """How often positions are examined, on average over what was clicked and skipped above."""
        return average_of_places(self.places_model, self.info.get("displays"), 1)

    def steps(self, column: str, first: int) -> dict[int, float]:
        """Return how many times as often results are looked at in each step of a column as in its first one.

        Geometric means, over places that differ in nothing else and have a supported number, in a typical context.
        """
        model = self.places_model
        assert model.places is not None
        predicted = model.predict_encoded(typical_context(model))
        value = dict(zip(predicted.positions, np.log(predicted.propensity[0]), strict=True))
        usable = {k for k, own in zip(predicted.positions, predicted.supported[0], strict=True) if own}
        at = COLUMNS.index(column)
        number = {label: k for k, label in enumerate(model.places.labels, 1) if k in usable}
        apart: dict[int, list[float]] = {}
        for label, k in number.items():
            like = number.get((*label[:at], first, *label[at + 1 :]))
            if like is not None and label[at] > first:  # type: ignore[operator]
                apart.setdefault(int(label[at]), []).append(value[k] - value[like])
        return {step: float(np.exp(np.mean(own))) for step, own in sorted(apart.items())}

    def sentences(self) -> list[str]:
        """Return what skipping and being served change, in words."""
        told = []
        skipped, served = self.steps("skipped", 0), self.steps("served", 1)
        if skipped:
            last = max(skipped)
            left = ": they have left" if skipped[last] < MANY_LEFT else ""
            told.append(
                f"Where users skipped what most others click (step {last}), they look at a result {skipped[last]:.2f} "
                f"times as often as where they skipped hardly anything{left}."
            )
        if served:
            last = max(served)
            told.append(
                f"Below a click on what attracts most (step {last}), they look on {served[last]:.2f} times as often as "
                "below one on what attracts least."
            )
        return told

    def describe(self) -> dict[str, Any]:
        """Return what the model says of itself, as JSON holds it."""
        return {
            "model": self.kind,
            "anchor": 1,
            "context": list(self.context),
            "intervals": self.places_model.draws_kind,
            "skipped": self.steps("skipped", 0),
            "served": self.steps("served", 1),
            "base": self.base.describe(),
            "places": self.places_model.predict_encoded(typical_context(self.places_model)).to_arrow().to_pylist(),
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all, that `load_model` reads."""
        header, tensors = replace(self.places_model, info=dict(self.info), provenance=self.provenance).to_file()
        states = replace(self.base.states, info=dict(self.base.info))
        own, more = states.to_file()
        own |= {"leaning": list(states.leaning), "format": 0}
        tensors |= {BASE + name: values for name, values in more.items()}
        write_file(Path(path), {"model": self.kind, "base": own} | header, tensors)

    @classmethod
    def from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> ReadingPropensities:
        """Return the model of a file's header and tensors; whatever it raises, the file is not sound."""
        own = {name.removeprefix(BASE): values for name, values in tensors.items() if name.startswith(BASE)}
        base = BrowsingPropensities.from_file(header["base"], own)
        read = from_file(header, {name: values for name, values in tensors.items() if not name.startswith(BASE)})
        return cls(base, replace(read, info={}, provenance=None), read.info, read.provenance)


@dataclass(frozen=True, eq=False)
class ReadInterventions(Interventions):
    """Interventions whose places were made with a browsing model, which is kept with them."""

    base: BrowsingPropensities | None = None


@dataclass(frozen=True)
class Reading(PageModel):
    """Browsing, where also what was skipped above counts."""

    name: ClassVar[str] = "reading"
    about: ClassVar[str] = "as browsing, and what was skipped above counts, too"

    def harvest(self, log: ClickLog, **how: Any) -> ReadInterventions:
        """Fit a browsing model to a log, and return its interventions by place; `how` as for `Browsing`."""
        lowest = how.get("max_position")
        browsing = Browsing(intervals=None, anchor=1, seed=self.seed, progress=self.progress)
        states = browsing.harvest(log, **how)
        with_errors = self.intervals is not None and bool(states.contexts)
        base = replace(browsing, intervals="auto" if with_errors else None).fit(states)
        found = super().harvest(reading_log(log, base, lowest), **(how | {"max_position": None}))
        return ReadInterventions(**{one.name: getattr(found, one.name) for one in fields(found)}, base=base)

    def fit(self, interventions: Interventions) -> ReadingPropensities:
        """Return the propensities of places."""
        from clickharvest.estimation.estimators import PBM
        from clickharvest.estimation.objectives.clickshare import ClickShare
        from clickharvest.estimation.sample import Reach

        class ReaderPlaces(PBM):
            """The position-based model of places, those that were shown and never clicked included.

            Click shares have no maximum there. Where readers have left, having no click is the rule; pooling gives such
            places a number, as low as the impressions of units that were clicked elsewhere say.
            """

            def _reach(self, interventions: Interventions, anchor: int) -> Reach:
                reach = super()._reach(interventions, anchor)
                # Nothing but pooling would hold what is never clicked.
                return Reach(reach.tied, reach.tied) if self._can_cluster(ClickShare, len(reach.tied)) else reach

        if not isinstance(interventions, ReadInterventions) or interventions.base is None:
            raise InputError("a reading model is fitted to what its own harvest gives: harvest the log with it")
        if self.anchor != 1:
            raise InputError(f"--anchor {self.anchor}: a reading model is relative to the top of the page, position 1")
        model = ReaderPlaces(intervals=self.intervals, seed=self.seed, progress=self.progress)
        found = model.fit(times_browsing(interventions, interventions.base)).propensities_
        places = compose(interventions.base, replace(found, info={}, provenance=None))
        at = np.searchsorted(places.curve.positions, interventions.position)
        known = np.isin(interventions.position, places.curve.positions)
        displays = np.bincount(at[known], interventions.exposure[known], len(places.curve.positions))
        info = dict(found.info) | {"displays": displays.tolist()}
        return ReadingPropensities(interventions.base, places, info, found.provenance)

    def places(self, log: ClickLog, fitted: Any) -> ClickLog:
        """Return the log by what was clicked and skipped above."""
        return reading_log(log, fitted.base, None)

    @classmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, Any]) -> ReadingPropensities:
        """Return the propensities of a file."""
        return ReadingPropensities.from_file(header, tensors)

    @classmethod
    def weigh(
        cls,
        log: ClickLog,
        fitted: Any,
        path: Path,
        *,
        clip: Clip,
        normalise: bool,
        policy_aware: bool,
        trust: Trust = "checked",
    ) -> WeightReport:
        """Write a log with the propensity of every row's own place; attractions are those of this log."""
        from clickharvest.weights.weighing import weigh_to_parquet

        places = reading_log(log, fitted.base, None)
        return weigh_to_parquet(
            places, fitted.places_model, path, clip=clip, normalise=normalise, policy_aware=policy_aware, trust=trust
        )


def reading_log(log: ClickLog, base: BrowsingPropensities, lowest: int | None) -> ClickLog:
    """Return the log whose positions are numbers of places: rank, distance, what was skipped, and last click.

    Args:
        log: the log.
        base: the browsing model that gives documents their attraction.
        lowest: leave out what was shown lower; None leaves out nothing.
    """
    import ibis

    from clickharvest.logs.preparing import NUMBER, number_places

    rows = _with_propensity(log, base)
    if lowest is not None:
        shown = rows.source.filter(rows.columns["position"] <= lowest)
        rows = _moved(rows, shown)
    columns, engine = rows.columns, log.engine
    own = {f"own_{i}": name for i, name in enumerate(rows.source.columns)}  # whatever the log's columns are called
    t = rows.source.select(
        **{held: rows.source[name] for held, name in own.items()}, _p=rows.source[PROPENSITY],
        _q=columns["query"], _d=columns["doc"], _page=columns["page"],
        _k=columns["position"].cast("int64"), _c=columns["clicks"].cast("float64"),
    )  # fmt: skip
    t = _with_attraction(t, engine)
    above = ibis.window(group_by="_page", order_by="_k", preceding=(None, 1))
    upto = ibis.window(group_by="_page", order_by="_k", preceding=(None, 0))
    t = t.mutate(_passed=(1 - t._r).ln().sum().over(upto))
    clicked = t._c == 1
    # Sums fall, so that the least of clicked rows is that of the last click; ranks rise, and attractions are below 1.
    since = clicked.ifelse(t._passed, ibis.null("float64")).min().over(above).coalesce(0.0)
    mark = clicked.ifelse(t._k + t._r, ibis.null("float64")).max().over(above).coalesce(0.0)
    t = t.mutate(_skip=(t._passed - (1 - t._r).ln() - since).exp(), _mark=mark, _last=mark.floor().cast("int64"))
    attracted = t._mark - t._last
    served = sum(((attracted >= edge).cast("int64") for edge in SERVED), ibis.literal(1, "int64"))
    places = {
        COLUMNS[0]: t._k,
        COLUMNS[1]: (t._last > 0).ifelse(t._k - t._last, 0),
        # Rounding must not make a step of nothing skipped.
        COLUMNS[2]: sum(((t._skip < edge - 1e-9).cast("int64") for edge in SKIPPED), ibis.literal(0, "int64")),
        COLUMNS[3]: (t._last > 0).ifelse(served, 0),
    }
    hidden = {f"_clickharvest_{name}": value.cast("int64") for name, value in places.items()}
    kept = {name: t[held] for held, name in own.items() if name != PROPENSITY}
    placed = engine.materialise(t.select(**kept, **hidden), task="Reading pages")
    numbered, table = number_places(placed, list(hidden), engine)
    assert table is not None
    plain = numbered.select(*(name for name in numbered.columns if name not in hidden))
    found = _moved(rows, plain)
    return replace(
        found,
        columns=found.columns | {"position": plain[NUMBER]},
        places=replace(table, columns=COLUMNS),
        roles=rows.roles | {"position": NUMBER},
    )


def _with_attraction(t: ir.Table, engine: Engine) -> ir.Table:
    """Return rows with the attraction `_r` of their document, told by its other pages."""
    import ibis

    from clickharvest.logs.engines import is_drawn

    def terms(rows: ir.Table) -> list[ir.Value]:
        seen = ibis.least(rows._p, 1.0)
        return [(rows._c == 1).ifelse(math.log(r), (1 - seen * r).ln()) for r in GRID]

    names = [f"_l_{i}" for i in range(len(GRID))]
    docs = t.group_by("_q", "_d").agg(**{name: term.sum() for name, term in zip(names, terms(t), strict=True)})
    docs = engine.materialise(docs, task="Attractions")
    count = engine.fetch(docs.agg(n=docs.count()), task="Attractions").to_pylist()[0]["n"]
    some = docs
    if count > DOCUMENTS:
        some = docs.filter(is_drawn(docs._q.cast("string") + " " + docs._d.cast("string"), DOCUMENTS / count))
    told = engine.fetch(some.select(*names), task="Attractions")
    weights = learn_weights(np.stack([told[name].to_numpy() for name in names], axis=1))
    whole = [docs[name] + math.log(weight) for name, weight in zip(names, weights, strict=True)]
    likeliest = ibis.greatest(*whole)  # what is far below it may vanish in an exponential
    docs = docs.select("_q", "_d", **{name: own - likeliest for name, own in zip(names, whole, strict=True)})
    t = t.inner_join(docs, ["_q", "_d"])
    others = [(t[name] - term).exp() for name, term in zip(names, terms(t), strict=True)]
    t = t.mutate(_r=sum(r * one for r, one in zip(GRID, others, strict=True)) / sum(others))
    return t.drop(*names)


def _with_propensity(log: ClickLog, base: BrowsingPropensities) -> ClickLog:
    """Return the log with the propensity of every row's browsing state as a further column, kept inside the engine."""
    from clickharvest.weights.scoring import count_cells, model_context, score_cells

    states = browsing_log(log, named=True)
    assert states.places is not None
    propensities = base.reaching(int(states.places.labels[-1][0]))
    cells = count_cells(states, model_context(states, propensities), propensities)
    joined, p = cells.join_lines(score_cells(cells, propensities, trust="all"), {})
    kept = joined.select(*(states.source[name] for name in log.source.columns), **{PROPENSITY: p})
    return replace(_moved(log, log.engine.materialise(kept, task="Reading pages")), is_text=False)


def _moved(log: ClickLog, source: ir.Table) -> ClickLog:
    """Return the log with another table that has its columns, and more."""
    from clickharvest.logs.ibis_inside import read_off

    return replace(log, source=source, columns=read_off(log.columns, log.source, source))


def learn_weights(log_likelihood: Array) -> Array:
    """Return the weights w of the points of the grid under which documents' clicks are likeliest, [points].

    Args:
        log_likelihood: log L_d(r_g), [documents, points].

    Example:
        Of four documents three have been clicked once in a hundred looks, and one always.

        >>> clicks = np.array([1, 1, 1, 100])
        >>> r = np.array(GRID)
        >>> learn_weights(clicks[:, None] * np.log(r) + (100 - clicks)[:, None] * np.log(1 - r)).round(2).tolist()
        [0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25]
    """
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    weights: Array = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    for _ in range(STEPS):
        belongs = likelihood * weights
        weights = (belongs / belongs.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.maximum(weights, LEAST)


def states_of_places(places: Places) -> Integers:
    """Return the number of the browsing state that each place is in, [places].

    Example:
        >>> states_of_places(Places(("position", "distance"), ((1, 0), (3, 0), (3, 2)))).tolist()
        [1, 4, 5]
    """
    rank, distance = (np.array(places.values(column), np.int64) for column in range(2))
    return number_of(rank, np.where(distance > 0, rank - distance, 0))


def times_browsing(interventions: Interventions, base: BrowsingPropensities) -> Interventions:
    """Return interventions whose exposures are multiplied with γ, so that click shares tell what is beyond it."""
    states, number = _states(base, interventions.places)
    params = {name: states.curve.anchored(values, np) for name, values in states.params.items()}
    state = number[interventions.position - 1] - 1
    log_p: Array = params["b"][state]
    if states.encoder is not None:
        x = states.encoder.transform({name: interventions.contexts[name] for name in states.context})
        for feature, effects in zip(x.T, params["W"], strict=True):
            log_p = log_p + feature * effects[state]
    return replace(interventions, exposure=interventions.exposure * np.exp(log_p))


def compose(base: BrowsingPropensities, beyond: Propensities) -> Propensities:
    """Return the propensities of places, of a browsing model and of what places tell beyond it.

    Intervals: a free place makes up for whatever γ is wrong by in an average context, so that their error there is that
    of `beyond`; what contexts change has the error of the browsing model.

    Args:
        base: the browsing model.
        beyond: constant propensities by place, fitted to `times_browsing`.
    """
    states, number = _states(base, beyond.places)
    positions = beyond.curve.positions
    like = number[np.array(positions) - 1] - 1
    curve = make_curve(states.curve.name, positions, beyond.curve.anchor, states.curve.n_features)

    def gathered(params: Params) -> Params:
        return gather(params, states.curve, curve, like)

    own = gathered(states.params)
    params = own | {"b": own["b"] + beyond.params["b"]}
    draws = None
    if beyond.draws is not None:
        parts = [[flatten_params(params | {"b": own["b"] + draw}) for draw in beyond.draws.astype(np.float64)]]
        if states.draws is not None and states.encoder is not None:
            others = (gathered(unflatten_params(draw.astype(np.float64), states.params)) for draw in states.draws)
            parts.append([flatten_params(params | {"W": other["W"]}) for other in others])
        draws = _together(flatten_params(params), [np.array(part) for part in parts])
    return replace(
        beyond,
        curve=curve,
        params=params,
        encoder=states.encoder,
        draws=draws,
        support=_support(states.support, beyond.support, positions, like + 1),
    )


def _states(base: BrowsingPropensities, places: Places | None) -> tuple[Propensities, Integers]:
    """Return the propensities of the states of places, and the number of the state of each place."""
    assert places is not None
    return base.reaching(max(int(rank) for rank in places.values(0))), states_of_places(places)


def _together(middle: Array, parts: list[Array]) -> NDArray[np.float32]:
    """Return points whose covariance (divisor: points − 1) is the sum of those of several sets of points."""
    points = sum(len(part) for part in parts)
    wider = [middle + np.sqrt((points - 1) / (len(part) - 1)) * (part - middle) for part in parts]
    return np.concatenate(wider).astype(np.float32)


def _support(
    of_states: Support | None, of_places: Support | None, positions: tuple[int, ...], state: Integers
) -> Support | None:
    """Return what the data speak of: of a value of a context, at the places whose states it is supported in."""
    if of_states is None or of_places is None:
        return of_places
    columns = []
    for column in of_states.columns:
        linked = (tuple(k for k, own in zip(positions, state, strict=True) if own in known) for known in column.linked)
        columns.append(ColumnSupport(tuple(linked), column.rare, column.reach))
    return Support(tuple(columns), of_places.queries)
