"""Metrics of rankings where the relevance of every document is known.

nDCG and MAP are those of the library `rax`, computed in double precision; AvgRank, which such libraries do not have,
is the sum of the ranks of a query's relevant documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.rank.estimates import ranks
from clickharvest.rank.features import Array, Index
from clickharvest.rank.groups import padded

CELLS = 1 << 22
"""Cells of the largest padded matrix."""


def ranking_metrics(
    scores: ArrayLike,
    grades: ArrayLike,
    starts: ArrayLike,
    metrics: Sequence[str] = ("avg_rank", "ndcg@10", "map"),
    *,
    threshold: float = 1,
    seed: int = 0,
) -> dict[str, Array]:
    """Return metrics of every query, [n_queries] each; their means are what papers report.

    - `avg_rank`: Σ_d rank(d) · [grade ≥ threshold], lower is better. 0 for a query without a relevant document.
    - `ndcg`, `ndcg@k`: with gains 2^grade − 1 and discounts 1 / log₂(1 + rank). NaN without a positive grade.
    - `map`, `map@k`: average precision; relevant is a grade ≥ threshold. NaN without a relevant document.

    Args:
        scores: score of every document, higher ranks first, [n_docs].
        grades: relevance grades, 0 or more, [n_docs].
        starts: where each query's documents start, and the end of the last, [n_queries + 1].
        metrics: names of metrics.
        threshold: the least grade of a relevant document; nDCG reads the grades themselves.
        seed: seed of how documents with equal scores are ordered.

    Raises:
        InputError: a metric is unknown, or sizes do not fit.

    Example:
        >>> found = ranking_metrics([0.3, 0.2, 0.1], [0, 1, 1], [0, 3])
        >>> {name: values.round(4).tolist() for name, values in found.items()}
        {'avg_rank': [5.0], 'ndcg@10': [0.6934], 'map': [0.5833]}
    """
    bounds = np.asarray(starts, np.int64)
    labels = np.asarray(grades, np.float64)
    places = ranks(scores, bounds, seed=seed)
    if labels.shape != places.shape or not (np.isfinite(labels) & (labels >= 0)).all():
        raise InputError(f"grades of shape {labels.shape}: expected {len(places):,} numbers, 0 or more")
    relevant = labels >= threshold
    query = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    found: dict[str, Array] = {}
    for metric in metrics:
        name, at, cut = metric.partition("@")
        depth = int(cut) if cut.isdecimal() and int(cut) > 0 else None
        if metric == "avg_rank":
            found[metric] = np.asarray(np.bincount(query, places * relevant, len(bounds) - 1), np.float64)
        elif name in ("ndcg", "map") and (depth is not None) == bool(at):
            found[metric] = _by_rax(name, depth, places, labels if name == "ndcg" else relevant.astype(float), bounds)
        else:
            raise InputError(f"no metric {metric!r}: expected avg_rank, ndcg, ndcg@k, map or map@k")
    return found


def _by_rax(name: str, depth: int | None, places: Array, labels: Array, starts: Index) -> Array:
    import jax

    rax = require("rax", "rank", f"the metric {name}")

    metric = rax.ndcg_metric if name == "ndcg" else rax.ap_metric
    sizes = np.diff(starts)
    some = np.bincount(np.repeat(np.arange(len(sizes)), sizes), labels > 0, len(sizes)) > 0
    found = np.full(len(sizes), np.nan)
    queries = np.flatnonzero(some)
    queries = queries[np.argsort(sizes[queries], kind="stable")]
    parts = max(1, int(sizes[queries].sum()) // CELLS)
    with jax.enable_x64(True):
        for part in np.array_split(queries, parts):
            if len(part):
                docs = padded(starts, part)
                values: NDArray[np.float64] = np.asarray(
                    metric(-places[docs], labels[docs], where=docs >= 0, topn=depth, reduce_fn=None)
                )
                found[part] = values
    return found
