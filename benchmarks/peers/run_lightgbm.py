"""LightGBM's lambdarank with the positions of the documents, settings at their defaults.

It models the score of a document as f(features) + g(position). Its pairwise loss makes the odds that one of two
documents is clicked rather than the other exp(difference of scores), so that exp(g_k − g_1) stands for p_k / p_1. The
factors g are not in the model it saves: they are read from its log, as its last round left them.
"""

from __future__ import annotations

import re
from pathlib import Path

import lightgbm as lgb
import numpy as np
from exchange import FEATURES, measure, read_sessions

FACTOR = re.compile(r"^\s*(\d+)\s+(\S+)\s*$")


class Listener:
    """Keeps the last factor of each position that LightGBM's log tells."""

    def __init__(self) -> None:
        self.factors: dict[int, float] = {}

    def info(self, message: str) -> None:
        """Take a line of the log."""
        if found := FACTOR.match(message.removeprefix("[LightGBM] [Debug] ")):
            self.factors[int(found[1])] = float(found[2])

    warning = info


def estimate(folder: Path, model: str, seed: int) -> np.ndarray:
    """Return the curve that the position factors stand for."""
    log = read_sessions(folder)
    pages, positions = log.doc.shape
    listener = Listener()
    lgb.register_logger(listener)
    data = lgb.Dataset(
        np.load(folder / FEATURES)[log.doc.ravel()],
        label=log.click.ravel(),
        group=np.full(pages, positions),
        position=np.tile(np.arange(positions), pages),
    )
    lgb.train({"objective": "lambdarank", "verbosity": 2, "seed": seed}, data)
    factors = np.array([listener.factors[k] for k in range(positions)])
    return np.exp(factors - factors[0])[None]


if __name__ == "__main__":
    measure(estimate, ["lightgbm"])
