"""Layers of networks: sigmoids, their starting weights and their penalty."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickharvest.model.curves.base import Params, half_squares


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
