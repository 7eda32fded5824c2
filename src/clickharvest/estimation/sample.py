"""Samples: interventions as numbers, ready for an objective.

Positions become indices, contexts the rows of a matrix x (equal contexts once), queries cluster numbers. Only rows at
positions linked to the anchor stay, and only units that still have two of them.

A position without a click, or one that nothing but clicks on one side ties to others, is not linked: clicks alone do
not tell its examination. Yet its rows tell of other positions, wherever a prior or a formula joins them: of fifty
positions of a sparse log, those that happened to be clicked are not the ones to read a steepness off. So curves of
that kind see all positions that are tied to the anchor, and speak of the linked ones.

Where not queries cluster but, say, users, a unit has clicks of several. Click shares of a unit are the same for all its
clicks, so that it may be taken apart: a part for every user, with all the unit's cells and exposures and the user's own
clicks, and one for the impressions without any. The likelihood stays the same, Σ_u Σ_k C_{u,k} log π_{u,k}, and every
part lies in one cluster, whose score is Σ C (∇ log p_k − its mean under π_u) over its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import QUERY, Interventions, UnitKind, linked_positions
from clickharvest.harvesting.numbering import distinct, numbered, run_starts, whole_numbers
from clickharvest.model.contexts import ContextEncoder
from clickharvest.positions.places import Places, name_place, name_places

Rows = NDArray[np.intp] | slice
"""Numbers of rows, or all as they are."""

ROWS = ("unit", "context", "position", "exposure", "clicks", "impressions", "cluster")


@dataclass(frozen=True)
class Division:
    """What units were before they were taken apart by what clusters (`by`).

    Attributes:
        unit: number of the whole unit, [n].
        query: query numbers from 0, [n].
        n_queries: number of queries.
    """

    by: str
    unit: NDArray[np.int64]
    query: NDArray[np.int64]
    n_queries: int


@dataclass(frozen=True)
class Sample:
    """Interventions as arrays; n rows, m distinct contexts, d features, K positions.

    Attributes:
        positions: the K positions, ascending.
        x: distinct contexts, float64 [m, d]; [1, 0] without context.
        unit: unit numbers from 0, ascending, [n].
        context: row of x, [n].
        position: index into `positions`, [n].
        exposure: exposures, [n].
        clicks: clicks, [n].
        impressions: impressions, [n].
        cluster: cluster numbers from 0, [n]: of queries, or of what else clusters. A row without clicks may have any.
        n_clusters: number of clusters.
        unit_kind: whether contexts vary inside units (`"query"`).
        division: what units were, where they are taken apart because not queries cluster.
        places: what positions stand for, where they are numbers of places and not of a list.
        derived: what is computed from it once, see `cells_of`.
    """

    positions: tuple[int, ...]
    x: NDArray[np.float64]
    unit: NDArray[np.int64]
    context: NDArray[np.int64]
    position: NDArray[np.int64]
    exposure: NDArray[np.float64]
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    cluster: NDArray[np.int64]
    n_clusters: int
    unit_kind: UnitKind = "context"
    division: Division | None = None
    places: Places | None = None
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def n_units(self) -> int:
        """Number of units, or parts of units."""
        return int(self.unit[-1]) + 1 if len(self.unit) else 0

    def take(self, rows: NDArray[np.bool_]) -> Sample:
        """Return some of the rows, their units numbered anew; contexts, positions and queries keep their numbers."""
        chosen = np.flatnonzero(rows)
        kept = {name: getattr(self, name)[chosen] for name in ROWS}
        kept["unit"] = np.cumsum(np.diff(kept["unit"], prepend=kept["unit"][:1]) > 0)
        if self.division is None:
            return replace(self, **kept)
        division = replace(self.division, unit=self.division.unit[chosen], query=self.division.query[chosen])
        return replace(self, **kept, division=division)

    def some_rows(self, rows: int, seed: int) -> Sample:
        """Return about so many rows drawn at random; their contexts get new numbers.

        Whole units are drawn, unless their contexts vary: then a unit may have most of the rows, and single ones are.
        """
        dealt = np.arange(len(self.unit)) if self.unit_kind == "query" else self.unit
        drawn = np.random.default_rng(seed).random(int(dealt[-1]) + 1) < rows / len(self.unit)
        kept = self.take(drawn[dealt])
        used, context = np.unique(kept.context, return_inverse=True)
        return replace(kept, x=self.x[used], context=context)

    def at(self, positions: tuple[int, ...]) -> Sample:
        """Return the units that stand at two or more of some positions, there; contexts and queries keep numbers."""
        if positions == self.positions:
            return self
        among = np.isin(self.positions, positions)
        there = among[self.position]
        first, last = np.full(self.n_units, len(among)), np.zeros(self.n_units, dtype=np.int64)
        np.minimum.at(first, self.unit[there], self.position[there])
        np.maximum.at(last, self.unit[there], self.position[there])
        kept = self.take(there & (first < last)[self.unit])
        return replace(kept, positions=positions, position=(np.cumsum(among) - 1)[kept.position])

    @property
    def whole(self) -> NDArray[np.int64]:
        """Number of the whole unit, [n]."""
        return self.unit if self.division is None else self.division.unit

    @property
    def shared(self) -> bool:
        """Whether clicks of one unit come from several clusters, as those of users do."""
        if self.division is None:
            return False
        clicked = self.clicks > 0
        parts, _ = distinct(self.whole[clicked], self.cluster[clicked])
        return len(parts) > len(np.unique(self.whole[clicked]))

    @property
    def query(self) -> NDArray[np.int64]:
        """Query numbers from 0, [n]."""
        return self.cluster if self.division is None else self.division.query

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.n_clusters if self.division is None else self.division.n_queries

    @property
    def clustered_by(self) -> str:
        """What clusters."""
        return QUERY if self.division is None else self.division.by


class Reach(NamedTuple):
    """Positions that clicks identify (`linked`), and those that clicked units tie to them (`tied`), anchor and all."""

    linked: tuple[int, ...]
    tied: tuple[int, ...]


def supported_positions(interventions: Interventions, anchor: int) -> tuple[int, ...]:
    """Return the positions whose examination relative to the anchor the interventions identify.

    Raises:
        NotIdentifiedError: no other position is linked to the anchor.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0, 1, 1]), query=np.array(["q"] * 4), position=np.array([1, 2, 2, 3]),
        ...     exposure=np.ones(4), clicks=np.array([1, 1, 1, 0]), impressions=np.ones(4, dtype=int))
        >>> supported_positions(interventions, 1)
        (1, 2)
    """
    return find_reach(interventions, anchor).linked


def find_reach(interventions: Interventions, anchor: int) -> Reach:
    """Return the positions that are linked, and those that are tied, to the anchor.

    Raises:
        NotIdentifiedError: no other position is linked to the anchor.

    Example:
        What stood at 2 and 3 was clicked at 2 alone: that tells of 2, too.

        >>> interventions = Interventions(
        ...     unit=np.array([0, 0, 1, 1]), query=np.array(["q"] * 4), position=np.array([1, 2, 2, 3]),
        ...     exposure=np.ones(4), clicks=np.array([1, 1, 1, 0]), impressions=np.ones(4, dtype=int))
        >>> find_reach(interventions, 1)
        Reach(linked=(1, 2), tied=(1, 2, 3))
    """
    shown = whole_numbers(interventions.position)
    unit, code, clicks = interventions.unit, _place(shown, interventions.position), interventions.clicks
    if not _ascends(unit):
        order = np.argsort(unit, kind="stable")
        unit, code, clicks = unit[order], code[order], clicks[order]
    first, second, won, lost = _wins(shown, code, unit, clicks)
    linked = linked_positions(anchor, first, second, won, lost)
    if len(linked) < 2:
        places = interventions.places
        shown_at = name_places(shown.tolist(), places) if len(shown) else "none"
        what = "position" if places is None else "place"
        raise NotIdentifiedError(
            f"no {what} is linked to {name_place(anchor, places)}: clicked units were never shown both there and "
            f"elsewhere (found: {shown_at}); run clickharvest check to see what would help"
        )
    return Reach(linked, linked_positions(anchor, first, second, won + lost, won + lost))


def linked_by(sample: Sample, anchor: int, rows: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the positions that some rows of a sample link to the anchor, the anchor among them."""
    chosen = np.flatnonzero(rows)
    position, unit, clicks = (column[chosen] for column in (sample.position, sample.unit, sample.clicks))
    return linked_positions(anchor, *_wins(np.array(sample.positions), position, unit, clicks))


