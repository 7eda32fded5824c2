"""Rankers that learn from clicks with propensities, and estimates of how well they rank.

    ranking_data ──► PropensitySVMRank ──► off_policy (from clicks), ranking_metrics (from known relevance)

- `ranking_data`, `ranking_data_from_log`: lists of documents, and the clicks on them with their propensities.
- `PropensitySVMRank`, `PropensitySVMRankCV`: linear rankers from clicks; `SVMRank` from grades.
- `off_policy`: IPS and SNIPS estimates of AvgRank, DCG@k and precision@k, with intervals.
- `ranking_metrics`: nDCG, MAP and AvgRank where relevance is known.
- `clickharvest.rank.boosting`: objectives for LightGBM and XGBoost.
"""

from __future__ import annotations

from clickharvest.rank.crossvalidation import PropensitySVMRankCV, RankCandidate
from clickharvest.rank.data import RankingData, ranking_data
from clickharvest.rank.evaluation import Estimate, off_policy, ranks
from clickharvest.rank.from_log import ranking_data_from_log
from clickharvest.rank.metrics import ranking_metrics
from clickharvest.rank.svm import PropensitySVMRank, SVMRank

__all__ = [
    "Estimate",
    "PropensitySVMRank",
    "PropensitySVMRankCV",
    "RankCandidate",
    "RankingData",
    "SVMRank",
    "off_policy",
    "ranking_data",
    "ranking_data_from_log",
    "ranking_metrics",
    "ranks",
]
