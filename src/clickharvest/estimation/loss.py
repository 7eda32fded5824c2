"""Fitting: a curve and an objective, joined into one loss of a flat parameter vector, for batches of problems.

loss(θ) = (−log likelihood(θ; w) + λ · penalty(θ)) / clicks, with query weights w and penalty λ of each problem. Folds
of a cross-validation, bootstrap replicates and penalties are problems of one batch.

The log likelihood depends on the parameters through log p_k(x) of the distinct contexts, and through the objective's
own formula of these, alone. The objective gives its slopes by both, and their traces pull these back to the parameters
(`slopes`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.estimation.batched_linear_gradients import BatchedLinearGradients, is_straight
from clickharvest.estimation.objectives.base import NUMBERS, Objective, Point
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Rows, Solution, Status, descend, minimise
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.slopes import Slopes, columns_of, joined, runs
from clickharvest.estimation.threads import cores
from clickharvest.model.curves import Curve, Params, flatten_params, unflatten_params
from clickharvest.model.trace import trace_formula
from clickharvest.progress import Update, ignore

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CELLS = 150_000
"""Values of curve and own formula that are evaluated at once, where an objective can be cut by context: more leave the
processor's cache."""
LARGE = 1_000_000
"""Rows from which a thread with memory of its own is not worth that memory."""
SMALL = 20_000
"""Rows below which NumPy's steps are too short to share cores."""
THREADS = 4
"""Most threads. Steps between products of matrices are Python's, which runs one at a time: of 16 cores no more gain."""
ROUNDS, STEPS = 12, 12
"""Most times that `settle` looks at the curvature, and steps in between."""
LOOSE = 1e-6
"""Curvature added in all directions, by the mean curvature: what the clicks leave free does not run away."""
MOST = 500
"""Parameters beyond which the curvature costs more than the steps that it saves."""


