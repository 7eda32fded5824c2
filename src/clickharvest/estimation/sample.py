"""Samples: interventions as numbers, ready for an objective.

Positions become indices, contexts the rows of a matrix x (equal contexts once), queries cluster numbers. Only rows at
positions linked to the anchor stay, and only units that still have two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions, UnitKind
from clickharvest.harvesting.linked import linked_positions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.words import spell_positions

ROWS = ("unit", "context", "position", "exposure", "clicks", "impressions", "cluster")


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
        cluster: query numbers from 0, [n].
        n_clusters: number of queries.
        unit_kind: whether contexts vary inside units (`"query"`).
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

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(self.unit[-1]) + 1 if len(self.unit) else 0

    def take(self, rows: NDArray[np.bool_]) -> Sample:
        """Return some of the rows, their units numbered anew; contexts, positions and queries keep their numbers."""
        kept = {name: getattr(self, name)[rows] for name in ROWS}
        kept["unit"] = np.cumsum(np.diff(kept["unit"], prepend=kept["unit"][:1]) > 0)
        return replace(self, **kept)


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
    queries, cluster = np.unique(kept.query, return_inverse=True)
    x, context = _contexts(kept, unit, encoder)
    return Sample(
        positions=positions,
        x=x,
        unit=unit,
        context=context,
        position=np.searchsorted(np.array(positions), kept.position),
        exposure=kept.exposure,
        clicks=kept.clicks,
        impressions=kept.impressions,
        cluster=cluster,
        n_clusters=len(queries),
        unit_kind=kept.unit_kind,
    )


def _without_contexts(rows: Interventions) -> Interventions:
    """Add up the rows that stand at one position and differ in context alone."""
    keys = np.stack([rows.unit, rows.position])
    _, first, code = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return replace(
        rows.take(first),
        exposure=np.bincount(code, weights=rows.exposure).astype(np.float64),
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
