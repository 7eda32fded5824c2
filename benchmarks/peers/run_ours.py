"""clickharvest, from the log to the curves as its README does, and its simpler estimators; none with intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from exchange import FEATURES, ROWS, TEST_CONTEXTS, measure, read_sessions

from clickharvest import CPBM, PBM, ClickLog, Propensities, harvest, read_log
from clickharvest.baselines import adjacent_chain, click_rates, em, pivot_one, regression_em

MODELS = {
    "pbm": lambda seed: PBM(intervals=None, seed=seed),
    "allpairs": lambda seed: PBM(objective="allpairs", intervals=None, seed=seed),
    "linear": lambda seed: CPBM(curve="linear", intervals=None, seed=seed),
    "auto": lambda seed: CPBM(curve="auto", intervals=None, seed=seed),
}
RATIOS = {"pivot": pivot_one, "chain": adjacent_chain}
OF_LOGS = {"ctr": click_rates, "em": em}
STEPS, TREES = 40, 10
"""Steps of regression-EM, and trees of each: with 256 features, its defaults take an hour."""


def estimate(folder: Path, model: str, seed: int) -> np.ndarray:
    """Return the examination of the test contexts, from realised exposures: nobody else knows the rankings."""
    test = np.load(folder / TEST_CONTEXTS)
    names = [f"x{j + 1}" for j in range(test.shape[1])]
    log = read_log(folder / ROWS, context=names)
    found = simple_curve(log, folder, model, seed)
    if found is None:
        found = MODELS[model](seed).fit(harvest(log)).propensities_
    prediction = found.predict({name: test[:, j] for j, name in enumerate(names)})
    if not prediction.supported.all():
        raise RuntimeError("some positions have no estimate; use more queries")
    return prediction.propensity


def simple_curve(log: ClickLog, folder: Path, model: str, seed: int) -> Propensities | None:
    """Return what one of the simpler estimators finds, None if the model is another."""
    if model in RATIOS:
        return RATIOS[model](harvest(log))
    if model in OF_LOGS:
        return OF_LOGS[model](log)
    if model == "regression":
        return regression_em(log, document_features(folder), seed=seed, trees=TREES, max_iterations=STEPS)
    return None


def document_features(folder: Path) -> pa.Table:
    """Return the features of all documents, with the query that each belongs to."""
    sessions, features = read_sessions(folder), np.load(folder / FEATURES)
    query = np.empty(len(features), dtype=np.int64)
    query[sessions.doc] = sessions.query[:, None]
    columns = {f"f{j}": column for j, column in enumerate(features.T)}
    return pa.table({"query": query, "doc": np.arange(len(features))} | columns)


if __name__ == "__main__":
    measure(estimate, ["clickharvest", "numpy", "duckdb"])
