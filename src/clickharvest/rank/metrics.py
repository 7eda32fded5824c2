"""Metrics of rankings with known relevance of every document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from clickharvest.errors import InputError
from clickharvest.rank.estimates import ranks, sum_by_group
from clickharvest.rank.features import Array, Index


def ranking_metrics(
    scores: ArrayLike,
    grades: ArrayLike,
    starts: ArrayLike,
    metrics: Sequence[str] = ("avg_rank", "ndcg@10", "map"),
    *,
    threshold: float = 1,
    seed: int = 0,
) -> dict[str, Array]:
    """Return metrics of every query, [n_queries] each, whose means papers report.

    - `avg_rank`: Σ_d rank(d) · [grade ≥ threshold], lower is better. 0 for a query without a relevant document.
    - `ndcg`, `ndcg@k`: with gains 2^grade − 1 and discounts 1 / log₂(1 + rank). NaN without a positive grade.
    - `map`, `map@k`: average precision; relevant is a grade ≥ threshold. NaN without a relevant document.

    Args:
        scores: score of every document, higher ranks first, [n_docs].
        grades: relevance grades, 0 or more, [n_docs].
        starts: where each query's documents start, and the end of the last, [n_queries + 1].
        metrics: names of metrics.
        threshold: the least grade of a relevant document; nDCG reads the grades themselves.
        seed: seed of the order of documents with equal scores.

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
    values_of: dict[str, Array] = {}
    for metric in metrics:
        name, at, cut = metric.partition("@")
        depth = int(cut) if cut.isdecimal() and int(cut) > 0 else None
        if metric == "avg_rank":
            values_of[metric] = sum_by_group(query, places * relevant, len(bounds) - 1)
        elif name in ("ndcg", "map") and (depth is not None) == bool(at):
            of_query = _ndcg if name == "ndcg" else _average_precision
            gain_or_relevant = labels if name == "ndcg" else relevant.astype(np.float64)
            values_of[metric] = of_query(places, gain_or_relevant, query, len(bounds) - 1, depth or np.inf)
        else:
            raise InputError(f"no metric {metric!r}: expected avg_rank, ndcg, ndcg@k, map or map@k")
    return values_of


def _ndcg(places: Array, grades: Array, query: Index, n_queries: int, depth: float) -> Array:
    """Return the discounted gains of every query's first documents over those of its best order, [n_queries]."""
    gains = 2.0**grades - 1

    def discounted(ranks: Array) -> Array:
        return sum_by_group(query, np.where(ranks <= depth, gains / np.log2(1 + ranks), 0.0), n_queries)

    best = np.lexsort((-gains, query))
    first = np.concatenate([[0], np.cumsum(np.bincount(query, minlength=n_queries))])
    ideal = np.empty(len(query))
    ideal[best] = np.arange(len(query)) - first[query] + 1
    return _ratio(discounted(places), discounted(ideal))


def _average_precision(places: Array, relevant: Array, query: Index, n_queries: int, depth: float) -> Array:
    """Return the mean precision at the ranks of each query's relevant documents, [n_queries]."""
    order = np.lexsort((places, query))
    seen = np.cumsum(relevant[order])
    first = np.concatenate([[0], np.cumsum(np.bincount(query, minlength=n_queries))])[query]
    precision = np.empty(len(query))
    precision[order] = (seen - np.concatenate([[0.0], seen])[first]) / places[order]
    total = sum_by_group(query, np.where(places <= depth, relevant * precision, 0.0), n_queries)
    return _ratio(total, sum_by_group(query, relevant, n_queries))


def _ratio(part: Array, total: Array) -> Array:
    return np.asarray(np.divide(part, total, out=np.full(len(total), np.nan), where=total > 0))
