"""Simulated click logs with known truth: every simulator returns the log and what an estimator should find.

- `simulate_ab_log`: a small A/B test on two devices, for demos and tests.
- `simulate_protocol`: the semi-synthetic protocol of Fang, Agarwal and Joachims (2019), in four steps:

      corpus ──► rankers ──► contexts, examination ──► clicks

  `synthetic_corpus` makes the learning-to-rank corpus where none is given.
"""

from __future__ import annotations

from clickharvest.simulate.ab_test import Truth, simulate_ab_log
from clickharvest.simulate.corpus import Corpus, synthetic_corpus
from clickharvest.simulate.examination import EXAMINATIONS, Examination
from clickharvest.simulate.protocol import Simulation, simulate_protocol

__all__ = [
    "EXAMINATIONS",
    "Corpus",
    "Examination",
    "Simulation",
    "Truth",
    "simulate_ab_log",
    "simulate_protocol",
    "synthetic_corpus",
]
