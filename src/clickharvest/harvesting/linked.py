"""Which positions can be compared at all.

Write k → k' where a unit exposed at both positions was clicked at k. The relative examination of k and k' has a
finite estimate if and only if k can be reached from k' and k' from k along such arrows: otherwise the data fit
ever better as p_k / p_k' goes to 0 or to infinity, or do not speak of it at all. Positions in one strongly
connected component are *linked*. (This is Ford's condition for paired comparisons, with positions as players and
clicks as wins.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def linked_positions(
    anchor: int, position: ArrayLike, other: ArrayLike, clicks: ArrayLike, other_clicks: ArrayLike
) -> tuple[int, ...]:
    """Return the positions whose examination relative to the anchor the clicks identify.

    Args:
        anchor: the position everything is relative to.
        position: first position k of each pair with common units, [m].
        other: second position k' of each pair, [m].
        clicks: clicks at k of the units exposed at both, [m].
        other_clicks: clicks at k' of the same units, [m].

    Returns:
        The anchor and the positions linked to it, sorted.

    Example:
        Positions 1 and 2 got clicks on common documents; those common to 2 and 3 were clicked at 2 alone.

        >>> linked_positions(1, [1, 2], [2, 3], [5, 3], [2, 0])
        (1, 2)
    """
    k, other_k = np.asarray(position, dtype=np.int64), np.asarray(other, dtype=np.int64)
    won, lost = np.asarray(clicks) > 0, np.asarray(other_clicks) > 0
    nodes, codes = np.unique(np.concatenate([[anchor], k, other_k]), return_inverse=True)
    start, end = codes[1 : len(k) + 1], codes[len(k) + 1 :]
    tail = np.concatenate([start[won], end[lost]])
    head = np.concatenate([end[won], start[lost]])
    here = np.arange(len(nodes)) == codes[0]
    return tuple(int(node) for node in nodes[_reached(here, tail, head) & _reached(here, head, tail)])


def _reached(here: NDArray[np.bool_], tail: NDArray[np.intp], head: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return what can be reached along arrows from tail to head, [nodes]."""
    reached = here.copy()
    while not reached[head[reached[tail]]].all():
        reached[head[reached[tail]]] = True
    return reached


def longest_linked_prefix(positions: Sequence[int], linked: Iterable[int]) -> int:
    """Return how far down, from the top, every position is linked.

    Example:
        >>> longest_linked_prefix([1, 2, 3, 4], [1, 2, 4])
        2
    """
    linked = set(linked)
    prefix = 0
    for position in sorted(positions):
        if position not in linked:
            break
        prefix = position
    return prefix
