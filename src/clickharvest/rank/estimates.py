"""Off-policy evaluation: how good a ranking would have been, from clicks on other rankings.

An additive metric gives every relevant document λ of its rank r, and sums over documents:

| metric | λ(r) |
|---|---|
| `relevant_rank` | r: the rank of a relevant document (lower is better) |
| `dcg@k` | 1 / log₂(1 + r) if r ≤ k, else 0; `dcg` has no cut |
| `precision@k` | 1/k if r ≤ k, else 0 |

With click i on a document that the new ranker puts at rank r_i, and ρ_i the propensity of its clicks, which counts the
pages that did not show the document as well (see `data`),

    IPS   = Σ_i λ(r_i)/ρ_i / N       N impressions: the metric of an average impression
    SNIPS = Σ_i λ(r_i)/ρ_i / Σ_i 1/ρ_i      the λ of an average relevant document
    DR    = Σ_d λ(r_d) (n r̂_d + (C_d − E_d r̂_d) / max(ρ_d, clip)) / N      a regression, corrected by the clicks

Of affine clicks (`data`), sums are over all documents shown, and C_d − B_d takes the place of clicks. Documents that
were never shown have no estimate: `unseen` and `highest` of an `Estimate` bound their effect.

The SNIPS estimate of `relevant_rank` is the mean rank of a relevant document. Its IPS estimate is the sum of the ranks
of an impression's relevant documents, which the paper and `ranking_metrics` call AvgRank.

IPS is unbiased for Σ_d λ(r_d) · relevance_d, times p_1 where propensities are relative to position 1. SNIPS is free of
such factors and varies less: it is the metric divided by the number of relevant documents in an impression, which no
ranker changes. Compare rankers by SNIPS.

Intervals are clustered by query. They take the propensities as known, unless the data have bounds: an interval is then
the union of those at the lower bound, the estimate and the upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.rank.data import RankingData
from clickharvest.rank.features import Array, Index
from clickharvest.words import count

Estimator = Literal["ips", "snips", "dr"]
METRICS = "relevant_rank, dcg, dcg@k or precision@k"


@dataclass(frozen=True)
class Estimate:
    """An estimate of a metric with its confidence interval.

    Attributes:
        metric: the metric's name.
        estimator: `"ips"`, `"snips"` or `"dr"`.
        value: the estimate; with a baseline, the difference to it.
        std_error: its standard error, clustered by query.
        lower: lower end of the interval.
        upper: upper end of the interval.
        level: coverage of the interval.
        effective_clicks: effective sample size of the clicks, (Σw)² / Σw².
        queries: number of queries with data.
        unseen: share of Σ λ(rank) from documents that were never shown; with a baseline, of the new ranker; 0 if
            exposures are unknown.
        highest: the IPS estimate if every document that was never shown were always clicked when examined at the
            anchor; the estimate itself assumes that none is. None with SNIPS or a baseline.
    """

    metric: str
    estimator: Estimator
    value: float
    std_error: float
    lower: float
    upper: float
    level: float
    effective_clicks: float
    queries: int
    unseen: float = 0.0
    highest: float | None = None

    def __str__(self) -> str:
        interval = f"{self.level:.0%} interval {self.lower:.4g} to {self.upper:.4g}"
        rests = f"{count(self.effective_clicks, 'effective click')}, {count(self.queries, 'query', 'queries')}"
        never = f"; {self.unseen:.1%} of it rests with documents never shown" if self.unseen else ""
        return f"{self.metric} ({self.estimator.upper()}): {self.value:.4g} ({interval}; {rests}{never})"


@dataclass(frozen=True, eq=False)
class ShownRanking:
    """The positions at which the pages of an arm showed documents; its value is the mean of a metric over these pages.

    Attributes:
        rows: a document, [m].
        position: where it was shown, [m].
        share: on which share of the arm's pages of that query, [m].
        served: whether the arm has shown each list's query, [n_lists].
    """

    rows: Index
    position: Array
    share: Array
    served: NDArray[np.bool_]

    def gains(self, gain: Callable[[Array], Array], starts: Index) -> Array:
        """Return the mean over pages of λ(rank) of every document, [n_docs]; NaN in lists that were not served.

        On pages without a document, it ranks below all that are shown: its rank is the middle of those from there to
        the end of the list.

        Args:
            gain: λ, from ranks to what they are worth.
            starts: where each list starts, and the end of the last, [n_lists + 1].

        Example:
            >>> half = ShownRanking(np.array([0, 1]), np.array([1.0, 1.0]), np.array([0.5, 0.5]), np.array([True]))
            >>> half.gains(lambda rank: 1 / rank, np.array([0, 3])).round(3).tolist()  # absent ones at (2 + 3) / 2
            [0.7, 0.7, 0.4]
        """
        sizes = np.diff(starts)
        depth = np.zeros(len(sizes))
        np.maximum.at(depth, np.searchsorted(starts, self.rows, side="right") - 1, self.position)
        below = np.maximum((depth + 1 + sizes) / 2, depth + 1)
        present = np.bincount(self.rows, self.share, starts[-1])
        there = np.bincount(self.rows, self.share * gain(self.position), starts[-1])
        absent = np.maximum(1 - present, 0.0) * gain(np.repeat(below, sizes))
        return np.where(np.repeat(self.served, sizes), there + absent, np.nan)

    def take(self, lists: NDArray[np.bool_], starts: Index) -> ShownRanking:
        """Return the part of some lists, [n_lists] of them marked; see `take_lists`."""
        documents = np.repeat(lists, np.diff(starts))
        kept = documents[self.rows]
        rows = (np.cumsum(documents) - 1)[self.rows[kept]]
        return ShownRanking(rows, self.position[kept], self.share[kept], self.served[lists])


def off_policy(
    data: RankingData,
    scores: ArrayLike | ShownRanking,
    metric: str = "relevant_rank",
    *,
    estimator: Estimator = "snips",
    clip: float = 0.0,
    baseline: ArrayLike | ShownRanking | None = None,
    relevance: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Estimate a metric of a ranker from logged clicks.

    Args:
        data: lists and clicks with propensities.
        scores: the ranker's score of every document, higher ranks first, [n_docs]; or a ranking as it was shown, which
            leaves out queries without a page of its arm.
        metric: `relevant_rank`, `dcg`, `dcg@k` or `precision@k`.
        estimator: `"ips"` (needs impressions), `"snips"`, or `"dr"` (needs impressions, exposure and `relevance`).
        clip: least propensity; smaller ones count as this.
        baseline: another ranker; the estimate is then of the difference, with its own (paired) interval.
        relevance: r̂ of every document for the doubly robust estimate, [n_docs]: clicks per display at the anchor, such
            as a regression of C / E on the features, learned from other queries.
        level: coverage of the interval.
        seed: seed of the order of documents with equal scores.

    Raises:
        InputError: the metric is unknown, sizes do not fit, or IPS is asked for without impressions.
        NotIdentifiedError: there is no click.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0], [1.0], [2.0], [3.0]], [0, 2, 4], [0, 3], [0.5, 1.0], impressions=[1, 1])
        >>> off_policy(data, [0, 1, 0, 1]).value  # (2/.5 + 1/1) / (1/.5 + 1/1)
        1.6666666666666667
        >>> off_policy(data, [0, 1, 0, 1], estimator="ips").value  # (2/.5 + 1/1) / 2
        2.5
    """
    gain = metric_of_rank(metric)
    if clip < 0 or not 0 < level < 1:
        raise InputError(f"clip={clip}, level={level}: expected a clip of 0 or more, a level between 0 and 1")
    gains = _gains(scores, gain, data.starts, seed)
    unseen = _unseen(data, gains)
    if baseline is not None:
        gains = gains - _gains(baseline, gain, data.starts, seed)
    estimate = _estimate(data, gains, metric, estimator, clip, relevance, level)
    if data.bounds is not None:
        ends = [
            _estimate(replace(data, propensity=p), gains, metric, estimator, clip, relevance, level)
            for p in data.bounds
        ]
        lower, upper = min(one.lower for one in (estimate, *ends)), max(one.upper for one in (estimate, *ends))
        estimate = replace(estimate, lower=lower, upper=upper)
    return replace(estimate, unseen=unseen, highest=None if baseline is not None else estimate.highest)


