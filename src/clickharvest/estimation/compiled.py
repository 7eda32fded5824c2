"""Losses compiled by JAX: any objective, on whatever device there is, for batches of problems.

Compiling takes longer than evaluating a small sample, so programs are shared: they depend on curve and objective by
value, and on sizes that are rounded up, with rows of no weight, to one of eight between a power of two and the next.
Programs are kept in the user's cache folder for the next process, see `program_cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from clickharvest.estimation.descent import descend
from clickharvest.estimation.objectives.base import Objective
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Solution
from clickharvest.estimation.program_cache import keep_programs
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Curve, Params
from clickharvest.progress import Update, ignore

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

BUDGET = {"cpu": 50_000, "gpu": 100_000_000}
"""Rows and log examinations evaluated at once over all problems of a batch, by kind of device. One core gains nothing
from more at once, and larger batches are evaluated in parts."""
MOST = {"cpu": 16, "gpu": 256}
"""Problems evaluated at once: compiling costs more than evaluating a few problems of a small sample for nothing."""
LEAST = 64
"""Sizes below are rounded up to this."""


@jax.custom_jvp
def _softplus(z: Any) -> Any:
    """Return log(1 + e^z), finite for every z; its slope is σ(z), cheaper than what differentiating gives."""
    return jnp.maximum(z, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(z)))


_softplus.defjvps(lambda change, _, z: change * jax.nn.sigmoid(z))


class _Arrays:
    """The array functions that curves use: those of `jax.numpy`, with a faster `logaddexp` of finite numbers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    def logaddexp(self, a: Any, b: Any) -> Any:
        return b + _softplus(a - b)


@dataclass(frozen=True)
class Loss:
    """The loss as a pure function of parameters and arrays, hashable: `jit` compiles it once per shape of those.

    Attributes:
        curve: the curve.
        objective: the objective's formula; its data are an argument.
    """

    curve: Curve
    objective: Objective

    def initial(self, random: np.random.Generator) -> dict[str, Params]:
        """Return parameters to start from."""
        return {"curve": self.curve.init(random), "objective": self.objective.init(random)}

    def unravel(self, flat: Any) -> dict[str, Params]:
        """Return a parameter vector as the dicts of the curve and the objective."""
        params: dict[str, Params] = ravel_pytree(self.initial(np.random.default_rng(0)))[1](flat)
        return params

    def logits(self, flat: Any, x: Any) -> Any:
        """Return what ClickShare's shares depend on beside exposures, [m, K], to be traced."""
        params = self.unravel(flat)
        log_p = self.curve.log_examination(params["curve"], x, _Arrays())
        return self.objective.logits(params["objective"], log_p, x) if isinstance(self.objective, ClickShare) else log_p

    def penalty(self, flat: Any) -> Any:
        """Return the penalty of a parameter vector, to be traced."""
        params = self.unravel(flat)
        return self.curve.penalty(params["curve"], jnp) + self.objective.penalty(params["objective"])

    def log_likelihood(self, flat: Any, x: Any, data: Any, weights: Any) -> Any:
        """Return the log likelihood of a parameter vector, to be traced."""
        params = self.unravel(flat)
        log_p = self.curve.log_examination(params["curve"], x, _Arrays())
        return self.objective.log_likelihood(params["objective"], log_p, x, data, weights)

    def of_one(self, flat: Any, x: Any, data: Any, weights: Any, penalty: Any, scale: Any) -> Any:
        """Return the penalised loss of a parameter vector, to be traced."""
        return (penalty * self.penalty(flat) - self.log_likelihood(flat, x, data, weights)) / scale

    def __call__(self, flat: Any, x: Any, data: Any, weights: Any, penalty: Any, scale: Any) -> Any:
        """Return the losses of a batch, [B, n] → [B], to be traced."""
        return jax.vmap(self.of_one, in_axes=_BATCHED)(flat, x, data, weights, penalty, scale)


_BATCHED = (0, None, None, 0, 0, None)


@partial(jax.jit, static_argnums=0)
def _value_and_grad(loss: Loss, flat: Any, x: Any, data: Any, weights: Any, penalty: Any, scale: Any) -> Any:
    return jax.vmap(jax.value_and_grad(loss.of_one), in_axes=_BATCHED)(flat, x, data, weights, penalty, scale)


