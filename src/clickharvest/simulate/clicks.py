"""How simulated users click on what they examine: as the position-based model says, or in ways that break it.

| name | Pr(examined) at position k | Pr(click \\| examined), relevant | not relevant |
|---|---|---|---|
| `pbm` | p_k(x) | 1 | noise |
| `trust` | p_k(x) | .9 + .1/k | noise + (.65 − noise)/k |
| `cascade`, `ubm`, `dcm`, `dbn` | depends on the clicks above, see `browsing` | 1 | noise |

`trust` is the model of Agarwal et al. (WWW 2019): users believe what stands high, so that a click depends on the
position even when the result is examined. Of the others `cascade`, for example: users read downwards, as far as
min_{j≤k} p_j(x) says if nothing holds them, and half of those who click on a relevant result are satisfied and leave:
a position is examined with p_k(x) · .5^{relevant results above k}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.simulate.browsing import draw_pages, examined, examined_given
from clickharvest.simulate.names import BROWSING_MODELS, USER_KINDS

TRUST_IN_TOP = 0.65
"""With `trust`, the probability of a click on an irrelevant result that is examined at the top."""
LEAST_TRUST = 0.9
"""With `trust`, the probability of a click on a relevant result that is examined far down."""


@dataclass(frozen=True)
class SimulatedUsers:
    """How users click.

    Attributes:
        name: one of `USER_KINDS`.
        noise: probability of a click on an irrelevant result that is examined, far down with `trust`.

    Example:
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

    def attraction(self, relevant: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return Pr(click | examined) of results that are relevant or not, [..., K]."""
        if self.name != "trust":
            return np.where(relevant, 1.0, self.noise)
        k = np.arange(1.0, relevant.shape[-1] + 1)
        mistaken = self.noise + max(TRUST_IN_TOP - self.noise, 0) / k
        return np.where(relevant, LEAST_TRUST + (1 - LEAST_TRUST) / k, mistaken)

    def examination(self, curve: NDArray[np.float64], relevant: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return Pr(examined) on pages with these results, [..., n, K], where p_k(x) is `curve`, [n, K]."""
        if not self.browses:
            return np.broadcast_to(curve, relevant.shape)
        return examined(self.name, curve, relevant, self.attraction(relevant))

    def examination_given(
        self, curve: NDArray[np.float64], relevant: NDArray[np.bool_], clicked: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return Pr(examined | the clicks above) of n pages, [n, K], where p_k(x) is `curve`, [n, K]."""
        if not self.browses:
            return curve
        return examined_given(self.name, curve, relevant, self.attraction(relevant), clicked)

    def draw(
        self,
        served: NDArray[np.int64],
        shown: NDArray[np.bool_],
        relevant: NDArray[np.bool_],
        curve: NDArray[np.float64],
        random: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Draw the clicks of R rankers, n queries and K positions.

        Args:
            served: displays of each ranker and query, [R, n].
            shown: whether there is a result, [R, n, K].
            relevant: whether it is relevant, [R, n, K].
            curve: p_k(x) of each query, [n, K].
            random: the source of randomness.

        Returns:
            Clicks, [R, n, K]; and whether each display was clicked at each position, in the order of rankers and
            queries, [displays, K], where the displays of a page are more than their number of clicks: where users
            browse.
        """
        attraction = self.attraction(relevant)
        if not self.browses:
            return random.binomial(np.where(shown, served[:, :, None], 0), curve * attraction), None
        pages, positions = served.size, shown.shape[2]
        page = np.repeat(np.arange(pages), served.ravel())
        attraction = np.where(shown, attraction, 0.0).reshape(pages, positions)
        of_pages = np.tile(curve, (len(served), 1))
        clicked = draw_pages(self.name, of_pages, relevant.reshape(pages, positions), attraction, page, random)
        counts = [np.bincount(page[clicked[:, k]], minlength=pages) for k in range(positions)]
        return np.stack(counts, axis=1).reshape(shown.shape).astype(np.int64), clicked


def deal_clicks(served: NDArray[np.int64], clicks: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.bool_]:
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
