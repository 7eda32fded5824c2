"""Curves that are networks of the context: `mlp`, `recurrent`, `position`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from clickharvest.model.curves.base import Curve, Params, half_squares


@dataclass(frozen=True)
class MLP(Curve):
    """A network: p_k(x) = σ(c_k + v_k·σ(A x + a)), a sigmoid hidden layer and sigmoid outputs.

    Without a hidden layer, `width` 0, it is the one the paper prints: p_k(x) = σ(c_k + v_k·x).

    Parameters: `A` [d, width] and `a` [width], what each hidden unit responds to; `v` [width, K] and `c` [K], what
    each response does to each position. Without a hidden layer there are only `v` [d, K] and `c`.
    """

    width: int = field(default=12, metadata={"least": 0})

    name: ClassVar[str] = "mlp"

    def init(self, random: np.random.Generator) -> Params:
        """Start from random weights of variance 1/fan-in."""
        return sigmoid_layers(random, self.n_features, self.width, len(self.positions))

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return log σ(c_k + v_k·σ(A x + a)), negative: an examination probability."""
        return log_sigmoid(hidden_layer(params, x, xp) @ params["v"] + params["c"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |v|²)."""
        return layers_penalty(params, xp)


@dataclass(frozen=True)
class Recurrent(Curve):
    """Positions read in sequence: log p_k(x) = Σ_{j<k} log σ(c_j + v·h_j), h_j = tanh(A x + B h_{j−1} + a).

    After each position the reader goes on with probability σ(…), so that examination falls with every position.

    Parameters: `A` [d, width], `a` [width], what the context makes of the reader; `B` [width, width], how the reader
    changes on the way; `v` [width], `c` [K - 1], the log odds to go on after each position but the last.
    """

    width: int = 8

    name: ClassVar[str] = "recurrent"

    def init(self, random: np.random.Generator) -> Params:
        """Start from random weights of variance 1/fan-in and even odds to go on."""
        return {
            "A": random.normal(size=(self.n_features, self.width)) / np.sqrt(max(self.n_features, 1)),
            "a": np.zeros(self.width),
            "B": random.normal(size=(self.width, self.width)) / np.sqrt(self.width),
            "v": random.normal(size=(self.width, 1)) / np.sqrt(self.width),
            "c": np.ones(len(self.positions) - 1),
        }

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return the sum of the log probabilities to go on, from the top."""
        reader = xp.tanh(x @ params["A"] + params["a"])
        steps = [x @ np.zeros((self.n_features, 1))]
        for j in range(len(self.positions) - 1):
            odds = reader @ params["v"] + params["c"][j : j + 1]
            steps.append(steps[-1] + log_sigmoid(odds, xp))
            reader = xp.tanh(x @ params["A"] + reader @ params["B"] + params["a"])
        return xp.concatenate(steps, axis=-1)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |B|² + |v|²)."""
        return half_squares(params["A"], params["B"], params["v"], xp=xp)


@dataclass(frozen=True)
class Position(Curve):
    """The position as an input beside the context: log p_k(x) = c_k + v·tanh(A x + φ_k + a), φ_k embeds k.

    Parameters: `A` [d, width], `a` [width], what the context does to each hidden unit; `phi` [K, width], what the
    position does; `v` [width], what each unit does to examination; `c` [K], the examination of an average context.
    """

    width: int = 8

    name: ClassVar[str] = "position"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k and embeddings along log k."""
        log_k = np.log(np.array(self.positions, dtype=np.float64) / self.anchor)
        return {
            "A": random.normal(size=(self.n_features, self.width)) / np.sqrt(max(self.n_features, 1)),
            "a": np.zeros(self.width),
            "phi": log_k[:, None] * random.normal(size=self.width) / 2,
            "v": random.normal(size=(self.width, 1)) / self.width,
            "c": -log_k,
        }

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return c_k + v·tanh(A x + φ_k + a)."""
        context = x @ params["A"] + params["a"]
        columns = [
            xp.tanh(context + params["phi"][k]) @ params["v"] + params["c"][k : k + 1]
            for k in range(len(self.positions))
        ]
        return xp.concatenate(columns, axis=-1)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |φ|² + |v|²)."""
        return half_squares(params["A"], params["phi"], params["v"], xp=xp)


def log_sigmoid(z: Any, xp: Any = np) -> Any:
    """Return log σ(z) = −log(1 + e^{−z}), finite for every z."""
    return -xp.logaddexp(-z, 0.0)


def sigmoid_layers(random: np.random.Generator, inputs: int, width: int, outputs: int) -> Params:
    """Return weights of variance 1/fan-in for a network c + σ(x A + a) v, or c + x v where `width` is 0."""
    hidden = {"A": random.normal(size=(inputs, width)) / np.sqrt(max(inputs, 1)), "a": np.zeros(width)}
    fan_in = width or inputs
    output = {"v": random.normal(size=(fan_in, outputs)) / np.sqrt(max(fan_in, 1)), "c": np.zeros(outputs)}
    return hidden | output if width else output


def hidden_layer(params: Params, x: Any, xp: Any = np) -> Any:
    """Return σ(x A + a), [n, width], or x itself where the network has no hidden layer."""
    return (1 + xp.tanh((x @ params["A"] + params["a"]) / 2)) / 2 if "A" in params else x


def layers_penalty(params: Params, xp: Any = np) -> Any:
    """Return ½ (|A|² + |v|²), with A where there is one."""
    return half_squares(*(params[name] for name in ("A", "v") if name in params), xp=xp)
