"""Reading: the browsing model, in which results above that were skipped count, too.

Users who read from the top and leave once served (a cascade) examine a result the less, the more attractive the results
above it are that they did *not* click, and the more satisfying their last click was. The fit has two steps:

1. A browsing model gives every impression the propensity γ of its state. With these, every document of a query gets an
   attraction r̂ from its other pages.
2. Every impression has a *place*: its rank, its distance to the last click, the probability that a reader skips all
   results since then, Π (1 − r̂), in five steps, and the attraction of the last click in four. Click shares over places,
   with exposures times γ, estimate the effect h of a place beyond its state. They are pooled towards each of the four
   (`estimation.normal_prior`) and include places without a click. The propensity is

       log p_place(x) = log γ_state(x) + log h_place.

A place is known before its result is looked at, as a browsing state is.

Attraction is the probability that a document is clicked by a user who looks at it, so that a display that is looked at
with probability γ is clicked with probability γ r. The log likelihood of the attraction r of document d is

    log L_d(r) = Σ_clicked log r + Σ_others log(1 − γ r) + const.

The distribution of attractions over documents is a mixture: weights w on the points of `GRID` that maximise
Π_d Σ_g w_g L_d(r_g). It may have two humps, of relevant and irrelevant documents, which a prior of one hump would draw
towards the middle. On a page, r̂ is the mean of r under w_g L_d(r_g), where L leaves out that very display.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.average import average_of_places
from clickharvest.click_models.base import Array, Header, OtherModel, PageModel, Tensors
from clickharvest.click_models.browsing import Browsing, browsing_log
from clickharvest.click_models.browsing.fitted import BrowsingPropensities, gather, number_of
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.curves import Params, flatten_params, make_curve, unflatten_params
from clickharvest.model.loading import from_file
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.summary import spell_fitted, wrap
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import Places

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

Integers = NDArray[np.int64]

COLUMNS = ("position", "distance", "skipped", "served")
"""The columns of a place: rank, positions since the last click (0 for none), step of what was skipped since (0, hardly
anything, to 4, results that nearly all click), and step of the attraction of the last click (1 to 4, 0 for none)."""
SKIPPED = (0.85, 0.6, 0.3, 0.1)
"""Probabilities of skipping all results since the last click, which divide the steps 0 to 4."""
SERVED = (0.25, 0.55, 0.8)
"""Attractions of the last click, which divide the steps 1 to 4."""
GRID = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
"""Attractions that documents may have; nothing is certain to be clicked."""
STEPS = 60
"""Steps of expectation-maximisation for w: more change the likelihood hardly."""
LEAST = 1e-12
"""Least weight of a point, because its logarithm is taken."""
DOCUMENTS = 100_000
"""Documents, about, that w is learned from, drawn where there are more."""
MANY_LEFT = 0.9
"""Ratio of looking on below which the summary says that users have left."""
PROPENSITY = "_clickharvest_propensity"
"""The column of the propensity of a row's browsing state."""
BASE = "base/"
"""Prefix of the browsing model's tensors in a file."""


@dataclass(frozen=True, eq=False)
class ReadingPropensities(OtherModel):
    """Examination propensities of places, known relative to the top of the page.

    Attributes:
        base: the browsing model, by which documents get their attraction.
        places_model: the propensities of places, whose columns are `COLUMNS`.
        info: whatever else a reader may ask for, as JSON holds it.
        provenance: where it comes from; None if unknown.
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
        """The propensities that `clickharvest propensities` lists."""
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
        supported = {k for k, known in zip(predicted.positions, predicted.supported[0], strict=True) if known}
        at = COLUMNS.index(column)
        number = {label: k for k, label in enumerate(model.places.labels, 1) if k in supported}
        differences: dict[int, list[float]] = {}
        for label, k in number.items():
            like = number.get((*label[:at], first, *label[at + 1 :]))
            if like is not None and label[at] > first:  # type: ignore[operator]
                differences.setdefault(int(label[at]), []).append(value[k] - value[like])
        return {step: float(np.exp(np.mean(logs))) for step, logs in sorted(differences.items())}

    def sentences(self) -> list[str]:
        """Return the effects of skipping and of being served, in words."""
        sentences = []
        skipped, served = self.steps("skipped", 0), self.steps("served", 1)
        if skipped:
            last = max(skipped)
            left = ": they have left" if skipped[last] < MANY_LEFT else ""
            sentences.append(
                f"Where users skipped what most others click (step {last}), they look at a result {skipped[last]:.2f} "
                f"times as often as where they skipped hardly anything{left}."
            )
        if served:
            last = max(served)
            sentences.append(
                f"Below a click on what attracts most (step {last}), they look on {served[last]:.2f} times as often as "
                "below one on what attracts least."
            )
        return sentences

    def describe(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        return {
            "model": self.kind,
            "anchor": 1,
            "context": list(self.context),
            "intervals": self.places_model.draws_kind,
            "skipped": self.steps("skipped", 0),
            "served": self.steps("served", 1),
            "base": self.base.describe(),
            "places": self.places_model.predict_encoded(typical_context(self.places_model)).to_arrow().to_pylist(),
            **self.origin(),
        }

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the tensors of a file."""
        header, tensors = replace(self.places_model, info=dict(self.info), provenance=self.provenance).to_file()
        base, base_tensors = replace(self.base, provenance=None).to_file()
        tensors |= {BASE + name: values for name, values in base_tensors.items()}
        return {"base": base | {"format": 0}} | header, tensors


