"""Rankings as they were shown: the order that an arm of a test, or the whole traffic, gave to a query's documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.rank.features import Array, Index


@dataclass(frozen=True, eq=False)
class ShownRanking:
    """Where the pages of an arm showed the documents of the lists; a ranker to be judged beside others.

    An arm need not show the same order every time, and a mean position would be an order that nobody saw. So what
    counts is the mean of a metric over its pages.

    Attributes:
        rows: a document, [m].
        position: where it was shown, [m].
        share: on which share of the arm's pages of that query, [m].
        served: whether the arm has shown a list's query at all, [n_lists].
    """

    rows: Index
    position: Array
    share: Array
    served: NDArray[np.bool_]

    def gains(self, gain: Callable[[Array], Array], starts: Index) -> Array:
        """Return the mean over pages of λ(rank) of every document, [n_docs]; NaN in lists that were not served.

        On pages that lack a document it ranks below all that are shown: those absent share the ranks from there to the
        end of the list, so that its λ is that of the rank in their middle.

        Args:
            gain: λ, from ranks to what they are worth.
            starts: where each list starts, and the end of the last, [n_lists + 1].

        Example:
            >>> half = ShownRanking(np.array([0, 1]), np.array([1.0, 1.0]), np.array([0.5, 0.5]), np.array([True]))
            >>> half.gains(lambda rank: 1 / rank, np.array([0, 3])).round(3).tolist()  # absent ones at (2 + 3) / 2
            [0.7, 0.7, 0.4]
        """
        sizes = np.diff(starts)
        depth = np.zeros(len(sizes))
        np.maximum.at(depth, np.searchsorted(starts, self.rows, side="right") - 1, self.position)
        below = np.maximum((depth + 1 + sizes) / 2, depth + 1)
        present = np.bincount(self.rows, self.share, starts[-1])
        there = np.bincount(self.rows, self.share * gain(self.position), starts[-1])
        absent = np.maximum(1 - present, 0.0) * gain(np.repeat(below, sizes))
        return np.where(np.repeat(self.served, sizes), there + absent, np.nan)

    def take(self, lists: NDArray[np.bool_], starts: Index) -> ShownRanking:
        """Return the part of some lists, [n_lists] of them marked; see `take_lists`."""
        documents = np.repeat(lists, np.diff(starts))
        kept = documents[self.rows]
        rows = (np.cumsum(documents) - 1)[self.rows[kept]]
        return ShownRanking(rows, self.position[kept], self.share[kept], self.served[lists])
