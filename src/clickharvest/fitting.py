"""Fitting: a curve and an objective, joined into one loss of a flat parameter vector, for batches of problems.

loss(θ) = (−log likelihood(θ; w) + λ · penalty(θ)) / clicks, with query weights w and penalty λ of each problem. Folds
of a cross-validation, bootstrap replicates and penalties are problems of one batch, one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from clickharvest.curves import Curve, Params
from clickharvest.objectives import Objective
from clickharvest.optimise import Solution, Tick, descend, minimise
from clickharvest.samples import Sample

Array = NDArray[np.float64]

BUDGET = 8_000_000
"""Cells evaluated at once over all problems of a batch; larger batches are evaluated in parts."""


class Fit:
    """One curve × objective on one sample.

    Args:
        curve: the examination curve.
        objective: the objective, prepared on `sample`.
        sample: the sample.
    """

    def __init__(self, curve: Curve, objective: Objective, sample: Sample) -> None:
        self.curve, self.objective = curve, objective
        self.x, self.n_clusters = sample.x, sample.n_clusters
        self.scale = max(objective.size, 1.0)
        self.part = max(1, BUDGET // max(len(sample.unit), 1))
        _, self._unravel = ravel_pytree(self._initial(np.random.default_rng(0)))

    def _initial(self, random: np.random.Generator) -> dict[str, Params]:
        return {"curve": self.curve.init(random), "objective": self.objective.init(random)}

    def starts(self, count: int, seed: int) -> Array:
        """Return `count` parameter vectors to start from, [count, n]."""
        random = np.random.default_rng(seed)
        return np.stack([np.asarray(flatten(self._initial(random))) for _ in range(count)])

    def params(self, flat: Array) -> dict[str, Params]:
        """Return a parameter vector as the dicts of the curve and the objective."""
        with jax.enable_x64(True):
            params: dict[str, Params] = jax.tree.map(np.asarray, self._unravel(jnp.asarray(flat)))
            return params

    def log_likelihood(self, flat: Any, x: Any, data: Any, weights: Any) -> Any:
        """Return the log likelihood of a parameter vector, to be traced."""
        params = self._unravel(flat)
        log_p = self.curve.log_examination(params["curve"], x, jnp)
        return self.objective.log_likelihood(params["objective"], log_p, x, data, weights)

    def loss(self, flat: Any, x: Any, data: Any, weights: Any, penalty: Any) -> Any:
        """Return the penalised loss of a parameter vector, to be traced."""
        params = self._unravel(flat)
        tamed = self.curve.penalty(params["curve"], jnp) + self.objective.penalty(params["objective"])
        return (penalty * tamed - self.log_likelihood(flat, x, data, weights)) / self.scale

    def solve(
        self, start: Array, weights: Array, penalty: Array, *, tolerance: float = 1e-5, tick: Tick | None = None
    ) -> Solution:
        """Minimise the loss of each problem of a batch by L-BFGS.

        Args:
            start: parameters to start from, [B, n].
            weights: weight of each query, [B, queries].
            penalty: λ of each problem, [B].
            tolerance: largest gradient component at convergence.
            tick: called with the share of problems done.
        """
        with jax.enable_x64(True):
            compiled = jax.jit(jax.vmap(jax.value_and_grad(self.loss), in_axes=(0, None, None, 0, 0)))
            call = partial(self._in_parts, compiled, weights=weights, penalty=penalty)
            return minimise(call, start, tolerance=tolerance, tick=tick)

    def train(
        self,
        start: Array,
        weights: Array,
        held_out: Array | None,
        penalty: Array,
        *,
        rate: float = 0.03,
        epochs: int = 1_000,
        tick: Tick | None = None,
    ) -> Solution:
        """Minimise the loss of each problem by Adam, stopping early on the queries held out (weights [B, queries])."""
        with jax.enable_x64(True):
            x, data = jax.device_put((self.x, self.objective.data))
            batched = jax.vmap(self.loss, in_axes=(0, None, None, 0, 0))
            loss = partial(_fixed, batched, x, data, jnp.asarray(weights), jnp.asarray(penalty))
            aside = None
            if held_out is not None:
                free = jnp.zeros(len(penalty))
                aside = partial(_fixed, batched, x, data, jnp.asarray(held_out), free)
            return descend(loss, aside, start, rate=rate, epochs=epochs, tick=tick)

    def held_out(self, flat: Array, weights: Array) -> Array:
        """Return the log likelihood of each problem's parameters on weighted queries, [B]."""
        with jax.enable_x64(True):
            compiled = jax.jit(jax.vmap(self.log_likelihood, in_axes=(0, None, None, 0)))

            def call(params: Any, x: Any, data: Any, weights: Any, penalty: Any) -> Any:
                return compiled(params, x, data, weights), params

            return self._in_parts(call, flat, weights=weights, penalty=np.zeros(len(flat)))[0]

    def hessian(self, flat: Array, penalty: float) -> Array:
        """Return the matrix of second derivatives of scale × loss at a parameter vector, [n, n]."""
        with jax.enable_x64(True):
            weights = jnp.ones(self.n_clusters)
            second = jax.jit(jax.hessian(self.loss))(jnp.asarray(flat), self.x, self.objective.data, weights, penalty)
            return np.asarray(second) * self.scale

    def scores(self, flat: Array) -> Array:
        """Return the gradient of each query's log likelihood at a parameter vector, [queries, n]."""
        with jax.enable_x64(True):
            by_query = jax.jit(
                jax.jacrev(lambda w, p: self.log_likelihood(p, self.x, self.objective.data, w), argnums=0)
            )
            point = jnp.asarray(flat)
            ones = jnp.ones(self.n_clusters)
            columns = [
                jax.jvp(lambda p: by_query(ones, p), (point,), (direction,))[1] for direction in jnp.eye(len(point))
            ]
            return np.asarray(jnp.stack(columns, axis=1))

    def _in_parts(
        self, call: Callable[..., Any], params: Array, *, weights: Array, penalty: Array
    ) -> tuple[Array, Array]:
        """Evaluate a batch part by part, each part of one size so that nothing is compiled twice."""
        size = min(self.part, len(params))
        values, grads = [], []
        for begin in range(0, len(params), size):
            rows = np.minimum(np.arange(begin, begin + size), len(params) - 1)
            value, grad = call(params[rows], self.x, self.objective.data, weights[rows], penalty[rows])
            keep = min(size, len(params) - begin)
            values.append(np.asarray(value)[:keep])
            grads.append(np.asarray(grad)[:keep])
        return np.concatenate(values), np.concatenate(grads)


def flatten(params: dict[str, Params]) -> Array:
    """Return parameters as one vector."""
    with jax.enable_x64(True):
        return np.asarray(ravel_pytree(params)[0], dtype=np.float64)


def _fixed(batched: Callable[..., Any], x: Any, data: Any, weights: Any, penalty: Any, flat: Any) -> Any:
    return batched(flat, x, data, weights, penalty)
