"""AllPairs, the estimator of Fang, Agarwal and Joachims (2019): clicks at pairs of positions of the same documents."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from clickharvest.errors import InputError
from clickharvest.estimation.objective import ByValue, Data, chunked_sum
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Params, hidden_layer, layers_penalty, sigmoid_layers

Relevance = Literal["constant", "mlp"]
Weighting = Literal["paper", "min", "harmonic"]


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