def _estimate(
    data: RankingData,
    gains: Array,
    metric: str,
    estimator: Estimator,
    clip: float,
    relevance: ArrayLike | None,
    level: float,
) -> Estimate:
    """Return the estimate of the mean gain of documents, [n_docs]; gains are NaN in lists that are left out."""
    of_list = np.repeat(np.arange(len(data)), np.diff(data.starts))
    ranked = ~np.isnan(gains)
    lists = np.bincount(of_list, ~ranked, len(data)) == 0
    weights = np.where(lists[data.clicked_list], data.weights(clip), 0.0)
    if not weights.any():
        raise NotIdentifiedError("there is no click to estimate from: evaluate on a log with clicks")
    if estimator == "snips" and weights.sum() <= 0:
        raise NotIdentifiedError(
            f"corrected clicks sum to {weights.sum():.3g}, and SNIPS divides by their sum: there are too few clicks to "
            "estimate from"
        )
    worth = np.bincount(data.clicked, weights, len(gains)).astype(np.float64)
    if estimator == "dr":
        worth = np.where(ranked, _doubly_robust(data, relevance, clip), 0.0)
    n_queries = int(data.query.max()) + 1
    numerator = sum_by_group(data.query[of_list], worth * np.where(ranked, gains, 0.0), n_queries)
    if estimator == "snips":
        denominator = sum_by_group(data.query[of_list], worth, n_queries)
    elif estimator in ("ips", "dr"):
        if data.impressions is None:
            raise InputError("IPS needs the impressions of each list: give them to the ranking data, or use SNIPS")
        denominator = sum_by_group(data.query, np.where(lists, data.impressions, 0.0), n_queries)
        if not denominator.any():
            raise InputError("the lists have no impressions: IPS divides by their number; count them, or use SNIPS")
    else:
        raise InputError(f"no estimator {estimator!r}: expected ips, snips or dr")
    value, error, used = clustered_ratio(numerator, denominator)
    reach = error * float(stdtrit(max(used - 1, 1), (1 + level) / 2))
    squares = np.where(lists[data.clicked_list], data.clicks / np.maximum(data.propensity, clip) ** 2, 0.0).sum()
    effective = weights.sum() ** 2 / squares if squares else 0.0
    highest = None
    if estimator == "ips" and data.exposure is not None and data.impressions is not None:
        liked = np.where((data.exposure == 0) & ranked, gains, 0.0) * data.impressions[of_list]
        highest = value + float(liked.sum() / denominator.sum())
    return Estimate(
        metric, estimator, value, error, value - reach, value + reach, level, float(effective), used, highest=highest
    )


