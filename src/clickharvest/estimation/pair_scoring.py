"""AllPairs with one sigmoid layer for examination and one for relevance, by Fisher scoring. NumPy alone.

A row is a query, context and pair of positions {k, k'}, with ĉ and ¬ĉ at either (`pairs.both_ways`). With
h = σ(X H), g = σ(F G) and y = log h + log g, a row's objective is Σ ĉ y + ¬ĉ log(1 − e^y) over its two ends. Its
expected information in y is w = (ĉ + ¬ĉ) e^y / (1 − e^y), and dy = (1 − h) X dH + (1 − g) F dG. Relevance of a pair
meets that of another in no row, so its block is eliminated pair by pair, and a step solves for examination alone:
K (1 + d) equations. A dozen steps find what takes gradients hundreds, and nothing is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.pairs import both_ways, pair_entries
from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]

SLIGHT = 1e-3
"""Ridge on the constants: only h g is identified where neither depends on context, and a pair without clicks has no
finite g."""
TOLERANCE = 1e-6
"""A fit ends when a step gains less than this per click."""
MOST_STEPS, MOST_TRIALS = 30, 12


@dataclass(frozen=True)
class Layers:
    """Weights of examination, [1 + d, K], and of relevance, [1 + features, pairs]; constants come first."""

    h: Array
    g: Array


class PairRows:
    """The rows of a sample, ordered by pair, and the features of its relevance model.

    Args:
        sample: the sample.
        relevance: `"constant"`, `"squares"` (of x and x² − 1) or `"free"` (one g per row, profiled out).
        weighting: ω of a unit and pair, see `AllPairs`.
    """

    def __init__(self, sample: Sample, relevance: str, weighting: str) -> None:
        rows = both_ways(pair_entries(sample, weighting))
        self.free = relevance == "free"
        if self.free:
            shown = (rows["clicked"] + rows["passed"] > 0).all(axis=1)
            telling = shown & (rows["clicked"] > 0).any(axis=1)
            rows = {name: values[telling] for name, values in rows.items()}
        self.n_positions = len(sample.positions)
        code = rows["position"] @ np.array([self.n_positions, 1])
        order = np.argsort(code, kind="stable")
        pairs, begin, self.pair = np.unique(code[order], return_index=True, return_inverse=True)
        self.low, self.high = np.divmod(pairs, self.n_positions)
        self.parts = [slice(a, b) for a, b in zip(begin, [*begin[1:], len(code)], strict=True)]
        self.cluster, self.context, self.position, self.clicked, self.passed = (
            rows[name][order] for name in ("cluster", "context", "position", "clicked", "passed")
        )
        self.x = with_ones(sample.x)
        features = relevance_features(sample.x) if relevance == "squares" else sample.x[:, :0]
        self.features = with_ones(features)[self.context]

    def blank(self) -> Layers:
        """Return layers to start from: examination falls as 1 / k, relevance is ½."""
        h = np.zeros((self.x.shape[1], self.n_positions))
        h[0] = 1.0 - np.log(np.arange(1, self.n_positions + 1))
        return Layers(h, np.zeros((self.features.shape[1], len(self.low))))

    def widened(self, constants: Layers) -> Layers:
        """Return layers of constants with weights of 0 for the features of this relevance model."""
        g = np.zeros((self.features.shape[1], len(self.low)))
        if not self.free:
            g[0] = constants.g[0]
        return Layers(constants.h, g)

    def value(self, layers: Layers, weights: Array) -> float:
        """Return the objective on weighted queries."""
        return float((weights[self.cluster] * self._ends(layers)[0]).sum())

    def fit(self, start: Layers, weights: Array, ridge_h: float, ridge_g: float) -> Layers:
        """Return the layers that maximise the objective on weighted queries, less ½ ridge × squares of weights."""
        query = weights[self.cluster][:, None]
        scale = max(float((query * self.clicked).sum()), 1.0)
        ridges = _ridge(len(start.h), ridge_h), _ridge(len(start.g), ridge_g)
        damping, layers = 1e-3, start
        ends = self._ends(layers)
        value = self._penalised(layers, ends, query, ridges)
        for _ in range(MOST_STEPS):
            system = self._system(layers, ends, query, ridges)
            for _ in range(MOST_TRIALS):
                tried = self._step(layers, system, damping, 1e-9 * scale)
                new_ends = self._ends(tried)
                new = self._penalised(tried, new_ends, query, ridges)
                if new >= value:
                    break
                damping = max(10 * damping, 1e-5)
            else:
                return layers
            gain, layers, ends, value = (new - value) / scale, tried, new_ends, new
            damping /= 10
            if gain < TOLERANCE:
                break
        return layers

    def _ends(self, layers: Layers) -> tuple[Array, Array, Array, Array, Array]:
        """Return value [n], slope and information in y, 1 − h [n, 2] and 1 − g [n] of every row."""
        log_h = log_sigmoid(self.x @ layers.h)[self.context[:, None], self.position]
        log_g = self._profiled(log_h) if self.free else log_sigmoid((self.features * layers.g.T[self.pair]).sum(axis=1))
        y = np.minimum(log_h + log_g[:, None], -1e-9)
        odds, passes = np.exp(y) / -np.expm1(y), np.log(-np.expm1(y))
        value = (self.clicked * y + self.passed * passes).sum(axis=1)
        slope = self.clicked - self.passed * odds
        return value, slope, (self.clicked + self.passed) * odds, -np.expm1(log_h), -np.expm1(log_g)

    def _profiled(self, log_h: Array) -> Array:
        """Return the best log g ≤ 0 of every row, see `FreeAllPairs`."""
        top = log_h.max(axis=1)
        h = np.exp(log_h - top[:, None])
        clicks = self.clicked.sum(axis=1)
        s = h * (clicks[:, None] + self.passed)
        total = s.sum(axis=1)
        root = np.sqrt((s[:, 0] - s[:, 1]) ** 2 + 4 * (self.passed * h).prod(axis=1))
        best: Array = np.minimum(np.log(2 * clicks / (total + root)) - top, 0.0)
        return best

    def _penalised(self, layers: Layers, ends: tuple[Array, ...], query: Array, ridges: tuple[Array, Array]) -> float:
        squares = sum((ridge[:, None] * w**2).sum() for ridge, w in zip(ridges, (layers.h, layers.g), strict=True))
        value = float((query[:, 0] * ends[0]).sum() - squares / 2)
        return value if np.isfinite(value) else -np.inf

    def _system(self, layers: Layers, ends: tuple[Array, ...], query: Array, ridges: tuple[Array, Array]) -> Any:
        """Return information and slopes: of h [K, 1+d, K, 1+d] and [K, 1+d]; of g by pair; and what couples them."""
        _, slope, information, u, u_g = ends
        size, wide, pairs = self.n_positions, len(layers.h), len(self.low)
        a, r = np.zeros((size, wide, size, wide)), -(ridges[0] * layers.h.T)
        narrow = len(layers.g)
        b, c, r_g = np.zeros((pairs, narrow, narrow)), np.zeros((pairs, 2 * wide, narrow)), -(ridges[1] * layers.g.T)
        slope, information = query * slope, query * information
        for j, part in enumerate(self.parts):
            x, w = self.x[self.context[part]], information[part]
            own = (self.low[j], self.high[j])
            r[own, :] += (u[part] * slope[part]).T @ x
            if self.free:
                w = w * w[:, ::-1] / np.maximum(w.sum(axis=1, keepdims=True), 1e-300)
                across = x.T @ (x * (w[:, 0] * u[part].prod(axis=1))[:, None])
                a[own[0], :, own[1]] -= across
                a[own[1], :, own[0]] -= across.T
            for end, k in enumerate(own):
                a[k, :, k] += x.T @ (x * (w[:, end] * u[part, end] ** 2)[:, None])
            if not self.free:
                f = self.features[part] * u_g[part, None]
                b[j] = f.T @ (f * w.sum(axis=1, keepdims=True))
                c[j] = np.concatenate([(x * (w[:, end] * u[part, end])[:, None]).T @ f for end in (0, 1)])
                r_g[j] += f.T @ slope[part].sum(axis=1)
        ends_of = np.arange(wide)
        a[np.arange(size)[:, None], ends_of, np.arange(size)[:, None], ends_of] += ridges[0]
        b[:, np.arange(narrow), np.arange(narrow)] += ridges[1]
        return a, r, b, c, r_g

    def _step(self, layers: Layers, system: Any, damping: float, floor: float) -> Layers:
        """Return layers a damped step further."""
        a, r, b, c, r_g = system
        size, wide = r.shape
        a, r = a.reshape(size * wide, -1).copy(), r.copy()
        _damp(a, damping, floor)
        if self.free:
            return Layers(layers.h + np.linalg.solve(a, r.ravel()).reshape(size, wide).T, layers.g)
        b = b.copy()
        _damp(b, damping, floor)
        solved = np.linalg.solve(b, np.concatenate([c.transpose(0, 2, 1), r_g[:, :, None]], axis=2))
        through, rest = solved[:, :, :-1], solved[:, :, -1]
        blocks = (c @ through).reshape(-1, 2, wide, 2, wide)
        ends, shape = np.stack([self.low, self.high], axis=1), a.reshape(size, wide, size, wide).swapaxes(1, 2)
        for end in (0, 1):
            np.subtract.at(r, ends[:, end], (c[:, end * wide : (end + 1) * wide] @ rest[:, :, None])[:, :, 0])
            for other in (0, 1):
                np.subtract.at(shape, (ends[:, end], ends[:, other]), blocks[:, end, :, other])
        step = np.linalg.solve(a, r.ravel()).reshape(size, wide)
        step_g = rest - (through @ step[ends].reshape(len(ends), 2 * wide, 1))[:, :, 0]
        return Layers(layers.h + step.T, layers.g + step_g.T)


def relevance_features(x: Array) -> Array:
    """Return [x, x² − 1]: the size of a context may tell how many of its documents are relevant, as its sign does not.

    Example:
        >>> relevance_features(np.array([[2.0, 0.0]])).tolist()
        [[2.0, 0.0, 3.0, -1.0]]
    """
    return np.concatenate([x, x * x - 1], axis=1)


def with_ones(x: Array) -> Array:
    """Return a matrix with a first column of ones."""
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)


def log_sigmoid(z: Array) -> Array:
    """Return log σ(z), finite for every z."""
    log: Array = np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z)))
    return log


def _ridge(size: int, strength: float) -> Array:
    ridge = np.full(size, strength)
    ridge[:1] = SLIGHT
    return ridge


def _damp(matrix: Array, damping: float, floor: float) -> None:
    """Add a share of its diagonal, and a little more, to the diagonal of matrices [..., n, n]."""
    at = np.arange(matrix.shape[-1])
    matrix[..., at, at] += damping * matrix[..., at, at] + floor
