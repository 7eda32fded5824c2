"""Sums over the pairs of many contests at once, pair by pair or by sorting; see `clickharvest.rank.svm.hinge`.

A contest of A winners and a pool of P has A·P pairs, which is as good as sorting P + 2A numbers where A is small.
Either way a *reading* of a sheet at some scores gives the slopes of the loss, and then its bends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clickharvest.rank.features import Array, Index

SORTED = 8
"""Pairs that cost as much time as sorting one number."""


def pairs_are_faster(n_winners: int, n_pool: int) -> bool:
    """Return whether the pairs of a contest cost less time than sorting it."""
    return n_winners * n_pool <= SORTED * (2 * n_winners + n_pool)


def cells(n_winners: int, n_pool: int) -> int:
    """Return how many numbers a contest fills when it is read: pairs, or scores and thresholds."""
    return n_winners * n_pool if pairs_are_faster(n_winners, n_pool) else 2 * n_winners + n_pool


class Sheet(NamedTuple):
    """B contests of like size: winners [B, A] with costs 0 where padded, pool [B, P] with row n_docs where padded."""

    winners: Index
    costs: Array
    pool: Index

    def read(self, scores: Array, width: float) -> Margins | Line:
        """Read the scores of all documents, and −∞ for padding, in whichever way is faster here."""
        by_pairs = pairs_are_faster(self.winners.shape[1], self.pool.shape[1])
        return self.compare(scores, width) if by_pairs else self.sort(scores, width)

    def compare(self, scores: Array, width: float) -> Margins:
        """Compare every winner with every document of its pool."""
        short = scores[self.pool][:, None, :] - (scores[self.winners] - 1.0)[:, :, None]
        return Margins(self, width, np.maximum(short, 0.0, out=short))

    def sort(self, scores: Array, width: float) -> Line:
        """Sort scores and thresholds of every contest.

        Scores count from the contest's first threshold, so that squares of them lose no digits.
        """
        t = scores[self.winners] - 1.0
        s = scores[self.pool] - t[:, :1]
        t -= t[:, :1]
        keys = np.concatenate([s, t, t + width], axis=1)
        order = np.argsort(keys, axis=1)
        contest, place = np.nonzero(order >= s.shape[1])
        threshold = np.empty((len(t), 2 * t.shape[1]), np.int64)
        threshold[contest, order[contest, place] - s.shape[1]] = place
        begins, ends = np.split(threshold, 2, axis=1)
        rows = np.concatenate([self.pool, np.full_like(threshold, len(scores) - 1)], axis=1)
        contest = np.arange(len(order))[:, None]
        rows = rows[contest, order]
        is_pool = rows < len(scores) - 1
        values = np.where(is_pool, keys[contest, order], 0.0)
        return Line(self, width, t, contest, begins, ends, rows, is_pool, values)


class Margins(NamedTuple):
    """A reading pair by pair.

    Attributes:
        sheet: what was read.
        width: the smoothing δ.
        short: by how much each pair falls short of a margin of 1, max(0, u), [B, A, P].
    """

    sheet: Sheet
    width: float
    short: Array

    def add_slopes(self, gradient: Array) -> Array:
        """Add the gradient to one of all documents and padding; return exact loss, smoothed loss and excess, [3]."""
        alpha = np.minimum(self.short / self.width, 1.0)
        pull = alpha * self.sheet.costs[:, :, None]
        np.subtract.at(gradient, self.sheet.winners.ravel(), pull.sum(axis=2).ravel())
        np.add.at(gradient, self.sheet.pool.ravel(), pull.sum(axis=1).ravel())
        exact = np.vdot(self.sheet.costs, self.short.sum(axis=2))
        pulled = np.vdot(pull, self.short)
        return np.array([exact, pulled - self.width / 2 * np.vdot(pull, alpha), exact - pulled])

    def bends(self) -> Pairs:
        """Return the pairs with u in (0, δ)."""
        near = (self.short > 0) & (self.short < self.width) & (self.sheet.costs > 0)[:, :, None]
        winner, other = np.divmod(np.flatnonzero(near), near.shape[2])
        docs = self.sheet.pool[winner // near.shape[1], other]
        return Pairs(self.sheet.winners.ravel()[winner], docs, self.sheet.costs.ravel()[winner] / self.width)


class Line(NamedTuple):
    """A reading by sorting: scores and thresholds of B contests, W = P + 2A of them in a row.

    Attributes:
        sheet: what was read.
        width: the smoothing δ.
        thresholds: t = s_i − 1 of the winners, [B, A].
        contest: the numbers of the contests, [B, 1].
        begins: the places of t, [B, A].
        ends: the places of t + δ, [B, A].
        rows: the document at each place, [B, W].
        is_pool: whether a document stands there, no threshold and no padding, [B, W].
        values: its score, 0 for none, [B, W].
    """

    sheet: Sheet
    width: float
    thresholds: Array
    contest: Index
    begins: Index
    ends: Index
    rows: Index
    is_pool: NDArray[np.bool_]
    values: Array

    def add_slopes(self, gradient: Array) -> Array:
        """Add the gradient to one of all documents and padding; return exact loss, smoothed loss and excess, [3]."""
        t, c, width = self.thresholds, self.sheet.costs, self.width
        count, count_far = self.above(self.is_pool)
        first, first_far = self.above(self.values)
        second, second_far = self.above(self.values**2)
        far = first_far - count_far * t
        near_count, near_first = count - count_far, first - first_far
        near = near_first - near_count * t
        near_square = second - second_far - 2 * t * near_first + t**2 * near_count
        np.subtract.at(gradient, self.sheet.winners.ravel(), (c * (count_far + near / width)).ravel())
        passed, active = self.passed(np.zeros_like(c), c), self.passed(c, -c)
        slope = passed + (self.values * active - self.passed(c * t, -c * t)) / width
        np.add.at(gradient, self.rows[self.is_pool], slope[self.is_pool])
        exact, smooth = far + near, far - width / 2 * count_far + near_square / (2 * width)
        return np.array([(c * sums).sum() for sums in (exact, smooth, near - near_square / width)])

    def bends(self) -> Bends:
        """Return the pairs with u in (0, δ)."""
        costs = self.sheet.costs
        count, count_far = self.above(self.is_pool)
        counts = np.where(costs > 0, count - count_far, 0)
        pull = np.where(self.is_pool, self.passed(costs, -costs), 0.0)
        doc, winner = pull > 1e-9 * costs.max(), counts > 0
        contest = np.nonzero(winner)[0]
        kept = doc.copy()
        kept[contest, self.begins[winner]] = kept[contest, self.ends[winner]] = True
        places = np.cumsum(kept.ravel()).reshape(kept.shape) - 1
        return Bends(
            winners=self.sheet.winners[winner],
            docs=self.rows[doc],
            stiffness=costs[winner] / self.width,
            pull=pull[doc] / self.width,
            counts=counts[winner].astype(np.float64),
            places=places[doc],
            begins=places[contest, self.begins[winner]],
            ends=places[contest, self.ends[winner]],
            length=int(kept.sum()),
        )

    def above(self, values: NDArray[np.generic]) -> tuple[Array, Array]:
        """Return the sums of the values above t and above t + δ, each [B, A]."""
        sums = np.cumsum(values, axis=1)
        total = sums[:, -1:]
        return total - sums[self.contest, self.begins], total - sums[self.contest, self.ends]

    def passed(self, at_begin: Array, at_end: Array) -> Array:
        """Return, at each place, the sum of the values at the t and t + δ up to there, [B, W]."""
        steps = np.zeros(self.values.shape)
        steps[self.contest, self.begins] = at_begin
        steps[self.contest, self.ends] = at_end
        return np.cumsum(steps, axis=1, out=steps)


class Pairs(NamedTuple):
    """Pairs with u in (0, δ), one by one.

    Attributes:
        winners: rows of the winners, [m].
        docs: rows of the others, [m].
        stiffness: c_i/δ of each pair, [m].
    """

    winners: Index
    docs: Index
    stiffness: Array

    def times(self, own: Array, others: Array) -> tuple[Array, Array]:
        """Return the product of the second derivative with values of winners and docs, at the winners and docs."""
        apart = self.stiffness * (own - others)
        return apart, -apart


class Bends(NamedTuple):
    """Pairs with u in (0, δ): places of documents and thresholds in one sorted sequence.

    Attributes:
        winners: rows of the winners, [w].
        docs: rows of the pool's documents, [p].
        stiffness: c_i/δ of each winner, [w].
        pull: Σ c_i/δ over the winners each document is near to, [p].
        counts: number of documents each winner is near to, [w].
        places: where the documents stand, [p].
        begins: where the threshold s_i − 1 stands, [w].
        ends: where the threshold s_i − 1 + δ stands, [w].
        length: length of the sequence.
    """

    winners: Index
    docs: Index
    stiffness: Array
    pull: Array
    counts: Array
    places: Index
    begins: Index
    ends: Index
    length: int

    def times(self, own: Array, others: Array) -> tuple[Array, Array]:
        """Return the product of the second derivative with values of winners and docs, at the winners and docs."""
        steps = np.zeros(self.length)
        steps[self.places] = others
        sums = np.cumsum(steps)
        of_winners = self.stiffness * (self.counts * own - (sums[self.ends] - sums[self.begins]))
        steps[self.places] = 0.0
        steps[self.begins] = self.stiffness * own
        steps[self.ends] = -self.stiffness * own
        return of_winners, self.pull * others - np.cumsum(steps)[self.places]


def joined_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Join the pairs of several sheets."""
    winners, docs, stiffness = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Pairs(winners, docs, stiffness)


