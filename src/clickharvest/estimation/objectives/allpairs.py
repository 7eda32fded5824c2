"""AllPairs, the estimator of Fang, Agarwal and Joachims (2019): clicks at pairs of positions of the same documents.

Relevance is one value for every pair of positions, a network of the context, a sigmoid layer of the context and its
squares, or free in every query: one value per query, context and pair, profiled out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.estimation.objectives import RELEVANCE, WEIGHTINGS
from clickharvest.estimation.objectives.base import (
    NUMBERS,
    ClusterSlopes,
    Objective,
    Point,
    sums_by_cluster_and_context,
    table,
)
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.slopes import runs
from clickharvest.model.curves import Params, hidden_layer, layers_penalty, sigmoid_layers

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

AUTO = "auto"
BY_CLICKSHARE = ("constant", "mlp", "free")
"""The relevance models that `"auto"` tries where the curve or the penalty is named."""
CERTAIN = -1e-9
"""The largest log chance of a click: a curve without an upper limit may ask for more."""
LOWEST = -700.0
"""The least log odds of relevance whose exponential is a number."""


@dataclass(frozen=True, eq=False)
class PairRows:
    """Clicks of every query (`cluster`), context and pair of positions {k, k'} shown, k < k', by context; n rows.

    Attributes:
        position: numbers of k and k', [2, n].
        pair: a number of the pair, [n].
        clicked: ĉ at k and at k', [2, n].
        passed: ¬ĉ at both, [2, n].
    """

    context: Integers
    cluster: Integers
    position: Integers
    pair: Integers
    clicked: Array
    passed: Array

    def take(self, rows: Any) -> PairRows:
        """Return some rows, by a mask, numbers or a slice."""
        return PairRows(**{name: np.ascontiguousarray(values[..., rows]) for name, values in vars(self).items()})


class AllPairs(Objective):
    """The paper's estimator: examination h(k, x) times average relevance g(k, k', x) explains clicks at k.

    Σ_x Σ_{k≠k'} ĉ_{k,k'}(k, x) log(h(k, x) g(k, k', x)) + ¬ĉ_{k,k'}(k, x) log(1 − h(k, x) g(k, k', x)),
    ĉ_{k,k'}(k) = Σ ω C / q_k over the rows at k of units exposed at k and k', and ¬ĉ likewise with 1 − C.

    g is symmetric and at most 1, one of

    - `"constant"`: a value for every pair {k, k'}.
    - `"mlp"`: (r̃ + r̃ᵀ) / 2, r̃ a sigmoid network of the context with an output for every (k, k').
    - `"squares"`: one sigmoid layer of the context and its squares, σ(c_{kk'} + v_{kk'}·[x, x² − 1]). Where features
      are means over the relevant documents of a query, their size tells how many these are: squares follow that.
    - `"free"`: a value for every query, context and pair, the best there is. What a network of the context cannot
      follow, such as the chance of a query's documents being relevant, it leaves to h as noise. Free relevance follows
      everything, at the price of a bias where queries are repeated little: examination below the top comes out too
      large, by half with 2 displays per query and pair, by 7 % with 10 and by 1.5 % with 50.

    Args:
        sample: the sample.
        relevance: the model of g.
        weighting: ω of a unit and pair with N and N' impressions at k and k': `"paper"` 1, `"min"` min(N, N'),
            `"harmonic"` N N' / (N + N'). With realised exposures ĉ is a click rate, and rates of units seen rarely
            are noisy: the other two give them less weight.
        width: hidden units of the network; 0 for the one layer of the paper's figure, r̃ = σ(c + v x).
    """

    name = "allpairs"
    against_shown = True

    def __init__(
        self, sample: Sample, *, relevance: str = "constant", weighting: str = "paper", width: int = 12
    ) -> None:
        if relevance not in RELEVANCE:
            raise InputError(f"no relevance model {relevance!r}: expected {one_of(RELEVANCE)}")
        self.relevance, self.width = relevance, width
        self.n_positions, self.n_features = len(sample.positions), sample.x.shape[1]
        rows = pair_rows(sample, weighting)
        # Click rates of units shown a thousand times weigh a thousandth of their clicks: per click, the slope of the
        # objective would look flat, and the fit converged, far from the optimum.
        self.size = float(min(sample.clicks.sum(), rows.clicked.sum()))
        if relevance == "free":  # pairs shown at one end alone, or never clicked, are explained by any h
            shown = (rows.clicked + rows.passed > 0).all(axis=0)
            rows = rows.take(shown & (rows.clicked > 0).any(axis=0))
        codes, pair = np.unique(rows.pair, return_inverse=True)
        self.pairs, self.rows = np.stack(np.divmod(codes, self.n_positions)), replace(rows, pair=pair)
        # Logits of relevance: none, one of every pair, or of a network one for either way round.
        self.columns = {"free": 0, "mlp": 2 * len(codes)}.get(relevance, len(codes))

    @classmethod
    def alternatives(cls, sample: Sample, **options: Any) -> dict[str, Objective]:
        """Return the objective of the relevance model named, or those of several for `"auto"`."""
        relevance = options.pop("relevance", "constant")
        if relevance not in (AUTO, *RELEVANCE):
            raise InputError(f"no relevance model {relevance!r}: expected {one_of((AUTO, *RELEVANCE))}")
        names = BY_CLICKSHARE if relevance == AUTO else (relevance,)
        return {name: cls(sample, relevance=name, **options) for name in names}

    @property
    def about(self) -> dict[str, Any]:
        """The relevance model."""
        return {"relevance": self.relevance}

    def init(self, random: np.random.Generator) -> Params:
        """Start from g = ½, or from random weights."""
        if self.relevance == "free":
            return {}
        if self.relevance == "mlp":
            layers = sigmoid_layers(random, self.n_features, self.width, self.n_positions**2)
            low, high = self.pairs
            ways = np.concatenate([low * self.n_positions + high, high * self.n_positions + low])
            return layers | {"v": layers["v"][:, ways], "c": layers["c"][ways]}
        level = {"c": np.zeros(self.columns)}
        return level if self.relevance == "constant" else level | {"v": np.zeros((2 * self.n_features, self.columns))}

    def formula(self, params: Params, x: Any, xp: Any = np) -> Any:
        """Return the log odds of relevance of the pairs that were observed, [m, pairs] or, of a network, [m, 2 pairs].

        Few of them are looked at: a context is shown at some of the pairs, and their sigmoids are left to rows.
        """
        if self.relevance == "constant":
            return params["c"] + x @ np.zeros((self.n_features, 1))
        if self.relevance == "squares":
            return xp.concatenate([x, x * x - 1], axis=-1) @ params["v"] + params["c"]
        return hidden_layer(params, x, xp) @ params["v"] + params["c"]

    def penalty(self, params: Params, xp: Any = np) -> Any:
        """Return ½ (|A|² + |v|²), with what there is of these; levels are not penalised."""
        return layers_penalty(params, xp)

    def by_contexts(self, n_contexts: int, cells: int) -> Iterator[tuple[slice, AllPairs]]:
        """Yield the objective of some contexts at a time, and which."""
        for some in runs(n_contexts, max(1, cells // (self.n_positions + self.columns))):
            part = copy(self)
            ends = np.searchsorted(self.rows.context, [some.start, some.stop])
            rows = self.rows.take(slice(*ends))
            part.rows = replace(rows, context=rows.context - some.start)
            yield some, part

    def among(self, clusters: NDArray[np.bool_], n_contexts: int) -> tuple[Self, NDArray[np.bool_]]:
        """Return the objective of some clusters [q] alone, and the contexts [m] that it is left with."""
        other, rows = copy(self), self.rows.take(clusters[self.rows.cluster])
        there = np.zeros(n_contexts, dtype=np.bool_)
        there[rows.context] = True
        other.rows = replace(rows, context=(np.cumsum(there) - 1)[rows.context])
        return other, there

    def value_and_slopes(
        self, log_p: Array, own: Array | None, weights: Array, *, valued: bool = True
    ) -> tuple[float, Array, Array | None]:
        """Return the log likelihood of weighted clusters [q], if it is asked for, and its slopes by log p and log g."""
        rows, m = self.rows, len(log_p)
        y, _, by_odds = self._log_chances(log_p, own)
        rest = -np.expm1(y)
        weight = weights.take(rows.cluster)
        value = float((rows.clicked * y + rows.passed * np.log(rest)).sum(axis=0) @ weight) if valued else 0.0
        slope = self._slopes(y, rest) * weight
        cell = rows.position * m + rows.context
        by_log_p = table(cell, slope, log_p.size).reshape(-1, m).T
        if own is None:
            return value, by_log_p, None
        odds = self._ways(own.shape[1]) * m + rows.context
        return value, by_log_p, table(odds, by_odds * (slope[0] + slope[1]), own.size).reshape(-1, m).T

    def by_cluster(self, log_p: Array, own: Array | None, n_clusters: int) -> Array:
        """Return the log likelihood of every cluster, [q]."""
        y, _, _ = self._log_chances(log_p, own)
        value = (self.rows.clicked * y + self.rows.passed * np.log(-np.expm1(y))).sum(axis=0)
        return table(self.rows.cluster, value, n_clusters)

    def cluster_slopes(self, log_p: Array, own: Array | None) -> ClusterSlopes:
        """Return the slopes of every cluster's log likelihood."""
        y, _, by_odds = self._log_chances(log_p, own)
        rows, slope = self.rows, self._slopes(y, -np.expm1(y))
        tables: list[tuple[Integers, Array, int]] = [(rows.position.T, slope.T, self.n_positions)]
        if own is not None:
            tables.append((self._ways(self.columns).T, (by_odds * slope.sum(axis=0)).T, self.columns))
        cluster, context, sums = sums_by_cluster_and_context(rows.cluster, rows.context, len(log_p), *tables)
        return ClusterSlopes(cluster, context, sums[0], None if own is None else sums[1])

    def information(self, at: Point, weights: Array, *, rough: bool) -> Array:
        """Return Σ w z zᵀ over the ends of rows, z the gradient of y = log h + log g, w = (ĉ + ¬ĉ) e^y / (1 − e^y).

        Where g is free, the best g moves with h, and a row knows of the difference of its ends alone,
        w₁ w₂ / (w₁ + w₂).
        """
        m, width = len(at.log_p), at.size * (self.n_positions + self.columns)
        every = 1 + rough * (m * width // NUMBERS)
        y, best, by_odds = self._log_chances(at.log_p, at.own)
        weight = weights[self.rows.cluster] * (self.rows.clicked + self.rows.passed) * np.exp(y) / -np.expm1(y)
        weight[y == CERTAIN] = 0.0  # a chance that is cut does not change
        total, seen = np.zeros((at.size, at.size)), np.arange(m) % every == 0
        begin = np.searchsorted(self.rows.context, np.arange(m + 1))
        for some in runs(int(seen.sum()), max(1, NUMBERS // width)):
            contexts = np.flatnonzero(seen)[some]
            some_rows = np.concatenate(
                [np.arange(*ends) for ends in zip(begin[contexts], begin[contexts + 1], strict=True)]
            )
            w, place = weight[:, some_rows], np.searchsorted(contexts, self.rows.context[some_rows])
            z = at.log_p_gradients(contexts)[place, self.rows.position[:, some_rows]]
            if at.own is not None:
                odds = at.own_gradients(contexts)[place, self._ways(self.columns)[:, some_rows]]
                z += np.einsum("wr,wri->ri", by_odds[:, some_rows], odds)
            else:
                both = np.where(best[some_rows] < 0, w.prod(axis=0) / np.maximum(w.sum(axis=0), 1e-300), 0.0)
                apart = (z[0] - z[1]) * np.sqrt(both)[:, None]
                total += apart.T @ apart
                w = np.where(best[some_rows] < 0, 0.0, w)
            z = (z * np.sqrt(w)[:, :, None]).reshape(-1, at.size)
            total += z.T @ z
        seen_weight = weight[:, seen[self.rows.context]].sum()
        return np.asarray(total * (weight.sum() / max(seen_weight, 1e-300)))

    def _log_chances(self, log_p: Array, own: Array | None) -> tuple[Array, Array, Array]:
        """Return y = log h + log g of both ends of every row, [2, n], log g, [n], and how that changes with own."""
        rows, m = self.rows, len(log_p)
        log_h = log_p.T.ravel().take(rows.position * m + rows.context)
        if own is None:
            log_g, by_odds = self._best(log_h), log_h
        else:
            odds = own.T.ravel().take(self._ways(own.shape[1]) * m + rows.context)
            chance = 1 / (1 + np.exp(-np.maximum(odds, LOWEST)))
            g = chance.mean(axis=0)
            log_g, by_odds = np.log(g), chance * (1 - chance) / (len(chance) * g)
        return np.minimum(log_h + log_g, CERTAIN), log_g, by_odds

    def _ways(self, columns: int) -> Integers:
        """Return the columns of own that g of each row is the mean of, [1 or 2, n]."""
        pairs = self.pairs.shape[1]
        return np.stack([self.rows.pair + begin for begin in range(0, columns, pairs)])

    def _slopes(self, y: Array, rest: Array) -> Array:
        """Return the slopes of rows by log chances, [2, n]; a chance that is cut does not change."""
        slope: Array = self.rows.clicked - self.rows.passed * ((1 - rest) / rest)
        slope[y == CERTAIN] = 0.0
        return slope

    def _best(self, log_h: Array) -> Array:
        """Return the best log g ≤ 0 of every row, [n].

        With C = ĉ + ĉ', s = h (C + ¬ĉ) and s' = h' (C + ¬ĉ') the objective of a row has its maximum over g where
        g = 2 C / (s + s' + √((s − s')² + 4 ¬ĉ ¬ĉ' h h')).
        """
        top = log_h.max(axis=0)
        h = np.exp(log_h - top)
        clicks = self.rows.clicked.sum(axis=0)
        s = h * (clicks + self.rows.passed)
        root = np.sqrt((s[0] - s[1]) ** 2 + 4 * (self.rows.passed * h).prod(axis=0))
        best: Array = np.minimum(np.log(2 * clicks / (s.sum(axis=0) + root)) - top, 0.0)
        return best


def pair_rows(sample: Sample, weighting: str) -> PairRows:
    """Return the clicks at pairs of positions of a sample, weighted by ω / q, see `AllPairs`."""
    if sample.unit_kind == "query" and sample.x.shape[1]:
        raise InputError("AllPairs needs one context per unit: harvest with --unit context, or use clickshare")
    if sample.division is not None:
        raise InputError(
            f"AllPairs adds up the clicks of a query and cannot divide them by {sample.clustered_by}: harvest with "
            "--cluster query, or use clickshare"
        )
    if weighting not in WEIGHTINGS:
        raise InputError(f"no weighting {weighting!r}: expected {one_of(WEIGHTINGS)}")
    _, first, counts = np.unique(sample.unit, return_index=True, return_counts=True)
    partners = counts[sample.unit]
    row = np.repeat(np.arange(len(sample.unit)), partners)
    other = first[sample.unit[row]] + np.arange(len(row)) - np.repeat(np.cumsum(partners) - partners, partners)
    row, other = row[row != other], other[row != other]
    shown, shown_other = (sample.impressions[i].astype(np.float64) for i in (row, other))
    weight = _pair_weights(weighting, shown, shown_other) / sample.exposure[row]
    here, there, clicks = sample.position[row], sample.position[other], sample.clicks[row]
    low, high = np.minimum(here, there), np.maximum(here, there)
    key = np.zeros(len(row), dtype=np.int64)
    for column in (sample.context[row], sample.cluster[row], low, high):
        key = key * (column.max(initial=0) + 1) + column
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    end, n = code + len(first) * (here > there), len(first)
    clicked, passed = (
        np.asarray(np.bincount(end, weight * values, 2 * n), np.float64).reshape(2, n)
        for values in (clicks, sample.impressions[row] - clicks)
    )
    rows = PairRows(
        context=sample.context[row[first]],
        cluster=sample.cluster[row[first]],
        position=np.stack([low[first], high[first]]),
        pair=low[first] * len(sample.positions) + high[first],
        clicked=clicked,
        passed=passed,
    )
    return rows.take((clicked + passed > 0).any(axis=0))  # by design a document may stand where it was never shown


def _pair_weights(weighting: str, shown: Array, other: Array) -> Array:
    """Return ω of units and pairs from the impressions N and N' at k and k'."""
    if weighting == "min":
        return np.minimum(shown, other)
    return shown * other / np.maximum(shown + other, 1) if weighting == "harmonic" else np.ones(len(shown))


def one_of(names: Iterable[str]) -> str:
    """Return names as a choice: a, b or c."""
    *others, last = names
    return f"{', '.join(others)} or {last}"
