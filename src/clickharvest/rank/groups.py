"""Groups of consecutive rows, such as the documents of a list: group i is rows `starts[i]` to `starts[i + 1]`."""

from __future__ import annotations

import numpy as np

from clickharvest.rank.features import Index


def spans(starts: Index, kept: Index) -> tuple[Index, Index]:
    """Return the entries of some groups, and where each group starts among them.

    Example:
        >>> entries, begin = spans(np.array([0, 2, 3, 6]), np.array([2, 0]))
        >>> entries.tolist(), begin.tolist()
        ([3, 4, 5, 0, 1], [0, 3, 5])
    """
    sizes = np.diff(starts)[kept]
    begin = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(begin[-1]) + np.repeat(starts[kept] - begin[:-1], sizes), begin


def padded(starts: Index, kept: Index) -> Index:
    """Return the entries of some groups as rows of a matrix, −1 where a group has no more.

    Example:
        >>> padded(np.array([0, 2, 3]), np.array([0, 1])).tolist()
        [[0, 1], [2, -1]]
    """
    sizes = np.diff(starts)[kept]
    within = np.arange(sizes.max(initial=0))
    return np.where(within < sizes[:, None], starts[kept, None] + within, -1)
