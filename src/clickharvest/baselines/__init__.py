"""Baselines: other estimators of examination, with the same result type.

| function | reads | assumes |
|---|---|---|
| `click_rates` | a log | that documents are equally good at every position |
| `swap_ratio` | a log with swaps, or interventions | that ranks were exchanged with the top at random |
| `pivot_one` | interventions | nothing more than the model, but uses the pairs (anchor, k) alone |
| `adjacent_chain` | interventions | the same, but uses the pairs (k, k + 1) alone |
| `em` | a log | that relevance is a number of every query and document |
| `regression_em` | a log and document features | that boosted trees on the features get relevance right |
| `generative_cpbm` | a log and document features | the same of a linear model or a network; examination by context |

A position that the data do not identify gets no number.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
