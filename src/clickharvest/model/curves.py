"""Examination curves: how log p_k(x) depends on the position k and the context x.

A curve is a frozen description (its shape parameters) with pure functions of (parameters, contexts). Parameters are
plain dicts of arrays. Every formula is written once, against a namespace `xp` of array functions: `numpy` for
scoring, `jax.numpy` for fitting, and a tracer for export.

Only ratios p_k(x) / p_anchor(x) are identified; `relative` divides by the anchor. The curves `constant`, `power`,
`linear` and `lowrank` are zero at the anchor by construction; the networks are not, so that AllPairs can read their
sigmoid outputs as probabilities, as the paper does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError

Params = dict[str, Any]


@dataclass(frozen=True)
class Curve(ABC):
    """What all curves share.

    Attributes:
        positions: the positions the curve speaks of, ascending.
        anchor: the position that others are relative to, one of them.
        n_features: number d of context features; 0 for curves without context.
    """

    positions: tuple[int, ...]
    anchor: int
    n_features: int

    name: ClassVar[str]

    def __post_init__(self) -> None:
        ascending = list(self.positions) == sorted(set(self.positions))
        if not ascending or self.anchor not in self.positions or self.positions[0] < 1:
            raise InputError(
                f"a curve needs ascending positions from 1 with the anchor {self.anchor} among them: {self.positions}"
            )

    @property
    def anchor_index(self) -> int:
        """Where the anchor stands among the positions."""
        return self.positions.index(self.anchor)

    @property
    def spec(self) -> dict[str, Any]:
        """The curve's name and shape parameters, as `make_curve` takes them."""
        return {"name": self.name}

    @abstractmethod
    def init(self, random: np.random.Generator) -> Params:
        """Return parameters to start from."""

    @abstractmethod
    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return log p_k(x) up to a term that depends on x alone: x [n, d] → [n, K]."""

    @abstractmethod
    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ Σ θ² over the parameters that make examination depend on context."""

    def relative(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return log p_k(x) / p_anchor(x): x [n, d] → [n, K], zero at the anchor."""
        free = self.log_examination(params, x, xp)
        return free - free[:, self.anchor_index : self.anchor_index + 1]

    def _anchored(self, others: Any, xp: Any) -> Any:
        """Insert the anchor's zero among the values of the other positions, [..., K - 1] → [..., K]."""
        i = self.anchor_index
        zero = xp.zeros_like(others[..., :1])
        return xp.concatenate([others[..., :i], zero, others[..., i:]], axis=-1)

    def _log_distance(self) -> NDArray[np.float64]:
        """Return log(k / anchor) of the positions other than the anchor, [K - 1]."""
        k = np.delete(np.array(self.positions, dtype=np.float64), self.anchor_index)
        return np.log(k / self.anchor)


@dataclass(frozen=True)
class Constant(Curve):
    """The position-based model: log p_k(x) = b_k for every context.

    Parameters: `b` [K - 1], the log examination of each position other than the anchor, relative to it.
    """

    name: ClassVar[str] = "constant"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k."""
        return {"b": -self._log_distance()}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k for every row of x."""
        return self._anchored(params["b"] + x @ np.zeros((self.n_features, 1)), xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Nothing depends on context, nothing is penalised."""
        return 0.0 * xp.sum(params["b"])


@dataclass(frozen=True)
class Power(Curve):
    """A power law whose steepness depends on the context: p_k(x) = (k / anchor)^{−η(x)}, η(x) ≥ 0.

    η(x) = softplus(s · (a + w·x)) / s with s = 10: the straight line a + w·x, bent so that it stays positive.

    Parameters: `a`, the steepness of an average context (0: everything is examined alike; 1: position k gets 1/k);
    `w` [d], how much a unit of each feature adds to it.
    """

    name: ClassVar[str] = "power"
    sharpness: ClassVar[float] = 10.0

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k in every context."""
        return {"a": np.array([1.0]), "w": np.zeros((self.n_features, 1))}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return −η(x) log(k / anchor)."""
        line = self.sharpness * (x @ params["w"] + params["a"])
        steepness = xp.logaddexp(line, 0.0) / self.sharpness
        return self._anchored(-steepness * self._log_distance(), xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ |w|²."""
        return _half_squares(params["w"], xp=xp)


@dataclass(frozen=True)
class Linear(Curve):
    """Every position has its own straight line: log p_k(x) = b_k + W_k·x.

    Parameters: `b` [K - 1], the log examination of each position in an average context; `W` [d, K - 1], how much a
    unit of each feature adds to it. With ClickShare the fit is concave: one global optimum.
    """

    name: ClassVar[str] = "linear"

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k in every context."""
        return {"b": -self._log_distance(), "W": np.zeros((self.n_features, len(self.positions) - 1))}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k + W_k·x."""
        return self._anchored(x @ params["W"] + params["b"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ |W|²."""
        return _half_squares(params["W"], xp=xp)


@dataclass(frozen=True)
class LowRank(Curve):
    """A few shapes, mixed by the context: log p_k(x) = b_k + Σ_m (u_m·x) V_{mk}.

    Parameters: `b` [K - 1], the log examination of each position in an average context; `V` [rank, K - 1], the
    shapes along which contexts differ, such as "steeper"; `u` [d, rank], how far each feature pushes along each.
    """

    rank: int = 1

    name: ClassVar[str] = "lowrank"

    @property
    def spec(self) -> dict[str, Any]:
        """Name and rank."""
        return {"name": self.name, "rank": self.rank}

    def init(self, random: np.random.Generator) -> Params:
        """Start from p_k = anchor / k, first shape "steeper", contexts slightly and randomly apart."""
        shapes = 0.3 * random.normal(size=(self.rank, len(self.positions) - 1))
        shapes[0] -= self._log_distance() / np.sqrt(len(self.positions))
        return {"b": -self._log_distance(), "u": 0.1 * random.normal(size=(self.n_features, self.rank)), "V": shapes}

    def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return b_k + Σ_m (u_m·x) V_{mk}."""
        return self._anchored((x @ params["u"]) @ params["V"] + params["b"], xp)

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|u|² + |V|²): twice this is at least the nuclear norm of the matrix uV."""
        return _half_squares(params["u"], params["V"], xp=xp)


@dataclass(frozen=True)
class MLP(Curve):
    """A network: p_k(x) = σ(c_k + v_k·σ(A x + a)), a sigmoid hidden layer and sigmoid outputs.

    Without a hidden layer, `width` 0, it is the one the paper prints: p_k(x) = σ(c_k + v_k·x).

    Parameters: `A` [d, width] and `a` [width], what each hidden unit responds to; `v` [width, K] and `c` [K], what
    each response does to each position. Without a hidden layer there are only `v` [d, K] and `c`.
    """

    width: int = 12

    name: ClassVar[str] = "mlp"

    @property
    def spec(self) -> dict[str, Any]:
        """Name and width."""
        return {"name": self.name, "width": self.width}

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

    @property
    def spec(self) -> dict[str, Any]:
        """Name and width."""
        return {"name": self.name, "width": self.width}

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
        return _half_squares(params["A"], params["B"], params["v"], xp=xp)


@dataclass(frozen=True)
class Position(Curve):
    """The position as an input beside the context: log p_k(x) = c_k + v·tanh(A x + φ_k + a), φ_k embeds k.

    Parameters: `A` [d, width], `a` [width], what the context does to each hidden unit; `phi` [K, width], what the
    position does; `v` [width], what each unit does to examination; `c` [K], the examination of an average context.
    """

    width: int = 8

    name: ClassVar[str] = "position"

    @property
    def spec(self) -> dict[str, Any]:
        """Name and width."""
        return {"name": self.name, "width": self.width}

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
        return _half_squares(params["A"], params["phi"], params["v"], xp=xp)


CURVES: dict[str, type[Curve]] = {
    curve.name: curve for curve in (Constant, Power, Linear, LowRank, MLP, Recurrent, Position)
}


def make_curve(name: str, positions: tuple[int, ...], anchor: int, n_features: int, **shape: int) -> Curve:
    """Return a curve by name.

    Args:
        name: one of `constant, power, linear, lowrank, mlp, recurrent, position`.
        positions: the positions it speaks of.
        anchor: the position others are relative to.
        n_features: number of context features.
        shape: `rank` of `lowrank`, `width` of the networks (`mlp` may have 0).

    Example:
        >>> curve = make_curve("power", (1, 2, 4), 1, 1)
        >>> params = {"a": np.array([1.0]), "w": np.array([[0.5]])}
        >>> np.exp(curve.relative(params, np.array([[0.0], [2.0]]))).round(4)
        array([[1.    , 0.5   , 0.25  ],
               [1.    , 0.25  , 0.0625]])
    """
    if name not in CURVES:
        raise InputError(f"no curve {name!r}: expected one of {', '.join(CURVES)}")
    least = 0 if name == "mlp" else 1
    if any(size < least for size in shape.values()):
        raise InputError(f"the curve {name!r} got {shape}: expected {least} or more")
    try:
        return CURVES[name](positions, anchor, n_features, **shape)
    except TypeError as error:
        raise InputError(f"the curve {name!r} takes no {', '.join(shape)}") from error


def flatten_params(params: Params) -> NDArray[np.float64]:
    """Return parameters as one vector, in the order of their names.

    Example:
        >>> flatten_params({"b": np.array([3.0]), "W": np.array([[1.0, 2.0]])}).tolist()
        [1.0, 2.0, 3.0]
    """
    return np.concatenate([np.ravel(params[name]) for name in sorted(params)]).astype(np.float64)


def unflatten_params(flat: NDArray[np.float64], like: Params) -> Params:
    """Return a vector as parameters of the shapes that `like` has."""
    params, begin = {}, 0
    for name in sorted(like):
        size = np.size(like[name])
        params[name] = flat[begin : begin + size].reshape(np.shape(like[name]))
        begin += size
    return params


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
    return _half_squares(*(params[name] for name in ("A", "v") if name in params), xp=xp)


def _half_squares(*weights: Any, xp: Any) -> Any:
    return sum(xp.sum(w * w) for w in weights) / 2
