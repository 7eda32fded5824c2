"""Which ranks to swap, on which share of the pages, so that every position is known well enough for the least harm.

Candidates are swaps of rank 1 with rank k and of neighbouring ranks. For shares s the design gives every unit exposures
and expected clicks, and these the information H(s) on log p, as in `estimation.multinomial_logit`, without a prior. The
loss Σ s_{ij} (p_i − p_j)(r_i − r_j) is linear in s; it is made as small as it can be while [H(s)⁻¹]_{kk} ≤ v at every
position. Swaps with rank 1 compare directly and cost much; neighbours cost little, but the errors of a chain of them
add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.planning.outline import Outline, Pair, transfer
from clickharvest.planning.traffic import log_margin, z_value

Array = NDArray[np.float64]

MOST_MOVED = 0.5
"""A rank may lose its own result on half of the pages at most."""
MOST_UNITS = 400
"""Units that the information is summed over."""
MOST_POSITIONS = 100
"""Positions among which swaps are chosen: the work grows with the third power."""
LEAST_SHARE = 1e-4
"""Shares below are not worth running."""


def candidates(positions: int) -> list[Pair]:
    """Return the pairs that are tried.

    Raises:
        InputError: there are more than `MOST_POSITIONS` positions.

    Example:
        >>> candidates(4)
        [(1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
    """
    if positions > MOST_POSITIONS:
        raise InputError(
            f"{positions:,} positions are too many to choose swaps among: expected {MOST_POSITIONS} at most; plan "
            "fewer, or name the pairs, such as neighbours=.05"
        )
    return [(1, k) for k in range(2, positions + 1)] + [(k, k + 1) for k in range(2, positions)]


def choose_swaps(
    outline: Outline, pages: float, *, width: float = 0.1, level: float = 0.95, inflation: float = 1.0
) -> dict[Pair, float]:
    """Return the shares of swaps that give every position the width for the least loss in clicks.

    Args:
        outline: the experiment; its own swaps are left out, its arms stay.
        pages: pages of the experiment.
        width: half-width that is wanted.
        level: level of the intervals.
        inflation: how many times the variance of independent clicks the real one is.

    Raises:
        InputError: there are more than `MOST_POSITIONS` positions.
        NotIdentifiedError: even with half of the pages swapped the width is not reached.

    Example:
        >>> from clickharvest.planning.outline import ranked_outline
        >>> chosen = choose_swaps(ranked_outline(3), 100_000)
        >>> sorted(chosen)
        [(1, 2), (2, 3)]
    """
    k = len(outline.examination)
    pairs = candidates(k)
    few = _some(outline)
    harm = np.array([replace(few, swaps={pair: 1.0}).loss() for pair in pairs])
    harm = np.maximum(harm, 1e-9 * max(harm.max(), 1e-9))
    wanted = (log_margin(width) / z_value(level)) ** 2 / inflation

    ends = np.zeros((k, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        ends[[i - 1, j - 1], column] = 1.0

    @lru_cache(maxsize=2)
    def variances(logs: tuple[float, ...]) -> tuple[Array, Array]:
        return _variance(few, pairs, np.exp(logs), pages)

    def slack(logs: Array) -> Array:
        found: Array = np.log(wanted) - np.log(variances(tuple(logs))[0])
        return found

    def slack_slopes(logs: Array) -> Array:
        variance, slopes = variances(tuple(logs))
        found: Array = -slopes * np.exp(logs) / variance[:, None]
        return found

    def left(logs: Array) -> Array:
        room: Array = MOST_MOVED - ends @ np.exp(logs)
        return room

    def left_slopes(logs: Array) -> Array:
        return -ends * np.exp(logs)

    most = np.full(len(pairs), np.log(MOST_MOVED / k))
    if np.min(slack(most)) < 0:
        best = float(np.expm1(z_value(level) * np.sqrt(inflation * np.exp(np.log(wanted) - slack(most)).max())))
        raise NotIdentifiedError(
            f"{pages:,.0f} pages do not give ±{100 * width:g} % at every position, even if each rank were swapped "
            f"on half of them (about ±{100 * best:.0f} %): plan more pages, a larger width, or fewer positions"
        )
    scale = float(harm @ np.exp(most))
    conditions: Any = [
        {"type": "ineq", "fun": slack, "jac": slack_slopes},
        {"type": "ineq", "fun": left, "jac": left_slopes},
    ]
    options: Any = {"maxiter": 200, "ftol": 1e-8}

    def cost(logs: Array) -> tuple[float, Array]:
        of_pairs = harm * np.exp(logs) / scale
        return float(of_pairs.sum()), of_pairs

    solution = minimize(
        cost,
        most.tolist(),
        method="SLSQP",
        jac=True,
        bounds=[(float(np.log(LEAST_SHARE / 10)), float(np.log(MOST_MOVED)))] * len(pairs),
        constraints=conditions,
        options=options,
    )
    shares = np.exp(solution.x if np.min(slack(solution.x)) > -1e-3 else most)
    shares[shares < LEAST_SHARE] = 0.0
    return {pair: float(share) for pair, share in zip(pairs, shares, strict=True) if share > 0}


def _some(outline: Outline) -> Outline:
    """Return some of the queries, drawn at random by their traffic, to stand for all: it is tried many times."""
    k = len(outline.examination)
    queries = max(1, MOST_UNITS // k)
    if len(outline.pages) <= queries:
        return replace(outline, swaps={})
    drawn = np.random.default_rng(0).choice(len(outline.pages), queries, replace=False, p=outline.pages)
    number = np.full(len(outline.pages), -1)
    number[drawn] = np.arange(queries)
    kept = number[outline.query] >= 0
    return replace(
        outline,
        query=number[outline.query[kept]],
        placed=outline.placed[kept],
        pages=np.full(queries, 1 / queries),
        relevance=outline.relevance[kept],
        swaps={},
    )


def _variance(outline: Outline, pairs: Sequence[Pair], shares: Array, pages: float) -> tuple[Array, Array]:
    """Return variances of log p_k / p_1 of all positions but 1, [K − 1], and their slopes along shares, [K − 1, pairs].

    A pair (i, j) moves exposures of a unit by δ = a_j − a_i, a those before swaps: to i, and from j. With x_k the rows
    of H⁻¹ and m_u their means by the unit's shares, the slope of [H⁻¹]_{kk} is −Σ_u δ w_u (p_i (x_{ki} − m_{uk})² − p_j
    (x_{kj} − m_{uk})²), w_u clicks of a unit at rank 1.
    """
    k = len(outline.examination)
    first, second = np.array(pairs).T - 1
    moved = np.bincount(first, shares, k) + np.bincount(second, shares, k)
    # A solver's steps may move a rank on more than all pages.
    shares = np.minimum(shares / max(moved.max(), 1.0), 1.0)
    matrix = outline.placed @ transfer(dict(zip(pairs, shares.tolist(), strict=True)), k)
    shown = pages * outline.pages[outline.query] * outline.relevance
    rate = matrix * outline.examination * shown[:, None]
    total = rate.sum(axis=1, keepdims=True)
    share = rate / np.maximum(total, 1e-300)
    information = np.diag(rate.sum(axis=0)) - (share * total).T @ share
    inverse = np.zeros((k, k - 1))
    inverse[1:] = np.linalg.pinv(information[1:, 1:], hermitian=True)
    mean = share @ inverse
    moves = (outline.placed[:, second] - outline.placed[:, first]) * shown[:, None]
    none, once, twice = moves.sum(axis=0)[:, None], moves.T @ mean, moves.T @ mean**2

    def part(rank: NDArray[np.int64]) -> Array:
        x = inverse[rank]
        found: Array = outline.examination[rank, None] * (x**2 * none - 2 * x * once + twice)
        return found

    variance: Array = np.maximum(np.diag(inverse[1:]), 1e-300)
    return variance, (part(second) - part(first)).T
