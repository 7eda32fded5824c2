"""The pairwise hinge loss, its smoothing and its curvature.

A *contest* is a list of documents in which some, the *winners*, should each score at least 1 above every document of a
*pool*:

    L(s) = Σ_i c_i Σ_{j in the pool of i} max(0, 1 − s_i + s_j).

With u = 1 − s_i + s_j, the smoothed loss replaces max(0, u) by u²/2δ for u in (0, δ) and by u − δ/2 beyond. Its
derivative in u, α = min(max(u/δ, 0), 1), is a feasible dual variable of the exact loss, so a gradient of the smoothed
loss comes with a certificate of how far the exact one is from its minimum (see `clickharvest.rank.svm.newton`).

A list of L documents with A winners has A·L pairs. Where these are many, all sums over them follow from sorting the
scores, thresholds s_i − 1 and s_i − 1 + δ together, O((L + A) log(L + A)). Lists of like size share a padded matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clickharvest.rank.features import Array, Index
from clickharvest.rank.svm.sheets import Curvature, Sheet, cells, renumbered

CELLS = 1 << 17
"""Cells of the largest padded matrix, so that the work stays in the processor's caches."""
MANY = 5_000
"""From so many contests on, it pays to tell sizes apart by less than a factor of 2."""


class Slopes(NamedTuple):
    """The smoothed loss at some scores.

    Attributes:
        exact: the exact loss L.
        smooth: the smoothed loss, at most L.
        excess: Σ c (max(0, u) − α u), what smoothing adds to the duality gap.
        gradient: derivative of the smoothed loss in every score, [n_docs].
    """

    exact: float
    smooth: float
    excess: float
    gradient: Array


@dataclass(frozen=True, eq=False)
class Contests:
    """Winners and pools of all lists, and what each winner costs.

    Attributes:
        n_docs: number of documents that rows refer to.
        winners: rows of the winners, those of one contest together, [m].
        costs: c_i of each winner, [m].
        winner_starts: where each contest's winners start, and the end of the last, [n + 1].
        pool: rows of the pools, those of one contest together, [M].
        pool_starts: where each contest's pool starts, and the end of the last, [n + 1].
        winners_in_pool: whether each winner also stands in its own pool; it does not compete with itself.

    Example:
        >>> first, pool = np.array([0]), np.arange(3)
        >>> contests = Contests(3, first, np.array([2.0]), np.array([0, 1]), pool, np.array([0, 3]), True)
        >>> contests.loss(np.array([1.0, 0.5, 0.0]))  # 2 · (max(0, 1 − 1 + .5) + max(0, 1 − 1 + 0))
        1.0
    """

    n_docs: int
    winners: Index
    costs: Array
    winner_starts: Index
    pool: Index
    pool_starts: Index
    winners_in_pool: bool

    def __len__(self) -> int:
        return len(self.winner_starts) - 1

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a winner and another document of its pool."""
        rivals = np.diff(self.pool_starts) - self.winners_in_pool
        return int((np.diff(self.winner_starts) * rivals).sum())

    def loss(self, scores: Array) -> float:
        """Return the exact loss L."""
        return self.slopes(scores, 0.5).exact

    def slopes(self, scores: Array, width: float) -> Slopes:
        """Return the loss smoothed over a width δ, and its gradient."""
        gradient = np.zeros(self.n_docs + 1)
        total = np.zeros(3)
        padded_scores = np.append(scores, -np.inf)
        for sheet in self.sheets:
            total += sheet.read(padded_scores, width).add_slopes(gradient)
        if self.winners_in_pool:  # a winner beside itself has u = 1
            alpha = min(1 / width, 1.0)
            total -= self.costs.sum() * np.array([1.0, alpha - width / 2 * alpha**2, 1.0 - alpha])
        exact, smooth, excess = total.tolist()
        return Slopes(exact, smooth, excess, gradient[:-1])

    def curvature(self, scores: Array, width: float) -> Curvature:
        """Return the second derivative of the loss smoothed over a width δ."""
        padded_scores = np.append(scores, -np.inf)
        return Curvature(self.n_docs, [sheet.read(padded_scores, width).bends() for sheet in self.sheets])

    def thin(self, step: int) -> tuple[Contests, Index]:
        """Return every step-th contest at step times the cost, and the rows of the documents that are left."""
        kept = np.arange(0, len(self), step)
        winner, winner_starts = spans(self.winner_starts, kept)
        other, pool_starts = spans(self.pool_starts, kept)
        rows, number = renumbered(self.n_docs, self.winners[winner], self.pool[other])
        winners, pool, costs = number[self.winners[winner]], number[self.pool[other]], step * self.costs[winner]
        return Contests(len(rows), winners, costs, winner_starts, pool, pool_starts, self.winners_in_pool), rows

    @cached_property
    def sheets(self) -> list[Sheet]:
        """The contests as padded matrices, those of like size together."""
        n_winners, n_pool = np.diff(self.winner_starts), np.diff(self.pool_starts)
        fine = 1 if len(self) < MANY else 4
        alike = [np.ceil(fine * np.log2(np.maximum(sizes, 1))) for sizes in (n_winners, n_pool)]
        kind = np.where((n_winners > 0) & (n_pool > 0), 10_000 * alike[0] + alike[1], -1)
        winners, costs, pool = np.append(self.winners, 0), np.append(self.costs, 0.0), np.append(self.pool, self.n_docs)
        sheets = []
        for found in np.unique(kind[kind >= 0]):
            same = np.flatnonzero(kind == found)
            size = cells(int(n_winners[same].max()), int(n_pool[same].max()))
            for part in np.array_split(same, max(1, len(same) * size // CELLS)):
                winner, other = padded(self.winner_starts, part), padded(self.pool_starts, part)
                sheets.append(Sheet(winners[winner], costs[winner], pool[other]))
        return sheets


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
