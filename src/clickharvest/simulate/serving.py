"""Serving: how often each ranker serves each query, and when. NumPy alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from clickharvest.simulate import names


def serve_evenly(queries: int, times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Serve every query alike, up to one page; times [rankers] → pages [rankers, queries]."""
    served = np.empty((len(times), queries), np.int64)
    for row, mean in zip(served, times.tolist(), strict=True):
        row[:] = int(mean)
        row[random.permutation(queries)[: round((mean - int(mean)) * queries)]] += 1
    return served


def serve_by_zipf(queries: int, times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Serve as many pages in all, of queries drawn with a frequency of 1 / rank."""
    frequency = 1 / (1 + random.permutation(queries))
    pages = np.round(times * queries).astype(np.int64)
    return np.stack([random.multinomial(total, frequency / frequency.sum()) for total in pages])


def serve_the_same(queries: int, times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Serve evenly, the same queries by all rankers: those drawn first have the page that not all of them get."""
    order = random.permutation(queries)
    served = np.repeat(times.astype(np.int64)[:, None], queries, axis=1)
    for row, mean in zip(served, times.tolist(), strict=True):
        row[order[: round((mean - int(mean)) * queries)]] += 1
    return served


REPETITIONS: dict[str, Callable[[int, NDArray[np.float64], np.random.Generator], NDArray[np.int64]]] = dict(
    zip(names.REPETITIONS, (serve_evenly, serve_by_zipf, serve_the_same), strict=True)
)
"""How queries repeat, by name."""
