"""Learning relevance from all clicks with known examination as an offset, instead of inverse weights.

With C_d the clicks of a query's document d, E_d its examination (`RankingData.exposure`) and f the score, E[C_d] is
proportional to E_d e^{f(d)}. No click is divided by a small propensity, so nothing needs a clip.

| objective | clicks of a query | learns from |
|---|---|---|
| `SoftmaxObjective` | split over its documents with shares E_d e^{f(d)} / Σ_j E_j e^{f(j)} | order within queries |
| `PoissonObjective` | C_d ~ Poisson(E_d e^{f(d)}) | order, and which queries have relevant documents |

Both are what `lgb.train({"objective": …})` and `xgb.train(…, obj=…)` call: labels are the clicks, and `log E` is the
starting score, `init_score=` of LightGBM and `base_margin=` of XGBoost, so that what the trees add is f. `log_offset`
makes it. `fit_offset` finds a linear f.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from clickharvest.errors import InputError
from clickharvest.rank.boosting import LEAST_CURVATURE, ListObjective, objective_arrays
from clickharvest.rank.data import RankingData
from clickharvest.rank.features import Array, Index


def log_offset(data: RankingData) -> Array:
    """Return log(E_d · clicks per examination) of every document, [n_docs].

    The constant makes f = 0, where trees start, unbiased on average.

    Raises:
        InputError: exposures are unknown, or a document was never shown.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0], [1.0]], [0, 2], [0], clicks=[3], impressions=[4], exposure=[4.0, 2.0])
        >>> log_offset(data).round(4).tolist()  # log(4 · 3/6), log(2 · 3/6)
        [0.6931, 0.0]
    """
    if data.exposure is None:
        raise InputError("an offset needs the exposure of every document: make the data with read_clicks")
    if hidden := int(np.count_nonzero(data.exposure <= 0)):
        raise InputError(f"{hidden:,} documents have exposure 0: leave out what was never shown, as read_clicks does")
    return np.asarray(np.log(data.exposure * (data.clicks.sum() / data.exposure.sum())), np.float64)


@dataclass(frozen=True)
class OffsetObjective(ListObjective):
    """A likelihood of clicks; scores are s = f + offset, labels the clicks."""


@dataclass(frozen=True)
class SoftmaxObjective(OffsetObjective):
    """L = −Σ_q Σ_d C_d log softmax(s)_d over the documents of each list.

    Example:
        >>> slope, curvature = SoftmaxObjective().gradients([0, 0], labels=[3, 1], starts=[0, 2])
        >>> slope.tolist(), curvature.tolist()  # 4 · ½ − 3, 4 · ½ − 1; 4 · ½ · ½
        ([-1.0, 1.0], [1.0, 1.0])
    """

    name = "click_softmax"

    def gradients(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> tuple[Array, Array]:
        """Return C_q σ_d − C_d and C_q σ_d (1 − σ_d), σ being the shares."""
        s, clicks, bounds = objective_arrays(scores, labels, starts)
        share, total = _shares(s, clicks, bounds)
        return total * share - clicks, np.maximum(total * share * (1 - share), LEAST_CURVATURE)

    def loss(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> float:
        """Return L."""
        s, clicks, bounds = objective_arrays(scores, labels, starts)
        share, _ = _shares(s, clicks, bounds)
        return float(-(clicks * np.log(np.maximum(share, np.finfo(np.float64).tiny))).sum())


@dataclass(frozen=True)
class PoissonObjective(OffsetObjective):
    """L = Σ_d e^{s_d} − C_d s_d.

    Example:
        >>> slope, curvature = PoissonObjective().gradients([0, 0], labels=[3, 0], starts=[0, 2])
        >>> slope.tolist(), curvature.tolist()
        ([-2.0, 1.0], [1.0, 1.0])
    """

    name = "click_poisson"

    def gradients(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> tuple[Array, Array]:
        """Return μ − C and μ, with μ = e^s."""
        s, clicks, _ = objective_arrays(scores, labels, starts)
        mean = np.exp(np.minimum(s, 50.0))
        return mean - clicks, np.maximum(mean, LEAST_CURVATURE)

    def loss(self, scores: ArrayLike, labels: ArrayLike, starts: ArrayLike) -> float:
        """Return L."""
        s, clicks, _ = objective_arrays(scores, labels, starts)
        return float((np.exp(np.minimum(s, 50.0)) - clicks * s).sum())


def fit_offset(data: RankingData, objective: OffsetObjective, *, penalty: float) -> tuple[Array, float]:
    """Return w [F] and c of the linear f = w x + c that minimises L + ½ λ |w|².

    Args:
        data: lists and clicks, with exposures.
        objective: the softmax or Poisson objective.
        penalty: λ; features should be of like size.
    """
    offset, clicks, x = log_offset(data), data.clicks_by_document, data.features

    def value_and_slope(point: Array) -> tuple[float, Array]:
        w, c = point[:-1], point[-1]
        s = x.times(w) + c + offset
        slope, _ = objective.gradients(s, clicks, data.starts)
        value = objective.loss(s, clicks, data.starts) + 0.5 * penalty * float(w @ w)
        return value, np.append(x.sums(slope) + penalty * w, slope.sum())

    start = np.zeros(x.shape[1] + 1)
    solution = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(solution.x[:-1], np.float64), float(solution.x[-1])


def _shares(s: Array, clicks: Array, starts: Index) -> tuple[Array, Array]:
    """Return the share of every document in its list, and the list's clicks, [n] each."""
    sizes = np.diff(starts)
    some = sizes > 0
    of_list = np.repeat(np.arange(len(sizes)), sizes)
    top = np.full(len(sizes), -np.inf)
    top[some] = np.maximum.reduceat(s, starts[:-1][some])
    weight = np.exp(s - top[of_list])
    total, counts = (np.bincount(of_list, values, len(sizes)).astype(np.float64) for values in (weight, clicks))
    return weight / total[of_list], counts[of_list]