@dataclass(frozen=True, eq=False)
class ReadInterventions(Interventions):
    """Interventions with the browsing model that made their places."""

    base: BrowsingPropensities | None = None


@dataclass(frozen=True)
class Reading(PageModel):
    """Browsing, where also what was skipped above counts."""

    name: ClassVar[str] = "reading"
    about: ClassVar[str] = "as browsing, and what was skipped above counts, too"

    def harvest(self, log: ClickLog, **how: Any) -> ReadInterventions:
        """Fit a browsing model to a log, and return the interventions by place; `how` as for `Browsing`."""
        lowest = how.get("max_position")
        browsing = Browsing(intervals=None, anchor=1, seed=self.seed, progress=self.progress)
        states = browsing.harvest(log, **how)
        with_errors = self.intervals is not None and bool(states.contexts)
        base = replace(browsing, intervals="auto" if with_errors else None).fit(states)
        placed = super().harvest(reading_log(log, base, lowest), **(how | {"max_position": None}))
        return ReadInterventions(**{field.name: getattr(placed, field.name) for field in fields(placed)}, base=base)

    def fit(self, interventions: Interventions) -> ReadingPropensities:
        """Return the propensities of places."""
        from clickharvest.estimation.estimators import PBM
        from clickharvest.estimation.objectives.clickshare import ClickShare
        from clickharvest.estimation.sample import Reach

        class ReaderPlaces(PBM):
            """The position-based model of places, including places without a click.

            Click shares alone have no maximum there, but pooling gives such places a propensity. Such places are the
            rule where readers have left.
            """

            def _reach(self, interventions: Interventions, anchor: int) -> Reach:
                reach = super()._reach(interventions, anchor)
                # Only a fit that pools can have places without a click.
                return Reach(reach.tied, reach.tied) if self._can_cluster(ClickShare, len(reach.tied)) else reach

        if not isinstance(interventions, ReadInterventions) or interventions.base is None:
            raise InputError("a reading model is fitted to the result of its own harvest: call Reading.harvest(log)")
        if self.anchor != 1:
            raise InputError(f"--anchor {self.anchor}: a reading model is relative to the top of the page, position 1")
        model = ReaderPlaces(intervals=self.intervals, seed=self.seed, progress=self.progress)
        beyond = model.fit(times_browsing(interventions, interventions.base)).propensities_
        places = compose(interventions.base, replace(beyond, info={}, provenance=None))
        at = np.searchsorted(places.curve.positions, interventions.position)
        known = np.isin(interventions.position, places.curve.positions)
        displays = np.bincount(at[known], interventions.exposure[known], len(places.curve.positions))
        info = dict(beyond.info) | {"displays": displays.tolist()}
        return ReadingPropensities(interventions.base, places, info, beyond.provenance)

    @classmethod
    def load(cls, header: Header, tensors: Tensors) -> ReadingPropensities:
        """Return the propensities of a file."""
        of_base = {name.removeprefix(BASE): values for name, values in tensors.items() if name.startswith(BASE)}
        base = Browsing.load(header["base"], of_base)
        read = from_file(header, {name: values for name, values in tensors.items() if not name.startswith(BASE)})
        return ReadingPropensities(base, replace(read, info={}, provenance=None), read.info, read.provenance)

    @classmethod
    def place(cls, log: ClickLog, fitted: Any) -> tuple[ClickLog, Propensities]:
        """Return the log by what was clicked and skipped above, with attractions of this log, and the propensities."""
        return reading_log(log, fitted.base, None), fitted.places_model