def _doubly_robust(data: RankingData, relevance: ArrayLike | None, clip: float) -> Array:
    """Return n r̂ + (C − B − E r̂) / max(ρ, clip) of every document; n r̂ where it was never shown, [n_docs]."""
    if data.exposure is None or data.impressions is None or relevance is None:
        raise InputError(
            "a doubly robust estimate needs relevance= of every document, and data with impressions and exposure"
        )
    r = np.asarray(relevance, np.float64)
    if r.shape != data.exposure.shape or not np.isfinite(r).all():
        raise InputError(f"relevance has shape {r.shape}: expected a finite number for each of {len(data.exposure):,}")
    n = np.repeat(data.impressions, np.diff(data.starts))
    surprise = np.bincount(data.clicked, data.net_clicks, len(r)) - data.exposure * r
    rate = np.maximum(np.divide(data.exposure, n, out=np.zeros_like(r), where=n > 0), clip)
    return n * r + np.divide(surprise, rate, out=np.zeros_like(r), where=data.exposure > 0)


def _gains(ranker: ArrayLike | ShownRanking, gain: Callable[[Array], Array], starts: Index, seed: int) -> Array:
    """Return λ of the rank of every document, NaN in lists that the ranker was never shown for, [n_docs]."""
    if isinstance(ranker, ShownRanking):
        return ranker.gains(gain, starts)
    return gain(ranks(ranker, starts, seed=seed))


