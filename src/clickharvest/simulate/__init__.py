"""Simulated click logs with known truth: every simulator returns the log and what an estimator should find.

- `simulate_ab_log`: a small A/B test on two devices, for demos and tests.
- `simulate_arxiv`: an arXiv-like search, an A/B test of three rankers and a swap experiment.
- `simulate_protocol`: the semi-synthetic protocol of Fang, Agarwal and Joachims (2019), in four steps:

      corpus ──► rankers ──► contexts, examination ──► clicks

  `synthetic_corpus` makes the learning-to-rank corpus where none is given; `read_letor` reads yours.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
