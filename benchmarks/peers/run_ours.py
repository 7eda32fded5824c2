"""clickharvest, from the log to the curves as its README does, without intervals, which no peer gives either."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from exchange import ROWS, TEST_CONTEXTS, measure

from clickharvest import CPBM, PBM, harvest, read_log

MODELS = {
    "pbm": lambda seed: PBM(intervals=None, seed=seed),
    "linear": lambda seed: CPBM(curve="linear", intervals=None, seed=seed),
    "auto": lambda seed: CPBM(curve="auto", intervals=None, seed=seed),
}


def estimate(folder: Path, model: str, seed: int) -> np.ndarray:
    """Return the examination of the test contexts, from realised exposures: nobody else knows the rankings."""
    test = np.load(folder / TEST_CONTEXTS)
    names = [f"x{j + 1}" for j in range(test.shape[1])]
    found = MODELS[model](seed).fit(harvest(read_log(folder / ROWS, context=names)))
    prediction = found.predict({name: test[:, j] for j, name in enumerate(names)})
    if not prediction.supported.all():
        raise RuntimeError("some positions have no estimate; use more queries")
    return prediction.propensity


if __name__ == "__main__":
    measure(estimate, ["clickharvest", "numpy", "duckdb"])