@partial(jax.jit, static_argnums=0)
def _hessian_column(loss: Loss, flat: Any, direction: Any, *rest: Any) -> Any:
    return jax.jvp(lambda point: jax.grad(loss.of_one)(point, *rest), (flat,), (direction,))[1]


@partial(jax.jit, static_argnums=0)
def _score_column(loss: Loss, flat: Any, direction: Any, x: Any, data: Any, weights: Any) -> Any:
    def by_query(point: Any) -> Any:
        return jax.grad(lambda w: loss.log_likelihood(point, x, data, w))(weights)

    return jax.jvp(by_query, (flat,), (direction,))[1]


@partial(jax.jit, static_argnums=0)
def _by_query(loss: Loss, flat: Any, x: Any, data: Any, weights: Any) -> Any:
    # The log likelihood is linear in the weights: its gradient is what each query adds.
    def of_one(point: Any) -> Any:
        return jax.grad(lambda w: loss.log_likelihood(point, x, data, w))(weights)

    return jax.vmap(of_one)(flat)


@partial(jax.jit, static_argnums=0)
def _logits(loss: Loss, flat: Any, x: Any) -> Any:
    return loss.logits(flat, x)


@partial(jax.jit, static_argnums=0)
def _gradients(loss: Loss, flat: Any, x: Any) -> Any:
    return jax.vmap(lambda one: jax.jvp(lambda point: loss.logits(point, x), (flat,), (one,))[1])(jnp.eye(len(flat)))


