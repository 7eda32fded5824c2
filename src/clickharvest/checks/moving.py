"""What a team can do so that results move between positions, and what that costs in clicks at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clickharvest.words import spell_positions

SWAPPED, SHUFFLED = 0.05, 0.01
"""Shares of the pages on which neighbouring ranks are swapped, and whose order is random; more cost more clicks."""


def advise_moves(clicks: Mapping[int, int], unlinked: Sequence[int]) -> str:
    """Return experiments that link positions to others, and which share of the clicks they cost at most.

    A swap of ranks i < j costs (p_i − p_j)(r_i − r_j) ≤ p_i r_i, at most the clicks at rank i.

    Args:
        clicks: clicks by position, of those shown, ascending.
        unlinked: those that are to be linked.

    Example:
        >>> advise_moves({1: 30, 2: 10, 3: 2}, [3])
        'swap ranks 2 and 3 at random on 5 % of the pages (costs at most 1.2 % of the clicks) or show 1 % of the pages \
in random order (at most 1 %)'
    """
    pairs = [pair for pair in zip(clicks, list(clicks)[1:], strict=False) if {*pair} & {*unlinked}]
    ranks = sorted({rank for pair in pairs for rank in pair})
    which = "ranks {} and {}".format(*ranks) if len(ranks) == 2 else f"neighbours among ranks {spell_positions(ranks)}"
    cost = SWAPPED * sum(clicks[upper] for upper, _ in pairs) / max(sum(clicks.values()), 1)
    return (
        f"swap {which} at random on {100 * SWAPPED:g} % of the pages (costs at most {100 * max(cost, 0.001):.2g} % of "
        f"the clicks) or show {100 * SHUFFLED:g} % of the pages in random order (at most {100 * SHUFFLED:g} %)"
    )
