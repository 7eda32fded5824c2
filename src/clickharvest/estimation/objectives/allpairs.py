"""AllPairs, the estimator of Fang, Agarwal and Joachims (2019): clicks at pairs of positions of the same documents.

Relevance is one value for every pair of positions, a network of the context, a sigmoid layer of the context and its
squares, or free in every query: one value per query, context and pair, profiled out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clickharvest.errors import InputError
from clickharvest.estimation.objectives.base import Data, Objective, chunked_sum
from clickharvest.estimation.pair_names import RELEVANCE
from clickharvest.estimation.pairs import both_ways, one_of, pair_entries
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Params, hidden_layer, layers_penalty, sigmoid_layers

AUTO = "auto"
BY_CLICKSHARE = ("constant", "mlp", "free")
"""The relevance models that `"auto"` tries where the curve or the penalty is named."""


class AllPairs(Objective):
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
    against_shown = True

    def __init__(
        self, sample: Sample, *, relevance: str = "constant", weighting: str = "paper", width: int = 12
    ) -> None:
        if relevance not in ("constant", "mlp"):
            raise InputError(f"no relevance model {relevance!r}: expected constant or mlp")
        self.relevance, self.width = relevance, width
        self.n_positions, self.n_features = len(sample.positions), sample.x.shape[1]
        self.data: Data = both_ways(pair_entries(sample, weighting))
        self.size = _size(sample, self.data)

    @classmethod
    def alternatives(cls, sample: Sample, **options: Any) -> dict[str, Objective]:
        """Return the objective of the relevance model named, `"free"` included, or those of all for `"auto"`."""
        relevance = options.pop("relevance", "constant")
        if relevance not in (AUTO, *RELEVANCE):
            raise InputError(f"no relevance model {relevance!r}: expected {one_of((AUTO, *RELEVANCE))}")
        kinds: dict[str, Any] = {"free": FreeAllPairs, "squares": SquaresAllPairs}
        made: dict[str, Objective] = {}
        for name in BY_CLICKSHARE if relevance == AUTO else (relevance,):
            kind = kinds.get(name, AllPairs)
            made[name] = kind(
                sample, **{k: v for k, v in ({"relevance": name} | options).items() if k in kind.options()}
            )
        return made

    @property
    def about(self) -> dict[str, Any]:
        """The relevance model."""
        return {"relevance": self.relevance}

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


class SquaresAllPairs(AllPairs):
    """The objective of `AllPairs` with one sigmoid layer of the context and its squares for relevance.

    g(k, k', x) = σ(c_{kk'} + v_{kk'}·[x, x² − 1]), one for the pair {k, k'}. Where features are means over the relevant
    documents of a query, their size tells how many these are: squares follow that, a layer of x alone cannot.

    Args:
        sample: the sample.
        weighting: ω of a unit and pair, see `AllPairs`.
        strength: penalty on v, in units of the penalty on examination.
    """

    def __init__(self, sample: Sample, *, weighting: str = "paper", strength: float = 1.0) -> None:
        super().__init__(sample, weighting=weighting)
        self.relevance, self.strength = "squares", strength

    def init(self, random: np.random.Generator) -> Params:
        """Start from g = ½."""
        pairs = self.n_positions * (self.n_positions - 1) // 2
        return {"c": np.zeros(pairs), "v": np.zeros((2 * self.n_features, pairs))}

    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: Data, weights: Any) -> Any:
        """Return the weighted cross-entropy of the pairs; `log_p` is log h, negative or zero."""
        logits = jnp.concatenate([x, x * x - 1], axis=1) @ params["v"] + params["c"]
        return super().log_likelihood({"logits": logits}, log_p, x, data, weights)

    def _log_relevance(self, params: Params, hidden: Any, context: Any, k: Any, other: Any) -> Any:
        return jax.nn.log_sigmoid(params["logits"][context, pair_number(k, other, self.n_positions)])

    def penalty(self, params: Params) -> Any:
        """Return strength × ½ |v|²."""
        return self.strength * jnp.sum(params["v"] ** 2) / 2


class FreeAllPairs(AllPairs):
    """The objective of `AllPairs`, maximised over one relevance g ≤ 1 for every query, context and pair {k, k'}.

    A network g(k, k', x) smooths relevance over contexts. What it cannot follow, the chance of a query's documents
    being relevant, it leaves to h as noise: with few queries, however often each is repeated, h suffers. Free relevance
    follows everything, at the price of a bias where queries are repeated little (a value per query, learned from few
    displays): examination below the top comes out too large. With relevances ~ Beta(1, 2) it was 50 % too large with 2
    displays per query and pair, 18 % with 4, 7 % with 10, 3.6 % with 20, 1.5 % with 50 and .6 % with 100, however many
    queries there were; with Beta(1, 9), where clicks are rare, 45, 4, 1 % and less (`benchmarks/free_allpairs.py`).

    With ĉ, ĉ' the clicks at k and k', ¬ĉ, ¬ĉ' what was passed over, and h, h' the examination of the two,

        max_g (ĉ + ĉ') log g + ĉ log h + ĉ' log h' + ¬ĉ log(1 − h g) + ¬ĉ' log(1 − h' g)

    is a quadratic equation in g: g = 2 C / (s + s' + √((s − s')² + 4 ¬ĉ ¬ĉ' h h')), with C = ĉ + ĉ', s = h (C + ¬ĉ),
    s' = h' (C + ¬ĉ'). So the objective has no parameters of its own, and held-out queries get their g as others do.

    Args:
        sample: the sample; pairs that were clicked nowhere, or shown at one position only, tell nothing of h.
        weighting: ω of a unit and pair, see `AllPairs`.
    """

    def __init__(self, sample: Sample, *, weighting: str = "paper") -> None:
        self.relevance = "free"
        rows = both_ways(pair_entries(sample, weighting))
        self.size = _size(sample, rows)
        shown = (rows["clicked"] + rows["passed"] > 0).all(axis=1)
        telling = shown & (rows["clicked"] > 0).any(axis=1)
        self.data: Data = {name: values[telling] for name, values in rows.items()}

    def init(self, random: np.random.Generator) -> Params:
        """There is nothing to start from."""
        return {}

    def log_likelihood(self, params: Params, log_p: Any, x: Any, data: Data, weights: Any) -> Any:
        """Return the weighted cross-entropy of the pairs at the best g of each; `log_p` is log h, negative or zero."""

        def of_rows(rows: Data) -> Any:
            log_h = log_p[rows["context"][:, None], rows["position"]]
            top = jnp.max(log_h, axis=1, keepdims=True)
            clicks = jnp.sum(rows["clicked"], axis=1)
            h = jnp.exp(log_h - top)
            s = h * (clicks[:, None] + rows["passed"])
            total = s[:, 0] + s[:, 1]
            spread = (s[:, 0] - s[:, 1]) ** 2 + 4 * jnp.prod(rows["passed"] * h, axis=1)
            root = jnp.sqrt(jnp.maximum(spread, 1e-16 * total**2))
            log_g = jnp.minimum(jnp.log(2 * clicks / (total + root))[:, None], top)
            y = jnp.minimum(log_g + log_h - top, -1e-9)
            terms = rows["clicked"] * y + rows["passed"] * jnp.log(-jnp.expm1(y))
            return jnp.sum(weights[rows["cluster"]] * jnp.sum(terms, axis=1))

        return chunked_sum(of_rows, data, 2)

    def penalty(self, params: Params) -> Any:
        """Nothing of its own, nothing is penalised."""
        return 0.0


def pair_number(low: Any, high: Any, n_positions: int) -> Any:
    """Return the number of the pair low < high among all pairs, in order.

    Example:
        >>> pair_number(np.array([0, 0, 1]), np.array([1, 2, 2]), 3).tolist()
        [0, 1, 2]
    """
    return low * (2 * n_positions - low - 1) // 2 + high - low - 1


def _size(sample: Sample, rows: Data) -> float:
    """Return the clicks, or what they weigh if that is less.

    Click rates of units shown a thousand times weigh a thousandth of their clicks: per click, the slope of the
    objective would look flat, and the fit converged, far from the optimum.
    """
    return float(min(sample.clicks.sum(), rows["clicked"].sum()))
