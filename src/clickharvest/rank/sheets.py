"""Sums over the pairs of many contests at once, by sorting padded matrices; see `clickharvest.rank.hinge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clickharvest.rank.features import Array, Index


class Sheet(NamedTuple):
    """B contests of like size: winners [B, A] with costs 0 where padded, pool [B, P] with row n_docs where padded."""

    winners: Index
    costs: Array
    pool: Index

    def add_slopes(self, line: Line, width: float, gradient: Array) -> Array:
        """Add the gradient to one of all documents, and return exact loss, smoothed loss and excess, [3]."""
        t, c = line.thresholds, self.costs
        count, count_far = line.above(line.is_pool)
        first, first_far = line.above(line.values)
        second, second_far = line.above(line.values**2)
        far = first_far - count_far * t
        near_count, near_first = count - count_far, first - first_far
        near = near_first - near_count * t
        near_square = second - second_far - 2 * t * near_first + t**2 * near_count
        np.subtract.at(gradient, self.winners.ravel(), (c * (count_far + near / width)).ravel())
        passed, active = line.passed(np.zeros_like(c), c), line.passed(c, -c)
        slope = passed + (line.values * active - line.passed(c * t, -c * t)) / width
        np.add.at(gradient, line.rows[line.is_pool], slope[line.is_pool])
        exact, smooth = far + near, far - width / 2 * count_far + near_square / (2 * width)
        return np.array([(c * sums).sum() for sums in (exact, smooth, near - near_square / width)])

    def bends(self, line: Line, width: float) -> Bends:
        """Return the pairs with u in (0, δ)."""
        count, count_far = line.above(line.is_pool)
        counts = np.where(self.costs > 0, count - count_far, 0)
        pull = np.where(line.is_pool, line.passed(self.costs, -self.costs), 0.0)
        doc, winner = pull > 1e-9 * self.costs.max(), counts > 0
        contest = np.nonzero(winner)[0]
        kept = doc.copy()
        kept[contest, line.begins[winner]] = kept[contest, line.ends[winner]] = True
        places = np.cumsum(kept.ravel()).reshape(kept.shape) - 1
        return Bends(
            length=int(kept.sum()),
            docs=line.rows[doc],
            places=places[doc],
            pull=pull[doc] / width,
            winners=self.winners[winner],
            stiffness=self.costs[winner] / width,
            counts=counts[winner].astype(np.float64),
            begins=places[contest, line.begins[winner]],
            ends=places[contest, line.ends[winner]],
        )

    def sort(self, scores: Array, width: float) -> Line:
        """Sort scores and thresholds of every contest.

        Scores count from the contest's first threshold, so that squares of them lose no digits.
        """
        t = scores[self.winners] - 1.0
        s = np.append(scores, -np.inf)[self.pool] - t[:, :1]
        t -= t[:, :1]
        keys = np.concatenate([s, t, t + width], axis=1)
        order = np.argsort(keys, axis=1)
        contest, place = np.nonzero(order >= s.shape[1])
        threshold = np.empty((len(t), 2 * t.shape[1]), np.int64)
        threshold[contest, order[contest, place] - s.shape[1]] = place
        begins, ends = np.split(threshold, 2, axis=1)
        rows = np.concatenate([self.pool, np.full_like(threshold, len(scores))], axis=1)
        contest = np.arange(len(order))[:, None]
        rows = rows[contest, order]
        is_pool = rows < len(scores)
        return Line(t, contest, begins, ends, rows, is_pool, np.where(is_pool, keys[contest, order], 0.0))


class Line(NamedTuple):
    """Scores and thresholds of B contests, sorted: W = P + 2A of them in a row.

    Attributes:
        thresholds: t = s_i − 1 of the winners, [B, A].
        contest: the numbers of the contests, [B, 1].
        begins: the places of t, [B, A].
        ends: the places of t + δ, [B, A].
        rows: the document at each place, [B, W].
        is_pool: whether a document stands there, no threshold and no padding, [B, W].
        values: its score, 0 for none, [B, W].
    """

    thresholds: Array
    contest: Index
    begins: Index
    ends: Index
    rows: Index
    is_pool: NDArray[np.bool_]
    values: Array

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


class Bends(NamedTuple):
    """Pairs with u in (0, δ): places of documents and thresholds in one sorted sequence.

    Attributes:
        length: length of the sequence.
        docs: rows of the pool's documents, [p].
        places: where they stand, [p].
        pull: Σ c_i/δ over the winners each is near to, [p].
        winners: rows of the winners, [w].
        stiffness: c_i/δ of each, [w].
        counts: number of documents each is near to, [w].
        begins: where the threshold s_i − 1 stands, [w].
        ends: where the threshold s_i − 1 + δ stands, [w].
    """

    length: int
    docs: Index
    places: Index
    pull: Array
    winners: Index
    stiffness: Array
    counts: Array
    begins: Index
    ends: Index


class Curvature:
    """The second derivative of the smoothed loss, Σ c_i/δ (e_i − e_j)(e_i − e_j)ᵀ over the pairs with u in (0, δ).

    Attributes:
        rows: the documents in such pairs, [a]; the second derivative is zero for all others.
    """

    def __init__(self, parts: Sequence[Bends]) -> None:
        offsets = np.cumsum([0] + [part.length for part in parts])
        self.length = int(offsets[-1])

        def joined(name: str, moved: bool = False) -> NDArray[Any]:
            shifts = offsets[:-1] if moved else np.zeros(len(parts), np.int64)
            arrays = [getattr(part, name) + shift for part, shift in zip(parts, shifts, strict=True)]
            return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)

        self.pull, self.stiffness, self.counts = joined("pull"), joined("stiffness"), joined("counts")
        self.places, self.begins, self.ends = (joined(name, moved=True) for name in ("places", "begins", "ends"))
        docs, winners = joined("docs"), joined("winners")
        self.rows, numbers = np.unique(np.concatenate([docs, winners]), return_inverse=True)
        self.docs, self.winners = np.split(numbers, [len(docs)])

    def __matmul__(self, values: Array) -> Array:
        """Multiply with values of the documents in `rows`, [a] → [a]."""
        own, others = values[self.winners], values[self.docs]
        steps = np.zeros(self.length)
        steps[self.places] = others
        sums = np.cumsum(steps)
        of_winners = self.stiffness * (self.counts * own - (sums[self.ends] - sums[self.begins]))
        steps[self.places] = 0.0
        steps[self.begins] = self.stiffness * own
        steps[self.ends] = -self.stiffness * own
        of_docs = self.pull * others - np.cumsum(steps)[self.places]
        size = len(self.rows)
        product = np.bincount(self.winners, of_winners, size) + np.bincount(self.docs, of_docs, size)
        return np.asarray(product, np.float64)
