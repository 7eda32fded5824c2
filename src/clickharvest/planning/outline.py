"""Outlines: an experiment before it is run, as the probability of every document to be at every position.

Swaps exchange the results of two ranks, on a share of the pages each. With s_{ij} the share of the pages on which ranks
i and j are exchanged, a document that its ranker has put at rank k stands at j with probability T_{kj},

    T = I + Σ_{i<j} s_{ij} (e_i e_jᵀ + e_j e_iᵀ − e_i e_iᵀ − e_j e_jᵀ),

so that a unit with probabilities a over ranks (which arm, which rank) has exposures a T.

Clicks are assumed: an examination curve p, k^{−η} by default, and the rate of clicks c_k at rank k, from which the
relevance at that rank is r_k = c_k / p_k. Exchanging i and j costs (p_i − p_j)(r_i − r_j) clicks a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Pair = tuple[int, int]
Swaps = Mapping[Pair, float]

LARGEST = 100_000_000
"""Entries of the table of exposures, queries × positions², at most: 0.8 GB."""
TOP_RATE, FALL = 0.3, 1.5
"""Rate of clicks at rank 1, and the power by which it falls with the rank, where none is given."""
LEAST_RATE = 1e-12
"""Smallest rate of clicks."""


@dataclass(frozen=True, eq=False)
class Outline:
    """A planned experiment; u units, K positions.

    Attributes:
        query: number of each unit's query, from 0, [u].
        placed: probability that the arms put a unit at a rank, before any swap, [u, K].
        pages: share of the traffic of each query, adds up to 1, [queries].
        examination: p_k that is assumed, p_1 = 1, [K].
        relevance: rate of clicks at position 1 that is assumed of each unit, [u].
        swaps: share of the pages on which a pair of ranks is exchanged.
        spread: standard deviation of the examination of single queries at single positions, on the log scale.
        realised: whether exposures will be counted from displays; by default they are the probabilities, as a harvest
            with rankings or swaps has them.
    """

    query: Integers
    placed: Array
    pages: Array
    examination: Array
    relevance: Array
    swaps: Swaps = field(default_factory=dict)
    spread: float = 0.0
    realised: bool = False

    def __post_init__(self) -> None:
        k = len(self.examination)
        for (i, j), share in self.swaps.items():
            if not (1 <= i < j <= k) or not 0 <= share <= 1:
                raise InputError(
                    f"a swap of ranks {i} and {j} at a share of {share}: expected ranks 1 ≤ i < j ≤ {k}, 0 to 1"
                )
        total = self.moved
        if np.any(total > 1 + 1e-9):
            worst = int(np.argmax(total)) + 1
            raise InputError(f"swaps move rank {worst} on {total[worst - 1]:.0%} of the pages: expected 100 % at most")

    @property
    def moved(self) -> Array:
        """Share of the pages on which the result of each rank is moved, [K]."""
        total = np.zeros(len(self.examination))
        for (i, j), share in self.swaps.items():
            total[[i - 1, j - 1]] += share
        return total

    @cached_property
    def exposure(self) -> Array:
        """Probability of each unit to stand at each position, [u, K]."""
        return self.placed @ transfer(self.swaps, len(self.examination))

    @property
    def relevance_by_rank(self) -> Array:
        """Mean relevance of what arms put at a rank, by traffic, [K]."""
        weight = self.placed * self.pages[self.query][:, None]
        return np.asarray((weight * self.relevance[:, None]).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-12))

    def loss(self, *, discount: Array | None = None) -> float:
        """Return the expected clicks that swaps cost a page; with a discount by position [K], as DCG's, the DCG."""
        value = self.examination if discount is None else discount
        r = self.relevance_by_rank
        return float(sum(s * (value[i - 1] - value[j - 1]) * (r[i - 1] - r[j - 1]) for (i, j), s in self.swaps.items()))

    def clicks(self) -> float:
        """Return the expected clicks of a page without swaps."""
        return float(self.examination @ (self.relevance_by_rank * self.shown))

    @property
    def shown(self) -> Array:
        """Share of the pages that show something at a position, [K]."""
        weight = self.placed * self.pages[self.query][:, None]
        return np.asarray(np.minimum(weight.sum(axis=0), 1.0))

    def simulate(self, pages: float, seed: int) -> Interventions:
        """Return the harvest that so many pages may give.

        Pages of queries are drawn, and the results at each position one after the other, so that the displays of a
        query's units at a position exclude each other, as on real pages. Where exposures will be the displays
        themselves, displays are Poisson.
        """
        random = np.random.default_rng(seed)
        k = len(self.examination)
        effects = np.exp(random.normal(0, self.spread, (len(self.pages), k)) - self.spread**2 / 2)
        exposure = self.exposure
        unit, position = np.nonzero(exposure > 0)
        if self.realised:
            shown = random.poisson(pages * self.pages[self.query[unit]] * exposure[unit, position])
        else:
            shown = self._displays(random.multinomial(int(pages), self.pages), unit, position, exposure, random)
        rate = self.examination[position] * self.relevance[unit] * effects[self.query[unit], position]
        clicks = random.binomial(shown, np.minimum(rate, 1.0))
        kept = shown > 0 if self.realised else np.ones(len(unit), dtype=bool)
        several = np.bincount(unit[kept], minlength=len(self.query))[unit] > 1
        kept &= several
        exposed = shown.astype(np.float64) if self.realised else exposure[unit, position]
        return Interventions(
            unit=unit[kept].astype(np.int64),
            query=self.query[unit[kept]],
            position=position[kept].astype(np.int64) + 1,
            exposure=exposed[kept],
            clicks=clicks[kept],
            impressions=shown[kept],
            exposure_kind="realised" if self.realised else "design",
        )

    def _displays(
        self, pages: Integers, unit: Integers, position: Integers, exposure: Array, random: np.random.Generator
    ) -> Integers:
        """Return the displays of units at positions: the pages of a query, divided among its units by exposure."""
        column = self.query[unit] * len(self.examination) + position
        order = np.argsort(column, kind="stable")
        column, chance = column[order], exposure[unit, position][order]
        first = np.flatnonzero(np.diff(column, prepend=-1))
        size = np.diff(np.append(first, len(column)))
        before = np.cumsum(chance) - chance
        before -= np.repeat(before[first], size)
        given = np.clip(chance / np.maximum(1 - before, chance), 0.0, 1.0)
        left = pages[self.query[unit[order]][first]]
        shown = np.zeros(len(column), dtype=np.int64)
        for i in range(int(size.max(initial=0))):
            some = size > i
            first, size, left = first[some], size[some], left[some]
            shown[first + i] = random.binomial(left, given[first + i])
            left = left - shown[first + i]
        displays = np.empty_like(shown)
        displays[order] = shown
        return displays


