"""AllPairs with relevance free in every query: one value per query, context and pair of positions, profiled out.

A network g(k, k', x) smooths relevance over contexts. What it cannot follow, the chance of a query's documents being
relevant, it leaves to h as noise: with few queries, however often each is repeated, h suffers. Free relevance follows
everything, at the price of a bias where queries are repeated little (a value per query, learned from few displays).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from clickharvest.estimation.allpairs import Weighting, both_ways, pair_entries
from clickharvest.estimation.objective import ByValue, Data, chunked_sum
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Params


class FreeAllPairs(ByValue):
    """The objective of `AllPairs`, maximised over one relevance g ≤ 1 for every query, context and pair {k, k'}.

    With ĉ, ĉ' the clicks at k and k', ¬ĉ, ¬ĉ' what was passed over, and h, h' the examination of the two,

        max_g (ĉ + ĉ') log g + ĉ log h + ĉ' log h' + ¬ĉ log(1 − h g) + ¬ĉ' log(1 − h' g)

    is a quadratic equation in g: g = 2 C / (s + s' + √((s − s')² + 4 ¬ĉ ¬ĉ' h h')), with C = ĉ + ĉ', s = h (C + ¬ĉ),
    s' = h' (C + ¬ĉ'). So the objective has no parameters of its own, and held-out queries get their g as others do.

    Args:
        sample: the sample; pairs that were clicked nowhere, or shown at one position only, tell nothing of h.
        weighting: ω of a unit and pair, see `AllPairs`.
    """

    name = "allpairs"

    def __init__(self, sample: Sample, *, weighting: Weighting = "paper") -> None:
        self.size = float(sample.clicks.sum())
        rows = both_ways(pair_entries(sample, weighting))
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