def _unseen(data: RankingData, gains: Array) -> float:
    """Return the share of the gains that goes to documents never shown, each list as often as it was shown."""
    if data.exposure is None or data.impressions is None:
        return 0.0
    worth = np.nan_to_num(gains) * np.repeat(data.impressions, np.diff(data.starts))
    total = float(worth.sum())
    return float(worth[data.exposure == 0].sum()) / total if total else 0.0


def metric_of_rank(metric: str) -> Callable[[Array], Array]:
    """Return λ of a metric.

    Example:
        >>> metric_of_rank("precision@2")(np.array([1.0, 2.0, 3.0])).tolist()
        [0.5, 0.5, 0.0]
    """
    name, _, cut = metric.partition("@")
    depth = int(cut) if cut.isdecimal() and int(cut) > 0 else None
    if metric == "relevant_rank":
        return lambda rank: rank
    if metric == "dcg" or (name == "dcg" and depth is not None):
        last = np.inf if depth is None else depth
        return lambda rank: np.where(rank <= last, 1 / np.log2(1 + rank), 0.0)
    if name == "precision" and depth is not None:
        return lambda rank: (rank <= depth) / depth
    raise InputError(f"no metric {metric!r}: expected {METRICS}")


def ranks(scores: ArrayLike, starts: Index, *, seed: int = 0) -> Array:
    """Return the rank of every document in its list, from 1; equal scores are ordered at random.

    Example:
        >>> ranks([0.1, 0.9, 0.5, 7.0], np.array([0, 3, 4])).tolist()
        [3.0, 1.0, 2.0, 1.0]
    """
    values = np.asarray(scores, np.float64)
    if values.shape != (starts[-1],):
        raise InputError(f"scores have shape {values.shape}: expected one for each of {starts[-1]:,} documents")
    if np.isnan(values).any():
        raise InputError(f"scores hold {count(np.isnan(values).sum(), 'missing value')} (NaN): score every document")
    luck = np.random.default_rng(seed).random(len(values))
    ranked = np.empty(len(values))
    sizes = np.diff(starts)
    for size in np.unique(sizes[sizes > 0]):
        docs = starts[:-1][sizes == size][:, None] + np.arange(size)
        order = np.lexsort((luck[docs], -values[docs]), axis=1)
        ranked[np.take_along_axis(docs, order, axis=1)] = np.arange(1, size + 1)
    return ranked


def clustered_ratio(numerator: Array, denominator: Array) -> tuple[float, float, int]:
    """Return Σa/Σb over clusters with its standard error, and the number of clusters that count.

    The error is that of the linearised ratio, √(Q/(Q−1) Σ (a_q − θ b_q)²) / Σb; with one cluster it is infinite.

    Example:
        >>> clustered_ratio(np.array([2.0, 4.0, 0.0]), np.array([1.0, 1.0, 0.0]))  # √(2/1 · (1 + 1)) / 2
        (3.0, 1.0, 2)
    """
    used = int(np.count_nonzero(denominator))
    total = float(denominator.sum())
    value = float(numerator.sum()) / total
    spread = float(((numerator - value * denominator) ** 2).sum())
    return value, float(np.sqrt(used / (used - 1) * spread)) / total if used > 1 else np.inf, used


def sum_by_group(groups: Index, values: Array, n_groups: int) -> Array:
    """Return the sum of the values of each group, [n_groups]."""
    return np.asarray(np.bincount(groups, values, n_groups), np.float64)