class Fit:
    """One curve × objective on one sample.

    Args:
        curve: the examination curve.
        objective: the objective, prepared on `sample`.
        sample: the sample.

    Attributes:
        scale: the clicks that losses are divided by.
        ridge: d where the penalty is ½ Σ d_i θ_i², [n].

    Raises:
        InputError: a formula cannot be traced, or a penalty is no weighted sum of squares.
    """

    def __init__(self, curve: Curve, objective: Objective, sample: Sample) -> None:
        self.curve, self.objective = curve, objective
        self.x, self.n_clusters = sample.x, sample.n_clusters
        self.scale = max(objective.size, 1.0)
        self._rows = len(sample.unit)
        self._seen = objective, sample.x

    @cached_property
    def ridge(self) -> Array:
        """The penalty's strengths."""
        like = self._initial(np.random.default_rng(0))
        parts = [
            ridge_of(of.penalty, like[name]) for name, of in (("curve", self.curve), ("objective", self.objective))
        ]
        return np.concatenate(parts)

    @cached_property
    def _curve(self) -> Slopes:
        return Slopes.of_curve(self.curve)

    @cached_property
    def _own(self) -> Slopes | None:
        objective = self.objective
        if not objective.columns:
            return None
        like, features = objective.init(np.random.default_rng(0)), self.x.shape[1]
        what = f"the objective {objective.name!r}"
        return Slopes(trace_formula(what, objective.formula, like, features, objective.columns), like)

    @cached_property
    def _parts(self) -> list[_Part]:
        objective, x = self._seen
        return [_Part(part, columns_of(x[some])) for some, part in objective.by_contexts(len(x), CELLS)]

    @property
    def size(self) -> int:
        """Number n of parameters."""
        return self._curve.size + (self._own.size if self._own else 0)

    def among(self, queries: NDArray[np.bool_]) -> Fit:
        """Return the same fit for weights that are 0 outside some queries [queries], to which it looks alone.

        What `solve`, `settle` and `by_query` return of these queries is the same, and takes less time; of others
        `by_query` returns 0.
        """
        other = copy(self)
        for name in ("_parts", "_lines"):
            vars(other).pop(name, None)
        objective, there = self.objective.among(queries, len(self.x))
        other._seen = objective, self.x[there]
        return other

    def with_ridge(self, strength: float) -> Fit:
        """Return the same fit with a penalty on the objective's own parameters that is so many times as strong."""
        size, parts = self._curve.size, self._parts
        other = copy(self)
        vars(other).update(_parts=parts, ridge=np.append(self.ridge[:size], strength * self.ridge[size:]))
        return other

    def starts(self, count: int, seed: int) -> Array:
        """Return `count` parameter vectors to start from, [count, n]."""
        random = np.random.default_rng(seed)
        return np.stack([flatten(self._initial(random)) for _ in range(count)])

    def params(self, flat: Array) -> dict[str, Params]:
        """Return a parameter vector as the dicts of the curve and the objective."""
        like = self._initial(np.random.default_rng(0))
        return {
            "curve": unflatten_params(flat[: self._curve.size], like["curve"]),
            "objective": unflatten_params(flat[self._curve.size :], like["objective"]),
        }

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
            return self.value_and_grad(params, weights[rows], penalty[rows])

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
    ) -> Solution:
        """Minimise the loss of each problem in coordinates in which it is round, curvature looked at again on the way.

        With many parameters this is plain L-BFGS. The curvature is looked at `rounds` times, by default `ROUNDS` times,
        and what has not converged then goes on by plain L-BFGS. Other arguments are those of `solve`.
        """
        if start.shape[1] > MOST:
            return self.solve(start, weights, penalty, tolerance=tolerance)
        problems = zip(start, weights, penalty, strict=True)
        solutions = [self._settle_one(*problem, tolerance, rounds) for problem in problems]
        return Solution(
            np.array([one.params[0] for one in solutions]),
            np.array([one.value[0] for one in solutions]),
            np.array([one.iterations[0] for one in solutions]),
            tuple(one.status[0] for one in solutions),
        )

    def _settle_one(
        self, start: Array, weights: Array, penalty: float, tolerance: float, rounds: int | None
    ) -> Solution:
        flat, strength, taken = start[None], np.array([penalty]), 0
        for _ in range(ROUNDS if rounds is None else rounds):
            root = self.root(flat[0], penalty, weights)
            solution = self.solve(flat, weights[None], strength, root=root, tolerance=tolerance, max_iterations=STEPS)
            flat, taken = solution.params, taken + int(solution.iterations[0])
            if solution.status[0] is not Status.out_of_iterations:
                break
        else:
            if rounds is None:
                solution = self.solve(flat, weights[None], strength, tolerance=tolerance)
                taken += int(solution.iterations[0])
        return replace(solution, iterations=np.array([taken]))

    def value_and_grad(
        self, flat: Array, weights: Array, penalty: Array, *, valued: bool = True
    ) -> tuple[Array, Array]:
        """Return losses [B] and gradients [B, n] of parameters [B, n], weights of queries [B, q] and penalties [B].

        Losses that are not asked for (`valued`) need not be right.
        """
        problems = zip(flat, weights, penalty.tolist(), strict=True)
        results = [self._value_and_grad(*problem, valued) for problem in problems]
        return np.array([value for value, _ in results]), np.array([grad for _, grad in results])

    def grad(self, flat: Array, weights: Array, penalty: Array) -> Array:
        """Return the gradients of the loss, [B, n], of parameters [B, n], weights [B, queries] and penalties [B]."""
        if len(flat) > 1 and self._lines is not None:
            return (penalty[:, None] * (self.ridge * flat) - self._lines.slopes(flat, weights)) / self.scale
        return self.value_and_grad(flat, weights, penalty, valued=False)[1]

    def root(self, flat: Array, penalty: float, weights: Array | None = None, *, rough: bool = True) -> Array:
        """Return L, [n, n], such that in θ = flat + L z the loss with a penalty and weights of queries is about round.

        `rough` lets some of the clicks be enough, where there are many.
        """
        curvature = self.information(flat, weights, rough=rough) + penalty * np.diag(self.ridge)
        loose = LOOSE * np.trace(curvature) / len(curvature) + 1e-300
        values, vectors = np.linalg.eigh(curvature)
        root: Array = vectors / np.sqrt(np.maximum(values, 0.0) + loose) * np.sqrt(self.scale)
        return root

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
        return descend(
            lambda flat: self.grad(flat, weights, penalty),
            lambda flat: self.value_and_grad(flat, weights, penalty)[0],
            start,
            held_out=None if held_out is None else lambda flat: -self.held_out(flat, held_out) / self.scale,
            rate=rate,
            epochs=epochs,
            update=update,
        )

    def held_out(self, flat: Array, weights: Array) -> Array:
        """Return the log likelihood of each problem's parameters on weighted queries, [B]."""
        held_out: Array = np.einsum("bq,bq->b", self.by_query(flat), weights)
        return held_out

    def by_query(self, flat: Array) -> Array:
        """Return the log likelihood of every query at each of some parameter vectors, [B, n] → [B, queries]."""
        by_query = np.zeros((len(flat), self.n_clusters))
        for one, params in zip(by_query, flat, strict=True):
            for part in self._parts:
                one += part.objective.by_cluster(*self._formulas(params, part.x), self.n_clusters)
        return by_query

    def information(self, flat: Array, weights: Array | None = None, *, rough: bool = False) -> Array:
        """Return the expected information about the parameters, [n, n], see `Objective.information`."""
        weights = np.ones(self.n_clusters) if weights is None else weights
        objective, x = self._seen
        return objective.information(Point(self._curve, self._own, flat, x), weights, rough=rough)

    def scores(self, flat: Array) -> Array:
        """Return the gradient of each query's log likelihood at a parameter vector, [queries, n]."""
        scores = np.zeros((self.n_clusters, self.size))
        objective, x = self._seen
        at = Point(self._curve, self._own, flat, x)
        slopes, width = objective.cluster_slopes(at.log_p, at.own), len(self.curve.positions) + objective.columns
        for some in runs(len(slopes.cluster), max(1, NUMBERS // (width * self.size))):
            contexts, row = np.unique(slopes.context[some], return_inverse=True)
            score = np.einsum("gk,gkn->gn", slopes.by_log_p[some], at.log_p_gradients(contexts)[row])
            if slopes.by_own is not None:
                score += np.einsum("gk,gkn->gn", slopes.by_own[some], at.own_gradients(contexts)[row])
            np.add.at(scores, slopes.cluster[some], score)
        return scores

    def logits(self, flat: Array) -> Array:
        """Return log p_k(x) of the sample's contexts, with s(x) where ClickShare has it, [m, K]."""
        return self.objective.logits(*self._formulas(flat, columns_of(self.x)))

    def gradients(self, flat: Array, contexts: Integers) -> Array:
        """Return the gradients of the logits of some contexts, as intervals see them, [contexts, K, n]."""
        curve = self.curve.for_intervals()
        slopes = self._curve if curve is self.curve else Slopes.of_curve(curve)
        at = Point(slopes, self._own, flat, self.x)
        return self.objective.logits(at.log_p_gradients(contexts), at.own_gradients(contexts) if self._own else None)

    def workers(self, *, sharing: bool = False) -> int:
        """Return how many threads may work on problems at a time; fewer unless they share what is large of a log."""
        return 1 if self._rows < SMALL or (self._rows > LARGE and not sharing) else min(cores(), THREADS)

    @cached_property
    def _lines(self) -> BatchedLinearGradients | None:
        """What evaluates many problems at once; None where the curve bends, or units are large or of many contexts."""
        objective, x = self._seen
        if type(objective) is not ClickShare or objective.varying or not is_straight(self.curve):
            return None
        if any(block.starts is not None for block in objective.cells.blocks):
            return None
        return BatchedLinearGradients(self.curve, x, objective.cells)

    def _value_and_grad(self, flat: Array, weights: Array, penalty: float, valued: bool) -> tuple[float, Array]:
        value, slope, size = 0.0, np.zeros(len(flat)), self._curve.size
        for part in self._parts:
            curve = [self._curve.run(flat[:size], x) for x in part.x]
            own = [self._own.run(flat[size:], x) for x in part.x] if self._own else []
            log_p, of_own = joined(curve), joined(own) if own else None
            more, by_log_p, by_own = part.objective.value_and_slopes(log_p, of_own, weights, valued=valued)
            value += more
            slope[:size] += self._curve.pull_all(curve, by_log_p)
            if self._own and by_own is not None:
                slope[size:] += self._own.pull_all(own, by_own)
        tamed = self.ridge * flat
        return (penalty * float(flat @ tamed) / 2 - value) / self.scale, (penalty * tamed - slope) / self.scale

    def _formulas(self, flat: Array, parts: list[Array]) -> tuple[Array, Array | None]:
        """Return log p and the objective's own formula of contexts, [m, K] and [m, columns]."""
        size = self._curve.size
        log_p = self._curve.values(flat[:size], parts)
        return log_p, self._own.values(flat[size:], parts) if self._own else None

    def _initial(self, random: np.random.Generator) -> dict[str, Params]:
        return {"curve": self.curve.init(random), "objective": self.objective.init(random)}


@dataclass(frozen=True, eq=False)
class _Part:
    """The objective of some contexts, and these contexts in pieces, [m, d] together."""

    objective: Objective
    x: list[Array]


def flatten(params: dict[str, Params]) -> Array:
    """Return parameters of a curve and an objective as one vector."""
    return np.concatenate([flatten_params(params[name]) for name in sorted(params) if params[name]])


def ridge_of(penalty: Callable[..., Any], like: Params) -> Array:
    """Return d where a penalty of parameters is ½ Σ d_i θ_i², [n]."""
    size = sum(np.size(value) for value in like.values())

    def of(flat: Array) -> float:
        return float(penalty(unflatten_params(flat, like), np))

    ridge = np.array([2 * of(unit) for unit in np.eye(size)])
    random = np.random.default_rng(0)
    tried = [random.normal(size=size) * far for far in (0.1, 1.0, 10.0)]
    if (
        not all(np.isclose(of(flat), ridge @ flat**2 / 2, rtol=1e-9, atol=1e-300) for flat in tried)
        or (ridge < 0).any()
    ):
        raise InputError("a penalty must be a sum of squares of parameters, such as half_squares returns")
    return ridge
