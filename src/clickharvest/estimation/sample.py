"""Samples: interventions as numbers, ready for an objective.

Positions become indices, contexts the rows of a matrix x (equal contexts once), queries cluster numbers. Only rows at
positions linked to the anchor stay, and only units that still have two of them.

Where not queries cluster but, say, users, a unit has clicks of several. Click shares of a unit are the same for all its
clicks, so that it may be taken apart: a part for every user, with all the unit's cells and exposures and the user's own
clicks, and one for the impressions without any. The likelihood stays the same, Σ_u Σ_k C_{u,k} log π_{u,k}, and every
part lies in one cluster, whose score is Σ C (∇ log p_k − its mean under π_u) over its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import QUERY, Interventions, UnitKind, distinct
from clickharvest.harvesting.linked import linked_positions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.words import spell_positions

ROWS = ("unit", "context", "position", "exposure", "clicks", "impressions", "cluster")


@dataclass(frozen=True)
class Division:
    """What units were before they were taken apart.

    Attributes:
        by: what clusters.
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

    @property
    def n_units(self) -> int:
        """Number of units, or parts of units."""
        return int(self.unit[-1]) + 1 if len(self.unit) else 0

    def take(self, rows: NDArray[np.bool_]) -> Sample:
        """Return some of the rows, their units numbered anew; contexts, positions and queries keep their numbers."""
        kept = {name: getattr(self, name)[rows] for name in ROWS}
        kept["unit"] = np.cumsum(np.diff(kept["unit"], prepend=kept["unit"][:1]) > 0)
        if self.division is None:
            return replace(self, **kept)
        division = replace(self.division, unit=self.division.unit[rows], query=self.division.query[rows])
        return replace(self, **kept, division=division)

    @property
    def whole(self) -> NDArray[np.int64]:
        """Number of the whole unit, [n]."""
        return self.unit if self.division is None else self.division.unit

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
    shown, code = np.unique(interventions.position, return_inverse=True)
    _, unit = np.unique(interventions.unit, return_inverse=True)
    linked = _linked(anchor, shown, code, unit, interventions.clicks)
    if len(linked) < 2:
        found = spell_positions(int(k) for k in shown) or "none"
        raise NotIdentifiedError(
            f"no position is linked to position {anchor}: clicked units were never shown both there and elsewhere "
            f"(positions found: {found}); run clickharvest check to see what would help"
        )
    return linked


def linked_by(sample: Sample, anchor: int) -> tuple[int, ...]:
    """Return the positions that a sample links to the anchor, the anchor among them."""
    return _linked(anchor, np.array(sample.positions), sample.position, sample.unit, sample.clicks)


def _linked(
    anchor: int, shown: NDArray[np.int64], code: NDArray[np.int64], unit: NDArray[np.int64], clicks: NDArray[np.int64]
) -> tuple[int, ...]:
    """Return the positions linked to the anchor by units from 0 that stand at `shown[code]`."""
    shape = (int(unit.max(initial=-1)) + 1, len(shown))
    exposed = csr_array((np.ones(len(unit)), (unit, code)), shape=shape)
    exposed.data[:] = 1.0
    clicked = csr_array((clicks.astype(np.float64), (unit, code)), shape=shape)
    common = csr_array(exposed.T @ exposed).toarray() > 0
    wins = csr_array(clicked.T @ exposed).toarray()
    first, second = np.nonzero(np.triu(common, k=1))
    return linked_positions(anchor, shown[first], shown[second], wins[first, second], wins[second, first])


def make_sample(
    interventions: Interventions, positions: tuple[int, ...], encoder: ContextEncoder | None = None
) -> Sample:
    """Return the part of the interventions at some positions, as numbers.

    Args:
        interventions: the harvest.
        positions: the positions to keep, ascending.
        encoder: turns the context columns into features; None leaves them out.

    Raises:
        InputError: no unit stands at two of the positions.
    """
    kept = interventions.take(np.isin(interventions.position, positions))
    if encoder is None and kept.unit_kind == "query":
        kept = _without_contexts(kept)
    if np.any(np.diff(kept.unit) < 0):
        kept = kept.take(np.argsort(kept.unit, kind="stable"))
    _, unit = np.unique(kept.unit, return_inverse=True)
    lowest, highest = np.full(unit.max(initial=-1) + 1, np.inf), np.zeros(unit.max(initial=-1) + 1)
    np.minimum.at(lowest, unit, kept.position)
    np.maximum.at(highest, unit, kept.position)
    kept = kept.take(lowest[unit] < highest[unit])
    if not len(kept):
        raise InputError(f"no unit stands at two of the positions {spell_positions(positions)}")
    _, unit = np.unique(kept.unit, return_inverse=True)
    queries, query = np.unique(kept.query, return_inverse=True)
    x, context = _contexts(kept, unit, encoder)
    sample = Sample(
        positions=positions,
        x=x,
        unit=unit,
        context=context,
        position=np.searchsorted(np.array(positions), kept.position),
        exposure=kept.exposure,
        clicks=kept.clicks,
        impressions=kept.impressions,
        cluster=query,
        n_clusters=len(queries),
        unit_kind=kept.unit_kind,
    )
    return sample if kept.cluster is None else _taken_apart(sample, kept.cluster, kept.cluster_kind)


def _taken_apart(sample: Sample, cluster: NDArray[np.int64], by: str) -> Sample:
    """Return a sample with a part of every unit for each of its clusters: all its cells, with the cluster's clicks.

    Args:
        sample: rows of single cells and clusters; every row of a cell has the cell's whole exposure.
        cluster: the cluster of each row, [n].
        by: what clusters.
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
    own = () if rows.cluster is None else (rows.cluster,)
    kept, code = distinct(place, *own)
    return replace(
        rows.take(kept),
        exposure=whole[place[kept]].astype(np.float64),
        clicks=np.bincount(code, weights=rows.clicks).astype(np.int64),
        impressions=np.bincount(code, weights=rows.impressions).astype(np.int64),
    )


def _contexts(
    kept: Interventions, unit: NDArray[np.int64], encoder: ContextEncoder | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if encoder is None:
        return np.zeros((1, 0)), np.zeros(len(kept), dtype=np.int64)
    rows = np.arange(len(kept)) if kept.unit_kind == "query" else np.unique(unit, return_index=True)[1]
    encoded = encoder.transform({name: kept.contexts[name][rows] for name in encoder.columns})
    x, code = np.unique(encoded, axis=0, return_inverse=True)
    return x, code if kept.unit_kind == "query" else code[unit]
