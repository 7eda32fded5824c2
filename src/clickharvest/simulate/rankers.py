"""Linear rankers trained as the paper trains its own: pairwise SVMs on small samples of the queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from clickharvest.simulate.corpus import Corpus

SHARED_QUERIES, OWN_QUERIES = 22, 92
"""Training queries that all rankers have in common, and that each has to itself."""


def training_queries(rankers: int) -> int:
    """Return how many queries it takes to train this many rankers."""
    return SHARED_QUERIES + OWN_QUERIES * rankers


def train_rankers(corpus: Corpus, rankers: int) -> NDArray[np.float64]:
    """Train rankers on the first queries of a corpus: `SHARED_QUERIES` in common, then `OWN_QUERIES` each.

    Returns:
        The weights of each ranker, [rankers, F].
    """
    shared = np.arange(SHARED_QUERIES)
    own = SHARED_QUERIES + np.arange(rankers * OWN_QUERIES).reshape(rankers, OWN_QUERIES)
    return np.stack([svm_rank(corpus.take(np.concatenate([shared, queries]))) for queries in own])


def svm_rank(corpus: Corpus, *, cost: float = 30.0) -> NDArray[np.float64]:
    """Train a linear pairwise SVM with the squared hinge loss.

    Minimises ½|w|² + cost · mean max(0, 1 − w·(f_i − f_j))² over the pairs of documents of one query where i has
    the higher grade.

    Returns:
        The weights w, [F].

    Example:
        >>> f = np.array([[0, 0.5], [1, 0.5]], np.float32)
        >>> svm_rank(Corpus(f, np.array([0, 4], np.int8), np.array([0, 2]))).round(2).tolist()
        [0.98, 0.0]
    """
    better, worse = _grade_pairs(corpus)
    margins_of = (corpus.features[better] - corpus.features[worse]).astype(np.float64)

    def loss(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slack = np.maximum(0, 1 - margins_of @ w)
        scale = cost / max(len(slack), 1)
        return 0.5 * float(w @ w) + scale * float(slack @ slack), w - 2 * scale * (slack @ margins_of)

    start = np.zeros(corpus.features.shape[1])
    weights: NDArray[np.float64] = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return weights


def top(corpus: Corpus, weights: NDArray[np.float64], positions: int) -> NDArray[np.int64]:
    """Rank every query's documents by w·f and return the first ones.

    Returns:
        Documents by position, [n_queries, positions], with −1 where a query has fewer documents.

    Example:
        >>> corpus = Corpus(np.array([[0.2], [0.9], [0.5]], np.float32), np.zeros(3, np.int8), np.array([0, 2, 3]))
        >>> top(corpus, np.array([1.0]), 2).tolist()
        [[1, 0], [2, -1]]
    """
    scores = corpus.features @ weights.astype(np.float32)
    order = np.lexsort((-scores, corpus.query))
    within = np.arange(positions)
    place = np.minimum(corpus.starts[:-1, None] + within, len(order) - 1)
    return np.where(within < corpus.sizes[:, None], order[place], -1)


def _grade_pairs(corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pairs = []
    for start, end in zip(corpus.starts[:-1], corpus.starts[1:], strict=True):
        grades = corpus.grades[start:end]
        pairs.append(start + np.argwhere(grades[:, None] > grades))
    better, worse = np.concatenate(pairs).T
    return better, worse