class Compiled:
    """The penalised loss of batches of problems, as JAX compiles it.

    Args:
        curve: the examination curve.
        objective: the objective, prepared on `sample`.
        sample: the sample.

    Attributes:
        part: problems that are evaluated at once.
    """

    def __init__(self, curve: Curve, objective: Objective, sample: Sample) -> None:
        keep_programs()
        self.objective = objective
        formula = copy(objective)
        formula.data = None
        self._loss = Loss(curve, formula)
        self.x, self.n_clusters = sample.x, sample.n_clusters
        self.scale = max(objective.size, 1.0)
        self.device = jax.default_backend()
        device = "cpu" if self.device == "cpu" else "gpu"
        rows = len(sample.unit) + len(sample.x) * len(sample.positions)
        self.part = int(np.clip(BUDGET[device] // rows, 1, MOST[device]))

    def loss(self, flat: Any, x: Any, data: Any, weights: Any, penalty: Any) -> Any:
        """Return the penalised loss of a parameter vector, to be traced."""
        return self._loss.of_one(flat, x, data, weights, penalty, self.scale)

    def train(
        self,
        start: Array,
        weights: Array,
        held_out: Array | None,
        penalty: Array,
        *,
        rate: float = 0.03,
        epochs: int = 1_000,
        update: Update = ignore,
    ) -> Solution:
        """Minimise the loss of each problem by Adam, stopping early on the queries held out (weights [B, queries])."""
        with jax.enable_x64(True):
            inputs = (*self._inputs, self._padded(weights), penalty, self.scale)
            aside = None
            if held_out is not None:
                aside = (*self._inputs, self._padded(held_out), np.zeros(len(penalty)), self.scale)
            return descend(self._loss, start, inputs, aside, rate=rate, epochs=epochs, update=update)

    def value_and_grad(self, flat: Array, weights: Array, penalty: Array) -> tuple[Array, Array]:
        """Return losses [B] and gradients [B, n] of parameters [B, n], weights of clusters [B, q] and penalties [B].

        All parts are of one size so that nothing is compiled twice. One problem alone is worth a program of its own
        only where parts are large.
        """
        size = 1 if len(weights) == 1 and self.part > MOST["cpu"] else self.part
        values, grads = [], []
        with jax.enable_x64(True):
            for begin in range(0, len(flat), size):
                own = np.minimum(np.arange(begin, begin + size), len(flat) - 1)
                inputs = (*self._inputs, self._padded(weights[own]), penalty[own], self.scale)
                value, grad = _value_and_grad(self._loss, flat[own], *inputs)
                values.append(np.asarray(value)[: len(flat) - begin])
                grads.append(np.asarray(grad)[: len(flat) - begin])
        return np.concatenate(values), np.concatenate(grads)

    def grad(self, flat: Array, weights: Array, penalty: Array) -> Array:
        """Return the gradients alone, [B, n]."""
        return self.value_and_grad(flat, weights, penalty)[1]

    def by_query(self, flat: Array) -> Array:
        """Return the log likelihood of every query at each of some parameter vectors, [B, n] → [B, queries]."""
        weights = self._padded(np.ones((1, self.n_clusters)))[0]
        found = []
        with jax.enable_x64(True):
            for begin in range(0, len(flat), self.part):
                own = np.minimum(np.arange(begin, begin + self.part), len(flat) - 1)
                values = np.asarray(_by_query(self._loss, flat[own], *self._inputs, weights))
                found.append(values[: len(flat) - begin, : self.n_clusters])
        return np.concatenate(found)

    def hessian(self, flat: Array, penalty: float) -> Array:
        """Return the matrix of second derivatives of scale × loss at a parameter vector, [n, n]."""
        return self._columns(_hessian_column, flat, penalty, 1.0)

    def scores(self, flat: Array) -> Array:
        """Return the gradient of each query's log likelihood at a parameter vector, [queries, n]."""
        return self._columns(_score_column, flat)[: self.n_clusters]

    def logits(self, flat: Array) -> Array:
        """Return log p_k(x) of the sample's contexts, with s(x) where ClickShare has it, [m, K]."""
        with jax.enable_x64(True):
            found: Array = np.asarray(_logits(self._loss, flat, self._inputs[0]))[: len(self.x)]
            return found

    def gradients(self, flat: Array, contexts: Integers) -> Array:
        """Return the gradients of the logits of some contexts, [contexts, K, n]."""
        x = np.pad(self.x[contexts], ((0, rounded_up(len(contexts)) - len(contexts)), (0, 0)))
        with jax.enable_x64(True):
            found: Array = np.moveaxis(np.asarray(_gradients(self._loss, flat, x)), 0, -1)[: len(contexts)]
            return found

    def penalty_curvature(self, flat: Array) -> Array:
        """Return the matrix of second derivatives of the penalty, [n, n]."""
        with jax.enable_x64(True):
            found: Array = np.asarray(jax.hessian(self._loss.penalty)(jnp.asarray(flat)))
            return found

    def _columns(self, column: Callable[..., Any], flat: Array, *rest: float) -> Array:
        """Return a Jacobian on all queries, one column per parameter, one compiled program."""
        weights = self._padded(np.ones((1, self.n_clusters)))[0]
        with jax.enable_x64(True):
            columns = [column(self._loss, flat, unit, *self._inputs, weights, *rest) for unit in np.eye(len(flat))]
            return np.stack([np.asarray(values) for values in columns], axis=1)

    def _padded(self, weights: Array) -> Array:
        """Return weights of queries, [B, queries], with at least one more query of weight 0."""
        return np.pad(weights, ((0, 0), (0, rounded_up(self.n_clusters + 1) - self.n_clusters)))

    @cached_property
    def _inputs(self) -> tuple[Any, Any]:
        """The contexts and the objective's data, padded with rows of a query of weight 0, on the device."""

        def padded(block: dict[str, Any]) -> dict[str, Any]:
            rows = len(block["cluster"])
            repeated = np.minimum(np.arange(rounded_up(rows)), rows - 1)
            block = {name: values[repeated] for name, values in block.items()} if rows else dict(block)
            block["cluster"][rows:] = self.n_clusters
            return block

        x = np.pad(self.x, ((0, rounded_up(len(self.x)) - len(self.x)), (0, 0)))
        data = jax.tree.map(padded, self.objective.data, is_leaf=lambda block: isinstance(block, dict))
        with jax.enable_x64(True):
            inputs: tuple[Any, Any] = jax.device_put((x, data))
            return inputs


def rounded_up(size: int) -> int:
    """Return the size of arrays that programs are compiled for: at least `LEAST`, and at most an eighth more.

    Example:
        >>> [rounded_up(n) for n in (0, 64, 65, 1000, 1025)]
        [64, 64, 72, 1024, 1152]
    """
    step = 1 << (max(size, LEAST).bit_length() - 4)
    return -(-max(size, LEAST) // step) * step
