"""What an objective is: what a fit maximises, in log space.

An objective takes the log examination of every distinct context and position, [m, K], and returns a log likelihood
summed over the sample, each query weighted: a weight of 0 leaves a query out (cross-validation), a Poisson weight
resamples it (bootstrap).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from clickharvest.estimation.objectives import OBJECTIVES
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Params

Data = dict[str, Any]
CHUNK = 2_000_000
"""Cells that are evaluated at once; a larger sample is summed chunk by chunk, so that memory stays bounded."""


class Objective(ABC):
    """A log likelihood of (own parameters, log examination) on prepared data.

    A subclass with a `name` adds itself to `OBJECTIVES`, and estimators and the command line find it there. The
    keyword-only parameters of its constructor are its options; an estimator passes those that it has.

    Objectives are equal where kind and settings are, whatever the data: then programs compiled for one serve the other.

    Attributes:
        name: the objective's name, that of its module.
        data: arrays made from the sample, passed to every call: a dict of columns, one of them `cluster`, or a list of
            such dicts.
        size: the number of clicks it rests on.
        against_shown: whether it compares clicks with what was shown, and so needs the pages without a click.
    """

    name: ClassVar[str]
    against_shown: ClassVar[bool] = False
    data: Any
    size: float

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            OBJECTIVES.add(cls.name, cls)

    @abstractmethod
    def __init__(self, sample: Sample, **options: Any) -> None: ...

    @classmethod
    def options(cls) -> list[str]:
        """Return the names of the options."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]

    @classmethod
    def alternatives(cls, sample: Sample, **options: Any) -> Mapping[str, Objective]:
        """Return what to choose from by the examination it finds, by name: one objective, or several."""
        return {cls.name: cls(sample, **options)}

    @property
    def about(self) -> Mapping[str, Any]:
        """What a model file tells of the objective beside its name."""
        return {}

    @abstractmethod
    def init(self, random: np.random.Generator) -> Params:
        """Return the objective's own parameters to start from."""

    @abstractmethod
    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: Any, weights: Any) -> Any:
        """Return the sum over the sample: log_p [m, K], contexts x [m, d], weights [queries] → scalar."""

    @abstractmethod
    def penalty(self, params: Params) -> Any:
        """Return ½ Σ θ² over the objective's own parameters that need taming."""

    def _settings(self) -> tuple[Any, ...]:
        return type(self), *sorted((k, v) for k, v in vars(self).items() if k not in ("data", "size"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objective) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())


def chunked_sum(function: Callable[[Data], Any], arrays: Data, cells_per_row: int) -> Any:
    """Return the sum of `function` over chunks of the arrays' rows, each recomputed in the backward pass.

    Example:
        >>> import jax.numpy as jnp
        >>> float(chunked_sum(lambda a: jnp.sum(a["v"]), {"v": jnp.arange(5.0)}, cells_per_row=CHUNK // 2))
        10.0
    """
    import jax

    rows = len(next(iter(arrays.values())))
    size = max(1, CHUNK // cells_per_row)
    if rows <= size:
        return function(arrays)
    whole = rows // size * size
    parts = {name: a[:whole].reshape(rows // size, size, *a.shape[1:]) for name, a in arrays.items()}
    sums = jax.lax.map(jax.checkpoint(function), parts)
    rest = {name: a[whole:] for name, a in arrays.items()}
    return sums.sum() + (function(rest) if whole < rows else 0.0)
