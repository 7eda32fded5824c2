"""Rivals: how far the curves that were not taken are from the one that was.

Cross-validation takes one curve, and an interval of that curve tells nothing of the choice. Others that predict unseen
queries nearly as well may say something else, and one of them may be right. Let ℓ_cq be the held-out log likelihood of
query q under curve c. With random weights on the queries, ω ~ Dirichlet(1, …, 1),

    w_c = E[softmax_c(Q Σ_q ω_q ℓ_cq)],

the weights of pseudo-Bayesian model averaging with the Bayesian bootstrap: nearly 1 for a curve that is clearly better,
shared where queries do not tell. The mean square of what the choice may be off by is

    S = Σ_c w_c  mean over folds and contexts of  d dᵀ,   d = log p_c(x) − log p_chosen(x), both relative to the anchor,

[K, K], the two being fitted to the same queries. It is 0 where the chosen curve has all the weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from clickharvest.estimation.selection import Judged
from clickharvest.model.curves import flatten_params, unflatten_params

Array = NDArray[np.float64]

DRAWS = 1_000
"""Draws of the queries' weights."""


def rivalry(judged: Sequence[Judged], x: Array) -> tuple[Array, dict[str, float]]:
    """Return S, [K, K], and the weight of every curve by its name.

    Args:
        judged: the candidates; of each curve the best penalty counts, and none that was left on the way: by far behind
            on some of the folds, it would have no weight.
        x: contexts to average over, [contexts, features].
    """
    best: dict[str, Judged] = {}
    for one in judged:
        if one.candidate.folds is not None:
            continue
        name = _name(one)
        own = best.get(name)
        if own is None or (one.candidate.chosen, one.candidate.score) > (own.candidate.chosen, own.candidate.score):
            best[name] = one
    sound = {name: one for name, one in best.items() if np.isfinite(one.by_query).all()}
    weights = model_weights(np.array([one.by_query * one.fit.scale for one in sound.values()]))
    logs = {name: _log_examination(one, x) for name, one in sound.items()}
    (taken,) = (logs[name] for name, one in sound.items() if one.candidate.chosen)
    square = np.zeros((taken.shape[-1],) * 2)
    for weight, each in zip(weights, logs.values(), strict=True):
        off = (each - taken).reshape(-1, taken.shape[-1])
        square += weight * off.T @ off / len(off)
    return square, dict(zip(sound, weights.tolist(), strict=True))


def model_weights(log_likelihood: Array) -> Array:
    """Return the weights of candidates by the held-out log likelihood of queries, [candidates, queries] → [candidates].

    Example:
        Twenty queries say that the first of three is better than the third, and next to nothing of the second.

        >>> model_weights(np.outer([0.0, -0.01, -1.0], np.ones(20))).round(2).tolist()
        [0.55, 0.45, 0.0]
    """
    queries = log_likelihood.shape[1]
    omega = np.random.default_rng(0).dirichlet(np.ones(queries), size=DRAWS)
    weights: Array = softmax(queries * omega @ log_likelihood.T, axis=1).mean(axis=0)
    return weights


def _name(one: Judged) -> str:
    return " ".join(str(part) for part in one.candidate.curve.values())


def _log_examination(one: Judged, x: Array) -> Array:
    """Return log p_k(x) / p_anchor(x) as each fold has it, [folds, contexts, K]."""
    like = one.fit.curve.init(np.random.default_rng(0))
    size = len(flatten_params(like))
    return np.array([one.fit.curve.relative(unflatten_params(flat[:size], like), x) for flat in one.flats])
