"""Context features of queries, with a dial ζ for how much they have to do with relevance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.simulate.corpus import Corpus

CONTEXT_FEATURES = 10
CANDIDATES = 30
NOISE_SD = 0.35


@dataclass(frozen=True, eq=False)
class ContextFeatures:
    """Which document features the context of a query is made of.

    x_j = mean of 2f − 1 over the query's relevant documents, for each feature in `chosen`; the other
    `CONTEXT_FEATURES` − len(`chosen`) are N(0, .35²), free of relevance.

    Attributes:
        chosen: columns of the corpus features, [ζ · CONTEXT_FEATURES].
    """

    chosen: NDArray[np.int64]

    def of(self, corpus: Corpus, random: np.random.Generator) -> NDArray[np.float64]:
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


def _relevance_weights(corpus: Corpus, documents: int = 50_000) -> NDArray[np.float64]:
    some = slice(None, None, -(-len(corpus.grades) // documents))  # enough to rank features by
    features, relevant = corpus.features[some].astype(np.float64), corpus.relevant[some].astype(np.float64)
    features -= features.mean(axis=0)
    ridge = 1e-3 * len(relevant) * np.eye(features.shape[1])
    return np.asarray(np.linalg.solve(features.T @ features + ridge, relevant @ features), np.float64)
