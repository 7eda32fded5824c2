"""True examination curves p_k(x), by name: what the simulated users do, and the estimators must find.

Each takes the context's index s = w·x, [n], and the number of positions K, and returns [n, K] with p_1 = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from clickharvest.errors import InputError

Array = NDArray[np.float64]


def power(index: Array, positions: int) -> Array:
    """Return the paper's curve, p_k = k^{−max(s+1, 0)}.

    Example:
        >>> power(np.array([0.0, -2.0]), 4).round(2).tolist()
        [[1.0, 0.5, 0.33, 0.25], [1.0, 1.0, 1.0, 1.0]]
    """
    k = np.arange(1.0, positions + 1)
    return np.asarray(k ** -np.maximum(index + 1, 0)[:, None])


def fold(index: Array, positions: int) -> Array:
    """Return a page with a fold: p_k ∝ .1 + .9 σ((m − k) / (K/10)) drops around m = (K+1)/2 · e^{−s}.

    Example:
        >>> fold(np.array([0.0, 0.5]), 10)[:, [0, 3, 6, 9]].round(2).tolist()
        [[1.0, 0.84, 0.27, 0.11], [1.0, 0.44, 0.13, 0.11]]
    """
    k = np.arange(1.0, positions + 1)
    place = (positions + 1) / 2 * np.exp(-index)[:, None]
    curve = 0.1 + 0.9 * expit((place - k) / (positions / 10))
    return np.asarray(curve / curve[:, :1])


def bump(index: Array, positions: int) -> Array:
    """Return a power curve that rises at the end of the page.

    Users scan from the top, k^{−max(s+1, 0)}, or jump to the end: p_k = 1 − (1 − scan_k)(1 − jump_k) with
    jump_k = .5 σ(2s) exp(−(K − k)² / 2).

    Example:
        >>> bump(np.array([0.0, 1.0]), 10)[:, [0, 7, 8, 9]].round(2).tolist()
        [[1.0, 0.15, 0.25, 0.32], [1.0, 0.07, 0.28, 0.45]]
    """
    k = np.arange(1.0, positions + 1)
    jump = 0.5 * expit(2 * index)[:, None] * np.exp(-((positions - k) ** 2) / 2)
    return np.asarray(1 - (1 - power(index, positions)) * (1 - jump))


EXAMINATIONS: dict[str, Callable[[Array, int], Array]] = {"power": power, "fold": fold, "bump": bump}


@dataclass(frozen=True, eq=False)
class Examination:
    """How users of each context examine a page: call it with contexts [n, d] to get p_k(x), [n, K].

    Attributes:
        name: one of `EXAMINATIONS`.
        weights: w, [d].
        positions: K.

    Example:
        >>> Examination("power", np.array([0.5, -0.5]), 3)(np.array([[1.0, 1.0], [1.0, -1.0]])).round(2).tolist()
        [[1.0, 0.5, 0.33], [1.0, 0.25, 0.11]]
    """

    name: str
    weights: Array
    positions: int

    def __post_init__(self) -> None:
        if self.name not in EXAMINATIONS:
            raise InputError(f"no examination {self.name!r}: expected one of {', '.join(EXAMINATIONS)}")

    def __call__(self, contexts: Array) -> Array:
        """Return p_k(x) of every context, [n, K]."""
        return EXAMINATIONS[self.name](contexts @ self.weights, self.positions)

    @classmethod
    def draw(cls, name: str, positions: int, *, features: int, eta: float, random: np.random.Generator) -> Examination:
        """Return one with w ~ U[−η, η) minus its mean."""
        weights = random.uniform(-1, 1, features)
        return cls(name, eta * (weights - weights.mean()), positions)
