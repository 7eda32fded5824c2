"""Learning-to-rank corpora: graded documents of queries, read from elsewhere or made up in Yahoo's manner."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from clickharvest.errors import InputError

# Calibrated once, by eye, against what the paper tells of the Yahoo corpus: context features of standard deviation
# .33 to .35 and hardly correlated, a context-free curve that is off by .40 to .48, and a third of the documents
# in the top 10 relevant. The number of features, 256, is as near to Yahoo's 700 as stays quick: with 114 training
# queries a ranker, it decides how much two rankers differ, and so how much there is to harvest. It was raised from 64
# after a first look at the estimators' errors, see benchmarks/README.md.
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
