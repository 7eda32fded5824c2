"""What an objective is: what a fit maximises, in log space.

An objective takes the log examination of every distinct context and position, [m, K], and returns a log likelihood
summed over the sample, each query weighted: a weight of 0 leaves a query out (cross-validation), a Poisson weight
resamples it (bootstrap). Each objective is a module of its own beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from clickharvest.model.curves import Params

Data = dict[str, Any]
CHUNK = 2_000_000
"""Cells that are evaluated at once; a larger sample is summed chunk by chunk, so that memory stays bounded."""


class Objective(Protocol):
    """A log likelihood of (own parameters, log examination) on prepared data.

    Attributes:
        name: the objective's name.
        data: arrays made from the sample, passed to every call: a dict of columns, one of them `cluster`, or a list of
            such dicts.
        size: the number of clicks it rests on.
    """

    name: str
    data: Any
    size: float

    def init(self, random: np.random.Generator) -> Params:
        """Return the objective's own parameters to start from."""
        ...

    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: Any, weights: Any) -> Any:
        """Return the sum over the sample: log_p [m, K], contexts x [m, d], weights [queries] → scalar."""
        ...

    def penalty(self, params: Params) -> Any:
        """Return ½ Σ θ² over the objective's own parameters that need taming."""
        ...


class ByValue:
    """Equal where kind and settings are, whatever the data: then programs compiled for one serve the other."""

    data: Any
    size: float

    def _settings(self) -> tuple[Any, ...]:
        return type(self), *sorted((k, v) for k, v in vars(self).items() if k not in ("data", "size"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())


def chunked_sum(function: Callable[[Data], Any], arrays: Data, cells_per_row: int) -> Any:
    """Return the sum of `function` over chunks of the arrays' rows, each recomputed in the backward pass.

    Example:
        >>> float(chunked_sum(lambda a: jnp.sum(a["v"]), {"v": jnp.arange(5.0)}, cells_per_row=CHUNK // 2))
        10.0
    """
    rows = len(next(iter(arrays.values())))
    size = max(1, CHUNK // cells_per_row)
    if rows <= size:
        return function(arrays)
    whole = rows // size * size
    parts = {name: a[:whole].reshape(rows // size, size, *a.shape[1:]) for name, a in arrays.items()}
    sums = jax.lax.map(jax.checkpoint(function), parts)
    rest = {name: a[whole:] for name, a in arrays.items()}
    return jnp.sum(sums) + (function(rest) if whole < rows else 0.0)
