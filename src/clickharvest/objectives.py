"""Objectives: what a fit maximises, each formula once, in log space.

An objective takes the log examination of every distinct context and position, [m, K], and returns a log likelihood
summed over the sample, each query weighted: a weight of 0 leaves a query out (cross-validation), a Poisson weight
resamples it (bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from clickharvest.curves import Params, hidden_layer, layers_penalty, sigmoid_layers
from clickharvest.errors import InputError
from clickharvest.samples import Sample

Data = dict[str, Any]
Relevance = Literal["constant", "mlp"]
Weighting = Literal["paper", "min", "harmonic"]

CHUNK = 2_000_000
"""Cells that are evaluated at once; a larger sample is summed chunk by chunk, so that memory stays bounded."""
NEVER = -1e30
"""Log exposure of cells that are not there: finite, so that 0 clicks times it is 0."""


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


class ClickShare(ByValue):
    """Shares of a unit's clicks over its positions, free of its relevance.

    Σ_u Σ_k C_{u,k} log π_{u,k},   π_{u,k} = e_{u,k} p_k(x_u) / Σ_j e_{u,j} p_j(x_u).

    Where contexts vary inside a unit its cells are (context, position) pairs with logits
    log e + s(x) + log p_k(x); s(x) = s·x absorbs how much a context clicks in general.

    Args:
        sample: the sample; units without a click carry no information and are left out.

    Cells are held as [units, cells per unit] arrays, units of similar size together, so that padding stays small.
    """

    name = "clickshare"

    def __init__(self, sample: Sample) -> None:
        self.varying = sample.unit_kind == "query" and sample.x.shape[1] > 0
        self.n_features = sample.x.shape[1]
        self.size = float(sample.clicks.sum())
        clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
        _, first, unit, cells = np.unique(
            sample.unit[clicked], return_index=True, return_inverse=True, return_counts=True
        )
        slot = np.arange(len(unit)) - first[unit]
        columns = {
            "context": sample.context[clicked],
            "position": sample.position[clicked],
            "log_exposure": np.log(sample.exposure[clicked]),
            "clicks": sample.clicks[clicked].astype(np.float64),
        }
        bucket = np.ceil(np.log2(cells)).astype(int)
        self.data: list[Data] = []
        for size in np.unique(bucket):
            own = np.flatnonzero(bucket[unit] == size)
            row = np.searchsorted(np.flatnonzero(bucket == size), unit[own])
            shape = (int((bucket == size).sum()), int(cells[bucket == size].max()))
            block: Data = {"cluster": sample.cluster[clicked][first[bucket == size]]}
            for name, column in columns.items():
                block[name] = np.full(shape, NEVER if name == "log_exposure" else 0, dtype=column.dtype)
                block[name][row, slot[own]] = column[own]
            by_context = np.argsort(block["context"][:, 0], kind="stable")  # neighbours in memory are read faster
            self.data.append({name: values[by_context] for name, values in block.items()})

    def init(self, random: np.random.Generator) -> Params:
        """Start from contexts that click alike."""
        return {"s": np.zeros(self.n_features)} if self.varying else {}

    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: list[Data], weights: Any) -> Any:
        """Return Σ_u w_u Σ_k C_{u,k} log π_{u,k}."""
        if self.varying:
            log_p = log_p + (x @ params["s"])[:, None]

        def of_block(block: Data) -> Any:
            logits = block["log_exposure"] + log_p[block["context"], block["position"]]
            top = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
            log_share = logits - top - jnp.log(jnp.sum(jnp.exp(logits - top), axis=1, keepdims=True))
            return jnp.sum(weights[block["cluster"]] * jnp.sum(block["clicks"] * log_share, axis=1))

        return sum(chunked_sum(of_block, block, block["clicks"].shape[1]) for block in data)

    def penalty(self, params: Params) -> Any:
        """Return ½ |s|²."""
        return jnp.sum(params["s"] ** 2) / 2 if self.varying else 0.0


class AllPairs(ByValue):
    """The paper's estimator: examination h(k, x) times average relevance g(k, k', x) explains clicks at k.

    Σ_x Σ_{k≠k'} ĉ_{k,k'}(k, x) log(h(k, x) g(k, k', x)) + ¬ĉ_{k,k'}(k, x) log(1 − h(k, x) g(k, k', x)),
    ĉ_{k,k'}(k) = Σ ω C / q_k over the rows at k of units exposed at k and k', and ¬ĉ likewise with 1 − C.

    g is symmetric, g = (r̃ + r̃ᵀ) / 2, with r̃ a matrix of sigmoids or a sigmoid network of x.

    Args:
        sample: the sample.
        relevance: `"constant"` for a matrix r_{k,k'}, `"mlp"` for a network of the context.
        weighting: ω of a unit and pair with N and N' impressions at k and k': `"paper"` 1, `"min"` min(N, N'),
            `"harmonic"` N N' / (N + N'). With realised exposures ĉ is a click rate, and rates of units seen rarely
            are noisy: the other two give them less weight.
        width: hidden units of the network; 0 for the one layer of the paper's figure, r̃ = σ(c + v x).

    Only pairs that some unit was exposed at are held, one row per query, context and pair {k, k'}: either way round has
    the same g.
    """

    name = "allpairs"

    def __init__(
        self, sample: Sample, *, relevance: Relevance = "constant", weighting: Weighting = "paper", width: int = 12
    ) -> None:
        if relevance not in ("constant", "mlp"):
            raise InputError(f"no relevance model {relevance!r}: expected constant or mlp")
        self.relevance, self.width = relevance, width
        self.n_positions, self.n_features = len(sample.positions), sample.x.shape[1]
        self.size = float(sample.clicks.sum())
        self.data: Data = both_ways(pair_entries(sample, weighting))

    def init(self, random: np.random.Generator) -> Params:
        """Start from g = ½, or from random weights."""
        pairs = self.n_positions**2
        if self.relevance == "constant":
            return {"r": np.zeros(pairs)}
        return sigmoid_layers(random, self.n_features, self.width, pairs)

    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: Data, weights: Any) -> Any:
        """Return the weighted cross-entropy of the pairs; `log_p` is log h, negative or zero."""
        hidden = hidden_layer(params, x, jnp) if self.relevance == "mlp" else None

        def of_rows(rows: Data) -> Any:
            context, place = rows["context"], rows["position"]
            log_g = self._log_relevance(params, hidden, context, place[:, 0], place[:, 1])
            y = jnp.minimum(log_p[context[:, None], place] + log_g[:, None], -1e-9)
            terms = rows["clicked"] * y + rows["passed"] * jnp.log(-jnp.expm1(y))
            return jnp.sum(weights[rows["cluster"]] * jnp.sum(terms, axis=1))

        return chunked_sum(of_rows, data, 2)

    def _log_relevance(self, params: Params, hidden: Any, context: Any, k: Any, other: Any) -> Any:
        """Return log g(k, k', x) of each row, [n]."""

        def one_way(pair: Any) -> Any:
            if hidden is None:
                return jax.nn.sigmoid(params["r"][pair])
            return jax.nn.sigmoid(jnp.sum(hidden[context] * params["v"].T[pair], axis=1) + params["c"][pair])

        g = (one_way(k * self.n_positions + other) + one_way(other * self.n_positions + k)) / 2
        return jnp.log(jnp.maximum(g, np.finfo(np.float64).tiny))

    def penalty(self, params: Params) -> Any:
        """Return ½ (|A|² + |v|²) of the network; the matrix is not penalised."""
        return 0.0 if self.relevance == "constant" else layers_penalty(params, jnp)


def pair_entries(sample: Sample, weighting: Weighting) -> Data:
    """Return ĉ (`clicked`) and ¬ĉ (`passed`) of every query, context and ordered pair shown, [entries] each."""
    if sample.unit_kind == "query" and sample.x.shape[1]:
        raise InputError("AllPairs needs one context per unit: harvest with --unit context, or use clickshare")
    if weighting not in ("paper", "min", "harmonic"):
        raise InputError(f"no weighting {weighting!r}: expected paper, min or harmonic")
    _, first, counts = np.unique(sample.unit, return_index=True, return_counts=True)
    partners = counts[sample.unit]
    row = np.repeat(np.arange(len(sample.unit)), partners)
    step = np.arange(len(row)) - np.repeat(np.cumsum(partners) - partners, partners)
    other = first[sample.unit[row]] + step
    row, other = row[row != other], other[row != other]
    shown, shown_other = (sample.impressions[i].astype(np.float64) for i in (row, other))
    weight = {
        "paper": np.ones(len(row)),
        "min": np.minimum(shown, shown_other),
        "harmonic": shown * shown_other / np.maximum(shown + shown_other, 1),
    }[weighting]
    weight = weight / sample.exposure[row]
    keys = np.stack([sample.cluster[row], sample.context[row], sample.position[row], sample.position[other]])
    distinct, code = np.unique(keys, axis=1, return_inverse=True)
    clicks = sample.clicks[row]
    entries = {
        **dict(zip(("cluster", "context", "position", "other"), distinct, strict=True)),
        "clicked": np.bincount(code, weights=weight * clicks),
        "passed": np.bincount(code, weights=weight * (sample.impressions[row] - clicks)),
    }
    seen = entries["clicked"] + entries["passed"] > 0  # by design a document may stand where it was never shown
    return {name: values[seen] for name, values in entries.items()}


def both_ways(entries: Data) -> Data:
    """Return entries (k, k') and (k', k) as one row: `position`, `clicked` and `passed` at k and at k' > k, [n, 2]."""
    low, high = (choose(entries["position"], entries["other"]) for choose in (np.minimum, np.maximum))
    key = np.zeros(len(low), dtype=np.int64)
    for column in (entries["context"], entries["cluster"], low, high):
        key = key * (column.max(initial=0) + 1) + column
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    end = 2 * row + (entries["position"] > entries["other"])
    return {
        "context": entries["context"][first],
        "cluster": entries["cluster"][first],
        "position": np.stack([low[first], high[first]], axis=1),
        "clicked": np.bincount(end, entries["clicked"], 2 * len(first)).reshape(-1, 2),
        "passed": np.bincount(end, entries["passed"], 2 * len(first)).reshape(-1, 2),
    }


def log1mexp(y: Any) -> Any:
    """Return log(1 − e^y) for y < 0, accurate near 0 and far below.

    Example:
        >>> [round(float(log1mexp(y)), 4) for y in (-1e-3, -0.5, -50.0)]
        [-6.9083, -0.9328, -0.0]
    """
    near = y > -jnp.log(2.0)
    safe_near, safe_far = jnp.where(near, y, -0.5), jnp.where(near, -1.0, y)
    return jnp.where(near, jnp.log(-jnp.expm1(safe_near)), jnp.log1p(-jnp.exp(safe_far)))


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
