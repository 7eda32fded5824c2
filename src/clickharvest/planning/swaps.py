"""Which ranks to swap, on which share of the pages, so that every position is known well enough for the least harm.

Candidates are swaps of rank 1 with rank k and of neighbouring ranks. For shares s the design gives every unit exposures
and expected clicks, and these the information H(s) on log p, as in `estimation.linear_shares`, without a prior. The
loss Σ s_{ij} (p_i − p_j)(r_i − r_j) is linear in s; it is made as small as it can be while [H(s)⁻¹]_{kk} ≤ v at every
position. Swaps with rank 1 compare directly and cost much; neighbours cost little, but the errors of a chain of them
add up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from clickharvest.errors import NotIdentifiedError
from clickharvest.planning.outline import Outline, Pair
from clickharvest.planning.scaling import log_margin, z_value

Array = NDArray[np.float64]

MOST_MOVED = 0.5
"""A rank may lose its own result on half of the pages at most."""
MOST_UNITS = 400
"""Units that the information is summed over."""
LEAST_SHARE = 1e-4
"""Shares below are not worth running."""


def candidates(positions: int) -> list[Pair]:
    """Return the pairs that are tried.

    Example:
        >>> candidates(4)
        [(1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
    """
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

    def slack(logs: Array) -> Array:
        variance = _variance(few, dict(zip(pairs, np.exp(logs).tolist(), strict=True)), pages)
        found: Array = np.log(wanted) - np.log(variance)
        return found

    def left(logs: Array) -> Array:
        moved = np.zeros(k)
        for pair, share in zip(pairs, np.exp(logs), strict=True):
            moved[[pair[0] - 1, pair[1] - 1]] += share
        room: Array = MOST_MOVED - moved
        return room

    most = np.full(len(pairs), np.log(MOST_MOVED / k))
    if np.min(slack(most)) < 0:
        best = float(np.expm1(z_value(level) * np.sqrt(inflation * np.exp(np.log(wanted) - slack(most)).max())))
        raise NotIdentifiedError(
            f"{pages:,.0f} pages do not give ±{100 * width:g} % at every position, though each rank were swapped on "
            f"half of them (about ±{100 * best:.0f} %): plan more pages, a larger width, or fewer positions"
        )
    scale = float(harm @ np.exp(most))
    conditions: Any = [{"type": "ineq", "fun": slack}, {"type": "ineq", "fun": left}]
    options: Any = {"maxiter": 200, "ftol": 1e-8}

    def cost(logs: Array) -> float:
        return float(harm @ np.exp(logs)) / scale

    solution = minimize(
        cost,
        most.tolist(),
        method="SLSQP",
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


def _variance(outline: Outline, swaps: dict[Pair, float], pages: float) -> Array:
    """Return the variance of log p_k / p_1 of every position but 1, [K − 1]."""
    matrix = replace(outline, swaps=_clipped(swaps, len(outline.examination))).exposure
    shown = pages * outline.pages[outline.query] * outline.relevance
    rate = matrix * outline.examination * shown[:, None]
    total = rate.sum(axis=1, keepdims=True)
    share = rate / np.maximum(total, 1e-300)
    information = np.diag(rate.sum(axis=0)) - (share * total).T @ share
    variance: Array = np.maximum(np.diag(np.linalg.pinv(information[1:, 1:], hermitian=True)), 1e-300)
    return variance


def _clipped(swaps: dict[Pair, float], k: int) -> dict[Pair, float]:
    """Return shares that move no rank on more than all pages: a solver's steps may."""
    moved = np.zeros(k)
    for (i, j), share in swaps.items():
        moved[[i - 1, j - 1]] += share
    return {pair: min(share / max(moved.max(), 1.0), 1.0) for pair, share in swaps.items()}