def reading_log(log: ClickLog, base: BrowsingPropensities, lowest: int | None) -> ClickLog:
    """Return the log with the numbers of places for positions; see `COLUMNS` for what makes a place.

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
    kept = {f"kept_{i}": name for i, name in enumerate(rows.source.columns)}  # their own names might clash with ours
    t = rows.source.select(
        **{ours: rows.source[name] for ours, name in kept.items()}, _p=rows.source[PROPENSITY],
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
    columns_back = {name: t[ours] for ours, name in kept.items() if name != PROPENSITY}
    placed = engine.materialise(t.select(**columns_back, **hidden), task="Reading pages")
    numbered, table = number_places(placed, list(hidden), engine)
    assert table is not None
    plain = numbered.select(*(name for name in numbered.columns if name not in hidden))
    moved = _moved(rows, plain)
    return replace(
        moved,
        columns=moved.columns | {"position": plain[NUMBER]},
        places=replace(table, columns=COLUMNS),
        roles=rows.roles | {"position": NUMBER},
    )


def _with_attraction(t: ir.Table, engine: Engine) -> ir.Table:
    """Return rows with the attraction `_r` of their document, estimated from its other pages."""
    import ibis

    from clickharvest.logs.engines import is_drawn

    def terms(rows: ir.Table) -> list[ir.Value]:
        seen = ibis.least(rows._p, 1.0)
        return [(rows._c == 1).ifelse(math.log(r), (1 - seen * r).ln()) for r in GRID]

    names = [f"_l_{i}" for i in range(len(GRID))]
    docs = t.group_by("_q", "_d").agg(**{name: term.sum() for name, term in zip(names, terms(t), strict=True)})
    docs = engine.materialise(docs, task="Attractions")
    count = engine.fetch(docs.agg(n=docs.count()), task="Attractions").to_pylist()[0]["n"]
    drawn = docs
    if count > DOCUMENTS:
        drawn = docs.filter(is_drawn(docs._q.cast("string") + " " + docs._d.cast("string"), DOCUMENTS / count))
    fetched = engine.fetch(drawn.select(*names), task="Attractions")
    weights = learn_weights(np.stack([fetched[name].to_numpy() for name in names], axis=1))
    whole = [docs[name] + math.log(weight) for name, weight in zip(names, weights, strict=True)]
    likeliest = ibis.greatest(*whole)  # what is far below it may vanish in an exponential
    docs = docs.select("_q", "_d", **{name: log - likeliest for name, log in zip(names, whole, strict=True)})
    t = t.inner_join(docs, ["_q", "_d"])
    others = [(t[name] - term).exp() for name, term in zip(names, terms(t), strict=True)]
    t = t.mutate(_r=sum(r * weight for r, weight in zip(GRID, others, strict=True)) / sum(others))
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
    """Return the maximum-likelihood weights w of the points of the grid, [points].

    Args:
        log_likelihood: log L_d(r_g), [documents, points].

    Example:
        Of four documents, three have been clicked once in a hundred looks, and one always.

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
    """Return interventions whose exposures are multiplied by γ, so that click shares estimate the effect beyond it."""
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
    """Return the propensities of places: those of a browsing model times the effects of places beyond it.

    Intervals: the effect of a place makes up for errors of γ in an average context, so that the error there is that of
    `beyond`. The effects of contexts have the error of the browsing model.

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

    params = gathered(states.params)
    b = params["b"]
    params = params | {"b": b + beyond.params["b"]}
    draws = None
    if beyond.draws is not None:
        parts = [[flatten_params(params | {"b": b + draw}) for draw in beyond.draws.astype(np.float64)]]
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
    """Return the support of places: a value of a context is supported at places whose states it is supported in."""
    if of_states is None or of_places is None:
        return of_places
    columns = []
    for column in of_states.columns:
        linked = (
            tuple(k for k, here in zip(positions, state, strict=True) if here in known) for known in column.linked
        )
        columns.append(ColumnSupport(tuple(linked), column.rare, column.reach))
    return Support(tuple(columns), of_places.queries)