def transfer(swaps: Swaps, k: int) -> Array:
    """Return T, [K, K].

    Example:
        >>> transfer({(1, 3): 0.2}, 3).tolist()
        [[0.8, 0.0, 0.2], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]]
    """
    first, second = np.array(list(swaps), dtype=np.int64).reshape(-1, 2).T - 1
    share = np.fromiter(swaps.values(), np.float64, len(swaps))
    matrix = np.zeros((k, k))
    matrix[first, second] = matrix[second, first] = share
    matrix[np.diag_indices(k)] = 1 - matrix.sum(axis=1)
    return matrix


def ranked_outline(
    positions: int,
    *,
    queries: int = 1_000,
    swaps: Swaps | None = None,
    click_rates: Sequence[float] | None = None,
    steepness: float = 1.0,
    spread: float = 0.0,
    realised: bool = False,
) -> Outline:
    """Return the outline of one ranker whose results are swapped.

    Args:
        positions: ranks of a page, K.
        queries: queries that come equally often.
        swaps: share of the pages on which a pair of ranks is exchanged.
        click_rates: rate of clicks at rank 1, 2, …, the last one for all below; by default .3 k^{−1.5}.
        steepness: η of examination k^{−η}.
        spread: spread of examination between queries, see `Outline`.
        realised: whether exposures will be counted from displays.

    Example:
        >>> outline = ranked_outline(3, swaps={(1, 2): 0.1}, click_rates=[0.4, 0.1, 0.05])
        >>> round(outline.loss(), 4), round(outline.clicks(), 2)
        (0.01, 0.55)
    """
    if positions < 2 or queries < 1:
        raise InputError(f"{positions} positions and {queries} queries: expected 2 positions and 1 query, or more")
    if queries * positions**2 > LARGEST:
        raise InputError(
            f"{queries:,} queries of {positions:,} positions take too much memory: expected queries × positions² of "
            f"{LARGEST:,} at most; name fewer of either"
        )
    p, relevance = _assumed(positions, click_rates, steepness)
    return Outline(
        query=np.repeat(np.arange(queries), positions),
        placed=np.tile(np.eye(positions), (queries, 1)),
        pages=np.full(queries, 1 / queries),
        examination=p,
        relevance=np.tile(relevance, queries),
        swaps=dict(swaps or {}),
        spread=spread,
        realised=realised,
    )


