"""Learning-to-rank corpora, read from elsewhere or made up in Yahoo's manner, and linear rankers trained on them."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

from clickharvest.errors import InputError

# Set by eye against what the paper reports of the Yahoo corpus: context features of standard deviation .33 to .35 and
# hardly correlated, a context-free curve that is off by .40 to .48, and a third of the documents in the top 10
# relevant. With 114 training queries a ranker, the number of features, 256, decides how much two rankers differ.
QUERY_SHARE, DOC_SHARE = 0.07, 0.25
"""Share of a feature's variance that is common to the query's documents, and that follows the document factors."""
QUERY_FACTORS, DOC_FACTORS = 25, 16
INFORMATIVE = 0.6
"""Share of the features with a weight in the score."""
EASE_SD = 0.7
"""Standard deviation of the query offsets of the score, itself of standard deviation 1 within a query."""
NOISE = (1.0, 2.6)
"""The score noise of a query is uniform between these: its hardness."""
GRADE_CUTS = (-1.2, 0.5, 1.95, 3.5)
"""The least scores of documents with grade 1, 2, 3 and 4."""
SHARED_QUERIES, OWN_QUERIES = 22, 92
"""Training queries that all rankers have in common, and that each has to itself."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Queries with their graded documents; the documents of a query stand together.

    Attributes:
        features: document features in [0, 1], float32 [n_docs, F].
        grades: relevance grades 0 to 4, int8 [n_docs].
        starts: where each query's documents start, and the end of the last, int64 [n_queries + 1].
        threshold: the least grade of a relevant document.

    Example:
        >>> corpus = Corpus(np.zeros((3, 5), np.float32), np.array([0, 4, 1], np.int8), np.array([0, 2, 3]))
        >>> len(corpus), corpus.relevant.tolist(), len(corpus.with_relevant())
        (2, [False, True, False], 1)
    """

    features: NDArray[np.float32]
    grades: NDArray[np.int8]
    starts: NDArray[np.int64]
    threshold: int = 3

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Documents of each query, [n_queries]."""
        return np.diff(self.starts)

    @property
    def query(self) -> NDArray[np.int64]:
        """The query of each document, [n_docs]."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def relevant(self) -> NDArray[np.bool_]:
        """Whether each document is relevant, [n_docs]."""
        return self.grades >= self.threshold

    def take(self, queries: NDArray[np.int64]) -> Corpus:
        """Return the corpus of some of the queries, in the order given."""
        sizes = self.sizes[queries]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        docs = np.arange(starts[-1]) + np.repeat(self.starts[queries] - starts[:-1], sizes)
        return Corpus(self.features[docs], self.grades[docs], starts, self.threshold)

    def queries_with_relevant(self) -> NDArray[np.int64]:
        """Return the queries that have a relevant document."""
        return np.unique(self.query[self.relevant])

    def with_relevant(self) -> Corpus:
        """Return the corpus of the queries that have a relevant document."""
        return self.take(self.queries_with_relevant())


def synthetic_corpus(queries: int, *, docs: tuple[int, int] = (20, 40), features: int = 256, seed: int = 0) -> Corpus:
    """Make up a corpus in Yahoo's manner.

    A feature is standard normal before it is mapped to [0, 1] by the normal distribution function, which is what
    its rank among infinitely many documents would be: with a and b shares of variance, q a query and d its document,

        z_qd = √a · A u_q + √b · B v_d + √(1−a−b) · noise,   f = Φ(z)

    with few factors u_q ~ N(0, I) and v_d ~ N(0, I) and loadings A, B with rows of length 1, so that features
    correlate. The grade is the number of `GRADE_CUTS` below the score β·(z_qd − √a · A u_q) + offset_q + σ_q · noise:
    queries differ in how many good documents they have (offset) and in how hard these are to tell (σ).

    Args:
        queries: number of queries; some come without a relevant document.
        docs: least and most documents of a query.
        features: number of features F.
        seed: seed of all randomness.

    Example:
        >>> corpus = synthetic_corpus(100, features=32, seed=1)
        >>> len(corpus), corpus.features.shape[1], bool(corpus.sizes.min() >= 20)
        (100, 32, True)
    """
    if queries < 1 or features < 1 or not 1 <= docs[0] <= docs[1]:
        raise InputError(f"no corpus of {queries} queries, {docs[0]} to {docs[1]} documents and {features} features")
    random = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(random.integers(docs[0], docs[1] + 1, queries))])
    sizes, total = np.diff(starts), int(starts[-1])

    def factors(rows: int, rank: int) -> NDArray[np.float32]:
        loadings = random.standard_normal((rank, features), np.float32)
        loadings /= np.linalg.norm(loadings, axis=0)
        return np.asarray(random.standard_normal((rows, rank), np.float32) @ loadings)

    latent = random.standard_normal((total, features), np.float32)
    latent *= sqrt(1 - QUERY_SHARE - DOC_SHARE)
    latent += sqrt(DOC_SHARE) * factors(total, DOC_FACTORS)
    score = _standardised_score(latent, random)
    score += np.repeat(random.normal(0, EASE_SD, queries), sizes)
    score += np.repeat(random.uniform(*NOISE, queries), sizes) * random.standard_normal(total)
    latent += np.repeat(sqrt(QUERY_SHARE) * factors(queries, QUERY_FACTORS), sizes, axis=0)
    grades = np.searchsorted(GRADE_CUTS, score).astype(np.int8)
    return Corpus(ndtr(latent, out=latent), grades, starts)


def _standardised_score(latent: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float64]:
    features = latent.shape[1]
    informative = random.random(features) < INFORMATIVE
    weights = random.exponential(size=features) * random.choice([-1, 1], features) * informative
    score = np.asarray(latent @ weights.astype(np.float32), np.float64)
    return score / max(float(score.std()), 1e-12)


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
