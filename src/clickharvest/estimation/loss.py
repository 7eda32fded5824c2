"""Fitting: a curve and an objective, joined into one loss of a flat parameter vector, for batches of problems.

loss(θ) = (−log likelihood(θ; w) + λ · penalty(θ)) / clicks, with query weights w and penalty λ of each problem. Folds
of a cross-validation, bootstrap replicates and penalties are problems of one batch.

ClickShare is evaluated by NumPy (`uncompiled`), all else, and large logs where there is a GPU, by JAX (`compiled`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.estimation.devices import cores
from clickharvest.estimation.objectives.base import Objective
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Rows, Solution, Status, minimise
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.slopes import Slopes
from clickharvest.estimation.uncompiled import Uncompiled, ridge_of
from clickharvest.model.curves import Curve, Params, flatten_params, unflatten_params
from clickharvest.progress import Update, ignore

if TYPE_CHECKING:
    from clickharvest.estimation.compiled import Compiled

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Leave = Callable[[Array, float], bool]

LARGE = 1_000_000
"""Rows from which a GPU, where there is one, is worth the compiling, and a thread with memory of its own is not."""
PART = 32
"""Problems of a batch that NumPy evaluates."""
SMALL = 20_000
"""Rows below which NumPy's steps are too short to share cores."""
THREADS = 4
"""Most threads. Steps between products of matrices are Python's, which runs one at a time: of 16 cores no more gain."""
ROUNDS, STEPS = 12, 12
"""Most times that `settle` looks at the curvature, and steps in between."""
LOOSE = 1e-6
"""Curvature added in all directions, by the mean curvature: what the clicks leave free does not run away."""


