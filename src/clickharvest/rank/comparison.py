"""Comparing rankers on held-out queries: by the clicks of the log, and by judgements where there are some.

By clicks, every ranker gets the SNIPS estimate of `off_policy`: with click i at propensity p_i, and r_i where a ranker
puts the clicked document,

    SNIPS = Σ_i λ(r_i)/p_i / Σ_i 1/p_i.

The logged order is judged by the same clicks, with r_i the position where each was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from clickharvest.errors import InputError
from clickharvest.rank.data import RankingData
from clickharvest.rank.evaluation import Estimate, clustered_ratio, metric_of_rank, ranks
from clickharvest.rank.features import Array
from clickharvest.weights import effective_sample_size

METRICS = ("avg_rank", "dcg@10", "precision@5")
NEW, NAIVE, LOGGED = "new ranker", "naive clicks", "logged order"


@dataclass(frozen=True)
class Comparison:
    """One metric of several rankers on the same clicks.

    Attributes:
        metric: its name; `avg_rank` is better the lower, the others the higher.
        estimates: the metric of every ranker by name.
        differences: that of the first minus that of each other, with paired intervals.
    """

    metric: str
    estimates: dict[str, Estimate]
    differences: dict[str, Estimate]


def compare_rankers(
    data: RankingData,
    scores: Mapping[str, Array],
    *,
    logged: Array | None = None,
    metrics: tuple[str, ...] = METRICS,
    clip: float = 0.0,
    level: float = 0.95,
    seed: int = 0,
) -> list[Comparison]:
    """Compare rankers, the first with all others.

    Args:
        data: held-out lists and clicks with propensities.
        scores: scores of all documents by the name of the ranker, [n_docs] each; the first is the new one.
        logged: position of each record of the data, [m]; adds the logged order as a ranker.
        metrics: as in `off_policy`.
        clip: least propensity.
        level: coverage of the intervals.
        seed: seed of how documents with equal scores are ordered.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0], [1.0], [2.0], [3.0]], [0, 2, 4], clicked=[0, 3], propensity=[1.0, 0.5])
        >>> rank = compare_rankers(data, {"new": np.array([0, 1, 0, 1])}, logged=np.array([1, 2]))[0]
        >>> rank.estimates["new"].value, rank.estimates["logged order"].value  # (2 + 1/.5) / 3, (1 + 2/.5) / 3
        (1.3333333333333333, 1.6666666666666667)
    """
    places = {name: ranks(values, data.starts, seed=seed)[data.clicked] for name, values in scores.items()}
    if logged is not None:
        places[LOGGED] = np.asarray(logged, np.float64)
    first = next(iter(places))
    found = []
    for metric in metrics:
        gains = {name: metric_of_rank(metric)(place) for name, place in places.items()}
        estimates = {name: _snips(data, own, metric, clip, level) for name, own in gains.items()}
        gaps = {n: _snips(data, gains[first] - own, metric, clip, level) for n, own in gains.items() if n != first}
        found.append(Comparison(metric, estimates, gaps))
    return found


def split_lists(data: RankingData, share: float, *, seed: int = 0) -> NDArray[np.bool_]:
    """Return which lists are held out, [n_lists]: those of a random share of the queries with a click.

    Queries without a click are on neither side of any estimate; they stay with the others.

    Raises:
        InputError: the share leaves fewer than two queries with a click on either side.
    """
    clicked = np.unique(data.query[data.clicked_list[data.clicks > 0]])
    held = round(share * len(clicked))
    if not 0 < share < 1 or held < 2 or len(clicked) - held < 2:
        raise InputError(
            f"a test share of {share:g} of {len(clicked):,} queries with a click: expected a share between 0 and 1 "
            "that leaves two queries or more on either side"
        )
    chosen = np.random.default_rng(seed).permutation(clicked)[:held]
    return np.isin(data.query, chosen)


def take_lists(data: RankingData, lists: NDArray[np.bool_]) -> tuple[RankingData, NDArray[np.bool_]]:
    """Return the data of some lists, and which of the records went with them, [m].

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0], [1.0], [2.0]], [0, 1, 3], clicked=[0, 2])
        >>> part, records = take_lists(data, np.array([False, True]))
        >>> part.starts.tolist(), part.clicked.tolist(), records.tolist()
        ([0, 2], [1], [False, True])
    """
    sizes = np.diff(data.starts)
    documents = np.repeat(lists, sizes)
    records = documents[data.clicked]
    part = replace(
        data,
        features=data.features.take(np.flatnonzero(documents)),
        starts=np.concatenate([[0], np.cumsum(sizes[lists])]),
        clicked=(np.cumsum(documents) - 1)[data.clicked[records]],
        propensity=data.propensity[records],
        clicks=data.clicks[records],
        query=np.unique(data.query[lists], return_inverse=True)[1].astype(np.int64),
        impressions=None if data.impressions is None else data.impressions[lists],
    )
    return part, records


def _snips(data: RankingData, gains: Array, metric: str, clip: float, level: float) -> Estimate:
    weights, query = data.weights(clip), data.query[data.clicked_list]
    numerator, denominator = (
        np.asarray(np.bincount(query, values), np.float64) for values in (weights * gains, weights)
    )
    value, error, used = clustered_ratio(numerator, denominator)
    reach = error * float(stdtrit(max(used - 1, 1), (1 + level) / 2))
    effective = effective_sample_size(1 / np.maximum(data.propensity, clip), data.clicks)
    return Estimate(metric, "snips", value, error, value - reach, value + reach, level, effective, used)