def _wins(
    shown: NDArray[np.int64], code: NDArray[np.int64], unit: NDArray[np.int64], clicks: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return all two positions with common units, and the clicks of these at the one and the other.

    Units are ascending, and stand at `shown[code]`.
    """
    shape = (len(shown), len(shown))
    starts = np.flatnonzero(run_starts([unit], len(unit)))
    if np.diff(starts, append=len(unit)).max(initial=0) > len(shown):  # of a unit in many contexts, cells are enough
        some, cell = distinct(unit, code)
        unit, code, clicks = unit[some], code[some], np.bincount(cell, weights=clicks)
    wins, common = np.zeros(shape), np.zeros(shape, dtype=bool)
    lag = 1
    here = np.flatnonzero(unit[1:] == unit[:-1])
    while len(here):  # rows with another row of their unit so many rows further on
        for first, second in ((here, here + lag), (here + lag, here)):
            pair = code[first] * len(shown) + code[second]
            wins += np.bincount(pair, weights=clicks[first], minlength=wins.size).reshape(shape)
            common |= (np.bincount(pair, minlength=wins.size) > 0).reshape(shape)
        lag += 1
        here = here[: np.searchsorted(here, len(unit) - lag)]
        here = here[unit[here + lag] == unit[here]]
    first, second = np.nonzero(np.triu(common, k=1))
    return shown[first], shown[second], wins[first, second], wins[second, first]


def _ascends(values: NDArray[np.int64]) -> bool:
    return bool(np.all(values[1:] >= values[:-1]))


def _place(positions: NDArray[np.int64], position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each position among the ascending `positions`, [n]."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        place: NDArray[np.int64] = position - positions[0]
        return place
    return np.searchsorted(positions, position)


def make_sample(
    interventions: Interventions, positions: tuple[int, ...], encoder: ContextEncoder | None = None
) -> Sample:
    """Return the part of the interventions at some positions, ascending, as numbers.

    Args:
        interventions: the harvest.
        positions: the positions to keep.
        encoder: turns the context columns into features; None leaves them out.

    Raises:
        InputError: no unit stands at two of the positions.
    """
    if encoder is None and interventions.unit_kind == "query":
        interventions = _without_contexts(interventions.take(np.isin(interventions.position, positions)))
    rows, unit = _rows_at_two(interventions, positions)
    kept = replace(interventions, contexts={}).take(rows)
    if not len(kept):
        raise InputError(f"no unit stands at two of the {name_places(positions, interventions.places)}")
    n_queries, query = numbered(kept.query)
    x, context = _contexts(interventions, rows, unit, encoder)
    sample = Sample(
        positions=positions,
        x=x,
        unit=unit,
        context=context,
        position=_place(np.array(positions), kept.position),
        exposure=kept.exposure,
        clicks=kept.clicks,
        impressions=kept.impressions,
        cluster=query,
        n_clusters=n_queries,
        unit_kind=kept.unit_kind,
        places=kept.places,
    )
    return sample if kept.cluster is None else _taken_apart(sample, kept.cluster, kept.cluster_kind)


def make_samples(
    interventions: Interventions, reach: Reach, encoder: ContextEncoder | None = None
) -> tuple[Sample, Sample]:
    """Return the samples at the linked positions, and at all that are tied; queries have the same numbers in both."""
    seen = make_sample(interventions, reach.tied, encoder)
    return seen.at(reach.linked), seen


def _rows_at_two(interventions: Interventions, positions: tuple[int, ...]) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows, by unit, at the positions, of units that stand at two or more, and numbers for these units."""
    rows: Rows = slice(None)
    there = np.isin(interventions.position, positions)
    if not there.all():
        rows = np.flatnonzero(there)
    unit = interventions.unit[rows]
    if not _ascends(unit):
        order = np.argsort(unit, kind="stable")
        rows, unit = _of(rows, order), unit[order]
    starts = run_starts([unit], len(unit))
    unit = np.cumsum(starts, dtype=np.int64)
    unit -= 1
    moves = run_starts([interventions.position[rows]], len(unit)) & ~starts
    several = np.zeros(int(unit[-1]) + 1 if len(unit) else 0, dtype=bool)
    several[unit[moves]] = True
    if several.all():
        return rows, unit
    kept = np.flatnonzero(several[unit])
    return _of(rows, kept), (np.cumsum(several) - 1)[unit[kept]]


def _of(rows: Rows, some: NDArray[np.intp]) -> NDArray[np.intp]:
    return some if isinstance(rows, slice) else rows[some]


def _taken_apart(sample: Sample, cluster: NDArray[np.int64], by: str) -> Sample:
    """Return a sample with a part of every unit for each of its clusters: all its cells, with the cluster's clicks.

    Rows of the sample are of single cells and clusters [n]; every row of a cell has the cell's whole exposure.
    """
    first, cell = distinct(sample.unit, sample.context, sample.position)
    some, part = distinct(sample.unit, cluster)
    size = np.bincount(sample.unit[first])
    before = np.cumsum(size) - size
    whole = sample.unit[some]
    begin = np.cumsum(size[whole]) - size[whole]
    unit = np.repeat(np.arange(len(whole)), size[whole])
    source = first[before[whole][unit] + np.arange(len(unit)) - begin[unit]]
    target = begin[part] + cell - before[sample.unit]
    clicks, shown = (
        np.bincount(target, weights=column, minlength=len(unit)).astype(np.int64)
        for column in (sample.clicks, sample.impressions)
    )
    clicked = np.unique(cluster[sample.clicks > 0])
    return replace(
        sample,
        unit=unit,
        context=sample.context[source],
        position=sample.position[source],
        exposure=sample.exposure[source],
        clicks=clicks,
        impressions=shown,
        cluster=np.minimum(np.searchsorted(clicked, cluster[some][unit]), max(len(clicked) - 1, 0)),
        n_clusters=max(len(clicked), 1),
        division=Division(by, sample.unit[source], sample.cluster[source], sample.n_clusters),
    )


def _without_contexts(rows: Interventions) -> Interventions:
    """Add up the rows that stand at one position (and in one cluster) and differ in context alone."""
    first, _ = rows.cells()
    _, place = distinct(rows.unit, rows.position)
    whole = np.bincount(place[first], weights=rows.exposure[first])
    clusters = () if rows.cluster is None else (rows.cluster,)
    kept, code = distinct(place, *clusters)
    return replace(
        rows.take(kept),
        exposure=whole[place[kept]].astype(np.float64),
        clicks=np.bincount(code, weights=rows.clicks).astype(np.int64),
        impressions=np.bincount(code, weights=rows.impressions).astype(np.int64),
    )


def _contexts(
    interventions: Interventions, rows: Rows, unit: NDArray[np.int64], encoder: ContextEncoder | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct contexts of some rows, and which of them each row has; columns are never held all at once."""
    if encoder is None:
        return np.zeros((1, 0)), np.zeros(len(unit), dtype=np.int64)
    by_unit = interventions.unit_kind == "context"
    if by_unit:
        rows = _of(rows, np.flatnonzero(run_starts([unit], len(unit))))
    columns = {name: interventions.contexts[name] for name in encoder.columns}
    starts = run_starts((column[rows] for column in columns.values()), int(unit[-1]) + 1 if by_unit else len(unit))
    heads = _of(rows, np.flatnonzero(starts))
    encoded = encoder.transform({name: column[heads] for name, column in columns.items()})
    first, code = distinct(*encoded.T)
    run = np.cumsum(starts, dtype=np.int64)
    run -= 1
    context = code[run]
    return encoded[first], context[unit] if by_unit else context
