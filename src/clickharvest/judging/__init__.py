"""Relevance judgments from clicks, examination divided out, for tools that evaluate search.

log + propensities ──► judge ──► Judgments ──► write_judgments (CSV, Parquet, Quepid, TREC qrels, OpenSearch)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
