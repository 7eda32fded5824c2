"""Fitting: a curve and an objective, joined into one loss of a flat parameter vector, for batches of problems.

loss(θ) = (−log likelihood(θ; w) + λ · penalty(θ)) / clicks, with query weights w and penalty λ of each problem. Folds
of a cross-validation, bootstrap replicates and penalties are problems of one batch, one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from clickharvest.curves import Curve, Params
from clickharvest.objectives import Objective
from clickharvest.optimise import Rows, Solution, Tick, descend, minimise
from clickharvest.samples import Sample

Array = NDArray[np.float64]

BUDGET = {"cpu": 1_000_000, "gpu": 100_000_000}
"""Rows evaluated at once over all problems of a batch, by kind of device; larger batches are evaluated in parts."""
MOST = {"cpu": 16, "gpu": 256}
"""Problems evaluated at once: compiling costs more than evaluating a few problems of a small sample for nothing."""


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
        device = "cpu" if jax.default_backend() == "cpu" else "gpu"
        self.part = int(np.clip(BUDGET[device] // max(len(sample.unit), 1), 1, MOST[device]))
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
        self,
        start: Array,
        weights: Array,
        penalty: Array,
        *,
        root: Array | None = None,
        tolerance: float = 1e-5,
        tick: Tick | None = None,
    ) -> Solution:
        """Minimise the loss of each problem of a batch by L-BFGS.

        Args:
            start: parameters to start from, [B, n].
            weights: weight of each query, [B, queries].
            penalty: λ of each problem, [B].
            root: a matrix L: the problem is solved for z in θ = start + L z, [n, n].
            tolerance: largest gradient component (with respect to θ, or to z) at convergence.
            tick: called with the share of problems done.
        """
        batch = partial(self._in_parts, self._value_and_grad, weights=weights, penalty=penalty)
        if root is None:
            return minimise(batch, start, tolerance=tolerance, tick=tick)

        def rounded(z: Array, rows: Rows) -> tuple[Array, Array]:
            value, grad = batch(start[rows] + z @ root.T, rows)
            return value, grad @ root

        solution = minimise(rounded, np.zeros_like(start), tolerance=tolerance, tick=tick)
        return replace(solution, params=start + solution.params @ root.T)

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
            x, data = self._inputs
            batched = jax.vmap(self.loss, in_axes=(0, None, None, 0, 0))
            loss = partial(_fixed, batched, x, data, jnp.asarray(weights), jnp.asarray(penalty))
            aside = None
            if held_out is not None:
                free = jnp.zeros(len(penalty))
                aside = partial(_fixed, batched, x, data, jnp.asarray(held_out), free)
            return descend(loss, aside, start, rate=rate, epochs=epochs, tick=tick)

    def held_out(self, flat: Array, weights: Array) -> Array:
        """Return the log likelihood of each problem's parameters on weighted queries, [B]."""
        rows = np.arange(len(flat))
        loss, _ = self._in_parts(self._value_and_grad, flat, rows, weights=weights, penalty=np.zeros(len(flat)))
        return -loss * self.scale

    def hessian(self, flat: Array, penalty: float) -> Array:
        """Return the matrix of second derivatives of scale × loss at a parameter vector, [n, n]."""
        with jax.enable_x64(True):
            weights = jnp.ones(self.n_clusters)

            def gradient(point: Any, x: Any, data: Any) -> Any:
                return jax.grad(self.loss)(point, x, data, weights, penalty)

            return self._directional(gradient, flat) * self.scale

    def scores(self, flat: Array) -> Array:
        """Return the gradient of each query's log likelihood at a parameter vector, [queries, n]."""
        with jax.enable_x64(True):
            weights = jnp.ones(self.n_clusters)

            def by_query(point: Any, x: Any, data: Any) -> Any:
                return jax.grad(lambda w: self.log_likelihood(point, x, data, w))(weights)

            return self._directional(by_query, flat)

    def _directional(self, function: Callable[..., Any], flat: Array) -> Array:
        """Return the Jacobian of `function(point, x, data)`, one column per parameter, one compiled program."""
        x, data = self._inputs

        @jax.jit
        def column(point: Any, direction: Any, x: Any, data: Any) -> Any:
            return jax.jvp(lambda p: function(p, x, data), (point,), (direction,))[1]

        point = jnp.asarray(flat)
        return np.stack([np.asarray(column(point, unit, x, data)) for unit in jnp.eye(len(point))], axis=1)

    @cached_property
    def _value_and_grad(self) -> Callable[..., Any]:
        return jax.jit(jax.vmap(jax.value_and_grad(self.loss), in_axes=(0, None, None, 0, 0)))

    def _in_parts(
        self, call: Callable[..., Any], params: Array, rows: Rows, *, weights: Array, penalty: Array
    ) -> tuple[Array, Array]:
        """Evaluate problems part by part, all parts of one size so that nothing is compiled twice."""
        size = 1 if len(weights) == 1 else self.part
        values, grads = [], []
        with jax.enable_x64(True):
            for begin in range(0, len(params), size):
                own = np.minimum(np.arange(begin, begin + size), len(params) - 1)
                value, grad = call(params[own], *self._inputs, weights[rows[own]], penalty[rows[own]])
                values.append(np.asarray(value)[: len(params) - begin])
                grads.append(np.asarray(grad)[: len(params) - begin])
        return np.concatenate(values), np.concatenate(grads)

    @cached_property
    def _inputs(self) -> tuple[Any, Any]:
        """The contexts and the objective's data, on the device."""
        with jax.enable_x64(True):
            inputs: tuple[Any, Any] = jax.device_put((self.x, self.objective.data))
            return inputs


def flatten(params: dict[str, Params]) -> Array:
    """Return parameters as one vector."""
    with jax.enable_x64(True):
        return np.asarray(ravel_pytree(params)[0], dtype=np.float64)


def _fixed(batched: Callable[..., Any], x: Any, data: Any, weights: Any, penalty: Any, flat: Any) -> Any:
    return batched(flat, x, data, weights, penalty)
