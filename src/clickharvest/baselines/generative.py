"""The generative CPBM: examination by context and relevance by document features, fitted together."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from clickharvest.baselines.cells import Array, count_cells, read_features
from clickharvest.errors import ConvergenceWarning, InputError
from clickharvest.estimation.objectives.base import Data, chunked_sum
from clickharvest.estimation.optimise import Rows, minimise
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Curve, Params, layers_penalty, make_curve, sigmoid_layers
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import record_provenance

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

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
    rows = {
        "context": context,
        "pair": cells.pair,
        "position": np.searchsorted(np.array(positions), cells.position),
        "clicks": cells.clicks.astype(np.float64),
        "passed": (cells.impressions - cells.clicks).astype(np.float64),
    }
    examination = make_curve(curve, positions, anchor, x.shape[1], **shape)
    random = np.random.default_rng(seed)
    inputs = documents.shape[1] + x.shape[1]
    start: dict[str, Params] = {
        "curve": examination.init(random),
        "relevance": sigmoid_layers(random, inputs, relevance_width, 1)
        if relevance == "mlp"
        else {"v": np.zeros((inputs, 1)), "c": np.zeros(1)},
    }
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(start)
        scale = float(rows["clicks"].sum())

        def loss(flat: Any, x: Any, documents: Any, rows: Data) -> Any:
            params = unravel(flat)
            value = _log_likelihood(examination, params, x, documents, rows)
            return (penalty * _tamed(examination, params, jnp) - value) / scale

        compiled = jax.jit(jax.value_and_grad(loss))
        data = jax.device_put((x, documents, rows))

        def value_and_grad(batch: Array, _: Rows) -> tuple[Array, Array]:
            value, grad = compiled(batch[0], *data)
            return np.asarray(value)[None], np.asarray(grad)[None]

        found = minimise(value_and_grad, np.asarray(flat)[None], tolerance=tolerance, max_iterations=max_iterations)
        params = jax.tree.map(np.asarray, unravel(jnp.asarray(found.params[0])))
    status = found.status[0]
    if not status.good:
        warnings.warn(f"generative_cpbm: the fit {status}", ConvergenceWarning, stacklevel=2)
    info = {
        "estimator": "generative_cpbm",
        "relevance": relevance,
        "penalty": penalty,
        "seed": seed,
        "status": str(status),
        "clicks": int(scale),
        "log_likelihood": penalty * float(_tamed(examination, params, np)) - scale * float(found.value[0]),
    }
    return Propensities(
        curve=examination,
        params=params["curve"],
        encoder=encoder,
        shown=cells.shown,
        info=info,
        provenance=record_provenance("generative_cpbm", device=jax.default_backend()),
    )


def _tamed(curve: Curve, params: dict[str, Params], xp: Any) -> Any:
    """Return the curve's penalty plus ½ Σ θ² over the weights of relevance."""
    return curve.penalty(params["curve"], xp) + layers_penalty(params["relevance"], xp)


def _log_likelihood(curve: Curve, params: dict[str, Params], x: Any, documents: Any, rows: Data) -> Any:
    """Return Σ C log(p r) + (1 − C) log(1 − p r); a product of 1 or more counts as just below 1."""
    log_p = curve.log_examination(params["curve"], x, jnp)
    weights = params["relevance"]
    first = weights["A"] if "A" in weights else weights["v"]
    of_document, of_context = documents @ first[: documents.shape[1]], x @ first[documents.shape[1] :]

    def of_rows(rows: Data) -> Any:
        odds = of_document[rows["pair"]] + of_context[rows["context"]]
        if "A" in weights:
            odds = jax.nn.sigmoid(odds + weights["a"]) @ weights["v"]
        log_r = jax.nn.log_sigmoid(odds[:, 0] + weights["c"][0])
        y = jnp.minimum(log_p[rows["context"], rows["position"]] + log_r, -1e-9)
        return jnp.sum(rows["clicks"] * y + rows["passed"] * log1mexp(y))

    return chunked_sum(of_rows, rows, 1 if "A" not in weights else len(weights["a"]))


def log1mexp(y: Any) -> Any:
    """Return log(1 − e^y) for y < 0, accurate near 0 and far below.

    Example:
        >>> [round(float(log1mexp(y)), 4) for y in (-1e-3, -0.5, -50.0)]
        [-6.9083, -0.9328, -0.0]
    """
    near = y > -jnp.log(2.0)
    safe_near, safe_far = jnp.where(near, y, -0.5), jnp.where(near, -1.0, y)
    return jnp.where(near, jnp.log(-jnp.expm1(safe_near)), jnp.log1p(-jnp.exp(safe_far)))
