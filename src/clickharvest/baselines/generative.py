"""The generative CPBM: examination by context and relevance by document features, fitted together."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clickharvest.baselines.cells import Array, count_cells, read_features
from clickharvest.errors import ConvergenceWarning, InputError
from clickharvest.estimation.loss import flatten, ridge_of
from clickharvest.estimation.objectives.base import table
from clickharvest.estimation.optimise import Rows, minimise
from clickharvest.estimation.slopes import Slopes
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import (
    Params,
    hidden_layer,
    layers_penalty,
    log_sigmoid,
    make_curve,
    sigmoid_layers,
    unflatten_params,
)
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import record_provenance
from clickharvest.model.trace import trace_formula

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

CERTAIN = -1e-9
"""Largest log probability of a click; curves without an upper limit may exceed it."""

RelevanceModel = Literal["linear", "mlp"]


def generative_cpbm(
    log: ClickLog,
    features: Any,
    *,
    curve: str = "linear",
    relevance: RelevanceModel = "linear",
    relevance_width: int = 12,
    penalty: float = 1.0,
    anchor: int = 1,
    max_position: int | None = None,
    encoder: ContextEncoder | None = None,
    max_iterations: int = 500,
    tolerance: float = 1e-5,
    seed: int = 0,
    **shape: int,
) -> Propensities:
    """Fit p_k(x) and r(x, d) together to the clicks of a log, as the generative CPBM does.

    Maximises Σ C log(p_k(x) r(x, d)) + (1 − C) log(1 − p_k(x) r(x, d)) − λ · penalty, with p a curve and
    r(x, d) = σ(w·(φ(d), x) + c), φ(d) the document's features, or a two-layer sigmoid network of the same inputs. p is
    as right as the model of relevance is.

    Args:
        log: the click log; its context columns are x.
        features: a table with columns `query`, `doc` and the features, or a mapping from (query, doc) to a vector.
        curve: name of the examination curve, see `make_curve`.
        relevance: `"linear"`, or `"mlp"` for a network.
        relevance_width: hidden units of that network.
        penalty: λ, on the weights of the curve and of relevance.
        anchor: the position others are relative to.
        max_position: leave out what was shown lower.
        encoder: turns the context columns into x; by default one fitted on the log.
        max_iterations: at most so many steps of L-BFGS.
        tolerance: largest gradient component (of the loss per click) at convergence.
        seed: seed of the networks' starting weights.
        shape: `rank` of the curve `lowrank`, `width` of the curves that are networks.

    Raises:
        InputError: a document of the log has no features.
        NotIdentifiedError: the anchor, or every other position, is without clicks.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> counted = {"query": ["q"] * 4, "doc": ["a", "b", "c", "d"], "position": [1, 2, 1, 2]}
        >>> log = read_log(pa.table(counted | {"clicks": [60, 30, 20, 10], "impressions": [100] * 4}))
        >>> features = {("q", "a"): [1.0], ("q", "b"): [1.0], ("q", "c"): [0.0], ("q", "d"): [0.0]}
        >>> np.exp(generative_cpbm(log, features, penalty=0.0).params["b"]).round(2).tolist()
        [0.5]
    """
    if relevance not in ("linear", "mlp"):
        raise InputError(f"no relevance model {relevance!r}: expected linear or mlp")
    cells = count_cells(log, context=log.context, max_position=max_position)
    positions = cells.clicked(anchor)
    cells = cells.at(positions)
    if encoder is None and log.context:
        encoder = ContextEncoder.fit(cells.contexts)
    encoded = np.zeros((len(cells.pair), 0)) if encoder is None else encoder.transform(cells.contexts)
    x, context = np.unique(encoded, axis=0, return_inverse=True)
    documents = read_features(log, features, max_position=max_position)
    # Relevance is computed once for each document in each context, whatever the position.
    shown, unit = np.unique(np.stack([cells.pair, context]), axis=1, return_inverse=True)
    inputs = np.asfortranarray(np.concatenate([documents[shown[0]], x[shown[1]]], axis=1))
    n_inputs = inputs.shape[1]
    cell = context * len(positions) + np.searchsorted(np.array(positions), cells.position)
    clicks, passed = cells.clicks.astype(np.float64), (cells.impressions - cells.clicks).astype(np.float64)
    examination = make_curve(curve, positions, anchor, x.shape[1], **shape)
    random = np.random.default_rng(seed)
    like = examination.init(random)
    weights: Params = {"v": np.zeros((n_inputs, 1)), "c": np.zeros(1)}
    if relevance == "mlp":
        weights = sigmoid_layers(random, n_inputs, relevance_width, 1)
    curve_slopes = Slopes.of_curve(examination)
    relevance_slopes = Slopes(trace_formula("the relevance", _log_odds, weights, n_inputs, 1), weights)
    ridge = penalty * np.concatenate([ridge_of(examination.penalty, like), ridge_of(layers_penalty, weights)])
    size, scale, columns = curve_slopes.size, float(clicks.sum()), np.asfortranarray(x)

    def value_and_grad(batch: Array, _: Rows) -> tuple[Array, Array]:
        flat = batch[0]
        examined = curve_slopes.run(flat[:size], columns)
        relevant = relevance_slopes.run(flat[size:], inputs)
        log_p, odds = examined[-1], relevant[-1][:, 0]
        y = np.minimum(np.ravel(log_p)[cell] + log_sigmoid(odds)[unit], CERTAIN)
        rest = -np.expm1(y)
        value = clicks @ y + passed @ np.log(rest)
        slope = np.where(y < CERTAIN, clicks - passed * (1 - rest) / rest, 0.0)
        by_odds = table(unit, slope, len(odds)) * np.exp(log_sigmoid(-odds))
        grad = np.append(
            curve_slopes.pull(examined, table(cell, slope, log_p.size).reshape(log_p.shape)),
            relevance_slopes.pull(relevant, by_odds[:, None]),
        )
        loss = (ridge @ flat**2 / 2 - value) / scale
        return np.array([loss]), ((ridge * flat - grad) / scale)[None]

    start = flatten({"curve": like, "objective": weights})
    optimum = minimise(value_and_grad, start[None], tolerance=tolerance, max_iterations=max_iterations)
    flat = optimum.params[0]
    status = optimum.status[0]
    if not status.good:
        warnings.warn(f"generative_cpbm: the fit {status}", ConvergenceWarning, stacklevel=2)
    info = {
        "estimator": "generative_cpbm",
        "relevance": relevance,
        "penalty": penalty,
        "seed": seed,
        "status": str(status),
        "clicks": int(scale),
        "log_likelihood": float(ridge @ flat**2 / 2) - scale * float(optimum.value[0]),
    }
    return Propensities(
        curve=examination,
        params=unflatten_params(flat[:size], like),
        encoder=encoder,
        shown=cells.shown,
        info=info,
        provenance=record_provenance("generative_cpbm"),
    )


def _log_odds(params: Params, x: Any, xp: Any = np) -> Any:
    """Return the log odds of relevance, [n, 1]."""
    return hidden_layer(params, x, xp) @ params["v"] + params["c"]
