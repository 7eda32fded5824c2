"""Simulated click logs with known truth: every simulator returns the log and what an estimator should find.

- `simulate_ab_log`: a small A/B test on two devices, for demos and tests.
- `simulate_arxiv`: an arXiv-like search, an A/B test of three rankers beside a swap experiment.
- `simulate_protocol`: the semi-synthetic protocol of Fang, Agarwal and Joachims (2019), in four steps:

      corpus ──► rankers ──► contexts, examination ──► clicks

  `synthetic_corpus` makes the learning-to-rank corpus where none is given; `read_letor` reads yours.
"""

from __future__ import annotations

from clickharvest.simulate.ab_test import Truth, simulate_ab_log
from clickharvest.simulate.arxiv import ArxivSimulation, simulate_arxiv
from clickharvest.simulate.clicks import CLICK_MODELS, ClickModel
from clickharvest.simulate.corpus import Corpus, synthetic_corpus
from clickharvest.simulate.examination import EXAMINATIONS, Examination
from clickharvest.simulate.letor import read_letor
from clickharvest.simulate.protocol import simulate_protocol
from clickharvest.simulate.simulation import Simulation

__all__ = [
    "CLICK_MODELS",
    "EXAMINATIONS",
    "ArxivSimulation",
    "ClickModel",
    "Corpus",
    "Examination",
    "Simulation",
    "Truth",
    "read_letor",
    "simulate_ab_log",
    "simulate_arxiv",
    "simulate_protocol",
    "synthetic_corpus",
]
