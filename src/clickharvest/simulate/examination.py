"""True examination curves p_k(x) by name, and the context features x of queries.

A curve takes the context's index s = w·x, [n], and the number of positions K, and returns [n, K] with p_1 = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.simulate import names
from clickharvest.simulate.corpus import Corpus

Array = NDArray[np.float64]

VISIBLE = 3
"""Results on the plateau."""
CONTEXT_FEATURES = 10
"""Context features of a query."""
CANDIDATES = 30
"""Document features that context features are chosen from: those that matter most to relevance."""
NOISE_SD = 0.35
"""Standard deviation of context features that are free of relevance."""


def power(index: Array, positions: int) -> Array:
    """Return the paper's curve, p_k = k^{−max(s+1, 0)}.

    Example:
        >>> power(np.array([0.0, -2.0]), 4).round(2).tolist()
        [[1.0, 0.5, 0.33, 0.25], [1.0, 1.0, 1.0, 1.0]]
    """
    k = np.arange(1.0, positions + 1)
    return np.asarray(k ** -np.maximum(index + 1, 0)[:, None])


def fold(index: Array, positions: int) -> Array:
    """Return a page with a fold: p_k ∝ .1 + .9 σ((m − k) / (K/10)) drops around m = (K+1)/2 · e^{−s}.

    Example:
        >>> fold(np.array([0.0, 0.5]), 10)[:, [0, 3, 6, 9]].round(2).tolist()
        [[1.0, 0.84, 0.27, 0.11], [1.0, 0.44, 0.13, 0.11]]
    """
    k = np.arange(1.0, positions + 1)
    place = (positions + 1) / 2 * np.exp(-index)[:, None]
    curve = 0.1 + 0.9 * sigmoid((place - k) / (positions / 10))
    return np.asarray(curve / curve[:, :1])


def bump(index: Array, positions: int) -> Array:
    """Return a power curve that rises at the end of the page.

    Users scan from the top, k^{−max(s+1, 0)}, or jump to the end: p_k = 1 − (1 − scan_k)(1 − jump_k) with
    jump_k = .5 σ(2s) exp(−(K − k)² / 2).

    Example:
        >>> bump(np.array([0.0, 1.0]), 10)[:, [0, 7, 8, 9]].round(2).tolist()
        [[1.0, 0.15, 0.25, 0.32], [1.0, 0.07, 0.28, 0.45]]
    """
    k = np.arange(1.0, positions + 1)
    jump = 0.5 * sigmoid(2 * index)[:, None] * np.exp(-((positions - k) ** 2) / 2)
    return np.asarray(1 - (1 - power(index, positions)) * (1 - jump))


def plateau(index: Array, positions: int) -> Array:
    """Return a page of which everybody sees the first three results: p_k = min(1, 3/k)^max(s+1, 0).

    Example:
        >>> plateau(np.array([0.0, 1.0]), 6).round(2).tolist()
        [[1.0, 1.0, 1.0, 0.75, 0.6, 0.5], [1.0, 1.0, 1.0, 0.56, 0.36, 0.25]]
    """
    k = np.arange(1.0, positions + 1)
    return np.asarray(np.minimum(1, VISIBLE / k) ** np.maximum(index + 1, 0)[:, None])


def grid(index: Array, positions: int) -> Array:
    """Return a page of two columns, read row by row.

    Positions 1, 3, 5 … stand on the left, 2, 4, 6 … on the right of rows 1, 2, 3 …: p_k = row^{−max(s+1, 0)}, and
    σ(1 − 2s) of that on the right. The second row's left may be examined more than the first row's right.

    Example:
        >>> grid(np.array([0.0, 1.0]), 4).round(2).tolist()
        [[1.0, 0.73, 0.5, 0.37], [1.0, 0.27, 0.25, 0.07]]
    """
    row = np.arange(positions) // 2
    right = np.arange(positions) % 2 == 1
    glance = np.where(right, sigmoid(1 - 2 * index)[:, None], 1.0)
    return np.asarray(power(index, positions)[:, row] * glance)


def sigmoid(z: Array) -> Array:
    """Return σ(z), finite for every z; SciPy is imported when it is needed, not to list the names here."""
    from scipy.special import expit

    values: Array = expit(z)
    return values


EXAMINATIONS: dict[str, Callable[[Array, int], Array]] = dict(
    zip(names.CURVES, (power, fold, bump, plateau, grid), strict=True)
)
"""The true curves by name."""


@dataclass(frozen=True, eq=False)
class Examination:
    """How users of each context examine a page: call it with contexts [n, d] to get p_k(x), [n, K].

    Attributes:
        name: one of `EXAMINATIONS`.
        weights: w, [d].
        positions: K.
        flat_from: the position from which the curve is flat, for example p_k = p_21 for k > 21; None for none.

    Example:
        >>> Examination("power", np.array([0.5, -0.5]), 3)(np.array([[1.0, 1.0], [1.0, -1.0]])).round(2).tolist()
        [[1.0, 0.5, 0.33], [1.0, 0.25, 0.11]]
    """

    name: str
    weights: Array
    positions: int
    flat_from: int | None = None

    def __post_init__(self) -> None:
        if self.name not in EXAMINATIONS:
            raise InputError(f"no examination {self.name!r}: expected one of {', '.join(EXAMINATIONS)}")
        if self.flat_from is not None and self.flat_from < 1:
            raise InputError(f"flat_from is {self.flat_from}: expected a position, 1 or more")

    def __call__(self, contexts: Array) -> Array:
        """Return p_k(x) of every context, [n, K]."""
        last = min(self.positions, self.flat_from or self.positions)
        curve = EXAMINATIONS[self.name](contexts @ self.weights, last)
        return curve if last == self.positions else curve[:, np.minimum(np.arange(self.positions), last - 1)]

    @classmethod
    def draw(
        cls,
        name: str,
        positions: int,
        *,
        features: int,
        eta: float,
        random: np.random.Generator,
        flat_from: int | None = None,
    ) -> Examination:
        """Return one with w ~ U[−η, η) minus its mean."""
        weights = random.uniform(-1, 1, features)
        return cls(name, eta * (weights - weights.mean()), positions, flat_from)


@dataclass(frozen=True, eq=False)
class ContextFeatures:
    """Which document features the context of a query is made of.

    x_j = mean of 2f − 1 over the query's relevant documents, for each feature in `chosen`; the other
    `CONTEXT_FEATURES` − len(`chosen`) are N(0, .35²), free of relevance.

    Attributes:
        chosen: columns of the corpus features, [ζ · CONTEXT_FEATURES].
    """

    chosen: NDArray[np.int64]

    def of(self, corpus: Corpus, random: np.random.Generator) -> Array:
        """Return the contexts of every query, [n_queries, CONTEXT_FEATURES]."""
        contexts = random.normal(0, NOISE_SD, (len(corpus), CONTEXT_FEATURES))
        relevant = corpus.relevant
        query = corpus.query[relevant]
        count = np.bincount(query, minlength=len(corpus))
        for j, feature in enumerate(self.chosen):
            value = 2.0 * corpus.features[relevant, feature] - 1
            contexts[:, j] = np.bincount(query, weights=value, minlength=len(corpus)) / count
        return contexts

    @classmethod
    def draw(cls, corpus: Corpus, zeta: float, random: np.random.Generator) -> ContextFeatures:
        """Choose at random among the features that matter most to relevance.

        Where the paper reads their importance off logistic models of the clicks at each position, this takes the
        weights of a ridge regression of relevance on the (equally scaled) features: the `CANDIDATES` largest.
        """
        if not 0 <= zeta <= 1:
            raise InputError(f"zeta is {zeta}: expected the share of context features tied to relevance, 0 to 1")
        available = corpus.features.shape[1]
        if available < CONTEXT_FEATURES:
            raise InputError(f"the corpus has {available} features: the context needs {CONTEXT_FEATURES} or more")
        candidates = np.argsort(-np.abs(_relevance_weights(corpus)))[:CANDIDATES]
        drawn = random.permutation(candidates)[:CONTEXT_FEATURES]
        return cls(drawn[: round(zeta * CONTEXT_FEATURES)])


def _relevance_weights(corpus: Corpus, documents: int = 50_000) -> Array:
    some = slice(None, None, -(-len(corpus.grades) // documents))  # enough to rank features by
    features, relevant = corpus.features[some].astype(np.float64), corpus.relevant[some].astype(np.float64)
    features -= features.mean(axis=0)
    ridge = 1e-3 * len(relevant) * np.eye(features.shape[1])
    return np.asarray(np.linalg.solve(features.T @ features + ridge, relevant @ features), np.float64)
