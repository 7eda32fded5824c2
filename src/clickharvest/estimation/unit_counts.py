"""Counts of units: how often each was shown and clicked at each position, units without a click among them.

What an affine model is estimated from. Here a unit that was never clicked says that its relevance is low, which click
shares need not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import numbered

Array = NDArray[np.float64]

FLAT = 1e-6
"""A feature of exposures whose standard deviation, given the others, is below this says nothing of its own."""


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """Clicks and displays of U units at K positions.

    Attributes:
        positions: the positions, ascending, [K].
        clicks: clicks C_{u,k}, [U, K].
        shown: displays n_{u,k}, [U, K].
        query: number of each unit's query, from 0, [U].
        n_queries: number of queries.
    """

    positions: tuple[int, ...]
    clicks: Array
    shown: Array
    query: NDArray[np.int64]
    n_queries: int

    def __len__(self) -> int:
        return len(self.clicks)

    def rates(self) -> Array:
        """Return clicks per display at each position, [K]."""
        return np.asarray(self.clicks.sum(axis=0) / np.maximum(self.shown.sum(axis=0), 1))

    def features(self) -> Array:
        """Return what a unit's displays tell of its relevance before it is clicked: 1, and five features, [U, ≤ 6].

        With m_u and s_u the mean and the standard deviation of log k over a unit's displays: polynomials of m_u up to
        the third degree, s_u, and the logarithm of the number of displays, all standardised. Those that the ones
        before them determine are left out. Rankers put relevant documents on top, so that m_u tells most.
        """
        total = self.shown.sum(axis=1)
        log_k = np.log(self.positions)
        mean = self.shown @ log_k / total
        spread = np.sqrt(np.maximum(self.shown @ log_k**2 / total - mean**2, 0.0))
        m, s, n = (_standardised(column) for column in (mean, spread, np.log(total)))
        kept = [np.ones(len(m))]
        for column in (m, m**2, m**3, s, n):
            basis = np.column_stack(kept)
            rest = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
            if rest.std() > FLAT:
                kept.append(rest / rest.std())
        return np.column_stack(kept)

    def variation(self) -> float:
        """Return how clearly units differ in relevance, in standard errors clustered by query.

        With q_k the click rate of a position and v_u = Σ_k (C_{u,k} − n_{u,k} q_k), the sum over units of
        v_u² − Σ_k n_{u,k} q_k (1 − q_k) has the mean 0 where all units are alike, and a positive one where they differ.
        """
        q = self.rates()
        surprise = (self.clicks - self.shown * q).sum(axis=1)
        beyond = (surprise**2 - self.shown @ (q * (1 - q))) / np.maximum(self.shown.sum(axis=1), 1)
        by_query = np.bincount(self.query, beyond, self.n_queries)
        error = float(np.sqrt((by_query**2).sum()))
        return float(beyond.sum()) / error if error else 0.0


def count_units(interventions: Interventions, positions: Sequence[int]) -> UnitCounts:
    """Return the counts at some positions of the units that were shown at two of them or more.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0, 1, 1]), query=np.array(["q"] * 4), position=np.array([1, 2, 2, 3]),
        ...     exposure=np.ones(4), clicks=np.array([1, 0, 0, 0]), impressions=np.array([4, 2, 1, 1]))
        >>> counts = count_units(interventions, (1, 2))
        >>> counts.clicks.tolist(), counts.shown.tolist()
        ([[1.0, 0.0]], [[4.0, 2.0]])
    """
    rows = interventions.take(np.isin(interventions.position, positions) & (interventions.impressions > 0))
    n_units, unit = numbered(rows.unit)
    column = np.searchsorted(positions, rows.position)
    shape = (n_units, len(positions))
    clicks, shown = (
        np.bincount(unit * len(positions) + column, values, shape[0] * shape[1]).reshape(shape)
        for values in (rows.clicks, rows.impressions)
    )
    several = np.count_nonzero(shown, axis=1) >= 2
    first = np.zeros(n_units, np.intp)
    first[unit[::-1]] = np.arange(len(unit))[::-1]
    n_queries, query = numbered(rows.query[first[several]])
    return UnitCounts(tuple(map(int, positions)), clicks[several], shown[several], query, n_queries)


def _standardised(column: Array) -> Array:
    spread = column.std()
    scaled = (column - column.mean()) / spread if spread > FLAT else np.zeros_like(column)
    return np.clip(scaled, -4.0, 4.0)  # a query shown a thousand times as often as others must not tilt the rest
