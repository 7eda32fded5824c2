"""Links within queries: is a position compared with the anchor in any one query, or only by way of others?

Log p_k / p_anchor may be a sum along a chain: some queries compare 1 with 2, others 2 with 8. Where all queries are
read alike it makes no difference which. Where those that move at the top are read otherwise than those that move
further down, the sum is the curve of neither. Rings of pairs would disagree then (`transitivity`), but a chain has no
ring.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from clickharvest.diagnosis.findings import Finding, percent
from clickharvest.estimation.sample import supported_positions
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import distinct
from clickharvest.positions.places import name_place, name_places

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

NAME = "links within queries"
LEAST = 0.1
"""Share of what tells of a position that must be of queries that compare it with the anchor by themselves."""
BRIDGE = 0.9
"""Part of what is known of a pair that its own units tell, from which on no ring checks it."""


def links_within_queries(interventions: Interventions, anchor: int) -> list[Finding]:
    """Warn of positions beyond a bridge that hardly any query crosses by itself; nothing where there are none.

    Unit u ties positions k and j by W_{kj} = Σ_u N_u s_{u,k} s_{u,j}, N its clicks and s shares of its exposure. A pair
    is a bridge if W_{kj} R_{kj} is `BRIDGE` or more, R the resistance between the two in the network of all ties: that
    is the part of what is known of the pair that its own units tell, 1 where there is no other way.

    A query links two positions if a chain of its own clicked units, each exposed at two positions, leads from one to
    the other. Unit u tells of position k as its effective clicks do, N_u · 4 s (1 − s). The number is the least share
    of that, over positions beyond a bridge, that is of queries that link the position to the anchor.

    Args:
        interventions: the harvest.
        anchor: the position others are relative to; positions not linked to it are left out.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.

    Example:
        Of two queries one compares 1 with 2, the other 2 with 3.

        >>> def moved(query, first, second):
        ...     return {"unit": [query] * 2, "query": [query] * 2, "position": [first, second], "exposure": [5.0] * 2,
        ...             "clicks": [2, 2], "impressions": [5, 5]}
        >>> one, other = moved(0, 1, 2), moved(1, 2, 3)
        >>> chain = Interventions(**{name: np.array(one[name] + other[name]) for name in one})
        >>> print(links_within_queries(chain, 1)[0].sentence.partition(";")[0])
        Position 3: only 0.0 % of what tells of it is of queries that compare it with position 1 by themselves
    """
    shares = {k: own for k, own in shares_beyond_bridges(interventions, anchor).items() if own < LEAST}
    if not shares:
        return []
    where, there = name_places([*shares], interventions.places), name_place(anchor, interventions.places)
    least = min(shares.values())
    sentence = (
        f"{where[0].upper()}{where[1:]}: only {percent(least)} of what tells of {'it' if len(shares) == 1 else 'one'} "
        f"is of queries that compare it with {there} by themselves; the rest goes by way of other queries. If queries "
        f"that move results near {there} are read otherwise than those that move them elsewhere, the curve is that of "
        f"neither. Name what they differ in (--context), or swap ranks with {there} in all of them."
    )
    return [Finding(NAME, "warning", sentence, least)]


def shares_beyond_bridges(interventions: Interventions, anchor: int) -> dict[int, float]:
    """Return, by position beyond a bridge, the share of what tells of it that is of queries that cross it."""
    whole = interventions.undivided()
    positions = supported_positions(whole, anchor)
    rows = np.flatnonzero(np.isin(whole.position, positions) & (whole.exposure > 0))
    _, unit = distinct(whole.unit[rows])
    clicks = np.bincount(unit, whole.clicks[rows])[unit].astype(np.float64)
    share = whole.exposure[rows] / np.bincount(unit, whole.exposure[rows])[unit]
    told = (clicks > 0) & (share < 1)
    rows, clicks, share = rows[told], clicks[told], share[told]
    (_, unit), (_, query) = distinct(whole.unit[rows]), distinct(whole.query[rows])
    place = np.searchsorted(positions, whole.position[rows])
    beyond = _beyond_bridges(unit, place, clicks, share, positions.index(anchor))
    if not beyond.any():
        return {}
    cells, cell = distinct(query, place)
    chain = _chains(unit, cell)
    at_anchor = place[cells] == positions.index(anchor)
    of_anchor = np.full(int(query.max()) + 1, -1)
    of_anchor[query[cells][at_anchor]] = chain[at_anchor]
    own = of_anchor[query] == chain[cell]
    tells = clicks * 4 * share * (1 - share)
    part, of = (np.bincount(place, weight, len(positions)) for weight in (tells * own, tells))
    return {positions[k]: float(part[k] / of[k]) for k in np.flatnonzero(beyond)}


def _beyond_bridges(unit: Codes, place: Codes, clicks: Array, share: Array, anchor: int) -> NDArray[np.bool_]:
    """Return which positions a bridge parts from the anchor, [K]."""
    size = int(place.max(initial=anchor)) + 1
    shown = csr_array((share, (unit, place)), shape=(int(unit.max(initial=-1)) + 1, size))
    weighted = csr_array((clicks * share, (unit, place)), shape=shown.shape)
    ties = (shown.T @ weighted).toarray()
    np.fill_diagonal(ties, 0.0)
    inverse = np.linalg.pinv(np.diag(ties.sum(axis=1)) - ties, hermitian=True)
    resistance = np.diag(inverse)[:, None] + np.diag(inverse) - 2 * inverse
    rings = coo_array((ties > 0) & (ties * resistance < BRIDGE))
    _, part = connected_components(rings, directed=False)
    beyond: NDArray[np.bool_] = (part != part[anchor]) & (ties[anchor] * resistance[anchor] < BRIDGE)
    return beyond


def _chains(unit: Codes, cell: Codes) -> Codes:
    """Return which chain each cell, a query at a position, is part of, given those that units join."""
    units, cells = int(unit.max()) + 1, int(cell.max()) + 1
    joins = coo_array((np.ones(len(unit)), (unit, units + cell)), shape=(units + cells,) * 2)
    chains: Codes = connected_components(joins, directed=False)[1][units:].astype(np.intp)
    return chains
