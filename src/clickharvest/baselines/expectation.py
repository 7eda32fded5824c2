"""Expectation-maximisation for the position-based model Pr(C = 1) = p_k r, r the relevance of a query's document.

E-step, for an impression at k without a click (a click implies that both hold):
    Pr(examined | C = 0) = p_k (1 − r) / (1 − p_k r),   Pr(relevant | C = 0) = (1 − p_k) r / (1 − p_k r).
M-step: p_k is the mean of Pr(examined | C) over the impressions at k; `em` takes for r the mean of Pr(relevant | C)
over the impressions of a query and document, `regression_em` the prediction of boosted trees.

Both work on counts. Every probability starts at ½.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from clickharvest.baselines.cells import Array, Cells, constant_propensities, count_cells, read_features
from clickharvest.errors import ConvergenceWarning
from clickharvest.extras import require
from clickharvest.model.propensities import Propensities

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

CONVERGED = "converged: the propensities no longer move"
OUT_OF_ITERATIONS = "ran out of iterations before it converged: allow more, or raise the tolerance"
BINS = 255
"""Bins of a feature, the most that the trees take."""
SMALL = 50_000
"""Documents below which trees grow on one thread: more threads would mostly wait for each other."""


def em(
    log: ClickLog | Cells,
    *,
    anchor: int = 1,
    max_position: int | None = None,
    max_iterations: int = 2_000,
    tolerance: float = 1e-5,
) -> Propensities:
    """Fit the position-based model with one relevance per query and document by expectation-maximisation.

    Maximises Σ C log(p_k r) + (1 − C) log(1 − p_k r) over p and r; the likelihood never falls from one iteration to
    the next. Documents seen a few times have relevances that are little more than noise, and the estimate of p
    suffers from them, however long the log.

    Args:
        log: the click log, or its cells where no engine is at hand; contexts are ignored.
        anchor: the position others are relative to.
        max_position: leave out what was shown lower; cells are taken as they are.
        max_iterations: at most so many iterations.
        tolerance: converged when no log(p_k / p_anchor) moves by more in an iteration.

    Returns:
        Propensities; `info["trace"]` holds the log likelihood after every iteration.

    Raises:
        NotIdentifiedError: no document shown at several positions links one to the anchor.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> counted = {"query": ["q"] * 4, "doc": ["a", "a", "b", "b"], "position": [1, 2, 1, 2]}
        >>> log = read_log(pa.table(counted | {"clicks": [60, 30, 20, 10], "impressions": [100] * 4}))
        >>> np.exp(em(log).params["b"]).round(2).tolist()
        [0.5]
    """
    cells = log if isinstance(log, Cells) else count_cells(log, max_position=max_position)
    positions = cells.linked(anchor)
    kept = cells.at(positions)
    shown = np.maximum(np.bincount(kept.pair, kept.impressions, cells.n_pairs), 1.0)

    def mean_relevance(relevant: Array) -> Array:
        return np.bincount(kept.pair, relevant, cells.n_pairs) / shown

    return _alternate(kept, positions, anchor, mean_relevance, max_iterations, tolerance, {"estimator": "em"})


def regression_em(
    log: ClickLog | Cells,
    features: Any,
    *,
    anchor: int = 1,
    max_position: int | None = None,
    trees: int = 30,
    rate: float = 0.2,
    max_iterations: int = 200,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> Propensities:
    """Fit the position-based model with relevance by boosted trees on document features (Wang et al., 2018).

    In the M-step every document enters the trees twice, as relevant and as not, weighted by the posterior
    Σ Pr(relevant | C) and Σ 1 − Pr(relevant | C) over its impressions: the labels that Wang et al. draw, in
    expectation. A position is compared with others through documents of like features, so that p is as right as the
    features are.

    Args:
        log: the click log, or its cells; contexts are ignored.
        features: a table with columns `query`, `doc` and the features, or a mapping from (query, doc) to a vector; of
            cells what `read_features` returns, [m, f].
        anchor: the position others are relative to.
        max_position: leave out what was shown lower; cells are taken as they are.
        trees: trees that each M-step grows.
        rate: learning rate of the trees.
        max_iterations: at most so many iterations.
        tolerance: converged when no log(p_k / p_anchor) moves by more in an iteration.
        seed: seed of the trees.

    Returns:
        Propensities; `info["trace"]` holds the log likelihood after every iteration.

    Raises:
        InputError: a document of the log has no features.
        NotIdentifiedError: the anchor, or every other position, is without clicks.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> counted = {"query": ["q"] * 40, "doc": list(range(40)), "position": [1, 2] * 20}
        >>> log = read_log(pa.table(counted | {"clicks": [60, 30] * 20, "impressions": [100] * 40}))
        >>> same = {("q", doc): [1.0] for doc in range(40)}
        >>> np.exp(regression_em(log, same, trees=5).params["b"]).round(2).tolist()
        [0.5]
    """
    ensemble = require("sklearn.ensemble", "rank", "regression_em")

    cells = log if isinstance(log, Cells) else count_cells(log, max_position=max_position)
    positions = cells.clicked(anchor)
    kept = cells.at(positions)
    x = _in_bins(features if isinstance(log, Cells) else read_features(log, features, max_position=max_position))
    shown = np.bincount(kept.pair, kept.impressions, cells.n_pairs)
    label = np.repeat([1, 0], cells.n_pairs)
    threads = 1 if cells.n_pairs < SMALL else None

    def predicted_relevance(relevant: Array) -> Array:
        yes = np.bincount(kept.pair, relevant, cells.n_pairs)
        model = ensemble.HistGradientBoostingClassifier(
            learning_rate=rate, max_iter=trees, early_stopping=False, random_state=seed
        )
        with threadpool_limits(threads, user_api="openmp"):
            model.fit(np.concatenate([x, x]), label, sample_weight=np.concatenate([yes, shown - yes]))
            predicted: Array = np.clip(model.predict_proba(x)[:, 1], 1e-9, 1 - 1e-9)
        return predicted

    info = {"estimator": "regression_em", "trees": trees, "rate": rate, "seed": seed}
    return _alternate(kept, positions, anchor, predicted_relevance, max_iterations, tolerance, info)


def _in_bins(x: Array) -> Array:
    """Return the quantile bin of each value, of at most 255, once for all fits of trees."""
    edges = np.quantile(x, np.linspace(0, 1, BINS)[1:-1], axis=0).T
    return np.stack([np.searchsorted(np.unique(cuts), column) for cuts, column in zip(edges, x.T, strict=True)], axis=1)


def _alternate(
    cells: Cells,
    positions: tuple[int, ...],
    anchor: int,
    relevance_of: Callable[[Array], Array],
    max_iterations: int,
    tolerance: float,
    info: dict[str, Any],
) -> Propensities:
    """Alternate E- and M-steps; `relevance_of` maps Σ Pr(relevant | C) of each cell to the relevance of each pair."""
    k: NDArray[np.intp] = np.searchsorted(np.array(positions), cells.position)
    clicks, passed = cells.clicks.astype(np.float64), (cells.impressions - cells.clicks).astype(np.float64)
    shown = np.bincount(k, cells.impressions)
    p, r = np.full(len(positions), 0.5), np.full(cells.n_pairs, 0.5)
    values: list[float] = []
    status = OUT_OF_ITERATIONS
    for _ in range(max_iterations):
        # Both are 1 only where every impression was clicked; then there is no impression to explain.
        unclicked = np.maximum(1 - p[k] * r[cells.pair], 1e-300)
        examined = clicks + passed * p[k] * (1 - r[cells.pair]) / unclicked
        relevant = clicks + passed * (1 - p[k]) * r[cells.pair] / unclicked
        before = p
        p, r = np.bincount(k, examined) / shown, relevance_of(relevant)
        values.append(_log_likelihood(p[k] * r[cells.pair], clicks, passed))
        moved = np.log(p / before)
        if np.abs(moved - moved[positions.index(anchor)]).max() < tolerance:
            status = CONVERGED
            break
    if status != CONVERGED:
        warnings.warn(f"{info['estimator']}: {status}", ConvergenceWarning, stacklevel=3)
    others = np.array(positions) != anchor
    info |= {"clicks": int(cells.clicks.sum()), "status": status, "log_likelihood": values[-1], "trace": values}
    return constant_propensities(positions, anchor, np.log(p[others] / p[~others]), cells.shown, info)


def _log_likelihood(clicked: Array, clicks: Array, passed: Array) -> float:
    """Return Σ C log y + (1 − C) log(1 − y), nothing where nothing was observed."""
    seen, unseen = clicks > 0, passed > 0
    return float(clicks[seen] @ np.log(clicked[seen]) + passed[unseen] @ np.log1p(-clicked[unseen]))
