"""Reading: as browsing, and what stands above and was not clicked counts, too: whoever skips what all click has left.

Users who read from the top and leave once served (a cascade) examine a result the less, the more attractive the results
above it are that they did *not* click, and the more the one satisfied them that they clicked last. Two steps:

1. a browsing model gives every impression the propensity γ of its state, and with it every document of a query an
   attraction r̂ (`attraction`), from all other pages that it stood on;
2. every impression has a *place*: its rank, its distance to the last click, how likely a reader would have skipped all
   results since then, Π (1 − r̂), in five steps, and the attraction of the last click in four. Click shares over places,
   with exposures times γ, tell what places change beyond their state, pooled towards each of the four
   (`estimation.place_prior`), places without a click included (`reader_places`); the propensity is γ times that
   (`composing`). Contexts change γ.

A place is known before its result is looked at, as a browsing state is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from clickharvest.click_models.attraction import GRID, learn_weights
from clickharvest.click_models.base import PageModel
from clickharvest.click_models.browsing import Browsing
from clickharvest.click_models.composing import compose, times_browsing
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.reading import COLUMNS, ReadingPropensities

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine
    from clickharvest.model.browsing import BrowsingPropensities
    from clickharvest.weights.summary import WeightReport
    from clickharvest.weights.weighing import Clip

SKIPPED = (0.85, 0.6, 0.3, 0.1)
"""Probabilities to skip all results since the last click that divide the steps 0 (hardly anything was skipped) to 4."""
SERVED = (0.25, 0.55, 0.8)
"""Attractions of the last click that divide the steps 1 to 4; 0 is for no click above."""
PROPENSITY = "_clickharvest_propensity"
"""The column of the propensity of a row's browsing state."""
DOCUMENTS = 100_000
"""Documents, about, that the spread of attractions is learned from, drawn where there are more."""


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
        from clickharvest.click_models.reader_places import ReaderPlaces

        if not isinstance(interventions, ReadInterventions) or interventions.base is None:
            raise InputError("a reading model is fitted to what its own harvest gives: harvest the log with it")
        if self.anchor != 1:
            raise InputError(f"--anchor {self.anchor}: a reading model is relative to the top of the page, position 1")
        model = ReaderPlaces(intervals=self.intervals, seed=self.seed, progress=self.progress)
        found = model.fit(times_browsing(interventions, interventions.base)).propensities_
        places = compose(interventions.base, replace(found, info={}, provenance=None))
        return ReadingPropensities(interventions.base, places, found.info, found.provenance)

    @classmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, Any]) -> ReadingPropensities:
        """Return the propensities of a file."""
        return ReadingPropensities.from_file(header, tensors)

    @classmethod
    def weigh(
        cls, log: ClickLog, fitted: Any, path: Path, *, clip: Clip, normalise: bool, policy_aware: bool
    ) -> WeightReport:
        """Write a log with the propensity of every row's own place; attractions are those of this log."""
        from clickharvest.weights.weighing import weigh_to_parquet

        places = reading_log(log, fitted.base, None)
        return weigh_to_parquet(
            places, fitted.places_model, path, clip=clip, normalise=normalise, policy_aware=policy_aware
        )


def reading_log(log: ClickLog, base: BrowsingPropensities, lowest: int | None) -> ClickLog:
    """Return the log whose positions are numbers of places: rank, distance, what was skipped, and last click.

    Args:
        log: the log.
        base: the browsing model that gives documents their attraction.
        lowest: leave out what was shown lower; None leaves out nothing.
    """
    import ibis

    from clickharvest.logs.placing import NUMBER, number_places

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
    """Return rows with the attraction `_r` of their document, told by its other pages (`attraction`)."""
    import ibis

    from clickharvest.logs.hashing import is_drawn

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
    from clickharvest.logs.browsing import browsing_log
    from clickharvest.weights.scoring import count_cells, model_context, score_cells

    states = browsing_log(log, named=True)
    assert states.places is not None
    propensities = base.reaching(int(states.places.labels[-1][0]))
    cells = count_cells(states, model_context(states, propensities), propensities)
    joined, p = cells.join_lines(score_cells(cells, propensities), {})
    kept = joined.select(*(states.source[name] for name in log.source.columns), **{PROPENSITY: p})
    return replace(_moved(log, log.engine.materialise(kept, task="Reading pages")), is_text=False)


def _moved(log: ClickLog, source: ir.Table) -> ClickLog:
    """Return the log with another table that has its columns, and more."""
    from clickharvest.logs.ibis_inside import read_off

    return replace(log, source=source, columns=read_off(log.columns, log.source, source))