class Fit:
    """One curve × objective on one sample.

    Args:
        curve: the examination curve.
        objective: the objective, prepared on `sample`.
        sample: the sample.

    Attributes:
        scale: the clicks that losses are divided by.
    """

    def __init__(self, curve: Curve, objective: Objective, sample: Sample) -> None:
        self.curve, self.objective = curve, objective
        self.x, self.n_clusters = sample.x, sample.n_clusters
        self.scale = max(objective.size, 1.0)
        self._sample = sample
        self._some: Uncompiled | None = None

    def among(self, queries: NDArray[np.bool_]) -> Fit:
        """Return the same fit for weights that are 0 outside some queries [queries], to which it looks alone.

        What `solve`, `settle` and `by_query` find of these queries is the same, and had for less; by others `by_query`
        gives 0.
        """
        other = copy(self)
        if isinstance(self._engine, Uncompiled):
            other._some = self._engine.among(queries)
        return other

    def starts(self, count: int, seed: int) -> Array:
        """Return `count` parameter vectors to start from, [count, n]."""
        random = np.random.default_rng(seed)
        return np.stack([flatten(self._initial(random)) for _ in range(count)])

    def params(self, flat: Array) -> dict[str, Params]:
        """Return a parameter vector as the dicts of the curve and the objective."""
        like = self._initial(np.random.default_rng(0))
        size = sum(np.size(value) for value in like["curve"].values())
        return {
            "curve": unflatten_params(flat[:size], like["curve"]),
            "objective": unflatten_params(flat[size:], like["objective"]),
        }

    def loss(self, flat: Any, x: Any, data: Any, weights: Any, penalty: Any) -> Any:
        """Return the penalised loss of a parameter vector, to be traced by JAX."""
        return self.compiled.loss(flat, x, data, weights, penalty)

    def solve(
        self,
        start: Array,
        weights: Array,
        penalty: Array,
        *,
        root: Array | None = None,
        tolerance: float = 1e-5,
        max_iterations: int = 500,
        update: Update = ignore,
    ) -> Solution:
        """Minimise the loss of each problem of a batch by L-BFGS.

        Args:
            start: parameters to start from, [B, n].
            weights: weight of each query, [B, queries].
            penalty: λ of each problem, [B].
            root: a matrix L: the problem is solved for z in θ = start + L z, [n, n].
            tolerance: largest gradient component (with respect to θ, or to z) at convergence.
            max_iterations: at most so many steps.
            update: called with the share of problems done.
        """

        def batch(params: Array, rows: Rows) -> tuple[Array, Array]:
            return (self._some or self._engine).value_and_grad(params, weights[rows], penalty[rows])

        if root is None:
            return minimise(batch, start, tolerance=tolerance, max_iterations=max_iterations, update=update)

        def rounded(z: Array, rows: Rows) -> tuple[Array, Array]:
            value, grad = batch(start[rows] + z @ root.T, rows)
            return value, grad @ root

        solution = minimise(
            rounded, np.zeros_like(start), tolerance=tolerance, max_iterations=max_iterations, update=update
        )
        return replace(solution, params=start + solution.params @ root.T)

    def settle(
        self,
        start: Array,
        weights: Array,
        penalty: Array,
        *,
        tolerance: float = 1e-5,
        rounds: int | None = None,
        leave: Leave | None = None,
    ) -> Solution:
        """Minimise the loss of each problem in coordinates in which it is round, curvature looked at again on the way.

        Where nothing tells the curvature but a program compiled for it, this is plain L-BFGS.

        Args:
            start: parameters to start from, [B, n].
            weights: weight of each query, [B, queries].
            penalty: λ of each problem, [B].
            tolerance: largest gradient component (with respect to z) at convergence.
            rounds: how many times the curvature is looked at, at most; by default `ROUNDS` times, and what has not
                converged then goes on by plain L-BFGS.
            leave: called, before the curvature is looked at again, with the parameters [n] and with how far the loss
                would still fall if every further look gained as much as the last; True ends it there.
        """
        if not isinstance(self._engine, Uncompiled):
            return self.solve(start, weights, penalty, tolerance=tolerance)
        problems = zip(start, weights, penalty, strict=True)
        found = [self._settle_one(*problem, tolerance, rounds, leave) for problem in problems]
        return Solution(
            np.array([one.params[0] for one in found]),
            np.array([one.value[0] for one in found]),
            np.array([one.iterations[0] for one in found]),
            tuple(one.status[0] for one in found),
        )

    def _settle_one(
        self, start: Array, weights: Array, penalty: float, tolerance: float, rounds: int | None, leave: Leave | None
    ) -> Solution:
        flat, strength, taken, before = start[None], np.array([penalty]), 0, np.inf
        most = ROUNDS if rounds is None else rounds
        for looked in range(1, most + 1):
            root = self.root(flat[0], penalty, weights)
            found = self.solve(flat, weights[None], strength, root=root, tolerance=tolerance, max_iterations=STEPS)
            flat, taken = found.params, taken + int(found.iterations[0])
            if found.status[0] is not Status.out_of_iterations:
                break
            gain, before = before - found.value[0], found.value[0]
            if leave and looked < most and leave(flat[0], (most - looked) * gain):
                break
        else:
            if rounds is None:
                found = self.solve(flat, weights[None], strength, tolerance=tolerance)
                taken += int(found.iterations[0])
        return replace(found, iterations=np.array([taken]))

    def grad(self, flat: Array, weights: Array, penalty: Array) -> Array:
        """Return the gradients of the loss, [B, n], of parameters [B, n], weights [B, queries] and penalties [B]."""
        return self._engine.grad(flat, weights, penalty)

    def root(self, flat: Array, penalty: float, weights: Array | None = None, *, rough: bool = True) -> Array | None:
        """Return L, [n, n], such that in θ = flat + L z the loss is about round; None where that is not cheap.

        Args:
            flat: parameters, [n].
            penalty: λ.
            weights: weights of the queries; all count alike without.
            rough: whether some of the units are enough, where there are many.
        """
        if not isinstance(self._engine, Uncompiled):
            return None
        curvature = self._engine.information(flat, weights, rough=rough) + penalty * np.diag(self._engine.ridge)
        loose = LOOSE * np.trace(curvature) / len(curvature) + 1e-300
        values, vectors = np.linalg.eigh(curvature)
        found: Array = vectors / np.sqrt(np.maximum(values, 0.0) + loose) * np.sqrt(self.scale)
        return found

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
        return self.compiled.train(start, weights, held_out, penalty, rate=rate, epochs=epochs, update=update)

    def held_out(self, flat: Array, weights: Array) -> Array:
        """Return the log likelihood of each problem's parameters on weighted queries, [B]."""
        loss, _ = self._engine.value_and_grad(flat, weights, np.zeros(len(flat)))
        return -loss * self.scale

    def by_query(self, flat: Array) -> Array:
        """Return the log likelihood of every query at each of some parameter vectors, [B, n] → [B, queries]."""
        return (self._some or self._engine).by_query(flat)

    def hessian(self, flat: Array, penalty: float) -> Array:
        """Return the matrix of second derivatives of scale × loss at a parameter vector, [n, n]."""
        return self.compiled.hessian(flat, penalty)

    def scores(self, flat: Array) -> Array:
        """Return the gradient of each query's log likelihood at a parameter vector, [queries, n]."""
        return self._engine.scores(flat)

    def logits(self, flat: Array) -> Array:
        """Return log p_k(x) of the sample's contexts, with s(x) where ClickShare has it, [m, K]."""
        return self._engine.logits(flat)

    def gradients(self, flat: Array, contexts: Integers) -> Array:
        """Return the gradients of the logits of some contexts, as intervals see them, [contexts, K, n]."""
        found, curve = self._engine.gradients(flat, contexts), self.curve.for_intervals()
        if curve is not self.curve:
            slopes = Slopes(curve)
            found[..., : slopes.size] = slopes.push(slopes.run(flat[: slopes.size], self.x[contexts]))
        return found

    def penalty_curvature(self, flat: Array) -> Array:
        """Return the matrix of second derivatives of the penalty, [n, n]."""
        return self._engine.penalty_curvature(flat)

    @property
    def device(self) -> str:
        """What it is computed on, as JAX names it."""
        return "cpu" if isinstance(self._engine, Uncompiled) else self.compiled.device

    @property
    def part(self) -> int:
        """How many problems are worth a batch."""
        return PART if isinstance(self._engine, Uncompiled) else self.compiled.part

    @part.setter
    def part(self, size: int) -> None:
        if not isinstance(self._engine, Uncompiled):
            self.compiled.part = size

    def workers(self, *, sharing: bool = False) -> int:
        """Return how many threads may work on problems at a time; JAX has threads of its own.

        Args:
            sharing: whether they share what is large of a log, so that further ones need little memory.
        """
        rows = len(self._sample.unit)
        if not isinstance(self._engine, Uncompiled) or rows < SMALL or (rows > LARGE and not sharing):
            return 1
        return min(cores(), THREADS)

    @cached_property
    def compiled(self) -> Compiled:
        """The loss as JAX compiles it."""
        from clickharvest.estimation.compiled import Compiled

        return Compiled(self.curve, self.objective, self._sample)

    @cached_property
    def _engine(self) -> Uncompiled | Compiled:
        if type(self.objective) is not ClickShare or (len(self._sample.unit) > LARGE and _has_gpu()):
            return self.compiled
        ridge = ridge_of(self.curve)
        try:
            if ridge is not None:
                return Uncompiled(self.curve, self.objective, self.x, self.n_clusters, ridge)
        except InputError:
            pass  # A curve that cannot be noted step by step can still be compiled.
        return self.compiled

    def _initial(self, random: np.random.Generator) -> dict[str, Params]:
        return {"curve": self.curve.init(random), "objective": self.objective.init(random)}


def flatten(params: dict[str, Params]) -> Array:
    """Return parameters of a curve and an objective as one vector."""
    return np.concatenate([flatten_params(params[name]) for name in sorted(params) if params[name]])


def _has_gpu() -> bool:
    import jax

    return jax.default_backend() != "cpu"
