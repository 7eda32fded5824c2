"""Chains of positions that no query compares by itself are told; rings, stars and queries that cross are not."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.estimation.links_within import links_within_queries, shares_beyond_bridges
from clickharvest.harvesting import Interventions


def queries(*kinds: list[tuple[int, int]], each: int = 20, names: str = "") -> Interventions:
    """Every query of a kind has a document for each of the kind's pairs of positions, clicked at both."""
    pairs = [(f"{names}{kind}-{i}" if names else 1000 * kind + i, pair) for kind, own in enumerate(kinds)
             for i in range(each) for pair in own]  # fmt: skip
    n = len(pairs)
    return Interventions(
        unit=np.repeat(np.arange(n), 2),
        query=np.repeat([query for query, _ in pairs], 2),
        position=np.array([pair for _, pair in pairs]).ravel(),
        exposure=np.full(2 * n, 10.0),
        clicks=np.full(2 * n, 3),
        impressions=np.full(2 * n, 10),
    )


RING = [(2, 3), (3, 4), (2, 4)]


@pytest.mark.parametrize("names", ["", "query "])
def test_a_bridge_that_no_query_crosses_is_told(names: str) -> None:
    (finding,) = links_within_queries(queries([(1, 2)], RING, names=names), 1)
    assert (finding.name, finding.status, finding.value) == ("links within queries", "warning", 0.0)
    assert finding.sentence.startswith("Positions 3-4: only 0.0 % of what tells of one is of queries")


@pytest.mark.parametrize("kinds", [
    ([(1, 2)], [(1, 2), (2, 3)]),  # all that tells of 3 crosses
    ([(1, 2)], [(2, 3)], [(1, 3)]),  # a ring, whose pairs would disagree
    ([(1, 2)], [(1, 3)], [(1, 4)]),  # a star: every position is compared with 1 directly
    ([(1, 2)],),
])  # fmt: skip
def test_what_is_compared_directly_or_in_a_ring_is_not(kinds: tuple[list[tuple[int, int]], ...]) -> None:
    assert links_within_queries(queries(*kinds), 1) == []


def test_the_share_is_that_of_queries_that_cross() -> None:
    """One kind of three crosses: it has a third of what tells of 3 and 4, and of clicks alike."""
    shares = shares_beyond_bridges(queries([(1, 2)], RING, RING, [(1, 2), *RING]), 1)
    assert shares == pytest.approx({3: 1 / 3, 4: 1 / 3})


def test_rows_in_any_order_and_units_that_users_divide_tell_the_same() -> None:
    log = queries([(1, 2)], RING)
    shuffled = log.take(np.random.default_rng(0).permutation(len(log)))
    assert [one.value for one in links_within_queries(shuffled, 1)] == [0.0]