def joined_bends(parts: Sequence[Bends]) -> Bends:
    """Join the sequences of several sheets, one behind the other."""
    shifts = np.cumsum([0, *(part.length for part in parts)])
    moved = [
        part._replace(places=part.places + shift, begins=part.begins + shift, ends=part.ends + shift)
        for part, shift in zip(parts, shifts[:-1], strict=True)
    ]
    *arrays, _ = zip(*moved, strict=True)
    winners, docs, stiffness, pull, counts, places, begins, ends = (np.concatenate(each) for each in arrays)
    return Bends(winners, docs, stiffness, pull, counts, places, begins, ends, int(shifts[-1]))


def renumbered(n_docs: int, *used: Index) -> tuple[Index, Index]:
    """Return the rows that are used, in order, and where each of the n_docs rows stands among them, if it does.

    Example:
        >>> rows, number = renumbered(9, np.array([7, 2]), np.array([7, 4]))
        >>> rows.tolist(), number[[4, 7]].tolist()
        ([2, 4, 7], [1, 2])
    """
    is_used = np.zeros(n_docs, bool)
    for rows in used:
        is_used[rows] = True
    kept = np.flatnonzero(is_used)
    number = np.empty(n_docs, np.int64)
    number[kept] = np.arange(len(kept))
    return kept, number


