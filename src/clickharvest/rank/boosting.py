"""Objectives for LightGBM and XGBoost that carry the weight of a click through every pair it forms.

Joachims, Swaminathan and Schnabel (2017) sum the ranks of clicked documents, each weighted by its inverse propensity.
A document's rank is one plus the number of documents above it, so the loss has one term for each clicked document i
and *every* other document j of its list, clicked or not. With y_i the label of i, the sum of the weights of its clicks
(clicks · ips_weight, 0 without a click), and scores s,

    L(s) = Σ_i y_i Σ_{j≠i} δ_ij log(1 + e^{−(s_i − s_j)})

- `PairwiseObjective`: δ = 1, so that L / log 2 bounds the weighted sum of ranks (less one).
- `LambdaObjective`: δ_ij = |D(rank_i) − D(rank_j)| with D(k) = 1 / log2(1 + k), what swapping i and j changes in the
  DCG of i. Ranks are those of the current scores and held fixed within a boosting round.

    ∂L/∂s_i = −Σ_j y_i δ_ij ρ_ij + Σ_j y_j δ_ji ρ_ji,   ρ_ij = 1 / (1 + e^{s_i − s_j}),
    ∂²L/∂s_i² = Σ_j (y_i + y_j) δ_ij ρ_ij (1 − ρ_ij).

`doubly_robust_labels` makes labels that use a regression where weights are clipped.

The objects are what `lgb.train({"objective": …})` and `xgb.train(…, obj=…)` call. Labels go in as y, lists as the
libraries' own groups (`group=` or `qid`). Passing the weights as `sample_weight` with 0/1 labels is another loss or
none at all: see docs/boosting.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from clickharvest.errors import InputError
from clickharvest.rank.estimates import ranks
from clickharvest.rank.features import Array, Index
from clickharvest.rank.pairs import Block, blocks_of_pairs

__all__ = ["ClickObjective", "LambdaObjective", "PairwiseObjective", "doubly_robust_labels"]

LEAST_CURVATURE = 1e-16
"""Second derivative of documents in no pair, so that both libraries may divide by it."""


class TrainingData(Protocol):
    """The common interface of `lightgbm.Dataset` and `xgboost.DMatrix`."""

    def get_label(self) -> Any:
        """Return the labels, [n]."""

    def get_weight(self) -> Any:
        """Return weights, [n] or [number of lists], or nothing."""

    def get_group(self) -> Any:
        """Return the sizes of the lists, or nothing."""


@dataclass(frozen=True)
class ListObjective(ABC):
    """Base of all objectives: pass one to a training call, or call `loss` and `gradients` yourself."""

    def __call__(self, scores: Any, data: TrainingData) -> tuple[Array, Array]:
        """Return first and second derivatives, as `lgb.train` and `xgb.train` ask for them."""
        return self.gradients(scores, *read_labels(data))

    def metric(self, scores: Any, data: TrainingData) -> tuple[str, float, bool] | tuple[str, float]:
        """Return L / Σ y, to watch on held-out clicks: `lgb.train(feval=…)`, `xgb.train(custom_metric=…)`.

        Less is better. LightGBM is told so; XGBoost takes it for granted.
        """
        labels, starts = read_labels(data)
        value = self.loss(scores, labels, starts) / max(float(labels.sum()), np.finfo(np.float64).tiny)
        return (self.name, value) if hasattr(data, "num_row") else (self.name, value, False)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the metric."""

    @abstractmethod
    def gradients(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> tuple[Array, Array]:
        """Return ∂L/∂s and ∂²L/∂s², [n] each, the second positive.

        Args:
            scores: s, [n].
            labels: y of each document, 0 or more, [n].
            starts: where each list starts, and the end of the last, [n_lists + 1].
        """

    @abstractmethod
    def loss(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> float:
        """Return L. Arguments are those of `gradients`."""


@dataclass(frozen=True)
class ClickObjective(ListObjective):
    """A loss of pairs of documents; labels are the sums of the weights of each document's clicks."""

    def ranker(self, labels: Any, scores: Any, weights: Any, sizes: Any) -> tuple[Array, Array]:
        """Return the same as `lgb.LGBMRanker(objective=PairwiseObjective().ranker, metric="None")` asks for it."""
        return self.gradients(scores, *_labels_and_starts(labels, weights, sizes))

    def gradients(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> tuple[Array, Array]:
        """Return ∂L/∂s and ∂²L/∂s², [n] each, the second positive."""
        s, y, bounds = objective_arrays(scores, labels, starts)
        discount = self._discounts(s, bounds)
        slope, curvature = np.zeros(len(s)), np.zeros(len(s))
        for block in blocks_of_pairs(y, bounds):
            miss = expit(-block.gaps(s))
            pull = _weights(block, y, discount) * miss
            slope[block.docs] = block.sum_by_document(pull, -1)
            curvature[block.docs] = block.sum_by_document(pull * (1 - miss), 1)
        return slope, np.maximum(curvature, LEAST_CURVATURE)

    def loss(
        self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike, *, ranked_by: ArrayLike | None = None
    ) -> float:
        """Return L. Arguments are those of `gradients`; `ranked_by` holds scores that fix the ranks in δ instead."""
        s, y, bounds = objective_arrays(scores, labels, starts)
        discount = self._discounts(s if ranked_by is None else np.asarray(ranked_by, np.float64), bounds)
        parts = (_weights(block, y, discount) * np.logaddexp(0, -block.gaps(s)) for block in blocks_of_pairs(y, bounds))
        return float(sum(part.sum() for part in parts))

    @abstractmethod
    def _discounts(self, scores: Array, starts: Index) -> Array | None:
        """Return D(rank) of every document, [n]; None where δ is 1."""


@dataclass(frozen=True)
class PairwiseObjective(ClickObjective):
    """Logistic loss of every pair of a clicked document with another one of its list, δ = 1.

    Example:
        One list of three documents; the second was clicked, with a propensity of .25. Equal scores: ρ = ½.

        >>> slope, curvature = PairwiseObjective().gradients([0, 0, 0], labels=[0, 4, 0], starts=[0, 3])
        >>> slope.tolist(), curvature.tolist()
        ([2.0, -4.0, 2.0], [1.0, 2.0, 1.0])
    """

    name = "click_pairwise"

    def _discounts(self, scores: Array, starts: Index) -> Array | None:
        return None


@dataclass(frozen=True)
class LambdaObjective(ClickObjective):
    """Logistic loss of every such pair, weighted by what swapping the two changes in DCG.

    Attributes:
        at: last rank that counts, D(k) = 0 below it; None counts all.
        seed: of the order of documents with equal scores, which must not be that of the log.

    Example:
        Ranks are 1 and 2, δ = 1 − 1 / log2(3), and ρ = 1 / (1 + e^{−1}) for the clicked second document.

        >>> slope, _ = LambdaObjective().gradients([1, 0], labels=[0, 4], starts=[0, 2])
        >>> slope.round(4).tolist(), float(round(4 * (1 - 1 / np.log2(3)) / (1 + np.exp(-1)), 4))
        ([1.0792, -1.0792], 1.0792)
    """

    at: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.at is not None and self.at < 1:
            raise InputError(f"at is {self.at}: expected the last rank that counts, 1 or more, or None")

    @property
    def name(self) -> str:
        """The name of the metric."""
        return "click_lambda" if self.at is None else f"click_lambda@{self.at}"

    def _discounts(self, scores: Array, starts: Index) -> Array | None:
        rank = ranks(scores, starts, seed=self.seed)
        return np.where(rank <= (np.inf if self.at is None else self.at), 1 / np.log2(1 + rank), 0.0)


def doubly_robust_labels(
    clicks: ArrayLike,
    propensity: ArrayLike,
    relevance: ArrayLike,
    *,
    clip: float,
    impressions: ArrayLike | None = None,
) -> Array:
    """Return labels in which a regression replaces what clipping removes.

    With c clicks in n impressions at propensity p, and an estimate r̂ of relevance in the units of click/p,

        y = c / p̃ + r̂ · n (1 − p / p̃),   p̃ = max(p, clip).

    E[y] is n times the relevance r where p ≥ clip, for any r̂, and everywhere if r̂ = r; y is never negative. A document
    that was never shown has p = 0 and y = n r̂. The higher the clip, the larger is the weight of r̂.

    Args:
        clicks: c of each document, [n].
        propensity: p, relative to the anchor, 0 or more, [n].
        relevance: r̂, 0 or more, [n]: such as a regression of click · ips_weight on the features, with weights
            1 / ips_weight (a sum over documents, where `sample_weight` is right).
        clip: least propensity to divide by, above 0.
        impressions: how often each document was shown there, 1 by default, [n].

    Example:
        >>> doubly_robust_labels(clicks=[1, 1, 0], propensity=[1.0, 0.1, 0.0], relevance=[0.5, 0.5, 0.5], clip=0.2)
        array([1.  , 5.25, 0.5 ])
    """
    c, p, r = (np.asarray(part, np.float64) for part in (clicks, propensity, relevance))
    n = np.ones_like(c) if impressions is None else np.asarray(impressions, np.float64)
    if not c.shape == p.shape == r.shape == n.shape:
        shapes = f"clicks, propensity, relevance and impressions have shapes {c.shape}, {p.shape}, {r.shape}, {n.shape}"
        raise InputError(f"{shapes}: expected one of each for every document")
    if not clip > 0 or any(not np.isfinite(part).all() or part.min(initial=0) < 0 for part in (c, p, r, n)):
        raise InputError(f"clip is {clip}: expected a number above 0, and finite numbers of 0 or more everywhere else")
    floor = np.maximum(p, clip)
    return np.asarray(c / floor + r * n * (1 - p / floor))


def _weights(block: Block, y: Array, discount: Array | None) -> Array:
    """Return y_i δ_ij of the pairs of a block, 0 where j is i, [m, size]."""
    delta = np.ones((len(block.row), block.docs.shape[1])) if discount is None else np.abs(block.gaps(discount))
    return block.without_self(delta) * y[block.clicked][:, None]


def read_labels(data: TrainingData) -> tuple[Array, Index]:
    """Return the labels and the bounds of the lists of a data set of either library."""
    if not hasattr(data, "get_label"):  # scikit-learn's wrappers give labels and scores, and no lists
        raise InputError(
            "the objective got no training data with lists: for LGBMRanker pass objective=….ranker and metric='None'; "
            "XGBRanker takes no objective of one's own, use xgboost.train"
        )
    return _labels_and_starts(data.get_label(), data.get_weight(), data.get_group())


def _labels_and_starts(labels: Any, weights: Any, sizes: Any) -> tuple[Array, Index]:
    """Return y [n] and the bounds of the lists; a data set's weights, of documents or of lists, multiply y."""
    if sizes is None or not len(sizes):
        raise InputError("the training data have no lists: pass the number of documents of each as group=")
    y = np.zeros(0) if labels is None else np.asarray(labels, np.float64)
    counts = np.asarray(sizes, np.int64)
    if weights is not None and len(weights):
        w = np.asarray(weights, np.float64)
        y = y * (w if len(w) == len(y) else np.repeat(w, counts))
    return y, np.concatenate([[0], np.cumsum(counts)])


def objective_arrays(scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> tuple[Array, Array, Index]:
    """Check the arguments of an objective, and return them as arrays."""
    s, y, bounds = np.asarray(scores, np.float64), np.asarray(labels, np.float64), np.asarray(starts, np.int64)
    if bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0 or np.any(np.diff(bounds) < 0):
        raise InputError(f"starts must rise from 0 to the number of documents: found {bounds.tolist()[:6]}")
    if s.shape != (bounds[-1],) or y.shape != s.shape:
        shapes = f"scores have shape {s.shape}, labels {y.shape}"
        raise InputError(f"{shapes}: expected one of each for all {bounds[-1]:,} documents of the lists")
    if not np.isfinite(y).all() or y.min(initial=0) < 0:
        raise InputError("labels must be finite and 0 or more: they are clicks, or the sums of their weights")
    return s, y, bounds
