"""Adam for batches of problems: networks as one trains them, with early stopping on a held-out loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from clickharvest.estimation.optimise import Array, Solution, Status
from clickharvest.progress import Update, ignore


def descend(
    loss: Callable[..., Any],
    start: Array,
    inputs: tuple[Any, ...] = (),
    held_out: tuple[Any, ...] | None = None,
    *,
    rate: float = 0.03,
    epochs: int = 1_000,
    patience: int = 100,
    every: int = 20,
    update: Update = ignore,
) -> Solution:
    """Minimise each problem of a batch by Adam, keeping the parameters with the best held-out loss.

    Args:
        loss: traced function (parameters [B, n], *inputs) → [B]. Functions that are equal share a compiled program.
        start: where to start, [B, n].
        inputs: arrays that the loss is computed on.
        held_out: the same for the part kept aside; None runs all epochs and keeps the last.
        rate: Adam's learning rate.
        epochs: at most so many full-batch steps.
        patience: stop when no problem has improved for so many.
        every: steps between two looks at the held-out loss.
        update: called with the share of the epochs that is done.

    Example:
        >>> solution = descend(lambda p, at: jnp.sum((p - at) ** 2, axis=1), np.zeros((1, 1)), (jnp.asarray(3.0),))
        >>> solution.params.round(3).tolist(), solution.status[0].name
        ([[3.0]], 'finished')
    """
    params = jnp.asarray(start)
    state = optax.adam(rate).init(params)
    best, best_value, best_loss = np.array(start), np.full(len(start), np.inf), np.full(len(start), np.inf)
    seen = np.zeros(len(start), dtype=np.int64)
    done = 0
    while done < epochs and (held_out is None or done - seen.max() < patience or not done):
        params, state, value, aside = _advance(loss, rate, every, params, state, inputs, held_out)
        done += every
        better = np.asarray(aside) < best_value if held_out is not None else np.isfinite(np.asarray(aside))
        best = np.where(better[:, None], np.asarray(params), best)
        best_value = np.where(better, np.asarray(aside), best_value)
        best_loss = np.where(better, np.asarray(value), best_loss)
        seen = np.where(better, done, seen)
        update(min(1.0, done / epochs))
    early = held_out is not None and done < epochs
    status = [
        Status.not_finite if not np.isfinite(v) else Status.stopped_early if early else Status.finished
        for v in best_value
    ]
    return Solution(best, best_loss, seen, tuple(status))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(
    loss: Callable[..., Any], rate: float, every: int, params: Any, state: Any, inputs: Any, held_out: Any
) -> Any:
    """Take some steps of Adam, and return parameters, state, loss and held-out loss."""
    optimiser = optax.adam(rate)

    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        grad = jax.grad(lambda p: jnp.sum(loss(p, *inputs)))(params)
        update, state = optimiser.update(grad, state)
        return (optax.apply_updates(params, update), state), None

    (params, state), _ = jax.lax.scan(step, (params, state), length=every)
    value = loss(params, *inputs)
    return params, state, value, value if held_out is None else loss(params, *held_out)
