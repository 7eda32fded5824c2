"""Simulated users: how they click on what they examine, as the position-based model says or in ways that break it.

| name | Pr(examined) at position k | Pr(click \\| examined), relevant | not relevant |
|---|---|---|---|
| `pbm` | p_k(x) | 1 | noise |
| `trust` | p_k(x) | .9 + .1/k | noise + (.65 − noise)/k |
| `cascade`, `ubm`, `dcm`, `dbn` | depends on the clicks above | 1 | noise |

With `trust` (Agarwal et al., WWW 2019) a click depends on the position even when the result is examined. The users of
the other models browse:

| name | what they do |
|---|---|
| `cascade` | read downwards, as far as min_{j≤k} p_j(x) says; half of those who click on a relevant result leave |
| `dcm` | read downwards, and past every result that they do not click; after a click at k, p_{k+1}(x) of them read on |
| `dbn` | read downwards, .9 of them from each result to the next; a click satisfies .7 of them if relevant, .2 if not |
| `ubm` | examine k with p_k(x) if nothing above is clicked, with .6 p_{k−j}(x) if j is the last click above |

The first three are readers: a result is examined only if all results above it are. They are the simplified dynamic
Bayesian network of Chapelle and Zhang (2009) with p(x) for perseverance, the dependent click model of Guo et al.
(2009), and that dynamic Bayesian network itself. `ubm` is the user browsing model of Dupret and Piwowarski (2008).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.simulate.names import BROWSING_MODELS, USER_KINDS

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

TRUST_IN_TOP = 0.65
"""With `trust`, the probability of a click on an irrelevant result that is examined at the top."""
LEAST_TRUST = 0.9
"""With `trust`, the probability of a click on a relevant result that is examined far down."""
SATISFIED = 0.5
"""With `cascade`, the share of clicks on relevant results after which users leave."""
PERSEVERANCE = 0.9
"""With `dbn`, the share of readers who go on to the next result unless they are satisfied."""
SATISFIED_DBN = (0.2, 0.7)
"""With `dbn`, the share of clicks on irrelevant and on relevant results after which users leave."""
ANEW = 0.6
"""With `ubm`, how much of p_1, p_2, … is left below a click."""


@dataclass(frozen=True)
class SimulatedUsers:
    """How users click.

    Attributes:
        name: one of `USER_KINDS`.
        noise: probability of a click on an irrelevant result that is examined, far down with `trust`.

    Example:
        In a cascade, users leave once they are satisfied.

        >>> relevant = np.array([[True, False, True]])
        >>> SimulatedUsers("trust", 0.1).attraction(relevant).round(3).tolist()
        [[1.0, 0.375, 0.933]]
        >>> SimulatedUsers("cascade", 0.1).examination(np.array([[1, 0.5, 0.4]]), relevant).tolist()
        [[1.0, 0.25, 0.2]]
    """

    name: str
    noise: float

    def __post_init__(self) -> None:
        if self.name not in USER_KINDS:
            raise InputError(f"no click model {self.name!r}: expected one of {', '.join(USER_KINDS)}")
        if not 0 <= self.noise <= 1:
            raise InputError(f"noise is {self.noise}: expected a probability of clicks, 0 to 1")

    @property
    def browses(self) -> bool:
        """Whether examination depends on the clicks above."""
        return self.name in BROWSING_MODELS

    def attraction(self, relevant: Flags) -> Array:
        """Return Pr(click | examined) of results that are relevant or not, [..., K]."""
        if self.name != "trust":
            return np.where(relevant, 1.0, self.noise)
        k = np.arange(1.0, relevant.shape[-1] + 1)
        mistaken = self.noise + max(TRUST_IN_TOP - self.noise, 0) / k
        return np.where(relevant, LEAST_TRUST + (1 - LEAST_TRUST) / k, mistaken)

    def examination(self, curve: Array, relevant: Flags) -> Array:
        """Return Pr(examined) on pages with these results, whatever was clicked above, [..., n, K].

        Args:
            curve: p_k(x), [n, K].
            relevant: whether results are relevant, [..., n, K].
        """
        if not self.browses:
            return np.broadcast_to(curve, relevant.shape)
        attraction, examined = self.attraction(relevant), np.empty(relevant.shape)
        if self.name == "ubm":
            last = np.zeros((*relevant.shape[:-1], relevant.shape[-1] + 1))  # Pr(the last click above is at j)
            last[..., 0] = 1.0
            for k in range(relevant.shape[-1]):
                given = [curve[..., k] if j == 0 else ANEW * curve[..., k - j] for j in range(k + 1)]
                looked = last[..., : k + 1] * np.stack(given, axis=-1)
                examined[..., k] = looked.sum(axis=-1)
                clicked = looked * attraction[..., k, None]
                last[..., : k + 1] -= clicked
                last[..., k + 1] = clicked.sum(axis=-1)
            return examined
        on, leave = self._reading(curve, relevant)
        examined[..., 0] = curve[:, 0] if self.name == "cascade" else 1.0
        for k in range(1, relevant.shape[-1]):
            stay = 1 - attraction[..., k - 1] * leave[..., k - 1]
            examined[..., k] = examined[..., k - 1] * stay * on[..., k - 1]
        return examined

    def examination_given(self, curve: Array, relevant: Flags, clicked: Flags) -> Array:
        """Return Pr(examined | the clicks above and the results of the page) of n pages, [n, K].

        For readers it follows from Bayes' rule: a result that is not clicked makes it less likely that they came so
        far, the less the more it attracts.

        Args:
            curve: p_k(x) of each page, [n, K].
            relevant: whether results are relevant, [n, K].
            clicked: the clicks, [n, K].

        Example:
            Half of those who click on a relevant result are still there.

            >>> curve, relevant = np.ones((2, 3)), np.array([[True, False, False], [False, False, False]])
            >>> clicked = np.array([[True, False, False], [False, False, False]])
            >>> SimulatedUsers("cascade", 0.1).examination_given(curve, relevant, clicked).round(2).tolist()
            [[1.0, 0.5, 0.47], [1.0, 1.0, 1.0]]
        """
        if not self.browses:
            return curve
        examined = np.empty(clicked.shape)
        if self.name == "ubm":
            last = np.zeros(len(clicked), np.int64)
            for k in range(clicked.shape[1]):
                examined[:, k] = np.where(last > 0, ANEW, 1.0) * curve[np.arange(len(curve)), _below(k, last)]
                last[clicked[:, k]] = k + 1
            return examined
        attraction = self.attraction(relevant)
        on, leave = self._reading(curve, relevant)
        examined[:, 0] = curve[:, 0] if self.name == "cascade" else 1.0
        for k in range(1, clicked.shape[1]):
            before, attracts = examined[:, k - 1], attraction[:, k - 1]
            unclicked = 1 - before * attracts
            skipped = np.divide(before * (1 - attracts), unclicked, out=np.zeros_like(before), where=unclicked > 0)
            examined[:, k] = np.where(clicked[:, k - 1], 1 - leave[:, k - 1], skipped) * on[:, k - 1]
        return examined

    def draw(
        self, served: Integers, shown: Flags, relevant: Flags, curve: Array, random: np.random.Generator
    ) -> tuple[Integers, Flags | None]:
        """Draw the clicks of R rankers, n queries and K positions.

        Args:
            served: displays of each ranker and query, [R, n].
            shown: whether there is a result, [R, n, K].
            relevant: whether it is relevant, [R, n, K].
            curve: p_k(x) of each query, [n, K].
            random: the source of randomness.

        Returns:
            Clicks, [R, n, K]; and, for users who browse, whether each display was clicked at each position, in the
            order of rankers and queries, [displays, K].
        """
        attraction = self.attraction(relevant)
        if not self.browses:
            return random.binomial(np.where(shown, served[:, :, None], 0), curve * attraction), None
        pages, positions = served.size, shown.shape[2]
        page = np.repeat(np.arange(pages), served.ravel())
        attraction = np.where(shown, attraction, 0.0).reshape(pages, positions)
        curve = np.tile(curve, (len(served), 1))
        clicked = self._draw_pages(curve, relevant.reshape(pages, positions), attraction, page, random)
        counts = [np.bincount(page[clicked[:, k]], minlength=pages) for k in range(positions)]
        return np.stack(counts, axis=1).reshape(shown.shape).astype(np.int64), clicked

    def _draw_pages(
        self, curve: Array, relevant: Flags, attraction: Array, page: Integers, random: np.random.Generator
    ) -> Flags:
        """Draw which results are clicked at every display, [displays, K], of n pages; `page` is each display's."""
        positions = relevant.shape[1]
        clicked = np.zeros((len(page), positions), bool)
        if self.name == "ubm":
            last = np.zeros(len(page), np.int64)
            for k in range(positions):
                p = np.where(last > 0, ANEW, 1.0) * curve[page, _below(k, last)]
                clicked[:, k] = random.random(len(page)) < p * attraction[page, k]
                last[clicked[:, k]] = k + 1
            return clicked
        on, leave = self._reading(curve, relevant)
        first = curve[:, 0] if self.name == "cascade" else np.ones(len(curve))
        there = random.random(len(page)) < first[page]
        for k in range(positions):
            clicked[:, k] = there & (random.random(len(page)) < attraction[page, k])
            there &= ~(clicked[:, k] & (random.random(len(page)) < leave[page, k]))
            if k + 1 < positions:
                there &= random.random(len(page)) < on[page, k]
        return clicked

    def _reading(self, curve: Array, relevant: Flags) -> tuple[Array, Array]:
        """Return the shares of readers that go on to the next result, [n, K − 1], and leave after a click, [..., K]."""
        if self.name == "cascade":
            depth = np.minimum.accumulate(curve, axis=1)
            return depth[:, 1:] / np.maximum(depth[:, :-1], np.finfo(float).tiny), np.where(relevant, SATISFIED, 0.0)
        if self.name == "dcm":
            after = np.concatenate([curve[:, 1:], np.zeros((len(curve), 1))], axis=1)
            return np.ones_like(curve[:, 1:]), np.broadcast_to(1 - after, relevant.shape)
        return np.full_like(curve[:, 1:], PERSEVERANCE), np.where(relevant, SATISFIED_DBN[1], SATISFIED_DBN[0])


