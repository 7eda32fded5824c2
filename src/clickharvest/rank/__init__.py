"""Rankers that learn from clicks with propensities, and estimates of how well they rank.

    ranking_data ──► PropensitySVMRank ──► off_policy (from clicks), ranking_metrics (from known relevance)

- `ranking_data`: lists of documents, and the clicks on them with their propensities.
- `PropensitySVMRank`, `PropensitySVMRankCV`: linear rankers from clicks; `SVMRank` from grades.
- `off_policy`: IPS and SNIPS estimates of the rank of relevant documents, DCG@k and precision@k, with intervals.
- `ranking_metrics`: nDCG, MAP and the paper's AvgRank (the sum of the ranks) where relevance is known.
- `read_clicks`, `train_ranker`, `compare_rankers`: from a log and document features to a ranker that is judged.
- `load_ranker`, `rerank`, `export_ranker`: a ranker from its file, put to use here or in a search engine.
- `clickharvest.rank.boosting`: objectives for LightGBM and XGBoost.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