class Curvature:
    """The second derivative of the smoothed loss, Σ c_i/δ (e_i − e_j)(e_i − e_j)ᵀ over the pairs with u in (0, δ).

    Attributes:
        rows: the documents in such pairs, [a]; the second derivative is zero for all others.
    """

    def __init__(self, n_docs: int, parts: Sequence[Pairs | Bends]) -> None:
        pairs = [part for part in parts if isinstance(part, Pairs)]
        bends = [part for part in parts if isinstance(part, Bends)]
        self.parts: list[Pairs | Bends] = []
        if pairs:
            self.parts.append(joined_pairs(pairs))
        if bends:
            self.parts.append(joined_bends(bends))
        self.rows, number = renumbered(n_docs, *(rows for part in self.parts for rows in (part.winners, part.docs)))
        self.numbers = [(number[part.winners], number[part.docs]) for part in self.parts]

    def __matmul__(self, values: Array) -> Array:
        """Multiply with values of the documents in `rows`, [a] → [a]."""
        product = np.zeros(len(values))
        for part, (winners, docs) in zip(self.parts, self.numbers, strict=True):
            of_winners, of_docs = part.times(values[winners], values[docs])
            product += np.bincount(winners, of_winners, len(values)) + np.bincount(docs, of_docs, len(values))
        return product