def _below(k: int, last: Integers) -> Integers:
    """Return the index of p that holds at index k below a last click at position `last`, 0 for none, [n]."""
    return np.where(last > 0, k - last, k)


def deal_clicks(served: Integers, clicks: Integers, random: np.random.Generator) -> Flags:
    """Deal the clicks of pages out to their displays, where positions and displays are independent.

    Given their number, the displays that were clicked at a position are a random sample of the page's displays.

    Args:
        served: displays of each page, [pages].
        clicks: clicks of each page and position, [pages, K].
        random: the source of randomness.

    Returns:
        Whether each display was clicked, in the order of pages, [displays, K].

    Example:
        >>> dealt = deal_clicks(np.array([3, 2]), np.array([[3, 1], [0, 1]]), np.random.default_rng(0))
        >>> dealt[:, 0].tolist(), int(dealt[:3, 1].sum()), int(dealt[3:, 1].sum())
        ([True, True, True, False, False], 1, 1)
    """
    page = np.repeat(np.arange(len(served)), served)
    place = np.arange(len(page)) - np.repeat(np.cumsum(served) - served, served)
    dealt = np.zeros((len(page), clicks.shape[1]), bool)
    for k in range(clicks.shape[1]):
        shuffled = np.argsort(page + random.random(len(page)))  # within each page
        dealt[shuffled, k] = place < clicks[page, k]
    return dealt
