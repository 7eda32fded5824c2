"""Users who browse: whether they examine a result depends on the clicks above it on the page.

| name | what they do |
|---|---|
| `cascade` | read downwards, as far as min_{j≤k} p_j(x) says; half of those who click on a relevant result leave |
| `dcm` | read downwards, and past every result that they do not click; after a click at k, p_{k+1}(x) of them read on |
| `dbn` | read downwards, .9 of them from each result to the next; a click satisfies .7 of them if relevant, .2 if not |
| `ubm` | examine k with p_k(x) if nothing above is clicked, with .6 p_{k−j}(x) if j is the last click above |

The first three are *readers*: a result is examined only if all above are. They are the simplified dynamic Bayesian
network of Chapelle and Zhang (2009) with p(x) for perseverance, the dependent click model of Guo et al. (2009), and
that dynamic Bayesian network itself. `ubm` is the user browsing model of Dupret and Piwowarski (2008): after a click
users begin anew below it.

What a result's examination is *given the clicks above it on its page* is `examined_given`; over all such clicks,
`examined`. Both know which results are relevant, as the simulated users do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

SATISFIED = 0.5
"""With `cascade`, the share of clicks on relevant results after which users leave."""
PERSEVERANCE = 0.9
"""With `dbn`, the share of readers who go on to the next result unless they are satisfied."""
SATISFIED_DBN = (0.2, 0.7)
"""With `dbn`, the share of clicks on irrelevant and on relevant results after which users leave."""
ANEW = 0.6
"""With `ubm`, how much of p_1, p_2, … is left below a click."""


def reading(name: str, curve: Array, relevant: Flags) -> tuple[Array, Array]:
    """Return how readers go on: the share that goes on to the next result, [n, K − 1], and that leaves after a click.

    Args:
        name: `cascade`, `dcm` or `dbn`.
        curve: p_k(x), [n, K].
        relevant: whether results are relevant, [..., n, K], which is the shape of those who leave.

    Example:
        >>> on, leave = reading("dcm", np.array([[1.0, 0.5, 0.4]]), np.array([[True, False, True]]))
        >>> on.tolist(), leave.tolist()
        ([[1.0, 1.0]], [[0.5, 0.6, 1.0]])
    """
    if name == "cascade":
        depth = np.minimum.accumulate(curve, axis=1)
        return depth[:, 1:] / np.maximum(depth[:, :-1], np.finfo(float).tiny), np.where(relevant, SATISFIED, 0.0)
    if name == "dcm":
        after = np.concatenate([curve[:, 1:], np.zeros((len(curve), 1))], axis=1)
        return np.ones_like(curve[:, 1:]), np.broadcast_to(1 - after, relevant.shape)
    return np.full_like(curve[:, 1:], PERSEVERANCE), np.where(relevant, SATISFIED_DBN[1], SATISFIED_DBN[0])


def examined(name: str, curve: Array, relevant: Flags, attraction: Array) -> Array:
    """Return Pr(examined) on pages with these results, whatever was clicked above, [..., n, K].

    Args:
        name: the click model.
        curve: p_k(x), [n, K].
        relevant: whether results are relevant, [..., n, K].
        attraction: Pr(click | examined), [..., n, K].

    Example:
        In a cascade, users leave once satisfied.

        >>> relevant = np.array([[True, False, True]])
        >>> examined("cascade", np.array([[1, 0.5, 0.4]]), relevant, np.where(relevant, 1, 0.1)).tolist()
        [[1.0, 0.25, 0.2]]
    """
    found = np.empty(relevant.shape)
    if name == "ubm":
        last = np.zeros((*relevant.shape[:-1], relevant.shape[-1] + 1))  # Pr(the last click above is at j)
        last[..., 0] = 1.0
        for k in range(relevant.shape[-1]):
            looked = last[..., : k + 1] * np.stack([_begun_anew(curve, k, j) for j in range(k + 1)], axis=-1)
            found[..., k] = looked.sum(axis=-1)
            clicked = looked * attraction[..., k, None]
            last[..., : k + 1] -= clicked
            last[..., k + 1] = clicked.sum(axis=-1)
        return found
    on, leave = reading(name, curve, relevant)
    found[..., 0] = curve[:, 0] if name == "cascade" else 1.0
    for k in range(1, relevant.shape[-1]):
        stay = 1 - attraction[..., k - 1] * leave[..., k - 1]
        found[..., k] = found[..., k - 1] * stay * on[..., k - 1]
    return found


def examined_given(name: str, curve: Array, relevant: Flags, attraction: Array, clicked: Flags) -> Array:
    """Return Pr(examined | clicks above on the page, results of the page), [n, K].

    Of readers it follows from Bayes' rule: a result that is not clicked makes it less likely that they came so far,
    the less the more it attracts.

    Args:
        name: the click model.
        curve: p_k(x) of each page, [n, K].
        relevant: whether results are relevant, [n, K].
        attraction: Pr(click | examined), [n, K].
        clicked: the clicks, [n, K].

    Example:
        Half of those who click on a relevant result are still there; an irrelevant one is mostly skipped.

        >>> curve, relevant = np.ones((2, 3)), np.array([[True, False, False], [False, False, False]])
        >>> clicked = np.array([[True, False, False], [False, False, False]])
        >>> examined_given("cascade", curve, relevant, np.where(relevant, 0.9, 0.1), clicked).round(2).tolist()
        [[1.0, 0.5, 0.47], [1.0, 1.0, 1.0]]
    """
    found = np.empty(clicked.shape)
    if name == "ubm":
        last = np.zeros(len(clicked), np.int64)
        for k in range(clicked.shape[1]):
            shifted = np.where(last > 0, k - last, k)
            found[:, k] = np.take_along_axis(curve, shifted[:, None], axis=1)[:, 0] * np.where(last > 0, ANEW, 1.0)
            last[clicked[:, k]] = k + 1
        return found
    on, leave = reading(name, curve, relevant)
    found[:, 0] = curve[:, 0] if name == "cascade" else 1.0
    for k in range(1, clicked.shape[1]):
        before, attracts = found[:, k - 1], attraction[:, k - 1]
        unclicked = 1 - before * attracts
        skipped = np.divide(before * (1 - attracts), unclicked, out=np.zeros_like(before), where=unclicked > 0)
        found[:, k] = np.where(clicked[:, k - 1], 1 - leave[:, k - 1], skipped) * on[:, k - 1]
    return found


def draw_pages(
    name: str, curve: Array, relevant: Flags, attraction: Array, page: NDArray[np.int64], random: np.random.Generator
) -> Flags:
    """Draw which results are clicked at every display of pages, [displays, K].

    Args:
        name: the click model.
        curve: p_k(x) of each page, [n, K].
        relevant: whether results are relevant, [n, K].
        attraction: Pr(click | examined), 0 where there is no result, [n, K].
        page: which of the pages each display is of, [displays].
        random: the source of randomness.
    """
    positions = relevant.shape[1]
    clicked = np.zeros((len(page), positions), bool)
    if name == "ubm":
        last = np.zeros(len(page), np.int64)
        for k in range(positions):
            p = np.where(last > 0, ANEW, 1.0) * curve[page, np.where(last > 0, k - last, k)]
            clicked[:, k] = random.random(len(page)) < p * attraction[page, k]
            last[clicked[:, k]] = k + 1
        return clicked
    on, leave = reading(name, curve, relevant)
    first = curve[:, 0] if name == "cascade" else np.ones(len(curve))
    there = random.random(len(page)) < first[page]
    for k in range(positions):
        clicked[:, k] = there & (random.random(len(page)) < attraction[page, k])
        there &= ~(clicked[:, k] & (random.random(len(page)) < leave[page, k]))
        if k + 1 < positions:
            there &= random.random(len(page)) < on[page, k]
    return clicked


def _begun_anew(curve: Array, k: int, last: int) -> Array:
    """Return what the user browsing model examines of index k below a last click at position `last`, 0 for none."""
    return curve[..., k] if last == 0 else ANEW * curve[..., k - last]
