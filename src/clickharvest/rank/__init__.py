"""Rankers that learn from clicks with propensities, and estimates of how well they rank.

    ranking_data ──► PropensitySVMRank ──► off_policy (from clicks), ranking_metrics (from known relevance)

- `ranking_data`, `ranking_data_from_log`: lists of documents, and the clicks on them with their propensities.
- `PropensitySVMRank`, `PropensitySVMRankCV`: linear rankers from clicks; `SVMRank` from grades.
- `off_policy`: IPS and SNIPS estimates of AvgRank, DCG@k and precision@k, with intervals.
- `ranking_metrics`: nDCG, MAP and AvgRank where relevance is known.
- `read_clicks`, `train_ranker`, `compare_rankers`: from a log and document features to a ranker that is judged.
- `clickharvest.rank.boosting`: objectives for LightGBM and XGBoost.
"""

from __future__ import annotations

from clickharvest.rank.clicks import Clicks, read_clicks
from clickharvest.rank.comparison import Comparison, compare_rankers, split_lists, take_lists
from clickharvest.rank.crossvalidation import PropensitySVMRankCV, RankCandidate
from clickharvest.rank.data import RankingData, ranking_data
from clickharvest.rank.evaluation import Estimate, off_policy, ranks
from clickharvest.rank.from_log import ranking_data_from_log
from clickharvest.rank.metrics import ranking_metrics
from clickharvest.rank.svm import PropensitySVMRank, SVMRank
from clickharvest.rank.training import BoostSettings, TrainedRanker, train_ranker

__all__ = [
    "BoostSettings",
    "Clicks",
    "Comparison",
    "Estimate",
    "PropensitySVMRank",
    "PropensitySVMRankCV",
    "RankCandidate",
    "RankingData",
    "SVMRank",
    "TrainedRanker",
    "compare_rankers",
    "off_policy",
    "ranking_data",
    "ranking_data_from_log",
    "ranking_metrics",
    "ranks",
    "read_clicks",
    "split_lists",
    "take_lists",
    "train_ranker",
]
