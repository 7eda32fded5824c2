"""Adam for batches of problems: networks as one trains them, with early stopping on a held-out loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clickharvest.estimation.optimise import Array, Solution, Status
from clickharvest.progress import Update, ignore

MEAN, SQUARE, SMALL = 0.9, 0.999, 1e-8
"""Adam's β₁, β₂ and ε."""


def descend(
    grad: Callable[[Array], Array],
    loss: Callable[[Array], Array],
    start: Array,
    *,
    held_out: Callable[[Array], Array] | None = None,
    rate: float = 0.03,
    epochs: int = 1_000,
    patience: int = 100,
    every: int = 20,
    update: Update = ignore,
) -> Solution:
    """Minimise each problem of a batch by Adam, keeping the parameters with the best held-out loss.

    Args:
        grad: gradients of the loss, [B, n] → [B, n].
        loss: the loss of each problem, [B, n] → [B].
        start: where to start, [B, n].
        held_out: the loss of the part kept aside, [B, n] → [B]; None runs all epochs and keeps the last parameters.
        rate: Adam's learning rate.
        epochs: at most so many full-batch steps.
        patience: stop when no problem has improved for so many.
        every: steps between two looks at the held-out loss.
        update: called with the share of the epochs that is done.

    Example:
        >>> solution = descend(lambda p: 2 * (p - 3), lambda p: ((p - 3) ** 2).sum(axis=1), np.zeros((1, 1)))
        >>> solution.params.round(3).tolist(), solution.status[0].name
        ([[3.0]], 'finished')
    """
    params = np.array(start, dtype=np.float64)
    mean, square = np.zeros_like(params), np.zeros_like(params)
    best, best_value, best_loss = params.copy(), np.full(len(params), np.inf), np.full(len(params), np.inf)
    seen = np.zeros(len(params), dtype=np.int64)
    done = 0
    while done < epochs and (held_out is None or done - seen.max() < patience or not done):
        for step in range(done + 1, done + every + 1):
            slope = grad(params)
            mean += (1 - MEAN) * (slope - mean)
            square += (1 - SQUARE) * (slope * slope - square)
            params -= rate * (mean / (1 - MEAN**step)) / (np.sqrt(square / (1 - SQUARE**step)) + SMALL)
        done += every
        value = loss(params)
        judged = value if held_out is None else held_out(params)
        better = np.isfinite(judged) if held_out is None else judged < best_value
        best[better], best_value[better], best_loss[better] = params[better], judged[better], value[better]
        seen[better] = done
        update(min(1.0, done / epochs))
    early = held_out is not None and done < epochs
    status = [
        Status.not_finite if not np.isfinite(v) else Status.stopped_early if early else Status.finished
        for v in best_value
    ]
    return Solution(best, best_loss, seen, tuple(status))
