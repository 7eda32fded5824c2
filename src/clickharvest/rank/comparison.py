"""Comparison of rankers by clicks on held-out queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.rank.data import RankingData
from clickharvest.rank.estimates import Estimate, ShownRanking, off_policy
from clickharvest.rank.features import Array

METRICS = ("relevant_rank", "dcg@10", "precision@5")
NEW, NAIVE = "new ranker", "naive clicks"


@dataclass(frozen=True)
class Comparison:
    """One metric of several rankers on the same clicks.

    Attributes:
        metric: its name; lower is better for `relevant_rank`, higher for the others.
        estimates: the metric of every ranker by name.
        differences: that of the first minus that of each other, with paired intervals.
    """

    metric: str
    estimates: dict[str, Estimate]
    differences: dict[str, Estimate]


def compare_rankers(
    data: RankingData,
    scores: Mapping[str, Array | ShownRanking],
    *,
    metrics: tuple[str, ...] = METRICS,
    clip: float = 0.0,
    level: float = 0.95,
    seed: int = 0,
) -> list[Comparison]:
    """Compare rankers by SNIPS, the first with all others.

    Args:
        data: held-out lists and clicks with propensities.
        scores: scores of all documents by the name of the ranker, [n_docs] each, or rankings as they were shown; the
            first is the new one.
        metrics: as in `off_policy`.
        clip: least propensity.
        level: coverage of the intervals.
        seed: seed of the order of documents with equal scores.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> data = ranking_data([[0.0], [1.0], [2.0], [3.0]], [0, 2, 4], clicked=[0, 3], propensity=[1.0, 0.5])
        >>> rank = compare_rankers(data, {"new": np.array([0, 1, 0, 1]), "old": np.array([1, 0, 1, 0])})[0]
        >>> rank.estimates["new"].value, rank.estimates["old"].value  # (2 + 1/.5) / 3, (1 + 2/.5) / 3
        (1.3333333333333333, 1.6666666666666667)
    """
    first = next(iter(scores))
    options: dict[str, Any] = {"clip": clip, "level": level, "seed": seed}
    comparisons = []
    for metric in metrics:
        estimates = {name: off_policy(data, ranking, metric, **options) for name, ranking in scores.items()}
        gaps = {
            name: off_policy(data, scores[first], metric, baseline=ranking, **options)
            for name, ranking in scores.items()
            if name != first
        }
        comparisons.append(Comparison(metric, estimates, gaps))
    return comparisons


def best_shown(comparison: Comparison, names: Iterable[str]) -> str:
    """Return the ranker that the first one leads by least, each on the queries that it served."""
    sign = -1 if comparison.metric == "relevant_rank" else 1
    return min(names, key=lambda name: sign * comparison.differences[name].value)


def split_lists(data: RankingData, share: float, *, seed: int = 0) -> NDArray[np.bool_]:
    """Return which lists are held out, [n_lists]: those of a random share of the queries with a click.

    Queries without a click are not held out, since no estimate uses them. With a shift, all queries count.

    Raises:
        InputError: the share leaves fewer than two queries with a click on either side.
    """
    clicked = np.unique(data.query[data.clicked_list[(data.clicks > 0) | (data.shift is not None)]])
    n_held_out = round(share * len(clicked))
    if not 0 < share < 1 or n_held_out < 2 or len(clicked) - n_held_out < 2:
        raise InputError(
            f"a test share of {share:g} of {len(clicked):,} queries with a click: expected a share between 0 and 1 "
            "that leaves two queries or more on either side"
        )
    chosen = np.random.default_rng(seed).permutation(clicked)[:n_held_out]
    return np.isin(data.query, chosen)


def take_lists(data: RankingData, lists: NDArray[np.bool_], *, copy: bool = True) -> RankingData:
    """Return the data of some lists, [n_lists] of them marked; without a copy of their features, see `Features.take`.

    Example:
        >>> from clickharvest.rank.data import ranking_data
        >>> part = take_lists(ranking_data([[0.0], [1.0], [2.0]], [0, 1, 3], [0, 2]), np.array([False, True]))
        >>> part.starts.tolist(), part.clicked.tolist()
        ([0, 2], [1])
    """
    sizes = np.diff(data.starts)
    documents = np.repeat(lists, sizes)
    records = documents[data.clicked]
    return replace(
        data,
        features=data.features.take(np.flatnonzero(documents), copy=copy),
        starts=np.concatenate([[0], np.cumsum(sizes[lists])]),
        clicked=(np.cumsum(documents) - 1)[data.clicked[records]],
        propensity=data.propensity[records],
        clicks=data.clicks[records],
        query=np.unique(data.query[lists], return_inverse=True)[1].astype(np.int64),
        impressions=None if data.impressions is None else data.impressions[lists],
        exposure=None if data.exposure is None else data.exposure[documents],
        shift=None if data.shift is None else data.shift[records],
        bounds=None if data.bounds is None else (data.bounds[0][records], data.bounds[1][records]),
    )
