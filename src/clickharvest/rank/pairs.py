"""Pairs of a clicked document and another one of its list, a block of lists of one size at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clickharvest.rank.features import Array, Index

PAIRS_AT_ONCE = 1_000_000
"""Pairs held in memory at a time."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some lists of one size, each with a clicked document or more; m such documents.

    Attributes:
        docs: documents of the lists, [n_lists, size].
        row: the list of each clicked document, ascending, [m].
        column: its place in there, [m].
        first: the first clicked document of every list, [n_lists].
    """

    docs: Index
    row: Index
    column: Index
    first: Index

    @property
    def clicked(self) -> Index:
        """The clicked documents, [m]."""
        return np.asarray(self.docs[self.row, self.column], np.int64)

    def gaps(self, values: Array) -> Array:
        """Return v_i − v_j of each clicked document i with all documents j of its list, [m, size]."""
        in_list = values[self.docs]
        return np.asarray(in_list[self.row, self.column][:, None] - in_list[self.row])

    def without_self(self, pairs: Array) -> Array:
        """Set the pair of each clicked document with itself to 0, in place, and return the pairs, [m, size]."""
        pairs[np.arange(len(self.row)), self.column] = 0
        return pairs

    def sum_by_document(self, pairs: Array, sign: int) -> Array:
        """Return the sum of every document's pairs as j, plus `sign` times that of its pairs as i, [n_lists, size]."""
        sums = np.add.reduceat(pairs, self.first, axis=0)
        sums[self.row, self.column] += sign * pairs.sum(axis=1)
        return sums


def blocks_of_pairs(weights: Array, starts: Index) -> Iterator[Block]:
    """Yield the lists that have a document of positive weight and a second one, by size, in parts that fit in memory.

    Args:
        weights: positive where a document was clicked, [n_docs].
        starts: where each list starts, and the end of the last, [n_lists + 1].
    """
    sizes = np.diff(starts)
    clicked = np.diff(np.concatenate([[0], np.cumsum(weights > 0)])[starts])
    for size in np.unique(sizes[(clicked > 0) & (sizes > 1)]):
        lists = np.flatnonzero((clicked > 0) & (sizes == size))
        step = max(1, PAIRS_AT_ONCE // int(size) ** 2)
        for begin in range(0, len(lists), step):
            docs = starts[lists[begin : begin + step], None] + np.arange(size)
            row, column = np.nonzero(weights[docs] > 0)
            yield Block(docs, row, column, np.flatnonzero(np.diff(row, prepend=-1)))
