"""What an objective is: a log likelihood of examination, with its slopes.

An objective is a function of the log examination of every distinct context and position, [m, K], and of a formula of
its own, [m, columns], such as the relevance of pairs of positions. It returns its value and how that changes with
either; the traces of curve and formula (`slopes`) do the rest. Queries are weighted: a weight of 0 leaves a query out
(cross-validation), a Poisson weight resamples it (bootstrap).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.objectives import OBJECTIVES
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.slopes import Slopes, columns_of, runs
from clickharvest.model.curves import Params

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NUMBERS = 2_000_000
"""Derivatives that are in memory at once, and that a rough information is computed from."""


class ClusterSlopes(NamedTuple):
    """Slopes of the log likelihoods of clusters; a row is a cluster [rows] in a context [rows].

    `by_log_p` [rows, K] are the slopes by log p, `by_own` [rows, columns] those by the objective's own formula, if any.
    """

    cluster: Integers
    context: Integers
    by_log_p: Array
    by_own: Array | None


class Point:
    """A curve and an objective's own formula at some parameters, with their gradients.

    Args:
        curve: the derivatives of the curve.
        own: those of the formula; None where there is none.
        flat: the parameters of both, [n].
        x: contexts, [m, d].

    Attributes:
        size: number n of parameters.
    """

    def __init__(self, curve: Slopes, own: Slopes | None, flat: Array, x: Array) -> None:
        self.size = len(flat)
        self._curve, self._own, self._flat, self._x = curve, own, flat, x

    @cached_property
    def log_p(self) -> Array:
        """Log examination, [m, K]."""
        return self._curve.values(self._flat[: self._curve.size], columns_of(self._x))

    @cached_property
    def own(self) -> Array | None:
        """The objective's own formula, [m, columns]; None where there is none."""
        return None if self._own is None else self._own.values(self._flat[self._curve.size :], columns_of(self._x))

    def log_p_gradients(self, contexts: Integers) -> Array:
        """Return the gradients of log p in some contexts, [contexts, K, n]."""
        return self._gradients(self._curve, 0, contexts)

    def own_gradients(self, contexts: Integers) -> Array:
        """Return the gradients of the objective's own formula in some contexts, [contexts, columns, n]."""
        assert self._own is not None
        return self._gradients(self._own, self._curve.size, contexts)

    def _gradients(self, slopes: Slopes, begin: int, contexts: Integers) -> Array:
        gradients, end = np.zeros((len(contexts), slopes.columns, self.size)), begin + slopes.size
        for some in runs(len(contexts), max(1, NUMBERS // (slopes.columns * self.size))):
            steps = slopes.run(self._flat[begin:end], self._x[contexts[some]])
            gradients[some, :, begin:end] = slopes.push(steps)
        return gradients


class Objective(ABC):
    """A log likelihood of log examination and of a formula of its own, on a sample.

    A subclass with a `name` adds itself to `OBJECTIVES`, and estimators and the command line find it there. The
    keyword-only parameters of its constructor are its options; an estimator passes those that it has.

    Attributes:
        name: the objective's name, that of its module.
        against_shown: whether it compares clicks with what was shown, and so needs the pages without a click.
        size: the number of clicks it rests on.
        columns: columns of its own formula; 0 where it has none.
    """

    name: ClassVar[str]
    against_shown: ClassVar[bool] = False
    size: float
    columns: int = 0

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
        """Return what to choose from by the examination it leads to, by name: one objective, or several."""
        return {cls.name: cls(sample, **options)}

    @property
    def about(self) -> Mapping[str, Any]:
        """What a model file keeps of the objective beside its name."""
        return {}

    def init(self, random: np.random.Generator) -> Params:
        """Return the objective's own parameters to start from."""
        return {}

    @abstractmethod
    def formula(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return the objective's own formula, [m, columns], by array functions that `clickharvest.model.trace` has."""

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ Σ d θ² over the objective's own parameters that are penalised."""
        return 0.0

    def logits(self, log_p: Array, own: Array | None) -> Array:
        """Return log examination with what the objective adds to it, [m, K]."""
        return log_p

    def by_contexts(self, n_contexts: int, cells: int) -> Iterator[tuple[slice, Objective]]:
        """Yield the objective of some contexts at a time, about `cells` values of its formulas each, and which."""
        yield slice(0, n_contexts), self

    @abstractmethod
    def among(self, clusters: NDArray[np.bool_], n_contexts: int) -> tuple[Self, NDArray[np.bool_]]:
        """Return the objective of some clusters [q] alone, and the contexts [m] that it is left with."""

    @abstractmethod
    def value_and_slopes(
        self, log_p: Array, own: Array | None, weights: Array, *, valued: bool = True
    ) -> tuple[float, Array, Array | None]:
        """Return the log likelihood of weighted clusters [q], if it is asked for, and its slopes by log p and own."""

    @abstractmethod
    def by_cluster(self, log_p: Array, own: Array | None, n_clusters: int) -> Array:
        """Return the log likelihood of every cluster, [q]."""

    @abstractmethod
    def cluster_slopes(self, log_p: Array, own: Array | None) -> ClusterSlopes:
        """Return the slopes of every cluster's log likelihood."""

    @abstractmethod
    def information(self, at: Point, weights: Array, *, rough: bool) -> Array:
        """Return the expected information of weighted clusters [q] about the parameters, [n, n].

        It has no negative curvature, unlike the second derivatives of the log likelihood of a network. With `rough`
        some of the contexts are enough, where there are many.
        """


def table(cells: Integers, values: Array, size: int) -> Array:
    """Return the sums of values by the number of their cell, [size]."""
    sums: Array = np.bincount(cells.ravel(), values.ravel(), size)  # type: ignore[assignment]
    return sums


def sums_by_cluster_and_context(
    cluster: Integers, context: Integers, n_contexts: int, *parts: tuple[Integers, Array, int]
) -> tuple[Integers, Integers, list[Array]]:
    """Return clusters and contexts that occur together, and sums of values for each of them.

    `parts` are columns [units, k], values [units, k] and the number of columns of each sum.
    """
    codes, row = np.unique(cluster * n_contexts + context, return_inverse=True)
    sums = [
        table(row[:, None] * size + column, values, len(codes) * size).reshape(-1, size)
        for column, values, size in parts
    ]
    return codes // n_contexts, codes % n_contexts, sums