def outline_from_rankings(
    rankings: Any,
    *,
    traffic: Mapping[str, float] | None = None,
    swaps: Swaps | None = None,
    click_rates: Sequence[float] | None = None,
    steepness: float = 1.0,
    spread: float = 0.0,
    realised: bool = False,
    max_position: int | None = None,
) -> Outline:
    """Return the outline of an A/B test of rankers, swapped or not.

    Args:
        rankings: table (Arrow, data frame or mapping of columns) of `query, ranker, doc, position`, and `pages`, the
            query's traffic, if queries do not come equally often.
        traffic: share of each ranker; equal by default.
        swaps: share of the pages on which a pair of ranks is exchanged.
        click_rates: rate of clicks at ranks of the first ranker that traffic, or else the alphabet, names; documents
            that it does not show are taken for one rank worse than its last.
        steepness: η of examination k^{−η}.
        spread: spread of examination between queries, see `Outline`.
        realised: whether exposures will be counted from displays.
        max_position: leave out lower positions.
    """
    import pyarrow as pa

    table = pa.table(dict(rankings) if isinstance(rankings, Mapping) else rankings)
    if missing := [name for name in ("query", "ranker", "doc", "position") if name not in table.column_names]:
        raise InputError(
            f"the rankings table lacks {', '.join(missing)}: found {', '.join(table.column_names)}; expected query, "
            "ranker, doc, position"
        )
    names = np.array([str(name) for name in table["ranker"].to_pylist()])
    shares = {str(name): float(share) for name, share in (traffic or dict.fromkeys(np.unique(names), 1.0)).items()}
    if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
        raise InputError(f"traffic must be 0 or more for every ranker and positive in all: {shares}")
    position = np.asarray(table["position"].to_numpy(), dtype=np.int64)
    kept = np.isin(names, list(shares)) & (position <= (max_position or position.max(initial=1)))
    if not kept.any() or position[kept].min() < 1:
        raise InputError("no ranking to plan with: expected positions from 1, and rankers that --traffic names")
    queries, query = np.unique(_text(table["query"])[kept], return_inverse=True)
    docs = np.char.add(np.char.add(query.astype(str), " "), _text(table["doc"])[kept])
    _, first, unit = np.unique(docs, return_index=True, return_inverse=True)
    k = int(position[kept].max())
    share = np.array([shares[name] for name in names[kept]]) / sum(shares.values())
    placed = np.zeros((len(first), k))
    np.add.at(placed, (unit, position[kept] - 1), share)
    if np.any(placed.sum(axis=1) > 1 + 1e-9):
        raise InputError(
            "a ranker puts a document at two positions of a query: expected one row per query, ranker, doc"
        )
    p, by_rank = _assumed(k + 1, click_rates, steepness)
    control = names[kept] == next(iter(shares))
    rank = np.full(len(first), k)
    rank[unit[control]] = position[kept][control] - 1
    weight = np.ones(len(queries))
    if "pages" in table.column_names:
        weight[query] = np.asarray(table["pages"].to_numpy(), dtype=np.float64)[kept]
    return Outline(
        query=query[first],
        placed=placed,
        pages=weight / weight.sum(),
        examination=p[:k],
        relevance=by_rank[rank],
        swaps=dict(swaps or {}),
        spread=spread,
        realised=realised,
    )


def _assumed(k: int, click_rates: Sequence[float] | None, steepness: float) -> tuple[Array, Array]:
    """Return examination and relevance by rank, [K]."""
    if not (np.isfinite(steepness) and steepness >= 0):
        raise InputError(f"the steepness of examination is {steepness}: expected 0 or more")
    rank = np.arange(1, k + 1)
    rates = np.array(TOP_RATE * rank**-FALL if click_rates is None else click_rates, dtype=np.float64)
    if wrong := rates[~((rates >= LEAST_RATE) & (rates <= 1))].tolist() if len(rates) else ["none"]:
        raise InputError(f"a rate of clicks is {wrong[0]}: expected numbers from {LEAST_RATE:g} to 1, such as 0.3,0.12")
    rates = np.concatenate([rates, np.full(max(k - len(rates), 0), rates[-1])])[:k]
    p: Array = rank.astype(np.float64) ** -steepness
    relevance: Array = np.minimum(rates / p, 1.0)
    return p, relevance


def _text(column: Any) -> NDArray[np.str_]:
    return np.array([str(value) for value in column.to_pylist()])
